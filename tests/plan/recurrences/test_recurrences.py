"""Recurrences over one and several indices: values, refusals, recurrent torch modules."""

from itertools import takewhile

import pytest
import torch
from fast_cases import slow_except
from texts import Expressions, read_named

from derive import DeriveError, build, evaluate_loops, gradient, parse, show
from derive.frontend.from_sympy import to_system
from derive.judge.samples import choose_sizes, draw_inputs

ROWS = Expressions(__file__, "recurrences_rows.txt", globals())


@pytest.mark.parametrize(
    ("text", "agrees"), ROWS["recurrences from the last place and with guards"]
)
def test_recurrences_from_the_last_place_and_with_guards(text, agrees):
    if agrees:
        assert build(text).judge().agrees
    else:
        with pytest.raises(DeriveError, match="may read outside"):
            build(text)


@pytest.mark.parametrize(
    ("text", "means"), ROWS["places with equations of their own begin or end a recurrence"]
)
def test_places_with_equations_of_their_own_begin_or_end_a_recurrence(text, means):
    one, other = parse(text), parse(means)
    system = to_system(one)
    tensors = draw_inputs(system, choose_sizes(system)[0])
    values = (torch.as_tensor(evaluate_loops(each, tensors)) for each in (one, other))
    assert torch.equal(*values)
    assert build(one).judge().agrees


# Recurrences over two or more indices, by title.
WAVES = read_named(__file__, "waves.txt")


FAST = slow_except(
    WAVES,
    *("before", "a corner told twice", "one up, one down", "three", "soft"),
    *("a local alignment", "of later rows"),
)


@pytest.mark.parametrize("name", FAST)
def test_recurrences_over_several_indices_are_built_and_differentiated(name):
    formula = parse(f"c[I,J]; {WAVES[name]}")
    assert show(parse(show(formula))) == show(formula)
    built = build(formula)  # build() also compares the file with the loops over fields
    for sizes in choose_sizes(built.system)[:2]:
        values = draw_inputs(built.system, sizes, 1)
        found, expected = built.function(**values), evaluate_loops(formula, values)
        torch.testing.assert_close(found, expected, check_dtype=False, rtol=1e-4, atol=1e-5)
    names = [key for key, value in values.items() if torch.is_tensor(value)]

    def call(*given):
        found = built.function(**{**values, **dict(zip(names, given, strict=True))})
        found = found if isinstance(found, tuple) else (found,)
        return tuple(each.masked_fill(each.isinf(), 0) for each in found)

    leaves = [values[key].double().requires_grad_() for key in names]
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    if name in {"guards", "one up, one down"}:
        assert build(gradient(formula)).judge().agrees


# The number of torch.where calls in a turn.
CHOICES = {"before": 1, "of batches": 1, "borders that are data": 1}


@pytest.mark.parametrize("name", CHOICES)
def test_border_values_are_padded_or_selected(name):
    source = build(f"c[I,J]; {WAVES[name]}").source
    lines = source[source.index("for D_") :].splitlines()
    turn = takewhile(lambda line: not line.startswith("    D_"), lines)
    code = [line for line in turn if not line.lstrip().startswith("#")]
    assert sum(line.count("torch.where(") for line in code) == CHOICES[name]


def test_alignments_are_those_of_a_loop_in_a_loop():
    def align(c):
        rows = [[0.0] + [torch.inf] * c.shape[1]]
        for row in c:
            rows.append([torch.inf])
            for j, cost in enumerate(row):
                rows[-1].append(cost + min(rows[-2][j], rows[-2][j + 1], rows[-1][j]))
        return torch.stack([torch.stack(row[1:]) for row in rows[1:]])

    text = f"c[I,J]; {WAVES['before']}"
    torch.testing.assert_close(build(text).function(c := torch.rand(9, 4)), align(c))


@pytest.mark.parametrize(("text", "call"), ROWS["running sums are one call"])
def test_running_sums_are_one_call(text, call):
    declared = "x[T, D]; g[D]\n" if "g[" in text else "x[T, D]\n"
    built = build(parse(declared + text))
    assert call in built.source
    assert ("_recur(" in built.source) is (call == "_recur(")
    inputs = draw_inputs(built.system, {"T": 6, "D": 3})
    expected = evaluate_loops(built.formula, inputs)
    torch.testing.assert_close(built.function(**inputs), torch.as_tensor(expected))
