"""Hostile code is never the same, is contained, and leaves nothing behind."""

import os
import re
import socket
import time
from pathlib import Path

import pytest
import torch
from texts import read_sections

from derive import check, parse
from derive.checker import processes
from derive.checker.frames import Kept, Reader, Writer
from derive.checker.processes import name_classes, run_in_child
from derive.checker.runs.runner import start_runner
from derive.checker.verdict import Job, Verdict
from derive.frontend.from_sympy import to_system

pytestmark = pytest.mark.processes
DOUBLE = parse("x[N]; y[n] = 2*x[n]")


def read_codes(kind):
    """Return the codes of a kind in contained.txt, by description or by a pattern of the report."""
    sections = read_sections(__file__, "contained.txt")
    return {s.title.split(": ")[1]: s.text for s in sections if s.title.startswith(kind)}


FORGING = read_codes("forging")
ENDING = read_codes("ending")


def judge(folder: Path, text: str, seconds: float = 6) -> Verdict:
    path = folder / "code.py"
    path.write_text(text, encoding="utf-8")
    return check(f"{path}:f", DOUBLE, seconds=seconds)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", FORGING)
def test_code_that_forges_is_not_the_same(kind, tmp_path):
    assert judge(tmp_path, FORGING[kind]).same is not True


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "said", [pytest.param(s, marks=[pytest.mark.slow] if "Memory" in s else []) for s in ENDING]
)
def test_code_that_ends_its_process_is_unknown_with_the_reason(said, tmp_path):
    verdict = judge(tmp_path, ENDING[said], 30)
    assert verdict.same is None, str(verdict)
    assert re.search(said, str(verdict)), str(verdict)


def test_libraries_of_gigabytes_do_not_count_as_memory_of_the_code(tmp_path):
    text = (
        "import mmap\nwith open('library', 'wb+') as file:\n    file.truncate(64 << 30)\n"
        "    library = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)\n"
        "def f(x):\n    return 2 * x + library[-1]\n"
    )
    verdict = judge(tmp_path, text)
    assert verdict.same is True, str(verdict)


@pytest.mark.parametrize(
    ("place", "whose"),
    [
        ("derive.checker.judge_job", "derive itself failed"),
        ("derive.checker.runs.runner.start_runner", "the check did not finish: it crashed"),
        ("derive.checker.runs.runner.serve", "the process that ran the code crashed"),
    ],
)
def test_a_crash_is_reported_with_its_error_and_place(place, whose, tmp_path, monkeypatch):
    def crash(*_):
        processes.parse_nothing()

    monkeypatch.setattr(place, crash)
    verdict = judge(tmp_path, "def f(x):\n    return 2 * x\n")
    (reason,) = verdict.reasons
    assert verdict.same is None
    assert re.search(
        rf"{whose}.* AttributeError: .*'parse_nothing' \(derive/checker/.*\.py:\d+\)", reason
    )


def test_code_that_exits_late_has_no_verdict(tmp_path):
    text = (
        "import os\nn = [0]\ndef f(x):\n    n[0] += 1\n"
        "    return 2 * x if n[0] < 18 else os._exit(0)\n"
    )
    verdict = judge(tmp_path, text)
    assert (verdict.same, verdict.grade) == (None, "unknown")
    assert "did not finish" in str(verdict)


def test_an_error_at_some_sizes_is_different(tmp_path):
    verdict = judge(tmp_path, "def f(x):\n    assert x.shape[0] > 1\n    return 2 * x\n")
    assert verdict.same is False
    assert "line 2: AssertionError" in verdict.difference


def test_processes_that_code_starts_end_with_the_check(tmp_path):
    mark = tmp_path / "mark"
    text = (
        f"import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n"
        f"        while True:\n            open({str(mark)!r}, 'a').write('.')\n"
        "            time.sleep(0.05)\n    return 2 * x\n"
    )
    assert judge(tmp_path, text).same is True
    size = mark.stat().st_size
    assert size > 0
    time.sleep(0.3)
    assert mark.stat().st_size == size


def test_files_that_code_writes_are_removed_and_siblings_are_found(tmp_path):
    (tmp_path / "sibling.py").write_text("two = 2\n", encoding="utf-8")
    text = (
        "import sibling\nopen('mine.txt', 'w').write('x')\ndef f(x):\n    return sibling.two * x\n"
    )
    here = sorted(os.listdir())
    assert judge(tmp_path, text).same is True
    assert sorted(os.listdir()) == here
    assert not (tmp_path / "mine.txt").exists()


def test_the_network_and_other_processes_are_out_of_reach(tmp_path):
    """Only the isolation that the system grants to a contained job is expected."""
    job = Job(lambda x: x, DOUBLE, to_system(DOUBLE), {}, {}, False, 10)
    isolated, _ = run_in_child(lambda send: _send_contained(job, str(tmp_path), send))
    server = socket.create_server(("127.0.0.1", 0))
    text = (
        "import os, socket\ntry:\n"
        f"    socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2)\n"
        "    seen = 1\nexcept OSError:\n    seen = 0\n"
        f"try:\n    os.kill({os.getpid()}, 0)\n    seen += 2\nexcept OSError:\n    pass\n"
        "def f(x):\n    return x * seen\n"
    )
    path = tmp_path / "code.py"
    path.write_text(text, encoding="utf-8")
    seen = 1 * ("network" not in isolated) + 2 * ("processes" not in isolated)
    with server:
        assert check(f"{path}:f", parse(f"x[N]; y[n] = {seen}*x[n]")).same is True


def _send_contained(job, folder, send):
    with start_runner(job, folder) as link:
        send(link.ask("tell_contained"))


@pytest.mark.parametrize(
    "value", [0.5, "text", (1, [2, {"a": (None,)}]), to_system(DOUBLE), Verdict(None, "x")]
)
def test_a_value_is_read_back_from_its_frame(value):
    classes = name_classes(Verdict)
    frame = Writer(classes).frame(value)
    length = int.from_bytes(frame[:8], "little")
    assert Reader(classes, _find_nothing).read_frame(frame[16 : 16 + length], b"") == value


@pytest.mark.parametrize(
    "text",
    [
        '[1, [["Popen"]], []]',
        '[{"part": 7}, [], []]',
        '[1, [["tensor", "float64", [9], [1], 0, 0]], [8]]',
        '[{"kept": [0, "x"]}, [], []]',
        '[1, [["eval", "1"]], []]',
    ],
)
def test_a_frame_without_data_is_refused(text):
    with pytest.raises(ValueError, match="no answer can be read"):
        Reader(name_classes(), _find_nothing).read_frame(text.encode(), b"\0" * 8)


def _find_nothing(kept: Kept):
    raise ValueError(kept)


def loop_forever(x):
    while True:
        pass


def raise_always(x):
    raise ValueError("no\nsuch luck")


def leave_at_once(x):
    os._exit(7)


def recurse(x):
    return recurse(x)


def allocate(x):
    return torch.ones(1 << 40).sum() + x


def use_numpy(x):
    return torch.from_numpy(x.detach().numpy() * 2)


def return_nothing(x):
    print("I was here")


def sample(x):
    return 2 * x + torch.rand(())


def branch_on_data(x):
    return x + x if bool(x.sum() > 0) else 3 * x


def test_endless_code_is_stopped():
    verdict = check(loop_forever, DOUBLE, seconds=2)
    assert verdict.same is None
    assert "still running after 2 s" in str(verdict)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (raise_always, "ValueError: no such luck"),
        (leave_at_once, "exit code 7"),
        (recurse, "calls itself without an end"),
        (allocate, "llocate"),
        (sample, "random numbers"),
    ],
)
def test_the_reason_of_a_stop_is_named(code, said):
    verdict = check(code, DOUBLE)
    assert verdict.same is None
    assert verdict.grade == "unknown"
    assert said in str(verdict)


def test_the_line_that_raises_is_reported():
    verdict = check(raise_always, DOUBLE)
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert verdict.line is not None
    assert "raise ValueError" in text[verdict.line - 1]


def test_nothing_returned_is_not_the_same():
    assert check(return_nothing, DOUBLE).same is False


def test_code_that_fields_cannot_run_is_judged_in_floats():
    verdict = check(use_numpy, DOUBLE)
    assert (verdict.same, verdict.grade) == (True, "agrees")


@pytest.mark.slow
def test_a_branch_on_data_is_never_the_same():
    assert check(branch_on_data, DOUBLE).same is not True


def test_output_and_changes_of_code_stay_in_its_process(capfd):
    kept = []

    def noisy(x):
        print("noise")
        os.write(1, b"more noise")
        kept.append(1)
        torch.set_default_dtype(torch.float16)
        return 2 * x

    verdict = check(noisy, DOUBLE)
    assert verdict.same is True
    assert kept == []
    assert torch.get_default_dtype() is torch.float32
    assert capfd.readouterr() == ("", "")


def test_an_argument_that_is_changed_is_a_finding():
    def in_place(x):
        return x.mul_(2)

    verdict = check(in_place, DOUBLE)
    assert verdict.same is True
    assert "changes-argument" in [finding.code for finding in verdict.findings]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("import torch\ndef f(x)\n    return 2 * x\n", "line 2: a colon is put at the end"),
        ("import torch\nN = missing\ndef f(x):\n    return 2 * x\n", "NameError"),
    ],
    ids=["at a colon", "at import"],
)
def test_an_error_of_a_file_is_reported_with_its_line(lines, words, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(lines, encoding="utf-8")
    verdict = check(str(path), DOUBLE)
    assert verdict.same is None
    assert verdict.line == 2
    assert words in str(verdict)
