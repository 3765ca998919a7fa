"""Edits of scale: by another size, its root, its inverse, missing or twice, and of sign."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

from derive.checker.edits.kind import kind
from derive.checker.edits.sites import Change, Site, World, is_value, show
from derive.ir.nodes import (
    MINUS_ONE,
    ONE,
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
)
from derive.ir.text import to_text
from derive.ir.walk import find_children

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        words = f"the SIGN of {_name(world, site)} is to be turned"
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
    what, code = _name(world, site), own.times(factor)
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


def _name(world: World, site: Site) -> str:
    """What a person calls the node."""
    name = world.name(site.number)
    match site.parent:
        case None:
            return name
        case Along(kind_, index, _, _):
            return f"the argument of {kind_} over {index.name} in {name}"
    return show(site.node, f"a part of {name}")
