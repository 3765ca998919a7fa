"""The command line: derive new | list | show | build | check | einsum | lint | bench.

Exit codes: 0 fine, 1 the answer is no, 2 the input cannot be used. A refusal is a diagnostic on
standard error; an exception that reaches the user is a mistake of ours. Each verb has a module of
its own, which is loaded when the verb is used, so that `--help` loads nothing else.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from derive.errors import DeriveError, Diagnostic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMULA = "NAME|FILE|FILE.py:NAME|TEXT"
CODE = "FILE.py[:NAME,..]|NOTEBOOK.ipynb|EINSUM|TEXT"
CODE_IS = (
    "A function, a method, a class of torch modules or an object of a file, a notebook, "
    "an einsum string, Python text; - reads one."
)
FROM = "Of the library, a file, one formula of a file, or a text with an = in it; - reads one."


# Spelt here, where `list` is still the builtin: later it is the module of a verb.
Names = list[str]
Words = Names | None


def _complete(word: str) -> Names:
    """The formulas of the library that begin so, for a shell."""
    from derive.cli.formulas import find_library

    return [name for name in find_library() if name.startswith(word)]


_FORMULA = typer.Argument(metavar=FORMULA, help=FROM, show_default=False, autocompletion=_complete)
Where = Annotated[str, _FORMULA]
Wheres = Annotated[Words, _FORMULA]
Sizes = Annotated[
    str, typer.Option("--sizes", metavar="S=4096,...", help="Numbers to plan and count for.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where files go.")]
Memory = Annotated[
    str,
    typer.Option(
        "--memory",
        metavar="256MiB",
        help="The most that intermediates may take: forward, without gradients, not compiled.",
    ),
]
FastMath = Annotated[
    bool, typer.Option("--fast-math", help="Lose digits also where a root or quotient magnifies.")
]
Exact = Annotated[bool, typer.Option("--exact", help="Use no rule that rounds worse.")]
NoCells = Annotated[
    bool, typer.Option("--no-cells", help="No torch call without second derivatives.")
]
Dispatch = Annotated[bool, typer.Option("--dispatch", help="Hold the orders for other sizes too.")]
MachineFile = Annotated[
    Path | None, typer.Option("--machine", metavar="FILE", help="Costs, by bench --calibrate.")
]
Gradient = Annotated[
    str,
    typer.Option("--gradient", metavar="X,Y|all", help="Of its gradients by these instead."),
]
Name = Annotated[str | None, typer.Option("--name", metavar="N", help="The function's name.")]
Init = Annotated[
    str,
    typer.Option(
        "--init",
        metavar='"Config(n_head=2)"',
        help="Make the class with these; sizes may stand in them.",
    ),
]
Inputs = Annotated[
    str,
    typer.Option("--inputs", metavar="'q[B,S,D]; ..'", help="The arguments of code, as tensors."),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write it as a page of its own.")
]
Sarif = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Write SARIF for code hosts too.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

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
        if as_json:
            _print_refusal(Diagnostic("usage", usage.format_message()))
        raise SystemExit(usage.exit_code) from None
    finally:
        _flush()


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
def _list(html: Html = None, as_json: Json = False) -> None:
    """The formulas of the library."""
    from derive.cli.list import print_list, write_gallery

    if html is not None:
        write_gallery(html)
    if html is None or as_json:
        print_list(as_json)
    else:
        typer.echo(f"{html} is written")


@app.command("show")
def _show(  # noqa: PLR0913, PLR0917 - one for each option
    where: Where,
    sizes: Sizes = "",
    loops: Annotated[bool, typer.Option("--loops", help="Print it as loops.")] = False,
    code: Annotated[bool, typer.Option("--code", help="Print the generated file.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print it as LaTeX.")] = False,
    derivation: Annotated[
        bool, typer.Option("--derivation", help="Print what was done, step by step.")
    ] = False,
    gradient: Gradient = "",
    inputs: Inputs = "",
    init: Init = "",
    memory: Memory = "",
    exact: Exact = False,
    fast_math: FastMath = False,
    no_cells: NoCells = False,
    machine: MachineFile = None,
    dispatch: Dispatch = False,
    html: Html = None,
    shard: Annotated[
        bool, typer.Option("--shard", help="What it costs to cut each index over machines.")
    ] = False,
    as_json: Json = False,
) -> None:
    """A formula: indices, einsum strings, steps, costs; or the formula of FILE.py:FUNCTION."""
    from derive.cli.options import Options, parse_sizes
    from derive.cli.show import Parts, show

    options = Options(parse_sizes(sizes), memory, exact, fast_math, not no_cells, machine, dispatch)
    parts = Parts(gradient, loops, code, latex, derivation, html, shard)
    show(where, (inputs, init), options, parts, as_json, read_build)


@app.command("build")
def _build(  # noqa: PLR0913, PLR0917 - one for each option
    where: Wheres = None,
    out: Out = Path("generated"),
    sizes: Sizes = "",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; are the files what would be written?")
    ] = False,
    name: Name = None,
    code: Annotated[
        str, typer.Option("--from", metavar="FILE.py:FUNCTION", help="Lift code and improve it.")
    ] = "",
    inputs: Inputs = "",
    init: Init = "",
    gradient: Gradient = "",
    memory: Memory = "",
    exact: Exact = False,
    fast_math: FastMath = False,
    no_cells: NoCells = False,
    machine: MachineFile = None,
    dispatch: Dispatch = False,
    backward: Annotated[
        bool, typer.Option("--backward", help="With a backward of its own, which keeps little.")
    ] = False,
    no_einsum: Annotated[
        bool, typer.Option("--no-einsum", help="Products of matrices instead, as for ONNX.")
    ] = False,
    shard: Annotated[
        str, typer.Option("--shard", metavar="b=dp,h=tp", help="Beside it, one over a mesh.")
    ] = "",
    module: Annotated[bool, typer.Option("--module", help="With an nn.Module around it.")] = False,
    parameters: Annotated[
        str,
        typer.Option(
            "--parameters",
            metavar="W,q.weight=W_q.T|TEXT",
            help="What the module holds; without it what has no batch.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Write checked PyTorch functions.

    Without arguments for all formulas of the library.
    """
    from derive.cli.build import Order, check_all, find_order, write_all
    from derive.cli.options import Options, parse_sizes

    options = Options(
        parse_sizes(sizes),
        memory,
        exact,
        fast_math,
        not no_cells,
        machine,
        dispatch,
        backward,
        not no_einsum,
        shard,
        module,
        parameters,
    )
    if code:
        from derive.cli.formulas import find_checked

        found = find_checked(code, inputs, name, options.sizes, tuple(where or ()), init)
        order = Order((found,), out, options)
    else:
        order = find_order(where or (), out, name, options)
    if gradient:
        from derive.cli.formulas import differentiate

        order = replace(order, found=tuple(differentiate(f, gradient, name) for f in order.found))
    exit_code = check_all(order, as_json, read_build) if check else write_all(order, as_json)
    raise typer.Exit(exit_code)


def read_build(words: Sequence[str]) -> Mapping[str, Any]:
    """The arguments of `derive build` in a list of words; ValueError where it takes them not."""
    command: Any = typer.main.get_command(app)
    build = command.commands["build"]
    try:
        with build.make_context("build", [*words]) as context:
            given: Mapping[str, Any] = context.params
            return given
    except Exception as error:
        if not hasattr(error, "format_message"):  # an error of click, which typer may hold
            raise
        raise ValueError(str(error)) from error


@app.command("new")
def _new(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    out: Out = Path(),
) -> None:
    """A commented formula file to start from."""
    from derive.cli.new import write_new

    write_new(name, out)


# `->` alone is a string, and looks like an option.
@app.command("einsum", context_settings={"ignore_unknown_options": True})
def _einsum(
    equation: Annotated[str, typer.Argument(metavar="EQUATION", show_default=False)],
    sizes: Sizes = "",
    as_json: Json = False,
) -> None:
    """What an einsum string means, and what it costs."""
    from derive.cli.einsum import print_einsum
    from derive.cli.options import parse_sizes

    print_einsum(equation, parse_sizes(sizes), as_json)


@app.command("check")
def _check(  # noqa: PLR0913, PLR0917 - one for each option
    code: Annotated[str, typer.Argument(metavar=CODE, help=CODE_IS, show_default=False)],
    formula: Annotated[
        str, typer.Option("--formula", "-f", metavar=FORMULA, help=FROM, autocompletion=_complete)
    ],
    bind: Annotated[
        str, typer.Option("--bind", metavar="query=Q,W_q.weight=W_Q.T", help="What is given.")
    ] = "",
    sizes: Sizes = "",
    backward: Annotated[bool, typer.Option("--backward", help="Judge gradients too.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", help="The code's time limit.")] = 30,
    init: Init = "",
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Judge what torch.compile makes of it, too.")
    ] = False,
    html: Html = None,
    sarif: Sarif = None,
    as_json: Json = False,
) -> None:
    """Does this code compute that formula? Where not, and what is the edit?

    Exit code 0: the same; 1: different; 2: it cannot be told.
    """
    from derive.cli.check import print_verdicts
    from derive.cli.options import parse_sizes

    raise typer.Exit(
        print_verdicts(
            code,
            formula,
            bind=bind,
            sizes=parse_sizes(sizes),
            backward=backward,
            seconds=seconds,
            init=init,
            compiled=compiled,
            as_json=as_json,
            html=html,
            sarif=sarif,
        )
    )


@app.command("bench")
def _bench(  # noqa: PLR0913, PLR0917 - one for each option
    where: Annotated[str | None, _FORMULA] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="FILE.py:FUNCTION", help="Code by hand.")
    ] = "",
    sizes: Sizes = "",
    over: Annotated[
        str, typer.Option("--over", metavar="S=64..1024", help="Measure as one size grows.")
    ] = "",
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw that; or a .png.")
    ] = None,
    backward: Annotated[bool, typer.Option("--backward", help="Time gradients too.")] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Time torch.compile too.")] = False,
    threads: Annotated[
        Words, typer.Option("--threads", metavar="N,..|all", help="A table for each.")
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="float32|bfloat16|float64", help="Of real tensors.")
    ] = "float32",
    runs: Annotated[int, typer.Option("--runs", min=1, help="Interleaved runs.")] = 7,
    memory: Memory = "",
    exact: Exact = False,
    fast_math: FastMath = False,
    no_cells: NoCells = False,
    machine: MachineFile = None,
    dispatch: Dispatch = False,
    calibrate: Annotated[
        Path | None,
        typer.Option("--calibrate", metavar="FILE", help="Measure the machine's constants."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Time the generated function against code by hand, one einsum call, and torch.compile."""
    from derive.bench.run import Wishes
    from derive.cli.bench import parse_threads, print_bench, print_calibration, read_order
    from derive.cli.options import Options, parse_sizes

    if calibrate is not None:
        print_calibration(calibrate, where, as_json)
        return
    wishes = Wishes(backward, compiled, parse_threads(threads or ()), runs, dtype)
    options = Options(parse_sizes(sizes), memory, exact, fast_math, not no_cells, machine, dispatch)
    order = read_order(against, options, over, plot, wishes)
    print_bench(where, order, as_json, read_build)


@app.command("lint")
def _lint(  # noqa: PLR0913, PLR0917 - one for each option
    paths: Annotated[
        Words,
        typer.Argument(metavar="PATH...", help="Files and folders.", show_default=False),
    ] = None,
    select: Annotated[
        Words, typer.Option(metavar="CODES", help="Only these: DE101,DE2,plain-call.")
    ] = None,
    ignore: Annotated[Words, typer.Option(metavar="CODES", help="Not these.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is mostly meant so: DE102, DE103.")
    ] = False,
    least: Annotated[
        str, typer.Option("--min-severity", metavar="info|warning|error", help="Nothing below.")
    ] = "info",
    exclude: Annotated[
        Words, typer.Option(metavar="GLOB", help="Not these files and folders.")
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="text|json|sarif", help="What to print.")
    ] = "text",
    sarif: Sarif = None,
    as_json: Json = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Count the findings of each code.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Print all codes.")] = False,
    explain: Annotated[str, typer.Option(metavar="CODE", help="Explain one code.")] = "",
) -> None:
    """What in this code looks wrong? Reads files and runs nothing."""
    from derive.cli.lint import print_findings, print_rule, print_rules, read_wishes

    if listed:
        print_rules(as_json)
    elif explain:
        print_rule(explain, as_json)
    else:
        wishes = read_wishes(
            select or (),
            ignore or (),
            exclude or (),
            least,
            "json" if as_json else form,
            everything=everything,
            sarif=sarif,
        )
        raise typer.Exit(print_findings(paths or (), wishes, statistics))


def _leave(diagnostic: Diagnostic, as_json: bool) -> None:
    from derive.cli.tables import print_diagnostic

    print_diagnostic(diagnostic)
    if as_json:
        _print_refusal(diagnostic)
    raise SystemExit(2)


def _print_refusal(diagnostic: Diagnostic) -> None:
    """A refusal as data: who asks for JSON gets an object, whatever happens."""
    from derive.cli.tables import print_json

    said = {"code": diagnostic.code, "says": diagnostic.says}
    print_json({"error": said | {"facts": diagnostic.facts, "help": diagnostic.help}})


def _flush() -> None:
    """Write out what is left, or drop it where the reader has gone (`derive list | head -1`)."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
