"""Proofs of code, on the corpus of pairs: the lifter and the prover, and nothing else."""

import tempfile
from functools import cache
from pathlib import Path

import pytest
from pairs.corpus import load_pairs

from derive import DeriveError
from derive.checker.load import CannotRunError, load
from derive.checker.pick import pick_program
from derive.checker.stages import find_proof
from derive.checker.verdict import Job
from derive.frontend.system import to_system

RIGHT = load_pairs(right=True)
WRONG = load_pairs(right=False)
AS_FAR = {  # wrong beyond what the proof says that it holds for
    "blocks_without_rescale": "at M=3; M=7, which the code takes as numbers",
    "long_inputs_take_another_path": "for all sizes with N <= 32",
}
LEAST = 54  # right pairs that are proved


@cache
def find(pair):
    """What the proof of a pair holds for; None where there is none."""
    system = to_system(pair.formula)
    binds, sizes = dict(pair.bind or {}), dict(pair.sizes or {})
    with tempfile.TemporaryDirectory() as folder:
        path = pair.write(Path(folder))
        picked = pick_program(load(path, system.name), system, binds, sizes)
        job = Job(path, pair.formula, system, binds, sizes, False, 30)
        try:
            return find_proof(job, picked)
        except DeriveError:
            return None


@pytest.mark.parametrize("pair", WRONG, ids=str)
def test_no_wrong_code_is_proved(pair):
    try:
        found = find(pair)
    except CannotRunError:
        return  # code that does not run at all is never the same
    assert (found.words if found else "").startswith(AS_FAR.get(str(pair), ""))
    assert bool(found) is (str(pair) in AS_FAR), found


def test_right_code_is_proved():
    proved = [str(pair) for pair in RIGHT if find(pair)]
    assert len(proved) >= LEAST, f"{len(proved)}: {' '.join(proved)}"
