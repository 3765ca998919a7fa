"""What all tests share: one thread, two measures of properties, one process for most checks."""

import os
import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from derive.checker.processes import MOST_MEMORY

# One thread, so that runs are alike on any machine; set before torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run, without clocks or luck: a few of each property in the fast suite,
# many in the slow one, and `--hypothesis-profile=explore` looks for new ones.
calm = settings(deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("explore", calm, max_examples=1000)
settings.register_profile("slow", calm, derandomize=True, database=None, max_examples=150)
settings.register_profile("fast", settings.get_profile("slow"), max_examples=25)
settings.load_profile("fast")


def is_slow(config):
    """Are the slow tests asked for, and they alone?"""
    return config.getoption("markexpr") == "slow"


def pytest_configure(config):
    if is_slow(config) and not config.getoption("--hypothesis-profile"):
        settings.load_profile("slow")


def pytest_itemcollected(item):
    """A property is a fast test, and a slow one of more examples."""
    if is_slow(item.config) and is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("slow")


@pytest.fixture(autouse=True)
def one_process(request, monkeypatch):
    """The first case of each test, and each slow one, checks code in processes of its own.

    That is what a person's check does. The other cases check it in this one, as where a system
    cannot fork, in a third of the time, and with as little memory as those processes have. A test
    marked `processes` is about them.
    """
    node = request.node
    case = getattr(node, "callspec", None)
    marked = any(map(node.get_closest_marker, ("processes", "slow")))
    if marked or case is None or not any(case.indices.values()):
        yield
        return
    monkeypatch.delattr(os, "fork", raising=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
