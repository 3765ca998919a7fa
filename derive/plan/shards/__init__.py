"""What it costs to cut an index over the ranks of a mesh, and what each rank computes then.

    h=tp   each rank of the mesh's dimension tp has an equal share of the positions of h

An equation whose result carries the index is computed in shares. One that adds up over it is, too:
the shares of the sum are added up over the ranks. A normalized row over it needs the largest entry
and the sum of all ranks; mean, var and logsumexp are sums and such. Any other equation that meets
the index (a running sum, a product, a recurrence along it) is computed whole on every rank.

A tensor is cut along a place, or whole and the same on every rank. What stands between two
equations is a move:

    copy       whole, for work that differs by rank      its gradients are added up over the ranks
    add        the shares of a sum, added up             no communication backward
    largest    of the shares, for a normalized row       it has no gradient
    max, min   of the shares                             the ranks that hold it are counted backward
    gather     cut to whole, for work in shares          its gradients are reduced and scattered
    collect    cut to whole, for the same work on all    each rank keeps its share of the gradient
    split      whole to cut                              its gradients are gathered

Between moves stand formulas of their own: the stages, which are planned like any other. Bytes are
those of the tensor that each rank hands to a collective, all real arguments needing gradients.
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
from derive.plan.shards.work import Move, Mover, Opener, find_made, find_read, find_smooth

RANKS = 2  # of each dimension, where a plan needs a number
# What a move sends forward and backward.
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
    """A collective of one step: what it moves, and how many elements each rank hands to it."""

    collective: str
    tensor: str
    axis: str
    elements: Polynomial  # over sizes and the numbers of ranks, which are called like their axes


@dataclass(frozen=True, slots=True)
class Stage:
    """A formula that each rank computes alone, after its moves."""

    moves: tuple[Move, ...]
    system: ir.System | None  # None behind the last one
    given: tuple[str, ...] = ()  # what the inputs are called outside
    made: tuple[str, ...] = ()  # and the results
    sizes: tuple[tuple[str, str], ...] = ()  # a keyword, and the size outside


@dataclass(frozen=True, slots=True)
class Sharding:
    """A formula cut over ranks: where its tensors are cut, and what is done in which order."""

    system: ir.System
    cuts: tuple[tuple[str, str], ...]  # the index, and the dimension of the mesh
    mesh: str  # what it is called, beside the formula's names
    places: Mapping[str, Mapping[str, int]]  # of each argument and result: by dimension, its place
    stages: tuple[Stage, ...]
    shares: Mapping[str, tuple[ir.Expr, str]]  # the size of a share: of what, over which dimension
    positions: Mapping[str, tuple[str, str]]  # integers: the size of the share, the dimension
    returned: tuple[str, ...]
    whole: tuple[tuple[str, str], ...]  # what is computed whole though it meets an index, and why
    forward: tuple[Transfer, ...] = ()  # as `count_transfers` finds them
    backward: tuple[Transfer, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Does any rank have less work than all?"""
        return bool(self.cuts)


def find_sharding(system: ir.System, cuts: Mapping[str, str]) -> Sharding:
    """The formula with indices cut over dimensions of a mesh; DeriveError where none can be cut."""
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
    found = _cut(system, cuts)
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
    """Do two systems take, compute and return the same?"""
    return (
        [*one.inputs] == [*other.inputs]
        and one.equations == other.equations
        and one.results == other.results
        and {s.name for s in one.sizes} == {s.name for s in other.sizes}
    )


def list_shardings(system: ir.System, axis: str) -> Iterator[tuple[ir.Index, Sharding]]:
    """For each index alone, the formula with that index cut over a dimension."""
    indices = {index.name: index for index in find_all_indices(system)}
    for name, index in indices.items():
        yield index, _cut(system, {name: axis})


def _cut(system: ir.System, cuts: Mapping[str, str]) -> Sharding:
    """The equations opened, what moves between them, and the stages that are left."""
    opened = Opener(system, cuts)
    opened.open()
    mover = Mover(opened)
    mover.move()
    return _assemble(opened, mover)


def _assemble(opened: Opener, mover: Mover) -> Sharding:
    """The stages: all that can be computed before the next exchange."""
    system = opened.system
    results = [mover.localize(t, mover.layouts[t.name]) for t in system.results]
    needed, before = {tensor.name for tensor in results}, 0
    while before != len(needed):  # what leads to the results
        before = len(needed)
        needed |= {name for p in mover.program if find_made(p) in needed for name in find_read(p)}
    program = [part for part in mover.program if find_made(part) in needed]
    levels = _find_levels(program, opened.groups)
    last = max(levels.values(), default=0)
    stages: list[Stage] = []
    moves: tuple[Move, ...] = ()
    for level in range(last + 1):
        here = [part for part in program if levels[find_made(part)] == level]
        moves += tuple(part for part in here if isinstance(part, Move))
        equations = tuple(part for part in here if isinstance(part, ir.Equation))
        if equations:
            stages.append(_make_stage(mover, moves, equations, program))
            moves = ()
    stages += [Stage(moves, None)] if moves else []
    active = {index.name for work in opened.work for index in work.active.values()}
    given = [e.name for e in system.inputs if isinstance(e, ir.Tensor)]
    return Sharding(
        system,
        tuple((name, axis) for name, axis in opened.cuts.items() if name in active),
        opened.mesh,
        {
            name: {axis: place for axis, (place, _) in mover.layouts[name].items()}
            for name in (*given, *(tensor.name for tensor in system.results))
        },
        tuple(stages),
        mover.shares,
        mover.positions,
        tuple(tensor.name for tensor in results),
        tuple(opened.whole),
    )


def _make_stage(
    mover: Mover,
    moves: tuple[Move, ...],
    equations: tuple[ir.Equation, ...],
    program: Sequence[ir.Equation | Move],
) -> Stage:
    """The formula of some equations; a tensor or size keeps its name where no other has it."""
    whole = mover.opened.system
    made = {e.target.tensor.name: e.target.tensor for e in equations}
    returned = [tensor.name for tensor in whole.results]
    others = (part for part in program if part not in equations)
    outside = {*returned, *(name for part in others for name in find_read(part))}
    kept = [tensor for name, tensor in made.items() if name in outside]
    parts = [part for e in equations for part in (e.target, e.value)]
    reads = {a.tensor.name: a.tensor for part in parts for a in find_accesses(part)}
    given = [tensor for name, tensor in reads.items() if name not in made]
    real = [e for e in whole.inputs if isinstance(e, ir.Tensor) and e.kind == "real"]
    if real and all(tensor.kind != "real" for tensor in given):  # it tells the dtype
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
        is_alone = isinstance(extent, ir.Size) and extent.name not in inside
        if is_alone and name in inside and extent not in sizes.values():
            sizes[ir.Size(name)] = extent
    system = resize_system(system, sizes, names)
    told = tuple(size for size in whole.sizes if size.name in find_sizes(system))
    system = replace(system, sizes=told)
    system = replace(system, sizes=(*told, *map(ir.SizeInput, find_open_sizes(system))))
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
    """How many exchanges come before each tensor; what recurs together stands together."""
    levels: dict[str, int] = {}
    computed: set[str] = set()
    together = [{tensor.name for tensor in group} for group in groups]
    owners = {find_made(p) for p in program}
    for part in program:
        name = find_made(part)
        group = next((g for g in together if name in g), {name})
        parts = [each for each in program if find_made(each) in group]
        reads = {r for p in parts for r in find_read(p) if r in owners and r not in group}
        level = max((levels.get(read, 0) for read in reads), default=0)
        if isinstance(part, ir.Equation):
            computed.add(name)
        elif part.source.name in computed:
            level += 1
            computed.add(name)
        levels[name] = level
    return levels


def count_transfers(sharding: Sharding, plans: Sequence[Plan | None]) -> Sharding:
    """The sharding with its collectives, forward and backward, as these plans of its stages do.

    What a rule finds not to matter, a term of a row that is the same for all entries, no
    gradient reaches, and none is sent.
    """
    system = sharding.system
    new: dict[ir.Expr, ir.Expr] = {
        ir.Size(n): ir.Mul((e, ir.Pow(ir.Size(axis), ir.MINUS_ONE)))
        for n, (e, axis) in sharding.shares.items()
    }

    def count(tensor: ir.Tensor) -> Polynomial:
        extents = (rewrite_bottom_up(e, lambda part: new.get(part, part)) for e in tensor.shape)
        return reduce(Polynomial.__mul__, map(Polynomial.of, extents), Polynomial.of(1))

    flows: list[tuple[str, set[str]]] = []  # what a gradient by it reaches, in order
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
            forward.append(Transfer(ahead, move.name, move.axis, count(move.source)))
        if behind and move.source.name in grown and move.made.name in wanted:
            sent = move.made if move.kind in {"gather", "split"} else move.source
            backward.append(Transfer(behind, move.name, move.axis, count(sent)))
    return replace(sharding, forward=tuple(forward), backward=tuple(reversed(backward)))


def _find_flows(stage: Stage, plan: Plan) -> list[tuple[str, set[str]]]:
    """For each result of a stage, the arguments that a gradient by it reaches."""
    assert stage.system is not None
    outside = {e.name: name for e, name in zip(stage.system.inputs, stage.given, strict=True)}
    reads: dict[str, set[str]] = {}

    def note(name: str, *values: ir.Expr) -> None:
        found = (access.tensor.name for value in values for access in find_smooth(value))
        reads.setdefault(name, set()).update(found)

    for step in plan.steps:
        note(step.name, to_step_equation(step).value)
    for name, op in (pair for tile in plan.tiles for pair in tile.sliced):
        note(name, to_expr(op))
    for scan in plan.scans:
        for name, op, _ in scan.sliced:
            note(name, to_expr(op))
        for each in scan.carried:
            note(each.name, to_expr(each.made), *map(to_expr, each.first))
            for before, _ in each.before:
                reads.setdefault(before, set()).add(each.name)
    flows = []
    for op, name in zip(plan.results, stage.made, strict=True):
        reached, count = {access.tensor.name for access in find_smooth(to_expr(op))}, 0
        while count != len(reached):
            count = len(reached)
            reached |= {inner for each in reached for inner in reads.get(each, ())}
        flows.append((name, {outside[each] for each in reached if each in outside}))
    return flows
