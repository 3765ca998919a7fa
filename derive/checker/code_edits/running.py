"""Somebody's code run with another text: the functions of the file get the code of the edited one.

Only what runs inside of functions can be exchanged; the file itself is not run again. All of it is
done where the code lives.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from derive.checker.code_edits.sites import Rewrite, is_number
from derive.checker.edits import are_close
from derive.checker.runs import (
    How,
    call_target,
    flatten_results,
    make_module,
    pick_results,
    prepare,
    trace_lines,
)
from derive.checker.runs.processes import find_kind, where_it_lives
from derive.checker.source.load import compile_script
from derive.checker.trace import Print, find_print, record

if TYPE_CHECKING:
    from derive.checker.program import Program
    from derive.checker.source.load import Code

Found = TypeVar("Found")

Names = Mapping[str, Any]  # tensors without their values, numbers, and members of modules by name
Lines = dict[int, Names]  # the lines that ran, and what has a name there


class Texts:
    """The functions of a file, which are given the code of edited texts."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.functions = [
            each
            for each in _find_functions(code.target, set())
            if each.__code__.co_filename == code.path
        ]
        self.before = [each.__code__ for each in self.functions]

    def put(self, edited: str, line: int) -> None:
        """Let the functions around a line run as a text says, and all others as they did.

        ValueError or SyntaxError where they cannot.
        """
        code = self.code
        if code.script is not None:
            made = compile_script(code, edited)
        else:
            first, last = _find_block(code.source, line)
            last += edited.count("\n") - code.source.count("\n")
            block = "\n".join(edited.split("\n")[first - 1 : last])
            made = compile("\n" * (first - 1) + block, code.path, "exec", dont_inherit=True)
        new = {_find_key(each): each for each in _find_codes(made)}
        for function, before in zip(self.functions, self.before, strict=True):
            function.__code__ = new.get(_find_key(before), before)

    def undo(self) -> None:
        """Let all functions run as they did."""
        for function, before in zip(self.functions, self.before, strict=True):
            function.__code__ = before


@where_it_lives
def put_text(code: Code, edited: str, line: int) -> None:
    """Let functions run as a text says that is edited around a line of the code's."""
    Texts(code).put(edited, line)


@contextmanager
def exchange(code: Code, edited: str, line: int) -> Iterator[None]:
    """In here the code runs as a text says that is edited around a line."""
    put_text(code, edited, line)
    try:
        yield
    finally:
        put_text(replace(code, source=edited), code.source, line)


@where_it_lives
def find_passing(
    program: Program,
    rewrites: Sequence[Rewrite],
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
    wanted: Sequence[Any],
) -> tuple[int, ...]:
    """The numbers of the edits with which a program gives these results."""
    passed = _run_edited(program, rewrites, values, sizes, lambda run: are_close(run(), wanted))
    return tuple(number for number, is_right in enumerate(passed) if is_right)


@where_it_lives
def find_prints(
    program: Program,
    rewrites: Sequence[Rewrite],
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> tuple[tuple[Print, ...], ...]:
    """The fingerprints of what a program computes on its way, with each of the edits."""

    def look(run: Callable[[], Any]) -> tuple[Print, ...]:
        trace = record(lambda _: run(), values, program.code.path)
        found = () if trace.error else (find_print(event.value) for event in trace.events)
        return tuple(each for each in found if each is not None)

    return tuple(each or () for each in _run_edited(program, rewrites, values, sizes, look))


def _run_edited(
    program: Program,
    rewrites: Sequence[Rewrite],
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
    look: Callable[[Callable[[], Any]], Found],
) -> Iterator[Found | None]:
    """What is seen of the runs of a program with each of the edits; None where it cannot run.

    A module is made once, and again only where an edit concerns how it is made.
    """
    code, texts = program.code, Texts(program.code)
    with prepare(How()):
        given = program.find_given(values, sizes)
        target, making = code.target, set[int]()
        if find_kind(target) == "class":
            making = {*watch(code.path, lambda: make_module(code.target, given.constructor))[0]}
            target = make_module(code.target, given.constructor)

        def run(rewrite: Rewrite) -> tuple[Any, ...]:
            arguments, parameters = (
                {
                    name: each.clone() if hasattr(each, "clone") else each
                    for name, each in own.items()
                }
                for own in (given.arguments, given.parameters)
            )
            is_made_again = making & {rewrite.line, *(each.line for each in rewrite.others)}
            of = code.target if is_made_again else target
            found = call_target(of, arguments, parameters, given.constructor)
            return flatten_results(pick_results(found, program.names))

        for rewrite in rewrites:
            try:
                texts.put(rewrite.apply(code.source), rewrite.line)
                yield look(partial(run, rewrite))
            except (Exception, SystemExit, KeyboardInterrupt):  # whatever edited code raises
                yield None
            finally:
                texts.undo()


@lru_cache(maxsize=64)
def _find_block(source: str, line: int) -> tuple[int, int]:
    """The first and the last line of the statement at the outermost level that has a line."""
    for node in ast.parse(source).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        if first <= line <= (node.end_lineno or 0):
            return first, node.end_lineno or 0
    raise ValueError(f"no statement has line {line}")


def _find_key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _find_codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _find_codes(each)


def _find_functions(value: Any, seen: set[Any]) -> Iterator[FunctionType]:
    """The functions that a value is, wraps, closes over, has as methods, or sees by name."""
    if value in seen:
        return
    seen.add(value)
    inner: list[Any] = []
    if isinstance(value, FunctionType):
        yield value
        inner = [getattr(value, "__wrapped__", None), *value.__globals__.values()]
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # a cell may be empty
                inner.append(cell.cell_contents)
    elif isinstance(value, (staticmethod, classmethod)):
        inner = [value.__func__]
    elif isinstance(value, property):
        inner = [value.fget]
    elif isinstance(value, type):
        inner = [] if value.__module__.startswith("torch") else list(vars(value).values())
    else:
        parts = value.modules() if hasattr(value, "modules") else [value]
        kinds = (kind for part in parts for kind in type(part).__mro__[:-1])
        inner = [getattr(value, "__func__", None), *dict.fromkeys(kinds)]
    for each in inner:
        if isinstance(each, (FunctionType, staticmethod, classmethod, property, type)):
            yield from _find_functions(each, seen)


@where_it_lives
def watch_program(
    program: Program, values: Mapping[str, Any], sizes: Mapping[str, int]
) -> tuple[Lines, tuple[int, ...]]:
    """The lines that one run of a program goes through, and those that it runs more than once."""
    return watch(program.code.path, lambda: program.run(values, sizes))


def watch(path: str, run: Callable[[], Any]) -> tuple[Lines, tuple[int, ...]]:
    """The lines of a file that run, with what has a name there, and those that run repeatedly."""
    lines: Lines = {}
    repeated: set[int] = set()
    seen: set[tuple[int, CodeType]] = set()

    def note(frame: Any, event: str) -> None:
        place = (frame.f_lineno, frame.f_code)
        if event == "line" and place in seen:
            repeated.add(frame.f_lineno)
        elif event == "line":
            seen.add(place)
            found = ((name, _describe(value)) for name, value in frame.f_locals.items())
            names = {name: each for name, each in found if each is not None}
            for name in frame.f_code.co_names:  # numbers of the file, which functions share
                number = frame.f_globals.get(name)
                if is_number(number):
                    names.setdefault(name, number)
            lines[frame.f_lineno] = {**lines.get(frame.f_lineno, {}), **names}

    with trace_lines(path, note), suppress(Exception):  # what ran before it stopped is of use
        run()
    return lines, tuple(sorted(repeated))


def _describe(value: Any, *, inside: bool = False) -> Any:
    """A tensor without its values, a number, the members of a module, "list"; else None."""
    import torch

    if is_number(value):
        return value
    if isinstance(value, torch.Tensor):
        return torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")
    if isinstance(value, torch.nn.Module) and not inside:
        own = dict(vars(value))
        for held in ("_parameters", "_buffers", "_modules"):
            own |= own.get(held) or {}
        found = ((name, _describe(each, inside=True)) for name, each in own.items())
        return {name: each for name, each in found if each is not None}
    return type(value).__name__ if isinstance(value, (torch.nn.Module, list)) else None
