"""Shorten the measurements of the tests of derive.bench."""

from importlib import import_module

import pytest

QUICK = {"LEAST": 2e-4, "SIDE": 64, "SMALL": 32, "_COPIED": 1 << 16}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Reduce the sizes and durations of measurements."""
    for name, value in QUICK.items():
        monkeypatch.setattr(import_module("derive.bench.timing"), name, value)
