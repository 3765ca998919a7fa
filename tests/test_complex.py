"""Complex tensors are read, built, judged, checked and proved; comparisons are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import sympy
import torch
from fast_cases import slow_except
from texts import read_parts

import derive
from derive import Formula, build, parse, show
from derive.errors import DeriveError
from derive.frontend.from_sympy import to_system
from derive.judge.samples import draw_inputs
from derive.prove import prove

PARTS = read_parts(Path(__file__).with_name("complex.txt"))
FORMULAS = {name: text for name, (text,) in PARTS.items()}


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


REFUSED = {
    "complex z[N]; y[n] = relu(z[n])": "complex-number",
    "complex z[N]; y[n] = tanh(z[n])": "complex-number",
    "complex z[N]; y[n] = sqrt(z[n])": "complex-number",
    "complex z[N]; y[n] = 2**z[n]": "complex-number",
    "complex z[N]; y = max[n](z[n])": "complex-number",
    "complex z[N]; y[n] = softmax[n](z[n])": "complex-number",
    "complex z[N]; y[n] = [z[n] > 0]": "complex-number",
    "complex z[N]; y = var[n](z[n])": "complex-number",
    "x[N]; y[n] = log(I * x[n])": "complex-number",
    "x[N]; y[n] = im(x[n])": "complex-number",
    "complex z[N] > 0; y[n] = z[n]": "bound-form",
}


@pytest.mark.parametrize("text", REFUSED)
def test_comparisons_of_complex_values_are_refused(text):
    with pytest.raises(DeriveError) as error:
        build(parse(text))
    assert error.value.diagnostic.code == REFUSED[text]
    assert error.value.diagnostic.help


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
    for code, grade in zip(CODES[name], ("proved", "different"), strict=True):
        source = f"import torch\ndef f({names}):\n    return {code}\n"
        assert derive.check(source, formula).grade == grade


def prove_texts(declared, one, other):
    texts = [f"{declared}\ny[n] = {value}" for value in (one, other)]
    return prove(*(to_system(parse(text)) for text in texts)) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("conj(conj(z[n]))", "z[n]"),
        ("conj(z[n] * w[n] + x[n])", "conj(w[n]) * conj(z[n]) + x[n]"),
        ("re(z[n]) + I * im(z[n])", "z[n]"),
        ("im(z[n])", "-re(I * z[n])"),
        ("abs(z[n])**2", "re(z[n])**2 + im(z[n])**2"),
        ("abs(z[n])", "sqrt(re(z[n])**2 + im(z[n])**2)"),
        ("conj(exp(I * z[n]))", "exp(-I * conj(z[n]))"),
        ("exp(I * x[n]) * exp(-I * x[n]) * z[n]", "z[n]"),
        ("conj(where(m[n], z[n], 1))", "where(m[n], conj(z[n]), 1)"),
        ("1 / (I**3 * z[n])", "I / z[n]"),
        ("conj(sum[k](z[k] * x[n]))", "x[n] * sum[k](conj(z[k]))"),
        ("conj(prod[k](z[k])) * x[n]", "x[n] * prod[k](conj(z[k]))"),
        ("abs(re(z[n]))**2", "re(z[n])**2"),
    ],
)
def test_identities_are_proved(one, other):
    assert prove_texts("complex z, w[N]; x[N]; bool m[N]", one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("conj(z[n])", "z[n]"),
        ("abs(z[n])**2", "z[n]**2"),
        ("abs(z[n]**2)", "z[n]**2"),
        ("sqrt(re(z[n]**2)**2)", "re(z[n]**2)"),
        ("abs(re(z[n]) * im(z[n]))", "re(z[n]) * im(z[n])"),
        ("conj(exp(I * z[n]))", "exp(-I * z[n])"),
        ("arg(exp(I * x[n]))", "x[n]"),
        ("log(re(exp(z[n]))**2 + 1)", "2 * re(z[n])"),
        ("I * z[n]", "-I * z[n]"),
        ("log(re(exp(w[n] + z[n]))**2)", "2 * re(w[n]) + log(re(exp(z[n]))**2)"),
    ],
)
def test_identities_of_real_numbers_are_not_proved_for_complex_ones(one, other):
    assert not prove_texts("complex z, w[N]; x[N]; bool m[N]", one, other)


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
