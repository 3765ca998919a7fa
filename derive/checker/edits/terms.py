"""Edits of terms, factors, scales and signs: missing, wrong, or one too many."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

from derive.checker.edits.sites import Change, Site, World, is_value, kind, show
from derive.ir.nodes import (
    MINUS_ONE,
    ONE,
    ZERO,
    Add,
    Along,
    Call,
    Expr,
    Mul,
    Number,
    Pow,
    Reduce,
    Scalar,
    Size,
    Tensor,
    Where,
)
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_children, rewrite_bottom_up

if TYPE_CHECKING:
    from collections.abc import Iterator


_MOST_WAYS = 4  # in which a tensor's places are given indices


@kind(
    formula="x[N, D]; W[D, E]; c[E]; y[n, e] = sum[d](x[n, d] * W[d, e]) + c[e]",
    code="return x @ W",
    words="add the term c[e]",
    cost=1.1,
)
def find_missing_terms(world: World, number: int) -> Iterator[Change]:
    """A sum without one of its terms."""
    for site in world.sites[number]:
        node = site.node
        if not isinstance(node, Add) or not is_value(site):
            continue
        for at, term in enumerate(node.terms):
            rest = (*node.terms[:at], *node.terms[at + 1 :])
            new = rest[0] if len(rest) == 1 else Add(rest)
            words = f"ADD the term {show(term, f'of {world.name(number)}')} to {_name(world, site)}"
            if all(map(is_number, node.terms)):
                words = f"USE {show(node)}, not {show(new)}, in {world.name(number)}"
            yield world.change(site, new, words)
    for tensor in world.tensors(number):
        found = drop_terms(world, number, tensor)
        if found is not None:
            new_value, first = found
            words = f"ADD the term {show(first)} wherever {world.name(number)} has it"
            yield Change(world.with_value(number, new_value), words, number, 0.05)


def drop_terms(world: World, number: int, tensor: Tensor) -> tuple[Expr, Expr] | None:
    """The value without all the terms that read a tensor, and the first of them; if several."""
    dropped: list[Expr] = []

    def act(expr: Expr) -> Expr:
        if not isinstance(expr, Add):
            return expr
        kept = tuple(t for t in expr.terms if all(a.tensor is not tensor for a in find_accesses(t)))
        if not kept or len(kept) == len(expr.terms):
            return expr
        dropped.extend(term for term in expr.terms if term not in kept)
        return kept[0] if len(kept) == 1 else Add(kept)

    old = world.system.equations[number].value
    new = rewrite_bottom_up(old, act)
    return (new, dropped[0]) if dropped else None


def _name(world: World, site: Site) -> str:
    """The equation, and whether it is only a part of it."""
    name = world.name(site.number)
    return name if site.parent is None else f"{show(site.node, 'a part')} in {name}"


@kind(
    formula="x[N, D]; g[D]; y[n, d] = x[n, d] * g[d]",
    code="return x",
    words="add the factor g[d]",
    cost=1.3,
)
def find_missing_factors(world: World, number: int) -> Iterator[Change]:
    """A product without one of its factors."""
    for site in world.sites[number]:
        node = site.node
        if not isinstance(node, Mul) or not is_value(site):
            continue
        for at, factor in enumerate(node.factors):
            if is_number(factor):
                continue  # that is a matter of scale
            rest = (*node.factors[:at], *node.factors[at + 1 :])
            new = rest[0] if len(rest) == 1 else Mul(rest)
            yield world.change(site, new, _say_factor(world, number, factor))


def _say_factor(world: World, number: int, factor: Expr) -> str:
    match factor:
        case Where(condition, then, other) if (then, other) == (ONE, ZERO):
            return f"ADD the mask [{show(condition)}] to {world.name(number)}"
    shown = show(factor, "that is missing")
    return f"ADD the factor {shown}: MULTIPLY by it in {world.name(number)}"


HALF = Fraction(1, 2)
_POWERS = (HALF, -HALF, Fraction(1), Fraction(-1))


@dataclass(frozen=True)
class Scale:
    """A product of sizes and numbers, each to a power; sorted, without powers of 0."""

    powers: tuple[tuple[Expr, Fraction], ...] = ()
    negative: bool = False

    @staticmethod
    def of(*powers: tuple[Expr, Fraction], negative: bool = False) -> Scale:
        """The product of powers."""
        total: dict[Expr, Fraction] = {}
        for atom, power in powers:
            total[atom] = total.get(atom, Fraction(0)) + power
        kept = [(atom, power) for atom, power in total.items() if power]
        return Scale(tuple(sorted(kept, key=lambda pair: to_text(pair[0]))), negative)

    def times(self, other: Scale, power: Fraction = Fraction(1)) -> Scale:
        """The product with a power of another scale."""
        more = ((atom, own * power) for atom, own in other.powers)
        odd = other.negative and power.denominator == 1 and power % 2 == 1
        return Scale.of(*self.powers, *more, negative=self.negative != odd)

    def to_expr(self) -> Expr:
        """The scale as a person writes it: what has one power together, divisors behind."""
        groups: dict[Fraction, list[Expr]] = {}
        for atom, power in self.powers:
            groups.setdefault(power, []).append(atom)
        over = [_to_power(atoms, p) for p, atoms in groups.items() if p > 0]
        under = [Pow(_to_power(atoms, -p), MINUS_ONE) for p, atoms in groups.items() if p < 0]
        factors = [*([MINUS_ONE] if self.negative else []), *over, *under] or [ONE]
        return factors[0] if len(factors) == 1 else Mul(tuple(factors))

    def __str__(self) -> str:
        """The scale in words: 1/sqrt(D)."""
        return to_text(self.to_expr()).replace(" / ", "/").replace(" * ", "*")


def _to_power(atoms: list[Expr], power: Fraction) -> Expr:
    base = atoms[0] if len(atoms) == 1 else Mul(tuple(atoms))
    return base if power == 1 else Pow(base, Number(power))


def find_scale(expr: Expr) -> Scale:
    """The sizes and numbers that a product is multiplied by, inside of its sums too."""
    match expr:
        case Number(value) if value not in {0, 1}:
            over, under = Fraction(abs(value).numerator), Fraction(value.denominator)
            powers = [(Number(over), Fraction(1)), (Number(under), Fraction(-1))]
            kept = [(atom, power) for atom, power in powers if atom != ONE]
            return Scale.of(*kept, negative=value < 0)
        case Size() | Scalar():
            return Scale.of((expr, Fraction(1)))
        case Pow(base, Number(power)) if is_number(base):
            return Scale().times(find_scale(base), power)
        case Mul(factors):
            total = Scale()
            for factor in factors:
                total = total.times(find_scale(factor))
            return total
        case Reduce("sum", _, _, body):
            return find_scale(body)
    return Scale()


def is_number(expr: Expr) -> bool:
    """Is it made of sizes and numbers and scalars by products and powers alone?"""
    if isinstance(expr, (Number, Size, Scalar)):
        return True
    return isinstance(expr, (Mul, Pow)) and all(map(is_number, find_children(expr)))


@kind(
    formula="q, k[N, D]; e[i, j] = sum[d](q[i, d] * k[j, d]) / sqrt(D)",
    code="return q @ k.T",
    words="scale e by 1/sqrt(d)",
    cost=1.2,
)
def find_scales(world: World, number: int) -> Iterator[Change]:
    """A factor of sizes more, or less."""
    for site in find_scaled(world, number):
        own = find_scale(site.node)
        for factor, extra in find_factors(world, own):
            new = Mul((site.node, factor.to_expr()))
            yield world.change(site, new, _say_scale(world, site, own, factor), extra)


@kind(
    formula="x, y[N]; z[i] = x[i] + y[i]",
    code="return x - y",
    words="the sign of y[i]",
    cost=1.2,
)
def find_signs(world: World, number: int) -> Iterator[Change]:
    """The contrary sign."""
    for site in find_scaled(world, number):
        words = f"the SIGN of {_name_argument(world, site)} is to be turned"
        yield world.change(site, Mul((MINUS_ONE, site.node)), words)


def find_scaled(world: World, number: int) -> Iterator[Site]:
    """The sites where a factor makes a difference of its own."""
    for site in world.sites[number]:
        if not is_value(site) or is_number(site.node):
            continue
        match site.parent:
            case None | Along() | Call() | Add():
                yield site
            case Reduce(kind_, _, _, _) if kind_ not in {"sum", "mean", "max", "min"}:
                yield site


def find_factors(world: World, own: Scale) -> Iterator[tuple[Scale, float]]:
    """What the code may multiply by besides, and how much less likely it is than the likeliest."""
    sizes: list[Expr] = [Size(name) for name in world.sizes]
    mine = [atom for atom, _ in own.powers]
    if own.powers or own.negative:
        yield Scale().times(own, Fraction(-1)), 0.0
        yield own, 0.1
        yield Scale().times(own, Fraction(-2)), 0.1
    for atom, power in own.powers:
        yield Scale.of((atom, -power)), 0.02
        yield Scale.of((atom, power)), 0.12
        yield Scale.of((atom, -2 * power)), 0.12
    for size in sizes:
        for power in _POWERS:
            yield Scale.of((size, power)), 0.15 if size in mine else 0.3
    for atom, power in own.powers:
        for other in sizes:
            if other is not atom:
                yield Scale.of((atom, -power), (other, power)), 0.2
        for one, two in combinations(sizes, 2):
            yield Scale.of((atom, -power), (one, power), (two, power)), 0.25
    for one, two in combinations(sizes, 2):
        for power in _POWERS:
            yield Scale.of((one, power), (two, power)), 0.5
    for value in (2, 3, 4):
        for power in _POWERS[:: 1 if value == 2 else 2]:
            yield Scale.of((Number(Fraction(value)), power)), 0.4


def _say_scale(world: World, site: Site, own: Scale, factor: Scale) -> str:
    what, code = _name_argument(world, site), own.times(factor)
    there, here = str(own), str(code)
    lacking = Scale().times(factor, Fraction(-1))
    if is_part(lacking, own):
        whole = "" if lacking == own else f", so that its factor is {there}"
        return f"SCALE {what} by {lacking}{whole}"
    if own == Scale():
        return f"SCALE {what} by 1, not by {here}: DROP the factor {here}"
    return f"SCALE {what} by {there}, not by {here}"


def is_part(part: Scale, whole: Scale) -> bool:
    """Are its powers among those of the whole?"""
    powers = dict(whole.powers)
    within = all(0 < power / powers.get(atom, -power) <= 1 for atom, power in part.powers)
    return within and (not part.negative or whole.negative) and part != Scale()


def _name_argument(world: World, site: Site) -> str:
    """What a person calls the node."""
    name = world.name(site.number)
    match site.parent:
        case None:
            return name
        case Along(kind_, index, _, _):
            return f"the argument of {kind_} over {index.name} in {name}"
    return show(site.node, f"a part of {name}")
