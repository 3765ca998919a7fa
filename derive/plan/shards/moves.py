"""Where tensors are cut over the ranks of a mesh, and what moves before an equation reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import find_accesses, find_children, map_children, walk
from derive.plan.shards.work import find_place, is_share_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from derive.plan.shards.work import Opener, Work

Layout: TypeAlias = "dict[str, tuple[int, ir.Expr]]"  # by dimension: the place, the index's extent


@dataclass(frozen=True, slots=True)
class Move:
    """One tensor, or number, made of another by the ranks of a dimension."""

    kind: str
    source: ir.Tensor | ir.Scalar
    made: ir.Tensor | ir.Scalar
    axis: str
    place: int
    name: str  # of the tensor in the formula


@dataclass
class Mover:
    """The equations of a rank, and the moves between them, while they are made."""

    opened: Opener
    layouts: dict[str, Layout] = field(default_factory=dict)  # of a tensor, by name
    shares: dict[str, tuple[ir.Expr, str]] = field(default_factory=dict)
    positions: dict[str, tuple[str, str]] = field(default_factory=dict)
    program: list[ir.Equation | Move] = field(default_factory=list)
    variants: dict[tuple[object, ...], ir.Tensor | ir.Scalar] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)  # whose variant a tensor is

    def move(self) -> None:
        """The program of a rank: its equations, and the moves."""
        for each in self.opened.work:
            self.layouts[each.equation.target.tensor.name] = _find_layout(each)
        self._place_arguments()
        for each in self.opened.work:
            self._emit(each)

    def _place_arguments(self) -> None:
        """Each argument is cut along the first place at which shares of it are read."""
        arguments = {e: e.name for e in self.opened.system.inputs if isinstance(e, ir.Tensor)}
        for work in self.opened.work:
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

    def _share(self, extent: ir.Expr, axis: str) -> ir.Size:
        """The size of a rank's share of an extent."""
        for name, (known, where) in self.shares.items():
            if where == axis and is_same_extent(known, extent):
                return ir.Size(name)
        stem = extent.name if isinstance(extent, ir.Size) else "share"
        name = self.opened.name_free(f"{stem}_{axis}")
        self.shares[name] = extent, axis
        return ir.Size(name)

    def localize(self, tensor: ir.Tensor, layout: Layout, name: str = "") -> ir.Tensor:
        """The tensor as a rank has it."""
        shape = list(tensor.shape)
        for axis, (place, extent) in layout.items():
            shape[place] = _scale(shape[place], extent, self._share(extent, axis))
        return replace_shape(tensor, tuple(shape), name or tensor.name)

    def _emit(self, work: Work) -> None:
        """The moves that an equation needs, the equation of a rank, and what is made of that."""
        target, value, active = work.equation.target, work.equation.value, work.active
        new = {i: ir.Index(i.name, self._share(i.extent, axis)) for axis, i in active.items()}
        smooth = {access.tensor for access in find_smooth(value)}
        own = next((group for group in self.opened.groups if target.tensor in group), ())

        def visit(expr: ir.Expr, local: Collection[ir.Index] = ()) -> ir.Expr:
            """What is `local` counts the positions of a share, any other index all positions."""
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
                        read, layout = self._fetch(expr, active, is_smooth=tensor in smooth)
                    cut = [(place, active[axis]) for axis, (place, _) in layout.items()]
                    found = [
                        visit(place, [index for number, index in cut if number == k])
                        for k, place in enumerate(places)
                    ]
                    return ir.Access(read, tuple(found))
                case ir.Reduce(kind, bound, condition, body):
                    inner = tuple(new.get(index, index) for index in bound)
                    return ir.Reduce(kind, inner, visit(condition), visit(body))
                case _:
                    return map_children(expr, lambda part: visit(part, local))

        made = visit(value)
        layout = self.layouts[target.tensor.name]
        bound = value.bound if isinstance(value, ir.Reduce) else ()
        summed = [axis for axis, index in active.items() if index in bound]
        tensor = self.localize(target.tensor, layout)
        places = tuple(visit(place, [*active.values()]) for place in target.places)
        names = [tensor.name, *(self.opened.name_free(f"{tensor.name}_part") for _ in summed)]
        made_tensor = replace_shape(tensor, tensor.shape, names[-1])
        self.program.append(ir.Equation(ir.Access(made_tensor, places), made))
        kinds = {"sum": "add", "max": "max", "min": "min"}
        for axis, name in zip(summed, reversed(names[:-1]), strict=True):
            assert isinstance(value, ir.Reduce)
            kind = "largest" if work.is_largest else kinds[value.kind]
            self.bases[made_tensor.name] = tensor.name
            moved = replace_shape(tensor, tensor.shape, name)
            self.program.append(Move(kind, made_tensor, moved, axis, 0, tensor.name))
            made_tensor = moved

    def _find_position(self, index: ir.Index, extent: ir.Expr) -> ir.Access:
        """The position among all of one that a rank counts in its share."""
        share = index.extent
        assert isinstance(share, ir.Size)
        name = next((n for n, (own, _) in self.positions.items() if own == share.name), "")
        if not name:
            name = self.opened.name_free(f"positions_{share.name}")
            self.positions[name] = share.name, self.shares[share.name][1]
        return ir.Access(ir.Tensor(name, (share,), "int", extent), (index,))

    def _copy_scalar(self, scalar: ir.Scalar, active: Mapping[str, ir.Index]) -> ir.Scalar:
        """A number that may be a tensor: its gradients are added up over the ranks."""
        for axis in active:
            key = ("scalar", scalar, axis)
            if key not in self.variants:
                made = ir.Scalar(self.opened.name_free(f"{scalar.name}_{axis}"))
                base = self.bases.get(scalar.name, scalar.name)
                self.bases[made.name] = base
                self.program.append(Move("copy", scalar, made, axis, 0, base))
                self.variants[key] = made
            found = self.variants[key]
            assert isinstance(found, ir.Scalar)
            scalar = found
        return scalar

    def _fetch(
        self, access: ir.Access, active: Mapping[str, ir.Index], *, is_smooth: bool
    ) -> tuple[ir.Tensor, Layout]:
        """The tensor as this read needs it, and where it is cut then."""
        base, layout = access.tensor, dict(self.layouts[access.tensor.name])
        moves: list[tuple[str, str, int, ir.Expr]] = []
        for axis in self.opened.axes:
            index, cut = active.get(axis), layout.get(axis)
            here = find_place(access, index) if index is not None else None
            if index is not None and cut is None:
                others = {place for place, _ in layout.values()}
                if here is not None and here not in others:
                    moves.append(("split", axis, here, index.extent))
                elif is_smooth and base.name not in self.opened.rigid:
                    moves.append(("copy", axis, 0, ir.ZERO))
            elif cut is not None:
                place, extent = cut
                if index is None:
                    moves.append(("collect", axis, place, extent))
                elif is_share_of(access, place, index, extent):
                    continue
                else:
                    kind = "gather" if is_smooth else "collect"
                    moves.append((kind, axis, place, extent))
        order = {"split": 0, "copy": 1, "gather": 2, "collect": 2}
        moves.sort(key=lambda move: order[move[0]])
        tensor = self.localize(base, layout)
        for kind, axis, place, extent in moves:
            if kind == "split":
                layout[axis] = place, extent
            elif kind != "copy":
                del layout[axis]
            key = (kind, tensor, axis, place)
            if key not in self.variants:
                words = {"split": "share", "copy": axis, "gather": "all", "collect": "all"}
                name = self.opened.name_free(f"{base.name}_{words[kind]}")
                made = self.localize(base, layout, name)
                self.bases[name] = base.name
                self.program.append(Move(kind, tensor, made, axis, place, base.name))
                self.variants[key] = made
            found = self.variants[key]
            assert isinstance(found, ir.Tensor)
            tensor = found
        return tensor, layout


def _scale(shape: ir.Expr, extent: ir.Expr, share: ir.Size) -> ir.Expr:
    """An extent, E*u, of which each rank has the share of E."""
    if is_same_extent(shape, extent):
        return share
    whole = Polynomial.of(shape)
    split = whole.split(extent) if isinstance(extent, ir.Size) else None
    if split is not None and not split[1].terms:
        return (split[0] * Polynomial.of(share)).to_expr()
    return (whole * Polynomial.of(share) * Polynomial.of(ir.Pow(extent, ir.MINUS_ONE))).to_expr()


def replace_shape(tensor: ir.Tensor, shape: tuple[ir.Expr, ...], name: str) -> ir.Tensor:
    """The tensor under another name, of another shape."""
    return ir.Tensor(
        name, shape, tensor.kind, tensor.below, tensor.lower, tensor.upper, tensor.strict
    )


def _find_layout(work: Work) -> Layout:
    """Where the result of an equation is cut."""
    found: Layout = {}
    for axis, index in work.active.items():
        place = find_place(work.equation.target, index)
        if place is not None:
            found[axis] = place, index.extent
    return found


def find_smooth(expr: ir.Expr) -> Iterator[ir.Access]:
    """The accesses that a gradient reaches: none in conditions, positions, and an argmax."""
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


def find_read(part: ir.Equation | Move) -> set[str]:
    """The names of what it is made of."""
    if isinstance(part, Move):
        return {part.source.name}
    inside = [p for whole in (part.target, part.value) for p in walk(whole)]
    found = {p.tensor.name for p in inside if isinstance(p, ir.Access)}
    found |= {p.name for p in inside if isinstance(p, ir.Scalar)}
    return found


def find_made(part: ir.Equation | Move) -> str:
    """The name of what it makes."""
    return part.made.name if isinstance(part, Move) else part.target.tensor.name
