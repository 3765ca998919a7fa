"""What inductor makes of code, against the formula."""

from __future__ import annotations

import pytest

import derive
from derive.checker.runs.modes import call_compiled
from derive.formulas import load_formulas
from derive.frontend.system import to_system
from derive.judge.samples import choose_sizes, draw_inputs

HEAD = "q[B, H, N, D]; k[B, {key}, D]; v[B, H, M, E]\n"
TEXT = "z[b,h,n,e] = sum[m](softmax[{over}](sum[d](q[b,h,n,d] * k[b,{at},d]) / 4) * v[b,h,m,e])"
CODE = """
def attend(q, k, v):
    scores = torch.matmul(q, k.{view}) / 4
    return torch.softmax(scores, dim={dim}).matmul(v)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "dim", "key", "over", "same"),
    [
        pytest.param("transpose(-2, -1)", -1, "H, M", "m", True, id="attention"),
        pytest.param("transpose(-2, -1)", 0, "H, M", "b", False, id="a softmax over another dim"),
        pytest.param("permute(0, 2, 3, 1)", -1, "M, H", "m", False, id="a permuted key"),
    ],
)
def test_a_pattern_that_does_not_fit_is_found(
    view: str, dim: int, key: str, over: str, same: bool
) -> None:
    text = (HEAD + TEXT).format(key=key, over=over, at=key.lower().replace(" ", ""))
    verdict = derive.check(
        CODE.format(view=view, dim=dim), derive.parse(text), seconds=120, compiled=True
    )
    if same:
        assert verdict.grade == "identical", verdict
        return
    eager = derive.check(CODE.format(view=view, dim=dim), derive.parse(text))
    assert eager.same, eager
    assert verdict.same is False, verdict
    assert "joint graph passes" in str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2))
def test_no_formula_of_the_library_is_changed(first: int) -> None:
    for name in list(load_formulas())[first::12]:
        formula = load_formulas()[name]
        system = to_system(formula)
        inputs = draw_inputs(system, choose_sizes(system, count=1)[0], 0)
        guilty: list[str] = []
        call_compiled(derive.build(formula).function, [], inputs, guilty)
        assert not guilty, name
