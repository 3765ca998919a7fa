"""Prose is plain: few docstrings, names and comments are marked by prose.py."""

from functools import cache

import pytest
from house import read_modules
from prose import find_prose

# Percentage of marked prose that is allowed; lower it whenever the prose improves.
ALLOWED = {"docstrings": 2, "names": 4, "comments": 3}


@cache
def find_all(folder):
    """Pairs (module, remark) of a folder."""
    modules = read_modules(folder).items()
    return [(name, remark) for name, source in modules for remark in find_prose(source)]


@pytest.mark.parametrize("folder", ["derive", "tests"])
@pytest.mark.parametrize("kind", ALLOWED)
def test_little_prose_is_marked(kind, folder):
    found = [(name, remark) for name, remark in find_all(folder) if remark.kind == kind]
    marked = [f"{name}:{r.line}: {r.text}" for name, r in found if r.is_marked]
    share = 100 * len(marked) / len(found)
    assert share <= ALLOWED[kind], "\n".join([f"{share:.1f} % of {kind} are marked", *marked])


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('"""What is read of a tensor."""', "docstrings"),
        ('"""The order of what is read."""', "docstrings"),
        ('"""The size that a shape tells."""', "docstrings"),
        ("def read(): pass", "names"),
        ("def is_told(size): pass", "names"),
        ("x = 1  # of the padded axis", "comments"),
        ("# sizes are settled before\nx = 1", "comments"),
    ],
)
def test_unclear_prose_is_marked(source, kind):
    assert [remark.kind for remark in find_prose(source) if remark.is_marked] == [kind]


@pytest.mark.parametrize(
    "source",
    [
        '"""Return the accesses of a tensor."""',
        '"""Whether tensor shapes determine a size."""',
        "def read_shape(): pass",
        "x = '# of a string'  # extent of the padded axis",
        "x = []  # noqa: F821",
    ],
)
def test_plain_prose_is_not_marked(source):
    assert not any(remark.is_marked for remark in find_prose(source))
