"""Sites of a formula, edits of it, and operators of edits.

Edits of the formula and of the code are ranked by one rule. The cost depends on the slip: one part
exchanged for another of its kind, one left out, one misplaced, several mistaken at once. Each step
between the old part and the new one adds a tenth.

A `Scale` is a product of powers of sizes and numbers, the factor of a part of a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import find_free, map_children, rewrite_bottom_up, substitute

EXCHANGED, LACKING, MISPLACED, SEVERAL = 1.0, 1.2, 1.4, 1.6
LONGEST = 60  # characters of a node that words quote whole


@dataclass(frozen=True)
class Change:
    """A formula with one difference, words for the edit of the code, and its cost."""

    system: ir.System
    words: str
    cost: float
    about: str = ""  # the subject of its operator


@dataclass(frozen=True)
class SizedFormula:
    """A formula at given sizes."""

    system: ir.System
    sizes: Mapping[str, int]
    _extents: dict[ir.Expr, int] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def sites(self) -> tuple[tuple[Site, ...], ...]:
        """The sites of every equation, outer ones first."""
        return tuple(tuple(self._find_sites(n)) for n in range(len(self.system.equations)))

    def _find_sites(self, number: int) -> Iterator[Site]:
        def descend(site: Site) -> Iterator[Site]:
            yield site
            node = site.node
            bound = node.bound if isinstance(node, ir.Reduce) else ()
            bound = node.indices if isinstance(node, ir.Along) else bound
            scope = tuple(dict.fromkeys((*site.scope, *bound)))
            for at, child in enumerate(node.children):

                def put_node(new: ir.Expr, at: int = at) -> ir.Expr:
                    count = iter(range(len(node.children)))
                    return site.put_node(
                        map_children(node, lambda old: new if next(count) == at else old)
                    )

                yield from descend(Site(self, number, child, scope, (*site.above, node), put_node))

        equation = self.system.equations[number]
        yield from descend(
            Site(self, number, equation.value, find_free(equation.target), (), lambda new: new)
        )

    def extent(self, index: ir.Index) -> int:
        """The number of values that an index has."""
        found = self._extents.get(index.extent)
        if found is None:
            found = self._extents[index.extent] = evaluate_extent(index.extent, self.sizes)
        return found

    def is_alike(self, one: ir.Tensor, other: ir.Tensor) -> bool:
        """Whether one tensor can replace another."""
        shapes = [[self.extent(ir.Index("_", n)) for n in each.shape] for each in (one, other)]
        return one is not other and one.kind == other.kind and shapes[0] == shapes[1]

    def tensors(self, number: int) -> tuple[ir.Tensor, ...]:
        """The tensors that an equation may read: the inputs, and those of equations before."""
        before = (equation.target.tensor for equation in self.system.equations[:number])
        return (*self.system.tensors, *dict.fromkeys(before))

    def with_equations(
        self, equations: tuple[ir.Equation, ...], results: tuple[ir.Tensor, ...] | None = None
    ) -> ir.System:
        """The formula with other equations, and perhaps other results."""
        results = results or self.system.results
        return replace(self.system, equations=equations, results=results)


@dataclass(frozen=True)
class Site:
    """One occurrence of a node in an equation's value."""

    formula: SizedFormula
    number: int  # the equation's
    node: ir.Expr
    scope: tuple[ir.Index, ...]  # the indices that may be read here
    above: tuple[ir.Expr, ...]  # enclosing nodes, from the whole value inwards
    put_node: Callable[[ir.Expr], ir.Expr]  # the whole value with another node at this site

    @property
    def parent(self) -> ir.Expr | None:
        """The enclosing node."""
        return self.above[-1] if self.above else None

    @property
    def equation(self) -> ir.Equation:
        """The equation of this site."""
        return self.formula.system.equations[self.number]

    @property
    def name(self) -> str:
        """The name of the tensor that the equation defines."""
        return self.equation.target.tensor.name

    @cached_property
    def is_value(self) -> bool:
        """Whether the node is a number of the formula, outside positions and conditions."""
        return not any(isinstance(n, ir.Access) for n in self.above) and not self.is_conditional

    @cached_property
    def is_conditional(self) -> bool:
        """Whether the node is part of a condition."""
        chain = (*self.above, self.node)
        for outer, inner in pairwise(chain):
            match outer:
                case ir.Reduce(_, _, condition, _) | ir.Along(_, _, condition, _) if (
                    inner is condition and condition != ir.TRUE
                ):
                    return True
        return any(isinstance(node, (ir.Compare, ir.And, ir.Or, ir.Not)) for node in chain)

    @cached_property
    def is_condition(self) -> bool:
        """Whether the node is a whole condition."""
        match self.parent:
            case ir.Reduce(_, _, condition, body) | ir.Along(_, _, condition, body):
                return self.node is condition and condition not in {ir.TRUE, body}
            case ir.Where(condition, _, _):
                return self.node is condition
        return False

    @cached_property
    def is_clause(self) -> bool:
        """Whether the node is a condition, or an operand of and, or, not in one."""
        site = self
        while isinstance(site.parent, (ir.And, ir.Or, ir.Not)):
            site = replace(site, node=site.parent, above=site.above[:-1])
        return site.is_condition

    @cached_property
    def access(self) -> ir.Access | None:
        """The access at this site, unless it is inside a position."""
        inside = any(isinstance(node, ir.Access) for node in self.above)
        return self.node if isinstance(self.node, ir.Access) and not inside else None

    def change(
        self, new: ir.Expr | ir.Equation | ir.System, words: str, extra: float = 0.0
    ) -> Change:
        """The change to another node, equation or formula, with its extra cost."""
        if not isinstance(new, (ir.Equation, ir.System)):
            new = ir.Equation(self.equation.target, self.put_node(new))
        if isinstance(new, ir.Equation):
            old, at = self.formula.system.equations, self.number
            new = self.formula.with_equations((*old[:at], new, *old[at + 1 :]))
        return Change(new, words, extra)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of edits, with its cost and an example."""

    name: str
    cost: float
    formula: str
    code: str
    words: str
    about: str
    find: Callable[[Site], Iterator[Change]]


def operator(
    *, cost: float, formula: str, code: str, words: str, about: str = ""
) -> Callable[[Callable[[Site], Iterator[Change]]], Operator]:
    """Make a function of one site an operator, with its example."""

    def wrap(find: Callable[[Site], Iterator[Change]]) -> Operator:
        return Operator(find.__name__, cost, formula, code, words, about, find)

    return wrap


def join_parts(kind: type[ir.Expr], parts: tuple[ir.Expr, ...]) -> ir.Expr:
    """The sum, product or the like of some parts; a single part itself."""
    return parts[0] if len(parts) == 1 else kind(parts)  # type: ignore[call-arg,arg-type]


def leave_out(node: ir.Expr, at: int) -> ir.Expr:
    """A sum, a product or the like without one of its parts."""
    parts = node.children
    return join_parts(type(node), (*parts[:at], *parts[at + 1 :]))


def exchange_nodes(expr: ir.Expr, new: Mapping[ir.Expr, ir.Expr]) -> ir.Expr:
    """The expression with free nodes exchanged; unchanged if an index would be captured."""
    try:
        return substitute(expr, new)
    except ValueError:
        return expr


def pair_indices(formula: SizedFormula, node: ir.Expr) -> Iterator[tuple[ir.Index, ir.Index, str]]:
    """The pairs of indices of equal extent in a node, with their names."""
    for one, two in combinations(find_free(node), 2):
        if formula.extent(one) == formula.extent(two):
            yield one, two, " and ".join(sorted((one.name, two.name)))


def rewrite_value(equation: ir.Equation, act: Callable[[ir.Expr], ir.Expr]) -> ir.Equation:
    """The equation with a function applied to each node of its value, bottom up."""
    return ir.Equation(equation.target, rewrite_bottom_up(equation.value, act))


def expand_position(place: ir.Expr) -> ir.Expr:
    """The expanded position, with its indices in the original order."""
    order = find_free(place)
    found = Polynomial.of(place).to_expr()
    if not isinstance(found, ir.Add):
        return found

    def rank(term: ir.Expr) -> int:
        return min((order.index(index) for index in find_free(term)), default=len(order))

    return ir.Add(tuple(sorted(found.terms, key=rank)))


def drop_conditions(value: ir.Expr, kept: ir.Expr) -> ir.Expr:
    """A value without the conditions of its sums, and with one of its brackets only."""

    def act(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Reduce(kind, bound, _, body):
                return ir.Reduce(kind, bound, ir.TRUE, body)
            case ir.Mul(factors):
                left = tuple(f for f in factors if not is_bracket(f) or f is kept)
                return join_parts(ir.Mul, left) if left else ir.ONE
        return expr

    return rewrite_bottom_up(value, act)


def is_bracket(factor: ir.Expr) -> bool:
    """Whether a factor is 1 where a condition holds, else 0."""
    return isinstance(factor, ir.Where) and (factor.then, factor.other) == (ir.ONE, ir.ZERO)


def show_node(expr: ir.Expr | ir.Equation, name: str = "") -> str:
    """The node's text; a long node goes by its name, if it has one."""
    text = to_text(expr)
    return text if len(text) <= LONGEST or not name else name


_POWERS = (Fraction(1, 2), Fraction(-1, 2), Fraction(1), Fraction(-1))


@dataclass(frozen=True)
class Scale:
    """A product of sizes and numbers, each to a power; sorted, without powers of 0."""

    powers: tuple[tuple[ir.Expr, Fraction], ...] = ()
    negative: bool = False

    @staticmethod
    def of(*powers: tuple[ir.Expr, Fraction], negative: bool = False) -> Scale:
        """The product of powers."""
        total: dict[ir.Expr, Fraction] = {}
        for atom, power in powers:
            total[atom] = total.get(atom, Fraction(0)) + power
        kept = [(atom, power) for atom, power in total.items() if power]
        return Scale(tuple(sorted(kept, key=lambda pair: to_text(pair[0]))), negative)

    def times(self, other: Scale, power: Fraction = Fraction(1)) -> Scale:
        """The product with a power of another scale."""
        more = ((atom, own * power) for atom, own in other.powers)
        odd = other.negative and power.denominator == 1 and power % 2 == 1
        return Scale.of(*self.powers, *more, negative=self.negative != odd)

    def to_expr(self) -> ir.Expr:
        """The scale as an expression: equal powers grouped, divisors last."""

        def raise_to(atoms: list[ir.Expr], power: Fraction) -> ir.Expr:
            base = ir.product_of(atoms)
            return base if power == 1 else ir.Pow(base, ir.Number(power))

        groups: dict[Fraction, list[ir.Expr]] = {}
        for atom, power in self.powers:
            groups.setdefault(power, []).append(atom)
        over = [raise_to(atoms, p) for p, atoms in groups.items() if p > 0]
        under = [ir.Pow(raise_to(atoms, -p), ir.MINUS_ONE) for p, atoms in groups.items() if p < 0]
        factors = [*([ir.MINUS_ONE] if self.negative else []), *over, *under] or [ir.ONE]
        return ir.product_of(factors)

    def __str__(self) -> str:
        """The scale in words: 1/sqrt(D)."""
        return to_text(self.to_expr()).replace(" / ", "/").replace(" * ", "*")


def find_scale(expr: ir.Expr) -> Scale:
    """The sizes and numbers that multiply an expression, inside its sums too."""
    match expr:
        case ir.Number(value) if value not in {0, 1}:
            over, under = Fraction(abs(value).numerator), Fraction(value.denominator)
            powers = [(ir.Number(over), Fraction(1)), (ir.Number(under), Fraction(-1))]
            kept = [(atom, power) for atom, power in powers if atom != ir.ONE]
            return Scale.of(*kept, negative=value < 0)
        case ir.Size() | ir.Scalar():
            return Scale.of((expr, Fraction(1)))
        case ir.Pow(base, ir.Number(power)) if is_number(base):
            return Scale().times(find_scale(base), power)
        case ir.Mul(factors):
            total = Scale()
            for factor in factors:
                total = total.times(find_scale(factor))
            return total
        case ir.Reduce("sum", _, _, body):
            return find_scale(body)
    return Scale()


def is_number(expr: ir.Expr) -> bool:
    """Whether an expression is a product of powers of sizes, numbers and scalars."""
    if isinstance(expr, (ir.Number, ir.Size, ir.Scalar)):
        return True
    return isinstance(expr, (ir.Mul, ir.Pow)) and all(map(is_number, expr.children))


def find_factors(own: Scale, sizes: Sequence[ir.Expr]) -> Iterator[tuple[Scale, float]]:
    """Extra factors that code may have, and how much less likely each is."""
    mine = [atom for atom, _ in own.powers]
    if mine:
        yield Scale().times(own, Fraction(-1)), 0.0
        yield own, 0.1
        yield Scale().times(own, Fraction(-2)), 0.1
    for atom, power in own.powers:
        for times, extra in ((-1, 0.02), (1, 0.12), (-2, 0.12)):
            yield Scale.of((atom, times * power)), extra
        for other in sizes:
            if other is not atom:
                yield Scale.of((atom, -power), (other, power)), 0.2
        for one, two in combinations(sizes, 2):
            yield Scale.of((atom, -power), (one, power), (two, power)), 0.25
    for power in _POWERS:
        for size in sizes:
            yield Scale.of((size, power)), 0.15 if size in mine else 0.3
        for value in (2, 3, 4) if power.denominator == 1 else (2,):
            yield Scale.of((ir.Number(Fraction(value)), power)), 0.4
        for one, two in combinations(sizes, 2):
            yield Scale.of((one, power), (two, power)), 0.5


def say_scale(what: str, own: Scale, factor: Scale) -> str:
    """Words for the correction of code that multiplies by an extra factor."""
    code, lacking = own.times(factor), Scale().times(factor, Fraction(-1))
    here, there = str(code), str(own)
    powers = dict(own.powers)
    within = all(0 < power / powers.get(atom, -power) <= 1 for atom, power in lacking.powers)
    if within and (not lacking.negative or own.negative) and lacking != Scale():
        whole = "" if lacking == own else f", so that its factor is {there}"
        return f"SCALE {what} by {lacking}{whole}"
    if own == Scale():
        return f"SCALE {what} by 1, not by {here}: DROP the factor {here}"
    return f"SCALE {what} by {there}, not by {here}"
