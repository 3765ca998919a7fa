"""Options leave alone what looks alike, and lead to equal systems."""

import re

import pytest
import torch
from built import as_tensors, every_formula, read_unchecked, rename_indices, write
from hypothesis import given
from hypothesis import strategies as st
from strategies import formulas
from test_random_formulas import check_close
from texts import Expressions, read_text

from derive.analysis.names import find_mistakes
from derive.compiler import build
from derive.formulas import find_formula
from derive.frontend.from_sympy import from_sympy, to_system
from derive.frontend.from_text import parse
from derive.ir.text import to_text
from derive.judge.evaluate import evaluate_system
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs
from derive.plan.build import make_plan
from derive.rewrite.recipes import LOSSY, OPTIONS, RULES, find_rewritings, prepare

ROWS = Expressions(__file__, "options_rows.txt")

ALL = (*OPTIONS, *LOSSY)
RULE = {rule.name: rule for rule in (*RULES, *ALL)}


def list_equations(system):
    return [to_text(equation) for equation in system.equations]


def evaluate(text, system, inputs):
    return evaluate_loops(parse(text, empty_row=system.empty_row), inputs)


# Refused formulas that look like a rule's left side.


def read_refusals():
    """(rule, formula) for each line of the table."""
    text = read_text(__file__, "option_refusals.txt")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    shapes, *rest = lines
    name = ""
    for line in rest:
        if line.startswith(" "):
            yield name, f"{shapes}; {line.split('  #')[0].strip()}"
        else:
            name = line


REFUSED = list(read_refusals())
each_refused = pytest.mark.parametrize(("name", "text"), REFUSED)


def test_every_rule_has_something_to_refuse():
    assert {name for name, _ in REFUSED} >= {rule.name for rule in ALL}


@each_refused
def test_what_looks_alike_is_left_alone(name, text):
    found = [r.system for r in find_rewritings(read_unchecked(text), (RULE[name],))]
    assert [list_equations(system) for system in found] == []


# Rewritings for the search.


def test_nothing_is_found_in_places_and_conditions():
    text = "x[N]; int t[N] < N; y[i] = where(max[j](1 + x[j]) > 0, x[t[i]], 0)"
    assert list(find_rewritings(read_unchecked(text), ALL)) == []


@pytest.mark.sampled(9, 5)
@every_formula
def test_no_system_is_met_twice(name):
    written = from_sympy(find_formula(name))
    for system in (written, prepare(written)[0]):
        found = [r.system for r in find_rewritings(system, (*ALL, *ALL))]
        assert len(set(found)) == len(found)
        assert system not in found
        assert [r.system for r in find_rewritings(system, (*ALL, *ALL))] == found


def count_flops(system, sizes):
    plan = make_plan(system, sizes)
    return plan.at_sizes(plan.flops)


def find_best(system, names, sizes):
    """The fewest flops of the system itself, and after one use of one of the rules."""
    rules = tuple(RULE[name] for name in names)
    found = [count_flops(r.system, sizes) for r in find_rewritings(system, rules)]
    return count_flops(system, sizes), min(found)


def test_linear_attention_is_found():
    text = (
        "q, k[N, D]; v[N, E]; s[i,j] = sum[d](q[i,d] * k[j,d]); "
        "z[i,e] = sum[j](s[i,j] * v[j,e]) / sum[j](s[i,j])"
    )
    before, after = find_best(read_unchecked(text), ["inline_equation"], dict(N=512, D=8, E=8))
    assert 10 * after < before


@pytest.mark.sampled(9, 5)
@every_formula
def test_the_library_keeps_its_values(name):
    system = to_system(find_formula(name))
    for form in (system, prepare(system)[0]):
        (sizes,) = choose_sizes(form, count=1)
        inputs = draw_inputs(form, sizes)
        expected = evaluate_system(form, inputs, sizes)
        for found in find_rewritings(form, ALL):
            assert not list(find_mistakes(found.system)), found.rule.name
            values = evaluate_system(found.system, inputs, sizes)
            for result in form.results:
                check_close(values[result.name], expected[result.name], name)


# Random formulas.


def check_rewritings(system):
    """Every system that one rule leads to is well formed, has the values, and hides no nan."""
    text = write(system)
    sizes = dict(N=3, M=2, D=2, H=2), dict(N=1, M=3, D=4, H=2)
    draws = [draw_inputs(system, each, seed) for seed, each in enumerate(sizes)]
    expected = [as_tensors(evaluate(text, system, inputs)) for inputs in draws]
    for found in find_rewritings(system, ALL):
        assert not list(find_mistakes(found.system)), write(found.system)
        for inputs, wanted in zip(draws, expected, strict=True):
            values = as_tensors(evaluate(write(found.system), system, inputs))
            for value, want in zip(values, wanted, strict=True):
                finite = torch.isfinite(want)
                said = f"{found.rule.name}\n{text}\n{write(found.system)}"
                check_close(value[finite], want[finite], said)
                assert not bool((want.isnan() & value.isfinite()).any()), f"hidden: {said}"


@given(formulas(depth=3))
def test_random(drawn):
    check_rewritings(read_unchecked(drawn.text, drawn.empty_row))


# One index of each extent twice, so that triangles and diagonals come about.
FACTORS = (
    *("x[i]", "x[j]", "w[j]", "A[i,j]", "A[j,i]", "B[j,a]", "B[i,a]", "u[a]", "x[i]", "x[j]"),
    *("2", "tanh(w[j])", "[i >= 1] * x[i - 1]", "[m[j]]", "1 / x[i]", "(x[i] - w[j])**2"),
    *("exp(x[j])", "where(m[i], x[i], 0)", "softmax[j](A[i,j] + x[i])", "[i == j]"),
    *("sum[d](E[i,d] * E[j,d])", "sum[d, m[i]](E[j,d])", "softmax[j, j <= i](A[i,j])"),
)
CONDITIONS = (
    *("j <= i", "j < i", "i <= j", "j > i", "i != j", "i == j", "j == t[i]", "m[j]", "i >= 1"),
    *("m[i]", "x[j] > 0", "j <= i and m[j]", "i < j and i >= 1", "j != t[i]"),
)
SHAPES = "x, w[N]; A[N, N]; B[N, M]; E[N, D]; u[M]; int t[N] < N; bool m[N]; "
INDICES = "index i, j < N; index a < M; "


@st.composite
def masked_sums(draw):
    """Sums of products under conditions, alone or two of them."""
    left, bounds = draw(st.sampled_from([("y[i]", ["j", "j, a"]), ("y", ["i, j", "i, j, a"])]))
    value = ""
    for _ in range(draw(st.integers(1, 2))):
        bound = draw(st.sampled_from(bounds))
        known = [f for f in FACTORS if "a" in bound or not re.search(r"\ba\b", f)]
        factors = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
        kind = draw(st.sampled_from(["sum"] * 8 + ["max", "mean"]))
        if kind != "sum":
            factors.append("(A[i,j] + u[a] + x[i])" if "a" in bound else "(A[i,j] + x[i])")
        condition = draw(st.sampled_from(("", *CONDITIONS)))
        over = f"{bound}, {condition}" if condition else bound
        value += draw(st.sampled_from([" + ", " - "])) if value else ""
        value += f"{kind}[{over}]({' * '.join(f'({factor})' for factor in factors)})"
    return f"{SHAPES}{INDICES}{left} = {value}"


@given(masked_sums())
def test_random_masks(text):
    check_rewritings(read_unchecked(text))


@pytest.mark.parametrize(
    "condition", ["j > i", "j >= i", "j < i", "j <= i", "j < i - 1", "j > i + 1", "j >= i and m[j]"]
)
def test_a_running_sum_takes_nothing_off(condition):
    """An infinity of one place is in no row that does not read it."""
    formula = parse(f"x[N]; bool m[N]; index i < N; y[i] = sum[j, {condition}](x[j]) + 0 * [m[i]]")
    built, m = build(formula), torch.tensor([True, True, False, True, True])
    for place in range(5):
        x = torch.arange(1.0, 6.0, dtype=torch.float64)
        x[place] = torch.inf
        torch.testing.assert_close(built.function(x, m), evaluate_loops(formula, dict(x=x, m=m)))


# A few indices, bound again in every equation.
LETTERS = dict(i="N", j="N", k="N", d="D", e="D", f="D")
STOCK = dict(A="ND", B="ND", C="NN", W="DD", x="N", y="D")


@st.composite
def nested_products(draw, scope, depth, shapes):
    """Reads, sums and products of them at any depth, and now and then a largest entry."""
    free = [letter for letter in LETTERS if letter not in scope]
    kind = draw(st.integers(0, 7)) if depth else 0
    inner = nested_products(scope, depth - 1, shapes)
    if kind in {1, 2}:
        return f"({draw(inner)} {draw(st.sampled_from('+*'))} {draw(inner)})"
    if kind > 2 and free:
        bound = draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique=True))
        whole = nested_products((*scope, *bound), depth - 1, shapes)
        factors = [draw(whole) for _ in range(draw(st.integers(1, 3)))]
        factors += ["xy"[LETTERS[b] == "D"] + f"[{b}]" for b in bound if b not in str(factors)]
        kind = draw(st.sampled_from(["sum"] * 6 + ["max", "mean"]))
        return f"{kind}[{', '.join(bound)}]({' * '.join(factors)})"
    able = [n for n in shapes if all(any(LETTERS[i] == e for i in scope) for e in shapes[n])]
    if not able:
        return "2"
    name = draw(st.sampled_from(able))
    places = (st.sampled_from([i for i in scope if LETTERS[i] == e]) for e in shapes[name])
    return f"{name}[{', '.join(map(draw, places))}]"


@st.composite
def chained_sums(draw):
    """Equations of nested sums that read those before."""
    shapes, lines = dict(STOCK), []
    for name in ("r", "s", "z")[draw(st.integers(0, 1)) :]:
        left = draw(st.lists(st.sampled_from([*LETTERS]), min_size=1, max_size=3, unique=True))
        lines.append(f"{name}[{', '.join(left)}] = {draw(nested_products(left, 3, shapes))}")
        shapes |= {name: "".join(LETTERS[i] for i in left)}
    tensors = "; ".join(f"{name}[{', '.join(shape)}]" for name, shape in STOCK.items())
    letters = "; ".join(f"index {letter} < {extent}" for letter, extent in LETTERS.items())
    return "\n".join([tensors, letters, *lines])


@pytest.mark.slow
@given(chained_sums())
def test_no_letter_is_bound_again_by_what_goes_into_another_equation(text):
    system = read_unchecked(text)
    sizes = dict(N=3, D=2)
    inputs = draw_inputs(system, sizes)
    expected = as_tensors(evaluate(text, system, inputs))
    across = tuple(rule for rule in ALL if rule.across)
    for form in (system, prepare(system)[0]):
        for found in find_rewritings(form, across):
            settled = rename_indices(found.system)
            parse(write(settled))  # refuses an index that is bound inside its own scope
            values = evaluate_system(found.system, inputs, sizes)
            for result, want in zip(system.results, expected, strict=True):
                check_close(
                    values[result.name], want, f"{found.rule.name}\n{text}\n{write(found.system)}"
                )


STEEP = "x[N, D]; y[M, D]\nd[i,j] = sum[k]((x[i,k] - y[j,k])**2)\n"


@pytest.mark.parametrize(
    ("end", "found"), ROWS["no rule that loses digits under a root or a quotient"]
)
def test_no_rule_that_loses_digits_under_a_root_or_a_quotient(end, found):
    """A small negative number is nan there, or turns the sign."""
    system = read_unchecked(STEEP + end)
    names = {each.rule.name for each in find_rewritings(system, LOSSY)}
    assert ("expand_square" in names) is found


@pytest.mark.parametrize(("end", "found"), ROWS["differences are opened under norms alone"])
def test_differences_are_opened_under_norms_alone(end, found):
    """The slope of a norm is at most 1, and a vector over its norm has no scale."""
    made = "a[N, K]; x[N, D]; c[K, D]; V[k,d] = sum[i](a[i,k]*(x[i,d] - c[k,d]))"
    system = prepare(read_unchecked(f"{made}; {end}"))[0]
    names = {each.rule.name for each in find_rewritings(system, LOSSY)}
    assert ("expand_difference" in names) is found


D = "sum[c]((x[i,c] - z[j,c])**2)"
FLOORS = (  # (what is made of squared distances, does it show that they are not negative?)
    (f"k[i,j] = exp(-{D})", False),
    (f"d[i,j] = {D}; k[i,j] = exp(-d[i,j]) * d[i,j]; s[j] = sum[i](k[i,j] - 1)", False),
    (f"d[i,j] = {D}; s[i] = sum[j](max(0, d[i,j] - d[i,i] + 1)); index i, j < N", False),
    (f"d[i,j] = {D}; k[i,j] = exp(-d[i,j]); return d, k", True),
    (f"d[i,j] = {D}; s[i] = sum[j](2 * d[i,j]) + exp(-d[i,i]); index i, j < N", True),
    (f"d[i,j] = min[k]({D.replace('j', 'k')}) + {D}", True),
)


@pytest.mark.parametrize(("text", "shows"), FLOORS)
def test_squares_are_kept_from_below_zero_where_it_shows(text, shows):
    system = prepare(read_unchecked(f"x, z[N, D]; {text}"))[0]
    found = [r for r in find_rewritings(system, LOSSY) if r.rule.name == "expand_square"]
    assert found
    assert all(("max(" in write(each.system).replace("max(0, d", "")) is shows for each in found)
