"""Findings in files as SARIF 2.1.0, which code hosts and editors show at the lines.

    to_sarif(rules, results)    the whole log of one run

Lines and columns count from 1; the end column is the first one behind.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple
from urllib.parse import quote

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class Rule(NamedTuple):
    """One thing that may be found; `level` is error, warning, note, or none."""

    code: str
    name: str
    title: str
    why: str
    help: str
    level: str


@dataclass(frozen=True, slots=True)
class Result:
    """One thing that was found, or by the level `none` that a file is right.

    `region` names lines and columns as SARIF does. `fix` says what to do, and `lines` has the lines
    as they should be, each with the columns that it has now.
    """

    code: str
    level: str
    says: str
    path: str = ""  # empty where there is no file
    region: Mapping[str, int] | None = None
    cell: int = 0  # cell of a notebook; the region's lines count within it
    fix: str = ""
    lines: tuple[tuple[int, int, str], ...] = ()


def to_region(*span: int) -> dict[str, int]:
    """A stretch of a file: line, column, last line, the column behind it."""
    return dict(zip(("startLine", "startColumn", "endLine", "endColumn"), span, strict=True))


def to_sarif(rules: Sequence[Rule], results: Iterable[Result]) -> dict[str, Any]:
    """The log as plain data."""
    texts = {"shortDescription": "title", "fullDescription": "why", "help": "help"}
    told = [
        {"id": rule.code, "name": rule.name, "defaultConfiguration": {"level": rule.level}}
        | {key: {"text": getattr(rule, name)} for key, name in texts.items()}
        for rule in rules
    ]
    codes = [rule.code for rule in rules]
    run = {
        "tool": {"driver": {"name": "derive", "rules": told}},
        "columnKind": "unicodeCodePoints",
        "results": [_to_result(each) | {"ruleIndex": codes.index(each.code)} for each in results],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _to_result(result: Result) -> dict[str, Any]:
    data: dict[str, Any] = {"ruleId": result.code, "level": result.level}
    data |= {"message": {"text": result.says}}
    data |= {"kind": "pass"} if result.level == "none" else {}
    if not result.path:
        return data | {"locations": []}
    path = PurePath(result.path)
    artifact = {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}
    place = {"artifactLocation": artifact, **({"region": result.region} if result.region else {})}
    location: dict[str, Any] = {"physicalLocation": place}
    if result.cell:
        location["logicalLocations"] = [{"name": f"cell {result.cell}", "kind": "module"}]
    if result.lines:
        replacements = [
            {
                "deletedRegion": to_region(line, 1, line, width + 1),
                "insertedContent": {"text": text},
            }
            for line, width, text in result.lines
        ]
        change = {"artifactLocation": artifact, "replacements": replacements}
        data["fixes"] = [{"description": {"text": result.fix}, "artifactChanges": [change]}]
    return data | {"locations": [location]}
