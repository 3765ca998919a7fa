"""What the files of formulas have and lacks, each judged: built.txt."""

import re

import pytest
from texts import Section, read_sections

from derive import build, parse

CASES = list(read_sections(__file__, "built.txt"))


def find_body(source: str) -> list[str]:
    """The lines of the function without its docstring, its comments and the check of shapes."""
    body = source[source.index("def formula(") : source.find("\n\n\ndef _check_shapes")]
    lines = [line.strip() for line in body.splitlines() if not line.strip().startswith("#")]
    end = lines.index('"""', 1) if '"""' in lines else 1
    return [line for line in lines[end + 1 :] if line and "_check_shapes(" not in line]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_file_has_and_lacks_what_is_said_of_it(case: Section) -> None:
    told = {key: value.split("\n") for key, value in case.entries.items()}
    (sizes,), (empty_row,) = told.pop("sizes", [""]), told.pop("empty row", ["nan"])
    extents = {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", sizes)}
    formula, backward = parse(case.text, empty_row=empty_row), bool(told.pop("backward", ()))
    built = build(formula, sizes=extents or None, backward=backward)
    body = find_body(built.source)
    for part in told.pop("has", ()):
        assert part in built.source
    for part in told.pop("lacks", ()):
        assert part not in built.source
    for line in told.pop("times", ()):
        count, part = line.split(" ", 1)
        assert "\n".join(body).count(part) == int(count)
    assert body == told.pop("body", body)
    assert not told
    assert built.judge(2).agrees
