"""`derive lint`: calls that are found, places of findings, comments that silence codes."""

import pytest
from texts import Expressions

from derive.linter.lint import lint_bytes

ROWS = Expressions(__file__, "lint_rows.txt", globals())


def lint_text(text, path="example.py"):
    return lint_bytes(path, text.encode()).findings


def find_codes(text):
    return [finding.code for finding in lint_text(text)]


# Names of einsum.

NAMED = ROWS["NAMED"]


@pytest.mark.parametrize(("imports", "name"), NAMED)
def test_an_einsum_is_found_under_every_name(imports, name):
    assert find_codes(f'{imports}\ny = {name}("ij->k", A)') == ["DE002"]
    inside = f'{imports}\nclass C:\n    def f(self, A):\n        return [{name}("ij->k", A)]'
    assert find_codes(inside) == ["DE002"]


@pytest.mark.parametrize(("imports", "call"), ROWS["an einsum is found in every form of a call"])
def test_an_einsum_is_found_in_every_form_of_a_call(imports, call):
    assert find_codes(f"{imports}\ny = {call}")[0] == "DE002"


@pytest.mark.parametrize("text", ROWS["other calls have no findings"])
def test_other_calls_have_no_findings(text):
    assert lint_text(text) == ()


# Forms of the string.

STRINGS = ROWS["STRINGS"]


@pytest.mark.parametrize(("text", "codes"), STRINGS)
def test_a_string_gets_its_codes(text, codes):
    assert find_codes(f"import torch\n{text}") == codes


# Shapes that the text contains.


@pytest.mark.parametrize(("lines", "arguments", "codes"), ROWS["SHAPES"])
def test_shapes_get_their_codes(lines, arguments, codes):
    text = f"import torch, numpy\n{lines}\ny = torch.einsum({arguments})"
    assert [code for code in find_codes(text) if code < "DE1"] == codes


def test_an_argument_hides_the_shape_of_a_name_outside():
    text = "import torch\nA = torch.ones(2)\ndef f(A):\n    return torch.einsum('ij->ji', A)"
    assert "DE006" not in find_codes(text)


# Uses of the result.

CALL = 'torch.einsum("bihd,bjhd->bhij", q, k)'
USES = ROWS["uses"]


@pytest.mark.parametrize(("text", "codes"), USES)
def test_uses_of_the_result_get_their_codes(text, codes):
    assert find_codes(f"import torch\n{text}") == codes


# Places of findings.


def show_findings(text):
    return [str(finding) for finding in lint_text(text)]


def test_a_finding_points_into_the_string():
    text = 'import torch\ndef f(W, x):\n    return torch.einsum("dd,bxcd->bxcd", W, x)\n'
    assert show_findings(text) == [
        "example.py:3:27: DE101 warning: W: the repeated d takes the diagonal of dd\n"
        '    return torch.einsum("dd,bxcd->bxcd", W, x)\n'
        "                          ^\n"
        "  help: give the two indices two letters, unless the diagonal is meant"
    ]


POINTS = ROWS["POINTS"]


@pytest.mark.parametrize(("call", "marked"), POINTS)
def test_the_mark_is_under_the_indices(call, marked):
    text = f"import torch\ny = 0, {call}\n"
    finding = next(f for f in lint_text(text) if f.code < "DE2")
    mark, place = finding.mark, finding.place
    assert mark.line[mark.start : mark.end] == marked
    line = text.split("\n")[place.line - 1]
    assert place.line == place.end_line
    assert line[place.column - 1 : place.end_column - 1] == marked


def test_a_constant_is_shown_beside_the_call():
    found = show_findings('import torch\nS = "ij->k"\ny = torch.einsum(S, A)\n')
    assert found == [
        "example.py:3:18: DE002 error: k is in the output and in no operand\n"
        "    y = torch.einsum(S, A)\n"
        "                     ^\n"
        "  the operands have i, j\n"
        '  the string is "ij->k"\n'
        "  help: give k to an operand, or take it out of the output"
    ]


def test_a_long_line_is_cut_around_the_mark():
    text = f'import torch\ny = [{"0, " * 200}torch.einsum("ij->k", A){", 0" * 200}]\n'
    (finding,) = lint_text(text)
    assert len(finding.mark.line) <= 160
    assert finding.mark.line[finding.mark.start : finding.mark.end] == "k"
    assert text.split("\n")[1][finding.place.column - 1] == "k"


# Comments that silence.

IGNORES = ROWS["IGNORES"]


@pytest.mark.parametrize(("call", "codes"), IGNORES)
def test_comments_silence_codes(call, codes):
    assert find_codes(f"import torch\ny = {call}\n") == codes
