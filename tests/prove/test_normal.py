"""The normal form: bound indices have no names, and equal values are merged."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derive.compiler import to_system
from derive.frontend.from_text import parse
from derive.ir import nodes as ir
from derive.prove import prove
from derive.prove.definedness import to_key
from derive.prove.reader import Reader
from derive.prove.sums import NormalAlgebra
from derive.prove.terms import GivesUp

N = ir.Size("N")
A, B = (ir.Tensor(name, (N, N)) for name in "AB")
INDICES = [ir.Index(name, N) for name in "abcd"]
FREE = ir.Index("i", N)


def monomial(pairs):
    """The sum over a, b, c, d of a product of elements, as (tensor, index, index)."""
    factors = tuple(
        ir.Access(tensor, places) for tensor, *places in pairs for places in [tuple(places)]
    )
    return ir.Reduce("sum", tuple(INDICES), ir.TRUE, ir.Mul(factors))


def to_normal(expr, steps=10_000):
    reader = Reader(NormalAlgebra(steps), ir.System("", (), (), (), ()))
    return reader.algebra.finish(reader.read_value(expr, {}))


def key(expr):
    return to_normal(expr).key


ELEMENTS = st.tuples(
    st.sampled_from([A, B]), st.sampled_from([*INDICES, FREE]), st.sampled_from([*INDICES, FREE])
)


def brute(pairs):
    """The least text over all names of the indices: the reference for canonical keys."""
    forms = []
    for order in permutations(range(4)):
        names = {index: f"~{k}" for index, k in zip(INDICES, order, strict=True)}
        names[FREE] = "i"
        forms.append(sorted((t.name, names[p], names[q]) for t, p, q in pairs))
    return min(forms)


@given(st.lists(ELEMENTS, min_size=3, max_size=4), st.lists(ELEMENTS, min_size=3, max_size=4))
def test_keys_agree_with_all_ways_to_rename(one, other):
    assert (key(monomial(one)) == key(monomial(other))) == (brute(one) == brute(other))


HARD = {
    "a cycle of six": [(A, p, q) for p, q in ["ab", "bc", "cd", "de", "ef", "fa"]],
    "two triangles": [(A, p, q) for p, q in ["ab", "bc", "ca", "de", "ef", "fd"]],
    "all pairs of four": [(A, p, q) for p, q in ["ab", "ac", "ad", "bc", "bd", "cd"]],
    "three and three": [(A, p, q) for p in "abc" for q in "def"],
    "three and three, two ways": [(A, p, q) for p, q in ["ad", "ae", "be", "bf", "cf", "cd"]],
}


def wide(pairs):
    indices = {name: ir.Index(name, N) for name in "abcdef"}
    factors = tuple(ir.Access(t, (indices[p], indices[q])) for t, p, q in pairs)
    used = tuple(indices[name] for name in sorted({n for _, *two in pairs for n in two}))
    return ir.Reduce("sum", used, ir.TRUE, ir.Mul(factors))


def test_terms_that_colours_alone_cannot_distinguish():
    keys = {name: key(wide(pairs)) for name, pairs in HARD.items()}
    assert len(set(keys.values())) == len(HARD)


@pytest.mark.parametrize("name", HARD)
def test_symmetric_ones_do_not_hang_on_names(name):
    pairs = HARD[name]
    for order in list(permutations("abcdef"))[::97]:
        new = dict(zip("abcdef", order, strict=True))
        assert key(wide([(t, new[p], new[q]) for t, p, q in pairs])) == key(wide(pairs))


def x(index):
    return ir.Access(ir.Tensor("x", (N,)), (index,))


a, b, c, d = INDICES


def total(body, *bound):
    return ir.Reduce("sum", bound or (a,), ir.TRUE, body)


def minus(expr):
    return ir.Mul((ir.Number(-1), expr))


def test_a_log_that_cancels_is_gone_from_the_value_and_not_from_where_it_is_finite():
    log = ir.Call("log", (x(FREE),))
    cancelled = ir.Add((log, minus(log)))
    assert to_normal(cancelled).terms == ()
    assert to_key(cancelled) != to_key(ir.ZERO) == to_key(ir.Add((x(FREE), minus(x(FREE)))))


def test_a_budget_is_kept():
    wide_sum = ir.Add(tuple(x(index) for index in INDICES))
    with pytest.raises(GivesUp):
        to_normal(ir.Pow(wide_sum, ir.Number(6)), steps=20)


def test_what_is_defined_must_not_hang_on_itself():
    system = to_system(parse("x[T]; y[t] = 2*x[t]"))
    (equation,) = system.equations
    again = ir.Equation(equation.target, ir.Add((equation.value, equation.target)))
    assert prove(replace(system, equations=(again,)), system) is None


EXPRESSIONS: st.SearchStrategy[ir.Expr] = st.recursive(
    st.sampled_from([x(a), x(b), ir.Access(A, (a, b)), ir.Access(A, (b, a)), ir.Number(2), N]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: ir.Add(tuple(parts))),
        st.lists(inner, min_size=2, max_size=2).map(lambda parts: ir.Mul(tuple(parts))),
        inner.map(lambda part: ir.Call("exp", (part,))),
        inner.map(lambda part: ir.Call("sin", (part,))),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS)
def test_the_laws_of_a_ring_and_of_exp(one, two, three):
    assert key(ir.Mul((one, ir.Add((two, three))))) == key(
        ir.Add((ir.Mul((one, two)), ir.Mul((three, one))))
    )
    assert key(ir.Mul((one, ir.Mul((two, three))))) == key(ir.Mul((ir.Mul((two, one)), three)))
    assert key(total(ir.Add((one, two)))) == key(ir.Add((total(one), total(two))))
    exps = [ir.Call("exp", (part,)) for part in (one, two, ir.Add((one, two)))]
    assert key(ir.Mul((exps[0], exps[1]))) == key(exps[2])
