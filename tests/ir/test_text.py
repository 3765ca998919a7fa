"""The printed notation: each node's text, its place in the line, and the lines of a system."""

from __future__ import annotations

import ast
from fractions import Fraction
from math import floor

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from derive.frontend.from_sympy import from_sympy, show
from derive.frontend.from_text import parse
from derive.ir.nodes import (
    MINUS_INFINITY,
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Access,
    Add,
    Along,
    And,
    Call,
    Compare,
    Equation,
    Index,
    Infinity,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Reduce,
    Scalar,
    ScalarInput,
    Size,
    SizeInput,
    System,
    Tensor,
    Where,
)
from derive.ir.text import find_span, to_declaration, to_lines, to_text

N, D = Size("N"), Size("D")
i, j = Index("i", N), Index("j", N)
a, b, c = Scalar("a"), Scalar("b"), Scalar("c")
X, M = Tensor("x", (N,)), Tensor("m", (N, N), "bool")
x, xj = Access(X, (i,)), Access(X, (j,))


def number(value: str | int) -> Number:
    return Number(Fraction(value))


TEXTS = {
    "a - b": Add((a, Mul((MINUS_ONE, b)))),
    "-a - 2 * b - 0.5": Add((Mul((MINUS_ONE, a)), Mul((number(-2), b)), number("-1/2"))),
    "a - (b + c)": Add((a, Mul((MINUS_ONE, Add((b, c)))))),
    "a + (b + c)": Add((a, Add((b, c)))),
    "a * (b * c)": Mul((a, Mul((b, c)))),
    "a / b / c": Mul((a, Pow(b, MINUS_ONE), Pow(c, MINUS_ONE))),
    "a / (b * c)": Mul((a, Pow(Mul((b, c)), MINUS_ONE))),
    "1 / b * a": Mul((Pow(b, MINUS_ONE), a)),
    "1 / a**2": Pow(a, number(-2)),
    "a * (-b)": Mul((a, Mul((MINUS_ONE, b)))),
    "a * (1 / 3)": Mul((a, number("1/3"))),
    "(-a)**2": Pow(Mul((MINUS_ONE, a)), number(2)),
    "-a**2": Mul((MINUS_ONE, Pow(a, number(2)))),
    "(a**b)**c": Pow(Pow(a, b), c),
    "a**(b**c)": Pow(a, Pow(b, c)),
    "2**(-a)": Pow(number(2), Mul((MINUS_ONE, a))),
    "sqrt(a + b)": Pow(Add((a, b)), number("1/2")),
    "1e-5": number("1/100000"),
    "-2.5e-7": number("-25/100000000"),
    "0.044715": number("44715/1000000"),
    "12.5": number("25/2"),
    "0.0001": number("1/10000"),
    "1 / 3": number("1/3"),
    "-oo": MINUS_INFINITY,
    "oo": Infinity(),
    "a * b // c": Call("floordiv", (Mul((a, b)), c)),
    "a * (b // c)": Mul((a, Call("floordiv", (b, c)))),
    "(a + b) % c": Call("mod", (Add((a, b)), c)),
    "-(a // b) * c": Mul((MINUS_ONE, Call("floordiv", (a, b)), c)),
    "c - (a % b)": Add((c, Mul((MINUS_ONE, Call("mod", (a, b)))))),
    "max(a, b, 0)": Call("max", (a, b, ZERO)),
    "pi": Call("pi", ()),
    "x[i//2]": Access(X, (Call("floordiv", (i, number(2))),)),
    "m[2*i + 1,j%N]": Access(M, (Add((Mul((number(2), i)), ONE)), Call("mod", (j, N)))),
    "[i <= j]": Where(Compare("<=", i, j), ONE, ZERO),
    "where(i <= j, a, -oo)": Where(Compare("<=", i, j), a, MINUS_INFINITY),
    "0 <= i < N": And((Compare("<=", ZERO, i), Compare("<", i, N))),
    "i == j and not m[i,j]": And((Compare("==", i, j), Not(Access(M, (i, j))))),
    "(i == j or m[i,j]) and i != 0": And(
        (Or((Compare("==", i, j), Access(M, (i, j)))), Compare("!=", i, ZERO))
    ),
    "not (i == j)": Not(Compare("==", i, j)),
    "sum[i, j](a)": Reduce("sum", (i, j), TRUE, a),
    "sum[j, j < i](x[j])": Reduce("sum", (j,), Compare("<", j, i), xj),
    "var[j](x[j], correction=1)": Reduce("sample_var", (j,), TRUE, xj),
    "softmax[j, m[i,j]](x[j])": Along("softmax", j, Access(M, (i, j)), xj),
    "2 * sum[j](x[j] + a)": Mul((number(2), Reduce("sum", (j,), TRUE, Add((xj, a))))),
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_a_node(text):
    assert to_text(TEXTS[text]) == text


def test_span_of_a_node():
    total = Reduce("sum", (j,), TRUE, Mul((Add((x, a)), xj)))
    equation = Equation(Access(Tensor("y", (N,)), (i,)), Add((x, total)))
    line = to_text(equation)
    assert line == "y[i] = x[i] + sum[j]((x[i] + a) * x[j])"
    for part, text in ((x, "x[i]"), (total, line[14:]), (xj, "x[j]"), (a, "a")):
        start, end = find_span(equation, part)
        assert line[start:end] == text
    assert find_span(equation, x) == (7, 11)
    assert find_span(equation, b) is None


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (Tensor("x", (N, Mul((number(2), D)))), "x[N, 2*D]"),
        (Tensor("t", (N,), "int", D), "int t[N] < D"),
        (Tensor("t", (N,), "int"), "int t[N]"),
        (M, "bool m[N, N]"),
        (Tensor("x", (N,), lower=ZERO, strict=(True, False)), "x[N] > 0"),
        (Tensor("x", (N,), lower=ZERO, upper=ONE, strict=(False, True)), "0 <= x[N] < 1"),
        (Tensor("x", (N,), upper=ONE), "x[N] <= 1"),
    ],
)
def test_declarations(tensor, text):
    assert to_declaration(tensor) == text


def test_lines_of_a_system():
    t, w = Index("t", Add((Mul((MINUS_ONE, D)), N, ONE))), Index("w", Size("W"))
    weights, y, z = Tensor("v", (N,)), Tensor("y", (t.extent,)), Tensor("z", (Size("W"),))
    system = System(
        "shifted",
        (ScalarInput("eps", number("1/1000")), ScalarInput("tau"), X, weights, M),
        (SizeInput("D"), SizeInput("W", 2)),
        (
            Equation(Access(y, (t,)), Access(X, (Add((t, ONE)),))),
            Equation(Access(z, (w,)), Mul((w, Scalar("tau")))),
        ),
        (y, z),
    )
    assert to_lines(system) == (
        "scalar eps = 0.001, tau; x, v[N]; bool m[N, N]",
        "size D",
        "size W = 2",
        "index t < N - D + 1",
        "index w < W",
        "y[t] = x[t + 1]",
        "z[w] = w * tau",
        "return y, z",
    )


@pytest.mark.parametrize(
    "text",
    [
        "x[N]; w[K]; index t < K; y[t] = x[t] * w[t]",  # the first plain use tells another extent
        "x[N]; index t < N; y[t] = x[t]",
        "x[N]; index t < 2; y[t] = x[t]; z[i] = x[i]; u[t] = w[t]; w2[t] = x[t]".replace(
            "w[t]", "y[t]"
        ),
        "x[N]; index u, v < N - 1; y[u,v] = x[u + v]; z[u] = sum[v](y[u,v])",
        "a[H, D]; y[h*D + d] = a[h,d]; z[m] = y[m]",
    ],
)
def test_index_lines_keep_the_extents(text):
    first = from_sympy(parse(text))
    assert from_sympy(parse("\n".join(to_lines(first)))) == first


# --- the text holds together as the tree does -----------------------------------------------------

NUMBERS = st.sampled_from([0, 1, -1, 2, -3, "1/2", "-1/3", "7/4", "1/1000"]).map(number)
LEAVES = st.one_of(NUMBERS, st.sampled_from([a, b, c]))
RELATIONS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def extend(inner):
    some = st.lists(inner, min_size=2, max_size=3).map(tuple)
    condition = st.builds(Compare, RELATIONS, inner, inner)
    conditions = st.one_of(
        condition,
        st.builds(Not, condition),
        st.lists(condition, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(condition, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
    )
    return st.one_of(
        st.builds(Add, some),
        st.builds(Mul, some),
        st.builds(Pow, inner, st.sampled_from([number(2), number(3), MINUS_ONE])),
        st.builds(lambda e: Mul((MINUS_ONE, e)), inner),
        st.builds(lambda l, r: Call("floordiv", (l, r)), inner, inner),
        st.builds(lambda l, r: Call("mod", (l, r)), inner, inner),
        st.builds(lambda l, r: Call("max", (l, r)), inner, inner),
        st.builds(Where, conditions, inner, inner),
    )


EXPRESSIONS = st.recursive(LEAVES, extend, max_leaves=8)
VALUES = {"a": Fraction(2), "b": Fraction(-3, 5), "c": Fraction(7, 3)}
COMPARING = {
    "<": Fraction.__lt__,
    "<=": Fraction.__le__,
    ">": Fraction.__gt__,
    ">=": Fraction.__ge__,
    "==": Fraction.__eq__,
    "!=": lambda left, right: left != right,
}


def evaluate(expr):
    """The value of a tree, without its text."""
    match expr:
        case Number(value):
            return value
        case Scalar(name):
            return VALUES[name]
        case Add(terms):
            return sum(map(evaluate, terms), Fraction(0))
        case Mul(factors):
            total = Fraction(1)
            for factor in factors:
                total *= evaluate(factor)
            return total
        case Pow(base, Number(power)):
            return evaluate(base) ** int(power)
        case Call(name, (left, right)):
            build = {"floordiv": Fraction.__floordiv__, "mod": Fraction.__mod__, "max": max}[name]
            return Fraction(build(evaluate(left), evaluate(right)))
        case Where(condition, then, other):
            return evaluate(then) if evaluate(condition) else evaluate(other)
        case Compare(relation, left, right):
            return COMPARING[relation](evaluate(left), evaluate(right))
        case And(parts):
            return all(map(evaluate, parts))
        case Or(parts):
            return any(map(evaluate, parts))
        case Not(part):
            return not evaluate(part)


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
        expected = evaluate(expr)
    except ZeroDivisionError:
        assume(False)
    assert evaluate_text(to_text(expr)) == expected


@given(EXPRESSIONS)
def test_the_text_is_read_back(expr):
    text = f"scalar a, b, c\ny = {to_text(expr)}"
    try:
        formula = parse(text)
    except Exception as error:  # a division by what is written as 0 is refused
        assert "division-by-zero" in str(error)
        assume(False)
    shown = show(formula)
    assert show(parse(shown)) == shown
    try:
        expected = evaluate(expr)
    except ZeroDivisionError:
        assume(False)
    assert evaluate_text(shown.splitlines()[-1].removeprefix("y = ")) == expected
