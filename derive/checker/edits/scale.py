"""Products of powers of sizes and numbers: what a part of a formula is scaled by, and may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from derive.ir.nodes import MINUS_ONE, ONE, Expr, Mul, Number, Pow, Reduce, Scalar, Size
from derive.ir.text import to_text
from derive.ir.walk import find_children

_POWERS = (Fraction(1, 2), Fraction(-1, 2), Fraction(1), Fraction(-1))


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

        def raise_to(atoms: list[Expr], power: Fraction) -> Expr:
            base = atoms[0] if len(atoms) == 1 else Mul(tuple(atoms))
            return base if power == 1 else Pow(base, Number(power))

        groups: dict[Fraction, list[Expr]] = {}
        for atom, power in self.powers:
            groups.setdefault(power, []).append(atom)
        over = [raise_to(atoms, p) for p, atoms in groups.items() if p > 0]
        under = [Pow(raise_to(atoms, -p), MINUS_ONE) for p, atoms in groups.items() if p < 0]
        factors = [*([MINUS_ONE] if self.negative else []), *over, *under] or [ONE]
        return factors[0] if len(factors) == 1 else Mul(tuple(factors))

    def __str__(self) -> str:
        """The scale in words: 1/sqrt(D)."""
        return to_text(self.to_expr()).replace(" / ", "/").replace(" * ", "*")


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


def find_factors(own: Scale, sizes: Sequence[Expr]) -> Iterator[tuple[Scale, float]]:
    """What code may multiply by besides, and how much less likely it is than the likeliest."""
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
            yield Scale.of((Number(Fraction(value)), power)), 0.4
        for one, two in combinations(sizes, 2):
            yield Scale.of((one, power), (two, power)), 0.5


def say_scale(what: str, own: Scale, factor: Scale) -> str:
    """What to do to something of this scale that the code multiplies by a factor besides."""
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
