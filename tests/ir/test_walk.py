"""Walking, free indices and substitution, judged by evaluating both sides at all index values."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_values import all_values, evaluate
from texts import Expressions

from derive.ir import nodes as ir
from derive.ir.walk import (
    find_accesses,
    find_free,
    map_children,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)

ROWS = Expressions(Path(__file__).with_name("walk_rows.txt"), globals())

S = ir.Size("S")
A = ir.Tensor("A", (S, S))
B = ir.Tensor("B", (S, S))
x = ir.Tensor("x", (S,))
i, j, k, l = (ir.Index(name, S) for name in "ijkl")


def sum_over(bound, body, condition=ir.TRUE):
    return ir.Reduce("sum", (bound,), condition, body)


EVERY_KIND = [
    (ir.Access(A, (i, j)), (i, j)),
    (ir.Add((i, j)), (i, j)),
    (ir.Mul((i, j, i)), (i, j, i)),
    (ir.Pow(i, ir.ONE), (i, ir.ONE)),
    (ir.Call("clip", (i, j, k)), (i, j, k)),
    (ir.Where(ir.TRUE, i, j), (ir.TRUE, i, j)),
    (ir.Reduce("max", (i,), ir.TRUE, j), (ir.TRUE, j)),
    (ir.Along("softmax", i, ir.TRUE, j), (ir.TRUE, j)),
    (ir.Compare("<", i, j), (i, j)),
    (ir.And((ir.TRUE, ir.TRUE)), (ir.TRUE, ir.TRUE)),
    (ir.Or((ir.TRUE,)), (ir.TRUE,)),
    (ir.Not(ir.TRUE), (ir.TRUE,)),
    *(
        (leaf, ())
        for leaf in (ir.Number(Fraction(2)), ir.Infinity(), S, ir.Scalar("eps"), i, ir.TRUE)
    ),
]


@pytest.mark.parametrize(("expr", "children"), EVERY_KIND)
def test_children_of_every_kind(expr, children):
    assert expr.children == children
    assert map_children(expr, lambda child: child) is expr
    assert map_children(expr, lambda _: k).children == (k,) * len(children)
    assert type(map_children(expr, lambda _: k)) is type(expr)


def test_walk_meets_each_node_once_outermost_first():
    shared = ir.Access(x, (i,))
    expr = ir.Add((ir.Mul((shared, j)), shared, i))
    assert list(walk(expr)) == [expr, expr.terms[0], shared, i, j]


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


def test_rewriting_goes_from_the_inside_out():
    def fold_sum(expr):
        match expr:
            case ir.Add((ir.Number(one), ir.Number(other))):
                return ir.Number(one + other)
            case _:
                return expr

    three = ir.Add((ir.Add((ir.ONE, ir.ONE)), ir.ONE))
    assert rewrite_bottom_up(ir.Mul((three, i)), fold_sum) is ir.Mul((ir.Number(Fraction(3)), i))


@pytest.mark.parametrize(("expr", "free"), ROWS["free indices"])
def test_free_indices(expr, free):
    assert find_free(expr) == free


def test_accesses_in_reading_order():
    one, other = ir.Access(x, (i,)), ir.Access(B, (i, j))
    inside = ir.Access(A, (other, j))
    assert find_accesses(ir.Add((inside, ir.Mul((one, other))))) == (inside, other, one)


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


def test_a_fresh_index_is_no_tensor_size_or_scalar():
    tensor, size, scalar = ir.Tensor("k", (S, S)), ir.Size("l"), ir.Scalar("m")
    n = ir.Index("n", size)
    expr = sum_over(j, ir.Mul((ir.Access(tensor, (i, j)), scalar, n)))
    bound = substitute(expr, {i: j}).bound
    assert [index.name for index in bound] == ["o"]


@pytest.mark.parametrize(("index", "taken", "name"), ROWS["indices apart"])
def test_indices_apart(index, taken, name):
    fresh = rename_apart(index, taken)
    assert (fresh.name, fresh.extent) == (name, S)


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
