"""Walking, free indices and substitution, judged by evaluating both sides at all index values."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derive.ir.nodes import (
    ONE,
    TRUE,
    Access,
    Add,
    Along,
    And,
    Call,
    Compare,
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
    Tensor,
    Where,
)
from derive.ir.walk import (
    find_accesses,
    find_bound,
    find_children,
    find_free,
    map_children,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)

S = Size("S")
A = Tensor("A", (S, S))
B = Tensor("B", (S, S))
x = Tensor("x", (S,))
i, j, k, l = (Index(name, S) for name in "ijkl")
EXTENT = 3


def sum_over(bound, body, condition=TRUE):
    return Reduce("sum", (bound,), condition, body)


def evaluate(expr, at):
    """The value for given values of the indices; tensors hold what tells their entries apart."""
    match expr:
        case Number(value):
            return value
        case Index():
            return Fraction(at[expr])
        case Access(tensor, places):
            value = Fraction(sum(map(ord, tensor.name)))
            for place in places:
                value = value * 7 + evaluate(place, at) ** 2
            return value
        case Add(terms):
            return sum((evaluate(t, at) for t in terms), Fraction(0))
        case Mul(factors):
            value = Fraction(1)
            for factor in factors:
                value *= evaluate(factor, at)
            return value
        case Compare("<=", left, right):
            return evaluate(left, at) <= evaluate(right, at)
        case Reduce("sum", bound, condition, body):
            total = Fraction(0)
            for values in product(range(EXTENT), repeat=len(bound)):
                inner = at | dict(zip(bound, values, strict=True))
                if condition is TRUE or evaluate(condition, inner):
                    total += evaluate(body, inner)
            return total
        case Along("cumsum", index, _, body):
            return sum(
                (evaluate(body, at | {index: n}) for n in range(int(at[index]) + 1)), Fraction(0)
            )
        case _:
            raise AssertionError(expr)


def all_values(indices):
    for values in product(range(EXTENT), repeat=len(indices)):
        yield dict(zip(indices, values, strict=True))


EVERY_KIND = [
    (Access(A, (i, j)), (i, j)),
    (Add((i, j)), (i, j)),
    (Mul((i, j, i)), (i, j, i)),
    (Pow(i, ONE), (i, ONE)),
    (Call("clip", (i, j, k)), (i, j, k)),
    (Where(TRUE, i, j), (TRUE, i, j)),
    (Reduce("max", (i,), TRUE, j), (TRUE, j)),
    (Along("softmax", i, TRUE, j), (TRUE, j)),
    (Compare("<", i, j), (i, j)),
    (And((TRUE, TRUE)), (TRUE, TRUE)),
    (Or((TRUE,)), (TRUE,)),
    (Not(TRUE), (TRUE,)),
    *((leaf, ()) for leaf in (Number(Fraction(2)), Infinity(), S, Scalar("eps"), i, TRUE)),
]


@pytest.mark.parametrize(("expr", "children"), EVERY_KIND)
def test_children_of_every_kind(expr, children):
    assert find_children(expr) == children
    assert map_children(expr, lambda child: child) is expr
    assert find_children(map_children(expr, lambda _: k)) == (k,) * len(children)
    assert type(map_children(expr, lambda _: k)) is type(expr)


def test_walk_meets_each_node_once_outermost_first():
    shared = Access(x, (i,))
    expr = Add((Mul((shared, j)), shared, i))
    assert list(walk(expr)) == [expr, expr.terms[0], shared, i, j]


def test_walks_of_shared_trees_are_short():
    here = Access(x, (i,))
    for _ in range(100):
        here = Add((here, here))
    met = []
    assert len(list(walk(here))) == 102
    rewritten = rewrite_bottom_up(here, lambda node: (met.append(node), node)[1])
    assert rewritten is here
    assert len(met) == 102
    assert find_free(here) == (i,)
    assert find_free(substitute(here, {i: j})) == (j,)
    for _ in range(50):
        here = Reduce("sum", (k,), TRUE, Add((here, here)))
    assert find_free(substitute(here, {i: k})) == (k,)


def test_rewriting_goes_from_the_inside_out():
    def fold(expr):
        match expr:
            case Add((Number(one), Number(other))):
                return Number(one + other)
            case _:
                return expr

    three = Add((Add((ONE, ONE)), ONE))
    assert rewrite_bottom_up(Mul((three, i)), fold) is Mul((Number(Fraction(3)), i))


@pytest.mark.parametrize(
    ("expr", "free"),
    [
        (Mul((Access(A, (j, i)), Access(x, (k,)))), (j, i, k)),
        (sum_over(j, Access(A, (i, j))), (i,)),
        (sum_over(j, Access(x, (i,))), (i,)),
        (Add((sum_over(j, Access(x, (j,))), Access(x, (j,)))), (j,)),
        (sum_over(j, ONE, Compare("<=", j, i)), (i,)),
        (Along("softmax", j, TRUE, Access(A, (i, j))), (i, j)),
        (Along("softmax", j, TRUE, Access(x, (i,))), (i, j)),
        (Reduce("sum", (i, j), TRUE, Access(A, (i, j))), ()),
        (Access(A, (i, Add((j, S)))), (i, j)),
        (sum_over(Index("j", Size("D")), Access(x, (j,))), (j,)),
    ],
)
def test_free_indices(expr, free):
    assert find_free(expr) == free


def test_bound_indices():
    assert find_bound(Reduce("sum", (i, j), TRUE, ONE)) == (i, j)
    assert find_bound(Along("softmax", i, TRUE, ONE)) == ()
    assert find_bound(ONE) == ()


def test_accesses_in_reading_order():
    one, other = Access(x, (i,)), Access(B, (i, j))
    inside = Access(A, (other, j))
    assert find_accesses(Add((inside, Mul((one, other))))) == (inside, other, one)


CAPTURES = [
    # (before, substitution, after)
    (Access(A, (i, j)), {i: j, j: i}, Access(A, (j, i))),
    (Access(A, (i, j)), {i: Add((i, ONE))}, Access(A, (Add((i, ONE)), j))),
    (sum_over(j, Access(A, (i, j))), {j: k}, sum_over(j, Access(A, (i, j)))),
    (sum_over(j, Access(A, (i, j))), {i: k}, sum_over(j, Access(A, (k, j)))),
    (sum_over(j, Access(A, (i, j))), {i: j}, sum_over(k, Access(A, (j, k)))),
    (sum_over(j, Access(x, (j,))), {i: j}, sum_over(j, Access(x, (j,)))),
    (
        sum_over(j, Mul((Access(A, (i, j)), Access(x, (k,))))),
        {i: j},
        sum_over(l, Mul((Access(A, (j, l)), Access(x, (k,))))),
    ),
    (
        sum_over(j, ONE, Compare("<=", j, i)),
        {i: Add((j, ONE))},
        sum_over(k, ONE, Compare("<=", k, Add((j, ONE)))),
    ),
    (
        sum_over(j, sum_over(k, Mul((Access(A, (i, j)), Access(A, (j, k)))))),
        {i: j},
        sum_over(l, sum_over(k, Mul((Access(A, (j, l)), Access(A, (l, k)))))),
    ),
    (sum_over(j, Access(A, (i, j))), {Access(A, (i, j)): Access(x, (j,))}, None),
    (sum_over(j, Access(A, (i, j))), {sum_over(j, Access(A, (i, j))): Access(x, (i,))}, "x[i]"),
    (Along("cumsum", j, TRUE, Access(A, (i, j))), {j: k}, "cumsum[k]"),
    (
        Along("cumsum", j, TRUE, Access(A, (i, j))),
        {i: j, j: i},
        Along("cumsum", i, TRUE, Access(A, (j, i))),
    ),
]


@pytest.mark.parametrize(("before", "new", "after"), CAPTURES)
def test_substitution_captures_nothing(before, new, after):
    match after:
        case None:
            after = before
        case "x[i]":
            after = Access(x, (i,))
        case "cumsum[k]":
            after = Along("cumsum", k, TRUE, Access(A, (i, k)))
    assert substitute(before, new) is after


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({i: j}, "j would be captured by cumsum"),
        ({i: Add((j, ONE))}, "j would be captured by cumsum"),
        ({j: i}, "i would be captured by cumsum"),
        ({j: Add((j, ONE))}, "j of cumsum can only become another index"),
    ],
)
def test_an_index_that_is_kept_is_not_captured(new, message):
    with pytest.raises(ValueError, match=message):
        substitute(Along("cumsum", j, TRUE, Access(A, (i, j))), new)


def test_a_fresh_index_is_no_tensor_size_or_scalar():
    tensor, size, scalar = Tensor("k", (S, S)), Size("l"), Scalar("m")
    n = Index("n", size)
    expr = sum_over(j, Mul((Access(tensor, (i, j)), scalar, n)))
    bound = substitute(expr, {i: j}).bound
    assert [index.name for index in bound] == ["o"]


@pytest.mark.parametrize(
    ("index", "taken", "name"),
    [
        (i, set(), "i"),
        (i, {"j"}, "i"),
        (i, {"i"}, "j"),
        (i, {"i", "j", "k"}, "l"),
        (Index("z", S), {"z"}, "a"),
        (Index("T", S), {"T"}, "u"),
        (Index("row", S), {"row", *"abcdefghijklmnopqrstuvwxyz"}, "row1"),
        (i, {*"abcdefghijklmnopqrstuvwxyz", "i1"}, "i2"),
    ],
)
def test_indices_apart(index, taken, name):
    fresh = rename_apart(index, taken)
    assert (fresh.name, fresh.extent) == (name, S)


INDICES = st.sampled_from([i, j, k])
NUMBERS = st.integers(0, 2).map(lambda n: Number(Fraction(n)))
PLACES = st.one_of(INDICES, st.builds(lambda a, b: Add((a, b)), INDICES, NUMBERS))
LEAVES = st.one_of(
    st.builds(lambda a, b: Access(A, (a, b)), PLACES, PLACES), PLACES.map(lambda a: Access(x, (a,)))
)


def grow(inner):
    """Sums, products, bound and kept indices over smaller expressions."""
    conditions = st.one_of(st.just(TRUE), st.builds(Compare, st.just("<="), INDICES, INDICES))
    return st.one_of(
        st.lists(inner, min_size=1, max_size=2).map(lambda terms: Add(tuple(terms))),
        st.lists(inner, min_size=1, max_size=2).map(lambda factors: Mul(tuple(factors))),
        st.builds(sum_over, INDICES, inner, conditions),
        st.builds(lambda index, body: Along("cumsum", index, TRUE, body), INDICES, inner),
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
        assert any(isinstance(here, Along) for here in walk(expr))
        return
    assert set(find_free(after)) <= {i, j, k}
    for at in all_values((i, j, k)):
        there = at | {index: evaluate(fresh, at) for index, fresh in new.items()}
        assert evaluate(after, at) == evaluate(expr, there)
