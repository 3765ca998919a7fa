"""Index expressions as linear forms: simplification keeps their values."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_values import evaluate

from derive.analysis.affine import divide, modulo, ravel, to_linear, to_place, unravel
from derive.analysis.facts import find_range, is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.text import to_text

B, S, H, D = (ir.Size(name) for name in "BSHD")
b, h, i, j, d = (ir.Index(n, e) for n, e in zip("bhijd", (B, H, S, S, D), strict=True))


def num(value):
    return ir.Number(Fraction(value))


def add_terms(*terms):
    return ir.Add(terms)


def mul(*factors):
    return ir.Mul(factors)


def floordiv(over, under):
    return ir.Call("floordiv", (over, under))


def mod(over, under):
    return ir.Call("mod", (over, under))


def write_places(places):
    return [to_text(to_place(place)) for place in places]


def view(places, old, new):
    return unravel(ravel(places, old), new)


HD = mul(H, D)


def test_heads_split_and_merged_again_are_plain():
    x = ir.Index("x", HD)
    split = view((b, i, x), (B, S, HD), (B, S, H, D))
    assert write_places(split) == ["b", "i", "x // D", "x - D * (x // D)"]
    assert write_places(view(split, (B, S, H, D), (B, S, HD))) == ["b", "i", "x"]
    assert write_places(view((b, i, h, d), (B, S, H, D), (B, S, HD))) == ["b", "i", "d + D * h"]


def test_the_relative_shift_by_pad_and_reshape():
    # [S, 2S-1] with a column before it, as [2S, S], without its first row, as [S, 2S-1]
    long = add_terms(mul(num(2), S), num(-1))
    wide = mul(num(2), S)
    position = ravel((i, j), (S, long)) + to_linear(S)
    assert write_places(unravel(position, (S, wide))) == ["i", "-i + j + S"]


def test_scrambled_heads_stay_scrambled():
    found = view((b, h, i, d), (B, H, S, D), (B, S, HD))
    assert "//" in write_places(found)[1]


def test_grouped_heads():
    g = ir.Index("g", ir.Size("G"))
    merged = add_terms(mul(h, ir.Size("G")), g)
    assert write_places([divide(merged, ir.Size("G")), modulo(merged, ir.Size("G"))]) == ["h", "g"]


@pytest.mark.parametrize(
    "extent",
    [
        add_terms(S, num(-1)),
        add_terms(mul(S, D), mul(num(-1), D)),
        add_terms(mul(S, S), num(1), mul(num(-2), S)),
        add_terms(S, mul(num(-2), floordiv(S, num(2)))),
        add_terms(num(1), mul(num(2), floordiv(S, num(2))), mul(num(-1), S)),
    ],
)
def test_what_is_never_negative_is_seen(extent):
    assert is_never_negative(Polynomial.of(extent))


@pytest.mark.parametrize(
    "extent",
    [
        add_terms(S, num(-2)),
        add_terms(S, mul(num(-1), D)),
        add_terms(ir.Mul((S, ir.Call("floordiv", (num(1), D)))), num(-1)),
        add_terms(floordiv(S, num(2)), num(-1)),
        add_terms(mul(num(2), floordiv(S, num(2))), mul(num(-1), S)),
    ],
)
def test_a_possibly_negative_value_is_not_shown_to_be_one(extent):
    assert not is_never_negative(Polynomial.of(extent))


SIZES = st.sampled_from(["S", "D", "H"])
NUMBERS = st.integers(-3, 4).map(num)
EXTENTS = st.one_of(
    SIZES.map(ir.Size),
    st.tuples(SIZES, SIZES).map(lambda pair: mul(ir.Size(pair[0]), ir.Size(pair[1]))),
    st.sampled_from([num(3), num(6), add_terms(mul(num(2), S), num(-1)), mul(num(2), S)]),
)
INDICES = st.tuples(st.sampled_from("abc"), EXTENTS).map(lambda pair: ir.Index(*pair))


def combine(inner):
    factors = st.one_of(SIZES.map(ir.Size), NUMBERS, EXTENTS)
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: ir.Add(tuple(terms))),
        st.tuples(factors, inner).map(ir.Mul),
        st.tuples(inner, EXTENTS).map(lambda pair: floordiv(*pair)),
        st.tuples(inner, EXTENTS).map(lambda pair: mod(*pair)),
        st.tuples(inner, st.just(num(0)), EXTENTS).map(lambda parts: ir.Call("clip", parts)),
    )


PLACES = st.recursive(st.one_of(INDICES, NUMBERS, SIZES.map(ir.Size)), combine, max_leaves=6)


def indices_of(expr):
    from derive.ir.walk import find_free

    found = {}
    for index in find_free(expr):
        found.setdefault(index.name, []).append(index)
    return found


@given(PLACES, st.tuples(*[st.integers(1, 4)] * 3))
def test_simplified_places_have_the_same_values_and_keep_their_range(expr, extents):
    sizes = dict(zip("SDH", extents, strict=True))
    held = indices_of(expr)
    names = list(held)
    ranges = [
        range(min(evaluate_extent(index.extent, sizes) for index in held[name])) for name in names
    ]
    found = to_linear(expr)
    simple = to_place(found)
    low, high = find_range(found)
    for places in product(*ranges):
        indices = dict(zip(names, places, strict=True))
        right = evaluate(expr, indices | sizes)
        assert evaluate(simple, indices | sizes) == right
        assert low is None or evaluate(low.to_expr(), sizes) <= right
        assert high is None or evaluate(high.to_expr(), sizes) >= right
