"""Formulas out of code: `from_torch`, `derive show FILE.py:NAME`, `derive build --from`."""

from math import sqrt

import pytest
import torch
from texts import Expressions
from typer.testing import CliRunner

from derive import DeriveError, from_torch, parse, show
from derive.cli import app
from derive.frontend.from_code import lift_code
from derive.frontend.from_sympy import to_system
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs

ROWS = Expressions(__file__, "from_code_rows.txt", globals())

CODE = """import math
import torch


def attend(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(scores, dim=-1) @ v


def heads(x, w, n_heads):
    return torch.stack([x @ w[h] for h in range(n_heads)])


def branch(x):
    return x * 2 if x.sum() > 0 else x
"""
INPUTS = "q[B, S, D]; k[B, T, D]; v[B, T, E]"


@pytest.fixture
def file(tmp_path):
    """A file of code."""
    path = tmp_path / "code.py"
    path.write_text(CODE, encoding="utf-8")
    return path


def run_command(*arguments):
    """Return the exit code and output of the command."""
    found = CliRunner().invoke(app, list(arguments))
    return found.exit_code, found.output + str(found.exception or "")


def attend(q, k, v):
    scores = torch.einsum("bsd,btd->bst", q, k) * q.shape[-1] ** -0.5
    return scores.softmax(-1) @ v


def scale(x, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def test_names_are_the_same_for_functions_in_python_and_once_frames_were_compiled():
    """Python callees and compiled frames change the instruction offset of a calling frame."""

    def weigh(x):
        weights = torch.nn.functional.softmax(x, dim=-1)
        shown = torch.tanh(weights)
        return shown + x

    named = ["weights[b,c]", "shown[b,c]", "out[b,c]"]
    for _ in range(2):
        formula, bare = from_torch(weigh, "x[B, C]"), from_torch(torch.nn.Tanh(), "input[B, C]")
        assert [line.split(" = ")[0] for line in show(formula).splitlines()[1:]] == named
        assert show(bare).splitlines()[-1] == "out[b,c] = tanh(input[b,c])"
        torch.compile(torch.neg, backend="eager")(torch.ones(2))


@pytest.mark.parametrize(("function", "inputs", "code"), ROWS["code without a formula is refused"])
def test_code_without_a_formula_is_refused(function, inputs, code):
    with pytest.raises(DeriveError) as refusal:
        from_torch(function, inputs)
    assert refusal.value.diagnostic.code == code


def test_a_refusal_names_the_line(file):
    exit_code, output = run_command("show", f"{file}:branch", "--inputs", "x[B]")
    assert exit_code != 0
    assert "line 15" in output


def test_a_missing_function_gets_a_list_of_functions_and_a_suggestion(file):
    exit_code, output = run_command("show", f"{file}:attendd")
    assert exit_code != 0
    assert "its functions are attend, heads, branch" in output
    assert "did you mean attend" in output


def test_a_formula_for_some_sizes_only_raises_a_warning():
    with pytest.warns(UserWarning, match="S < 100|S <= 100"):
        from_torch(lambda x: x[:, :100].sum(1), "x[B, S]")
    with pytest.warns(UserWarning, match="the formula is for H="):
        from_torch(lambda x: sum(x[h] for h in range(x.shape[0])), "x[H, D]")


def test_show_prints_the_formula_of_code_and_its_latex(file):
    exit_code, output = run_command("show", f"{file}:attend", "--inputs", INPUTS)
    assert exit_code == 0
    assert "scores[b,s,t] = sum[d](q[b,s,d] * k[b,t,d]) / sqrt(D)" in output
    exit_code, output = run_command("show", f"{file}:attend", "--inputs", INPUTS, "--latex")
    assert exit_code == 0
    assert r"\operatorname{softmax}_{t}" in output


def test_sizes_fixed_as_numbers_are_reported(file):
    exit_code, output = run_command(
        "show", f"{file}:heads", "--inputs", "x[S, D]; w[n_heads, D, E]"
    )
    assert exit_code == 0, output
    assert "n_heads=" in output


def test_build_from_code_writes_a_file_that_is_proved_the_same(file, tmp_path):
    exit_code, output = run_command(
        "build", "--from", f"{file}:attend", "--inputs", INPUTS, "--out", str(tmp_path / "out")
    )
    assert exit_code == 0, output
    assert "proved: for all sizes" in output
    names = {}
    exec((tmp_path / "out" / "attend.py").read_text(encoding="utf-8"), names)
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    assert torch.allclose(names["attend"](q, k, v), attend(q, k, v), atol=1e-6)


def put_behind(q, k):
    return torch.cat([q[:, -1:], k[:, :-1]], 1)


READ_BACK = ROWS["read back"]


@pytest.mark.parametrize(("inputs", "function"), READ_BACK)
def test_the_lifted_formula_is_read_back_and_computes_the_code(inputs, function):
    formula = parse(show(from_torch(function, inputs)))
    system = to_system(formula)
    for sizes in choose_sizes(system, 3):
        values = draw_inputs(system, sizes, 0)
        assert torch.allclose(evaluate_loops(formula, values), function(**values).double())


@pytest.mark.parametrize(
    ("slice_of", "line", "note"), ROWS["conditions on sizes in code guard the formula"]
)
def test_conditions_on_sizes_in_code_guard_the_formula(slice_of, line, note):
    found = lift_code(slice_of, "x[B, S]")
    assert show(found.formula).splitlines()[-1] == line
    assert note in found.notes


@pytest.mark.parametrize("text", ROWS["a remainder that may leave its tensor is refused"])
def test_a_remainder_that_may_leave_its_tensor_is_refused(text):
    with pytest.raises(DeriveError, match="reads-outside"):
        to_system(parse(text))


SCALE = 3.0


def divide_one(n, one=1.0):
    return one / n


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (1.0 / x.shape[1]),
        lambda x: x * divide_one(x.shape[1]),
        lambda x: x * (SCALE - x.shape[1]),
        lambda x: [x * (0.5 * n) for n in x.shape][1],
        lambda x: x.sum(0) / len(x),
        lambda x: x / sqrt(x.shape[1]),
        lambda x: x / torch.sqrt(torch.tensor(x.shape[1], dtype=torch.float32)),
        lambda x: x / x.new_tensor(x.shape[1]).sqrt(),
    ],
)
def test_a_size_stays_a_size(function):
    assert not lift_code(function, "x[B, D]").fixed


def test_build_refuses_code_that_fixes_a_size_without_the_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "def scale(x, w):\n    return x @ w / float(x.shape[-1])\n"
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    arguments = ["build", "--from", "code.py:scale", "--inputs", "x[B, D]; w[D, D]"]
    status, output = run_command(*arguments)
    assert status
    assert "code.py:scale takes D as a number" in output
    assert run_command(*arguments, "--sizes", "D=4")[0] == 0
    text = (tmp_path / "generated" / "scale.py").read_text(encoding="utf-8")
    assert "x[B, 4]; w[4, 4]" in text
    assert "--sizes D=4" in text
