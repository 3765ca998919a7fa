"""Every row of the table of functions, taken through all rooms: one row is all that it needs."""

import itertools
import math
import re
from operator import attrgetter

import mpmath
import pytest
import sympy
import torch

import derive
from derive.backend.to_latex import to_latex
from derive.frontend.from_sympy import from_sympy as to_system
from derive.ir import nodes as ir
from derive.ir.definitions import Maker, expand_call, read_definition, unfold
from derive.ir.functions import COMPOSITES, FUNCTIONS, REDUCTIONS, find_call, find_confused
from derive.ir.text import to_lines
from derive.ir.walk import walk
from derive.judge.compare import evaluate_over, use_tower
from derive.judge.fields import draw_field, find_differences
from derive.judge.loops import evaluate_loops
from derive.notation import words as notation
from derive.prove import prove

# Not tested on real numbers: functions of positions, and im, which real numbers have not.
APART = {"floordiv", "mod", "im", "imag"}
WORDS = [row for row in FUNCTIONS.values() if row.tensors and row.name not in APART]
KEPT = [row for row in COMPOSITES if row.is_kept]
CALLED = [row for row in WORDS if find_call(row.name) and not row.is_variadic]
# A root's sign, a random order that no shift keeps, and products of unknown numbers rest on chance.
BY_CHANCE = {"clip", "acosh", "selu", "hardsigmoid", "hardswish"}
EXACT = [row for row in KEPT if row.name not in BY_CHANCE]
# Arguments: inside every domain of a row, and where sums of exponentials lose their digits.
INSIDE = {"abs(x) <= 1": (-0.9, 0.3), "abs(x) < 1": (-0.9, 0.3), "x >= 1": (1.5, 30.0)}
EVERYWHERE = (-3.3, -0.4, -1e-9, 1e-9, 0.7, 2.9)
POSITIVE = {"x > 0": (1e-9, 0.7, 30.0), "x > -1": (-0.5, 1e-9, 30.0)}


def each(rows):
    return pytest.mark.parametrize("row", list(rows), ids=lambda row: row.name)


def draw_points(row):
    """Arguments at which the row has a value."""
    one = (INSIDE | POSITIVE).get(row.domain, EVERYWHERE)
    count = 2 if row.is_variadic else len(row.tensors)
    return list(itertools.islice(itertools.product(one, repeat=count), 40))


def write_formula(row, count=None):
    """`y[i] = name(x[i], z[i])`."""
    names = ["x", "z", "w"][: count or (2 if row.is_variadic else len(row.tensors))]
    given = ", ".join(f"{name}[i]" for name in names)
    domain = {"x > 0": " > 0", "abs(x) <= 1": " < 1", "abs(x) < 1": " < 1"}.get(row.domain, "")
    return f"{', '.join(names)}[N]{domain}\ny[i] = {row.name}({given})"


def evaluate_plainly(row, points):
    """The values at points, by the loops."""
    given = dict(zip("xzw", map(list, zip(*points, strict=True)), strict=False))
    return evaluate_loops(derive.parse(write_formula(row)), given)


def define(row):
    """The system of a row with the definition in place of its name."""
    system = to_system(derive.parse(write_formula(row)))
    (equation,) = system.equations
    meaning = unfold(equation.value)
    target = type(equation)(equation.target, meaning)
    return type(system)(system.name, system.inputs, system.sizes, (target,), system.results)


@each(WORDS)
def test_the_text_is_read_and_written(row):
    system = to_system(derive.parse(write_formula(row)))
    again = to_system(derive.parse("\n".join(to_lines(system))))
    assert again.equations == system.equations
    assert any(isinstance(e, ir.Call) for e in walk(system.equations[0].value)) or not row.is_kept
    assert to_latex(system.equations[0])


@each(row for row in WORDS if row.is_kept)
def test_the_class_of_sympy_is_the_word_of_the_text(row):
    x, z, w = (sympy.IndexedBase(name)[sympy.Idx("i", 5)] for name in "xzw")
    given = (x, z, w)[: 2 if row.is_variadic else len(row.tensors)]
    kind = notation.ELEMENTWISE[row.name]
    y = sympy.IndexedBase("y")[sympy.Idx("i", 5)]
    formula = derive.Formula(sympy.Eq(y, kind(*given), evaluate=False))
    assert to_system(formula).equations[0].value.function == row.name


@each(KEPT)
def test_the_value_is_that_of_the_definition(row):
    """By floats in the loops, by torch, and with fifty digits."""
    formula = derive.parse(write_formula(row))
    points = draw_points(row)
    tensors = {
        name: torch.tensor([point[k] for point in points], dtype=torch.float64)
        for k, name in enumerate(["x", "z", "w"][: len(points[0])])
    }
    built = derive.build(formula).function(**tensors)
    with mpmath.workdps(50):
        plain = evaluate_plainly(row, points)
        for point, by_loops, found in zip(points, plain, built.tolist(), strict=True):
            wanted = float(evaluate(row, [mpmath.mpf(each) for each in point]))
            least = 1e-16 * max(map(abs, point)) if row.name == "tanhshrink" else 1e-300  # x - x
            assert math.isclose(by_loops, wanted, rel_tol=4e-15, abs_tol=least)
            assert math.isclose(found, wanted, rel_tol=1e-8, abs_tol=1e-15)


def evaluate(row, point):
    """The definition with many digits."""

    def call(name, given):
        if FUNCTIONS[name].definition:
            return expand_call(name, given, make)
        special = {"max": max, "min": min, "abs": abs, "pi": lambda: +mpmath.pi}
        return (special.get(name) or getattr(mpmath, name))(*given)

    relations = {"<": float.__lt__, "<=": float.__le__, ">": float.__gt__, "==": float.__eq__}
    make = Maker(
        lambda value: mpmath.mpf(value.numerator) / value.denominator,
        lambda one, other: one + other,
        lambda one, other: one * other,
        lambda one, other: one**other,
        lambda relation, one, other: relations[relation](float(one), float(other)),
        lambda condition, one, other: one if condition else other,
        call,
    )
    assert read_definition("x", {"x": 1}, make) == 1
    return expand_call(row.name, point, make)


@each(KEPT)
def test_it_is_proved_to_be_its_definition_and_no_other(row):
    system = to_system(derive.parse(write_formula(row)))
    proof = prove(define(row), system)
    assert proof is not None and proof.every_size
    for other in find_confused(row.name)[:3]:
        names = {row.name, other}
        if FUNCTIONS[other].counts[0] == len(row.tensors) and names != {"elu", "celu"}:
            wrong = to_system(derive.parse(write_formula(row).replace(f"{row.name}(", f"{other}(")))
            assert prove(wrong, system) is None


@pytest.mark.sampled(2)
@each([row for row in CALLED if row.is_kept])
def test_torch_is_lifted_and_printed_as_one_call(row):
    call = find_call(row.name)
    act, words = find_act(row)
    names = ["x", "z"][: len(row.tensors)]
    source = f"def f({', '.join(names)}):\n    return act({', '.join(names)}, **words)\n"
    scope = {"act": act, "words": words}
    exec(source, scope)
    formula = derive.parse(write_formula(row))
    built = derive.build(formula)
    assert f"{call.path}(" in built.source
    verdict = derive.check(scope["f"], formula)
    assert verdict.grade == "proved", str(verdict)


@each(EXACT)
def test_over_fields_it_is_its_definition_with_its_gradient(row):
    """The values and the gradients by autograd agree exactly."""
    act, words = find_act(row)
    system = define(row)

    def differs(tower, *_):
        def unfolded(*given):
            values = dict(zip("xzw", given, strict=False))
            return evaluate_over(tower, system, values, {"N": 7})["y"]

        found = [
            evaluate_with_gradients(tower, row, way)
            for way in (lambda *g: act(*g, **words), unfolded)
        ]
        return any(bool(find_differences(*pair).any()) for pair in zip(*found, strict=True))

    assert not use_tower(5, differs)


def evaluate_with_gradients(tower, row, act):
    given = [draw_field(tower, (7,), k).requires_grad_() for k, _ in enumerate(row.tensors)]
    found = act(*given)
    weight = draw_field(tower, found.shape, 99)
    gradients = torch.autograd.grad((found * weight).sum(), given)
    return [found.detach(), *gradients]


@each([row for row in WORDS if row.is_kept and not row.is_variadic and row.name != "clip"])
def test_the_derivative_is_that_of_torch(row):
    """The derivative of the row, or else of its definition by SymPy."""
    act, words = find_act(row)
    i = sympy.Idx("i", sympy.Symbol("N", integer=True, positive=True))
    names = ["x", "z"][: len(row.tensors)]
    points = [
        torch.tensor(each, dtype=torch.float64) for each in zip(*draw_points(row), strict=True)
    ]
    given = [point.requires_grad_() for point in points]
    wanted = torch.autograd.grad(act(*given, **words).sum(), given)
    plain = sympy.symbols(names, real=True)
    for place, slope in zip(plain, wanted, strict=True):
        told = dict(zip(row.tensors, plain, strict=True))
        texts = dict(zip(row.tensors, row.derivative.split(";"), strict=False))
        if row.sympy and row.derivative:
            found = read_definition(
                texts[row.tensors[plain.index(place)]].strip(), told, notation.MAKER
            )
        else:
            found = sympy.diff(notation.ELEMENTWISE[row.name](*plain), place)
        elements = {each: sympy.IndexedBase(each.name, (i.upper + 1,))[i] for each in plain}
        value = sympy.sympify(found).xreplace(elements)
        formula = derive.Formula(sympy.Eq(sympy.IndexedBase("y")[i], value, evaluate=False))
        tensors = {name: each.detach() for name, each in zip(names, points, strict=True)}
        if any(value.has(element) for element in elements.values()):
            used = {n: t for n, t in tensors.items() if value.has(sympy.IndexedBase(n).label)}
            loops = derive.evaluate_loops(formula, used)
            torch.testing.assert_close(loops, slope, rtol=1e-7, atol=1e-9)


def find_act(row):
    """The torch function of a row, and its fixed keywords that are words."""
    call = find_call(row.name)
    words = {key: word for key, word in call.keywords.items() if isinstance(word, str)}
    return attrgetter(call.path.removeprefix("torch."))(torch), words


@each(row for row in WORDS if row.range != (None, None) or row.parity)
def test_range_and_parity_hold(row):
    low, high = row.range
    points = draw_points(row)
    values = evaluate_plainly(row, points)
    assert low is None or min(values) >= low
    assert high is None or max(values) <= high
    if row.parity:
        sign = -1 if row.parity == "odd" else 1
        turned = evaluate_plainly(row, [[-each for each in point] for point in points])
        assert turned == pytest.approx([sign * value for value in values])


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("log1p", 1e-20, 1e-20),
        ("expm1", 1e-20, 1e-20),
        ("mish", -1e4, 0.0),
        ("mish", 1e4, 1e4),
        ("softplus", 1e4, 1e4),
        ("gelu", -40.0, 0.0),
        ("selu", 1e4, 1.0507009873554805e4),
        ("log1p", -1.0, -math.inf),
        ("log1p", -2.0, math.nan),
        ("hypot", 1e300, 1e300),
    ],
)
def test_far_out_and_near_zero(name, value, wanted):
    """No digit is lost, and nothing overflows that has a value; gradients are finite as well."""
    given = (value, 0.0)[: len(FUNCTIONS[name].tensors)]
    (found,) = evaluate_plainly(FUNCTIONS[name], [given])
    built = derive.build(derive.parse(write_formula(FUNCTIONS[name]))).function
    tensors = [torch.tensor([each], dtype=torch.float64, requires_grad=True) for each in given]
    (code,) = built(*tensors)
    for each_value in (found, code.item()):
        assert each_value == pytest.approx(wanted, rel=1e-12, abs=1e-290, nan_ok=True)
    code.backward()
    assert torch.isfinite(tensors[0].grad).all() or not math.isfinite(wanted)


@each(row for row in REDUCTIONS if row.definition and not row.is_matrix)
def test_a_reduction_is_its_definition(row):
    """By floats and by proof."""
    bound = "j" if row.keeps else "j, m[j]"
    inner = bound.replace("j", "k")  # j is bound around it
    meaning = re.sub(r"\[j\]\((exp\(|)x\)", rf"[{inner}](\1x[i, k])", row.definition)
    meaning = re.sub(r"\bx\b(?!\[)", "x[i, j]", meaning).replace("[j]", f"[{bound}]")
    head = f"x[M, N]; bool m[N]\n{'y[i, j]' if row.keeps else 'y[i]'} = "
    call = f"{row.torch or row.name}[{bound}](x[i, j]{row.keywords and ', ' + row.keywords})"
    word, text = (derive.parse(head + each) for each in (call, meaning))
    if "mean[j]" not in row.definition:  # a count under a mask may be 0, so it does not cancel
        proof = prove(to_system(word), to_system(text))
        assert proof is not None and proof.every_size
    given = {"x": torch.randn(3, 5, dtype=torch.float64), "m": torch.arange(5) != 1}
    torch.testing.assert_close(evaluate_loops(word, given), evaluate_loops(text, given))
    place = sympy.Idx("j", 5)
    element = sympy.IndexedBase("x")[place]
    assert getattr(derive, row.sympy or row.name)(element, place).has(element)


def test_a_word_that_abbreviates_others_may_be_the_users():
    own = derive.parse("x[N]\nmish(a) = a + 1\ny[i] = mish(x[i])")
    assert to_lines(to_system(own))[-1] == "y[i] = x[i] + 1"
    with pytest.raises(derive.DeriveError, match="exp is a function of the notation"):
        derive.parse("x[N]\nexp(a) = a + 1\ny[i] = exp(x[i])")
