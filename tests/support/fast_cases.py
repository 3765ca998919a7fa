"""Choice of the cases of a test that run in the fast suite."""

from collections.abc import Iterable

import pytest


def slow_except(cases: Iterable, *fast: str) -> list:
    """Parameters of a test: the cases with these names are fast, all others are slow."""
    cases = list(cases)
    unknown = {*fast} - {_find_name(case) for case in cases}
    assert not unknown, f"no case has the name {unknown}"
    return [
        case if _find_name(case) in fast else pytest.param(case, marks=pytest.mark.slow)
        for case in cases
    ]


def _find_name(case) -> str:
    return case if isinstance(case, str) else case.name
