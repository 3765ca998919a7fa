"""Reductions under a band: over windows, or in blocks of rows with all columns that these read.

    y_i = sum_{i - W <= j <= i} f_ij
    y_(L*g + r) = sum_{r <= t <= r + W} f_(L*g + r)(L*g - W + t)        r < L, t < L + W

A plan reads both places as views of padded tensors, and multiplies a block by a window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations, product

from derive.analysis.affine import simplify_place
from derive.analysis.extents import find_guard
from derive.analysis.facts import is_never_negative, is_positive, read_bounds
from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS, ROWS
from derive.ir.polynomial import ONE, Polynomial
from derive.ir.walk import (
    Names,
    find_accesses,
    find_free,
    is_reading,
    map_children,
    substitute,
    walk,
)
from derive.rewrite.guards import is_natural
from derive.rewrite.rule import apply_rules, drop_unread, put_value, system_rule
from derive.rewrite.rules.exponentials import merge_mask, restrict_softmax

LENGTHS = (32, 128)  # rows of a block; more rows copy columns less often
Pairs = set[tuple[ir.Expr, ir.Expr]]
Compared = dict[ir.Tensor, set[tuple[int, int]]]  # pairs of places that a tensor's value compares
MASKS = (merge_mask, restrict_softmax)


class OutsideError(Exception):
    """A part of an expression cannot be computed in blocks."""


@dataclass(frozen=True, slots=True)
class Band:
    """The columns that a row reads: `width` of them, from `first` on."""

    row: ir.Index
    column: ir.Index
    first: Polynomial
    width: Polynomial


def find_ends(
    parts: Sequence[ir.Expr], index: ir.Index
) -> tuple[Polynomial, Polynomial, list[ir.Expr]] | None:
    """The first allowed position of an index, the number of positions, the other parts; or None.

    The first one depends on another index, the number on sizes alone: it is positive if they are.
    """
    ends, rest = dict[bool, Polynomial](), list[ir.Expr]()
    for part in parts:
        is_plain = isinstance(part, ir.Compare) and part.relation != "=="
        bounds = read_bounds(part, index) if is_plain else ()
        atoms = [atom for _, end in bounds for atom in end.atoms]
        is_new = len({*ends, *dict(bounds)}) == len(ends) + len(bounds) > len(ends)
        if is_new and all(isinstance(atom, (ir.Index, ir.Size)) for atom in atoms):
            ends |= bounds
        else:
            rest.append(part)
    if len(ends) < 2 or not any(isinstance(atom, ir.Index) for atom in ends[True].atoms):
        return None
    first, last = ends[True], ends[False]  # a lower bound and an upper one
    width = last - first + ONE
    is_fixed = all(isinstance(atom, ir.Size) for atom in width.atoms)
    return (first, width, rest) if is_fixed and is_positive(width) else None


@system_rule(
    law="y_i = sum_{i - W <= j <= i} f_ij is y_(L*g + r) = sum_{r <= t <= r + W} f, at i = L*g + r "
    "and j = L*g - W + t",
    before="q, k, v[S, D]; size W; "
    "y[i,e] = sum[j](softmax[j, i - W <= j and j <= i](sum[d](q[i,d] * k[j,d])) * v[j,e])",
    after="q, k, v[S, D]; size W; index g < S//32 + 1; index r < 32; index t < W + 32; "
    "y_blocks[32*g + r,e] = sum[t](softmax[t, t >= r and t <= W + r and 32*g + t - W >= 0]"
    "(sum[d](where(32*g + r < S, q[32*g + r,d], 0)"
    " * where(32*g + t - W >= 0 and 32*g + t - W < S, k[32*g + t - W,d], 0)))"
    " * where(32*g + t - W >= 0 and 32*g + t - W < S, v[32*g + t - W,e], 0)); "
    "index i < S; y[i,e] = y_blocks[i,e]",
    refuses="q, k, v[S, D]; y[i,e] = sum[j](softmax[j, j <= i](sum[d](q[i,d] * k[j,d])) * v[j,e])",
)
def block_band(system: ir.System) -> Iterator[ir.System]:
    """Yield systems that compute reductions of products under a band in blocks of rows."""
    compared: Compared = {}
    for number, equation in enumerate(system.equations):
        tensor, places = equation.target.tensor, equation.target.places
        pairs = _find_pairs(equation.value, compared)
        compared[tensor] = {
            (one, other)
            for one, other in permutations(range(len(places)), 2)
            if (places[one], places[other]) in pairs
        }
        pairs = {(row, column) for row, column in pairs if row in places and column not in places}
        if not pairs or is_reading(equation.value, tensor):
            continue
        before, after = system.equations[:number], system.equations[number + 1 :]
        value = _inline_pairs(equation.value, before, pairs)
        for band in _find_bands(equation, value):
            for length in LENGTHS:
                try:
                    made = _Blocks(band, length, Names.of(system)).make_equations(equation, value)
                except (OutsideError, ValueError):
                    break
                equations = drop_unread((*before, *made, *after), system.results)
                yield replace(system, equations=equations)


def _find_pairs(expr: ir.Expr, compared: Compared) -> Pairs:
    """The pairs of indices that an expression, or an equation that it reads, compares."""
    pairs: Pairs = set()
    for part in walk(expr):
        match part:
            case ir.Compare():
                pairs |= {*permutations(find_free(part), 2)}
            case ir.Access(tensor, places):
                for one, other in compared.get(tensor, ()):
                    pairs |= {*product(find_free(places[one]), find_free(places[other]))}
    return pairs


def _inline_pairs(value: ir.Expr, before: Sequence[ir.Equation], pairs: Pairs) -> ir.Expr:
    """The expression with equations inlined that are read at both indices of a pair."""
    for each in reversed(before):
        reads = (a for a in find_accesses(value) if a.tensor is each.target.tensor)
        if any({*pair} <= {*find_free(a)} for a in reads for pair in pairs):
            value = put_value(value, each)
    return apply_rules(value, MASKS)


def _find_bands(equation: ir.Equation, value: ir.Expr) -> Iterator[Band]:
    found: dict[tuple[ir.Index, ir.Index], Band] = {}
    kept = find_free(equation.target)
    for part in walk(value):
        match part:
            case ir.Reduce(_, bound, condition, _):
                columns: tuple[ir.Index, ...] = bound
            case ir.Along(_, index, condition, _):
                columns = (index,)
            case ir.Where(condition):
                columns = find_free(condition)
            case _:
                continue
        for column in columns:
            ends = find_ends(ir.split_and(condition), column)
            rows = [a for a in ends[0].atoms if isinstance(a, ir.Index)] if ends else []
            if ends is None or len(rows) != 1 or rows[0] not in equation.target.places:
                continue
            first, width = ends[0] - Polynomial.of(rows[0]), ends[1]
            if rows[0] in (*find_free(first.to_expr()), *find_free(width.to_expr())):
                continue  # another slope, or a width that depends on the row
            is_wide = ends[1].terms.get((), 0) + min(LENGTHS) > 0  # even with sizes of 0
            if is_wide and column not in kept and not isinstance(rows[0].extent, ir.Number):
                found.setdefault((rows[0], column), Band(rows[0], column, *ends[:2]))
    yield from found.values()


@dataclass
class _Blocks:
    """The equations of one band in blocks of `length` rows."""

    band: Band
    length: int
    names: Names

    def __post_init__(self) -> None:
        """Make the indices of the blocks, and the row and column in terms of them."""
        number, band, take = ir.Number(Fraction(self.length)), self.band, self.names.take_index
        # at least one block: torch has no empty windows
        self.count = ir.Add((ir.Call("floordiv", (band.row.extent, number)), ir.ONE))
        self.block = take(ir.Index("g", self.count))
        self.inner = take(ir.Index("r", number))
        wide = band.width + Polynomial.of(self.length - 1)
        self.window = take(ir.Index("t", wide.to_expr()))
        start = ir.Mul((number, self.block))
        before = band.first - Polynomial.of(band.row)
        places = (start, self.inner), (start, before.to_expr(), self.window)
        self.row, self.column = (simplify_place(ir.Add(parts)) for parts in places)
        self.new: dict[ir.Expr, ir.Expr] = {band.row: self.row, band.column: self.column}

    def make_equations(
        self, equation: ir.Equation, value: ir.Expr
    ) -> tuple[ir.Equation, ir.Equation]:
        """(the equation of the blocks, the equation that reads the tensor from them)."""
        target = equation.target
        name = self.names.take(f"{target.tensor.name}_blocks")
        whole = (Polynomial.of(self.length) * Polynomial.of(self.count)).to_expr()
        row = self.band.row
        pairs = zip(target.places, target.tensor.shape, strict=True)
        shape = tuple(whole if place is row else extent for place, extent in pairs)
        tensor = replace(target.tensor, name=name, shape=shape)
        places = tuple(self.row if place is row else place for place in target.places)
        blocks = ir.Equation(ir.Access(tensor, places), self.move_expr(value))
        return blocks, ir.Equation(target, ir.Access(tensor, target.places))

    def move_expr(self, expr: ir.Expr) -> ir.Expr:
        """The expression over the blocks' indices; OutsideError where its value would change."""
        band = self.band
        if not {band.row, band.column} & {i for i in walk(expr) if isinstance(i, ir.Index)}:
            return expr
        match expr:
            case ir.Access():
                return self._read_entry(expr)
            case ir.Index():
                return self.new[expr]
            case ir.Reduce(kind, bound, condition, body) if band.column in bound:
                ends_at_zero = kind == "sum" and self._is_zero(body)
                if kind == "argmax" or not (self._is_inside(condition) or ends_at_zero):
                    raise OutsideError
                over = tuple(self.window if i is band.column else i for i in bound)
                inside = self._restrict(condition, is_sum=kind == "sum")
                return ir.Reduce(kind, over, inside, self.move_expr(body))
            case ir.Along(kind, index, condition, body) if index is band.column:
                if not (ROWS[kind].normalizes and self._is_inside(condition)):
                    raise OutsideError
                inside = self._restrict(condition, is_sum=False)
                return ir.Along(kind, self.window, inside, self.move_expr(body))
            case ir.Along():
                raise OutsideError
            case ir.Where(condition, then, other):
                inside = self._restrict(condition, is_sum=True)
                return ir.Where(inside, self.move_expr(then), self.move_expr(other))
            case ir.Compare(relation, left, right):
                gap = Polynomial.of(substitute(left, self.new))
                gap -= Polynomial.of(substitute(right, self.new))
                return ir.Compare(relation, gap.to_expr(), ir.ZERO)
            case ir.Pow(_, exponent) if not is_natural(exponent):
                raise OutsideError  # infinite beyond the ends, where tensors are read as 0
            case ir.Call(name) if name != "exp" and FUNCTIONS[name].is_partial:
                raise OutsideError
        return map_children(expr, self.move_expr)

    def _read_entry(self, access: ir.Access) -> ir.Expr:
        """The read at its places in blocks, 0 outside of the tensor; OutsideError if two move."""
        ends = {self.band.row, self.band.column}
        moved = [place for place in access.places if ends & {*find_free(place)}]
        if len(moved) != 1:
            raise OutsideError  # a read with row and column at two places
        places = tuple(simplify_place(substitute(place, self.new)) for place in access.places)
        pairs = zip(places, access.places, access.tensor.shape, strict=True)
        guards = (find_guard(new, extent) for new, old, extent in pairs if new is not old)
        guard = ir.all_of(*guards)
        read = ir.Access(access.tensor, places)
        if access.tensor.kind == "bool":
            return ir.all_of(guard, read)
        return read if guard is ir.TRUE else ir.Where(guard, read, ir.ZERO)

    def _find_rest(self, condition: ir.Expr) -> list[ir.Expr] | None:
        """The other parts of a condition that includes the band; None for other conditions."""
        ends = find_ends(ir.split_and(condition), self.band.column)
        is_same = ends is not None and ends[:2] == (self.band.first, self.band.width)
        return ends[2] if ends is not None and is_same else None

    def _is_inside(self, condition: ir.Expr) -> bool:
        return self._find_rest(condition) is not None

    def _is_zero(self, body: ir.Expr) -> bool:
        """Whether a product is 0 outside of the band."""
        return any(
            isinstance(factor, ir.Along)
            and factor.index is self.band.column
            and ROWS[factor.kind].normalizes
            and self._is_inside(factor.condition)
            for factor in ir.split_product(body)
        )

    def _restrict(self, condition: ir.Expr, *, is_sum: bool) -> ir.Expr:
        """The condition in a block; without `is_sum` true in padding, so that no row is empty."""
        band, rest = self.band, self._find_rest(condition)
        if rest is None:
            parts = ir.split_and(condition)
            return ir.all_of(*(part if part is ir.TRUE else self.move_expr(part) for part in parts))
        last = Polynomial.of(self.inner) + band.width - ONE
        within: list[ir.Expr] = [
            ir.Compare(">=", self.window, self.inner),
            ir.Compare("<=", self.window, last.to_expr()),
            ir.Compare(">=", self.column, ir.ZERO),
        ]
        more = [self.move_expr(part) for part in rest if part is not ir.TRUE]
        after = Polynomial.of(band.column.extent) - band.first - band.width
        if not is_never_negative(after):
            more.append(ir.Compare("<", self.column, band.column.extent))
        beyond = ir.Compare(">=", self.row, band.row.extent)
        if more and not is_sum:
            return ir.any_of(beyond, ir.all_of(*within, *more))
        return ir.all_of(*within, *more)
