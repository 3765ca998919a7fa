"""Small formulas with something odd in each equal their loop nests; what is left out has no say."""

from math import inf, nan

import pytest
import torch
from test_random_formulas import check_close, draw_inputs, in_double
from texts import Expressions, read_text

from derive.compiler import build
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops

ROWS = Expressions(__file__, "small_formulas_rows.txt")

TABLE = read_text(__file__, "small_formulas.txt").splitlines()
FORMULAS = [line for line in TABLE if line and not line.startswith("#")]
SIZES = ROWS["sizes"]
# Values that a mask leaves out: no sum, product, maximum or softmax may meet them.
MASKED = tuple(ROWS["MASKED"])


@pytest.mark.parametrize("line", FORMULAS)
def test_equals_its_loops(line):
    built = build(parse(line.replace("; ", "\n")))
    for seed, sizes in enumerate(SIZES):
        inputs = draw_inputs(built.system, sizes, seed)
        expected = evaluate_loops(built.formula, inputs)
        with in_double():
            check_close(built.function(**inputs), expected, built.source)
    built.judge()


@pytest.mark.parametrize("line", MASKED)
def test_what_is_left_out_has_no_say(line):
    built = build(parse(f"x, y[N]; bool m[N]\n{line}"))
    mask = torch.tensor([True, False, True, False])
    y = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    x = torch.tensor([1.0, nan, 2.0, inf], dtype=torch.float64)
    clean = torch.where(mask, x, 7)
    value = built.function(x, y, mask)
    torch.testing.assert_close(value, built.function(clean, y, mask))
    check_close(value, evaluate_loops(built.formula, dict(x=x, y=y, m=mask)), built.source)
