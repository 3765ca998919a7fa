"""Shorten the measurements of the tests of derive.bench."""

import pytest


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Repeat short calls for less time."""
    monkeypatch.setattr("derive.bench.timing.LEAST", 2e-4)
