"""Expressions as sums of terms, intermediates put in place.

A reader knows the equations of one system; letters are read as index expressions over letters of
its own. What is read twice with the same letters is kept.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from derive.analysis.affine import divide, modulo, to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import ONE as UNIT
from derive.ir.nodes import ONE as ONE_NODE
from derive.ir.nodes import (
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
    Infinity,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Reduce,
    Scalar,
    Size,
    System,
    Truth,
    Where,
)
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free, substitute, walk
from derive.prove.conditions import find_index, to_condition
from derive.prove.functions import number, scale
from derive.prove.literals import ALWAYS, Cubes, check_count, deny, join
from derive.prove.rows import along, reduce
from derive.prove.terms import (
    ONE,
    Algebra,
    Endless,
    Factor,
    GivesUp,
    Literal,
    Poly,
    Read,
    Symbol,
    Term,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Cutting(Protocol):
    """What is put for an intermediate."""

    def read(self, algebra: Algebra, places: Sequence[Affine]) -> Poly:
        """The intermediate at these places."""


class Reader:
    """The values of one system's expressions."""

    def __init__(self, algebra: Algebra, system: System) -> None:
        self.algebra = algebra
        self.empty_row = system.empty_row
        self._equations: dict[str, Equation] = {}
        for equation in system.equations:
            name = equation.target.tensor.name
            if name in self._equations:
                raise GivesUp("a tensor that several equations fill")
            self._equations[name] = equation
        self._cuts: dict[str, Cutting] = {}
        self._known: dict[tuple[Expr, tuple[Affine, ...]], Poly] = {}
        self._open: list[str] = []

    def cut(self, name: str, cut: Cutting) -> None:
        """Put a symbol for an intermediate, from now on."""
        self._cuts[name] = cut
        self._known.clear()

    def is_cut(self, name: str) -> bool:
        """Is there a symbol for it?"""
        return name in self._cuts

    def read(self, expr: Expr, env: Mapping[Index, Affine]) -> Poly:
        """The value of an expression, its free letters read as they are in `env`."""
        free = find_free(expr)
        under = expr, tuple(env.get(index, to_affine(index)) for index in free)
        found = self._known.get(under)
        if found is None:
            self.algebra.step()
            found = self._known[under] = self._read(expr, env)
        return found

    def _read(self, expr: Expr, env: Mapping[Index, Affine]) -> Poly:
        match expr:
            case Number(value):
                return number(value)
            case Infinity(negative):
                sign = Fraction(-1 if negative else 1)
                return (Term(sign, factors=(Factor(Endless(), Fraction(1)),)),)
            case Size() | Scalar():
                return (Term(factors=(Factor(Symbol(expr), Fraction(1)),)),)
            case Index():
                return self.algebra.value(env.get(expr, to_affine(expr)))
            case Access():
                return self._read_access(expr, env)
            case Add(terms):
                parts = [self.read(term, env) for term in terms]
                return tuple(term for part in parts for term in part)
            case Mul():
                return self._multiply(expr, env)
            case Pow(base, exponent):
                return self._power(base, exponent, env)
            case Call():
                return self._call(expr, env)
            case Where(condition, then, other):
                return self._choose(condition, then, other, env)
            case Reduce():
                return reduce(self, expr, env)
            case Along():
                return along(self, expr, env)
            case Truth() | Compare() | And() | Or() | Not():
                return self.algebra.guard(self.condition(expr, env), ONE)
        raise AssertionError(expr)

    def condition(self, expr: Expr, env: Mapping[Index, Affine]) -> Cubes:
        """The cubes of a condition."""
        if expr is TRUE:
            return ALWAYS
        return to_condition(
            self.algebra,
            expr,
            lambda here: self.index(here, env),
            lambda here: self.read(here, env),
            lambda here: self._read_truth(here, env),
        )

    def index(self, expr: Expr, env: Mapping[Index, Affine]) -> Affine | None:
        """The affine of an integer expression; None of any other."""
        return find_index(expr, lambda here: self._put(here, env))

    def _put(self, expr: Expr, env: Mapping[Index, Affine]) -> Expr | None:
        for here in walk(expr):
            match here:
                case Access(tensor, _) if tensor.name in self._equations:
                    if tensor.name not in self._cuts:
                        return self._put_defined(expr, here, env)
                    raise GivesUp("an integer tensor that was cut")
                case Reduce() | Along() | Where():
                    return None
        return substitute(
            expr, {index: env[index].to_expr() for index in find_free(expr) if index in env}
        )

    def _put_defined(self, expr: Expr, here: Access, env: Mapping[Index, Affine]) -> Expr | None:
        """The expression with a defined integer tensor's own expression in its place."""
        equation = self._equations[here.tensor.name]
        letters = equation.target.places
        if not all(isinstance(letter, Index) for letter in letters):
            return None
        own = dict(zip(letters, here.places, strict=True))
        return self._put(substitute(expr, {here: substitute(equation.value, own)}), env)

    def place(self, expr: Expr, env: Mapping[Index, Affine]) -> Affine:
        """A position."""
        if isinstance(expr, Index):
            return env.get(expr, to_affine(expr))
        found = self.index(expr, env)
        if found is None:
            raise GivesUp("a position that is no index expression")
        return found

    def _read_truth(self, access: Access, env: Mapping[Index, Affine]) -> Read:
        tensor, places = access.tensor, access.places
        if tensor.name in self._equations:
            raise GivesUp("a condition that an equation defines")
        return Read(tensor, tuple(self.place(place, env) for place in places))

    def _read_access(self, access: Access, env: Mapping[Index, Affine]) -> Poly:
        name = access.tensor.name
        places = tuple(self.place(place, env) for place in access.places)
        if name in self._cuts:
            return self._cuts[name].read(self.algebra, places)
        if name in self._equations:
            return self.define(name, places)
        read = Read(access.tensor, places)
        if access.tensor.kind == "bool":
            return self.algebra.guard(((Literal("read", read),),), ONE)
        return (Term(factors=(Factor(read, Fraction(1)),)),)

    def define(self, name: str, places: tuple[Affine, ...]) -> Poly:
        """The value of an equation's tensor at these places."""
        if name in self._open:
            raise GivesUp("a recurrence")
        equation = self._equations[name]
        env: dict[Index, Affine] = {}
        for place, wanted in zip(equation.target.places, places, strict=True):
            env |= _solve_place(place, wanted)
        self._open.append(name)
        try:
            if equation.target.tensor.kind == "bool":
                return self.algebra.guard(self.condition(equation.value, env), ONE)
            return self.read(equation.value, env)
        finally:
            self._open.pop()

    def _multiply(self, expr: Mul, env: Mapping[Index, Affine]) -> Poly:
        guards, others = split_guards(expr.factors)
        found: Poly = ONE
        for factor in others:
            found = self.algebra.multiply(found, self.read(factor, env))
        cubes = check_count(join([self.condition(guard, env) for guard in guards]))
        return self.algebra.guard(cubes, found) if guards else found

    def _power(self, base: Expr, exponent: Expr, env: Mapping[Index, Affine]) -> Poly:
        if isinstance(exponent, Number):
            return self.algebra.power(self.read(base, env), exponent.value)
        argument = self.read(exponent, env)
        below = self.algebra.finish(self.read(base, env))
        if not self.algebra.is_positive(below):
            return self.algebra.apply("power", (below.terms, argument))
        log = self.algebra.logarithm(below.terms)
        return self.algebra.exponential(self.algebra.multiply(argument, log))

    def _call(self, expr: Call, env: Mapping[Index, Affine]) -> Poly:
        if expr.function == "pi":
            return (Term(factors=(Factor(Symbol(expr), Fraction(1)),)),)
        if expr.function in {"floordiv", "mod", "clip", "abs", "max", "min"}:
            affine = self.index(expr, env)
            if affine is not None:
                return self.algebra.value(affine)
        if expr.function in {"floordiv", "mod"}:
            raise GivesUp("a whole quotient of values")
        arguments = tuple(self.read(each, env) for each in expr.arguments)
        return self.algebra.apply(expr.function, arguments)

    def _choose(
        self, condition: Expr, then: Expr, other: Expr, env: Mapping[Index, Affine]
    ) -> Poly:
        if then is ONE_NODE and other is ZERO:
            return self.algebra.guard(self.condition(condition, env), ONE)
        relu = self._find_relu(condition, then, other, env)
        if relu is not None:
            return relu
        cubes = self.condition(condition, env)
        found: list[Term] = []
        for chosen, branch in ((cubes, then), (check_count(deny(cubes)), other)):
            if chosen:
                found += self.algebra.guard(chosen, self.read(branch, env))
        return tuple(found)

    def _find_relu(
        self, condition: Expr, then: Expr, other: Expr, env: Mapping[Index, Affine]
    ) -> Poly | None:
        """where(p > 0, a, b) = b + k * relu(p) where a - b is k * p."""
        match condition:
            case Compare(">" | ">=", left, right):
                pass
            case Compare("<" | "<=", right, left):
                pass
            case _:
                return None
        if self.index(left, env) is not None and self.index(right, env) is not None:
            return None
        algebra = self.algebra
        branches = [self.read(branch, env) for branch in (then, other)]
        if any(isinstance(f.atom, Endless) for b in branches for t in b for f in t.factors):
            return None
        gap = algebra.finish((*self.read(left, env), *scale(self.read(right, env), -1)))
        step = algebra.finish((*branches[0], *scale(branches[1], -1)))
        if not gap.terms or len(gap.terms) != len(step.terms) or not algebra.is_total(gap):
            return None
        share = step.terms[0].coefficient / gap.terms[0].coefficient
        if algebra.key(algebra.finish(scale(gap.terms, share))) != algebra.key(step):
            return None
        return (*branches[1], *scale(algebra.apply("relu", (gap.terms,)), share))


def split_guards(factors: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The conditions of a product's Iverson brackets at any depth, and its other factors."""
    guards: list[Expr] = []
    others: list[Expr] = []
    for factor in factors:
        match factor:
            case Where(condition, then, other) if then is ONE_NODE and other is ZERO:
                guards.append(condition)
            case Mul(inner):
                inside, left = split_guards(inner)
                guards += inside
                others += left
            case _:
                others.append(factor)
    return tuple(guards), tuple(others)


def _solve_place(place: Expr, wanted: Affine) -> dict[Index, Affine]:
    """What the letters of an equation's place are where it is the wanted position."""
    if isinstance(place, Index):
        return {place: wanted}
    affine = to_affine(place)
    if affine.constant.terms or not all(isinstance(atom, Index) for atom in affine.terms):
        raise GivesUp("a place that is filled in an uncommon way")
    found: dict[Index, Affine] = {}
    left = dict(affine.terms)
    step, rest = UNIT, wanted
    while left:
        index = next((atom for atom, each in left.items() if each == step), None)
        if not isinstance(index, Index):
            raise GivesUp("a place that is filled in an uncommon way")
        extent = Polynomial.of(index.extent)
        found[index] = modulo(rest, extent) if len(left) > 1 else rest
        rest = divide(rest, extent)
        step = step * extent
        del left[index]
    return found
