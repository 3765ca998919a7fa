"""The normal form: bound indices have no names, and equal values are merged."""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derive.analysis.affine import to_affine
from derive.compiler import to_system
from derive.frontend.from_text import parse
from derive.ir.nodes import (
    ONE,
    TRUE,
    ZERO,
    Access,
    Add,
    Call,
    Compare,
    Equation,
    Expr,
    Index,
    Mul,
    Number,
    Pow,
    Reduce,
    Size,
    Tensor,
    Where,
)
from derive.prove import prove
from derive.prove.algebra import multiply
from derive.prove.definedness import to_key, to_normal
from derive.prove.sums import NormalAlgebra
from derive.prove.terms import Factor, GivesUp, Read, Term

N = Size("N")
A, B = (Tensor(name, (N, N)) for name in "AB")
INDICES = [Index(name, N) for name in "abcd"]
FREE = Index("i", N)


def monomial(pairs):
    """The sum over a, b, c, d of a product of elements, as (tensor, index, index)."""
    factors = tuple(
        Access(tensor, places) for tensor, *places in pairs for places in [tuple(places)]
    )
    return Reduce("sum", tuple(INDICES), TRUE, Mul(factors))


def key(expr):
    return to_normal(expr).key


ELEMENTS = st.tuples(
    st.sampled_from([A, B]), st.sampled_from([*INDICES, FREE]), st.sampled_from([*INDICES, FREE])
)


def brute(pairs):
    """The least of all ways to name the indices: what a canonical form has to tell apart."""
    forms = []
    for order in permutations(range(4)):
        names = {index: f"~{k}" for index, k in zip(INDICES, order, strict=True)}
        names[FREE] = "i"
        forms.append(sorted((t.name, names[p], names[q]) for t, p, q in pairs))
    return min(forms)


@given(st.lists(ELEMENTS, min_size=3, max_size=4), st.lists(ELEMENTS, min_size=3, max_size=4))
def test_keys_agree_with_all_ways_to_rename(one, other):
    assert (key(monomial(one)) == key(monomial(other))) == (brute(one) == brute(other))


@given(st.lists(ELEMENTS, min_size=3, max_size=5), st.permutations(range(4)), st.randoms())
def test_renamed_and_reordered_is_the_same(pairs, order, random):
    new = {index: INDICES[k] for index, k in zip(INDICES, order, strict=True)}
    renamed = [(t, new.get(p, p), new.get(q, q)) for t, p, q in pairs]
    random.shuffle(renamed)
    assert key(monomial(pairs)) == key(monomial(renamed))


HARD = {
    "a cycle of six": [(A, p, q) for p, q in ["ab", "bc", "cd", "de", "ef", "fa"]],
    "two triangles": [(A, p, q) for p, q in ["ab", "bc", "ca", "de", "ef", "fd"]],
    "all pairs of four": [(A, p, q) for p, q in ["ab", "ac", "ad", "bc", "bd", "cd"]],
    "three and three": [(A, p, q) for p in "abc" for q in "def"],
    "three and three, two ways": [(A, p, q) for p, q in ["ad", "ae", "be", "bf", "cf", "cd"]],
}


def wide(pairs):
    indices = {name: Index(name, N) for name in "abcdef"}
    factors = tuple(Access(t, (indices[p], indices[q])) for t, p, q in pairs)
    used = tuple(indices[name] for name in sorted({n for _, *two in pairs for n in two}))
    return Reduce("sum", used, TRUE, Mul(factors))


def test_what_colours_alone_cannot_tell_apart():
    keys = {name: key(wide(pairs)) for name, pairs in HARD.items()}
    assert len(set(keys.values())) == len(HARD)


@pytest.mark.parametrize("name", HARD)
def test_symmetric_ones_do_not_hang_on_names(name):
    pairs = HARD[name]
    for order in list(permutations("abcdef"))[::97]:
        new = dict(zip("abcdef", order, strict=True))
        assert key(wide([(t, new[p], new[q]) for t, p, q in pairs])) == key(wide(pairs))


def x(index):
    return Access(Tensor("x", (N,)), (index,))


a, b, c, d = INDICES


def total(body, *bound):
    return Reduce("sum", bound or (a,), TRUE, body)


def minus(expr):
    return Mul((Number(-1), expr))


def test_terms_that_cancel_leave_nothing():
    assert to_normal(Add((x(FREE), minus(x(FREE))))).terms == ()


def test_a_log_that_cancels_is_gone_from_the_value_and_not_from_where_it_is_finite():
    log = Call("log", (x(FREE),))
    cancelled = Add((log, minus(log)))
    assert to_normal(cancelled).terms == ()
    assert to_key(cancelled) != to_key(ZERO) == to_key(Add((x(FREE), minus(x(FREE)))))


def test_an_unused_index_counts():
    assert key(total(x(FREE))) == key(Mul((N, x(FREE))))


def test_brackets_are_idempotent_and_complement():
    def bracket(relation):
        return Where(Compare(relation, a, FREE), ONE, ZERO)

    once = total(Mul((bracket("<="), x(a))))
    assert key(once) == key(total(Mul((bracket("<="), bracket("<="), x(a)))))
    both = Add((once, total(Mul((bracket(">"), x(a))))))
    assert key(both) == key(total(x(a)))
    assert to_normal(total(Mul((bracket("<="), bracket(">"), x(a))))).terms == ()


def test_inner_indices_lie_deeper_than_outer_ones():
    one = total(Call("sin", (total(Mul((x(a), x(b))), b),)))
    other = total(Call("sin", (total(Mul((x(a), x(b))), a),)), b)
    squares = total(Call("sin", (total(Mul((x(b), x(b))), b),)))
    assert key(one) == key(other) != key(squares)


def test_a_share_of_numbers_and_sizes_is_exact():
    root = Pow(N, Number(Fraction("1/2")))
    assert key(Mul((root, root))) == key(N)
    eighth = Pow(Number(8), Number(Fraction("-1/2")))
    assert key(eighth) == key(
        Mul((Number(Fraction("1/4")), Pow(Number(2), Number(Fraction("1/2")))))
    )


def test_a_budget_is_kept():
    wide_sum = Add(tuple(x(index) for index in INDICES))
    with pytest.raises(GivesUp):
        to_normal(Pow(wide_sum, Number(6)), steps=20)


def test_indices_of_a_workshop_are_used_once():
    algebra = NormalAlgebra()
    first, second = algebra.fresh(a), algebra.fresh(a)
    assert first is not second
    term = Term(
        bound=(first,), factors=(Factor(Read(A, (to_affine(first), to_affine(first))), ONE.value),)
    )
    square = multiply(algebra, (term,), (term,))
    assert len(set(square[0].bound)) == 2


def test_what_is_defined_must_not_hang_on_itself():
    system = to_system(parse("x[T]; y[t] = 2*x[t]"))
    (equation,) = system.equations
    again = Equation(equation.target, Add((equation.value, equation.target)))
    assert prove(replace(system, equations=(again,)), system) is None


EXPRESSIONS: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from([x(a), x(b), Access(A, (a, b)), Access(A, (b, a)), Number(2), N]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Add(tuple(parts))),
        st.lists(inner, min_size=2, max_size=2).map(lambda parts: Mul(tuple(parts))),
        inner.map(lambda part: Call("exp", (part,))),
        inner.map(lambda part: Call("sin", (part,))),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS)
def test_the_laws_of_a_ring_and_of_exp(one, two, three):
    assert key(Mul((one, Add((two, three))))) == key(Add((Mul((one, two)), Mul((three, one)))))
    assert key(Mul((one, Mul((two, three))))) == key(Mul((Mul((two, one)), three)))
    assert key(total(Add((one, two)))) == key(Add((total(one), total(two))))
    exps = [Call("exp", (part,)) for part in (one, two, Add((one, two)))]
    assert key(Mul((exps[0], exps[1]))) == key(exps[2])
