"""Polynomials over sizes and indices, judged by evaluating expressions over fractions."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ir_values import evaluate

from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, add_all, evaluate_atom, evaluate_extent
from derive.ir.text import to_text

B, D, H, S = (ir.Size(name) for name in "BDHS")
i, j = ir.Index("i", S), ir.Index("j", S)


def number(value):
    return ir.Number(Fraction(value))


def over(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    return ir.Mul((one, ir.Pow(other, number(-1))))


SIZES = st.fixed_dictionaries({name: st.integers(1, 6) for name in "BDHS"})
POSITIVE = st.integers(1, 3).map(number)
LEAVES = st.one_of(
    st.sampled_from([B, D, H, S]), st.fractions(-3, 3, max_denominator=3).map(number)
)


def grow(inner):
    """Sums, products, whole powers, quotients and the opaque functions."""
    pairs = st.tuples(inner, inner)
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: ir.Add(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: ir.Mul(tuple(parts))),
        st.builds(lambda base, n: ir.Pow(base, number(n)), inner, st.integers(-2, 3)),
        st.builds(lambda a, b: ir.Call("floordiv", (a, b)), inner, POSITIVE),
        st.builds(lambda a, b: ir.Call("mod", (a, b)), inner, POSITIVE),
        pairs.map(lambda pair: ir.Call("max", pair)),
        pairs.map(lambda pair: ir.Call("min", pair)),
    )


EXPRESSIONS = st.recursive(LEAVES, grow, max_leaves=6)


def value_of(polynomial, at):
    return polynomial.evaluate(lambda atom: evaluate_atom(atom, at))


def evaluate_or_leave(expr, at):
    """The value, where there is one: what divides by zero is left out."""
    try:
        return evaluate(expr, at)
    except ZeroDivisionError:
        assume(False)


@given(EXPRESSIONS, SIZES)
def test_a_polynomial_has_the_value_of_its_expression(expr, at):
    expected = evaluate_or_leave(expr, at)
    assert value_of(Polynomial.of(expr), at) == expected


@given(EXPRESSIONS, SIZES)
def test_the_way_back_keeps_value_and_polynomial(expr, at):
    expected = evaluate_or_leave(expr, at)
    back = Polynomial.of(expr).to_expr()
    assert evaluate(back, at) == expected
    assert Polynomial.of(back) == Polynomial.of(expr)
    assert Polynomial.of(back).to_expr() is back


@given(EXPRESSIONS, EXPRESSIONS, SIZES)
def test_arithmetic(one, other, at):
    p, q = Polynomial.of(one), Polynomial.of(other)
    a, b = evaluate_or_leave(one, at), evaluate_or_leave(other, at)
    assert value_of(p + q, at) == a + b
    assert value_of(p - q, at) == a - b
    assert value_of(p * q, at) == a * b
    assert value_of(add_all([p, q, p]), at) == 2 * a + b
    assert p + q == q + p
    assert p * q == q * p
    assert hash(p * q) == hash(q * p)
    assert (p * q).to_expr() is (q * p).to_expr()
    assert (p - p).terms == {}


@given(EXPRESSIONS, st.sampled_from([B, D, H, S]), SIZES)
def test_split_is_linear_in_the_atom(expr, atom, at):
    polynomial = Polynomial.of(expr)
    halves = polynomial.split_linear(atom)
    if halves is None:
        return
    coefficient, rest = halves
    assert coefficient * Polynomial.of(atom) + rest == polynomial
    assert all(atom is not met for half in halves for met in half.atoms)
    slope = evaluate_or_leave(coefficient.to_expr(), at)
    more = at | {atom.name: at[atom.name] + 1}
    step = evaluate_or_leave(expr, more) - evaluate_or_leave(expr, at)
    assert step == slope


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (ir.Add((S, number(-1), S)), "2 * S - 1"),
        (ir.Mul((ir.Add((H, B)), ir.Add((H, ir.Mul((number(-1), B)))))), "-B**2 + H**2"),
        (ir.Pow(ir.Add((S, number(1))), number(2)), "S**2 + 2 * S + 1"),
        (ir.Mul((D, H, B)), "B * D * H"),
        (ir.Add((S, ir.Mul((number(-1), S)))), "0"),
        (ir.Mul((H, over(D, H))), "D"),
        (ir.Mul((over(D, H), over(H, ir.Mul((D, D))))), "1 / D"),
        (ir.Add((ir.Call("floordiv", (S, number(2))), B)), "B + S // 2"),
        (ir.Pow(S, number(0)), "1"),
    ],
)
def test_one_form_for_what_is_equal(expr, text):
    got = to_text(Polynomial.of(expr).to_expr())
    assert got.replace("D**-1", "1 / D") == text


def test_indices_of_one_name_and_two_extents_stay_apart():
    other = ir.Index("i", D)
    assert Polynomial.of(ir.Mul((i, other))) == Polynomial.of(ir.Mul((other, i)))
    assert Polynomial.of(i) != Polynomial.of(other)
    named_alike = ir.Size("i")
    assert Polynomial.of(ir.Mul((i, named_alike))) == Polynomial.of(ir.Mul((named_alike, i)))
    one, two = Polynomial.of(ir.Add((i, other))), Polynomial.of(ir.Add((other, i)))
    assert one.to_expr() is two.to_expr()


def test_an_extent_that_is_no_whole_number_is_refused():
    with pytest.raises(DeriveError) as caught:
        evaluate_extent(over(D, H), {"D": 10, "H": 4})
    diagnostic = caught.value.diagnostic
    assert diagnostic.code == "extent-not-whole"
    assert str(diagnostic) == (
        "extent-not-whole: the extent D / H is 5/2\n"
        "  at D=10, H=4\n"
        "  help: give sizes for which it is a whole number"
    )


def test_a_size_that_is_not_given_is_named():
    with pytest.raises(KeyError, match="D"):
        evaluate_extent(ir.Mul((S, D)), {"S": 3})
    with pytest.raises(KeyError, match=r"x\[i\]"):
        evaluate_extent(ir.Access(ir.Tensor("x", (S,)), (i,)), {"S": 3})
