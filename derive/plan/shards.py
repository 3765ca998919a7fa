"""What it costs to cut an index over the ranks of a mesh, and what each rank computes then.

    h=tp   each rank of the mesh's dimension tp has an equal share of the positions of h

An equation whose result carries the index is computed in shares. One that adds up over it is, too:
the shares of the sum are added up over the ranks. A softmax over it needs the largest entry and the
sum of all ranks; mean, var and logsumexp are sums and such. Any other equation that meets the index
(a running sum, a product, a recurrence along it) is computed whole on every rank.

A tensor is cut along a place, or whole and the same on every rank. What stands between two
equations is a move:

    copy       whole, for work that differs by rank      its gradients are added up over the ranks
    add        the shares of a sum, added up             no communication backward
    largest    of the shares, for a softmax              it has no gradient
    max, min   of the shares                             the ranks that hold it are counted backward
    gather     cut to whole, for work in shares          its gradients are reduced and scattered
    collect    cut to whole, for the same work on all    each rank keeps its share of the gradient
    split      whole to cut                              its gradients are gathered

Between moves stand formulas of their own: the stages, which are planned like any other. Bytes are
those of the tensor that each rank hands to a collective, all real arguments needing gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from derive.analysis.extents import find_left, find_open_sizes
from derive.errors import refuse, suggest
from derive.ir.nodes import (
    MINUS_INFINITY,
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Access,
    Add,
    Along,
    And,
    Call,
    Compare,
    Equation,
    Expr,
    Index,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Reduce,
    Scalar,
    ScalarInput,
    Size,
    SizeInput,
    System,
    Tensor,
    Where,
)
from derive.ir.polynomial import Polynomial, add_all, is_same_extent
from derive.ir.recurrences import find_groups
from derive.ir.text import to_text
from derive.ir.walk import (
    find_accesses,
    find_all_indices,
    find_children,
    find_free,
    find_sizes,
    map_children,
    rewrite_bottom_up,
    split_guards,
    walk,
)
from derive.plan.meaning import to_expr
from derive.plan.steps import free_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.plan.ops import Op
    from derive.plan.plan import Plan

RANKS = 2  # of each dimension, where a plan needs a number
SHARED = ("sum", "max", "min")  # reductions whose shares the ranks put together
MADE_OF_SUMS = ("mean", "var", "sample_var", "logsumexp")
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

Layout: TypeAlias = "dict[str, tuple[int, Expr]]"  # by dimension: the place, the index's extent


@dataclass(frozen=True, slots=True)
class Move:
    """One tensor, or number, made of another by the ranks of a dimension."""

    kind: str
    source: Tensor | Scalar
    made: Tensor | Scalar
    axis: str
    place: int
    name: str  # of the tensor in the formula


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
    system: System | None  # None behind the last one
    given: tuple[str, ...] = ()  # what the inputs are called outside
    made: tuple[str, ...] = ()  # and the results
    sizes: tuple[tuple[str, str], ...] = ()  # a keyword, and the size outside


@dataclass(frozen=True, slots=True)
class Sharding:
    """A formula cut over ranks: where its tensors are cut, and what is done in which order."""

    system: System
    cuts: tuple[tuple[str, str], ...]  # the index, and the dimension of the mesh
    places: Mapping[str, Mapping[str, int]]  # of each argument and result: by dimension, its place
    stages: tuple[Stage, ...]
    shares: Mapping[str, tuple[Expr, str]]  # the size of a share: of what, over which dimension
    positions: Mapping[str, tuple[str, str]]  # integers: the size of the share, the dimension
    returned: tuple[str, ...]
    whole: tuple[tuple[str, str], ...]  # what is computed whole though it meets an index, and why
    forward: tuple[Transfer, ...] = ()  # as `count_transfers` finds them
    backward: tuple[Transfer, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Does any rank have less work than all?"""
        return bool(self.shares)

    def count(self, transfers: Sequence[Transfer]) -> Polynomial:
        """The elements that each rank hands to all these collectives."""
        return add_all(each.elements for each in transfers)


def find_sharding(system: System, cuts: Mapping[str, str]) -> Sharding:
    """The formula with indices cut over dimensions of a mesh; DeriveError where none can be cut."""
    known = {index.name: index for index in find_all_indices(system)}
    names = {e.name for e in (*system.inputs, *system.sizes)} | {*find_sizes(system)}
    names |= {equation.target.tensor.name for equation in system.equations}
    for name, axis in cuts.items():
        if name not in known:
            raise refuse(
                "shard-index",
                f"{system.name} has no index {name} that could be cut",
                facts=[f"its indices are {', '.join(known)}"],
                help=suggest(name, known) or "name one of them: --shard b=dp,h=tp",
            )
        if not axis.isidentifier() or axis in names or axis in known:
            raise refuse(
                "shard-dimension",
                f"{axis or 'nothing'} cannot be the name of a dimension of the mesh",
                facts=["the formula has it for something else"] * (axis in {*names, *known}),
                help="choose a name like dp, tp or sp",
            )
    found = _Cutter(system, cuts).cut()
    for name in cuts:
        if not any(n == name for n, _ in found.cuts):
            raise refuse(
                "shard-nothing",
                f"index {name} cannot be cut: every equation that holds it is computed whole",
                facts=[f"{tensor}: {why}" for tensor, why in found.whole],
                help="derive show --shard tells which indices can be cut",
            )
    return found


def is_same_formula(one: System, other: System) -> bool:
    """Do two systems take, compute and return the same?"""
    return (
        [*one.inputs] == [*other.inputs]
        and one.equations == other.equations
        and one.results == other.results
        and {s.name for s in one.sizes} == {s.name for s in other.sizes}
    )


def list_shardings(system: System, axis: str) -> Iterator[tuple[Index, Sharding]]:
    """For each index alone, the formula with that index cut over a dimension."""
    indices = {index.name: index for index in find_all_indices(system)}
    for name, index in indices.items():
        yield index, _Cutter(system, {name: axis}).cut()


@dataclass(frozen=True, slots=True)
class _Work:
    """An equation, and the index of each dimension whose share of it a rank computes."""

    equation: Equation
    active: Mapping[str, Index]
    is_largest: bool = False  # it only keeps a softmax finite


@dataclass
class _Cutter:
    """One formula while it is cut."""

    system: System
    cuts: Mapping[str, str]
    work: list[_Work] = field(default_factory=list)
    groups: list[tuple[Tensor, ...]] = field(default_factory=list)  # what recurs together
    layouts: dict[str, Layout] = field(default_factory=dict)  # of a tensor, by name
    shares: dict[str, tuple[Expr, str]] = field(default_factory=dict)
    positions: dict[str, tuple[str, str]] = field(default_factory=dict)
    whole: dict[tuple[str, str], None] = field(default_factory=dict)
    program: list[Equation | Move] = field(default_factory=list)
    variants: dict[tuple[object, ...], Tensor | Scalar] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)  # whose variant a tensor is
    rigid: set[str] = field(default_factory=set)  # what has no gradient

    def __post_init__(self) -> None:
        entries = (*self.system.inputs, *self.system.sizes)
        self.taken = {entry.name for entry in entries} | {*find_sizes(self.system)}
        self.taken |= {e.target.tensor.name for e in self.system.equations}
        self.taken |= {index.name for index in find_all_indices(self.system)}
        self.taken |= {*self.cuts.values(), "mesh"}
        self.axes: dict[str, list[str]] = {}
        for name, axis in self.cuts.items():
            self.axes.setdefault(axis, []).append(name)

    # First, every equation in a form of which each rank can compute a share.

    def cut(self) -> Sharding:
        """The formula, cut."""
        groups = {e: group for group in find_groups(self.system) for e in group}
        for equation in self.system.equations:
            group = groups.get(equation)
            if group is None:
                self._open(equation)
            elif equation is group[0]:
                active = self._share_recurrence(group)
                ordered = [e for e in self.system.equations if e in group]
                self.work += [_Work(each, active) for each in ordered]
                self.groups.append(tuple(each.target.tensor for each in ordered))
        for each in self.work:
            self.layouts[each.equation.target.tensor.name] = _find_layout(each)
        self._place_arguments()
        for each in self.work:
            self._emit(each)
        return self._assemble()

    def _open(self, equation: Equation) -> None:
        """The equation, its parts that ranks have to put together before it."""
        target = equation.target
        free = self._find_free_active(equation)
        names = {n for axis in self.axes for n in self.axes[axis] if axis not in free}
        names |= {index.name for index in free.values()}
        value = self._extract(equation.value, names, target)
        match value:
            case Reduce(kind, bound, _, _) if kind in MADE_OF_SUMS and _meets(bound, names, free):
                self._open(Equation(target, self._to_sums(value, target)))
                return
            case Along("softmax" | "log_softmax", index, _, _) if index in free.values():
                if value.kind == "softmax" or value.condition is TRUE:
                    self._open_softmax(target, value)
                    return
        active = dict(free)
        if isinstance(value, Reduce) and value.kind in SHARED:
            for axis, cut in self.axes.items():
                bound = {index.name: index for index in value.bound}
                found = next((bound[name] for name in cut if name in bound), None)
                if axis not in active and found is not None:
                    active[axis] = found
        alongs = [p for p in walk(value) if isinstance(p, Along)]
        for axis, index in tuple(active.items()):
            if any(part.index is index for part in alongs):
                kind = next(part.kind for part in alongs if part.index is index)
                self._note(target.tensor.name, f"{kind}[{index.name}] needs all of its entries")
                del active[axis]
        for part in walk(value):
            for index in part.bound if isinstance(part, Reduce) else ():
                if index.name in names and index not in active.values():
                    why = f"{part.kind}[{index.name}] has no shares that could be put together"
                    if part.kind in (*SHARED, *MADE_OF_SUMS):
                        why = f"{part.kind}[{index.name}] stands under a condition"
                    self._note(target.tensor.name, why)
        self.work.append(_Work(Equation(target, value), active))

    def _note(self, tensor: str, why: str) -> None:
        self.whole.setdefault((tensor, why))

    def _find_free_active(self, equation: Equation) -> dict[str, Index]:
        """For each dimension the first of its indices along which the result can be cut."""
        found: dict[str, Index] = {}
        left = {index.name: index for index in find_left(equation)}
        for axis, names in self.axes.items():
            for name in names:
                index = left.get(name)
                if index is None:
                    continue
                if _find_place(equation.target, index) is not None:
                    found[axis] = index
                    break
                where = next(p for p in equation.target.places if index in find_free(p))
                self._note(
                    equation.target.tensor.name,
                    f"the positions of {name} do not lie together in {to_text(where)}",
                )
        return found

    def _share_recurrence(self, group: Sequence[Equation]) -> dict[str, Index]:
        """The indices along which all that recurs can be cut."""
        found: dict[str, Index] = {}
        tensors = {equation.target.tensor for equation in group}
        for axis, names in self.axes.items():
            for name in names:
                every = [i for e in group for i in find_left(e) if i.name == name]
                index = every[0] if len(every) == len(group) else None
                if index is not None and all(
                    _is_shared_by_turns(equation, index, tensors) for equation in group
                ):
                    found[axis] = index
                    break
                if any(name in _find_names(equation) for equation in group):
                    self._note(group[0].target.tensor.name, f"it recurs along or across {name}")
        return found

    def _extract(self, value: Expr, names: set[str], target: Access) -> Expr:
        """The value with the sums over cut indices in it as tensors, where nothing guards them."""

        def visit(expr: Expr, is_guarded: bool, is_top: bool) -> Expr:
            if not is_top and isinstance(expr, (Reduce, Along)) and not is_guarded:
                bound = expr.bound if isinstance(expr, Reduce) else (expr.index,)
                if any(index.name in names for index in bound):
                    return self._name(expr, f"{target.tensor.name}_{expr.kind}", target)
            inside = is_guarded
            match expr:
                case Where():
                    inside = True
                case Mul(factors):
                    inside = is_guarded or bool(split_guards(factors)[0])
                case Reduce(_, _, condition, _) | Along(_, _, condition, _):
                    inside = is_guarded or condition is not TRUE
                case _:
                    pass
            return map_children(expr, lambda child: visit(child, inside, False))

        return visit(value, False, True)

    def _name(self, value: Expr, word: str, target: Access, *, is_largest: bool = False) -> Access:
        """The value as a tensor of its own, its places in the order of the target."""
        if isinstance(value, Access) and all(isinstance(p, Index) for p in value.places):
            return value
        order = [index for place in target.places for index in find_free(place)]
        free = find_free(value)
        indices = tuple(sorted(free, key=lambda i: order.index(i) if i in order else len(order)))
        kind = "int" if isinstance(value, Reduce) and value.kind == "argmax" else "real"
        tensor = Tensor(self._free(word), tuple(i.extent for i in indices), kind)
        access = Access(tensor, indices)
        if is_largest:
            equation = Equation(access, value)
            active = self._find_free_active(equation)
            assert isinstance(value, Reduce)
            for axis, cut in self.axes.items():
                for index in value.bound if axis not in active else ():
                    if index.name in cut:
                        active[axis] = index
            self.work.append(_Work(equation, active, is_largest=True))
            self.rigid.add(tensor.name)
        else:
            self._open(Equation(access, value))
        return access

    def _free(self, word: str) -> str:
        name = free_name(word, self.taken)
        self.taken.add(name)
        return name

    def _to_sums(self, value: Reduce, target: Access) -> Expr:
        """A mean, a variance or a logsumexp as what its sums make of it."""
        kind, bound, condition = value.kind, value.bound, value.condition
        stem = target.tensor.name
        extents = tuple(index.extent for index in bound)
        count: Expr = extents[0] if len(extents) == 1 else Mul(extents)
        if condition is not TRUE:
            count = Reduce("sum", bound, condition, ONE)

        def total(body: Expr) -> Expr:
            return Reduce("sum", bound, condition, body)

        if kind == "mean":
            return Mul((total(value.body), Pow(count, MINUS_ONE)))
        body = self._name(value.body, f"{stem}_terms", target)
        if kind == "logsumexp":
            most = self._find_largest(bound, condition, body, target)
            shift = Where(Compare("<", Call("abs", (most,)), _INFINITE), most, ZERO)
            terms = Call("exp", (_subtract(body, shift),))
            return Add((shift, Call("log", (total(terms),))))
        mean = self._name(Mul((total(body), Pow(count, MINUS_ONE))), f"{stem}_mean", target)
        square = Pow(_subtract(body, mean), Number(2))  # type: ignore[arg-type]
        less = count if kind == "var" else Add((count, MINUS_ONE))
        return Mul((total(square), Pow(less, MINUS_ONE)))

    def _find_largest(
        self, bound: tuple[Index, ...], condition: Expr, body: Expr, target: Access
    ) -> Access:
        """The largest entry, of all ranks; it has no gradient."""
        largest = Reduce("max", bound, condition, body)
        return self._name(largest, f"{target.tensor.name}_max", target, is_largest=True)

    def _open_softmax(self, target: Access, value: Along) -> None:
        """A softmax along a cut index: exp(x - the largest) over its sum, of all ranks."""
        index, condition, stem = value.index, value.condition, target.tensor.name
        body = self._name(value.body, f"{stem}_terms", target)
        most = self._find_largest((index,), condition, body, target)
        # a row of nothing but -oo has no largest entry
        shift = Where(Compare("==", most, MINUS_INFINITY), ZERO, most)
        left: Expr = _subtract(body, shift)
        if condition is not TRUE:
            left = Where(condition, left, MINUS_INFINITY)
        if value.kind == "log_softmax":
            terms = Reduce("sum", (index,), TRUE, Call("exp", (left,)))
            total = self._name(terms, f"{stem}_sum", target)
            self._open(Equation(target, _subtract(left, Call("log", (total,)))))
            return
        weights = self._name(Call("exp", (left,)), f"{stem}_weights", target)
        total = self._name(Reduce("sum", (index,), TRUE, weights), f"{stem}_sum", target)
        over: Expr = total
        if self.system.empty_row == "zeros":
            over = Where(Compare("==", total, ZERO), ONE, total)
        self._open(Equation(target, Mul((weights, Pow(over, MINUS_ONE)))))

    # Then, where each tensor is cut, and what is moved before an equation can read it.

    def _place_arguments(self) -> None:
        """Each argument is cut along the first place at which shares of it are read."""
        arguments = {e: e.name for e in self.system.inputs if isinstance(e, Tensor)}
        for work in self.work:
            for access in find_accesses(work.equation.value):
                if access.tensor not in arguments:
                    continue
                layout = self.layouts.setdefault(access.tensor.name, {})
                for axis, index in work.active.items():
                    place = _find_place(access, index)
                    if axis in layout or place is None:
                        continue
                    if all(place != other for other, _ in layout.values()):
                        layout[axis] = place, index.extent
        for tensor in arguments:
            self.layouts.setdefault(tensor.name, {})

    def _share(self, extent: Expr, axis: str) -> Size:
        """The size of a rank's share of an extent."""
        for name, (known, where) in self.shares.items():
            if where == axis and is_same_extent(known, extent):
                return Size(name)
        stem = extent.name if isinstance(extent, Size) else "share"
        name = self._free(f"{stem}_{axis}")
        self.shares[name] = extent, axis
        return Size(name)

    def _localize(self, tensor: Tensor, layout: Layout, name: str = "") -> Tensor:
        """The tensor as a rank has it."""
        shape = list(tensor.shape)
        for axis, (place, extent) in layout.items():
            shape[place] = _scale(shape[place], extent, self._share(extent, axis))
        return replace_shape(tensor, tuple(shape), name or tensor.name)

    def _emit(self, work: _Work) -> None:
        """The moves that an equation needs, the equation of a rank, and what is made of that."""
        target, value, active = work.equation.target, work.equation.value, work.active
        new = {i: Index(i.name, self._share(i.extent, axis)) for axis, i in active.items()}
        numbers: dict[Expr, Expr] = {}
        for axis, index in active.items():
            share = self._share(index.extent, axis)
            known = next((n for n, (s, _) in self.positions.items() if s == share.name), "")
            numbers[index] = Access(
                Tensor(known or f"positions_{share.name}", (share,), "int", index.extent),
                (new[index],),
            )
        smooth = {access.tensor for access in find_smooth(value)}
        own = next((group for group in self.groups if target.tensor in group), ())

        def visit(expr: Expr) -> Expr:
            match expr:
                case Index() if expr in numbers:
                    made = numbers[expr]
                    assert isinstance(made, Access)
                    share = made.tensor.shape[0]
                    assert isinstance(share, Size)
                    self.positions[made.tensor.name] = share.name, self.shares[share.name][1]
                    self.taken.add(made.tensor.name)
                    return made
                case Scalar():
                    return self._copy_scalar(expr, active)
                case Access(tensor, places):
                    if tensor in own:
                        kept = set(self.layouts[tensor.name])
                        read: Tensor = self._localize(tensor, self.layouts[tensor.name])
                        cut = {self.layouts[tensor.name][axis][0] for axis in kept}
                    else:
                        read, cut = self._fetch(expr, active, is_smooth=tensor in smooth)
                    found = [
                        rewrite_bottom_up(place, lambda part: new.get(part, part))  # type: ignore[call-overload]
                        if k in cut
                        else visit(place)
                        for k, place in enumerate(places)
                    ]
                    return Access(read, tuple(found))
                case Reduce(kind, bound, condition, body):
                    inner = tuple(new.get(index, index) for index in bound)
                    return Reduce(kind, inner, visit(condition), visit(body))  # type: ignore[arg-type]
                case _:
                    return map_children(expr, visit)

        made = visit(value)
        layout = self.layouts[target.tensor.name]
        bound = value.bound if isinstance(value, Reduce) else ()
        summed = [axis for axis, index in active.items() if index in bound]
        tensor = self._localize(target.tensor, layout)
        places = tuple(
            rewrite_bottom_up(place, lambda part: new.get(part, part))  # type: ignore[call-overload]
            for place in target.places
        )
        names = [tensor.name, *(self._free(f"{tensor.name}_part") for _ in summed)]
        made_tensor = replace_shape(tensor, tensor.shape, names[-1])
        self.program.append(Equation(Access(made_tensor, places), made))
        kinds = {"sum": "add", "max": "max", "min": "min"}
        for axis, name in zip(summed, reversed(names[:-1]), strict=True):
            assert isinstance(value, Reduce)
            kind = "largest" if work.is_largest else kinds[value.kind]
            self.bases[made_tensor.name] = tensor.name
            moved = replace_shape(tensor, tensor.shape, name)
            self.program.append(Move(kind, made_tensor, moved, axis, 0, tensor.name))
            made_tensor = moved

    def _copy_scalar(self, scalar: Scalar, active: Mapping[str, Index]) -> Scalar:
        """A number that may be a tensor: its gradients are added up over the ranks."""
        for axis in active:
            key = ("scalar", scalar, axis)
            if key not in self.variants:
                made = Scalar(self._free(f"{scalar.name}_{axis}"))
                base = self.bases.get(scalar.name, scalar.name)
                self.bases[made.name] = base
                self.program.append(Move("copy", scalar, made, axis, 0, base))
                self.variants[key] = made
            found = self.variants[key]
            assert isinstance(found, Scalar)
            scalar = found
        return scalar

    def _fetch(
        self, access: Access, active: Mapping[str, Index], *, is_smooth: bool
    ) -> tuple[Tensor, set[int]]:
        """The tensor as this read needs it, and its places that are cut then."""
        base, layout = access.tensor, dict(self.layouts[access.tensor.name])
        moves: list[tuple[str, str, int, Expr]] = []
        for axis in self.axes:
            index, cut = active.get(axis), layout.get(axis)
            here = _find_place(access, index) if index is not None else None
            if index is not None and cut is None:
                others = {place for place, _ in layout.values()}
                if here is not None and here not in others:
                    moves.append(("split", axis, here, index.extent))
                elif is_smooth and base.name not in self.rigid:
                    moves.append(("copy", axis, 0, ZERO))
            elif cut is not None:
                place, extent = cut
                if index is None:
                    moves.append(("collect", axis, place, extent))
                elif _is_share_of(access, place, index, extent):
                    continue
                else:
                    kind = "gather" if is_smooth else "collect"
                    moves.append((kind, axis, place, extent))
        order = {"split": 0, "copy": 1, "gather": 2, "collect": 2}
        moves.sort(key=lambda move: order[move[0]])
        tensor = self._localize(base, layout)
        for kind, axis, place, extent in moves:
            if kind == "split":
                layout[axis] = place, extent
            elif kind != "copy":
                del layout[axis]
            key = (kind, tensor, axis, place)
            if key not in self.variants:
                words = {"split": "share", "copy": axis, "gather": "all", "collect": "all"}
                name = self._free(f"{base.name}_{words[kind]}")
                made = self._localize(base, layout, name)
                self.bases[name] = base.name
                self.program.append(Move(kind, tensor, made, axis, place, base.name))
                self.variants[key] = made
            found = self.variants[key]
            assert isinstance(found, Tensor)
            tensor = found
        return tensor, {place for place, _ in layout.values()}

    # Last, the stages: what can be computed before the next exchange.

    def _assemble(self) -> Sharding:
        results = [
            self._localize(t, self.layouts[t.name]) for t in self.system.results
        ]
        program = _drop_unused(self.program, [tensor.name for tensor in results])
        levels = _find_levels(program, self.groups)
        last = max(levels.values(), default=0)
        stages: list[Stage] = []
        moves: tuple[Move, ...] = ()
        for level in range(last + 1):
            moves += tuple(p for p in program if isinstance(p, Move) and levels[p.made.name] == level)
            equations = tuple(
                p
                for p in program
                if isinstance(p, Equation) and levels[p.target.tensor.name] == level
            )
            if equations or (moves and level == last):
                stages.append(self._make_stage(moves, equations, program, results))
                moves = ()
        used = {axis for _, axis in self.shares.values()}
        extents = [(extent, axis) for extent, axis in self.shares.values()]
        indices = {index.name: index for index in find_all_indices(self.system)}
        cuts = tuple(
            (name, axis)
            for name, axis in self.cuts.items()
            if axis in used
            and any(
                index.name == name
                for work in self.work
                for index in work.active.values()
            )
            and any(is_same_extent(indices[name].extent, e) and a == axis for e, a in extents)
        )
        given = [e.name for e in self.system.inputs if isinstance(e, Tensor)]
        places = {
            name: {axis: place for axis, (place, _) in self.layouts[name].items()}
            for name in (*given, *(tensor.name for tensor in self.system.results))
        }
        return Sharding(
            self.system,
            cuts,
            places,
            tuple(stages),
            self.shares,
            self.positions,
            tuple(tensor.name for tensor in results),
            tuple(self.whole),
        )

    def _make_stage(
        self,
        moves: tuple[Move, ...],
        equations: tuple[Equation, ...],
        program: Sequence[Equation | Move],
        results: Sequence[Tensor],
    ) -> Stage:
        """The formula of some equations; a size or tensor keeps its own name where none is near."""
        if not equations:
            return Stage(moves, None)
        made = {e.target.tensor.name: e.target.tensor for e in equations}
        outside = {tensor.name for tensor in results}
        for part in program:
            if isinstance(part, Move):
                outside.add(part.source.name)
            elif part not in equations:
                outside |= {a.tensor.name for a in find_accesses(part.value)}
        kept = [tensor for name, tensor in made.items() if name in outside]
        returned = [tensor.name for tensor in results]
        kept.sort(
            key=lambda t: returned.index(b)
            if (b := self.bases.get(t.name, t.name)) in returned
            else len(returned)
        )
        reads: dict[str, Tensor] = {}
        scalars: dict[str, None] = {}
        for equation in equations:
            for part in (equation.target, equation.value):
                reads |= {a.tensor.name: a.tensor for a in find_accesses(part)}
                scalars |= dict.fromkeys(p.name for p in walk(part) if isinstance(p, Scalar))
        order = [entry.name for entry in self.system.inputs]
        given = [tensor for name, tensor in reads.items() if name not in made]
        real = [e for e in self.system.inputs if isinstance(e, Tensor) and e.kind == "real"]
        if real and all(tensor.kind != "real" for tensor in given):  # it tells the dtype
            given.append(self._localize(real[0], self.layouts[real[0].name]))

        def rank(name: str) -> int:
            base = self.bases.get(name, name)
            return order.index(base) if base in order else len(order)

        given.sort(key=lambda tensor: rank(tensor.name))
        inputs: list[Tensor | ScalarInput] = [*given, *map(ScalarInput, scalars)]
        inputs.sort(key=lambda entry: rank(entry.name))
        system = System(
            self.system.name,
            tuple(inputs),
            (),
            equations,
            tuple(kept),
            self.system.empty_row,
            self.system.declared,
        )
        system, keywords = self._rename(system)
        return Stage(
            moves,
            system,
            tuple(entry.name for entry in inputs),
            tuple(tensor.name for tensor in kept),
            keywords,
        )

    def _rename(self, system: System) -> tuple[System, tuple[tuple[str, str], ...]]:
        """Tensors and sizes under the names of the formula, where they are told apart by them."""
        present = [entry.name for entry in system.inputs]
        present += [equation.target.tensor.name for equation in system.equations]
        bases = [self.bases.get(name, name) for name in present]
        names = {
            name: base
            for name, base in zip(present, bases, strict=True)
            if bases.count(base) == 1
        }
        sizes: dict[Expr, Expr] = {}
        inside = find_sizes(system)
        for name, (extent, _) in self.shares.items():
            if name in inside and isinstance(extent, Size) and extent.name not in inside:
                if extent not in sizes.values():
                    sizes[Size(name)] = extent
        system = _rename_system(system, names, sizes)
        outside = {new.name: old.name for old, new in sizes.items()}  # type: ignore[attr-defined]
        given = tuple(s for s in self.system.sizes if s.name in find_sizes(system))
        system = replace(system, sizes=given)
        open_sizes = find_open_sizes(system)
        system = replace(system, sizes=(*given, *map(SizeInput, open_sizes)))
        keywords = tuple((s.name, outside.get(s.name, s.name)) for s in system.sizes)
        return system, keywords


_INFINITE: Expr = Mul((MINUS_ONE, MINUS_INFINITY))


def _subtract(one: Expr, other: Expr) -> Expr:
    return Add((one, Mul((MINUS_ONE, other))))


def _meets(bound: Sequence[Index], names: set[str], free: Mapping[str, Index]) -> bool:
    """Is one of the bound indices cut, and not beside another one of its dimension?"""
    return any(index.name in names and index not in free.values() for index in bound)


def _find_names(equation: Equation) -> set[str]:
    return {i.name for i in find_all_indices(System("", (), (), (equation,), ()))}


def _is_shared_by_turns(equation: Equation, index: Index, tensors: set[Tensor]) -> bool:
    """Can every turn of a recurrence be computed in shares, without the others' shares?"""
    place = _find_place(equation.target, index)
    if place is None:
        return False
    for part in walk(equation.value):
        if isinstance(part, Along) and part.index is index:
            return False
        if isinstance(part, Access) and part.tensor in tensors:
            if _find_place(part, index) is None or index not in find_free(part):
                return False
    own = {a.tensor: _find_place(a, index) for a in find_accesses(equation.value)}
    return own.get(equation.target.tensor, place) == place


def _find_place(access: Access, index: Index | None) -> int | None:
    """The place along which shares of the index are shares of the tensor: i, or h in h*C + c."""
    if index is None:
        return None
    for number, place in enumerate(access.places):
        if index in find_free(place):
            return number if _is_leading(access, number, index) else None
    return None


def _is_share_of(access: Access, number: int, index: Index, extent: Expr) -> bool:
    """Does the access read at that place, cut by an index of the extent, its own share alone?"""
    return is_same_extent(index.extent, extent) and _is_leading(access, number, index)


def _is_leading(access: Access, number: int, index: Index) -> bool:
    """Do the positions of the index lie together at the place, one after the other, to its end?"""
    place, extent = access.places[number], access.tensor.shape[number]
    split = Polynomial.of(place).split(index)
    if split is None or any(index in find_free(p) for k, p in enumerate(access.places) if k != number):
        return False
    unit, rest = split
    if Polynomial.of(index.extent) * unit != Polynomial.of(extent) or not unit.terms:
        return False
    return _fits(rest, unit)


def _fits(rest: Polynomial, unit: Polynomial) -> bool:
    """Is 0 <= rest < unit for all positions of its indices?"""
    if not rest.terms:
        return True
    number, whole = rest.constant, unit.constant
    if number is not None:
        return whole is not None and 0 <= number < whole
    for index in rest.atoms:
        split = rest.split(index) if isinstance(index, Index) else None
        if split is not None and isinstance(index, Index):
            inner, left = split
            if inner * Polynomial.of(index.extent) == unit:
                return _fits(left, inner)
    return False


def _scale(shape: Expr, extent: Expr, share: Size) -> Expr:
    """An extent, E*u, of which each rank has the share of E."""
    if is_same_extent(shape, extent):
        return share
    whole = Polynomial.of(shape)
    split = whole.split(extent) if isinstance(extent, Size) else None
    if split is not None and not split[1].terms:
        return (split[0] * Polynomial.of(share)).to_expr()
    return (whole * Polynomial.of(share) * Polynomial.of(Pow(extent, MINUS_ONE))).to_expr()


def replace_shape(tensor: Tensor, shape: tuple[Expr, ...], name: str) -> Tensor:
    """The tensor under another name, of another shape."""
    return Tensor(
        name, shape, tensor.kind, tensor.below, tensor.lower, tensor.upper, tensor.strict
    )


def _find_layout(work: _Work) -> Layout:
    """Where the result of an equation is cut."""
    found: Layout = {}
    for axis, index in work.active.items():
        place = _find_place(work.equation.target, index)
        if place is not None:
            found[axis] = place, index.extent
    return found


def find_smooth(expr: Expr) -> Iterator[Access]:
    """The accesses that a gradient reaches: none in conditions, positions, and an argmax."""
    match expr:
        case Access():
            if expr.tensor.kind == "real":
                yield expr
        case Compare() | And() | Or() | Not() | Reduce("argmax", _, _, _):
            return
        case Where(_, then, other):
            yield from find_smooth(then)
            yield from find_smooth(other)
        case Reduce(_, _, _, body) | Along(_, _, _, body):
            yield from find_smooth(body)
        case _:
            for child in find_children(expr):
                yield from find_smooth(child)


def _reads(part: Equation | Move) -> set[str]:
    """The names of what it is made of."""
    if isinstance(part, Move):
        return {part.source.name}
    inside = [p for whole in (part.target, part.value) for p in walk(whole)]
    found = {p.tensor.name for p in inside if isinstance(p, Access)}
    found |= {p.name for p in inside if isinstance(p, Scalar)}
    return found


def _makes(part: Equation | Move) -> str:
    return part.made.name if isinstance(part, Move) else part.target.tensor.name


def _drop_unused(
    program: Sequence[Equation | Move], results: Sequence[str]
) -> list[Equation | Move]:
    """What leads to the results."""
    needed, before = {*results}, 0
    while before != len(needed):
        before = len(needed)
        needed |= {name for p in program if _makes(p) in needed for name in _reads(p)}
    return [part for part in program if _makes(part) in needed]


def _find_levels(
    program: Sequence[Equation | Move], groups: Sequence[tuple[Tensor, ...]]
) -> dict[str, int]:
    """How many exchanges come before each tensor; what recurs together stands together."""
    levels: dict[str, int] = {}
    computed: set[str] = set()
    together = [{tensor.name for tensor in group} for group in groups]
    owners = {_makes(p) for p in program}
    for part in program:
        name = _makes(part)
        group = next((g for g in together if name in g), {name})
        parts = [p for p in program if _makes(p) in group] if isinstance(part, Equation) else [part]
        reads = {r for p in parts for r in _reads(p) if r in owners and r not in group}
        level = max((levels.get(read, 0) for read in reads), default=0)
        if isinstance(part, Equation):
            computed.add(name)
        elif part.source.name in computed:
            level += 1
            computed.add(name)
        levels[name] = level
    return levels


def count_transfers(sharding: Sharding, plans: Sequence[Plan | None]) -> Sharding:
    """The sharding with its collectives, forward and backward, as these plans of its stages do.

    What a rule finds not to matter, a term of a softmax that is the same for all entries, no
    gradient reaches, and none is sent.
    """
    system = sharding.system
    new = {Size(n): Mul((e, Pow(Size(axis), MINUS_ONE))) for n, (e, axis) in sharding.shares.items()}

    def count(tensor: Tensor) -> Polynomial:
        extents = (rewrite_bottom_up(e, lambda part: new.get(part, part)) for e in tensor.shape)  # type: ignore[call-overload]
        return reduce(Polynomial.__mul__, map(Polynomial.of, extents), Polynomial.of(1))

    flows: list[tuple[str, set[str]]] = []  # what a gradient by it reaches, in order
    for stage, plan in zip(sharding.stages, plans, strict=True):
        for move in stage.moves:
            flows.append((move.made.name, {move.source.name} if move.kind != "largest" else set()))
        if plan is not None:
            flows += _find_flows(stage, plan)
    grown = {e.name for e in system.inputs if isinstance(e, Tensor) and e.kind == "real"}
    for name, reads in flows:
        if reads & grown:
            grown.add(name)
    wanted = {tensor.name for tensor in system.results if tensor.kind == "real"}
    for name, reads in reversed(flows):
        if name in wanted:
            wanted |= reads
    forward, backward = [], []
    for move in (move for stage in sharding.stages for move in stage.moves):
        if not isinstance(move.source, Tensor) or not isinstance(move.made, Tensor):
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

    def note(name: str, *ops: Op) -> None:
        found = (access.tensor.name for op in ops for access in find_smooth(to_expr(op)))
        reads.setdefault(name, set()).update(found)

    for step in plan.steps:
        note(step.name, step.op)
    for name, op in (pair for tile in plan.tiles for pair in tile.sliced):
        note(name, op)
    for scan in plan.scans:
        for name, op, _ in scan.sliced:
            note(name, op)
        for each in scan.carried:
            note(each.name, each.made, *each.first)
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


def _rename_system(
    system: System, names: Mapping[str, str], sizes: Mapping[Expr, Expr]
) -> System:
    """The system with other names for tensors and numbers, and other sizes in all extents."""

    def resize(expr: Expr) -> Expr:
        return rewrite_bottom_up(expr, lambda part: sizes.get(part, part))  # type: ignore[call-overload]

    def tensor(old: Tensor) -> Tensor:
        return replace_shape(old, tuple(map(resize, old.shape)), names.get(old.name, old.name))

    def visit(expr: Expr) -> Expr:
        match expr:
            case Index(name, extent):
                return Index(name, resize(extent))
            case Access(old, places):
                return Access(tensor(old), tuple(map(visit, places)))
            case Scalar(name):
                return Scalar(names.get(name, name))
            case Reduce(kind, bound, condition, body):
                inner = tuple(Index(i.name, resize(i.extent)) for i in bound)
                return Reduce(kind, inner, visit(condition), visit(body))
            case Along(kind, index, condition, body):
                own = Index(index.name, resize(index.extent))
                return Along(kind, own, visit(condition), visit(body))
            case _:
                return sizes.get(expr, map_children(expr, visit))

    equations = []
    for equation in system.equations:
        target = visit(equation.target)
        assert isinstance(target, Access)
        equations.append(Equation(target, visit(equation.value)))
    inputs = tuple(
        tensor(entry)
        if isinstance(entry, Tensor)
        else ScalarInput(names.get(entry.name, entry.name), entry.default)
        for entry in system.inputs
    )
    return replace(
        system,
        inputs=inputs,
        equations=tuple(equations),
        results=tuple(map(tensor, system.results)),
    )
