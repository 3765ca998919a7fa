"""A derivation as text, LaTeX and JSON."""

import json
import re
import subprocess
import sys

import pytest
from derivations import LIBRARY, SOFTMAX, built, read, rename_indices
from fast_cases import slow_except
from hypothesis import given
from strategies import formulas, half_as_many

from derive.backend.to_latex import escape, to_align, to_latex, to_name
from derive.backend.to_torch import write_cell
from derive.cli.show import to_derivation_data
from derive.ir.text import to_lines
from derive.plan.build import make_plan
from derive.plan.derivation import IN_TURN, ONCE, find_derivation
from derive.plan.machine import DEFAULT, to_json
from derive.plan.search import STAGES, Request

# LaTeX.

LATEX = {
    "x[N]; y[i] = -x[i] / 2": r"-\frac{x_{i}}{2}",
    "x, y_1[N]; z[i] = x[i] - (y_1[i] - 1)": r"x_{i} - \left( {y_{1}}_{i} - 1 \right)",
    "x[N]; z[i] = (x[i] + 1)**2 * 3": r"{\left( x_{i} + 1 \right)}^{2} \cdot 3",
    "x[N]; z = sum[i](x[i]) * sum[j](x[j])": r"\left( \sum_{i} x_{i} \right) \sum_{j} x_{j}",
    "x[N]; index i < N; z[i] = sum[j, j <= i](x[j] + 1)": (
        r"\sum_{j \,:\, j \leq i} \left( x_{j} + 1 \right)"
    ),
    "x[N]; z[i] = exp(x[i])**2 * sqrt(x[i])": (
        r"{\left( \exp \left( x_{i} \right) \right)}^{2} \sqrt{x_{i}}"
    ),
    "x[N]; index i < N; z[i] = where(i >= 1, x[i - 1], -oo)": (
        r"\begin{cases} x_{i - 1} & \text{if } i \geq 1 \\ -\infty & \text{otherwise} \end{cases}"
    ),
    "x[N]; index i < N; z[i] = x[i // 2] + x[i % N] * [i == 0]": (
        r"x_{\left\lfloor \frac{i}{2} \right\rfloor} + x_{i \bmod N} \left[ i = 0 \right]"
    ),
    "x[N, M]; W_Q[M]; y[n] = sum[m](x[n,m] * W_Q[m]) + max[m](x[n,m])": (
        r"\sum_{m} x_{n,m} {W_{Q}}_{m} + \max_{m} \left( x_{n,m} \right)"
    ),
    "x[N, M]; z[i] = log(max[j](abs(x[i,j])))": (
        r"\log \left( \max_{j} \left( \left| x_{i,j} \right| \right) \right)"
    ),
    "bool m[N]; alpha[N]; z[i] = log_softmax[i, m[i] and not i == 0](alpha[i])": (
        r"\operatorname{log\_softmax}_{i \,:\, \left( \neg \left( i = 0 \right) \right) "
        r"\wedge m_{i}} \left( \alpha_{i} \right)"
    ),
}


@pytest.mark.parametrize("text", LATEX)
def test_an_expression_as_latex(text):
    (equation,) = read(text).equations
    assert to_latex(equation.value) == LATEX[text]


def test_names_and_text_as_latex():
    names = ["x", "alpha", "W_Q", "x1", "query", "A_K_2", "_", "mu_0"]
    assert [to_name(name) for name in names] == [
        "x", r"\alpha", "W_{Q}", "x_{1}", r"\mathrm{query}", "A_{K,2}", r"\_", r"\mu_{0}",
    ]  # fmt: skip
    assert escape("a_b {c}^2 \\ 5%") == (r"a\_b \{c\}\textasciicircum{}2 \textbackslash{} 5\%")


KNOWN = {  # commands of LaTeX and amsmath
    *("begin", "end", "intertext", "text", "texttt", "mathrm", "operatorname", "left", "right"),
    *("textbackslash", "textasciicircum", "textasciitilde", "sum", "prod", "frac", "sqrt", "to"),
    *("exp", "log", "sin", "cos", "tanh", "max", "min", "infty", "pi", "lfloor", "rfloor"),
    *("bmod", "leq", "geq", "neq", "wedge", "vee", "neg", "cdot", "det"),
    *("alpha", "beta", "gamma", "delta", "lambda", "mu", "nu", "omega", "rho", "sigma"),
    *("tau", "theta"),
    "overline",
}


def check_latex(text):
    """Check that braces, brackets and environments balance and each row has one alignment mark."""
    plain = re.sub(r"\\[\\{}_$&#%,:]", " ", text)
    depth = 0
    for sign in plain:
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0, text
    assert depth == 0, text
    stack = []
    for word, name in re.findall(r"\\(begin|end|left|right)\b(?:\{(\w+\*?)\})?", plain):
        if word in {"begin", "left"}:
            stack.append((word, name))
        else:
            opened = {"end": "begin", "right": "left"}[word]
            assert stack.pop() == (opened, name if word == "end" else ""), text
    assert not stack, text
    assert set(re.findall(r"\\([a-zA-Z]+)", plain)) <= KNOWN, text
    lines = text.split("\n")
    assert (lines[0], lines[-1]) == (r"\begin{align*}", r"\end{align*}")
    rows = [line for line in lines[1:-1] if not line.startswith(r"\intertext{")]
    assert all(row.endswith(r" \\") for row in rows[:-1])
    assert not rows[-1].endswith(r"\\")
    for row in rows:
        outside = re.sub(r"\\begin\{cases\}.*\\end\{cases\}", "", row).replace(r"\&", "")
        assert outside.count("&") == 1, row


FAST = slow_except(
    LIBRARY,
    *("self_attention", "differential_attention", "linear", "capsule_routing", "pixel_shuffle"),
    *("batch_norm_inference", "edit_distance", "triplet_loss", "graph_attention", "ao_to_mo"),
    *("heat_step", "viterbi", "histogram", "delta_net"),
)


@pytest.mark.parametrize("name", FAST)
def test_latex_is_balanced(name):
    made = built(name)
    check_latex(to_align(made.system, made.derivation.entries))


@half_as_many
@given(formulas())
def test_latex_of_random_formulas_is_balanced(drawn):
    system = read(drawn.text, drawn.empty_row)
    plan = make_plan(system, dict(drawn.sizes))
    entries = find_derivation(plan, Request(), write_cell).entries
    check_latex(to_align(system, entries))
    uncounted = {*(name for name, _ in STAGES), IN_TURN, ONCE[0]}
    assert {e.name for e in entries if e.system and not (e.old and e.new)} <= uncounted


# The command line.

TOLD = """\
# formula

x[M, N]
y[i,j] = exp(x[i,j]) / sum[k](exp(x[i,k]))

as written, in loops over single numbers, at M=32 N=64
equation  operations  over sizes        elements
y              266 k  2*M*N**2 + 2*M*N    2.05 k

1. find_softmax: exp(e_j) / sum_j exp(e_j) = softmax_j(e)
  before          y[i,j] = exp(x[i,j]) / sum[k](exp(x[i,k]))
  after           y[i,j] = softmax[j](x[i,j])
  operations      3*M*N + M -> 5*M*N  (6.18 k -> 10.2 k)
  elements alive  2*M*N + 2*M -> M*N  (4.16 k -> 2.05 k)
"""


def test_a_derivation_as_text(run):
    answer = run("show", SOFTMAX, "--derivation", "--sizes", "M=32")
    assert (answer.code, answer.err) == (0, "")
    shown, estimated, rest = answer.out.partition("  estimated time  ")
    assert shown == TOLD
    assert estimated
    time, blank, operations, machine = rest.splitlines()
    assert re.fullmatch(r"[\d.]+ us -> [\d.]+ us", time)
    assert (blank, operations.split()[0]) == ("", "operations")
    assert machine == "  times are by the built-in constants of a server core, not of this machine"


def test_a_derivation_names_the_file_of_constants(run, tmp_path):
    (tmp_path / "m.json").write_text(to_json(DEFAULT))
    out = run("show", SOFTMAX, "--derivation", "--machine", "m.json").out
    assert out.splitlines()[-1] == "  times are by the constants in m.json"


def test_a_rule_of_the_recipe_that_gains_nothing_is_no_choice(run):
    out = run("show", "outer_product_mean", "--derivation").out
    (worse,) = re.findall(r" \d+ ms -> [\d.]+ s\n +(.+)\n", out)
    assert worse.startswith("no gain by itself: this rule always applies")
    assert "no gain" not in run("show", "relative_attention", "--derivation").out


def test_costs_of_several_entries_have_a_total(run):
    out = run("show", "relative_attention", "--derivation").out
    assert [line.split()[1] for line in re.findall(r"(?m)^\d+\. \w+", out)] == [
        "distribute_product", "distribute_product", "loop_over_blocks",
    ]  # fmt: skip
    assert out.split("\nin all\n")[1].splitlines()[0] == "  operations      7.33 G -> 9.5 G"


def test_a_terminal_breaks_long_texts_in_their_column(run, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "70"}.items():
        monkeypatch.setenv(name, value)
    shown = run("show", "relative_attention", "--derivation").out
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    entries = lines[next(k for k, line in enumerate(lines) if line.startswith("1.")) :]
    pairs = [line for line in entries if line.startswith("  ")]
    assert max(map(len, pairs)) == 70
    assert any(re.match(r" {18}\S", line) for line in pairs)


def test_a_derivation_without_rules_is_one_sentence(run):
    out = run("show", "x[N]; y[i] = 2 * x[i]", "--derivation").out
    assert out.endswith("No rule changes it: the steps are the formula as it is written.\n")


def test_a_derivation_as_latex(run):
    answer = run("show", "relative_attention", "--derivation", "--latex")
    made = built("relative_attention")
    assert answer.code == 0
    assert answer.out == to_align(made.system, made.derivation.entries) + "\n"
    assert r"\texttt{distribute\_product}: \texttt{sum\_e q * (k + a) =" in answer.out


@pytest.mark.parametrize("name", ["relative_attention", "transformer_xl_attention", "layer_norm"])
def test_a_derivation_as_json(run, name):
    data = json.loads(run("show", name, "--derivation", "--json").out)
    assert data["derivation"] == to_derivation_data(built(name))
    assert data["flops"]
    entries = built(name).derivation.entries
    assert len(data["derivation"]["entries"]) == len(entries)
    for data_entry, entry in zip(data["derivation"]["entries"], entries, strict=True):
        if entry.system is not None:
            assert data_entry["after"] in to_lines(rename_indices(entry.system))
            old, new = entry.old, entry.new
            assert data_entry["costs"]["elements_at_sizes"] == [old.elements_at, new.elements_at]
            assert data_entry["costs"]["seconds"] == [old.seconds, new.seconds]


def test_json_has_no_derivation_unless_it_is_asked_for(run):
    assert "derivation" not in json.loads(run("show", SOFTMAX, "--json").out)


@pytest.mark.parametrize("wrong", [("x[N]; y[i] = x[j]",), (SOFTMAX, "--sizes", "Q=3")])
def test_formulas_that_cannot_be_built_are_refused(run, wrong):
    answer = run("show", *wrong, "--derivation")
    assert (answer.code, answer.out) == (2, "")


@pytest.mark.slow
def test_the_same_text_under_every_hash_seed():
    code = "import sys; from derive.cli import main; main(sys.argv[1:])"
    prints = {
        subprocess.run(
            [sys.executable, "-c", code, "show", "graph_convolution", "--derivation"],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1
    assert "sift_index" in prints.pop()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a, x[T]; h[-1] = 0; h[t] = tanh(a[t] * h[t - 1] + x[t])",
            [
                "recur_in_turn: for each t in turn, T turns",
                "h_t = tanh(a_t * h_before + x_t)",
                "h_before is h 1 turn before",
                "before the first turn h is h_first",
            ],
        ),
        (
            "x[T]; h[t] = where(t < 2, x[t], h[t - 1] + h[t - 2])",
            [
                "for each u in turn, T - 2 turns",
                "before the first turn h is h_first, h_first_2",
                "h_before_2 is h 2 turns before",
            ],
        ),
        (
            "a, x[T]; h[-1] = 1; h[t] = a[t] * h[t - 1] + x[t]",
            [
                "recur_in_chunks: ",
                "h[t] = a[t] * h[t - 1] + x[t]",
                "what stands before the first t is h_first",
            ],
        ),
        ("x[T]; h[-1] = 0; h[t] = h[t - 1] + x[t]", ["close_running: ", "h[t] = cumsum[t](x[t])"]),
        (
            "r[T]; R[T - 1] = 3; R[t] = tanh(r[t] * R[t + 1])",
            ["turn_upward: ", "R[u] = R_back[T - u - 1]"],
        ),
        (
            "c[I, J]; D[i,j] = c[i,j] + max(D[i - 1,j] * [i >= 1], D[i,j - 1] * [j >= 1])",
            ["turn_upward: ", "D[i,j] = D_wave[i + j,i]"],
        ),
        (
            (
                "a[T]; q, k[T,I]; v[T,J]; S[-1,i,j] = 0; "
                "S[t,i,j] = a[t] * S[t - 1,i,j] + k[t,i] * v[t,j]; "
                "o[t,j] = sum[i](q[t,i] * S[t,i,j])"
            ),
            ["chunk_values: ", "S_sum[t,j] = S_sum_chunks[t//t_chunk,t%t_chunk,j]", "call_torch: "],
        ),
        (
            "x[4096]; index k < 4096; y[k] = abs(sum[n](x[n] * exp(-2*pi*I*k*n / 4096)))",
            ["transform: ", "torch.fft.fft of 4096 values", "estimated time"],
        ),
        (
            "x, w[4096]; index n < 4096; y[n] = sum[k](w[k] * x[(n - k) % 4096])",
            ["torch.fft.rfft of 4096 values", "torch.fft.irfft of 4096 values"],
        ),
    ],
)
def test_loops_and_transforms_are_shown_in_equations_and_words(text, said, run):
    shown = run("show", text, "--derivation")
    assert (shown.code, shown.err) == (0, "")
    assert [part for part in said if part not in shown.out] == []
    check_latex(run("show", text, "--derivation", "--latex").out.removesuffix("\n"))
