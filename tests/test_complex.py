"""Complex tensors are read, built, judged, and checked; comparisons are refused."""

import pytest
import sympy
import torch
from fast_cases import slow_except
from texts import read_named

import derive
from derive import Formula, build, parse, show
from derive.errors import DeriveError
from derive.judge.samples import draw_inputs

FORMULAS = read_named(__file__, "complex.txt")


@pytest.mark.parametrize("name", FORMULAS)
def test_complex_formulas_are_built_and_judged(name):
    formula = parse(FORMULAS[name])
    assert show(parse(show(formula))) == show(formula)
    assert build(formula).judge(count=2).agrees


def test_single_precision_stays():
    built = build(parse(FORMULAS["linear"]))
    given = torch.randn(3, 4, dtype=torch.complex64), torch.randn(4, 2), torch.randn(2) + 0j
    assert built.function(*given).dtype is torch.complex64


def test_autograd_gives_complex_gradients():
    built = build(parse(FORMULAS["expectation"]))
    given = [value.requires_grad_() for value in draw_inputs(built.system, {"N": 3}).values()]
    assert torch.autograd.gradcheck(built.function, given)


def test_gradients_are_refused():
    formula = parse(FORMULAS["expectation"])
    for ask in (derive.gradient, lambda f: build(f, backward=True)):
        with pytest.raises(DeriveError, match="autograd"):
            ask(formula)
    with pytest.raises(DeriveError, match="autograd"):
        derive.check("def f(psi, H):\n    return psi @ H @ psi\n", formula, backward=True)


CODES = {
    "expectation": ("torch.vdot(psi, H @ psi)", "psi @ H @ psi"),
    "kraus": ("(K @ rho @ K.mH).sum(0)", "(K @ rho @ K.mT).sum(0)"),
    "attention": (
        "((Q @ K.mH).real / Q.shape[-1] ** 0.5).softmax(-1) @ V",
        "((Q @ K.mT).real / Q.shape[-1] ** 0.5).softmax(-1) @ V",
    ),
    "overlap": (
        "torch.einsum('lm,lrs,mqs->rq', E, A, B.conj())",
        "torch.einsum('lm,lrs,mqs->rq', E, A.conj(), B)",
    ),
    "beam": ("(w.conj() @ x).abs().square().mean()", "(w @ x).abs().square().mean()"),
    "power": ("X.abs() ** 2", "(X ** 2).real"),
}


@pytest.mark.parametrize("name", slow_except(CODES, "expectation", "overlap"))
def test_check_finds_a_missing_conjugate(name):
    formula = parse(FORMULAS[name])
    names = ", ".join(entry.name for entry in build(formula).system.inputs)
    for code, is_same in zip(CODES[name], (True, False), strict=True):
        source = f"import torch\ndef f({names}):\n    return {code}\n"
        assert derive.check(source, formula).same is is_same


def test_complex_formulas_are_built_from_sympy():
    size = derive.sizes("N")
    i, j = derive.indices("i j", size)
    psi, h = derive.tensors("psi", size, dtype=complex), derive.tensors("H", size, size)
    y = derive.tensors("y")
    value = sympy.Sum(sympy.conjugate(psi[i]) * h[i, j] * psi[j], i, j)
    formula = Formula(sympy.Eq(y, sympy.re(value * sympy.I)))
    assert show(formula).startswith("complex psi[N]; H[N, N]")
    assert build(formula, name="energy").judge(count=1).agrees


def test_values_of_the_wrong_kind_are_refused():
    formula = parse("x[N]; y[n] = x[n] * I")
    with pytest.raises(DeriveError, match="real by its declaration"):
        derive.evaluate_loops(formula, {"x": torch.zeros(2, dtype=torch.complex128)})
    with pytest.raises(ValueError, match="complex numbers"):
        build(parse("complex z[N]; y[n] = z[n]")).function(torch.zeros(2))
