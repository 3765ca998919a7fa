"""The loop over a recurrence: order of equations, kept states, conditions, library calls."""

import re

import pytest
import torch
from texts import Expressions, read_parts

from derive import DeriveError, build, evaluate_loops, parse
from derive.judge.samples import choose_sizes, draw_inputs

ROWS = Expressions(__file__, "recurrence_turns_rows.txt", globals())

TURN = ["u[t] = tanh(v[t] + w[t])", "v[t] = w[t] * x[t] + u[t - 1]", "w[t] = w[t - 1] + v[t - 1]"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("is_begun_first", [True, False])
def test_equations_of_a_turn_come_in_any_order(order, is_begun_first):
    begin = ["u[-1] = 1; v[-1] = 0; w[-1] = 2"]
    turn = [TURN[k] for k in order]
    lines = [*begin, *turn] if is_begun_first else [*turn, *begin]
    formula = parse("\n".join(["x[T]", *lines, "return u, v, w"]))
    inputs = {"x": torch.randn(4, dtype=torch.float64)}
    found = build(formula).function(**inputs)
    for one, other in zip(found, evaluate_loops(formula, inputs), strict=True):
        torch.testing.assert_close(one, torch.as_tensor(other))


def test_equations_that_read_one_another_in_one_turn_are_refused():
    with pytest.raises(DeriveError, match="not place after place"):
        build(parse("x[T]\nu[-1] = 0\nu[t] = v[t] + u[t - 1]\nv[t] = u[t] * x[t]"))


@pytest.mark.parametrize("text", ROWS["recurrences that read one anothers places before"])
def test_recurrences_that_read_one_anothers_places_before(text):
    built = build(text)
    for length in (1, 2, 3, 6):
        inputs = draw_inputs(built.system, {"T": length, "B": 2})
        expected = evaluate_loops(built.formula, inputs)
        for one, other in zip(built.function(**inputs), expected, strict=True):
            torch.testing.assert_close(one, torch.as_tensor(other))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "kept"), ROWS["only states that more than sums and the last place read are kept"]
)
def test_only_states_that_more_than_sums_and_the_last_place_read_are_kept(text, kept):
    built = build(text, sizes={"T": 5, "B": 512 if "S[" in text else 3})
    stacked = re.findall(r"(\w+) = torch\.stack\((\w+_each)", built.source.replace("(\n", "("))
    assert [name for name, _ in stacked] == [kept] * bool(kept)
    assert_right_at_every_length(built)


@pytest.mark.parametrize(
    ("text", "choices"), ROWS["conditions on the place of a turn are decided before the loop"]
)
def test_conditions_on_the_place_of_a_turn_are_decided_before_the_loop(text, choices):
    built = build(text)
    turn = built.source.partition("\n    for ")[2].partition("return ")[0]
    assert turn.count("torch.where(") == choices
    assert built.judge().agrees
    assert_right_at_every_length(built)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ROWS["recurrences at every length"])
def test_recurrences_at_every_length(text):
    built = build(text)
    assert built.judge().agrees
    assert_right_at_every_length(built)


def assert_right_at_every_length(built):
    for length in (0, 1, 2, 3, 5):
        inputs = draw_inputs(built.system, {"T": length, "B": 3})
        try:
            expected = evaluate_loops(built.formula, inputs)
        except DeriveError as error:  # an equation fills a position outside of the tensor
            assert error.diagnostic.code == "reads-outside"
            with pytest.raises(ValueError, match="is not there"):
                built.function(**inputs)
            continue
        results = built.function(**inputs)
        results, expected = (
            [torch.as_tensor(each) for each in (found if isinstance(found, tuple) else (found,))]
            for found in (results, expected)
        )
        for one, other in zip(results, expected, strict=True):
            torch.testing.assert_close(one, other, check_dtype=False)
        real = (n for n, v in inputs.items() if torch.is_tensor(v) and v.is_floating_point())
        names = [*real] * bool(length)
        values = [inputs.pop(name).double().requires_grad_() for name in names]

        def call(*given, names=names, sizes=inputs):
            return built.function(**dict(zip(names, given, strict=True)), **sizes)

        assert not values or torch.autograd.gradcheck(call, values)


# The first word of a title is the torch call that the recurrence becomes.
GATED = read_parts(__file__, "gates.txt")


@pytest.mark.parametrize("title", GATED)
def test_recurrences_with_gates_are_one_call_of_torch(title):
    built, plain = (build(GATED[title][0], cells=cells) for cells in (True, False))
    called = [name for name in ("lstm", "gru") if f"torch.{name}(" in built.source]
    assert called == [word for word in [title.split(":")[0]] if word != "none"]
    assert built.judge().agrees
    values = draw_inputs(built.system, choose_sizes(built.system)[0])
    leaves = {k: v.requires_grad_() for k, v in values.items() if torch.is_tensor(v)}
    results = [each.function(**{**values, **leaves}) for each in (built, plain)]
    totals = [sum(each.sum() for each in r) if isinstance(r, tuple) else r.sum() for r in results]
    slopes = [torch.autograd.grad(total, [*leaves.values()]) for total in totals]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other)


PATHS = "w[N,N]; D[0,i,j] = w[i,j]; D[k+1,i,j] = min(D[k,i,j], D[k,i,k] + D[k,k,j]); index k < N; "
MOVING = dict(ROWS["moving"])


@pytest.mark.parametrize("text", MOVING.values(), ids=MOVING)
def test_a_turn_reads_the_state_at_places_that_move(text):
    build(text).judge()


def test_a_place_that_the_turn_names_is_a_view():
    source = build(MOVING["shortest paths"], {"N": 64}).source
    assert "D_before[:, l_2][:, None] + D_before[l_2]" in source
