"""Pasted code and its verdicts: codes.txt."""

import pytest
from judged import read_binds
from texts import read_sections

from derive import check, parse

FAST = {
    *("by its name alone", "a mean over each row divided by the count of all", "another string"),
    *("one may leave rows empty where the formula has such", "an argument is a dictionary"),
    *("the first line says that the defaults differ", "drawn data do not pass an assertion"),
    *("a function that fields do not model is told in words", "a table, of no tensor", "no tie"),
    *("several fit", "a bias that the formula has not is told", "a gradient that is cut"),
    *("the next call starts from another buffer", "both results", "none is right"),
}


def read_cases():
    """(formula, verdict, section) of each code."""
    formula = ""
    for section in read_sections(__file__, "codes.txt"):
        if section.title == "formula":
            formula = section.text
        else:
            verdict, title = section.title.split(": ", 1)
            marks = [] if title in FAST else [pytest.mark.slow]
            yield pytest.param(formula, verdict, section, id=title, marks=marks)


@pytest.mark.parametrize(("formula", "expected", "section"), list(read_cases()))
def test_pasted_code_gets_the_verdict_of_the_table(formula, expected, section):
    entries = dict(section.entries)
    bind, init = dict(read_binds(entries.pop("bind", ""))), entries.pop("init", None)
    way = {"init": init, "backward": "backward" in entries and bool(entries.pop("backward"))}
    verdict = check(section.text, parse(formula), bind=bind or None, **way)
    report = str(verdict)
    assert expected in {"same" if verdict.same else "", verdict.grade}, report
    assert all(part in report for part in entries.pop("says", "").split("\n")), report
    assert entries.pop("lacks", "\0") not in report
    assert entries.pop("line", str(verdict.line)) == str(verdict.line), report
    corrected = [(str(line), text.strip()) for line, text in verdict.corrected]
    assert entries.pop("corrected", None) in {None, *(text for _, text in corrected)}, report
    assert entries.pop("corrected line", None) in {None, *(line for line, _ in corrected)}, report
    assert not entries
