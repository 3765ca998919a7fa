"""Public functions: names, sizes and dtypes of inputs, formulas as text, and refusals."""

import pytest

from derive import build, evaluate_loops, indices, show, sizes, tensors
from derive.errors import DeriveError

TEXT = "x[N]; y[i] = 2*x[i]"


def test_a_size_may_be_given_by_name():
    assert indices("i", "N") == indices("i", sizes("N"))
    assert tensors("x", "N", 3).shape == (sizes("N"), 3)
    assert tensors("t", "N", dtype="int", below="V").below == sizes("V")


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("float", "real"), (float, "real"), ("real", "real"), (int, "int"), (bool, "bool")],
)
def test_a_dtype_may_be_a_python_type(dtype, kind):
    assert tensors("x", sizes("N"), dtype=dtype).kind == kind


def test_a_text_or_a_name_of_the_library_is_built():
    assert build(TEXT).name == "formula"
    assert build("linear").name == "linear"


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: tensors("x", sizes("N"), dtype="quaternion"), "dtype-unknown"),
        (lambda: indices("i", "2*N"), "extent-form"),
        (lambda: sizes(3), "names-form"),
        (lambda: build("no_such_formula"), "formula-unknown"),
        (lambda: build(3), "formula-kind"),
        (lambda: show("linear"), "formula-kind"),
        (lambda: evaluate_loops(TEXT, {"x": [1.0]}), "formula-kind"),
        (lambda: build("__debug__[N]; y[i] = __debug__[i]"), "name-form"),
    ],
)
def test_malformed_arguments_are_refused(call, code):
    with pytest.raises(DeriveError) as caught:
        call()
    assert caught.value.diagnostic.code == code
