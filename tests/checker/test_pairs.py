"""Code of many kinds against formulas, judged by the checker, and by fields and proofs alone.

pairs.txt holds formulas, in the notation or a name of the library. Under each are the pairs that
are judged against it:

    [right: its_name]                       or `wrong: its_name`; `right, slow:` where it takes long
    # What the code does, in a sentence.
        verdict: proved                     right code: the least grade
        edit: scale|factor; 1/sqrt(d)       wrong code: words of the edit, `|` separates choices
        line: scores =                      wrong code: a part of the line at fault
        missed: edit, line                  the entries that are not found yet

and the code. Entries for special cases:

        bind: heads=H, w.weight=W.T         values of arguments and parameters
        sizes: P=3                          sizes that the code needs; all others are free
        code: Heads                         the function or class, if there are several
        empty row: zeros                    the value of the formula for fully masked rows
        fields: no                          random fields do not model the code
        says: --bind mask=mask.T            a part of the report; may be repeated
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest
from judged import read_binds
from texts import read_sections

from derive import DeriveError, Formula, check, parse
from derive.checker.judge import judge_fields
from derive.checker.load import load
from derive.checker.pick import pick_program
from derive.checker.processes import CannotRunError
from derive.checker.stages import find_proof
from derive.checker.verdict import Job
from derive.formulas import find_formula
from derive.frontend.from_sympy import from_sympy
from derive.ir.nodes import System

GRADES = ["proved", "identical", "agrees", "unknown"]  # grades of right code, the best first
# Code that is wrong only outside the samples of fields, or the conditions of a proof.
SHOWN_FAR = {"blocks_without_rescale", "distance_capped", "long_inputs_take_another_path"}
PROVED_AS_FAR = {
    "blocks_without_rescale": "at M=3; M=7, which the code takes as numbers",
    "long_inputs_take_another_path": "for all sizes with N <= 32",
}


@dataclass(frozen=True)
class Pair:
    """Code, the formula that it should compute, and whether it does."""

    name: str
    right: bool
    slow: bool
    text: str  # the formula, or its name in the library
    source: str
    entries: Mapping[str, str] = field(hash=False)

    @cached_property
    def formula(self) -> Formula:
        """The formula, parsed or from the library."""
        if "=" not in self.text:
            return find_formula(self.text)
        return parse(self.text, empty_row=self.entries.get("empty row", "nan"))

    @cached_property
    def system(self) -> System:
        """The formula as equations."""
        return from_sympy(self.formula)

    @property
    def bind(self) -> dict[str, str]:
        """The expressions bound to arguments and parameters."""
        return dict(read_binds(self.entries.get("bind", "")))

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the code needs."""
        return {name: int(size) for name, size in read_binds(self.entries.get("sizes", ""))}

    def is_edited_by(self, edit: str) -> bool:
        """Whether an edit contains all the words."""
        words = [word.strip() for word in self.entries.get("edit", "").split(";") if word.strip()]
        return all(any(each in edit.lower() for each in word.split("|")) for word in words)

    @cached_property
    def line(self) -> int | None:
        """The number of the line at fault."""
        part = self.entries.get("line")
        rows = self.source.splitlines()
        found = [n for n, row in enumerate(rows, 1) if part is not None and part in row]
        assert part is None or len(found) == 1, f"{self.name}: {part!r} is on lines {found}"
        return found[0] if found else None

    def write_file(self, folder: Path) -> str:
        """Write the code to a file, and return its address for `derive check`."""
        path = folder / f"{self.name}.py"
        path.write_text(self.source, encoding="utf-8")
        return f"{path}:{self.entries['code']}" if "code" in self.entries else str(path)


def read_pairs() -> Iterator[Pair]:
    """Yield the pairs in the order of the text."""
    formula = ""
    for section in read_sections(__file__, "pairs.txt"):
        if section.title == "formula":
            formula = section.text
            continue
        known = re.fullmatch(r"(right|wrong)(, slow)?: (\w+)", section.title)
        assert known, f"code under {section.title or 'no heading'}"
        right, slow, name = known[1] == "right", bool(known[2]), known[3]
        yield Pair(name, right, slow, formula, section.text, section.entries)


PAIRS = {pair.name: pair for pair in read_pairs()}
each_pair = pytest.mark.parametrize(
    "pair",
    [
        pytest.param(
            pair,
            id=f"{'right' if pair.right else 'wrong'}-{pair.name}",
            marks=[pytest.mark.slow] if pair.slow else [],
        )
        for pair in PAIRS.values()
    ],
)


@each_pair
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


@each_pair
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


@pytest.mark.slow
@pytest.mark.parametrize("given", ["bindings", "the mask", "nothing"])
def test_bindings_of_a_class_may_be_partial(given, tmp_path):
    pair = PAIRS["attribute_repaired"]
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
