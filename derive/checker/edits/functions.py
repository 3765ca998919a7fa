"""Edits of functions and powers: missing, another one, one too many, eps beside the root."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from derive.checker.edits.sites import Change, World, is_value, kind, show
from derive.checker.edits.terms import is_number
from derive.ir.functions import FUNCTIONS, find_confused
from derive.ir.nodes import (
    MINUS_ONE,
    ONE,
    ZERO,
    Add,
    Call,
    Expr,
    Mul,
    Number,
    Pow,
    Scalar,
    Size,
    Where,
)
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_accesses, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

HALF, TWO = Number(Fraction(1, 2)), Number(Fraction(2))


@kind(
    formula="x[N]; y[i] = sum[j](x[j]**2) + x[i]",
    code="return x.sum() + x",
    words="square x[j]",
    cost=1.5,
)
def find_missing_powers(world: World, number: int) -> Iterator[Change]:
    """A square, a root or an inverse left out, or another power."""
    for site in world.sites[number]:
        if not isinstance(site.node, Pow) or not is_value(site) or not find_accesses(site.node):
            continue
        base, exponent = site.node.base, site.node.exponent
        says: dict[Expr, str] = {
            TWO: f"SQUARE {show(base)}",
            HALF: f"ROOT of {show(base)} is missing",
        }
        words = says.get(exponent, f"RAISE {show(base)} to {show(exponent)}")
        for other in (ONE, HALF, MINUS_ONE, TWO, Number(Fraction(-1, 2)), Number(Fraction(-2))):
            if other != exponent:
                says_other = words if other == ONE else f"{words}, not to {show(other)}"
                yield world.change(site, Pow(base, other), says_other, 0.2 * (other != ONE))


@kind(
    formula="x[N, D]; y[n, d] = relu(x[n, d]) + 1",
    code="return x + 1",
    words="apply relu",
    cost=1.5,
)
def find_missing_functions(world: World, number: int) -> Iterator[Change]:
    """A function left out."""
    for site in world.sites[number]:
        match site.node:
            case Call(function, (inner, *_)) if is_value(site) and find_accesses(inner):
                words = f"APPLY {function} to {show(inner, world.name(number))}"
                yield world.change(site, inner, words)
            case Where(_, then, other) if is_value(site) and find_accesses(site.node):
                for branch in (then, other):
                    words = f"CHOOSE by {show(site.node, 'the condition')}"
                    yield world.change(site, branch, words, 0.3)


@kind(
    formula="x[N, D]; y[n, d] = gelu(x[n, d])",
    code="return torch.relu(x)",
    words="gelu, not relu",
    cost=1.4,
)
def find_other_functions(world: World, number: int) -> Iterator[Change]:
    """Another function, another base of a logarithm or of an exponential."""
    for site in world.sites[number]:
        node = site.node
        if not isinstance(node, Call) or not is_value(site) or not find_accesses(node):
            continue
        name, inner = node.function, node.arguments[0]
        for other in find_confused(name):
            taken = node.arguments[: len(FUNCTIONS[name].tensors)]
            if FUNCTIONS[other].counts[0] <= len(taken) <= FUNCTIONS[other].counts[1]:
                yield world.change(site, Call(other, taken), f"{name.upper()}, not {other}")
        if name == "exp":
            yield world.change(site, Pow(TWO, inner), "EXP, not exp2")
        if name == "log":
            for base in (2, 10):
                under = Pow(Call("log", (Number(Fraction(base)),)), MINUS_ONE)
                words = f"LOG to base e, not {base}"
                yield world.change(site, Mul((node, under)), words)
        if name in {"max", "min"}:
            other = "min" if name == "max" else "max"
            words = f"{name.upper()}, not {other}"
            yield world.change(site, Call(other, node.arguments), words)


@kind(
    formula="x, y[N]; scalar eps = 0.1; z[i] = y[i] / sqrt(x[i]**2 + eps)",
    code="return y / (x.abs() + eps)",
    words="eps inside the root",
    cost=1.3,
)
def find_eps(world: World, number: int) -> Iterator[Change]:
    """A small number that is added beside the root, or by a maximum."""
    for site in world.sites[number]:
        if not is_value(site):
            continue
        match site.node:
            case Pow(Add(terms), Number(power)) if abs(power) == Fraction(1, 2):
                for eps, rest in _split_small(terms):
                    new: Expr = Add((Pow(rest, HALF), eps))
                    new = Pow(new, MINUS_ONE) if power < 0 else new
                    yield world.change(
                        site,
                        new,
                        f"{show(eps).upper()} inside the root: ADD it to"
                        f" {show(rest, 'what is under the root')}",
                    )
            case Add(terms):
                for eps, rest in _split_small(terms):
                    if isinstance(rest, Pow) and rest.exponent == HALF:
                        new = Pow(Add((rest.base, eps)), HALF)
                        words = f"{show(eps).upper()} outside the root"
                        yield world.change(site, new, words)
                    words = f"ADD {show(eps)}: a maximum is something else"
                    yield world.change(site, Call("max", (rest, eps)), words, 0.2)
            case Call("max", (one, other)) if is_number(other) and other != ZERO:
                words = f"MAX with {show(other)}: to add it is something else"
                yield world.change(site, Add((one, other)), words)


@kind(
    formula="x, y[N]; z[i] = y[i] / sqrt(x[i]**2 + 1/100000)",
    code="return y / (x ** 2 + 1e-6).sqrt()",
    words="add 1/100000, not 1/1000000",
    cost=1.25,
)
def find_other_numbers(world: World, number: int) -> Iterator[Change]:
    """Another small number added, or other bounds of a clip."""
    for site in world.sites[number]:
        match site.node, site.parent:
            case node, Add() if is_value(site) and _is_small(node):
                for power in range(1, 13):
                    other = Number(Fraction(1, 10**power))
                    words = f"ADD {show(site.node).replace(' / ', '/')}, not {other.value}"
                    yield world.change(site, other, words, 0.1 * (other == ONE))
            case Call("clip", (inner, low, high)), _:
                for step in (-1, 1, -2, 2):
                    by = Number(Fraction(step))
                    less, more = Add((low, Mul((MINUS_ONE, by)))), Add((high, by))
                    for bounds in ((less, more), (low, more), (less, high)):
                        shown = f"{show(bounds[0])} and {show(bounds[1])}"
                        words = f"CLIP to {show(low)} and {show(high)}, not to {shown}"
                        yield world.change(site, Call("clip", (inner, *bounds)), words)


def _is_small(node: Expr) -> bool:
    """Is it a small positive number?"""
    if not is_number(node) or any(isinstance(part, (Scalar, Size)) for part in walk(node)):
        return False
    value = Polynomial.of(node).constant
    return value is not None and 0 < value < Fraction(1, 50)


def _split_small(terms: tuple[Expr, ...]) -> Iterator[tuple[Expr, Expr]]:
    """The terms that are mere numbers, each with the others."""
    for at, term in enumerate(terms):
        if isinstance(term, (Number, Scalar)):
            rest = (*terms[:at], *terms[at + 1 :])
            yield term, rest[0] if len(rest) == 1 else Add(rest)
