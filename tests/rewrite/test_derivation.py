"""The derivation log: every use of the recipe's rules, and the steps of the search with costs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from derivations import LIBRARY, SOFTMAX, as_tensors, built, every_formula, read, rename_indices
from hypothesis import given
from strategies import formulas
from test_random_formulas import check_close, draw_inputs
from texts import read_literals

from derive import build, evaluate_loops, parse, show
from derive.backend.to_torch import write_cell
from derive.errors import DeriveError, Diagnostic
from derive.formulas import find_formula
from derive.frontend.from_sympy import to_system
from derive.ir.nodes import Size
from derive.ir.polynomial import Polynomial
from derive.ir.recurrences import find_groups
from derive.ir.text import to_lines, to_text
from derive.ir.walk import find_accesses
from derive.judge.evaluate import evaluate_system
from derive.judge.samples import choose_sizes
from derive.judge.samples import draw_inputs as draw_samples
from derive.plan import derivation
from derive.plan.build import make_plan
from derive.plan.derivation import count_costs, count_written, find_derivation
from derive.plan.machine import DEFAULT
from derive.plan.search import Request
from derive.rewrite.recipes import find_uses, prepare
from derive.rewrite.rule import apply_rules
from derive.rewrite.rules.products import flatten_product, flatten_sum

ROWS = read_literals(Path(__file__).with_name("derivation_rows.txt"))

BRACKETS = (flatten_sum, flatten_product)
CHAIN = "A[K, L]; B[L, M]; C[M, N]; y[k,n] = sum[l, m](A[k,l] * B[l,m] * C[m,n])"
WIDE = """
q[I, D]; p[J, D]; a[I, D]; keys[i,j,d] = p[j,d] + a[i,d]
s[i,j] = sum[d](q[i,d] * keys[i,j,d])
"""


def list_entries(text, **sizes):
    """The entries of a formula by name, those of one name in order."""
    entries = {}
    for entry in build(parse(text), sizes=sizes or None).derivation.entries:
        entries.setdefault(entry.name, []).append(entry)
    return entries


def find_value(system, name):
    (value,) = [e.value for e in system.equations if e.target.tensor.name == name]
    return value


def check_uses(system):
    """The uses lead from the system to exactly what the recipe makes of it, one at a time."""
    here = system
    for use in find_uses(system):
        assert use.before is find_value(here, use.equation)
        assert use.after is find_value(use.system, use.equation)
        assert use.before is not use.after
        here = use.system
    assert here is prepare(system)[0]


def evaluate(system, sizes, inputs):
    values = evaluate_system(system, inputs, sizes)
    results = (values[tensor.name] for tensor in system.results)
    return [torch.as_tensor(value, dtype=torch.float64) for value in results]


def check_values(system, stages, count=2):
    """Every stage has the values of the first in float64, at small sizes and at a size 1."""
    for seed, sizes in enumerate(choose_sizes(system, count=count)):
        inputs = draw_samples(system, sizes, seed)
        expected = evaluate(system, sizes, inputs)
        for name, stage in stages:
            chunks = {size.name: 1 for size in stage.sizes if size.name not in sizes}
            found = evaluate(stage, sizes | chunks, inputs)
            torch.testing.assert_close(
                found, expected, rtol=1e-9, atol=1e-9, equal_nan=True, msg=lambda m, n=name: n + m
            )


# The recipe, one use at a time.


@pytest.mark.sampled(9)
@every_formula
def test_uses_end_where_the_recipe_does(name):
    check_uses(built(name).system)


@given(formulas(depth=4, equations=3))
def test_uses_of_random_formulas_end_where_the_recipe_does(drawn):
    check_uses(read(drawn.text, drawn.empty_row))


@given(formulas(depth=4, equations=2))
def test_stages_of_random_formulas_have_equal_loops(drawn):
    system = read(drawn.text, drawn.empty_row)
    inputs = draw_inputs(system, dict(drawn.sizes), 0)
    expected = evaluate_loops(parse(drawn.text, empty_row=drawn.empty_row), inputs)
    for use in find_uses(system):
        text = "\n".join(to_lines(rename_indices(use.system)))
        found = evaluate_loops(parse(text, empty_row=drawn.empty_row), inputs)
        check_close(as_tensors(found), as_tensors(expected), f"{use.name}\n{text}")


def test_equal_nodes_are_rewritten_at_once():
    uses = find_uses(read("x[N]; y[i] = log(sum[j](exp(x[j]))) * x[i] + log(sum[j](exp(x[j])))"))
    assert [use.name for use in uses] == ["find_logsumexp"]


def test_a_wide_sum_is_put_where_it_is_contracted():
    names = [use.name for use in find_uses(read(WIDE))]
    assert names == ["open_wide_sum", "distribute_product"]


def test_a_guard_is_carried_to_the_definition():
    text = "x[N]; r[i,j] = sqrt(x[i] - x[j]); z = sum[i, j, i < j](1 / r[i,j])"
    (use,) = find_uses(read(text))
    assert (use.name, use.equation) == ("carry_guard", "r")


# Entries of the library.


@pytest.mark.sampled(9)
@every_formula
def test_entries_begin_where_the_one_before_ends(name):
    made = built(name)
    shown = {e.target.tensor.name: e.value for e in made.system.equations}
    costs = None
    for entry in made.derivation.entries:
        if entry.system is not None:
            assert entry.before is shown.get(entry.equation)  # None for one that is new
            assert entry.before is not entry.after
            shown[entry.equation] = entry.after
            found = find_value(rename_indices(entry.system), entry.equation)
            assert apply_rules(entry.after, BRACKETS) is apply_rules(found, BRACKETS)
        if entry.new is not None and entry.new.seconds is not None:
            assert costs in {None, entry.old}
            costs = entry.new
    assert costs in {None, count_costs(made.plan, DEFAULT)}


@pytest.mark.sampled(9)
@every_formula
def test_stages_have_equal_values(name):
    made = built(name)
    stages = [(e.name, e.system) for e in made.derivation.entries if e.system is not None]
    whole = [stage for stage in stages if stage[1].results == made.system.results]
    assert len(whole) == len(stages) or find_groups(made.system)  # a turn has results of its own
    check_values(made.system, whole, count=1)


@pytest.mark.sampled(9)
@every_formula
def test_stages_can_be_read_back(name):
    made = built(name)
    for entry in made.derivation.entries:
        if entry.system is not None:
            lines = "\n".join(to_lines(rename_indices(entry.system)))
            assert show(parse(lines, empty_row=entry.system.empty_row)) == lines


@pytest.mark.slow
def test_what_the_search_took_is_what_the_notes_say():
    taken = 0
    for name in LIBRARY:
        plan = built(name).plan
        entries = [entry for entry in plan.log if entry.is_choice]
        notes = [note.partition(":")[0] for note in plan.notes]
        told = [entry.name for entry in built(name).derivation.entries]
        for entry in entries:
            assert entry.name in notes
            assert entry.name in told
        taken += len(entries)
    assert taken >= 2


# Single entries.


def test_relative_attention_loses_a_factor_of_D_in_memory():
    entries = [e for e in built("relative_attention").derivation.entries if e.system is not None]
    assert [(e.name, e.equation) for e in entries] == [
        ("distribute_product", "alpha"),
        ("distribute_product", "z"),
    ]
    old, new = entries[0].old, entries[1].new
    B, D, H, S = (Polynomial.of(Size(name)) for name in "BDHS")
    (scores,) = (B * H * S * S).terms
    (wide,) = (B * D * H * S * S).terms
    assert old.elements.terms[wide] == 2  # the sum lies as its terms do: the product copies it
    assert wide not in new.elements.terms
    assert new.elements.terms[scores] == 2  # others are dropped
    assert old.elements_at > 5 * new.elements_at
    assert old.seconds > new.seconds


def test_a_softmax_that_is_written_out_is_found():
    (entry,) = list_entries(SOFTMAX)["find_softmax"]
    assert to_text(entry.after) == "softmax[j](x[i,j])"
    assert entry.law == "exp(e_j) / sum_j exp(e_j) = softmax_j(e)"


def test_an_order_of_contraction_is_a_nested_product():
    (entry,) = list_entries(CHAIN, K=1000, L=1000, M=1000, N=1)["contract_in_pairs"]
    assert to_text(entry.before) == "sum[l, m](A[k,l] * B[l,m] * C[m,n])"
    assert to_text(entry.after) == "sum[l](A[k,l] * sum[m](B[l,m] * C[m,n]))"
    (entry,) = list_entries(CHAIN, K=1, L=1000, M=1000, N=1000)["contract_in_pairs"]
    assert to_text(entry.after) == "sum[m](C[m,n] * sum[l](A[k,l] * B[l,m]))"


@pytest.mark.slow
def test_nested_pairs_have_the_value_of_the_product():
    found = 0
    for name in LIBRARY:
        made = built(name)
        for entry in made.derivation.entries:
            if entry.name != "contract_in_pairs" or len(made.system.equations) > 1:
                continue
            if {a.tensor for a in find_accesses(entry.before)} - {*made.system.inputs}:
                continue  # its parts were named by a step
            shapes, target = to_lines(made.system)[0], made.system.equations[0].target
            places = f"{to_text(target)} = " if target.places else "y = "
            one, other = (
                parse(f"{shapes}; {places}{to_text(side)}") for side in (entry.before, entry.after)
            )
            system = to_system(one)
            inputs = draw_samples(system, choose_sizes(system, count=1)[0], 0)
            expected = torch.as_tensor(evaluate_loops(one, inputs))
            torch.testing.assert_close(torch.as_tensor(evaluate_loops(other, inputs)), expected)
            found += 1
    assert found >= 4


def test_an_entry_of_a_lossy_rule_names_the_loss():
    text = "x[N, D]; y[M, D]; d[i,j] = sum[k]((x[i,k] - y[j,k])**2)"
    made = build(parse(text), sizes={"N": 512, "M": 512, "D": 64}, fast_math=True, cells=False)
    (entry,) = [e for e in made.derivation.entries if e.is_choice and e.system is not None]
    assert entry.name == "expand_square"
    assert entry.remarks[0].startswith("loses ")
    assert entry.new.seconds < entry.old.seconds


def test_a_preparing_rule_shares_the_entry_of_the_next_one():
    entries = list_entries("x[N]; index i < N; y[i] = sum[j](x[j] * [j <= i])")
    (entry,) = entries["restrict_sum"]
    assert "guard_product" not in entries
    assert entry.remarks[0].startswith("with guard_product: ")
    assert "guard_product" in list_entries("x[N]; y[i] = x[i] * [i >= 1]")


def test_an_entry_of_a_call_names_the_call():
    text = "x[N, D]; g, b[D]; y[n,d] = (x[n,d] - mean[c](x[n,c])) / sqrt(var[c](x[n,c]) + 1e-5)"
    text += " * g[d] + b[d]"
    (entry,) = list_entries(text)["call_torch"]
    assert entry.remarks[0].startswith("by torch.nn.functional.layer_norm(x[n,d], (D,)")
    assert "mean[" in to_text(entry.before)
    assert entry.new.elements_at < entry.old.elements_at
    assert not any(
        entry.name == "call_torch" for entry in build(parse(text), cells=False).derivation.entries
    )


def test_a_loop_names_its_steps():
    (entry,) = [
        e for e in built("relative_attention").derivation.entries if e.name == "loop_over_blocks"
    ]
    plan = built("relative_attention").plan
    assert entry.law == "a block of h at a time, 1 of 8 positions"
    inside = plan.steps[plan.tile.first : plan.tile.last + 1]
    assert entry.remarks[0] == f"in the loop: {', '.join(step.name for step in inside)}"
    assert entry.new.elements_at < entry.old.elements_at


def test_an_entry_of_a_memory_loop_names_the_budget():
    made = build(find_formula("masked_attention"), memory="160MiB")
    (entry,) = [e for e in made.derivation.entries if e.name == "loop_over_blocks"]
    assert entry.remarks[-1].endswith(" elements are alive at once, and 41,943,040 may be")
    assert entry.new.elements_at <= 41_943_040 < entry.old.elements_at


def test_a_plan_without_a_search_has_no_search_entries():
    plan = make_plan(read(CHAIN), {"K": 2, "L": 3, "M": 4, "N": 5})
    assert plan.log == ()
    assert [entry.name for entry in find_derivation(plan, Request(), write_cell).entries] == [
        "contract_in_pairs"
    ]


WRITTEN = dict(ROWS["WRITTEN"])


@pytest.mark.parametrize("text", WRITTEN)
def test_loops_as_written_are_counted(text):
    (written,) = count_written(read(text))
    assert to_text(written.operations.to_expr()) == WRITTEN[text]


def test_a_derivation_is_the_same_twice():
    made = built("causal_linear_attention")
    again = find_derivation(made.plan, made.request, write_cell)
    assert again == made.derivation
    assert again == build(find_formula("causal_linear_attention")).derivation


def test_a_form_without_a_plan_has_no_costs(monkeypatch):
    lower, calls = derivation.lower_system, []

    def refuse_second(draft, sizes, **told):
        calls.append(draft)
        if len(calls) == 2:
            raise DeriveError(Diagnostic("some", "thing"))
        return lower(draft, sizes, **told)

    monkeypatch.setattr(derivation, "lower_system", refuse_second)
    made = built("relative_attention")
    first, second, *_ = find_derivation(made.plan, made.request, write_cell).entries
    assert (first.new, second.old) == (None, None)
    assert replace(first, new=made.derivation.entries[0].new) == made.derivation.entries[0]


@pytest.mark.parametrize(("text", "name"), ROWS["forms of what recurs have equal values"])
def test_forms_of_what_recurs_have_equal_values(text, name):
    made = build(parse(text), sizes={"T": 4096} if "g**" in text else None)
    stages = [(e.name, e.system) for e in made.derivation.entries if e.name.startswith(name)]
    assert stages
    check_values(made.system, stages)
