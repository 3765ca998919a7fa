"""Findings as SARIF 2.1.0, the form that code hosts read: one run, its rules, its results."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from derive.linter.rule import Severity
from derive.linter.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from derive.linter.rule import Finding, Place, Rule

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def to_sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """The whole log."""
    driver = {"name": "derive", "rules": [_to_rule(rule) for rule in RULES]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_to_result(finding) for finding in findings],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _to_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"Hurts:\n{rule.hurts}\n\nFine:\n{rule.fine}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _to_result(finding: Finding) -> dict[str, Any]:
    says = "\n".join([finding.says, *finding.facts, *([finding.help] if finding.help else [])])
    return {
        "ruleId": finding.code,
        "ruleIndex": [rule.code for rule in RULES].index(finding.code),
        "level": _LEVELS[finding.severity],
        "message": {"text": says},
        "locations": [_to_location(finding.place)],
    }


def _to_location(place: Place) -> dict[str, Any]:
    region = {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _to_uri(place.path)}, "region": region}
    }
    if place.cell:
        # the region's lines are those of this cell
        location["logicalLocations"] = [{"name": f"cell {place.cell}", "kind": "module"}]
    return location


def _to_uri(path: str) -> str:
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())
