"""Measurements are short here: what they find is told, and little is asserted of it."""

from importlib import import_module

import pytest

QUICK = {"LEAST": 2e-4, "SIDE": 64, "SMALL": 32, "_COPIED": 1 << 16}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, value in QUICK.items():
        monkeypatch.setattr(import_module("derive.bench.timing"), name, value)
