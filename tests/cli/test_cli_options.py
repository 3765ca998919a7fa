"""Options shared by `build`, `show` and `bench`; generated files as input; narrow terminals."""

import io
import json

import pytest
from cli_runs import TWO

from derive.cli import read_build, tables
from derive.cli.options import read_made
from derive.cli.tables import find_widths, to_ratio
from derive.options import NONE, Options

SQUARES = "x[N, D]; y[M, D]; s[n,m] = sum[d]((x[n,d] - y[m,d])**2)"
LONG = "x[N]; y[n] = " + " + ".join(["x[n]"] * 20)
HAND = "def attend(query, key):\n    return query @ key.mT\n"


@pytest.mark.parametrize(
    "option",
    [("--fast-math",), ("--exact",), ("--no-cells",), ("--memory", "1MiB"), ("--sizes", "N=9")],
)
def test_show_and_build_agree_under_each_option(run, tmp_path, option):
    run("build", SQUARES, *option)
    built = (tmp_path / "generated" / "formula.py").read_text()
    assert run("show", SQUARES, "--code", *option).out == built
    assert f"build '{SQUARES}' {' '.join(option)}" in " ".join(built.split())


def test_fast_math_is_shown_and_timed(run):
    inverse = SQUARES.replace("sum[d]", "1 / sum[d]")
    for text, option in ((SQUARES, "--exact"), (inverse, "--fast-math")):
        sizes = ("--sizes", "N=256,M=256,D=64")
        texts = [run("show", text, *sizes, *words).out for words in ((), (option,))]
        assert ["it loses" in each for each in texts] == [option == "--exact", option != "--exact"]
        timed = [
            json.loads(run("bench", text, "--runs", "1", "--json", *sizes, *words).out)
            for words in ((), (option,))
        ]
        one, other = (data["tables"][0]["roofline"]["flops"] for data in timed)
        assert one != other
    both = run("build", SQUARES, "--exact", "--fast-math")
    assert (both.code, both.err.split(":")[0]) == (2, "options-conflict")


def test_options_without_effect_are_reported(run):
    double = "x[N]; y[n] = 2 * x[n]"
    for verb in ("build", "show"):
        answer = run(verb, double, "--fast-math")
        (line,) = answer.out.splitlines()[-1:]
        assert line == "  --fast-math: no rule that loses digits makes it faster here"
        assert "--fast-math" not in run(verb, double).out
    large = ("--sizes", "N=256,M=256,D=64")
    assert "--fast-math" not in run("build", SQUARES, "--fast-math", *large).out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["x[N]; y[n] = 2 * x[n]"], "at N=64 (default; choose with --sizes)"),
        (["x[N]; y[n] = 2 * x[n]", "--sizes", "N=3"], "at N=3"),
        (["linear"], "at B=512 I=512 O=512 (typical; choose with --sizes)"),
        (["linear", "--sizes", "I=3"], "at I=3, B=512 O=512 (typical; choose with --sizes)"),
    ],
)
def test_a_build_names_the_sizes_of_its_counts(run, words, says):
    assert run("build", *words).out.splitlines()[-1] == f"  flops and elements {says}"


@pytest.mark.parametrize("verb", ["build", "show", "bench"])
def test_an_amount_is_repeated_as_it_was_typed(run, verb):
    answer = run(verb, SQUARES, "--memory", "10", "--sizes", "N=64,M=64,D=8")
    lines = answer.err.splitlines()
    assert lines == [
        "memory-short: no plan of formula keeps to --memory 10",
        "  2 elements of 4 bytes may be alive at once",
        "  at N=64, D=8, M=64 the leanest one takes 32 KiB, 8,192 elements of float32",
        "  help: allow 32KiB, or plan for smaller sizes",
    ]
    allowed = run(verb, SQUARES, "--memory", "32KiB", "--sizes", "N=64,M=64,D=8")
    assert (allowed.code, allowed.err) == (0, "")


def test_a_file_is_checked_with_the_options_of_its_header(run, tmp_path):
    (tmp_path / "two.py").write_text(TWO)
    run("build", "two.py:one", "--sizes", "N=9", "--memory", "10GB", "--no-cells")
    run("build", "two.py:two")
    assert run("build", "two.py", "--check").code == 0
    other = run("build", "two.py", "--check", "--sizes", "N=8")
    assert other.code == 1
    assert "derive build two.py:one --sizes N=8" in other.out
    (tmp_path / "two.py").write_text(TWO.replace("2 * x", "5 * x"))
    stale = run("build", "two.py", "--check")
    assert stale.code == 1
    assert stale.out.splitlines()[1].split(maxsplit=2) == [
        "generated/one.py", "stale", "derive build two.py:one --sizes N=9 --memory 10GB --no-cells",
    ]  # fmt: skip
    (tmp_path / "two.py").write_text(TWO.replace("x[N]; y[n] = 2 * x[n]", "x[K]; y[k] = x[k]"))
    renamed = run("build", "two.py", "--check")
    assert (renamed.code, renamed.err) == (1, "")
    assert renamed.out.splitlines()[1].split()[1] == "stale"


def test_a_file_that_derive_wrote_stands_for_its_formula(run, tmp_path):
    run("build", SQUARES, "--name", "squares", "--fast-math", "--sizes", "N=256,M=256,D=64")
    wrote = "generated/squares.py"
    shown = run("show", wrote, "--code")
    assert (shown.code, shown.err) == (0, "")
    timed = json.loads(run("bench", wrote, "--runs", "1", "--json").out)
    assert timed["sizes"] == {"N": 256, "D": 64, "M": 256}
    fast = json.loads(run("bench", SQUARES, "--fast-math", "--sizes", "N=256,M=256,D=64",
                          "--runs", "1", "--json").out)  # fmt: skip
    assert timed["tables"][0]["roofline"]["flops"] == fast["tables"][0]["roofline"]["flops"]
    over = json.loads(run("bench", wrote, "--runs", "1", "--over", "N=2..4", "--json").out)
    assert over["values"] == [2, 4]
    assert over["sizes"] == {"D": 64, "M": 256}
    refused = run("build", wrote)
    assert refused.code == 2
    assert refused.err.startswith(f"file-made: {wrote} was written by derive")
    assert "derive build 'x[N, D];" in refused.err


def test_a_header_does_not_run_the_file_that_it_names(run, tmp_path):
    (tmp_path / "two.py").write_text(TWO)
    run("build", "two.py:one")
    (tmp_path / "two.py").write_text("raise RuntimeError")
    answer = run("bench", "generated/one.py")
    assert answer.code == 2
    assert answer.err == (
        "file-made: generated/one.py was written by derive, and is no formula\n"
        "  it is from two.py\n"
        "  help: name that, or rebuild it with: derive build two.py:one\n"
    )


MADE = '"""X.\n\nGenerated by derive from {}; rebuild\nwith: derive build {}\n"""\n'


def test_headers_are_read_as_options():
    made = read_made(
        MADE.format("a.py", "a.py:f --out 'my files' --sizes N=9 --memory 2GB"), read_build
    )
    assert (made.formula, made.name, made.is_text) == ("a.py:f", None, False)
    assert made.options == Options({"N": 9}, "2GB")
    typed = read_made(MADE.format("a text", "- --name f, the lines above as its input"), read_build)
    assert (typed.formula, typed.name, typed.options) == ("", "f", NONE)
    for broken in ("f --sizes N=x", "'f", "f --sizes", "f g", "f --what"):
        assert read_made(MADE.format("f", broken), read_build) is None
    assert read_made('"""Mine."""\n', read_build) is None


def test_code_instead_of_a_formula_is_refused_with_the_command_that_lifts_it(run, tmp_path):
    (tmp_path / "attend.py").write_text(HAND)
    how = "  help: lift it with: derive build --from attend.py:attend --inputs 'query[N, D]; ..'\n"
    answer = run("build", "attend.py:attend")
    assert answer.err == f"formula-code: attend.py:attend is code, and a formula is wanted\n{how}"
    answer = run("build", "attend.py")
    assert answer.err == f"file-empty: attend.py has functions and no formula\n{how}"
    answer = run("build", "attend.py:attent")
    assert answer.err.splitlines()[-1] == "  help: did you mean attend?"


def test_help_shows_no_default_of_a_switch(run):
    for verb in ("build", "show", "bench"):
        shown = run(verb, "--help").out
        assert "  --no-cells " in shown
        assert "default: True" not in shown
        assert "without gradients" in shown


def test_columns_are_as_wide_as_their_words():
    heads, rows = ("a name", "n"), [("what it is", "12")]
    assert find_widths(heads, rows, (True, False), 80) == [10, 2]
    assert find_widths(heads, rows, (True, False), 10) == [6, 2]
    assert find_widths(heads, rows, (True, False), 8) == [4, 2]
    assert find_widths(heads, rows, (True, False), 7) is None
    assert find_widths(heads, rows, (False, False), 13) is None


@pytest.fixture
def terminal(monkeypatch):
    """Return a function that prints a table on a terminal of a given width."""
    from rich.console import Console

    def print_lines(width, *arguments, **named):
        console = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True)
        monkeypatch.setattr(tables, "_find_console", lambda stream: console)
        tables.print_table(*arguments, **named)
        lines = console.file.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
        return [line.replace("\x1b[2m", "").rstrip() for line in lines.splitlines()]

    return print_lines


def test_a_terminal_breaks_prose_alone(terminal):
    heads, rows = ("name", "what it is"), [("relative_attention", "one two three")]
    wide = terminal(80, heads, rows, prose=("what it is",))
    assert wide[2] == "relative_attention  one two three"
    narrow = terminal(28, heads, rows, prose=("what it is",))
    assert narrow[-2:] == ["relative_attention  one two", " " * 20 + "three"]


def test_rows_that_do_not_fit_are_lists_of_cells(terminal):
    heads = ("name", "einsums", "flops")
    rows = [("relative", "bihd,hde->bhie\nij->i", "3 M"), ("other", "", "1")]
    assert terminal(30, heads, rows) == [
        "  name     relative",
        "  einsums  bihd,hde->bhie",
        "           ij->i",
        "  flops    3 M",
        "",
        "  name   other",
        "  flops  1",
    ]


def test_no_verb_breaks_a_word_at_eighty_columns(run, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    words = ["relative_attention", "bihd,hde->bhie", "generated/relative_attention.py"]
    for arguments, count in ((["list"], 1), (["show", words[0]], 2), (["build", words[0]], 3)):
        shown = run(*arguments).out
        assert all(word in shown for word in words[:count]), arguments


def test_small_ratios_keep_two_digits():
    assert [to_ratio(r) for r in (0, 0.0034, 0.0999, 0.1, 1.0, 123.456)] == [
        "0.00", "0.0034", "0.1", "0.10", "1.00", "123.46",
    ]  # fmt: skip
