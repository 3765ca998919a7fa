"""`derive show` and `derive einsum`: descriptions of formulas and of einsum strings."""

import itertools
import json

import pytest
import torch
from cli_runs import MATMUL
from texts import read_tables

from derive.frontend.from_einsum import read_fixed
from derive.frontend.from_sympy import show
from derive.frontend.from_text import parse
from derive.linter.calls import find_plain, find_remarks

TABLES = read_tables(__file__, "tables.txt")
ATTENTION = """\
scalar tau
x[N, D]; y[M, D]
s[n,m] = sum[d](x[n,d] * y[m,d]) / tau
p[n,m] = softmax[m](s[n,m])
z[n] = max[m](p[n,m])
"""

SHOWN = """\
# attention
# From attention.txt

scalar tau; x[N, D]; y[M, D]
s[n,m] = sum[d](x[n,d] * y[m,d]) / tau
p[n,m] = softmax[m](s[n,m])
z[n] = max[m](p[n,m])

indices
index  extent  number  free in         summed in  shared in  broadcast in
n      N          100  s, p, z
m      M           20  s, p (softmax)  z (max)
d      D           64                  s          s

"""


def test_show_prints_a_formula(run, tmp_path):
    (tmp_path / "attention.txt").write_text(ATTENTION)
    answer = run("show", "attention.txt", "--sizes", "N=100,M=20")
    above, steps = answer.out.split("steps\n")
    assert (answer.code, answer.err, above) == (0, "", SHOWN)
    assert show(parse(above.partition("indices\n")[0])) == show(parse(ATTENTION))
    table, costs = steps.split("\n\n")
    assert table.splitlines()[0].split("  ")[0] == "step"
    assert "nd,md->nm" in table
    assert costs.splitlines()[0] == "at N=100 D=64 M=20:"
    assert [line.split("  ")[1] for line in costs.splitlines()[1:4]] == [
        "flops", "peak elements", "in float32",
    ]  # fmt: skip


def test_a_term_that_lacks_an_index_is_broadcast(run):
    shown = json.loads(run("show", "x[N, D]; b[D]; y[n,d] = x[n,d] + b[d]", "--json").out)
    roles = {each.pop("index"): each for each in shown["indices"]}
    assert roles["n"] == {
        "extent": "N", "number": 64, "free": ["y"], "summed": [], "shared": [], "broadcast": ["y"],
    }  # fmt: skip
    assert (roles["d"]["shared"], roles["d"]["broadcast"]) == (["y"], [])


def test_a_formula_as_json(run):
    shown = json.loads(run("show", "relative_attention", "--json").out)
    assert shown["name"] == "relative_attention"
    assert shown["origin"] == "derive/formulas/attention.py"
    assert shown["sizes"] == {"B": 8, "S": 512, "H": 8, "D": 64}
    assert [each["index"] for each in shown["indices"]] == ["b", "i", "h", "e", "d", "j"]
    assert shown["einsums"] == [e for step in shown["steps"] for e in step["einsums"]]
    assert shown["flops_at_sizes"] == sum(step["flops"] for step in shown["steps"])


def test_the_code_is_what_is_built(run, tmp_path):
    run("build", MATMUL, "--sizes", "I=7")
    shown = run("show", MATMUL, "--code", "--sizes", "I=7").out
    assert shown == (tmp_path / "generated" / "formula.py").read_text()


GRADIENT = "Q, K[N, D]; s[i,j] = sum[d](Q[i,d] * K[j,d]**2)"


def test_gradients_are_shown_like_any_formula(run):
    lines = ["Q, K[N, D]; ds[N, N]", "dK[j,d] = 2 * sum[i](ds[i,j] * Q[i,d]) * K[j,d]"]
    made = json.loads(run("show", GRADIENT, "--gradient", "K", "--json").out)
    assert made["name"] == "formula_gradient"
    assert made["formula"] == lines
    assert r"\mathrm{dK}_{j,d} &= 2" in run("show", GRADIENT, "--gradient", "K", "--latex").out
    assert "dQ[" in run("show", GRADIENT, "--gradient", "all").out
    answer = run("show", GRADIENT, "--gradient", "K, V")
    assert (answer.code, answer.err.splitlines()[-1]) == (2, "  help: take the gradient by Q, K")


def test_a_file_of_gradients_is_checked(run, tmp_path):
    run("build", GRADIENT, "--gradient", "K")
    made = "generated/formula_gradient.py"
    assert run("show", made).err.startswith(f"file-made: {made} was written by derive")
    assert run("build", GRADIENT, "--gradient", "K", "--check").code == 0
    run("build", f"{GRADIENT}; t = sum[i, j](s[i,j]); return t, s", "--gradient", "K")
    words = " ".join((tmp_path / made).read_text().split())
    assert "build - --name formula_gradient, the lines above as its input" in words


EINSUM = """\
einsum "ij,jk->ik"
A[I, J]; B[J, K]
Z[i,k] = sum[j](A[i,j] * B[j,k])
  - the same as A @ B
  - without -> the result has the letters that occur once, in alphabetical order: ->ik

steps
step  einsum     shape    flops  what it computes
Z     ij,jk->ik  [I, K]  77.8 k  Z[i,k] = sum[j](A[i,j] * B[j,k])

at I=8 J=76 K=64:
  flops          2*I*J*K = 77,824
  peak elements  I*K = 512
  in float32     2 KiB alive at once
"""


def test_einsum_prints_formula_and_costs(run):
    answer = run("einsum", " ij, jk ", "--sizes", "i=8,J=76")
    assert (answer.code, answer.out, answer.err) == (0, EINSUM, "")


def test_a_string_as_json(run):
    data = json.loads(run("einsum", "ii->", "--json").out)
    assert data["einsum"] == "ii->"
    assert data["formula"] == ["A[I, I]", "Z = sum[i](A[i,i])"]
    assert data["same_as"] == "torch.trace(A)"
    assert data["remarks"] == [
        "A: the repeated i takes the diagonal of ii",
        "i is not in the result: A is added up over it",
    ]


def parse_operands(equation):
    return read_fixed(equation), "ABCDE"[: equation.count(",") + 1]


REMARKS = {string: tuple(remarks) for string, *remarks in TABLES["remarks"]}


@pytest.mark.parametrize("equation", REMARKS)
def test_remarks(equation):
    assert tuple(find_remarks(*parse_operands(equation))) == REMARKS[equation]


PLAIN = dict(TABLES["plain forms"])


@pytest.mark.parametrize("equation", PLAIN)
def test_plain_forms(equation):
    assert find_plain(*parse_operands(equation)) == PLAIN[equation]


def test_every_plain_form_gives_what_einsum_gives():
    """All strings of one or two operands of up to three indices, judged by torch."""
    torch.manual_seed(0)
    sizes = {"i": 2, "j": 3, "k": 4}
    operands = ["".join(o) for n in range(4) for o in itertools.product("ijk", repeat=n)]
    tensors = {o: torch.randn([sizes[c] for c in o], dtype=torch.float64) for o in operands}
    found = 0
    for left in [*((o,) for o in operands), *itertools.product(operands, repeat=2)]:
        indices = sorted(set("".join(left)))
        for count in range(len(indices) + 1):
            for output in map("".join, itertools.permutations(indices, count)):
                equation = f"{','.join(left)}->{output}"
                plain = find_plain(*parse_operands(equation))
                if plain:
                    A, B = (*(tensors[o] for o in left), None)[:2]
                    value = eval(plain, {"A": A, "B": B, "torch": torch})
                    expected = torch.einsum(equation, *(tensors[o] for o in left))
                    assert value.shape == expected.shape, (equation, plain)
                    assert torch.allclose(value, expected), (equation, plain)
                    found += 1
    assert found > 300


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["->"], 0, 'einsum "->"'),
        (["ij->i", "--what"], 2, "unexpected extra argument"),
        (["ij->i", "--sizes", "Q=3"], 2, "I, J; an index stands for its extent: i, j"),
        (["ij->i", "--sizes", "i=3,J=4"], 0, "at I=3 J=4:"),
    ],
)
def test_arguments_that_look_like_options_or_sizes(run, words, code, says):
    answer = run("einsum", *words)
    assert answer.code == code
    assert says in answer.out + answer.err
