"""Settings of all tests: one thread, profiles of hypothesis, checks in one process."""

import gc
import os
import resource
from collections import Counter
from pathlib import Path

import pytest
from cli_runs import run  # noqa: F401 - a fixture of many
from hypothesis import HealthCheck, is_hypothesis_test, settings

from derive.checker.processes import MOST_MEMORY

# One thread, for equal results on all machines; must be set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Cached nodes live until the end of the run, so frequent garbage collection finds little.
gc.set_threshold(50_000)

# Every run uses the same examples, without deadlines: few in the fast suite, more in the slow one.
# `--hypothesis-profile=explore` searches for new ones.
calm = settings(deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("explore", calm, max_examples=1000)
settings.register_profile("slow", calm, derandomize=True, database=None, max_examples=80)
settings.register_profile("fast", settings.get_profile("slow"), max_examples=12)
settings.load_profile("fast")


met = Counter()  # number of collected cases of each sampled test


def is_slow(config):
    """Whether exactly the slow tests are selected."""
    return config.getoption("markexpr") == "slow"


def pytest_configure(config):
    if is_slow(config) and not config.getoption("--hypothesis-profile"):
        settings.load_profile("slow")


def pytest_itemcollected(item):
    """A property is a fast test, and a slow one of more examples; of a sampled test, see there.

    The place of a case is the sum of its places in the tables of its test. Of two tables the fast
    cases are diagonals: counted through, a step that divides a table would stay in one row.
    """
    if is_slow(item.config) and is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("slow")
    sampled = item.get_closest_marker("sampled")
    if sampled:
        of_test = (item.parent.nodeid, item.originalname)
        left, places = met[of_test], 0
        met[of_test] += 1
        for table in reversed([*item.iter_markers("parametrize")]):  # the last varies fastest
            left, place = divmod(left, len(table.args[1]))
            places += place
        step, first = (*sampled.args, 0)[:2]
        if (places - first) % step:
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def one_process(request, monkeypatch):
    """A test marked `processes` checks code in processes of its own, as a person's check does.

    All others check it in this one, as where a system cannot fork, in a third of the time, since
    what was found once is kept, and with as little memory as those processes have.
    """
    if request.node.get_closest_marker("processes"):
        yield
        return
    monkeypatch.delattr(os, "fork", raising=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + MOST_MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
