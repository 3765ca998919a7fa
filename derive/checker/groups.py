"""Arguments that hold several things by name: a dictionary, a dataclass, an object of settings.

batch["x"]                   a dictionary of what the code reads out of it
batch: Batch   config.n_head an object of the class that the annotation names, or of the only
                             dataclass of the file that has what the code reads; else of no class
**named                      keywords

Each thing is asked for as `batch.x`, and found by its own name as any other argument.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import linecache
import typing
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_EMPTY = inspect.Parameter.empty
_OF_DICT = frozenset(dir(dict))


@dataclass(frozen=True)
class Part:
    """One thing that an argument holds."""

    name: str
    default: Any = _EMPTY
    hint: Any = _EMPTY


@dataclass(frozen=True)
class Group:
    """What an argument holds, and how it is made of it."""

    parts: tuple[Part, ...]
    make: Callable[..., Any]


def gather(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call: what is given as `batch.x` goes into the argument batch."""
    groups = find_groups(function)
    found: dict[str, Any] = {}
    held: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        owner, _, part = name.partition(".")
        if part and owner in groups:
            held.setdefault(owner, {})[part] = value
            found.setdefault(owner, None)
        else:
            found[name] = value
    return {n: groups[n].make(**held[n]) if n in held else value for n, value in found.items()}


def find_groups(function: Any) -> Mapping[str, Group]:
    """The arguments of a function or a constructor that hold several things."""
    own = getattr(function, "__init__") if isinstance(function, type) else function  # noqa: B009
    inner = inspect.unwrap(own)
    return _find_groups(getattr(inner, "__func__", inner))


@lru_cache(maxsize=64)
def _find_groups(function: Any) -> Mapping[str, Group]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    definition = find_definition(function)
    found = {}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        group = _find_by_class(_resolve(function, parameter))
        if group is None and definition is not None:
            group = _find_by_use(definition, parameter, function)
        if group is not None:
            found[parameter.name] = group
    return found


def _resolve(function: Any, parameter: inspect.Parameter) -> Any:
    """The class that an annotation names, though it stands there as a text."""
    told = parameter.annotation
    return getattr(function, "__globals__", {}).get(told) if isinstance(told, str) else told


def _find_by_class(told: Any) -> Group | None:
    """The fields of a dataclass, a named tuple, or a typed dictionary."""
    if not isinstance(told, type):
        return None
    if dataclasses.is_dataclass(told):
        parts = [Part(f.name, _find_default(f), f.type) for f in dataclasses.fields(told) if f.init]
        return Group(tuple(parts), told)
    hints = vars(told).get("__annotations__", {})
    if issubclass(told, tuple) and hasattr(told, "_fields"):
        defaults = getattr(told, "_field_defaults", {})
        parts = [Part(n, defaults.get(n, _EMPTY), hints.get(n, _EMPTY)) for n in told._fields]
        return Group(tuple(parts), told)
    if typing.is_typeddict(told):
        return Group(tuple(Part(name, hint=hint) for name, hint in hints.items()), dict)
    return None


def _find_default(field: dataclasses.Field[Any]) -> Any:
    is_open = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    return _EMPTY if is_open else None if field.default is dataclasses.MISSING else field.default


def _find_by_use(definition: ast.AST, parameter: inspect.Parameter, function: Any) -> Group | None:
    """What the code reads out of the argument: keys of a dictionary, or attributes."""
    keys = dict(_find_keys(definition, parameter.name))
    if keys or parameter.kind is parameter.VAR_KEYWORD:
        return Group(tuple(Part(name, default) for name, default in keys.items()), dict)
    if parameter.default is None:
        return None  # the code does without it, and what class it is of is not known
    names = dict.fromkeys(_find_attributes(definition, parameter.name))
    called = dict.fromkeys(_find_called(definition, parameter.name))
    if not names or any(n in _list_of_tensor() or n in _OF_DICT or n in called for n in names):
        return None
    known = dict.fromkeys(
        value
        for value in getattr(function, "__globals__", {}).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value)
    )
    fitting = [c for c in known if {*names} <= {f.name for f in dataclasses.fields(c)}]
    if len(fitting) == 1:
        return _find_by_class(fitting[0])
    return Group(tuple(map(Part, names)), SimpleNamespace)


def _find_keys(definition: ast.AST, name: str) -> Iterator[tuple[str, Any]]:
    for node in ast.walk(definition):
        match node:
            case ast.Subscript(ast.Name(owner), ast.Constant(str(key))) if owner == name:
                yield key, _EMPTY
            case ast.Call(ast.Attribute(ast.Name(owner), "get"), [ast.Constant(str(key)), *_]) if (
                owner == name
            ):
                yield key, None
            case ast.Call(ast.Attribute(ast.Name(owner), "pop"), [ast.Constant(str(key)), *_]) if (
                owner == name
            ):
                yield key, _EMPTY


def _find_attributes(definition: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(definition):
        match node:
            case ast.Attribute(ast.Name(owner), attribute) if owner == name:
                yield attribute


def _find_called(definition: ast.AST, name: str) -> Iterator[str]:
    """The methods of an argument, which no tensor that it holds would be."""
    for node in ast.walk(definition):
        match node:
            case ast.Call(ast.Attribute(ast.Name(owner), attribute)) if owner == name:
                yield attribute


@lru_cache(maxsize=1)
def _list_of_tensor() -> frozenset[str]:
    """What a tensor has itself, so that it tells of no object that holds tensors."""
    import torch

    return frozenset(dir(torch.Tensor))


def find_definition(function: Any) -> ast.FunctionDef | ast.Lambda | None:
    """The lines of a function, as Python reads them; None where they are not known."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    lines = "".join(linecache.getlines(code.co_filename))
    try:
        tree = ast.parse(lines)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef():
                first = {node.lineno, *(each.lineno for each in node.decorator_list)}
                if code.co_firstlineno in first and node.name == code.co_name:
                    return node
            case ast.Lambda() if code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
                return node
    return None
