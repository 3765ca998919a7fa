"""Rules of the linter: their examples, and agreement with torch and numpy."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from house import ROOT
from hypothesis import given
from hypothesis import strategies as st
from texts import Expressions, read_rows

from derive.frontend.from_einsum import Fault, read_einsum
from derive.linter.lint import lint_bytes
from derive.linter.rules import CALL_RULES, PRELUDE, RULES, Severity, find_widest

ROWS = Expressions(__file__, "lint_rules_rows.txt")


STRINGS = [string for (string,) in read_rows(ROOT / "tests/support/einsum_strings.txt")]


def lint_text(text):
    """Return the findings of a text after the prelude."""
    found = lint_bytes("example.py", (PRELUDE + text + "\n").encode())
    return found.findings


def find_codes(text):
    return [finding.code for finding in lint_text(text)]


def find_grave(text):
    """Return the codes of findings above the severity INFO."""
    return [f.code for f in lint_text(text) if f.severity is not Severity.INFO]


# Every rule carries its examples.

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
def test_the_example_that_hurts_is_found(rule):
    # a coding line counts only as the first of a file
    text = rule.hurts if rule.name == "unreadable-file" else PRELUDE + rule.hurts
    found = lint_bytes("example.py", text.encode()).findings
    assert rule.code in [finding.code for finding in found]
    assert {f.severity for f in found if f.code == rule.code} == {rule.severity}
    assert {f.name for f in found if f.code == rule.code} == {rule.name}


@each_rule
def test_the_example_that_is_fine_is_not_found(rule):
    assert rule.code not in find_codes(rule.fine)


@each_rule
def test_a_rule_has_a_reason(rule):
    assert rule.title.endswith(".")
    assert len(rule.why) > 40
    assert rule.hurts != rule.fine


def test_codes_and_names_are_of_one_rule():
    for part in ("code", "name"):
        values = [getattr(rule, part) for rule in RULES]
        assert len(set(values)) == len(values)
    codes = [rule.code for rule in RULES]
    assert codes == sorted(codes)
    first = {Severity.ERROR: "DE0", Severity.WARNING: "DE1", Severity.INFO: "DE2"}
    assert all(rule.code.startswith(first[rule.severity]) for rule in CALL_RULES)


# Calls with findings, and calls without.

GRAVE = read_rows(__file__, "calls.txt")


@pytest.mark.parametrize(("call", "codes"), GRAVE, ids=[call for call, _ in GRAVE])
def test_a_call_gets_its_codes(call, codes):
    assert find_grave(f"y = {call}") == codes.split()


PLAIN = dict(ROWS["PLAIN"])


@pytest.mark.parametrize("call", PLAIN)
def test_the_plain_call_is_suggested(call):
    found = [f.says for f in lint_text(f"y = {call}") if f.name == "plain-call"]
    assert found == ([f"the same as {PLAIN[call]}"] if PLAIN[call] else [])


@pytest.mark.parametrize("string", [s for s in STRINGS if s.count(",") < 2])
def test_the_plain_call_is_the_same(string):
    names = ("A", "B")[: string.count(",") + 1]
    found = lint_text(f'y = torch.einsum("{string}", {", ".join(names)})')
    plain = [f.says.removeprefix("the same as ") for f in found if f.name == "plain-call"]
    generator = torch.Generator().manual_seed(len(string))
    extents = {index: 2 + k for k, index in enumerate(dict.fromkeys(string.split("->")[0]))}
    tensors = {
        name: torch.randn([extents[c] for c in term], generator=generator, dtype=torch.float64)
        for name, term in zip(names, string.split("->")[0].split(","), strict=True)
    }
    expected = torch.einsum(string, *tensors.values())
    for text in plain:
        torch.testing.assert_close(eval(text, {"torch": torch}, tensors), expected)


# The linter accepts the strings that torch and numpy accept.

PIECES = st.sampled_from(["i", "j", "k", "K", ",", "->", "...", " ", ".", "-", "1"])
TERMS = st.lists(st.sampled_from(["i", "j", "k", "ij", "...", " "]), max_size=4).map("".join)
OUTPUTS = TERMS.map(lambda output: f"->{output}") | st.just("")
WHOLE = st.tuples(st.lists(TERMS, min_size=1, max_size=3).map(",".join), OUTPUTS).map("".join)


def run(function, make, string):
    """Whether the library accepts the string, with extents 1 and one index for an ellipsis."""
    terms = string.partition("->")[0].split(",")
    ranks = ["".join(t.split()).replace("...", "#") for t in terms]
    try:
        function(string, *(make((1,) * len(rank)) for rank in ranks))
    except (RuntimeError, ValueError):
        return False
    return True


@given(st.lists(PIECES, max_size=9).map("".join) | WHOLE)
def test_strings_are_judged_as_torch_does(string):
    assert isinstance(read_einsum(string), Fault) != run(torch.einsum, torch.ones, string)


@given(WHOLE)
def test_strings_are_judged_as_numpy_does(string):
    codes = find_codes(f"y = np.einsum({string!r}, *tensors)")
    is_judged_bad = bool({"DE001", "DE002", "DE003", "DE004", "DE105"} & set(codes))
    assert is_judged_bad != run(np.einsum, np.ones, string)


@pytest.mark.parametrize("pattern", ["...i -> i", "i.j -> i", "i ... ... -> i", "a_ -> a_"])
def test_malformed_words_are_refused(pattern):
    assert isinstance(read_einsum(pattern, has_words=True), Fault)


@pytest.mark.parametrize(("terms", "output", "widest"), ROWS["the widest step of the best order"])
def test_the_widest_step_of_the_best_order(terms, output, widest):
    assert find_widest([frozenset(term) for term in terms], frozenset(output)) == widest


def test_no_rule_reads_more_than_text():
    """The linter executes no code of the files that it reads: no import, no eval."""
    folder = Path(__file__).parents[2] / "derive" / "linter"
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called not in {"eval", "exec", "__import__", "import_module", "compile"}, path
