"""Code of a file by its name: methods, objects, lambdas, dictionaries, dataclasses; gradients."""

import ast
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from texts import Expressions, read_text

from derive import DeriveError, check, parse
from derive.checker.load import load
from derive.checker.reading import find_unused
from derive.checker.runs import pick_results
from derive.checker.slots import find_groups, gather

ROWS = Expressions(__file__, "load_rows.txt", globals())

CODE = read_text(__file__, "load.txt")
LINEAR = "x[B, I]; w[O, I]\ny[b, o] = sum[i](x[b, i] * w[o, i])"
TWICE = LINEAR.replace("= ", "= 2 * ")
GATED = (
    "x[B, I]; w[2*O, I]; index o < O\n"
    "y[b, o] = sum[i](x[b, i]*w[o, i]) * sigmoid(sum[i](x[b, i]*w[o + O, i]))"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file of code."""
    path = tmp_path_factory.mktemp("load") / "code.py"
    path.write_text(CODE, encoding="utf-8")
    return path


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "formula", "named", "same"), ROWS["code of a file is judged by its name"]
)
def test_code_of_a_file_is_judged_by_its_name(path, name, formula, named, same):
    assert check(f"{path}:{name}", formula, **named).same is same


@pytest.mark.parametrize(("name", "how"), [("cut", "detach"), ("cut_whole", "no_grad")])
def test_a_gradient_that_is_cut_is_different_with_the_place(path, name, how):
    verdict = check(f"{path}:{name}", LINEAR, backward=True)
    assert verdict.same is False
    line = next(n for n, text in enumerate(CODE.splitlines(), 1) if f"def {name}(" in text)
    assert f"line {line + (1 if name == 'cut' else 2)} by {how}" in verdict.difference


@pytest.mark.parametrize(("name", "init", "code"), ROWS["a name that is no code is refused"])
def test_a_name_that_is_no_code_is_refused(path, name, init, code):
    with pytest.raises(DeriveError) as error:
        load(f"{path}:{name}", init=init)
    assert error.value.diagnostic.code == code


@pytest.mark.parametrize(
    ("wanted", "chosen"), [("formula", "attend"), ("scale", "scale"), ("attend", "attend")]
)
def test_a_function_that_another_one_calls_is_not_the_code(wanted, chosen):
    text = "def scale(n):\n    return n ** -0.5\n\ndef attend(q, k):\n    return q @ k * scale(2)\n"
    assert load(text, wanted).target.__name__ == chosen


def test_a_file_without_code_is_refused(tmp_path):
    path = tmp_path / "nothing.py"
    path.write_text("class Nothing:\n    pass\n")
    with pytest.raises(DeriveError) as error:
        check(str(path), LINEAR)
    assert error.value.diagnostic.code == "code-missing"


@dataclass
class Batch:
    """Two tensors and a number as one argument."""

    x: torch.Tensor
    w: torch.Tensor
    scale: float = 2.0


def take_dataclass(batch: Batch, y):
    """Read a dataclass."""
    return batch.x + y


def take_keys(batch, other):
    """Read a dictionary."""
    return batch["x"] + batch.get("w", 0) + other.shape[0]


def take_tensor(x):
    """Read a tensor."""
    return x.T @ x.mean(0)


def take_method(x):
    """Call a method that tensors lack."""
    return x.nothing()


def test_composite_arguments_are_recognized_by_class_or_use():
    assert [*find_groups(take_dataclass)["batch"].parts] == ["x", "w", "scale"]
    assert [*find_groups(take_keys)["batch"].parts] == ["x", "w"]
    assert set(find_groups(take_keys)) == {"batch"}
    assert not find_groups(take_tensor)
    assert not find_groups(take_method)
    made = gather(take_dataclass, {"batch.x": 1, "batch.w": 2, "y": 3})
    assert made == {"batch": Batch(1, 2), "y": 3}
    assert gather(take_tensor, {"x": 1}) == {"x": 1}


def test_results_are_matched_by_name():
    y, z = torch.zeros(2), torch.ones(3)
    for found in ({"z": z, "y": y}, SimpleNamespace(z=z, other=y), {"a": y, "Z": z}):
        choice = pick_results(found, ("y", "z"))
        assert [tuple(each.shape) for each in choice] == [(2,), (3,)]
    assert pick_results((z, y), ("y", "z")) == (z, y)
    assert pick_results({"a": y, "b": z}, ("c",)) == {"a": y, "b": z}


@pytest.mark.parametrize("body, unused", ROWS["only values without readers are unused"])
def test_only_values_without_readers_are_unused(body, unused):
    tree = ast.parse(f"def f(x):\n    {body}\n").body[0]
    assert sorted(name for name, _ in find_unused(tree)) == sorted(unused)


STEP = """import torch
from functools import partial
EPS = 1e-6
def _norm(x, eps, dim):
    return x / (x.pow(2).mean(dim, keepdim=True) + eps).sqrt()
"""


@pytest.mark.parametrize(
    ("last", "name"), ROWS["a name derived from a function is judged and a helper is not"]
)
def test_a_name_derived_from_a_function_is_judged_and_a_helper_is_not(last, name):
    assert load(STEP + last).name.endswith(f":{name}")


LAYER = "import torch\nT, D = 6, 3\nlayer = torch.nn.Linear(T, D{})\n"
PROJECTED = "x[B, N, T]; weight[D, T]; q[b,n,d] = sum[t](x[b,n,t]*weight[d,t])"


@pytest.mark.parametrize(("bias", "same"), [(", bias=False", True), ("", False)])
def test_a_script_that_only_makes_a_layer_is_judged_as_the_layer(bias, same):
    """A bias without a tensor of the formula has the dtype of the others, and is reported."""
    verdict = check(LAYER.format(bias), parse(PROJECTED))
    assert verdict.same is same, str(verdict)
    assert ("bias has no counterpart" in str(verdict)) is not same
