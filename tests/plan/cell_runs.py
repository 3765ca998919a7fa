"""Formulas with cells; comparison of functions with and without cells, values and gradients."""

import re
import warnings
from functools import cache
from pathlib import Path

import torch
from texts import read_lists

from derive import parse
from derive.compiler import build
from derive.frontend.from_sympy import to_system
from derive.judge.samples import draw_inputs, find_sizes

HERE = Path(__file__).parent
PLAIN, BIASED, MASKED, OTHERS = read_lists(HERE / "attention.txt").values()

LAYER = "functional.layer_norm("
RMS = "functional.rms_norm("
LINEAR = "functional.linear("
ADDMM = "torch.addmm("
ENTROPY = "functional.cross_entropy("
CDIST = "torch.cdist("
SEGMENTS = "_sum_segments("
PLACES = "_sum_places("
PICK = "_take_places("
AVERAGE = "_average_segments("
SO_FAR = "_sum_so_far("
TRANSPOSED = "functional.conv_transpose1d("
TEXTS = read_lists(HERE / "cells.txt")
FOUND = {call: [t for t in texts if not t.startswith("not ")] for call, texts in TEXTS.items()}
SPELLINGS = [(call, text) for call, texts in FOUND.items() for text in texts]
IMPOSTORS = [(c, text[4:]) for c, texts in TEXTS.items() for text in texts if text[:4] == "not "]

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@cache
def make(text, *, cells=True, empty_row="nan", **sizes):
    """Return the build of a formula."""
    return build(parse(text, empty_row=empty_row), sizes=sizes or None, cells=cells)


def make_both(text, empty_row="nan"):
    """Return the functions with cells and without."""
    return tuple(make(text, cells=cells, empty_row=empty_row).function for cells in (True, False))


def list_sizes(text):
    """Return ordinary sizes, and for each size those with 0 and with 1 in its place."""
    names = find_sizes(to_system(parse(text)))
    usual = {name: 3 + place for place, name in enumerate(names)}
    sizes = [usual, *({**usual, name: few} for name in names for few in (0, 1))]
    for shape, below in re.findall(r"int \w+\[([^]]*)\] < (\w+)", text):  # an entry needs a value
        rows = dict.fromkeys(shape.split(", "), 0)
        sizes = [each | ({} if each[below] else rows) for each in sizes]
    return sizes


def draw(text, sizes, seed=0, dtype=torch.float64):
    """Return random arguments at the given sizes."""
    return draw_inputs(to_system(parse(text)), sizes, seed, dtype)


def find_leaves(inputs):
    """Return the arguments that have a gradient."""
    return [name for name, value in inputs.items() if is_real(value)]


def is_real(value):
    """Whether a value is a real tensor."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def run(function, inputs):
    """Return the results, and the gradients of their sum with fixed weights."""
    given = {
        name: value.detach().clone().requires_grad_() if is_real(value) else value
        for name, value in inputs.items()
    }
    with warnings.catch_warnings():  # torch warns of a variance of no entries
        warnings.filterwarnings("ignore", message="var.*degrees of freedom")
        found = function(**given)
    results = found if isinstance(found, tuple) else (found,)
    weights = [torch.linspace(0.5, 1.5, r.numel(), dtype=r.dtype).view(r.shape) for r in results]
    leaves = [given[name] for name in find_leaves(given)]
    slopes = torch.autograd.grad(results, leaves, weights, materialize_grads=True)
    return [r.detach() for r in results], slopes


def find_refusal(function, inputs):
    """Return the error that refuses the sizes, or ""."""
    try:
        run(function, inputs)
    except ValueError as error:
        return str(error)
    return ""


def assert_same(functions, inputs, *, masked=False):
    """Compare values, nan and gradients.

    A mask by a product with 0 spreads nan: with `masked`, only finite gradients are compared.
    """
    (ours, slopes), (theirs, expected) = (run(function, inputs) for function in functions)
    torch.testing.assert_close(ours, theirs, equal_nan=True, **CLOSE)
    for slope, other in zip(slopes, expected, strict=True):
        known = other.where(other.isfinite(), slope) if masked else other
        torch.testing.assert_close(slope, known, equal_nan=True, **CLOSE)


def spread_out(value):
    """Return the values in a tensor with larger strides in the reverse order."""
    if not isinstance(value, torch.Tensor) or not value.dim():
        return value
    wide = value.new_zeros([2 * extent for extent in reversed(value.shape)])
    held = wide[tuple(slice(None, None, 2) for _ in value.shape)]
    return held.permute(*reversed(range(value.dim()))).copy_(value)


def find_error(found, exact):
    """Return the root mean square error."""
    return (found.double() - exact).square().mean().sqrt().item()
