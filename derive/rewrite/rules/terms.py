"""Terms, each a number times the sum of a product, and how common factors are taken out.

sum_k a_ik * c_nk - sum_k b_ik * c_nk  =  sum_k (a_ik - b_ik) * c_nk
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from operator import and_
from typing import TypeAlias

from derive.ir import nodes as ir
from derive.ir import polynomial, walk
from derive.rewrite.rule import rename_all
from derive.rewrite.rules.sums import is_constant

Group: TypeAlias = tuple[tuple[int, int], tuple[int, ...], "Term"]

FEW = 6  # terms up to which all groups are tried


@dataclass(frozen=True, slots=True)
class Term:
    """A number times the sum of a product."""

    number: Fraction
    bound: tuple[ir.Index, ...]
    condition: ir.Expr
    factors: tuple[ir.Expr, ...]

    def to_expr(self) -> ir.Expr:
        """The term as a sum or a mean; equal factors become a power."""
        powers = Counter(self.factors).items()
        factors = [f if n == 1 else ir.Pow(f, ir.Number(Fraction(n))) for f, n in powers]
        whole = ir.sum_over(self.bound, ir.product_of(factors), self.condition)
        counts = [ir.Pow(index.extent, ir.MINUS_ONE) for index in self.bound]
        others = [factor for factor in factors if factor not in counts]
        is_whole = bool(counts) and self.condition is ir.TRUE
        if is_whole and len(others) == 1 and len(factors) == len(counts) + 1:
            whole = ir.Reduce("mean", self.bound, ir.TRUE, others[0])
        if self.number == 1:
            return whole
        number = ir.Number(self.number)
        return number if whole is ir.ONE else ir.Mul((number, *ir.split_product(whole)))

    def times(self, other: Term) -> Term:
        """The product of two terms without common bound indices."""
        return Term(
            self.number * other.number,
            (*self.bound, *other.bound),
            ir.all_of(self.condition, other.condition),
            (*self.factors, *other.factors),
        )

    def rename(self, new: Mapping[ir.Expr, ir.Expr]) -> Term:
        """The term with its indices renamed."""
        bound = tuple(new.get(i, i) for i in self.bound)
        factors = tuple(walk.substitute(factor, new) for factor in self.factors)
        return Term(self.number, bound, walk.substitute(self.condition, new), factors)  # type: ignore[arg-type]


def is_expandable(add: ir.Add, bound: set[ir.Index], *, deep: bool) -> bool:
    """Whether to expand a sum over `bound`: `deep`, no tensor spans it, or a term is a product."""
    own = {*walk.find_free(add)}
    if not own & bound:
        return False
    if deep:
        return True
    spanned = [_is_spanned(term, own) for term in add.terms]
    return not any(spanned) or any(
        is_composite(term) or _is_tied(term, bound) for term in add.terms
    )


def _is_spanned(term: ir.Expr, own: set[ir.Index]) -> bool:
    return any(own <= _find_own(factor) for factor in list_factors(term))


def _find_own(factor: ir.Expr) -> set[ir.Index]:
    """The indices of a factor, apart from those in data-dependent places."""
    if isinstance(factor, ir.Access):
        places = (place for place in factor.places if not walk.find_accesses(place))
        return {index for place in places for index in walk.find_free(place)}
    return {*walk.find_free(factor)}


def is_composite(term: ir.Expr) -> bool:
    """Whether the term is a product, or the sum of one, and no factor has all of its indices."""
    own = {*walk.find_free(term)}
    factors = list_factors(term)
    return bool(own) and len(factors) > 1 and not _is_spanned(term, own)


def list_factors(term: ir.Expr) -> tuple[ir.Expr, ...]:
    """The factors of a term, including those under sums and natural powers."""
    match term:
        case ir.Mul(factors):
            return tuple(f for factor in factors for f in list_factors(factor))
        case ir.Reduce("sum" | "mean", _, condition, body):
            guards = () if condition is ir.TRUE else ir.split_and(condition)
            return (*list_factors(body), *(ir.Where(c, ir.ONE, ir.ZERO) for c in guards))
        case ir.Pow(base, ir.Number(power)) if power > 0 and power.denominator == 1:
            return list_factors(base)
        case ir.Where(_, then, other) if other is ir.ZERO:
            return (term,) if then is ir.ONE else list_factors(then)
    return (term,)


def _is_tied(term: ir.Expr, bound: set[ir.Index]) -> bool:
    """Whether the term is 0 unless a bound index equals another index."""
    match term:
        case ir.Mul(factors):
            return any(_is_tied(factor, bound) for factor in factors)
        case ir.Where(condition, _, other) if other is ir.ZERO:
            for part in ir.split_and(condition):
                match part:
                    case ir.Compare("==", ir.Index() as one, ir.Index() as other_index):
                        if {one, other_index} & bound and one.extent is other_index.extent:
                            return True
    return False


def to_sum(terms: Sequence[Term]) -> ir.Expr:
    """The sum of the terms, with common numbers factored out."""
    if not terms:
        return ir.ZERO
    common = _find_common(terms, [f for f in terms[0].factors if is_constant(f)])
    sizes = {abs(term.number) for term in terms}
    number = sizes.pop() if len(sizes) == 1 else Fraction(1)
    if len(terms) == 1:
        number, common = Fraction(1), Counter[ir.Expr]()
    inner = _divide(terms, number, common)
    inner.sort(key=lambda term: term.number < 0)
    whole = ir.sum_of([term.to_expr() for term in inner])
    outer = [*([ir.Number(number)] if number != 1 else []), *common.elements()]
    return ir.Mul((*outer, whole)) if outer else whole


def _find_common(terms: Iterable[Term], factors: Sequence[ir.Expr]) -> Counter[ir.Expr]:
    """The given factors that all terms have, with the least multiplicity."""
    return reduce(and_, (Counter(term.factors) for term in terms), Counter(factors))


def _divide(terms: Sequence[Term], number: Fraction, common: Counter[ir.Expr]) -> list[Term]:
    """The terms divided by a number and by some of their factors."""
    return [
        replace(t, number=t.number / number, factors=_without(t.factors, common)) for t in terms
    ]


def _without(factors: Sequence[ir.Expr], common: Counter[ir.Expr]) -> tuple[ir.Expr, ...]:
    left, kept = Counter(common), []
    for factor in factors:
        if left[factor]:
            left[factor] -= 1
        else:
            kept.append(factor)
    return tuple(kept)


def factor_terms(terms: Sequence[Term], *, deep: bool) -> list[Term]:
    """The terms with groups that share factors merged, the largest groups first.

    The sum of the other factors is no wider than one of its tensors. `deep`: its terms may be
    products. For few terms, each group is tried first to find the fewest terms.
    """
    if len(terms) > FEW:
        return _factor_greedily(terms, deep=deep)
    best = list(terms)
    for _, places, whole in _find_groups(terms, deep=deep):
        left = _factor_greedily(_replace_terms(terms, places, whole), deep=deep)
        best = left if len(left) < len(best) else best
    return best


def _factor_greedily(terms: Sequence[Term], *, deep: bool) -> list[Term]:
    left = list(terms)
    while found := max(_find_groups(left, deep=deep), key=lambda group: group[0], default=None):
        left = _replace_terms(left, found[1], found[2])
    return left


def _replace_terms(terms: Sequence[Term], places: Sequence[int], whole: Term) -> list[Term]:
    kept = [whole if k == places[0] else term for k, term in enumerate(terms)]
    return [term for k, term in enumerate(kept) if k not in places[1:]]


def _find_groups(terms: Sequence[Term], *, deep: bool) -> Iterator[Group]:
    """The groups with a common factor: the score, the positions of the terms, the merged term."""
    for place, anchor in enumerate(terms):
        for factor in dict.fromkeys(anchor.factors):
            found = None if is_constant(factor) else _find_group(terms, place, factor, deep=deep)
            if found is not None:
                yield found


def _find_group(terms: Sequence[Term], place: int, factor: ir.Expr, *, deep: bool) -> Group | None:
    """The group of the terms that have a factor, see `_find_groups`; None if none can be merged."""
    anchor = terms[place]
    members = {place: anchor}
    for k, term in enumerate(terms):
        if k > place and (named := _align(term, anchor, factor)) is not None:
            members[k] = named
    while len(members) > 1:
        common = _find_common(members.values(), anchor.factors)
        whole = _merge(list(members.values()), common, deep=deep)
        if whole is not None:
            return (len(members), common.total()), tuple(members), whole
        members.popitem()  # a smaller group may fit
    return None


def _align(term: Term, anchor: Term, factor: ir.Expr) -> Term | None:
    """The term with bound indices renamed so that it has the `factor` of the anchor, or None."""
    for seed in term.factors:
        new: dict[ir.Expr, ir.Expr] = {}
        if not _match_factor(seed, factor, term, anchor, new):
            continue
        for mine in anchor.factors:
            for its in term.factors:
                _match_factor(its, mine, term, anchor, new)
        taken = {i.name for i in (*anchor.bound, *term.bound)}
        taken |= {i.name for f in (*anchor.factors, *term.factors) for i in walk.find_free(f)}
        new |= rename_all((i for i in term.bound if i not in new), taken)
        try:
            return term.rename(new)
        except ValueError:  # the index of a row cannot be renamed there
            return None
    return None


def _match_factor(
    its: ir.Expr, mine: ir.Expr, term: Term, anchor: Term, new: dict[ir.Expr, ir.Expr]
) -> bool:
    """Whether a factor equals another one up to bound indices, whose pairs are added to `new`."""
    old, wanted = walk.find_free(its), walk.find_free(mine)
    if type(its) is not type(mine) or len(old) != len(wanted) or is_constant(its):
        return False
    pairs: dict[ir.Expr, ir.Expr] = {}
    for one, other in zip(old, wanted, strict=True):
        if one not in term.bound:
            if one is not other:
                return False
            continue
        fits = other in anchor.bound and polynomial.is_same_extent(one.extent, other.extent)
        is_new = one not in new and other not in new.values()
        if not fits or not (is_new or new.get(one) is other):
            return False
        pairs[one] = other
    try:
        if walk.substitute(its, pairs) is not mine:
            return False
    except ValueError:
        return False
    new.update(pairs)
    return True


def _merge(members: Sequence[Term], common: Counter[ir.Expr], *, deep: bool) -> Term | None:
    """Terms with common factors merged into one; None if the sum in it would be too wide."""
    shared = {i for factor in common for i in walk.find_free(factor)}
    outer = tuple(i for i in members[0].bound if i in shared)
    conditions = {frozenset(ir.split_and(term.condition)) for term in members}
    within = {i for part in ir.split_and(members[0].condition) for i in walk.find_free(part)}
    if len(conditions) > 1 or any(i in within and i not in outer for i in members[0].bound):
        return None
    rests = [
        Term(
            term.number,
            tuple(i for i in term.bound if i not in outer),
            ir.TRUE,
            _without(term.factors, common),
        )
        for term in members
    ]
    if all(is_constant(factor) for rest in rests for factor in rest.factors):
        return None
    if not deep and any(r.bound and sum(not is_constant(f) for f in r.factors) > 1 for r in rests):
        return None
    if any(i not in walk.find_free(ir.product_of(list(r.factors))) for r in rests for i in r.bound):
        return None
    own = {i for rest in rests for i in rest.bound}
    wide = {i for rest in rests for f in rest.factors for i in walk.find_free(f)} - own
    if members[0].bound:
        standing = [{*walk.find_free(factor)} for rest in rests for factor in rest.factors]
    else:
        standing = [{i for f in t.factors for i in walk.find_free(f)} for t in members]
    if not any(wide <= each for each in standing):
        return None
    is_even = all(wide <= {*walk.find_free(rest.to_expr())} for rest in rests)
    is_plain = deep and not all(rest.bound for rest in rests)  # sums stay apart
    if shared <= wide and not is_even and not is_plain:
        return None  # the merged sum would have all indices, while its terms have fewer
    number, numbers, bracket = _normalize(factor_terms(rests, deep=deep))
    if not deep and isinstance(bracket, ir.Add) and is_expandable(bracket, {*outer}, deep=False):
        return None
    left, factors = Counter(common), list[ir.Expr]()
    for factor in members[0].factors:
        if left[factor]:
            left[factor] -= 1
            factors.append(factor)
        elif bracket not in factors:
            factors.append(bracket)
    factors += [bracket] if bracket not in factors else []
    return Term(number, outer, members[0].condition, (*numbers, *factors))


def _normalize(terms: Sequence[Term]) -> tuple[Fraction, tuple[ir.Expr, ...], ir.Expr]:
    """(the number of the first term, the common numbers, the sum of terms divided by both)."""
    names = {i.name for term in terms for f in term.factors for i in walk.find_free(f)}
    names -= {i.name for term in terms for i in term.bound}
    named = [term.rename(rename_all(term.bound, set(names), "a")) for term in terms]
    common = _find_common(named, [f for f in named[0].factors if is_constant(f)])
    first = named[0].number or Fraction(1)
    whole = ir.sum_of([term.to_expr() for term in _divide(named, first, common)])
    return first, tuple(common.elements()), whole
