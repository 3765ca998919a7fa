"""The command line: derive new | list | show | build | check | einsum | lint | bench | help.

Exit codes: 0 fine, 1 the answer is no, 2 the input cannot be used. A refusal is a diagnostic on
standard error; an exception that reaches the user is a bug in derive. Each verb has a module of
its own, which is loaded when the verb is used, so that `--help` loads nothing else.
"""

import atexit
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from derive.cli.options import (
    OUT,
    PLANNED,
    Chosen,
    Judged,
    Names,
    Parts,
    Timed,
    Words,
    Written,
    expand_options,
)
from derive.errors import DeriveError, Diagnostic
from derive.options import Options

FORMULA = "NAME|FILE|FILE.py:NAME|TEXT"
CODE = "FILE.py[:NAME]|NOTEBOOK.ipynb|EINSUM|TEXT"
CODE_IS = (
    "A function, a method, a class of torch modules or an object of a file, a notebook, "
    "an einsum string, Python text; - reads one."
)
FROM = "A name of the library, a file, one formula of a file, or a text with =; - reads a text."


def _complete(word: str) -> Names:
    """The formulas of the library with this prefix, for a shell's completion."""
    from derive.cli.formulas import find_library

    return [name for name in find_library() if name.startswith(word)]


_FORMULA = typer.Argument(metavar=FORMULA, help=FROM, show_default=False, autocompletion=_complete)
Where = Annotated[str, _FORMULA]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help=OUT)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Planned = Annotated[Options, PLANNED]

_ALLOCATIONS = 100_000  # between collections: the libraries are objects that stay

app = typer.Typer(
    name="derive",
    help="From an equation in index notation to readable, checked PyTorch code.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: the same in a pipe, and nothing to load
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    gc.set_threshold(_ALLOCATIONS)
    atexit.register(gc.freeze)  # the remaining objects end with the process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # indices that it cannot write
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        raise SystemExit(app(arguments, prog_name="derive", standalone_mode=False) or 0)
    except typer.Abort:
        raise SystemExit(1) from None
    except DeriveError as error:
        _leave(error.diagnostic, as_json)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _leave(Diagnostic("file-unusable", f"{name}{error.strerror or error}"), as_json)
    except Exception as error:
        usage: Any = error
        if not hasattr(usage, "format_message"):  # an error of click, which typer may hold
            raise
        usage.show()
        _leave(Diagnostic("usage", usage.format_message()), as_json, is_shown=True)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has gone (`derive list | head -1`)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(diagnostic: Diagnostic, as_json: bool, *, is_shown: bool = False) -> None:
    """Show a refusal, with --json as an object too, and exit with code 2."""
    from derive.cli.tables import print_json

    with suppress(BrokenPipeError):  # a closed pipe still gets the exit code
        if not is_shown:
            print(diagnostic, file=sys.stderr)
        if as_json:
            said = {key: getattr(diagnostic, key) for key in ("code", "says", "facts", "help")}
            print_json({"error": said})
    raise SystemExit(2)


@app.callback(invoke_without_command=True)
def _start(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as find_version

        try:
            typer.echo(f"derive {find_version('derive-torch')}")
        except PackageNotFoundError:
            typer.echo("derive, from a checkout that is not installed")
        raise typer.Exit


@app.command("list")
def _list(as_json: Json = False) -> None:
    """The formulas of the library."""
    from derive.cli.list import print_list

    print_list(as_json)


@app.command("show")
@expand_options
def _show(where: Where, options: Planned, parts: Parts, as_json: Json = False) -> None:
    """A formula: indices, einsum strings, steps, costs; or the formula of FILE.py:FUNCTION."""
    from derive.cli.show import show

    show(where, options, parts, as_json)


@app.command("build")
@expand_options
def _build(
    *,
    options: Options,
    where: Annotated[Words, _FORMULA] = None,
    asked: Written,
    as_json: Json = False,
) -> None:
    """Write checked PyTorch functions.

    Without arguments for all formulas of the library.
    """
    from derive.cli.build import Order, check_all, find_order, write_all
    from derive.cli.formulas import differentiate, find_checked

    name, wrt = asked.name, asked.gradient
    if asked.code:
        found = find_checked(asked.code, asked.inputs, name, options.sizes, tuple(where or ()))
        order = Order((found,), asked.out, options)
    else:
        order = find_order(where or (), asked.out, name, options)
    if wrt:
        order = replace(order, found=tuple(differentiate(f, wrt, name) for f in order.found))
    exit_code = check_all(order, as_json, read_build) if asked.check else write_all(order, as_json)
    raise typer.Exit(exit_code)


def read_build(words: Sequence[str]) -> Mapping[str, Any]:
    """The arguments of `derive build` in a list of words; ValueError for words it does not take."""
    command: Any = typer.main.get_command(app)
    build = command.commands["build"]
    try:
        with build.make_context("build", [*words], **command.context_settings) as context:
            given: Mapping[str, Any] = context.params
            return given
    except Exception as error:
        if not hasattr(error, "format_message"):  # an error of click, which typer may hold
            raise
        raise ValueError(str(error)) from error


@app.command("new")
def _new(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)], out: Out = Path()
) -> None:
    """A commented formula file to start from."""
    from derive.cli.new import write_new

    write_new(name, out)


# `->` alone is a string, and looks like an option.
@app.command("einsum", context_settings={"ignore_unknown_options": True})
@expand_options
def _einsum(
    equation: Annotated[str, typer.Argument(metavar="EQUATION", show_default=False)],
    options: Annotated[Options, ("sizes",)],
    as_json: Json = False,
) -> None:
    """What an einsum string means, and what it costs."""
    from derive.cli.einsum import print_einsum

    print_einsum(equation, options.sizes, as_json)


@app.command("check")
@expand_options
def _check(
    *,
    code: Annotated[str, typer.Argument(metavar=CODE, help=CODE_IS, show_default=False)],
    formula: Annotated[
        str, typer.Option("--formula", "-f", metavar=FORMULA, help=FROM, autocompletion=_complete)
    ],
    judged: Judged,
    as_json: Json = False,
) -> None:
    """Does this code compute that formula? Where not, and what is the edit?

    Exit code 0: the same; 1: different; 2: unknown.
    """
    from derive.cli.check import print_verdict

    raise typer.Exit(print_verdict(code, formula, judged, as_json))


@app.command("bench")
@expand_options
def _bench(options: Planned, timed: Timed, where: Where, as_json: Json = False) -> None:
    """Time the generated function against code by hand and torch.compile."""
    from derive.cli.bench import print_bench

    print_bench(where, options, timed, as_json)


@app.command("help")
def _help(topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)] = "") -> None:
    """A page about the notation, checks, plans, LaTeX or code; without TOPIC the list of pages."""
    from derive.cli.help import print_page

    print_page(topic)


@app.command("lint")
@expand_options
def _lint(
    *,
    chosen: Chosen,
    paths: Annotated[
        Words, typer.Argument(metavar="PATH...", help="Files and folders.", show_default=False)
    ] = None,
    as_json: Json = False,
    listed: Annotated[bool, typer.Option("--list", help="Print all codes.")] = False,
    explain: Annotated[str, typer.Option(metavar="CODE", help="Explain one code.")] = "",
) -> None:
    """What in this code looks wrong? Reads files and runs nothing."""
    from derive.cli.lint import print_findings, print_rules

    if listed or explain:
        print_rules(explain, as_json)
    else:
        raise typer.Exit(print_findings(paths or (), chosen, as_json))
