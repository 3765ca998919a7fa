"""Sums of polynomials: multiplied out, each term contracted by itself, and factored again.

    sum_k (a_ik * r_ik * c_nk - b_ik * s_ik * c_nk)  =  sum_k (a_ik * r_ik - b_ik * s_ik) * c_nk

What stands under a sum, or a mean, is read as a polynomial: sums, differences, products and natural
powers of them, numbers, brackets, and sums and means inside. What is none of these is an atom, and
so is a sum with one term at all of its indices, which a plan has as a tensor anyway. Like terms are
collected, also where their bound indices have other names.

Digits. A sum of differences loses to the difference of two sums what a person who writes it so
loses too: as many times as the values are larger than their differences. Under a root, a logarithm
or a quotient it stays as it is. Products of differences would lose that twice. They are taken from
the mean of the points first, which leaves the differences as they are: (x_i - x_j) is
(x_i - m) - (x_j - m). Where there is none they stay, unless what is left has no difference.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations
from typing import TYPE_CHECKING

from derive.ir.nodes import (
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Add,
    Along,
    Call,
    Compare,
    Expr,
    Index,
    Mul,
    Number,
    Pow,
    Reduce,
    Size,
    Truth,
    Where,
    all_of,
    split_and,
)
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_free, rename_apart, substitute, walk
from derive.rewrite.finite import is_finite_where_defined, is_safe
from derive.rewrite.rule import apply_rules, rule
from derive.rewrite.rules.deltas import sift_index
from derive.rewrite.rules.products import count_unused, make_product
from derive.rewrite.rules.sums import find_factors, is_number, make_sum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_TERMS = 64  # of a polynomial
MOST_RENAMED = 4  # bound indices that are tried in every order
MOST_POWER = 4  # up to which a power of a sum is multiplied out


class TooLongError(Exception):
    """A polynomial has too many terms."""


@dataclass(frozen=True, slots=True)
class Term:
    """A number times the sum of a product."""

    number: Fraction
    bound: tuple[Index, ...]
    condition: Expr
    factors: tuple[Expr, ...]

    def to_expr(self) -> Expr:
        """The sum; equal factors are a power."""
        counts = Counter(self.factors)
        factors = [f if n == 1 else Pow(f, Number(Fraction(n))) for f, n in counts.items()]
        body = make_product(factors)
        whole: Expr = body
        if self.bound:
            whole = self._sum(factors)
        elif self.condition is not TRUE:
            whole = Where(self.condition, body, ZERO)
        if self.number == 1:
            return whole
        number = Number(self.number)
        if whole is ONE:
            return number
        return Mul((number, *whole.factors)) if isinstance(whole, Mul) else Mul((number, whole))

    def _sum(self, factors: list[Expr]) -> Expr:
        """The sum, or the mean where one factor is divided by the number of entries."""
        counts = [Pow(index.extent, MINUS_ONE) for index in self.bound]
        others = [factor for factor in factors if factor not in counts]
        if self.condition is TRUE and len(others) == 1 and len(factors) == len(counts) + 1:
            return Reduce("mean", self.bound, TRUE, others[0])
        return Reduce("sum", self.bound, self.condition, make_product(factors))

    def guard(self, condition: Expr) -> Term:
        """The term where a condition holds too."""
        return replace(self, condition=all_of(self.condition, condition))

    def rename(self, new: Mapping[Expr, Expr]) -> Term:
        """The term under other indices."""
        bound = tuple(new.get(i, i) for i in self.bound)
        factors = tuple(substitute(factor, new) for factor in self.factors)
        return Term(self.number, bound, substitute(self.condition, new), factors)  # type: ignore[arg-type]


_ONE = Term(Fraction(1), (), TRUE, ())


@dataclass
class Reader:
    """Reads an expression as a sum of terms; what is not opened is a factor.

    `steps`: 0 opens nothing but sums and products inside, 1 the sums that no tensor spans, 2 all.
    """

    taken: set[str]
    bound: set[Index]
    names: frozenset[str] = frozenset()  # those of the whole, which no mean is to bind
    steps: int = 0
    is_centred: bool = False
    is_apart: bool = True  # has each difference been taken from a mean where that was asked?
    is_mean: bool = False  # is it the body of a mean? A sum in it is no part of a product then
    is_changed: bool = False  # has anything been opened?

    def read(self, expr: Expr) -> tuple[list[Term], int]:
        """The terms, and how many differences are multiplied by one another in one of them."""
        match expr:
            case Number(value):
                return [replace(_ONE, number=value)], 0
            case Pow(Number(value), Number(power)) if value and power.denominator == 1:
                return [replace(_ONE, number=value ** int(power))], 0
            case Add(parts) if self.steps and opens(expr, self.bound, deep=self.steps > 1):
                return self.read_terms(parts)
            case Mul(factors):
                return self._multiply([self._read_factor(f, factors) for f in factors])
            case Pow(base, Number(power)) if power.denominator == 1 and 1 < power <= MOST_POWER:
                if self._is_open(base):
                    self.is_changed = True
                    return self._multiply([self.read(base) for _ in range(int(power))])
                if isinstance(base, Mul) and any(map(self._is_open, base.factors)):
                    return self.read(Mul(tuple(Pow(f, expr.exponent) for f in base.factors)))
                return [replace(_ONE, factors=(base,) * int(power))], 0
            case Reduce("sum") | Reduce("mean", _, Truth(True)):
                return self._read_sum(expr)
            case Where(condition, then, other) if other is ZERO:
                terms, degree = self.read(then)
                return [term.guard(condition) for term in terms], degree
            case Call("cos" | "sin" as name, (argument,)) if self.steps:
                return self._read_angle(expr, name, argument)
            case _:
                return _keep(expr)

    def read_terms(self, parts: Sequence[Expr]) -> tuple[list[Term], int]:
        """The terms of a sum that is opened, taken from a mean where that is asked."""
        self.is_changed = True
        read = [self.read(part) for part in parts]
        terms = [term for part, _ in read for term in part]
        if len(terms) > MOST_TERMS:
            raise TooLongError
        degree = max(each for _, each in read)
        if not _is_difference(terms):
            return terms, degree
        if self.is_centred:
            centred = _centre(terms, self.names)
            self.is_apart = self.is_apart and centred is not None
            terms = centred or terms
        return terms, max(degree, 1)

    def _is_open(self, base: Expr) -> bool:
        if not self.steps:
            return False
        match base:
            case Add():
                return opens(base, self.bound, deep=self.steps > 1)
            case Reduce("sum"):
                return self.steps > 1 or is_composite(base)
            case _:
                return False

    def _read_factor(self, factor: Expr, others: Sequence[Expr]) -> tuple[list[Term], int]:
        """A factor; a sum that may be one of nothing stays, unless all others may go into it."""
        if isinstance(factor, Reduce) and factor.condition is not TRUE:
            rest = [other for other in others if other is not factor]
            if not all(map(is_safe, rest)):
                return _keep(factor)
        return self.read(factor)

    def _read_sum(self, expr: Reduce) -> tuple[list[Term], int]:
        new: dict[Expr, Expr] = {}
        bound: tuple[Index, ...] = ()
        for index in expr.bound:
            fresh = rename_apart(index, self.taken)
            self.taken.add(fresh.name)
            new[index] = fresh
            bound = (*bound, fresh)
        self.bound |= {*bound}
        condition, body = substitute(expr.condition, new), substitute(expr.body, new)
        self.is_changed = self.is_changed or self.is_mean or expr.kind == "mean"
        terms, degree = self.read(body)
        counts = [Pow(i.extent, MINUS_ONE) for i in bound] if expr.kind == "mean" else []
        return [
            Term(
                term.number,
                (*bound, *term.bound),
                all_of(condition, term.condition),
                (*counts, *term.factors),
            )
            for term in terms
        ], degree

    def _read_angle(self, expr: Expr, name: str, argument: Expr) -> tuple[list[Term], int]:
        """cos(a + b) = cos(a) cos(b) - sin(a) sin(b), where no part has all indices."""
        terms, _ = Reader(self.taken, self.bound, self.names, self.steps).read(argument)
        own = {*find_free(argument)}
        parts = [{*find_free(term.to_expr())} for term in terms]
        if len(terms) < 2 or any(own <= part for part in parts):
            return _keep(expr)
        self.is_changed = True
        first = [t for t, part in zip(terms, parts, strict=True) if part <= parts[0]]
        rest = [t for t in terms if t not in first]
        one = to_sum(first)
        sign = -1 if all(term.number < 0 for term in rest) else 1
        other = to_sum([replace(t, number=sign * t.number) for t in rest])
        pairs = (("cos", "cos", 1), ("sin", "sin", -sign))
        if name == "sin":
            pairs = (("sin", "cos", 1), ("cos", "sin", sign))
        found: list[Term] = []
        for left, right, number in pairs:
            both = Mul((Number(Fraction(number)), Call(left, (one,)), Call(right, (other,))))
            found += self.read(both)[0]
        return found, 1

    def _multiply(self, parts: Sequence[tuple[list[Term], int]]) -> tuple[list[Term], int]:
        product = [_ONE]
        for terms, _ in parts:
            if len(product) * len(terms) > MOST_TERMS:
                raise TooLongError
            product = [
                Term(
                    one.number * other.number,
                    (*one.bound, *other.bound),
                    all_of(one.condition, other.condition),
                    (*one.factors, *other.factors),
                )
                for one in product
                for other in terms
            ]
        return product, sum(degree for _, degree in parts)


def _keep(expr: Expr) -> tuple[list[Term], int]:
    return [replace(_ONE, factors=(expr,))], 0


def _is_difference(terms: Sequence[Term]) -> bool:
    return any(term.number < 0 for term in terms) and any(find_accesses_of(t) for t in terms)


def find_accesses_of(term: Term) -> bool:
    """Does it read a tensor?"""
    return any(map(find_accesses, term.factors))


def opens(add: Add, bound: set[Index], *, deep: bool) -> bool:
    """Is a sum multiplied out: has it no tensor at all of its indices, or a product for a term?"""
    own = {*find_free(add)}
    if not own & bound:
        return False
    if deep:
        return True
    spanned = [_is_spanned(term, own) for term in add.terms]
    return not any(spanned) or any(
        is_composite(term) or _is_tied(term, bound) for term in add.terms
    )


def _is_spanned(term: Expr, own: set[Index]) -> bool:
    return any(own <= {*find_free(factor)} for factor in list_factors(term))


def is_composite(term: Expr) -> bool:
    """Is it a product, or the sum of one, no factor of which has all of its indices?"""
    own = {*find_free(term)}
    factors = list_factors(term)
    return bool(own) and len(factors) > 1 and not _is_spanned(term, own)


def list_factors(term: Expr) -> tuple[Expr, ...]:
    """The factors, those under sums and natural powers too."""
    match term:
        case Mul(factors):
            return tuple(f for factor in factors for f in list_factors(factor))
        case Reduce("sum" | "mean", _, _, body):
            return list_factors(body)
        case Pow(base, Number(power)) if power > 0 and power.denominator == 1:
            return list_factors(base)
        case Where(_, then, other) if other is ZERO:
            return (term,) if then is ONE else list_factors(then)
        case _:
            return (term,)


def _is_tied(term: Expr, bound: set[Index]) -> bool:
    """Is it read only where a bound index is another one?"""
    match term:
        case Mul(factors):
            return any(_is_tied(factor, bound) for factor in factors)
        case Where(condition, _, other) if other is ZERO:
            for part in split_and(condition):
                match part:
                    case Compare("==", Index() as one, Index() as other_index):
                        if {one, other_index} & bound and one.extent is other_index.extent:
                            return True
            return False
        case _:
            return False


def _centre(terms: Sequence[Term], names: frozenset[str]) -> list[Term] | None:
    """The two sides of a difference, each less the mean of the first over its own index."""
    plus = [term for term in terms if term.number > 0]
    minus = [replace(term, number=-term.number) for term in terms if term.number < 0]
    if not plus:
        return None
    one, other = to_sum(plus), to_sum(minus)
    mine = [i for i in find_free(one) if i not in find_free(other)]
    its = [i for i in find_free(other) if i not in find_free(one)]
    if len(mine) != 1 or len(its) != 1 or mine[0].extent is not its[0].extent:
        return None
    if substitute(other, {its[0]: mine[0]}) is not one:
        return None
    index = rename_apart(mine[0], {*names})
    mean = Reduce("mean", (index,), TRUE, substitute(one, {mine[0]: index}))
    less = Mul((MINUS_ONE, mean))
    sides = Add((one, less)), Add((other, less))
    return [Term(Fraction(n), (), TRUE, (f,)) for n, f in zip((1, -1), sides, strict=True)]


def _is_zero(term: Term) -> bool:
    """Is it a sum of points less their mean?"""
    if term.number == 0:
        return True
    for index in term.bound:
        having = [f for f in term.factors if index in find_free(f)]
        if len(having) == 1 and index not in find_free(term.condition):
            match having[0]:
                case Add((one, Mul((number, Reduce("mean", (other,), condition, body))))):
                    is_plain = number is MINUS_ONE and condition is TRUE
                    if is_plain and substitute(body, {other: index}) is one:
                        return True
    return False


def tidy(terms: Sequence[Term]) -> list[Term]:
    """Deltas sifted, indices without a say counted, like terms collected, zeros left out."""
    settled: list[Term] = []
    for term in terms:
        if term.bound:
            whole = replace(term, number=Fraction(1)).to_expr()
            plain = apply_rules(whole, (sift_index, count_unused))
            found = Reader({i.name for i in find_free(plain)}, set()).read(plain)[0]
            settled += [replace(each, number=term.number * each.number) for each in found]
        else:
            settled.append(term)
    alike: dict[object, list[Term]] = {}
    for term in map(_count_sizes, settled):
        if not _is_zero(term):
            alike.setdefault(_outline(term), []).append(term)
    found_terms: dict[object, Term] = {}
    for group in alike.values():
        for term in group:
            key: object = _find_key(term) if len(group) > 1 else term
            known = found_terms.get(key)
            number = term.number + (known.number if known else 0)
            found_terms[key] = replace(known or term, number=number)
    return [term for term in found_terms.values() if term.number]


def _count_sizes(term: Term) -> Term:
    """The term with one power of each size; one that is no divisor any more stays as it is."""
    sizes, rest = Polynomial.of(1), list[Expr]()
    for factor in term.factors:
        one = Polynomial.of(factor)
        is_size = all(isinstance(atom, Size) for atom in one.atoms)
        if is_number(factor) and len(one.terms) == 1 and is_size:
            sizes = sizes * one
        else:
            rest.append(factor)
    ((monomial, number),) = sizes.terms.items()
    if {part for f in term.factors for part in walk(f) if isinstance(part, Size)} - {*sizes.atoms}:
        return term
    powers = (b if p == 1 else Pow(b, Number(Fraction(p))) for b, p in monomial)
    return replace(term, number=term.number * number, factors=(*rest, *powers))


def _outline(term: Term) -> object:
    """What like terms have in common, whatever their bound indices are called."""
    return (len(term.bound), frozenset(Counter(map(_draw, term.factors)).items()))


def _draw(factor: Expr) -> tuple[str, ...]:
    return (type(factor).__name__, *(a.tensor.name for a in find_accesses(factor)))


def _find_key(term: Term) -> object:
    """The factors under numbered bound indices, in the first of all orders."""
    if len(term.bound) > MOST_RENAMED:
        return (term.bound, term.condition, frozenset(Counter(term.factors).items()))
    best: tuple[list[str], object] | None = None
    for order in permutations(term.bound):
        new: dict[Expr, Expr] = {i: Index(f"@{k}", i.extent) for k, i in enumerate(order)}
        named = term.rename(new)
        parts = split_and(named.condition)
        text = sorted(to_text(f) for f in (*named.factors, *parts, *new.values()))
        if best is None or text < best[0]:
            best = (text, (frozenset(parts), frozenset(Counter(named.factors).items())))
    assert best is not None
    return best[1]


def to_sum(terms: Sequence[Term]) -> Expr:
    """The terms added up, the numbers that all have in common outside."""
    if not terms:
        return ZERO
    common = Counter(f for f in terms[0].factors if is_number(f))
    for term in terms:
        common &= Counter(term.factors)
    sizes = {abs(term.number) for term in terms}
    number = sizes.pop() if len(sizes) == 1 else Fraction(1)
    if len(terms) == 1:
        number, common = Fraction(1), Counter[Expr]()
    inner = [
        replace(t, number=t.number / number, factors=_without(t.factors, common)) for t in terms
    ]
    inner.sort(key=lambda term: term.number < 0)
    whole = make_sum([term.to_expr() for term in inner])
    outer = [*([Number(number)] if number != 1 else []), *common.elements()]
    return Mul((*outer, whole)) if outer else whole


def _without(factors: Sequence[Expr], common: Counter[Expr]) -> tuple[Expr, ...]:
    left, kept = Counter(common), []
    for factor in factors:
        if left[factor]:
            left[factor] -= 1
        else:
            kept.append(factor)
    return tuple(kept)


def factor_terms(terms: Sequence[Term], *, deep: bool) -> list[Term]:
    """The terms, those with common factors as one: the largest groups first.

    The sum beside the common factors is no wider than one of the tensors in it. `deep`: products
    may be summed in it too.
    """
    left = list(terms)
    while True:
        best: tuple[tuple[int, int], tuple[int, ...], Term] | None = None
        for k, anchor in enumerate(left):
            for factor in dict.fromkeys(anchor.factors):
                if is_number(factor):
                    continue
                found = _find_group(left, k, factor, deep=deep)
                if found is not None and (best is None or found[0] > best[0]):
                    best = found
        if best is None:
            return left
        _, places, whole = best
        left = [whole if k == places[0] else t for k, t in enumerate(left) if k not in places[1:]]


def _find_group(
    terms: Sequence[Term], place: int, factor: Expr, *, deep: bool
) -> tuple[tuple[int, int], tuple[int, ...], Term] | None:
    """The terms that have a factor of one of them, what they become, and how good that is."""
    anchor = terms[place]
    members = {place: anchor}
    for k, term in enumerate(terms):
        if k > place and (named := _align(term, anchor, factor)) is not None:
            members[k] = named
    while len(members) > 1:
        common = Counter(anchor.factors)
        for term in members.values():
            common &= Counter(term.factors)
        whole = _merge(list(members.values()), common, deep=deep)
        if whole is not None:
            return (len(members), common.total()), tuple(members), whole
        members.popitem()  # fewer may do
    return None


def _align(term: Term, anchor: Term, factor: Expr) -> Term | None:
    """The term under the bound indices of another one, as far as their factors are the same."""
    for seed in term.factors:
        new: dict[Expr, Expr] = {}
        if not _match(seed, factor, term, anchor, new):
            continue
        for mine in anchor.factors:
            for its in term.factors:
                _match(its, mine, term, anchor, new)
        taken = {i.name for i in (*anchor.bound, *term.bound)}
        taken |= {i.name for f in (*anchor.factors, *term.factors) for i in find_free(f)}
        for index in term.bound:
            if index not in new:
                fresh = rename_apart(index, taken)
                taken.add(fresh.name)
                new[index] = fresh
        try:
            return term.rename(new)
        except ValueError:  # the index of a row cannot be renamed there
            return None
    return None


def _match(its: Expr, mine: Expr, term: Term, anchor: Term, new: dict[Expr, Expr]) -> bool:
    """Is a factor another one under bound indices? Those are noted."""
    old, wanted = find_free(its), find_free(mine)
    if type(its) is not type(mine) or len(old) != len(wanted) or is_number(its):
        return False
    pairs: dict[Expr, Expr] = {}
    for one, other in zip(old, wanted, strict=True):
        if one not in term.bound:
            if one is not other:
                return False
            continue
        fits = other in anchor.bound and is_same_extent(one.extent, other.extent)
        is_new = one not in new and other not in new.values()
        if not fits or not (is_new or new.get(one) is other):
            return False
        pairs[one] = other
    if len(set(pairs.values())) != len(pairs):
        return False
    try:
        if substitute(its, pairs) is not mine:
            return False
    except ValueError:
        return False
    new.update(pairs)
    return True


def _merge(members: Sequence[Term], common: Counter[Expr], *, deep: bool) -> Term | None:
    """Terms with these factors as one, unless the sum in it would be too wide."""
    shared = {i for factor in common for i in find_free(factor)}
    outer = tuple(i for i in members[0].bound if i in shared)
    conditions = {frozenset(split_and(term.condition)) for term in members}
    within = {i for part in split_and(members[0].condition) for i in find_free(part)}
    if len(conditions) > 1 or any(i in within and i not in outer for i in members[0].bound):
        return None
    if all(map(is_number, common)):
        return None
    rests = [
        Term(
            term.number,
            tuple(i for i in term.bound if i not in outer),
            TRUE,
            _without(term.factors, common),
        )
        for term in members
    ]
    if all(is_number(factor) for rest in rests for factor in rest.factors):
        return None
    if not deep and any(rest.bound and len(_list_tensors(rest)) > 1 for rest in rests):
        return None
    lone = {i for rest in rests for i in rest.bound}
    wide = {i for rest in rests for f in rest.factors for i in find_free(f)} - lone
    if members[0].bound:
        standing = [{*find_free(factor)} for rest in rests for factor in rest.factors]
    else:
        standing = [{i for f in t.factors for i in find_free(f)} for t in members]
    if not any(wide <= each for each in standing):
        return None
    if shared <= wide and not all(wide <= {*find_free(rest.to_expr())} for rest in rests):
        return None  # at all indices, where the terms alone are at fewer
    number, numbers, bracket = _normalize(factor_terms(rests, deep=deep))
    if not deep and isinstance(bracket, Add) and opens(bracket, {*outer}, deep=False):
        return None
    factors = (*numbers, *common.elements(), bracket)
    condition = members[0].condition
    return Term(number, outer, condition, factors)


def _list_tensors(term: Term) -> list[Expr]:
    return [factor for factor in term.factors if not is_number(factor)]


def _normalize(terms: Sequence[Term]) -> tuple[Fraction, tuple[Expr, ...], Expr]:
    """The terms added up less a number, so that the first is positive, and what all have."""
    names = {i.name for term in terms for f in term.factors for i in find_free(f)}
    names -= {i.name for term in terms for i in term.bound}
    named: list[Term] = []
    for term in terms:
        taken, new = set(names), dict[Expr, Expr]()
        for index in term.bound:
            fresh = rename_apart(Index("a", index.extent), taken)
            taken.add(fresh.name)
            new[index] = fresh
        named.append(term.rename(new))
    common = Counter(f for f in named[0].factors if is_number(f))
    for term in named:
        common &= Counter(term.factors)
    first = named[0].number
    inner = [
        replace(t, number=t.number / first, factors=_without(t.factors, common)) for t in named
    ]
    whole = make_sum([term.to_expr() for term in inner])
    return first, tuple(common.elements()), whole


def expand(expr: Expr, *, differences: bool, deep: bool = False) -> Expr | None:
    """A sum or a mean multiplied out and factored again; None where there is nothing to open.

    `differences`: of differences, else of sums alone.
    """
    if not isinstance(expr, Reduce) or expr.kind not in ("sum", "mean"):
        return None
    if (expr.kind == "mean" and expr.condition is not TRUE) or _is_square(expr.body):
        return None
    for is_centred in (False, True):
        names = {
            i.name for p in walk(expr) if isinstance(p, (Reduce, Along)) for i in find_free(p.body)
        }
        taken = {i.name for i in (*expr.bound, *find_free(expr))}
        reader = Reader(
            taken, {*expr.bound}, frozenset(names | taken), 2 if deep else 1, is_centred
        )
        reader.is_mean = expr.kind == "mean"
        try:
            terms, degree = reader.read(expr.body)
        except TooLongError:
            return None
        if degree < 2 or deep:
            break
    if not reader.is_changed or not reader.is_apart or (degree > 0) != differences:
        return None
    if not all(is_finite_where_defined(f) for term in terms for f in term.factors):
        return None
    counts = [Pow(i.extent, MINUS_ONE) for i in expr.bound] if expr.kind == "mean" else []
    terms = [
        Term(
            term.number,
            (*expr.bound, *term.bound),
            all_of(expr.condition, term.condition),
            (*counts, *term.factors),
        )
        for term in terms
    ]
    settled = tidy(terms)
    if deep and degree > 0 and _is_difference(settled):
        return None
    new = to_sum(factor_terms(settled, deep=False))
    return None if new is expr else new


def _is_square(body: Expr) -> bool:
    """Is it a number times a square? Such a sum of squares is a distance."""
    factors = [factor for factor in find_factors(body) if not is_number(factor)]
    match factors:
        case [Pow(Add(), Number(power))]:
            return power == 2
        case _:
            return False


@rule(
    law="sum_k (a_k + b_k) * c_k = sum_k a_k * c_k + sum_k b_k * c_k",
    before="u, v[M, D]; d[M]; x[M, N]; "
    "z[i,n] = sum[j]((d[i] * [i == j] + sum[k](u[i,k] * v[j,k])) * x[j,n])",
    after="u, v[M, D]; d[M]; x[M, N]; z[i,n] = d[i] * x[i,n] + sum[j, k](u[i,k] * v[j,k] * x[j,n])",
    refuses="a[M, D]; c[D]; z[i] = sum[k]((a[i,k] + 1) * c[k])",
)
def expand_sum(expr: Expr) -> Expr | None:
    """What is summed is multiplied out, each term contracted by itself, and factored again."""
    return expand(expr, differences=False)


@rule(
    law="sum_k (a_k - b_k) * c_k = sum_k a_k * c_k - sum_k b_k * c_k",
    before="x[N, D]; w[N, N]; z[i,d] = sum[j]((x[i,d] - x[j,d]) * w[i,j])",
    after="x[N, D]; w[N, N]; z[i,d] = sum[j](x[i,d] * w[i,j]) - sum[j](x[j,d] * w[i,j])",
    refuses="x[N, D]; w[N, N]; z[i,d] = sum[j]((x[i,d] - 1) * w[i,j])",
    cancels=True,
)
def expand_difference(expr: Expr) -> Expr | None:
    """The same where something is subtracted: not where the value must not round below zero."""
    return expand(expr, differences=True)
