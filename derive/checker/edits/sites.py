"""Sites of a formula, the edits at a site, and the kinds of edits.

Edits of the formula and of the code are ranked by one rule. The cost depends on the slip: one part
exchanged for another of its kind, one left out, one misplaced, several mistaken at once. Each step
between the old part and the new one adds a tenth.

A `Scale` is a product of powers of sizes and numbers, the factor of a part of a formula. Its sign
is a power of -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import find_free, is_bracket, map_children, rewrite_bottom_up, substitute

EXCHANGED, LACKING, MISPLACED, SEVERAL = 1.0, 1.2, 1.4, 1.6
LONGEST = 60  # characters of a node that words quote whole


@dataclass(frozen=True)
class Change:
    """A formula with one difference, words for the edit of the code, and its cost."""

    system: ir.System
    words: str
    cost: float
    about: str = ""  # the subject of the edit, such as "a place"


@dataclass(frozen=True)
class SizedFormula:
    """A formula at given sizes."""

    system: ir.System
    sizes: Mapping[str, int]
    _extents: dict[ir.Expr, int] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def sites(self) -> tuple[tuple[FormulaSite, ...], ...]:
        """The sites of every equation, outer ones first."""
        return tuple(
            tuple(_find_sites(FormulaSite(self, number, equation.value, None, lambda new: new)))
            for number, equation in enumerate(self.system.equations)
        )

    def extent(self, index: ir.Index) -> int:
        """The number of values that an index has."""
        found = self._extents.get(index.extent)
        if found is None:
            found = self._extents[index.extent] = evaluate_extent(index.extent, self.sizes)
        return found

    def is_alike(self, one: ir.Tensor, other: ir.Tensor) -> bool:
        """Whether two different tensors have one kind and equal shapes at these sizes."""
        shapes = [[self.extent(ir.Index("_", n)) for n in each.shape] for each in (one, other)]
        return one is not other and one.kind == other.kind and shapes[0] == shapes[1]

    def tensors(self, number: int) -> tuple[ir.Tensor, ...]:
        """The tensors that an equation may read: the inputs, and those of equations before."""
        before = (equation.target.tensor for equation in self.system.equations[:number])
        return (*self.system.tensors, *dict.fromkeys(before))


Edited: TypeAlias = ir.Expr | ir.Equation | tuple[ir.Equation, ...]


@dataclass(frozen=True)
class FormulaSite:
    """One occurrence of a node in an equation's value."""

    formula: SizedFormula
    number: int  # the equation's
    node: ir.Expr
    parent: ir.Expr | None
    put_node: Callable[[ir.Expr], ir.Expr]  # the whole value with another node at this site
    is_inside: bool = False  # inside a position
    is_guard: bool = False  # part of the condition of a sum or a row
    is_condition: bool = False  # a whole condition
    is_clause: bool = False  # a condition, or an operand of and, or, not in one

    @property
    def equation(self) -> ir.Equation:
        """The equation of this site."""
        return self.formula.system.equations[self.number]

    @property
    def name(self) -> str:
        """The name of the tensor that the equation defines."""
        return self.equation.target.tensor.name

    @property
    def is_conditional(self) -> bool:
        """Whether the node is part of a condition."""
        return self.is_guard or isinstance(self.node, (ir.Compare, ir.And, ir.Or, ir.Not))

    @property
    def is_value(self) -> bool:
        """Whether the node is a value, part of neither a position nor a condition."""
        return not self.is_inside and not self.is_conditional

    @property
    def access(self) -> ir.Access | None:
        """The access at this site; None for another node or inside a position."""
        return self.node if isinstance(self.node, ir.Access) and not self.is_inside else None

    def change(self, new: Edited, words: str, cost: float, about: str) -> Change:
        """The formula with another node here, another equation, or other equations."""
        if isinstance(new, ir.Equation):
            old, at = self.formula.system.equations, self.number
            new = (*old[:at], new, *old[at + 1 :])
        if not isinstance(new, tuple):
            return self.change(self.with_value(self.put_node(new)), words, cost, about)
        return Change(replace(self.formula.system, equations=new), words, cost, about)

    def with_value(self, value: ir.Expr) -> ir.Equation:
        """The equation with another value."""
        return ir.Equation(self.equation.target, value)


def _find_sites(site: FormulaSite) -> Iterator[FormulaSite]:
    """The site, and those inside its node."""
    yield site
    node = site.node
    row = node if isinstance(node, (ir.Reduce, ir.Along)) else None
    is_logical = isinstance(node, (ir.And, ir.Or, ir.Not))
    for at, child in enumerate(node.children):

        def put_node(new: ir.Expr, at: int = at) -> ir.Expr:
            parts = iter((*node.children[:at], new, *node.children[at + 1 :]))
            return site.put_node(map_children(node, lambda _: next(parts)))

        is_own = child is getattr(node, "condition", None)
        is_condition = is_own and (row is None or child not in {ir.TRUE, row.body})
        yield from _find_sites(
            FormulaSite(
                *(site.formula, site.number, child, node, put_node),
                is_inside=site.is_inside or isinstance(node, ir.Access),
                is_guard=site.is_conditional or (is_own and row is not None and child != ir.TRUE),
                is_condition=is_condition,
                is_clause=is_condition or (is_logical and site.is_clause),
            )
        )


Find: TypeAlias = Callable[[FormulaSite], Iterator[tuple[Edited, str, float]]]


@dataclass(frozen=True, slots=True)
class EditKind:
    """A kind of edit of a formula: its cost, an example, and the function that finds the edits.

    `find` yields other nodes for a site, or other equations, each with words and an extra cost.
    """

    name: str
    cost: float
    formula: str
    code: str
    words: str
    about: str
    find: Find


def edit_kind(
    *, cost: float, formula: str, code: str, words: str, about: str = ""
) -> Callable[[Find], EditKind]:
    """Decorate a function that finds edits at a site: it becomes an `EditKind` with an example."""
    return lambda find: EditKind(find.__name__, cost, formula, code, words, about, find)


def leave_out(node: ir.Expr, at: int) -> ir.Expr:
    """A sum, a product or the like without its part number `at`."""
    parts = (*node.children[:at], *node.children[at + 1 :])
    return parts[0] if len(parts) == 1 else type(node)(parts)  # type: ignore[call-arg,arg-type]


def exchange_nodes(expr: ir.Expr, new: Mapping[ir.Expr, ir.Expr]) -> ir.Expr:
    """The expression with nodes replaced; unchanged if a bound index would be captured."""
    try:
        return substitute(expr, new)
    except ValueError:
        return expr


def pair_indices(formula: SizedFormula, node: ir.Expr) -> Iterator[tuple[ir.Index, ir.Index, str]]:
    """The pairs of indices of equal extent in a node, with their names."""
    for one, two in combinations(find_free(node), 2):
        if formula.extent(one) == formula.extent(two):
            yield one, two, " and ".join(sorted((one.name, two.name)))


def expand_position(place: ir.Expr) -> ir.Expr:
    """The position multiplied out, with its indices in the original order."""
    order = find_free(place)
    found = Polynomial.of(place).to_expr()
    if not isinstance(found, ir.Add):
        return found

    def rank(term: ir.Expr) -> int:
        return min((order.index(index) for index in find_free(term)), default=len(order))

    return ir.Add(tuple(sorted(found.terms, key=rank)))


def drop_conditions(value: ir.Expr, kept: ir.Expr) -> ir.Expr:
    """A value without the conditions of its sums and without its brackets, except `kept`."""

    def act(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Reduce(kind, bound, _, body):
                return ir.Reduce(kind, bound, ir.TRUE, body)
            case ir.Mul(factors):
                return ir.product_of([f for f in factors if not is_bracket(f) or f is kept])
        return expr

    return rewrite_bottom_up(value, act)


def show_node(expr: ir.Expr | ir.Equation, name: str = "") -> str:
    """The node's text; a long node goes by its name, if it has one."""
    text = to_text(expr)
    return text if len(text) <= LONGEST or not name else name


POWERS = (Fraction(1, 2), Fraction(-1, 2), Fraction(1), Fraction(-1))


Scale: TypeAlias = dict[ir.Expr, Fraction]  # the powers of sizes and numbers, without 0; sorted


def multiply_scales(*parts: tuple[Scale, int | Fraction]) -> Scale:
    """The product of scales, each to a power."""
    total: Scale = {}
    for scale, power in parts:
        for atom, own in scale.items():
            total[atom] = total.get(atom, Fraction(0)) + own * power
    if ir.MINUS_ONE in total:
        sign = total[ir.MINUS_ONE]
        total[ir.MINUS_ONE] = sign % 2 if sign.denominator == 1 else Fraction(0)
    return {atom: total[atom] for atom in sorted(total, key=to_text) if total[atom]}


def scale_to_expr(scale: Scale) -> ir.Expr:
    """The scale as an expression: equal powers grouped, divisors last."""

    def raise_to(power: Fraction) -> ir.Expr:
        base = ir.product_of([a for a, p in scale.items() if p == power and a is not ir.MINUS_ONE])
        base = base if abs(power) == 1 else ir.Pow(base, ir.Number(abs(power)))
        return base if power > 0 else ir.Pow(base, ir.MINUS_ONE)

    powers = dict.fromkeys(power for atom, power in scale.items() if atom is not ir.MINUS_ONE)
    sign = [ir.MINUS_ONE] if ir.MINUS_ONE in scale else []
    return ir.product_of([*sign, *map(raise_to, sorted(powers, key=lambda p: p < 0))] or [ir.ONE])


def show_scale(scale: Scale) -> str:
    """The scale in words: 1/sqrt(D)."""
    return to_text(scale_to_expr(scale)).replace(" / ", "/").replace(" * ", "*")


def find_scale(expr: ir.Expr) -> Scale:
    """The exponent of each size and number that multiplies an expression, inside its sums too."""
    match expr:
        case ir.Number(value) if value not in {0, 1}:
            sign = [ir.MINUS_ONE] if value < 0 else []
            over, under = (
                ir.Number(Fraction(n)) for n in (abs(value.numerator), value.denominator)
            )
            found = {over: Fraction(1), under: Fraction(-1)} | dict.fromkeys(sign, Fraction(1))
            return multiply_scales(({a: p for a, p in found.items() if a != ir.ONE}, 1))
        case ir.Size() | ir.Scalar():
            return {expr: Fraction(1)}
        case ir.Pow(base, ir.Number(power)) if is_number(base):
            return multiply_scales((find_scale(base), power))
        case ir.Mul(factors):
            return multiply_scales(*((find_scale(factor), 1) for factor in factors))
        case ir.Reduce("sum", _, _, body):
            return find_scale(body)
    return {}


def is_number(expr: ir.Expr) -> bool:
    """Whether an expression is a product of powers of sizes, numbers and scalars."""
    if isinstance(expr, (ir.Number, ir.Size, ir.Scalar)):
        return True
    return isinstance(expr, (ir.Mul, ir.Pow)) and all(map(is_number, expr.children))


def find_factors(own: Scale, sizes: Sequence[ir.Expr]) -> Iterator[tuple[Scale, float]]:
    """Extra factors that code may have, and how much less likely each is."""
    mine = {atom: power for atom, power in own.items() if atom is not ir.MINUS_ONE}
    pairs = [dict.fromkeys(pair, Fraction(1)) for pair in combinations(sizes, 2)]
    if mine:
        yield multiply_scales((own, -1)), 0.0
        yield own, 0.1
        yield multiply_scales((own, -2)), 0.1
    for atom, power in mine.items():
        for times, extra in ((-1, 0.02), (1, 0.12), (-2, 0.12)):
            yield {atom: times * power}, extra
        for other in sizes:
            if other is not atom:
                yield multiply_scales(({atom: -power, other: power}, 1)), 0.2
        for pair in pairs:
            yield multiply_scales(({atom: power}, -1), (pair, power)), 0.25
    for power in POWERS:
        for size in sizes:
            yield {size: power}, 0.15 if size in mine else 0.3
        for value in (2, 3, 4) if power.denominator == 1 else (2,):
            yield {ir.Number(Fraction(value)): power}, 0.4
        for pair in pairs:
            yield multiply_scales((pair, power)), 0.5


def say_scale(what: str, own: Scale, factor: Scale) -> str:
    """Words to correct code that multiplies `what`, of factor `own`, by an extra factor."""
    lacking = multiply_scales((factor, -1))
    here, there = show_scale(multiply_scales((own, 1), (factor, 1))), show_scale(own)
    if lacking and all(0 < power / own.get(atom, -power) <= 1 for atom, power in lacking.items()):
        whole = "" if lacking == own else f", so that its factor is {there}"
        return f"SCALE {what} by {show_scale(lacking)}{whole}"
    if not own:
        return f"SCALE {what} by 1, not by {here}: DROP the factor {here}"
    return f"SCALE {what} by {there}, not by {here}"
