"""The printed notation: each node's text, its place in the line, and the lines of a system."""

import ast
from fractions import Fraction
from math import floor

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from ir_values import evaluate
from sympy import Eq, Float, Integer, Rational
from texts import Expressions

from derive import DeriveError, Formula, indices, parse, show, sizes, tensors
from derive.frontend.from_sympy import from_sympy
from derive.ir import nodes as ir
from derive.ir.pieces import is_readable, write_number
from derive.ir.text import to_declaration, to_lines, to_text

ROWS = Expressions(__file__, "text_rows.txt", globals())

N, D = ir.Size("N"), ir.Size("D")
i, j = ir.Index("i", N), ir.Index("j", N)
a, b, c = ir.Scalar("a"), ir.Scalar("b"), ir.Scalar("c")
X, M = ir.Tensor("x", (N,)), ir.Tensor("m", (N, N), "bool")
x, xj = ir.Access(X, (i,)), ir.Access(X, (j,))


def number(value: str | int) -> ir.Number:
    return ir.Number(Fraction(value))


TEXTS = dict(ROWS["texts"])


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_a_node(text):
    assert to_text(TEXTS[text]) == text


@pytest.mark.parametrize(("tensor", "text"), ROWS["declarations"])
def test_declarations(tensor, text):
    assert to_declaration(tensor) == text


@pytest.mark.parametrize("text", ROWS["index lines keep the extents"])
def test_index_lines_keep_the_extents(text):
    first = from_sympy(parse(text))
    assert from_sympy(parse("\n".join(to_lines(first)))) == first


# --- the text holds together as the tree does -----------------------------------------------------

NUMBERS = st.sampled_from([0, 1, -1, 2, -3, "1/2", "-1/3", "7/4", "1/1000"]).map(number)
LEAVES = st.one_of(NUMBERS, st.sampled_from([a, b, c]))
RELATIONS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def negate(expr):
    return ir.Mul((ir.MINUS_ONE, expr))


def extend(inner):
    some = st.lists(inner, min_size=2, max_size=3).map(tuple)
    condition = st.builds(ir.Compare, RELATIONS, inner, inner)
    conditions = st.one_of(
        condition,
        st.builds(ir.Not, condition),
        st.lists(condition, min_size=2, max_size=3).map(lambda parts: ir.And(tuple(parts))),
        st.lists(condition, min_size=2, max_size=3).map(lambda parts: ir.Or(tuple(parts))),
    )
    return st.one_of(
        st.builds(ir.Add, some),
        st.builds(ir.Mul, some),
        st.builds(ir.Pow, inner, st.sampled_from([number(2), number(3), ir.MINUS_ONE])),
        st.builds(negate, inner),
        st.builds(lambda l, r: ir.Call("floordiv", (l, r)), inner, inner),
        st.builds(lambda l, r: ir.Call("mod", (l, r)), inner, inner),
        st.builds(lambda l, r: ir.Call("max", (l, r)), inner, inner),
        st.builds(ir.Where, conditions, inner, inner),
    )


EXPRESSIONS = st.recursive(LEAVES, extend, max_leaves=8)
VALUES = {"a": Fraction(2), "b": Fraction(-3, 5), "c": Fraction(7, 3)}


class Exact(ast.NodeTransformer):
    """Numbers as fractions, brackets as 1 or 0, `where` as a lazy choice."""

    def __init__(self, text: str) -> None:
        self.text = text

    def visit_Constant(self, node):
        source = ast.get_source_segment(self.text, node)
        return ast.parse(f"Fraction('{source}')", mode="eval").body

    def visit_List(self, node):
        (condition,) = map(self.visit, node.elts)
        return ast.IfExp(
            condition, *(ast.parse(f"Fraction({k})", mode="eval").body for k in (1, 0))
        )

    def visit_Call(self, node):
        arguments = [self.visit(argument) for argument in node.args]
        if node.func.id == "where":
            return ast.IfExp(*arguments)
        return ast.Call(node.func, arguments, [])


def evaluate_text(text: str) -> Fraction:
    """The value of a text by Python's own grammar."""
    tree = ast.fix_missing_locations(Exact(text).visit(ast.parse(text, mode="eval")))
    return eval(compile(tree, "text", "eval"), {"Fraction": Fraction, "floor": floor, **VALUES})


@given(EXPRESSIONS)
def test_the_text_means_what_the_tree_means(expr):
    try:
        expected = evaluate(expr, VALUES)
    except ZeroDivisionError:
        assume(False)
    assert evaluate_text(to_text(expr)) == expected


@given(EXPRESSIONS)
@example(negate(negate(ir.Mul((ir.ZERO, ir.ZERO)))))
@example(ir.Add((a, negate(ir.Mul((ir.ZERO, b))))))
@example(ir.Mul((negate(ir.ONE), number(-1))))
def test_the_text_is_read_back(expr):
    text = f"scalar a, b, c\ny = {to_text(expr)}"
    try:
        formula = parse(text)
    except Exception as error:  # a divisor that is written as 0 is an error
        assert "division-by-zero" in str(error)
        assume(False)
    shown = show(formula)
    assert show(parse(shown)) == shown
    try:
        expected = evaluate(expr, VALUES)
    except ZeroDivisionError:
        assume(False)
    assert evaluate_text(shown.splitlines()[-1].removeprefix("y = ")) == expected


WRITTEN = dict(ROWS["written"])
AT_THE_LIMIT = ("1e-300", "1e300", "9.75e-300", "1" * 300, "1" + "0" * 299, "1" * 296 + "e-99")
BEYOND = ROWS["beyond"]


@pytest.mark.parametrize("text", WRITTEN)
def test_the_text_of_a_number(text: str) -> None:
    assert write_number(Fraction(WRITTEN[text])) == text


@given(
    st.integers(-(10**30), 10**30),
    st.integers(-340, 340),
    st.sampled_from([1, 3, 2**30, 2**100, 3 * 10**30]),
)
def test_the_text_means_the_number(mantissa: int, power: int, under: int) -> None:
    value = Fraction(mantissa) * Fraction(10) ** power / under
    parts = write_number(value).split(" / ")
    assert Fraction(parts[0]) / Fraction(parts[-1] if len(parts) > 1 else 1) == value


@pytest.mark.parametrize("number", AT_THE_LIMIT)
def test_what_is_shown_near_the_limit_is_read_back(number: str) -> None:
    shown = show(parse(f"x[N]; z[i] = x[i] * {number}"))
    assert show(parse(shown)) == shown
    assert is_readable(number)


@pytest.mark.parametrize("number", BEYOND)
def test_what_is_beyond_the_limit_is_refused(number: str) -> None:
    with pytest.raises(DeriveError, match="number-too-long"):
        parse(f"x[N]; z[i] = x[i] * {number}")


def scale(number):
    """z[i] = x[i] * number, of SymPy's objects."""
    size = sizes("N")
    index = indices("i", size)
    return Formula(Eq(tensors("z")[index], tensors("x", size)[index] * number))


@pytest.mark.parametrize("number", [Integer(10) ** 5000, Rational(1, 3**700), Float("1e-305")])
def test_numbers_of_sympy_beyond_the_limit_are_refused(number: object) -> None:
    with pytest.raises(DeriveError, match="number-too-long"):
        show(scale(number))
