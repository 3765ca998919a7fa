"""The analyser's facts against brute force: every size, every index, every position."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_values import evaluate
from texts import Expressions, read_tables

from derive import parse
from derive.analysis.extents import find_size_sources
from derive.analysis.facts import find_facts, find_range, find_sign, is_never_negative
from derive.analysis.names import find_mistakes
from derive.analysis.places import fills_once, split_merged
from derive.frontend.from_sympy import from_sympy
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent

ROWS = Expressions(__file__, "analysis_rows.txt", globals())

TABLES = read_tables(__file__, "tables.txt")
N, M, K = ir.Size("N"), ir.Size("M"), ir.Size("K")
INDICES = ROWS["indices"]


def number(value):
    return ir.Number(Fraction(value))


def system(text):
    return from_sympy(parse(text))


def assignments(largest=3):
    """Every choice of small sizes, with every choice of values for the indices."""
    for sizes in product(range(1, largest + 1), repeat=2):
        at = dict(zip("NM", sizes, strict=True))
        ranges = [range(evaluate_extent(index.extent, at)) for index in INDICES]
        for values in product(*ranges):
            yield at | dict(zip("ijkl", values, strict=True))


ASSIGNMENTS = tuple(assignments())

positions = st.recursive(
    st.sampled_from((*INDICES, N, M)) | st.integers(-3, 3).map(number),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: ir.Add(tuple(parts))),
        st.lists(inner, min_size=2, max_size=2).map(lambda parts: ir.Mul(tuple(parts))),
        inner.map(lambda part: ir.Mul((number(-1), part))),
        st.tuples(inner, st.sampled_from((number(2), number(3), N, M))).map(
            lambda pair: ir.Call("floordiv", pair)
        ),
        st.tuples(inner, st.sampled_from((number(2), number(3), N, M))).map(
            lambda pair: ir.Call("mod", pair)
        ),
        st.tuples(inner, inner, inner).map(lambda parts: ir.Call("clip", parts)),
        st.tuples(inner, inner).map(lambda pair: ir.Call("max", pair)),
        st.tuples(inner, inner).map(lambda pair: ir.Call("min", pair)),
        inner.map(lambda part: ir.Call("abs", (part,))),
    ),
    max_leaves=6,
)

comparisons = st.builds(
    ir.Compare, st.sampled_from(("<", "<=", ">", ">=", "==", "!=")), positions, positions
)
conditions = st.one_of(
    comparisons,
    comparisons.map(ir.Not),
    st.lists(comparisons, min_size=2, max_size=2).map(lambda parts: ir.And(tuple(parts))),
)


# --- ranges ---------------------------------------------------------------------------------------


@given(positions)
def test_no_value_leaves_its_range(place):
    bounds = find_range(place)
    for at in ASSIGNMENTS:
        value = evaluate(place, at)
        if bounds.low is not None:
            assert evaluate(bounds.low.to_expr(), at) <= value
        if bounds.high is not None:
            assert value <= evaluate(bounds.high.to_expr(), at)


@given(positions, conditions)
def test_what_is_shown_nonnegative_is_so_where_the_guard_evaluate(place, condition):
    if is_never_negative(Polynomial.of(place), find_facts(condition)):
        assert all(evaluate(place, at) >= 0 for at in ASSIGNMENTS if evaluate(condition, at))


@given(conditions)
def test_facts_hold_where_their_condition_does(condition):
    for fact in find_facts(condition):
        written = fact.to_expr()
        assert all(evaluate(written, at) >= 0 for at in ASSIGNMENTS if evaluate(condition, at))


@pytest.mark.parametrize(("place", "low", "high"), TABLES["ranges of common places"])
def test_ranges_of_common_places(place, low, high):
    text = f"""
    x[S]; w[H, D]; c[C]; size S, H, D, C
    index i, j < S; index h < H; index d < D
    y[i,j,h,d] = x[i] * x[j] * w[h,d] * sum[q](c[q]) * ({place})
    low = {low}
    high = {high}"""
    equations = system(text).equations
    bounds = find_range(equations[0].value.factors[-1])
    assert bounds.low == Polynomial.of(equations[1].value)
    assert bounds.high == Polynomial.of(equations[2].value)


@pytest.mark.parametrize(("text", "expected"), TABLES["inequalities of sizes"])
def test_inequalities_of_sizes(text, expected):
    expected = expected == "yes"
    value = system(f"x[N, M]\nz = sum[i, j](x[i,j])\nw = {text}").equations[1].value
    truth = all(evaluate(value, {"N": n, "M": m}) >= 0 for n in range(1, 9) for m in range(1, 9))
    assert is_never_negative(Polynomial.of(value)) == expected == truth


# --- places ---------------------------------------------------------------------------------------


indices = tuple(
    ir.Index(name, extent) for name, extent in zip("abc", (N, M, number(3)), strict=True)
)
steps = st.sampled_from(
    (number(1), number(3), N, M, ir.Mul((N, M)), ir.Mul((number(3), M)), number(2))
)
merged = st.lists(
    st.tuples(st.sampled_from(indices), steps), min_size=1, max_size=3, unique_by=lambda p: p[0]
)


@given(merged, st.sampled_from((number(0), number(1))), st.booleans())
def test_a_merged_place_meets_every_position_once_in_the_order_of_its_parts(parts, offset, exact):
    place = ir.Add((*(ir.Mul(part) for part in parts), offset))
    used = [index for index, _ in parts]
    extent = ir.Mul(tuple(index.extent for index in used)) if exact else ir.Mul((N, M))
    parts = split_merged(place, extent)
    shapes = list(product(range(1, 4), repeat=2))
    if parts:
        for shape in shapes:
            at = dict(zip("NM", shape, strict=True))
            ranges = [range(int(evaluate(part.extent, at))) for part in parts]
            names = [part.name for part in parts]
            met = [
                evaluate(place, at | dict(zip(names, values, strict=True)))
                for values in product(*ranges)
            ]
            assert met == list(range(int(evaluate(extent, at))))
    if fills_once(place, extent):
        at = {"N": 2, "M": 5}
        ranges = [range(int(evaluate(index.extent, at))) for index in used]
        names = [index.name for index in used]
        met = {
            evaluate(place, at | dict(zip(names, values, strict=True)))
            for values in product(*ranges)
        }
        assert met == set(range(int(evaluate(extent, at))))


# --- sizes ----------------------------------------------------------------------------------------


SHAPES = dict(ROWS["SHAPES"])


@pytest.mark.parametrize("name", SHAPES)
def test_sizes_are_solved_from_shapes(name):
    declarations, equation, order = SHAPES[name]
    found = system(f"{declarations}\n{equation}")
    sources = find_size_sources(found)
    if order is not None:
        assert [source.name for source in sources] == order.split()
    for numbers in product((1, 2, 5), repeat=3):
        sizes = dict(zip("NMK", numbers, strict=True))
        shapes = {
            tensor: [evaluate_extent(extent, sizes) for extent in tensor.shape]
            for tensor in found.inputs
            if isinstance(tensor, ir.Tensor)
        }
        solved = {size.name: sizes[size.name] for size in found.sizes}
        for source in sources:
            left = shapes[source.tensor][source.place] - evaluate_extent(source.rest, solved)
            solved[source.name] = Fraction(left, evaluate_extent(source.coefficient, solved))
        assert solved == {size: sizes[size] for size in solved}


# --- roles ----------------------------------------------------------------------------------------


def test_mistakes_of_one_stage_come_together():
    found = system("x[N]; y[M]\nz[i] = x[i] + y[i]\nw[j] = y[j] * x[j]")
    assert [mistake.code for mistake in find_mistakes(found)] == ["index-extents"] * 2


SIGNS = dict(ROWS["SIGNS"])


@pytest.mark.parametrize("value", SIGNS)
def test_signs_hold_for_all_sizes_and_masks(value):
    declared = "x[N]; p[N] > 0; bool m[N]; index h < N//2; index i < N"
    assert find_sign(system(f"{declared}\ny[i] = {value}").equations[-1].value).name == SIGNS[value]
