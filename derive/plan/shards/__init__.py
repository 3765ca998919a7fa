"""Sharding of a formula over the ranks of a mesh: the program of a rank and its communication.

    h=tp   each rank of the mesh's dimension tp has an equal shard of the positions of h

An equation whose result has the index is computed in shards. So is a sum over the index, whose
partial sums are added over the ranks. A row normalized over the index needs the maximum and the sum
over all ranks; mean, var and logsumexp consist of sums and maxima. Any other equation with the
index (a running sum, a product, a recurrence along it) is computed whole on every rank.

A tensor is sharded along one of its axes, or replicated. Between equations there are moves:

    move       forward                                    backward
    copy       replicated, read by sharded work           all-reduce of the gradients
    add        partial sums, added                        no communication
    largest    the maximum of a normalized row            no gradient
    max, min   of the shards                              counts the ranks that hold the extreme
    gather     sharded to replicated, for sharded work    reduce-scatter of the gradients
    collect    sharded to replicated, for the same work   each rank keeps its shard of the gradient
    split      replicated to sharded                      all-gather of the gradients

The equations between moves are formulas of their own, the stages, which are planned like any other.
Byte counts are those of the tensor that each rank passes to a collective, if all real arguments
need gradients.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from derive.analysis.extents import find_open_sizes
from derive.errors import refuse, suggest
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_text
from derive.ir.walk import (
    Names,
    find_accesses,
    find_all_indices,
    find_sizes,
    resize_system,
    rewrite_bottom_up,
    walk,
)
from derive.plan.meaning import to_expr, to_step_equation
from derive.plan.plan import Plan
from derive.plan.shards.work import (
    EquationSplitter,
    Move,
    MoveInserter,
    find_made_name,
    find_read_names,
    find_smooth,
)

RANKS = 2  # assumed ranks per dimension of the mesh, where a plan needs a number
# The collectives of a move: forward, backward.
SENT = {
    "copy": ("", "all-reduce"),
    "add": ("all-reduce", ""),
    "largest": ("all-reduce", ""),
    "max": ("all-reduce", "all-reduce"),
    "min": ("all-reduce", "all-reduce"),
    "gather": ("all-gather", "reduce-scatter"),
    "collect": ("all-gather", ""),
    "split": ("", "all-gather"),
}


@dataclass(frozen=True, slots=True)
class Transfer:
    """A collective: the tensor it moves, the dimension of the mesh, and the elements per rank."""

    collective: str
    tensor: str
    axis: str
    elements: Polynomial  # in sizes, and in axis names for numbers of ranks


@dataclass(frozen=True, slots=True)
class Stage:
    """Moves, and the formula that each rank computes by itself after them."""

    moves: tuple[Move, ...]
    system: ir.System | None  # None for the moves after the last formula
    given: tuple[str, ...] = ()  # the outer names of the inputs
    made: tuple[str, ...] = ()  # the outer names of the results
    sizes: tuple[tuple[str, str], ...] = ()  # pairs (keyword, outer size)


@dataclass(frozen=True, slots=True)
class Sharding:
    """A sharded formula: the layout of its tensors, and its stages in order."""

    system: ir.System
    cuts: tuple[tuple[str, str], ...]  # pairs (index, dimension of the mesh)
    mesh: str  # the name of the mesh's variable
    places: Mapping[str, Mapping[str, int]]  # argument or result -> dimension -> sharded axis
    stages: tuple[Stage, ...]
    shares: Mapping[str, tuple[ir.Expr, str]]  # size of a shard -> (whole extent, dimension)
    positions: Mapping[str, tuple[str, str]]  # tensor of positions -> (size of a shard, dimension)
    returned: tuple[str, ...]
    whole: tuple[tuple[str, str], ...]  # pairs (unsharded tensor with a cut index, reason)
    forward: tuple[Transfer, ...] = ()  # set by `count_transfers`
    backward: tuple[Transfer, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether any index is sharded."""
        return bool(self.cuts)


def find_sharding(system: ir.System, cuts: Mapping[str, str]) -> Sharding:
    """Shard indices of a formula over dimensions of a mesh; DeriveError if none can be."""
    known = {index.name: index for index in find_all_indices(system)}
    names = Names.of(system)
    for name, axis in cuts.items():
        if name not in known:
            raise refuse(
                "shard-index",
                f"{system.name} has no index {name} that could be cut",
                facts=[f"its indices are {', '.join(known)}"],
                help=suggest(name, known) or "name one of them: --shard b=dp,h=tp",
            )
        if not axis.isidentifier() or axis in names:
            raise refuse(
                "shard-dimension",
                f"{axis or 'nothing'} cannot be the name of a dimension of the mesh",
                facts=["the formula has it for something else"] * (axis in names),
                help="choose a name like dp, tp or sp",
            )
    found = _shard_system(system, cuts)
    for name in cuts:
        if not any(n == name for n, _ in found.cuts):
            raise refuse(
                "shard-nothing",
                f"index {name} cannot be cut: every equation that holds it is computed whole",
                facts=[f"{tensor}: {why}" for tensor, why in found.whole],
                help="derive show --shard tells which indices can be cut",
            )
    return found


def is_same_formula(one: ir.System, other: ir.System) -> bool:
    """Whether two systems have equal inputs, equations, results and sizes."""
    return (
        [*one.inputs] == [*other.inputs]
        and one.equations == other.equations
        and one.results == other.results
        and {s.name for s in one.sizes} == {s.name for s in other.sizes}
    )


def list_shardings(system: ir.System, axis: str) -> Iterator[tuple[ir.Index, Sharding]]:
    """Yield each index, and the formula with only that index sharded over a dimension."""
    indices = {index.name: index for index in find_all_indices(system)}
    for name, index in indices.items():
        yield index, _shard_system(system, {name: axis})


def _shard_system(system: ir.System, cuts: Mapping[str, str]) -> Sharding:
    """Return the formula as stages, after rewriting its equations and inserting moves."""
    splitter = EquationSplitter(system, cuts)
    splitter.split_equations()
    mover = MoveInserter(splitter)
    mover.insert_moves()
    return _assemble(splitter, mover)


def _assemble(splitter: EquationSplitter, mover: MoveInserter) -> Sharding:
    """Group the program of a rank into stages, each as long as possible without a move."""
    system = splitter.system
    results = [mover.localize(t, mover.layouts[t.name]) for t in system.results]
    needed, before = {tensor.name for tensor in results}, 0
    while before != len(needed):  # fixed point: everything that the results depend on
        before = len(needed)
        needed |= {
            name
            for p in mover.program
            if find_made_name(p) in needed
            for name in find_read_names(p)
        }
    program = [part for part in mover.program if find_made_name(part) in needed]
    levels = _find_levels(program, splitter.groups)
    last = max(levels.values(), default=0)
    stages: list[Stage] = []
    moves: tuple[Move, ...] = ()
    for level in range(last + 1):
        here = [part for part in program if levels[find_made_name(part)] == level]
        moves += tuple(part for part in here if isinstance(part, Move))
        equations = tuple(part for part in here if isinstance(part, ir.Equation))
        if equations:
            stages.append(_make_stage(mover, moves, equations, program))
            moves = ()
    stages += [Stage(moves, None)] if moves else []
    active = {index.name for work in splitter.work for index in work.active.values()}
    given = [e.name for e in system.inputs if isinstance(e, ir.Tensor)]
    return Sharding(
        system,
        tuple((name, axis) for name, axis in splitter.cuts.items() if name in active),
        splitter.mesh,
        {
            name: {axis: place for axis, (place, _) in mover.layouts[name].items()}
            for name in (*given, *(tensor.name for tensor in system.results))
        },
        tuple(stages),
        mover.shares,
        mover.positions,
        tuple(tensor.name for tensor in results),
        tuple(splitter.whole),
    )


def _make_stage(
    mover: MoveInserter,
    moves: tuple[Move, ...],
    equations: tuple[ir.Equation, ...],
    program: Sequence[ir.Equation | Move],
) -> Stage:
    """Return the stage of some equations; tensors and sizes keep their names if unique."""
    whole = mover.splitter.system
    made = {e.target.tensor.name: e.target.tensor for e in equations}
    returned = [tensor.name for tensor in whole.results]
    others = (part for part in program if part not in equations)
    outside = {*returned, *(name for part in others for name in find_read_names(part))}
    kept = [tensor for name, tensor in made.items() if name in outside]
    parts = [part for e in equations for part in (e.target, e.value)]
    reads = {a.tensor.name: a.tensor for part in parts for a in find_accesses(part)}
    given = [tensor for name, tensor in reads.items() if name not in made]
    real = [e for e in whole.inputs if isinstance(e, ir.Tensor) and e.kind == "real"]
    if real and all(tensor.kind != "real" for tensor in given):  # a real input determines the dtype
        given.append(mover.localize(real[0], mover.layouts[real[0].name]))
    scalars = dict.fromkeys(p.name for e in parts for p in walk(e) if isinstance(p, ir.Scalar))
    inputs: list[ir.Tensor | ir.ScalarInput] = [*given, *map(ir.ScalarInput, scalars)]

    def rank(entry: ir.Tensor | ir.ScalarInput, order: Sequence[str]) -> int:
        base = mover.bases.get(entry.name, entry.name)
        return order.index(base) if base in order else len(order)

    inputs.sort(key=lambda entry: rank(entry, [each.name for each in whole.inputs]))
    kept.sort(key=lambda entry: rank(entry, returned))
    system = ir.System(
        whole.name, tuple(inputs), (), equations, tuple(kept), whole.empty_row, whole.declared
    )
    present = [*(entry.name for entry in inputs), *made]
    bases = [mover.bases.get(name, name) for name in present]
    names = {n: base for n, base in zip(present, bases, strict=True) if bases.count(base) == 1}
    sizes: dict[ir.Expr, ir.Expr] = {}
    inside = find_sizes(system)
    for name, (extent, _) in mover.shares.items():
        is_own_size = isinstance(extent, ir.Size) and extent.name not in inside
        if is_own_size and name in inside and extent not in sizes.values():
            sizes[ir.Size(name)] = extent
    system = resize_system(system, sizes, names)
    sizes_given = tuple(size for size in whole.sizes if size.name in find_sizes(system))
    system = replace(system, sizes=sizes_given)
    system = replace(system, sizes=(*sizes_given, *map(ir.SizeInput, find_open_sizes(system))))
    shares = {to_text(new): to_text(old) for old, new in sizes.items()}
    return Stage(
        moves,
        system,
        tuple(entry.name for entry in inputs),
        tuple(tensor.name for tensor in kept),
        tuple((size.name, shares.get(size.name, size.name)) for size in system.sizes),
    )


def _find_levels(
    program: Sequence[ir.Equation | Move], groups: Sequence[tuple[ir.Tensor, ...]]
) -> dict[str, int]:
    """Return the number of exchanges before each tensor; a recurrence's tensors have one level."""
    levels: dict[str, int] = {}
    computed: set[str] = set()
    together = [{tensor.name for tensor in group} for group in groups]
    owners = {find_made_name(p) for p in program}
    for part in program:
        name = find_made_name(part)
        group = next((g for g in together if name in g), {name})
        parts = [each for each in program if find_made_name(each) in group]
        reads = {r for p in parts for r in find_read_names(p) if r in owners and r not in group}
        level = max((levels.get(read, 0) for read in reads), default=0)
        if isinstance(part, ir.Equation):
            computed.add(name)
        elif part.source.name in computed:
            level += 1
            computed.add(name)
        levels[name] = level
    return levels


def count_transfers(sharding: Sharding, plans: Sequence[Plan | None]) -> Sharding:
    """Add the forward and backward collectives to a sharding, given the plans of its stages.

    Gradients are sent only where the plans have any: a rewrite may have removed a dependency, such
    as a constant term under a softmax.
    """
    system = sharding.system
    new: dict[ir.Expr, ir.Expr] = {
        ir.Size(n): ir.Mul((e, ir.Pow(ir.Size(axis), ir.MINUS_ONE)))
        for n, (e, axis) in sharding.shares.items()
    }

    def count_shard(tensor: ir.Tensor) -> Polynomial:
        extents = (rewrite_bottom_up(e, lambda part: new.get(part, part)) for e in tensor.shape)
        return reduce(Polynomial.__mul__, map(Polynomial.of, extents), Polynomial.of(1))

    flows: list[tuple[str, set[str]]] = []  # (tensor, the tensors that its gradient reaches)
    for stage, plan in zip(sharding.stages, plans, strict=True):
        for move in stage.moves:
            flows.append((move.made.name, {move.source.name} if move.kind != "largest" else set()))
        if plan is not None:
            flows += _find_flows(stage, plan)
    grown = {e.name for e in system.inputs if isinstance(e, ir.Tensor) and e.kind == "real"}
    for name, reads in flows:
        if reads & grown:
            grown.add(name)
    wanted = {tensor.name for tensor in system.results if tensor.kind == "real"}
    for name, reads in reversed(flows):
        if name in wanted:
            wanted |= reads
    forward, backward = [], []
    for move in (move for stage in sharding.stages for move in stage.moves):
        if not isinstance(move.source, ir.Tensor) or not isinstance(move.made, ir.Tensor):
            continue
        ahead, behind = SENT[move.kind]
        if ahead:
            forward.append(Transfer(ahead, move.name, move.axis, count_shard(move.source)))
        if behind and move.source.name in grown and move.made.name in wanted:
            sent = move.made if move.kind in {"gather", "split"} else move.source
            backward.append(Transfer(behind, move.name, move.axis, count_shard(sent)))
    return replace(sharding, forward=tuple(forward), backward=tuple(reversed(backward)))


def _find_flows(stage: Stage, plan: Plan) -> list[tuple[str, set[str]]]:
    """Return each result of a stage with the arguments that its gradient reaches."""
    assert stage.system is not None
    outside = {e.name: name for e, name in zip(stage.system.inputs, stage.given, strict=True)}
    reads: dict[str, set[str]] = {}

    def note_reads(name: str, *values: ir.Expr) -> None:
        found = (access.tensor.name for value in values for access in find_smooth(value))
        reads.setdefault(name, set()).update(found)

    for step in plan.steps:
        note_reads(step.name, to_step_equation(step).value)
    for name, op in (pair for tile in plan.tiles for pair in tile.sliced):
        note_reads(name, to_expr(op))
    for scan in plan.scans:
        for name, op, _ in scan.sliced:
            note_reads(name, to_expr(op))
        for each in scan.carried:
            note_reads(each.name, to_expr(each.made), *map(to_expr, each.first))
            for before, _ in each.before:
                reads.setdefault(before, set()).add(each.name)
    flows = []
    for op, name in zip(plan.results, stage.made, strict=True):
        reached, count_shard = {access.tensor.name for access in find_smooth(to_expr(op))}, 0
        while count_shard != len(reached):
            count_shard = len(reached)
            reached |= {inner for each in reached for inner in reads.get(each, ())}
        flows.append((name, {outside[each] for each in reached if each in outside}))
    return flows
