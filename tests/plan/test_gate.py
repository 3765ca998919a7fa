"""The gate: a file that a wrong rule, or a wrong line, made is refused, and nothing is written."""

from dataclasses import replace
from fractions import Fraction

import pytest

from derive import build, parse
from derive.errors import DeriveError
from derive.ir.nodes import Add, Along, Call, Mul, Number, Reduce
from derive.rewrite import recipes
from derive.rewrite.rule import rule

EXAMPLE = dict(before="x[N]; y[i] = x[i]", after="x[N]; y[i] = x[i]", refuses="x[N]; y[i] = x[i]")
LOGITS = """
q[B, S, D]; k[B, S, D]; m[S]
a[b,i,j] = softmax[j](sum[d](q[b,i,d] * k[b,j,d]) + m[j] * 0.0000000001)
"""


@rule(law="softmax_j(e + m_j) = softmax_j(e), which is wrong", **EXAMPLE)
def drop_too_much(expr: Along):
    match expr:
        case Along("softmax", index, condition, Add((first, *_))):
            return Along("softmax", index, condition, first)
        case _:
            return None


@rule(law="exp(a) = exp(a) * (1 + 1e-13), which is wrong", **EXAMPLE)
def round_a_little(expr: Call):
    match expr:
        case Call("exp", (arg,)) if not isinstance(arg, Mul):
            factor = Number(1 + Fraction(1, 10**13))
            return Mul((factor, Call("exp", (Mul((arg, Number(Fraction(1)))),))))
        case _:
            return None


@rule(law="sum_j f = sum_j f without its last factor, which is wrong", **EXAMPLE)
def lose_a_factor(expr: Reduce):
    match expr:
        case Reduce("sum", bound, condition, Mul((one, _, _))):
            return Reduce("sum", bound, condition, one)
        case _:
            return None


def plant(monkeypatch, wrong):
    monkeypatch.setattr(recipes, "RULES", (wrong, *recipes.RULES))


def refuse(built, folder):
    with pytest.raises(DeriveError, match="gate-failed"):
        built.write(folder)
    assert not list(folder.iterdir())


def test_a_wrong_rule_is_caught(monkeypatch, tmp_path):
    plant(monkeypatch, lose_a_factor)
    text = "A[M, N]; B[N, K]; C[N]\nD[i,k] = sum[j](A[i,j] * B[j,k] * C[j])"
    refuse(build(parse(text)), tmp_path)


def test_a_wrong_term_that_float64_does_not_show_is_caught(monkeypatch, tmp_path):
    plant(monkeypatch, drop_too_much)
    refuse(build(parse(LOGITS)), tmp_path)


def test_a_wrong_factor_that_float64_does_not_show_is_caught(monkeypatch, tmp_path):
    plant(monkeypatch, round_a_little)
    refuse(build(parse("x[N]; y[i] = exp(x[i])")), tmp_path)


def test_a_line_that_is_wrong_in_blocks_alone_is_caught(tmp_path):
    text = "x[N, D]; y[M, D]\nd[i,j] = sum[k](tanh(x[i,k] - y[j,k]))"
    built = build(parse(text), sizes=dict(N=1024, M=1024, D=64))
    assert built.plan.tile is not None
    built.judge()
    name = built.plan.tile.sliced[0][0]
    wrong = built.source.replace(f"for {name} in", f"for {name}, _ in zip(").replace(
        ".split(block, 0):", ".split(block, 0), range(1)):"
    )
    assert wrong != built.source
    refuse(replace(built, source=wrong), tmp_path)


def test_a_right_file_is_written(tmp_path):
    written = build(parse(LOGITS, "logits")).write(tmp_path)
    assert [written] == list(tmp_path.iterdir())


def test_what_is_always_nan_is_not_judged():
    with pytest.raises(DeriveError, match="always-nan: every element of formula is nan"):
        build("x[N]; y[i] = log(-1 - x[i]**2)").judge()
    assert build("x[N]; y[i] = log(x[i])").judge().agrees  # nan for some


def test_a_plan_that_parts_angles_is_judged_in_floats(monkeypatch, tmp_path):
    """cos(a - b) by cosines and sines of a and b is right, which no hash of an angle tells."""
    text = "q[K, D]; r[N, D]\nA[k] = sum[n, m](cos(sum[d](q[k,d] * (r[n,d] - r[m,d]))))"
    built = build(parse(text), sizes=dict(K=64, N=64, D=4))
    assert built.source.count("torch.sin(") == 1
    assert built.write(tmp_path)
    plant(monkeypatch, lose_a_factor)
    text = "q[K]; r[N]; f[N]\nA[k] = sum[n](q[k] * f[n] * cos(r[n]))"
    with pytest.raises(DeriveError, match="gate-failed"):
        build(parse(text)).write(tmp_path)


# Formulas that rounding changes much, or that have no value at size 1; a part of the formula, and
# what stands there in a wrong one.
ILL = {
    "a quotient by 0 at size 1": (
        "x, g, h[N]; C[a,b] = x[a] + (g[a]*h[b] - g[b]*h[a])/(N - 1)",
        ("h[b] - g", "h[b] + g"),
    ),
    "squares that cancel": (
        "x[N]; y[i] = (x[i] + 10**8)**2 - x[i]**2 - 10**16",
        ("- x[i]**2", "+ x[i]**2"),
    ),
    "a variance far from 0": (
        "x[N]; m = mean[i](x[i]); v = mean[i]((x[i] + 10**6)**2) - mean[i](x[i] + 10**6)**2; "
        "y[i] = (x[i] - m)/sqrt(v)",
        ("(x[i] - m)", "(x[i] + m)"),
    ),
    "conjugate gradients beyond the last step": (
        """M[N, N]; b[N]; size T; index t < T + 6; A[i,j] = sum[k](M[k,i]*M[k,j])
        r[t,i] = where(t == 0, b[i], r[t-1,i] - al[t-1]*q[t-1,i])
        p[t,i] = where(t == 0, b[i],
            r[t,i] + sum[j](r[t,j]**2)/sum[j](r[t-1,j]**2)*p[t-1,i])
        q[t,i] = sum[j](A[i,j]*p[t,j]); al[t] = sum[i](r[t,i]**2)/sum[i](p[t,i]*q[t,i])
        x[t,i] = where(t == 0, 0*b[i], x[t-1,i] + al[t-1]*p[t-1,i]); return x""",
        ("x[t-1,i] + al", "x[t-1,i] - al"),
    ),
}
SLOW = {"conjugate gradients beyond the last step"}
TITLES = [pytest.param(t, id=t, marks=[pytest.mark.slow] * (t in SLOW)) for t in ILL]


@pytest.mark.parametrize("title", TITLES)
def test_what_rounding_alone_may_do_is_no_fault(title, tmp_path):
    text, _ = ILL[title]
    assert build(parse(text)).write(tmp_path)


@pytest.mark.parametrize("title", TITLES)
def test_what_rounding_alone_cannot_do_is_one(title, tmp_path):
    text, (right, wrong) = ILL[title]
    assert right in text
    wrong = build(parse(text.replace(right, wrong))).source
    refuse(replace(build(parse(text)), source=wrong), tmp_path)
