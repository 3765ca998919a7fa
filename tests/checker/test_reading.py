"""Pasted Python text: repairs, refusals, and the names of lines."""

import ast
import json

import pytest
from texts import Expressions

from derive import check
from derive.checker.reading import UnreadableError, find_renames, read_notebook, read_python

ROWS = Expressions(__file__, "reading_rows.txt")

MENDED = dict(ROWS["MENDED"])


@pytest.mark.parametrize("text", MENDED)
def test_a_mistake_of_pasting_is_repaired_and_reported(text):
    reading = read_python(text)
    mended, says = MENDED[text]
    assert reading.text == mended
    assert [repair.says.startswith(says) for repair in reading.repairs] == [True]
    assert reading.error is not None and reading.error.line == int(says[5])


def test_repairs_are_reported_in_the_order_of_the_lines():
    reading = read_python("if 1\n    y = 2\nclass A(B)\n    pass\nz]\n")
    assert [repair.says[:6] for repair in reading.repairs] == ["line 1", "line 3", "line 5"]


@pytest.mark.parametrize(("text", "line"), ROWS["ambiguous text is not repaired"])
def test_ambiguous_text_is_not_repaired(text, line):
    with pytest.raises(UnreadableError) as caught:
        read_python(text)
    assert caught.value.line == line


def test_lost_indentation_is_reported():
    with pytest.raises(UnreadableError, match=r"line 1 .*expected ':'.*paste it with its ind"):
        read_python("def f(x)\ny = 1\nreturn y\n")


@pytest.mark.parametrize("magic", ["", "%matplotlib inline", "!pip install einops"])
def test_right_text_is_unchanged(magic):
    text = "# “quoted”\ny = (\n    1,\n)\nx = 1,\n"
    reading = read_python(f"{text}{magic}")
    assert (reading.text, reading.repairs, reading.error) == (text, (), None)


PASTED = """
### Notes

In [1]:
import torch

y = torch.ones(2)
y

tensor([1., 1.])

Some words about it.

In [7]:
def g(t):
    return t

z = g(y)

print(z)

tensor([1., 1.])
"""


def test_a_pasted_notebook_is_read_as_its_code():
    reading = read_python(PASTED)
    code = "import torch\ny = torch.ones(2)\ny\ndef g(t):\n    return t\nz = g(y)\nprint(z)\n"
    assert ast.dump(reading.tree) == ast.dump(ast.parse(code))
    assert reading.places[reading.text.split("\n").index("z = g(y)")] == "In [7] line 4"


def make_notebook(*cells):
    made = [
        {"cell_type": kind, "execution_count": count, "source": text} for kind, count, text in cells
    ]
    return json.dumps({"cells": made}).encode()


def test_lines_of_a_notebook_are_numbered_by_cell():
    cells = ("code", 3, "%time\nx = 1"), ("markdown", None, "text"), ("code", None, "y = 2\n}\n")
    reading = read_notebook(make_notebook(*cells))
    assert reading.places[:3] == ("In [3] line 1", "In [3] line 2", "cell 3 line 1")
    assert [repair.says for repair in reading.repairs] == [
        "cell 3 line 2: the unmatched } is left out"
    ]


NOTEBOOK = tuple(ROWS["NOTEBOOK"])
DISTANCES = "u[N, D]; v[M, D]\nd[i,j] = sum[k]((u[i,k] - v[j,k])**2)"


@pytest.mark.parametrize("form", ["notebook", "pasted"])
@pytest.mark.parametrize("name", ["v", "u"])
def test_a_notebook_is_judged(name, form, tmp_path):
    cells = [(kind, count, text.replace("{}", name)) for kind, count, text in NOTEBOOK]
    code = "\n\n".join(f"In [{n}]:\n{text.replace('!ls', '')}" for _, n, text in cells[1:])
    if form == "notebook":
        code = tmp_path / "distances.ipynb"
        code.write_bytes(make_notebook(*cells))
    verdict = check(code, DISTANCES)
    assert verdict.same is (name == "v"), str(verdict)
    if name == "u":
        assert verdict.to_data()["place"] == "In [5] line 1", str(verdict)


def test_repaired_code_is_reported_and_never_the_same():
    text = "def d(u, v)\n    return torch.cdist(u, v) ** 2\n"
    verdict = check(text, DISTANCES)
    assert verdict.same is None
    assert verdict.line == 1
    assert "as repaired it is the same" in str(verdict)
    assert "as repaired" in verdict.code
    assert "line 1: a colon is put at the end" in str(verdict)


@pytest.mark.parametrize(("line", "error", "names"), ROWS["a called name is renamed to a function"])
def test_a_called_name_is_renamed_to_a_function(line, error, names):
    text = f"def attend(a):\n    return a\ndef f(q, k):\n    {line}\n"
    renames = find_renames(text, error, 4)
    assert [each.new for each in renames if each.new != "f"] == names


# Scripts as people paste them: at their own sizes, with their own mistakes.

FORMULA = """
    x[B, N, C]; w_a, w_b[C, F]; r[N, N, F]
    a[b,i,f] = sum[c](x[b,i,c] * w_a[c,f])
    k[b,j,f] = sum[c](x[b,j,c] * w_b[c,f])
    p[b,i,j] = softmax[j](sum[f](a[b,i,f] * (k[b,j,f] + r[i,j,f])) / sqrt(F))
    y[b,i,f] = sum[j](p[b,i,j] * k[b,j,f])
"""
MAKERS = """
x = torch.randn((12, 30, 48))
w_a = torch.randn(48, 56)
w_b = torch.randn(48, 56)
r = torch.randn(30, 30, 56)
"""
FREE = """
a, k = x @ w_a, x @ w_b
s = (a[:, :, None] * (k[:, None] + r)).sum(-1) / a.shape[-1] ** 0.5
y = s.softmax({axis}) @ k
"""
LITERAL = """
a, k = (x.view(360, 48) @ w_a).view(12, 30, 56), (x.view(360, 48) @ w_b).view(12, 30, 56)
s = (a @ k.mT + torch.einsum("bif,ijf->bij", a, r)) / 56**0.5
y = s.softmax({axis}) @ k
"""


@pytest.mark.slow
@pytest.mark.parametrize("body", [FREE, LITERAL], ids=["free", "literal"])
def test_a_script_of_large_tensors_is_judged(body):
    right = check("import torch\n" + MAKERS + body.format(axis=-1), FORMULA, seconds=120)
    assert right.grade == ("proved" if body is FREE else "identical"), str(right)
    own = {"B": 12, "N": 30, "C": 48, "F": 56}
    assert (body is FREE) != (right.sizes == (own,))


@pytest.mark.slow
def test_a_script_that_holds_at_its_own_sizes_alone_is_judged_there():
    text = "import torch\n" + MAKERS + FREE.format(axis=-1)
    verdict = check(text.replace("a.shape[-1]", "56"), FORMULA, seconds=120)
    assert verdict.same is True, str(verdict)
    assert all(each["F"] == 56 for each in verdict.sizes)


def test_a_script_of_large_tensors_is_explained():
    verdict = check("import torch\n" + MAKERS + FREE.format(axis=1), FORMULA, seconds=120)
    assert verdict.same is False, str(verdict)
    assert "SOFTMAX over j, not i" in verdict.edit


MADE = (
    "import torch\nx = torch.randn(3, 4)\nw = torch.randn(4, 5)\nv = torch.randn(4, 5)\nu = x @ v\n"
)


@pytest.mark.parametrize(
    ("end", "name", "same", "said"), ROWS["statements without effect on the result are left out"]
)
def test_statements_without_effect_on_the_result_are_left_out(tmp_path, end, name, same, said):
    path = tmp_path / "script.py"
    path.write_text(f"import torch\n{MADE}{end}", encoding="utf-8")
    verdict = check(f"{path}:{name}", "x[N, C]; w[C, F]; y[n,f] = sum[c](x[n,c] * w[c,f])")
    assert verdict.same is same, str(verdict)
    assert said in str(verdict)
