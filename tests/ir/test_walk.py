"""Walking, free indices and substitution, judged by evaluating both sides at all index values."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_values import all_values, evaluate
from texts import Expressions

from derive.ir import nodes as ir
from derive.ir.walk import find_free, rewrite_bottom_up, substitute, walk

ROWS = Expressions(__file__, "walk_rows.txt", globals())

S = ir.Size("S")
A = ir.Tensor("A", (S, S))


x = ir.Tensor("x", (S,))
i, j, k, l = (ir.Index(name, S) for name in "ijkl")


def sum_over(bound, body, condition=ir.TRUE):
    return ir.Reduce("sum", (bound,), condition, body)


def test_walks_of_shared_trees_are_short():
    here = ir.Access(x, (i,))
    for _ in range(100):
        here = ir.Add((here, here))
    met = []
    assert len(list(walk(here))) == 102
    rewritten = rewrite_bottom_up(here, lambda node: (met.append(node), node)[1])
    assert rewritten is here
    assert len(met) == 102
    assert find_free(here) == (i,)
    assert find_free(substitute(here, {i: j})) == (j,)
    for _ in range(50):
        here = ir.Reduce("sum", (k,), ir.TRUE, ir.Add((here, here)))
    assert find_free(substitute(here, {i: k})) == (k,)


@pytest.mark.parametrize(("expr", "free"), ROWS["free indices"])
def test_free_indices(expr, free):
    assert find_free(expr) == free


CAPTURES = ROWS["captures"]


@pytest.mark.parametrize(("before", "new", "after"), CAPTURES)
def test_substitution_captures_nothing(before, new, after):
    match after:
        case None:
            after = before
        case "x[i]":
            after = ir.Access(x, (i,))
        case "cumsum[k]":
            after = ir.Along("cumsum", k, ir.TRUE, ir.Access(A, (i, k)))
    assert substitute(before, new) is after


@pytest.mark.parametrize(("new", "message"), ROWS["an index that is kept is not captured"])
def test_an_index_that_is_kept_is_not_captured(new, message):
    with pytest.raises(ValueError, match=message):
        substitute(ir.Along("cumsum", j, ir.TRUE, ir.Access(A, (i, j))), new)


INDICES = st.sampled_from([i, j, k])
NUMBERS = st.integers(0, 2).map(lambda n: ir.Number(Fraction(n)))
PLACES = st.one_of(INDICES, st.builds(lambda a, b: ir.Add((a, b)), INDICES, NUMBERS))
LEAVES = st.one_of(
    st.builds(lambda a, b: ir.Access(A, (a, b)), PLACES, PLACES),
    PLACES.map(lambda a: ir.Access(x, (a,))),
)


def grow(inner):
    """Sums, products, bound and kept indices over smaller expressions."""
    conditions = st.one_of(st.just(ir.TRUE), st.builds(ir.Compare, st.just("<="), INDICES, INDICES))
    return st.one_of(
        st.lists(inner, min_size=1, max_size=2).map(lambda terms: ir.Add(tuple(terms))),
        st.lists(inner, min_size=1, max_size=2).map(lambda factors: ir.Mul(tuple(factors))),
        st.builds(sum_over, INDICES, inner, conditions),
        st.builds(lambda index, body: ir.Along("cumsum", index, ir.TRUE, body), INDICES, inner),
    )


@given(
    st.recursive(LEAVES, grow, max_leaves=6),
    st.dictionaries(INDICES, st.one_of(INDICES, PLACES), min_size=1),
)
def test_substitution_means_evaluation_elsewhere(expr, new):
    """The value of e[new] is the value of e where each index has its replacement's value."""
    try:
        after = substitute(expr, new)
    except ValueError:
        assert any(isinstance(here, ir.Along) for here in walk(expr))
        return
    assert set(find_free(after)) <= {i, j, k}
    for at in all_values((i, j, k)):
        there = at | {index.name: evaluate(fresh, at) for index, fresh in new.items()}
        assert evaluate(after, at) == evaluate(expr, there)
