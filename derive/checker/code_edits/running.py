"""Somebody's code run with another text: the functions of the file get the code of the edited one.

Only what runs inside of functions can be exchanged; the file itself is not run again. All of it is
done where the code lives.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from derive.checker.load import compile_script
from derive.checker.processes import where_it_lives

if TYPE_CHECKING:
    from derive.checker.load import Code
    from derive.checker.program import Program

Names = Mapping[str, Any]  # tensors without their values, numbers, and members of modules by name
Lines = dict[int, Names]  # the lines that ran, and what has a name there


@contextmanager
def exchange(code: Code, source: str, edited: str, line: int) -> Iterator[None]:
    """In here the code runs as the edited text says, whose edits are around a line."""
    put_text(code, source, edited, line)
    try:
        yield
    finally:
        put_text(code, source, source, line)


@where_it_lives
def put_text(code: Code, source: str, edited: str, line: int, undone: int = 0) -> None:
    """Let functions run as an edited text says, and as before around a line that was edited last.

    ValueError or SyntaxError where they cannot.
    """
    if undone and _find_block(source, undone) != _find_block(source, line):
        put_text(code, source, source, undone)
    first, last = _find_block(source, line)
    grown = edited.count("\n") - source.count("\n")
    if code.script is not None:
        made = compile_script(code, edited)
    else:
        made = _compile("\n".join(edited.split("\n")[first - 1 : last + grown]), first, code.path)
    new = {_find_key(each): each for each in _find_codes(made)}
    for function in _find_functions(code.target, set()):
        if function.__code__.co_filename == code.path and _find_key(function.__code__) in new:
            function.__code__ = new[_find_key(function.__code__)]


@lru_cache(maxsize=64)
def _find_block(source: str, line: int) -> tuple[int, int]:
    """The first and the last line of the statement at the outermost level that has a line."""
    for node in ast.parse(source).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        if first <= line <= (node.end_lineno or 0):
            return first, node.end_lineno or 0
    raise ValueError(f"no statement has line {line}")


@lru_cache(maxsize=64)
def _compile(text: str, first: int, path: str) -> CodeType:
    return compile("\n" * (first - 1) + text, path, "exec", dont_inherit=True)


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
def watch_program(program: Program, values: Mapping[str, Any], sizes: Mapping[str, int]) -> Lines:
    """The lines that one run of a program goes through."""
    return watch(program.code.path, lambda: program.run(values, sizes))


def watch(path: str, run: Callable[[], Any]) -> Lines:
    """The lines of a file that run, and what has a name there."""
    lines: Lines = {}
    seen: set[tuple[int, CodeType]] = set()

    def trace_line(frame: Any, event: str, _: Any) -> Any:
        place = (frame.f_lineno, frame.f_code)
        if event == "line" and place not in seen:
            seen.add(place)
            found = ((name, _describe(value)) for name, value in frame.f_locals.items())
            names = {name: each for name, each in found if each is not None}
            lines[frame.f_lineno] = {**lines.get(frame.f_lineno, {}), **names}
        return trace_line

    def trace_call(frame: Any, event: str, _: Any) -> Any:
        return trace_line if frame.f_code.co_filename == path else None

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        with suppress(Exception):  # what ran before it stopped is of use
            run()
    finally:
        sys.settrace(before)
    return lines


def _describe(value: Any, *, inside: bool = False) -> Any:
    """A tensor without its values, a number, the members of a module; None for all else."""
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
    return type(value).__name__ if isinstance(value, torch.nn.Module) else None


def is_like(one: Any, other: Any) -> bool:
    """Could one value stand where the other does: numbers, modules or tensors of a kind?"""
    if hasattr(one, "dtype") and hasattr(other, "dtype"):
        kinds = [
            (each.is_floating_point(), str(each.dtype) == "torch.bool") for each in (one, other)
        ]
        return kinds[0] == kinds[1]
    if is_number(one) and is_number(other):
        return True
    return isinstance(one, str) and one == other


def is_number(value: Any) -> bool:
    """Is it a plain number?"""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
