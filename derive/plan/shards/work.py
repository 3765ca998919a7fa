"""Rewriting of equations so that each rank of a mesh can compute a shard, and the moves between.

An equation can be computed in shards if its result has the cut index, or if it is a sum, max or min
over it. A row normalized over the index becomes exp(x - max) divided by the sum of these; mean, var
and logsumexp become sums. Sums inside of an equation become tensors. Then the layouts of all
tensors follow, and the moves that are needed before an equation reads them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.recurrences import find_groups
from derive.ir.text import to_text
from derive.ir.walk import (
    Names,
    find_accesses,
    find_all_indices,
    find_children,
    find_free,
    map_children,
    split_guards,
    walk,
)
from derive.plan.steps import free_name

COMBINED = ("sum", "max", "min")  # reductions that ranks combine from their shards
MADE_OF_SUMS = ("mean", "var", "sample_var", "logsumexp")
INFINITY: ir.Expr = ir.Infinity()


@dataclass(frozen=True, slots=True)
class Work:
    """An equation, and for each dimension of the mesh the index that is sharded over it."""

    equation: ir.Equation
    active: Mapping[str, ir.Index]
    is_largest: bool = False  # whether it is the maximum under a softmax, without a gradient


@dataclass
class EquationSplitter:
    """The state while the equations of a formula are rewritten."""

    system: ir.System
    cuts: Mapping[str, str]
    work: list[Work] = field(default_factory=list)
    groups: list[tuple[ir.Tensor, ...]] = field(default_factory=list)  # tensors of each recurrence
    whole: dict[tuple[str, str], None] = field(default_factory=dict)
    rigid: set[str] = field(default_factory=set)  # tensors without a gradient

    def __post_init__(self) -> None:
        self.taken = Names.of(self.system) | {*self.cuts.values()}
        self.mesh = self.name_free("mesh")
        self.axes: dict[str, list[str]] = {}
        for name, axis in self.cuts.items():
            self.axes.setdefault(axis, []).append(name)

    def split_equations(self) -> None:
        """Rewrite every equation so that ranks compute shards, or note why that is impossible."""
        groups = {e: group for group in find_groups(self.system) for e in group}
        for equation in self.system.equations:
            group = groups.get(equation)
            if group is None:
                self._split_equation(equation)
            elif equation is group[0]:
                active = self._find_recurrence_cuts(group)
                self.work += [Work(each, active) for each in group]
                self.groups.append(tuple(each.target.tensor for each in group))

    def _split_equation(self, equation: ir.Equation) -> None:
        """Rewrite one equation, after equations for the parts that ranks must combine first."""
        target = equation.target
        free = self._find_result_cuts(equation)
        names = {n for axis in self.axes for n in self.axes[axis] if axis not in free}
        names |= {index.name for index in free.values()}
        value = self._extract_sums(equation.value, names, target)

        match value:
            case ir.Reduce(kind, bound, _, _) if kind in MADE_OF_SUMS and any(
                index.name in names and index not in free.values() for index in bound
            ):
                self._split_equation(ir.Equation(target, self._write_as_sums(value, target)))
                return
            case ir.Along(kind, index, condition) if index in free.values():
                row = ROWS[kind]
                if row.normalizes or (row.ignores_shift and condition is ir.TRUE):
                    self._split_row(target, value)
                    return
        active = dict(free)
        if isinstance(value, ir.Reduce) and value.kind in COMBINED:
            for axis, cut in self.axes.items():
                summed = {index.name: index for index in value.bound}
                found = next((summed[name] for name in cut if name in summed), None)
                if axis not in active and found is not None:
                    active[axis] = found
        alongs = [p for p in walk(value) if isinstance(p, ir.Along)]
        for axis, index in tuple(active.items()):
            kind = next((part.kind for part in alongs if index in part.indices), "")
            if kind:
                self.whole[target.tensor.name, f"{kind}[{index.name}] needs all of its entries"] = (
                    None
                )
                del active[axis]
        inner = [part for part in walk(value) if isinstance(part, ir.Reduce)]
        for kind, index in [(part.kind, index) for part in inner for index in part.bound]:
            if index.name not in self.cuts or index in active.values():
                continue
            other = active.get(self.cuts[index.name])
            if other is not None:
                why = f"{other.name} is already sharded over {self.cuts[index.name]}"
            elif kind in {*COMBINED, *MADE_OF_SUMS}:
                why = f"{kind}[{index.name}] is under a condition"
            else:
                why = f"{kind}[{index.name}] cannot be combined from shards"
            self.whole[target.tensor.name, why] = None
        self.work.append(Work(ir.Equation(target, value), active))

    def _find_result_cuts(self, equation: ir.Equation) -> dict[str, ir.Index]:
        """Return for each dimension its first index along which the result can be sharded."""
        found: dict[str, ir.Index] = {}
        left = {index.name: index for index in find_free(equation.target)}
        for axis, names in self.axes.items():
            for name in names:
                index = left.get(name)
                if index is None:
                    continue
                if find_place(equation.target, index) is not None:
                    found[axis] = index
                    break
                where = next(p for p in equation.target.places if index in find_free(p))
                self.whole[
                    equation.target.tensor.name,
                    f"the positions of {name} are not contiguous in {to_text(where)}",
                ] = None
        return found

    def _find_recurrence_cuts(self, group: Sequence[ir.Equation]) -> dict[str, ir.Index]:
        """Return for each dimension an index along which a whole recurrence can be sharded."""
        found: dict[str, ir.Index] = {}
        tensors = {equation.target.tensor for equation in group}
        every_index = find_all_indices(ir.System("", (), (), tuple(group), ()))
        for axis, names in self.axes.items():
            for name in names:
                every = [i for e in group for i in find_free(e.target) if i.name == name]
                index = every[0] if len(every) == len(group) else None
                if index is not None and all(
                    _is_independent(equation, index, tensors) for equation in group
                ):
                    found[axis] = index
                    break
                if any(index.name == name for index in every_index):
                    self.whole[
                        group[0].target.tensor.name, f"the recurrence runs along or across {name}"
                    ] = None
        return found

    def _extract_sums(self, value: ir.Expr, names: set[str], target: ir.Access) -> ir.Expr:
        """Replace unguarded reductions over cut indices inside of the value by tensors."""

        def replace_sums(expr: ir.Expr, is_guarded: bool, is_top: bool) -> ir.Expr:
            if not is_top and isinstance(expr, (ir.Reduce, ir.Along)) and not is_guarded:
                bound = expr.indices
                if any(index.name in names for index in bound):
                    return self._name_value(expr, f"{target.tensor.name}_{expr.kind}", target)
            inside = is_guarded
            match expr:
                case ir.Where():
                    inside = True
                case ir.Mul(factors):
                    inside = is_guarded or bool(split_guards(factors)[0])
                case ir.Reduce(_, _, condition, _) | ir.Along(_, _, condition, _):
                    inside = is_guarded or condition is not ir.TRUE
                case _:
                    pass
            return map_children(expr, lambda child: replace_sums(child, inside, False))

        return replace_sums(value, False, True)

    def _name_value(self, value: ir.Expr, word: str, target: ir.Access) -> ir.Access:
        """Return the value as a tensor that is computed before the target."""
        if isinstance(value, ir.Access) and all(isinstance(p, ir.Index) for p in value.places):
            return value
        access = self._make_access(value, word, target)
        self._split_equation(ir.Equation(access, value))
        return access

    def _make_access(self, value: ir.Expr, word: str, target: ir.Access) -> ir.Access:
        """Return a new tensor for the value, its axes in the order of the target."""
        order = find_free(target)
        free = find_free(value)
        indices = tuple(sorted(free, key=lambda i: order.index(i) if i in order else len(order)))
        kind = "int" if isinstance(value, ir.Reduce) and value.kind == "argmax" else "real"
        return ir.name_axes(self.name_free(word), indices, kind)

    def name_free(self, word: str) -> str:
        """Reserve an unused name."""
        name = free_name(word, self.taken)
        self.taken.add(name)
        return name

    def _write_as_sums(self, value: ir.Reduce, target: ir.Access) -> ir.Expr:
        """Return a mean, a variance or a logsumexp in terms of sums."""
        kind, bound, condition = value.kind, value.bound, value.condition
        stem = target.tensor.name
        extents = tuple(index.extent for index in bound)
        count: ir.Expr = ir.product_of(extents)
        if condition is not ir.TRUE:
            count = ir.Reduce("sum", bound, condition, ir.ONE)

        def total(body: ir.Expr) -> ir.Expr:
            return ir.Reduce("sum", bound, condition, body)

        if kind == "mean":
            return ir.Mul((total(value.body), ir.Pow(count, ir.MINUS_ONE)))
        body = self._name_value(value.body, f"{stem}_terms", target)
        if kind == "logsumexp":
            most = self._name_largest(bound, condition, body, target)
            shift = ir.Where(ir.Compare("<", ir.Call("abs", (most,)), INFINITY), most, ir.ZERO)
            terms = ir.Call("exp", (_subtract(body, shift),))
            return ir.Add((shift, ir.Call("log", (total(terms),))))
        mean = self._name_value(
            ir.Mul((total(body), ir.Pow(count, ir.MINUS_ONE))), f"{stem}_mean", target
        )
        square = ir.Pow(_subtract(body, mean), ir.Number(2))  # type: ignore[arg-type]
        less = count if kind == "var" else ir.Add((count, ir.MINUS_ONE))
        return ir.Mul((total(square), ir.Pow(less, ir.MINUS_ONE)))

    def _name_largest(
        self, bound: tuple[ir.Index, ...], condition: ir.Expr, body: ir.Expr, target: ir.Access
    ) -> ir.Access:
        """Return the maximum over all ranks as a tensor, which has no gradient."""
        largest = ir.Reduce("max", bound, condition, body)
        access = self._make_access(largest, f"{target.tensor.name}_max", target)
        equation = ir.Equation(access, largest)
        active = self._find_result_cuts(equation)
        for axis, cut in self.axes.items():
            summed = [index for index in bound if index.name in cut]
            active |= {axis: summed[-1]} if summed and axis not in active else {}
        self.work.append(Work(equation, active, is_largest=True))
        self.rigid.add(access.tensor.name)
        return access

    def _split_row(self, target: ir.Access, value: ir.Along) -> None:
        """Rewrite a softmax along a cut index as exp(x - max) / sum, a log-softmax as its log."""
        index, condition, stem = value.index, value.condition, target.tensor.name
        body = self._name_value(value.body, f"{stem}_terms", target)
        most = self._name_largest((index,), condition, body, target)
        # avoid -oo - -oo in a row with -oo only
        shift = ir.Where(ir.Compare("==", most, ir.MINUS_INFINITY), ir.ZERO, most)
        left: ir.Expr = _subtract(body, shift)
        if condition is not ir.TRUE:
            left = ir.Where(condition, left, ir.MINUS_INFINITY)
        if not ROWS[value.kind].normalizes:
            terms = ir.Reduce("sum", (index,), ir.TRUE, ir.Call("exp", (left,)))
            total = self._name_value(terms, f"{stem}_sum", target)
            self._split_equation(ir.Equation(target, _subtract(left, ir.Call("log", (total,)))))
            return
        weights = self._name_value(ir.Call("exp", (left,)), f"{stem}_weights", target)
        total = self._name_value(
            ir.Reduce("sum", (index,), ir.TRUE, weights), f"{stem}_sum", target
        )
        over: ir.Expr = total
        if self.system.empty_row == "zeros":
            over = ir.Where(ir.Compare("==", total, ir.ZERO), ir.ONE, total)
        self._split_equation(ir.Equation(target, ir.Mul((weights, ir.Pow(over, ir.MINUS_ONE)))))


def _subtract(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    return ir.Add((one, ir.Mul((ir.MINUS_ONE, other))))


def _is_independent(equation: ir.Equation, index: ir.Index, tensors: set[ir.Tensor]) -> bool:
    """Whether no step of a recurrence reads positions of the index in another shard."""
    place = find_place(equation.target, index)
    alongs = (part for part in walk(equation.value) if isinstance(part, ir.Along))
    if place is None or any(index in part.indices for part in alongs):
        return False
    read = (access for access in find_accesses(equation.value) if access.tensor in tensors)
    places = [(access.tensor, find_place(access, index)) for access in read]
    is_cut = all(where is not None for _, where in places)
    return is_cut and dict(places).get(equation.target.tensor, place) == place


def find_place(access: ir.Access, index: ir.Index | None) -> int | None:
    """Return the axis along which shards of the index are shards of the tensor: h in h*C + c."""
    if index is None:
        return None
    for number, place in enumerate(access.places):
        if index in find_free(place):
            return number if _is_leading(access, number, index) else None
    return None


def _is_leading(access: ir.Access, number: int, index: ir.Index) -> bool:
    """Whether the index covers an axis, and its shards are contiguous parts of the axis."""
    place, extent = access.places[number], access.tensor.shape[number]
    split = Polynomial.of(place).split_linear(index)
    if split is None or any(
        index in find_free(p) for k, p in enumerate(access.places) if k != number
    ):
        return False
    unit, rest = split
    if Polynomial.of(index.extent) * unit != Polynomial.of(extent) or not unit.terms:
        return False
    return _is_below(rest, unit)


def _is_below(rest: Polynomial, unit: Polynomial) -> bool:
    """Whether 0 <= rest < unit for all values of its indices."""
    if not rest.terms:
        return True
    number, whole = rest.constant, unit.constant
    if number is not None:
        return whole is not None and 0 <= number < whole
    for index in rest.atoms:
        split = rest.split_linear(index) if isinstance(index, ir.Index) else None
        if split is not None and isinstance(index, ir.Index):
            inner, left = split
            if inner * Polynomial.of(index.extent) == unit:
                return _is_below(left, inner)
    return False


Moved = TypeVar("Moved", ir.Tensor, ir.Scalar)
Layout: TypeAlias = "dict[str, tuple[int, ir.Expr]]"  # dimension -> (axis, extent of the index)


@dataclass(frozen=True, slots=True)
class Move:
    """A communication over one dimension of the mesh, from a tensor or scalar to another."""

    kind: str
    source: ir.Tensor | ir.Scalar
    made: ir.Tensor | ir.Scalar
    axis: str
    place: int
    name: str  # the tensor's name in the formula


@dataclass
class MoveInserter:
    """The state while the program of a rank is written: its equations, and the moves between."""

    splitter: EquationSplitter
    layouts: dict[str, Layout] = field(default_factory=dict)  # layout of each tensor
    shares: dict[str, tuple[ir.Expr, str]] = field(default_factory=dict)
    positions: dict[str, tuple[str, str]] = field(default_factory=dict)
    program: list[ir.Equation | Move] = field(default_factory=list)
    variants: dict[tuple[object, ...], Any] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)  # moved tensor -> tensor of the formula

    def insert_moves(self) -> None:
        """Write the program of a rank."""
        for each in self.splitter.work:
            target = each.equation.target
            places = {axis: (find_place(target, i), i.extent) for axis, i in each.active.items()}
            layout = {axis: (at, extent) for axis, (at, extent) in places.items() if at is not None}
            self.layouts[target.tensor.name] = layout
        self._place_arguments()
        for each in self.splitter.work:
            self._emit_equation(each)

    def _place_arguments(self) -> None:
        """Shard each argument along the first axis along which an equation reads shards."""
        arguments = {e: e.name for e in self.splitter.system.inputs if isinstance(e, ir.Tensor)}
        for work in self.splitter.work:
            for access in find_accesses(work.equation.value):
                if access.tensor not in arguments:
                    continue
                layout = self.layouts.setdefault(access.tensor.name, {})
                for axis, index in work.active.items():
                    place = find_place(access, index)
                    if axis in layout or place is None:
                        continue
                    if all(place != other for other, _ in layout.values()):
                        layout[axis] = place, index.extent
        for tensor in arguments:
            self.layouts.setdefault(tensor.name, {})

    def _name_share(self, extent: ir.Expr, axis: str) -> ir.Size:
        """Return the size of a shard of an extent."""
        for name, (known, where) in self.shares.items():
            if where == axis and is_same_extent(known, extent):
                return ir.Size(name)
        stem = extent.name if isinstance(extent, ir.Size) else "share"
        name = self.splitter.name_free(f"{stem}_{axis}")
        self.shares[name] = extent, axis
        return ir.Size(name)

    def localize(self, tensor: ir.Tensor, layout: Layout, name: str = "") -> ir.Tensor:
        """Return the tensor with the shape that a rank has."""
        shape = list(tensor.shape)
        for axis, (place, extent) in layout.items():
            shape[place] = _scale_extent(shape[place], extent, self._name_share(extent, axis))
        return replace(tensor, name=name or tensor.name, shape=tuple(shape))

    def _emit_equation(self, work: Work) -> None:
        """Append the moves before an equation, the equation, and the moves of its result."""
        target, value, active = work.equation.target, work.equation.value, work.active
        new = {i: ir.Index(i.name, self._name_share(i.extent, axis)) for axis, i in active.items()}
        smooth = {access.tensor for access in find_smooth(value)}
        own = next((group for group in self.splitter.groups if target.tensor in group), ())

        def localize_expr(expr: ir.Expr, local: Collection[ir.Index] = ()) -> ir.Expr:
            """Rewrite for a rank: an index in `local` counts in a shard, others in the axis."""
            match expr:
                case ir.Index() if expr in local:
                    return new[expr]
                case ir.Index() if expr in new:
                    return self._find_position(new[expr], expr.extent)
                case ir.Scalar():
                    return self._copy_scalar(expr, active)
                case ir.Access(tensor, places):
                    layout = self.layouts[tensor.name]
                    read = self.localize(tensor, layout)
                    if tensor not in own:
                        read, layout = self._read_tensor(expr, active, is_smooth=tensor in smooth)
                    cut = [(place, active[axis]) for axis, (place, _) in layout.items()]
                    found = [
                        localize_expr(place, [index for number, index in cut if number == k])
                        for k, place in enumerate(places)
                    ]
                    return ir.Access(read, tuple(found))
                case ir.Reduce(kind, bound, condition, body):
                    inner = tuple(new.get(index, index) for index in bound)
                    return ir.Reduce(kind, inner, localize_expr(condition), localize_expr(body))
            return map_children(expr, lambda part: localize_expr(part, local))

        made = localize_expr(value)
        layout = self.layouts[target.tensor.name]
        bound = value.bound if isinstance(value, ir.Reduce) else ()
        summed = [axis for axis, index in active.items() if index in bound]
        tensor = self.localize(target.tensor, layout)
        places = tuple(localize_expr(place, [*active.values()]) for place in target.places)
        names = [tensor.name, *(self.splitter.name_free(f"{tensor.name}_part") for _ in summed)]
        made_tensor = replace(tensor, name=names[-1])
        self.program.append(ir.Equation(ir.Access(made_tensor, places), made))
        kinds = {"sum": "add", "max": "max", "min": "min"}
        for axis, name in zip(summed, reversed(names[:-1]), strict=True):
            assert isinstance(value, ir.Reduce)
            kind = "largest" if work.is_largest else kinds[value.kind]
            self.bases[made_tensor.name] = tensor.name
            moved = replace(tensor, name=name)
            self.program.append(Move(kind, made_tensor, moved, axis, 0, tensor.name))
            made_tensor = moved

    def _find_position(self, index: ir.Index, extent: ir.Expr) -> ir.Access:
        """Return the global position of a position in a shard, a read of an integer tensor."""
        share = index.extent
        assert isinstance(share, ir.Size)
        name = next((n for n, (own, _) in self.positions.items() if own == share.name), "")
        if not name:
            name = self.splitter.name_free(f"positions_{share.name}")
            self.positions[name] = share.name, self.shares[share.name][1]
        return ir.Access(ir.Tensor(name, (share,), "int", extent), (index,))

    def _copy_scalar(self, scalar: ir.Scalar, active: Mapping[str, ir.Index]) -> ir.Scalar:
        """Return a copy of a scalar, whose gradients are added over the ranks."""
        for axis in active:
            scalar = self._emit_move("copy", scalar, axis, 0, ir.Scalar(f"{scalar.name}_{axis}"))
        return scalar

    def _emit_move(self, kind: str, source: Moved, axis: str, place: int, wanted: Moved) -> Moved:
        """Return the result of a move; equal moves are emitted once."""
        key = kind, source, axis, place
        if key not in self.variants:
            made = replace(wanted, name=self.splitter.name_free(wanted.name))
            base = self.bases.get(source.name, source.name)
            self.bases[made.name] = base
            self.program.append(Move(kind, source, made, axis, place, base))
            self.variants[key] = made
        found: Moved = self.variants[key]
        return found

    def _read_tensor(
        self, access: ir.Access, active: Mapping[str, ir.Index], *, is_smooth: bool
    ) -> tuple[ir.Tensor, Layout]:
        """Return (the tensor in the layout that a read needs, the layout)."""
        base, layout = access.tensor, dict(self.layouts[access.tensor.name])
        moves: list[tuple[str, str, int, ir.Expr]] = []
        for axis in self.splitter.axes:
            index, cut = active.get(axis), layout.get(axis)
            here = find_place(access, index)
            if index is not None and cut is None:
                others = {place for place, _ in layout.values()}
                if here is not None and here not in others:
                    moves.append(("split", axis, here, index.extent))
                elif is_smooth and base.name not in self.splitter.rigid:
                    moves.append(("copy", axis, 0, ir.ZERO))
            elif cut is not None and not (
                index is not None
                and is_same_extent(index.extent, cut[1])
                and _is_leading(access, cut[0], index)
            ):
                kind = "gather" if is_smooth and index is not None else "collect"
                moves.append((kind, axis, *cut))
        order = {"split": 0, "copy": 1, "gather": 2, "collect": 2}
        moves.sort(key=lambda move: order[move[0]])
        tensor = self.localize(base, layout)
        for kind, axis, place, extent in moves:
            if kind == "split":
                layout[axis] = place, extent
            elif kind != "copy":
                del layout[axis]
            words = {"split": "share", "copy": axis, "gather": "all", "collect": "all"}
            wanted = self.localize(base, layout, f"{base.name}_{words[kind]}")
            tensor = self._emit_move(kind, tensor, axis, place, wanted)
        return tensor, layout


def _scale_extent(shape: ir.Expr, extent: ir.Expr, share: ir.Size) -> ir.Expr:
    """Return an extent, E*u, with the extent E replaced by its share."""
    if is_same_extent(shape, extent):
        return share
    whole = Polynomial.of(shape)
    split = whole.split_linear(extent) if isinstance(extent, ir.Size) else None
    if split is not None and not split[1].terms:
        return (split[0] * Polynomial.of(share)).to_expr()
    return (whole * Polynomial.of(share) * Polynomial.of(ir.Pow(extent, ir.MINUS_ONE))).to_expr()


def find_smooth(expr: ir.Expr) -> Iterator[ir.Access]:
    """Yield the accesses that a gradient reaches: none in conditions, positions and argmax."""
    match expr:
        case ir.Access():
            if expr.tensor.kind == "real":
                yield expr
        case ir.Compare() | ir.And() | ir.Or() | ir.Not() | ir.Reduce("argmax", _, _, _):
            return
        case ir.Where(_, then, other):
            yield from find_smooth(then)
            yield from find_smooth(other)
        case ir.Reduce(_, _, _, body) | ir.Along(_, _, _, body):
            yield from find_smooth(body)
        case _:
            for child in find_children(expr):
                yield from find_smooth(child)


def find_read_names(part: ir.Equation | Move) -> set[str]:
    """Return the names of the tensors and scalars that an equation or a move reads."""
    if isinstance(part, Move):
        return {part.source.name}
    inside = [p for whole in (part.target, part.value) for p in walk(whole)]
    found = {p.tensor.name for p in inside if isinstance(p, ir.Access)}
    found |= {p.name for p in inside if isinstance(p, ir.Scalar)}
    return found


def find_made_name(part: ir.Equation | Move) -> str:
    """Return the name of the tensor or scalar that an equation or a move computes."""
    return part.made.name if isinstance(part, Move) else part.target.tensor.name
