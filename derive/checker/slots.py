"""Slots: the arguments, parameters and constructor's arguments of code, and their names.

    query   q_proj.weight   W_q   to_q   names with the core q, which match
    batch["x"]                           a dictionary with the keys that the code reads
    batch: Batch   config.n_head         an object of the annotated class, or of the file's only
                                         dataclass with the fields that the code reads
    **named                              keywords

A part of an argument is the slot `batch.x`, matched by the part's name. The axes of a parameter
follow from the type of its module, as torch documents it.
"""

import ast
import dataclasses
import inspect
import linecache
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MethodType, SimpleNamespace
from typing import Any

from derive.checker.processes import run_remotely
from derive.libraries import torch

_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True)
class Group:
    """An argument with parts: defaults and annotations by name, and the parts' constructor."""

    parts: Mapping[str, tuple[Any, Any]]
    make: Callable[..., Any]


def gather(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call: `batch.x` is a part of the argument batch, `ts.0` of the list ts."""
    groups = find_groups(function)
    found: dict[str, Any] = {}
    held: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        owner, _, part = name.partition(".")
        if part and (owner in groups or part.isdigit()):
            held.setdefault(owner, {})[part] = value
            found.setdefault(owner, None)
        else:
            found[name] = value
    for name, parts in held.items():
        found[name] = groups[name].make(**parts) if name in groups else [*parts.values()]
    return found


def find_groups(function: Any) -> Mapping[str, Group]:
    """The arguments of a function or a constructor that have several parts."""
    own = getattr(function, "__init__") if isinstance(function, type) else function  # noqa: B009
    return _find_groups(unwrap(own))


def unwrap(function: Any) -> Any:
    """The function inside decorators and methods."""
    inner = inspect.unwrap(function)
    return getattr(inner, "__func__", inner)


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
        told = parameter.annotation  # perhaps a string
        if isinstance(told, str):
            told = getattr(function, "__globals__", {}).get(told)
        group = _find_by_class(told)
        if group is None and definition is not None:
            group = _find_by_use(definition, parameter, function)
        if group is not None:
            found[parameter.name] = group
    return found


def _find_by_class(told: Any) -> Group | None:
    """The parts of an argument of a dataclass, its fields; None for any other class."""
    if isinstance(told, type) and dataclasses.is_dataclass(told):
        lacking, parts = dataclasses.MISSING, {}
        for each in (each for each in dataclasses.fields(told) if each.init):
            is_open = each.default is each.default_factory is lacking
            default = None if each.default is lacking else each.default
            parts[each.name] = (_EMPTY if is_open else default, each.type)
        return Group(parts, told)
    return None


def _find_by_use(definition: ast.AST, parameter: inspect.Parameter, function: Any) -> Group | None:
    """The parts of an argument: keys or attributes that the code reads; None for a plain value."""
    keys, names, called = dict[str, Any](), dict[str, None](), dict[str, None]()
    name = parameter.name
    for node in ast.walk(definition):
        match node:
            case ast.Subscript(ast.Name(owner), ast.Constant(str(key))) if owner == name:
                keys[key] = _EMPTY
            case ast.Call(ast.Attribute(ast.Name(owner), method), given) if owner == name:
                called[method] = None  # methods, not parts
                match method, given:
                    case (("get" | "pop"), [ast.Constant(str(key)), *_]):
                        keys[key] = None if method == "get" else _EMPTY
            case ast.Attribute(ast.Name(owner), attribute) if owner == name:
                names[attribute] = None
    if keys or parameter.kind is parameter.VAR_KEYWORD:
        return Group({key: (default, _EMPTY) for key, default in keys.items()}, dict)
    if parameter.default is None:
        return None  # optional, and of unknown class
    known = {*dir(torch.Tensor), *dir(dict), *called}  # methods of tensors and dictionaries
    if not names or not known.isdisjoint(names):
        return None
    every = getattr(function, "__globals__", {}).values()
    classes = dict.fromkeys(v for v in every if isinstance(v, type) and dataclasses.is_dataclass(v))
    fitting = [c for c in classes if {*names} <= {f.name for f in dataclasses.fields(c)}]
    if len(fitting) == 1:
        return _find_by_class(fitting[0])
    return Group(dict.fromkeys(names, (_EMPTY, _EMPTY)), SimpleNamespace)


def parse_file(path: str) -> ast.Module:
    """The tree of a file from linecache; empty for invalid Python."""
    return parse_text("".join(linecache.getlines(path)))


@lru_cache(maxsize=16)
def parse_text(text: str) -> ast.Module:
    """The tree of a text, shared and not to be changed; empty for invalid Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def find_definition(function: Any) -> ast.FunctionDef | ast.Lambda | None:
    """The syntax tree of a function's definition; None where unknown."""
    code: Any = getattr(function, "__code__", None)
    for node in ast.walk(parse_file(code.co_filename)) if code is not None else ():
        match node:
            case ast.FunctionDef(name, decorator_list=above) if name == code.co_name:
                if code.co_firstlineno in {node.lineno, *(each.lineno for each in above)}:
                    return node
            case ast.Lambda() if code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
                return node
    return None


_NOISE = {"w", "weight", "proj", "projection", "linear", "lin", "to", "layer", "fc", "matrix"}
_SAME = {
    "query": "q",
    "queries": "q",
    "key": "k",
    "keys": "k",
    "value": "v",
    "values": "v",
    "val": "v",
    "output": "o",
    "out": "o",
    "input": "x",
    "inputs": "x",
    "inp": "x",
    "hidden": "x",
    "states": "",
    "bias": "b",
    "attn": "attention",
}
# Ranks of a name as a size: a word begins with it, no match.
NAMED, UNSAID = 3, 4
_COUNTS = {"num", "n", "number", "of", "size", "count"}  # words without a size's letter


@dataclass(frozen=True)
class Slot:
    """An argument or parameter of the code."""

    name: str
    required: bool = True
    default: Any = None
    hint: str = ""  # the annotation, as text
    shape: tuple[int, ...] | None = None  # shape of a parameter, None for a lazy one
    axes: tuple[str, ...] = ()  # axis roles of a parameter of torch's own modules
    part: str = ""  # name in the containing dictionary or object

    @property
    def called(self) -> str:
        """The name to match: the part's, else the slot's."""
        return self.part or self.name

    @property
    def is_probability(self) -> bool:
        """Whether the name is that of a dropout rate; dropout is inactive during the check."""
        return "drop" in self.called

    @property
    def is_count(self) -> bool:
        """Whether its name is that of a count: `num_heads`, `n_groups`, `kernelSize`."""
        words = _split_words(self.called)
        return len(words) > 1 and (words[0] in {"num", "n"} or words[-1] in {"size", "count"})

    @property
    def is_flag(self) -> bool:
        """Whether the slot is an optional boolean."""
        return type(self.default) is bool and not self.required

    @property
    def may_be_scalar(self) -> bool:
        """Whether an optional argument may take a number of the formula."""
        is_plain = type(self.default) in {int, float, type(None)}
        return is_plain and not self.required and not self.is_probability

    @property
    def is_number(self) -> bool:
        """Whether the default or annotation rules out a tensor."""
        if isinstance(self.default, (bool, int, float, str)) and not self.required:
            return True
        return self.hint in {"int", "float", "bool", "str"}


def find_axes(owner: Any, name: str) -> tuple[str, ...]:
    """The roles of a parameter's axes, as torch documents its module; () if not known.

    "out" is kept and "in" is summed over where the parameter is used, "kernel" is summed over along
    a window, "row" is picked by an integer.
    """
    kinds = {each.__name__ for each in type(owner).__mro__ if each.__module__.startswith("torch")}
    known = (axes for names, axes in _AXES if "weight" in name and kinds & {*names.split()})
    return next(known, ())


_AXES = (
    ("_ConvTransposeNd", ("in", "out", "kernel")),
    ("_ConvNd", ("out", "in", "kernel")),
    ("Embedding EmbeddingBag", ("row", "out")),
    ("Linear Bilinear MultiheadAttention RNNBase RNNCellBase", ("out", "in")),
)


@run_remotely
def find_slots(target: Any) -> tuple[list[Slot], list[Slot]]:
    """The pair (arguments, parameters) of a function or a module.

    For a class of modules, the arguments of its constructor and those of its forward.
    """
    from torch.nn.parameter import is_lazy

    if isinstance(target, type):
        forward = getattr(target, "forward", None)
        bound = MethodType(forward, target) if callable(forward) else None  # self is no argument
        return find_arguments(target), find_arguments(bound)
    if not isinstance(target, torch.nn.Module):
        return find_arguments(target), []
    owners = dict(target.named_modules())
    parameters = []
    for name, value in target.named_parameters():
        owner, _, last = name.rpartition(".")
        shape = None if is_lazy(value) else tuple(value.shape)
        parameters.append(Slot(name, shape=shape, axes=find_axes(owners[owner], last)))
    parameters += [
        Slot(name, required=False, shape=tuple(value.shape))
        for name, value in target.named_buffers()
        if value is not None and value.is_floating_point() and not is_lazy(value)
    ]
    return find_arguments(target.forward), parameters


def find_arguments(function: Any) -> list[Slot]:
    """The arguments of a function and their parts; none for a builtin without a signature.

    Those of any number have a star, `*ts`; those of compiled code are in its schema.
    """
    if isinstance(function, torch.jit.ScriptFunction):
        every = function.schema.arguments  # type: ignore[attr-defined]
        return [Slot(e.name, not e.has_default_value(), e.default_value) for e in every]
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    groups, slots = find_groups(function), list[Slot]()
    for each in known:
        if each.kind is each.VAR_POSITIONAL:
            slots.append(Slot(f"*{each.name}", required=False, default=()))
            continue
        parts: Mapping[str, tuple[Any, Any]] = {"": (each.default, each.annotation)}
        parts = groups[each.name].parts if each.name in groups else parts
        for part, (default, hint) in parts.items():
            is_open = each.kind is each.VAR_KEYWORD and part
            name = part if is_open else f"{each.name}.{part}" if part else each.name
            told = "" if hint is _EMPTY else getattr(hint, "__name__", "")
            told = hint if isinstance(hint, str) else told
            required = default is _EMPTY
            slots.append(Slot(name, required, None if required else default, told, part=part))
    return slots


def fold_name(name: str) -> str:
    """A name without case and underscores."""
    return name.replace("_", "").lower()


def _split_words(name: str) -> list[str]:
    """The words of a name, in lower case."""
    parts = re.split(r"[._]|(?<=[a-z])(?=[A-Z])", name)
    return [part.lower() for part in parts if part]


def find_core(name: str) -> str:
    """The core of a name, without words such as weight or proj: `q` for `q_proj.weight`."""
    words = [_SAME.get(word, word) for word in _split_words(name)]
    bias = name.endswith("bias") or "b" in {*words[:1], *words[1:][-1:]}
    if len(words) == 1 and re.fullmatch(r"w[a-z]", words[0]):
        words = [words[0][1]]
    if len(words) == 1 and re.fullmatch(r"b[a-z]", words[0]):
        words, bias = [words[0][1]], True
    left = [word for word in words if word and word not in _NOISE and word != "b"]
    return ("b:" if bias else "") + "_".join(left)


def find_kind(name: str) -> str:
    """The kind of tensor in a name: "b" for a bias, else ""."""
    return "b" if find_core(name).startswith("b:") else ""


def find_role(name: str) -> str:
    """The role in attention of a name, certain by itself: "q", "k", "v", else ""."""
    core = find_core(name)
    return core if core in {"q", "k", "v"} else ""


def rank_size(called: str, size: str) -> int:
    """The rank of a number's name as a size, best first.

    0: it is the size's name; 1: a word of it is, `d_head` and D; 2: its last word begins with it,
    `n_heads` and H; 3: another word does, `embed_dim` and E; 4: nothing.
    """
    wanted = fold_name(size)
    if fold_name(called) == wanted:
        return 0
    words = ["d" if w == "dim" else w for w in _split_words(called) if w not in _COUNTS]
    if wanted in words:
        return 1
    if words and words[-1].startswith(wanted):
        return 2
    return NAMED if any(word.startswith(wanted) for word in words) else UNSAID
