"""Input of `derive lint`: files and folders, notebooks, malformed files."""

import json
import os
from pathlib import Path

import pytest
from texts import Expressions

from derive.errors import DeriveError
from derive.linter.lint import find_files, lint, lint_bytes

ROWS = Expressions(__file__, "lint_files_rows.txt", globals())

BAD = 'import torch\ny = torch.einsum("ij->k", A)\n'


def lint_text(text, path="example.py"):
    return lint_bytes(path, text.encode()).findings


def to_notebook(*cells):
    """A notebook of code cells; a pair is a cell of another type."""
    made = [c if isinstance(c, tuple) else ("code", c) for c in cells]
    return json.dumps({"cells": [{"cell_type": kind, "source": text} for kind, text in made]})


# Notebooks.


def test_cells_share_the_names_of_earlier_cells():
    text = to_notebook(
        "import torch", ("markdown", "# hello"), 'S = 1\ny = torch.einsum("ij->k", A)'
    )
    (finding,) = lint_text(text, "n.ipynb")
    assert str(finding).startswith("n.ipynb:cell 3:2:23: DE002 error: k is in the output")
    assert finding.mark.line == 'y = torch.einsum("ij->k", A)'


def test_the_last_value_of_a_cell_is_used():
    call = 'torch.einsum("bihd,bjhd->bhij", q, k)'
    found = lint_text(to_notebook("import torch", f"{call}\n{call}", f"{call};"), "n.ipynb")
    assert [(f.code, f.place.cell, f.place.line) for f in found] == [("DE106", 2, 1)]


@pytest.mark.parametrize("line", ROWS["lines of ipython are left out"])
def test_lines_of_ipython_are_left_out(line):
    found = lint_text(
        to_notebook("import torch", f'{line}\ny = torch.einsum("ij->k", A)'), "n.ipynb"
    )
    assert [f.code for f in found] == ["DE002"]


def test_cells_in_other_languages_and_broken_ones():
    cells = ("import torch", "%%bash\nif [", "%%html\n<b>", "x = (", 'y = torch.einsum("ij->k", A)')
    found = lint_text(to_notebook(*cells), "n.ipynb")
    assert [(f.code, f.place.cell) for f in found] == [("DE901", 4), ("DE002", 5)]


@pytest.mark.parametrize("text", ["", "[]", '{"cells": 3}', '{"cells": [3]}', "[" * 10**5])
def test_a_malformed_notebook_is_a_finding(text):
    assert [f.code for f in lint_text(text, "n.ipynb")] == ["DE902"]


# Malformed files.

STRANGE = dict(ROWS["strange"])


@pytest.mark.parametrize("case", STRANGE)
def test_malformed_files_are_findings_or_empty(case):
    data, codes = STRANGE[case]
    found = [finding.code for finding in lint_bytes("example.py", data).findings]
    assert found == codes or (codes is None and found in ([], ["DE901"]))


def test_a_syntax_error_is_shown_at_its_place():
    (finding,) = lint_text("import torch\ny = torch.einsum('ij', A\n")
    assert str(finding) == (
        "example.py:2:17: DE901 error: '(' was never closed\n"
        "    y = torch.einsum('ij', A\n"
        "                    ^"
    )
    assert (finding.place.column, finding.place.end_column) == (17, 18)


# Selection of files.


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree, with hidden, cached and installed files that are skipped."""
    monkeypatch.chdir(tmp_path)
    names = [
        "a.py", "b/c.py", "b/n.ipynb", "b/notes.txt", "b/.hidden.py", ".hid/d.py", "script",
        "b/__pycache__/e.py", "node_modules/f.py", "env/lib/g.py", "b/gen/h.py", "env/pyvenv.cfg",
    ]  # fmt: skip
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(to_notebook(BAD) if name.endswith("ipynb") else BAD)
    return tmp_path


def find_paths(*paths):
    return [*find_files([str(path) for path in paths])]


def test_a_folder_is_read_without_hidden_files(tree):
    assert find_paths(".") == ["a.py", "b/c.py", "b/gen/h.py", "b/n.ipynb"]
    assert find_paths(tree)[0] == f"{tree.as_posix()}/a.py"
    assert len(lint(["."]).findings) == 4


def test_a_named_file_is_read_even_if_it_is_hidden(tree):
    assert find_paths("b/.hidden.py", "script", "env") == ["b/.hidden.py", "env/lib/g.py", "script"]


def test_a_file_is_read_once(tree):
    assert find_paths("b", "b/c.py", "./b", tree / "a.py", "a.py") == sorted(
        ["a.py", "b/c.py", "b/gen/h.py", "b/n.ipynb"]
    )


def test_a_missing_path_is_refused(tree):
    with pytest.raises(DeriveError, match="there is no file or folder nowhere"):
        find_paths("a.py", "nowhere")


def test_broken_links_and_pipes_are_findings(tree):
    Path("broken.py").symlink_to("nowhere.py")
    Path("loop").symlink_to(tree)
    os.mkfifo("pipe.py")
    report = lint(["."])
    assert [(f.code, f.place.path) for f in report.findings if f.code > "DE9"] == [
        ("DE902", "broken.py")
    ]
    assert [f.code for f in lint(["pipe.py"]).findings] == ["DE902"]


def test_a_syntax_error_is_a_finding_in_a_file_without_einsums(tree):
    Path("old.py").write_text("print 'hello'\n")
    assert "DE901" in {f.code for f in lint(["."]).findings if f.place.path == "old.py"}
    assert [f.code for f in lint(["old.py"]).findings] == ["DE901"]
