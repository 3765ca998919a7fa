"""The judge of a file's text: right files pass, and each way to be wrong is found and said."""

import math
from typing import Any

import pytest
import torch

from derive.errors import DeriveError
from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.judge.compare import compare_values, judge_source, raise_unless_agrees
from derive.judge.samples import choose_sizes

TEXT = (
    "Q, K[B, S, D]; V[B, S, E]; bool m[B, S]; scalar tau = 2\n"
    "a[b,i,j] = softmax[j, m[b,j]](sum[d](Q[b,i,d] * K[b,j,d]) / tau)\n"
    "z[b,i,e] = sum[j](a[b,i,j] * V[b,j,e])\n"
    "return z, a"
)
FORMULA = parse(TEXT)
SYSTEM = from_sympy(FORMULA)
DRAWS = choose_sizes(SYSTEM)

RIGHT = """
import torch

def attend(Q, K, V, m, tau=2.0):
    s = torch.einsum("bid,bjd->bij", Q, K) / tau
    a = s.masked_fill(~m[:, None, :], -torch.inf).softmax(-1)
    return torch.einsum("bij,bje->bie", a, V), a
"""

WRONG = {
    "the wrong index": ("softmax(-1)", "softmax(1)"),
    "the default baked in": (" / tau", " / 2.0"),
    "the mask left out": (".masked_fill(~m[:, None, :], -torch.inf)", ""),
    "the mask turned around": ("~m[", "m["),
    "a finite mask": ("-torch.inf", "-1e9"),
    "float32 inside": ("/ tau", "/ tau\n    s = s.float().double()"),
    "an offset of 1e-7": ("a, V), a", "a, V) + 1e-7, a"),
    "the results exchanged": ("a, V), a", "a, V).nan_to_num(), a"),
}


def judge(source: str) -> Any:
    return judge_source(source, "attend", FORMULA, SYSTEM, DRAWS)


def test_a_right_file() -> None:
    judgement = judge(RIGHT)
    assert judgement.agrees
    assert judgement.where == ""
    assert judgement.worst < 1e-13
    assert list(judgement.sizes) == DRAWS
    raise_unless_agrees(judgement)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file(name: str) -> None:
    old, new = WRONG[name]
    assert old in RIGHT
    judgement = judge(RIGHT.replace(old, new))
    assert not judgement.agrees
    assert "the formula says" in judgement.where
    assert judgement.worst > 1e-9


BROKEN = {
    "no Python": ("import torch", "import", "the file cannot be run: SyntaxError"),
    "no such function": ("def attend", "def attends", "the file cannot be run: AttributeError"),
    "no such name": ("a, V), a", "c, V), a", "the call raises NameError: name 'c' is not defined"),
    "another argument": ("tau=2.0", "scale=2.0", "the call raises TypeError: attend() got an unex"),
    "one result": ("a, V), a", "a, V)", "the call returns 1 results, the formula has 2"),
    "another shape": ("a, V), a", "a, V), a.mT[..., None]", "a has shape [5, 7, 7, 1], the"),
    "transposed": ('->bie"', '->bei"', "z has shape [5, 3, 7], the formula [5, 7, 3], at B=5"),
    "no tensor": ("a, V), a", "a, V), 1.0", "a is float, no tensor"),
    "a changed argument": ("    s =", "    Q.mul_(2)\n    s =", "the call changes its argument Q"),
    "complex": ("a, V), a", "a, V), a + 0j", "a is complex"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file(name: str) -> None:
    old, new, says = BROKEN[name]
    judgement = judge(RIGHT.replace(old, new))
    assert not judgement.agrees
    assert math.isinf(judgement.worst)
    assert judgement.where.startswith(says)


def test_the_first_difference_is_reported() -> None:
    formula = parse("x[N, M]\ny[i,j] = 2*x[i,j]")
    source = "def f(x):\n    y = 2 * x\n    y[1, 2:] += 1\n    return y"
    judgement = judge_source(source, "f", formula, from_sympy(formula), [{"N": 3, "M": 4}])
    drawn = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = float(drawn[1, 2]) * 2
    assert judgement.where == f"y[1, 2] is {wanted + 1!r}, the formula says {wanted!r}, at N=3, M=4"


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("found", "expected", "agrees"),
    [
        ([1.0, NAN], [1.0, NAN], True),
        ([INF, -INF], [INF, -INF], True),
        ([INF, 1.0], [-INF, 1.0], False),
        ([NAN, 1.0], [INF, 1.0], False),
        ([NAN, 1.0], [0.0, 1.0], False),
        ([0.0, 1.0], [NAN, 1.0], False),
        ([1e300, 1.0], [INF, 1.0], False),
        ([1.0 + 1e-10, 0.0], [1.0, 0.0], True),
        ([1.0 + 1e-8, 0.0], [1.0, 0.0], False),
        ([1e6, 1e-5], [1e6, 0.0], True),
        ([2e-9], [1e-9], False),
        ([], [], True),
    ],
)
def test_elements(found: list[float], expected: list[float], agrees: bool) -> None:
    values = (torch.tensor(v, dtype=torch.float64) for v in (found, expected))
    off, where = compare_values("y", *values)
    assert (where == "") == agrees
    assert (off <= 1e-9) == agrees


def test_a_fault_of_the_formula_is_no_judgement() -> None:
    formula = parse("x[N]; index i < N\ny[i] = x[i + 1]")
    source = "def f(x):\n    return x"
    with pytest.raises(DeriveError, match="reads-outside"):
        judge_source(source, "f", formula, from_sympy(formula), [{"N": 3}])


def test_a_rounding_over_0_is_as_undefined_as_0_over_0() -> None:
    found, nan = torch.tensor([-torch.inf]), torch.tensor([torch.nan])
    assert compare_values("y", found, nan)[1]
    assert not compare_values("y", found, nan, is_undefined=True)[1]
    assert compare_values("y", torch.tensor([1.0]), nan, is_undefined=True)[1]
