"""The corpus of pairs, each judged by the loops, by fields and proofs alone, and by the checker."""

import pytest
from corpus import FAR, call, find_distance, is_equal_by_loops, load_pairs

from derive import DeriveError, check
from derive.checker.judge import judge_fields
from derive.checker.load import load
from derive.checker.pick import pick_program
from derive.checker.processes import CannotRunError
from derive.checker.stages import find_proof
from derive.checker.verdict import Job
from derive.judge.samples import choose_sizes, draw_inputs

GRADES = ["proved", "identical", "agrees", "unknown"]  # grades of right code, the best first
# Code that is wrong only outside the samples of fields, or the conditions of a proof.
SHOWN_FAR = {"blocks_without_rescale", "distance_capped", "long_inputs_take_another_path"}
PROVED_AS_FAR = {
    "blocks_without_rescale": "at M=3; M=7, which the code takes as numbers",
    "long_inputs_take_another_path": "for all sizes with N <= 32",
}


def list_pairs(*, slow=True):
    """Return the pairs as parameters; slow pairs have their mark if `slow`."""
    return [
        pytest.param(
            pair,
            id=f"{'right' if pair.right else 'wrong'}-{pair}",
            marks=[pytest.mark.slow] if slow and pair.slow else [],
        )
        for pair in load_pairs()
    ]


def find_pair(name):
    (found,) = [pair for pair in load_pairs() if pair.name == name]
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("pair", list_pairs(slow=False))
def test_the_loops_agree_with_the_heading(pair):
    assert is_equal_by_loops(pair) is pair.right


@pytest.mark.sampled(6)
@pytest.mark.parametrize("pair", list_pairs())
def test_the_verdict_is_the_one_on_record(pair, tmp_path):
    verdict = check(pair.write_file(tmp_path), pair.formula, bind=pair.bind, sizes=pair.sizes)
    report = str(verdict)
    for part in pair.entries.get("says", "").splitlines():
        assert part in report, report
    if pair.right:
        assert verdict.same is not False, report
        assert GRADES.index(verdict.grade) <= GRADES.index(pair.entries["verdict"]), report
        return
    assert verdict.same is False, report
    assert verdict.grade == "different"
    missed = pair.entries.get("missed", "")
    assert pair.is_edited_by(verdict.edit) or "edit" in missed, report
    assert pair.line in {None, verdict.line} or "line" in missed, report


@pytest.mark.sampled(3)
@pytest.mark.parametrize("pair", list_pairs())
def test_neither_fields_nor_a_proof_take_the_wrong_for_the_right(pair, tmp_path):
    path, system = pair.write_file(tmp_path), pair.system
    try:
        choice = pick_program(load(path, system.name), system, pair.bind, pair.sizes)
    except CannotRunError:
        assert not pair.right
        return
    found = judge_fields(choice.program, choice.samples)
    if pair.right:
        assert found.same or ("fields" in pair.entries and found.reason), found
        return
    assert (found.same is not False) is (pair.name in SHOWN_FAR)
    job = Job(path, pair.formula, system, pair.bind, pair.sizes, False, 30)
    try:
        proof = find_proof(job, choice)
    except DeriveError:
        return
    assert bool(proof) is (pair.name in PROVED_AS_FAR), proof
    assert (proof.words if proof else "").startswith(PROVED_AS_FAR.get(pair.name, ""))


def test_pairs_have_the_entries_of_their_kind():
    pairs = load_pairs()
    assert len({pair.name for pair in pairs}) == len(pairs)
    for pair in pairs:
        assert ("verdict" in pair.entries) is pair.right, pair
        assert pair.right or pair.edit or "says" in pair.entries, pair
        assert all(word == word.lower() for word in pair.edit), pair
        assert pair.right or pair.line or not pair.edit, pair


def test_the_loops_detect_a_small_error():
    """A right result times 1.001, or flattened, is far from the result."""
    pair = find_pair("bmm_on_views")
    sizes = choose_sizes(pair.system, 1)[0]
    found = call(pair, {**sizes, **draw_inputs(pair.system, sizes)})
    assert find_distance(found, (found[0] * 1.001,)) > FAR
    assert find_distance(found, (found[0].flatten(),)) == float("inf")


@pytest.mark.slow
@pytest.mark.parametrize("given", ["bindings", "the mask", "nothing"])
def test_bindings_of_a_class_may_be_partial(given, tmp_path):
    pair = find_pair("attribute_repaired")
    bind = {"bindings": pair.bind, "the mask": {"mask": pair.bind["mask"]}, "nothing": {}}[given]
    verdict = check(pair.write_file(tmp_path), pair.formula, bind=bind)
    if given == "nothing":
        assert verdict.same is False
        assert "masked_fill" in str(verdict).partition("  >")[2].partition("\n")[0]
        return
    assert verdict.same is True, str(verdict)
    assert "the code is judged only where C = E" in [finding.says for finding in verdict.findings]
    assert all(each["D"] == each["H"] * each["C"] for each in verdict.sizes)
    assert len({each["H"] for each in verdict.sizes}) == 3
