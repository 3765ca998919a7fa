"""What code asks for: its arguments, its parameters, its constructor's arguments; and their names.

Names agree by their core: `query`, `q_proj.weight`, `W_q` and `to_q` all speak of q. What the axes
of a parameter are is read off the type of its module, as torch documents it.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from derive.checker.groups import Part, find_groups
from derive.checker.remote import where_it_lives

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.checker.groups import Group

_EMPTY = inspect.Parameter.empty
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
UNSAID = 4  # how much a number's name says that it is a size: nothing
_COUNTS = {"num", "n", "number", "of", "size", "count"}  # words that say a number, not of what


@dataclass(frozen=True)
class Slot:
    """One thing that the code asks for."""

    name: str
    required: bool = True
    default: Any = None
    hint: str = ""  # the annotation, as text
    shape: tuple[int, ...] | None = None  # of a parameter; a lazy one has none yet
    axes: tuple[str, ...] = ()  # of a parameter of torch's own modules, in their order
    part: str = ""  # its name in the dictionary or object that holds it

    @property
    def called(self) -> str:
        """The name that tells what it is."""
        return self.part or self.name

    @property
    def is_number(self) -> bool:
        """Is it surely no tensor?"""
        if isinstance(self.default, (bool, int, float, str)) and not self.required:
            return True
        return self.hint in {"int", "float", "bool", "str"}


@where_it_lives
def find_slots(target: Any) -> tuple[list[Slot], list[Slot]]:
    """The arguments and the parameters that a function or a module asks for."""
    import torch
    from torch.nn.parameter import is_lazy

    if not isinstance(target, torch.nn.Module):
        return find_arguments(target), []
    owners = dict(target.named_modules())
    parameters = []
    for name, value in target.named_parameters():
        owner, _, last = name.rpartition(".")
        shape = None if is_lazy(value) else tuple(value.shape)
        parameters.append(Slot(name, shape=shape, axes=find_axes(owners[owner], last)))
    return find_arguments(target.forward), parameters


def find_axes(owner: Any, name: str) -> tuple[str, ...]:
    """What the axes of a parameter are, in order, as torch documents its module; () of others.

    "out" is kept and "in" is summed over where the parameter is used, "kernel" is summed over along
    a window, "row" is picked by an integer.
    """
    from torch import nn
    from torch.nn.modules import conv

    if "weight" not in name:
        return ()
    match owner:
        case conv._ConvTransposeNd():
            return "in", "out", "kernel"
        case conv._ConvNd():
            return "out", "in", "kernel"
        case nn.Embedding() | nn.EmbeddingBag():
            return "row", "out"
        case (
            nn.Linear() | nn.Bilinear() | nn.MultiheadAttention() | nn.RNNBase() | nn.RNNCellBase()
        ):
            return "out", "in"
    return ()


@where_it_lives
def find_constructor_slots(target: Any) -> list[Slot]:
    """The arguments that a class of modules is made with."""
    return find_arguments(target)


def find_arguments(function: Any) -> list[Slot]:
    """The arguments of a function; a builtin without a signature tells none."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    groups = find_groups(function)
    return [slot for each in known for slot in _list_slots(each, groups.get(each.name))]


def _list_slots(parameter: inspect.Parameter, group: Group | None) -> Iterator[Slot]:
    """The parameter itself, or what it holds."""
    if group is None:
        if parameter.kind is not parameter.VAR_POSITIONAL:
            told = Part(parameter.name, parameter.default, parameter.annotation)
            yield _make_slot(parameter.name, told)
        return
    is_open = parameter.kind is parameter.VAR_KEYWORD
    for part in group.parts:
        name = part.name if is_open else f"{parameter.name}.{part.name}"
        yield replace(_make_slot(name, part), part=part.name)


def _make_slot(name: str, told: Part) -> Slot:
    required = told.default is _EMPTY
    return Slot(name, required, None if required else told.default, _name_hint(told.hint))


def _name_hint(annotation: Any) -> str:
    if annotation is _EMPTY:
        return ""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")


def fold(name: str) -> str:
    """A name without case and underscores."""
    return name.replace("_", "").lower()


def find_core(name: str) -> str:
    """What a name speaks of, without the words that say what kind of thing it is."""
    parts = re.split(r"[._]|(?<=[a-z])(?=[A-Z])", name)
    words = [_SAME.get(part.lower(), part.lower()) for part in parts if part]
    bias = name.endswith("bias") or words[:1] == ["b"]
    if len(words) == 1 and re.fullmatch(r"w[a-z]", words[0]):
        words = [words[0][1]]
    if len(words) == 1 and re.fullmatch(r"b[a-z]", words[0]):
        words, bias = [words[0][1]], True
    left = [word for word in words if word and word not in _NOISE and word != "b"]
    return ("b:" if bias else "") + "_".join(left)


def rank_size(called: str, size: str) -> int:
    """How much a number's name says that it is a size.

    0: it is the size's name; 1: a word of it is, `d_head` and D; 2: its last word begins with it,
    `n_heads` and H; 3: another word does, `embed_dim` and E; 4: nothing. A `dim` is a d, and `num`
    or `n` only says that things are counted.
    """
    wanted = fold(size)
    if fold(called) == wanted:
        return 0
    parts = (part.lower() for part in re.split(r"[._]|(?<=[a-z])(?=[A-Z])", called))
    words = ["d" if part == "dim" else part for part in parts if part and part not in _COUNTS]
    if wanted in words:
        return 1
    if words and words[-1].startswith(wanted):
        return 2
    return 3 if any(word.startswith(wanted) for word in words) else UNSAID
