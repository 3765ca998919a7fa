"""What code asks for: its arguments, its parameters, its constructor's arguments; and their names.

Names agree by their core: `query`, `q_proj.weight`, `W_q` and `to_q` all speak of q.
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
# The usual names of sizes, and the letters that formulas have for them.
USUAL_NAMES = {
    "H": "h heads num_heads n_heads n_head nhead nheads num_head num_attention_heads",
    "D": "d d_k dk d_head head_dim dim_head d_v head_size dim",
    "E": "e d_model embed_dim dim model_dim hidden hidden_size n_embd emb_dim d",
    "S": "s seq_len n t seq length",
    "B": "b batch batch_size bs n",
    "N": "n num n_tokens nodes num_nodes",
    "K": "k kernel_size window num_classes",
    "V": "v vocab vocab_size",
    "G": "g groups num_groups",
    "C": "c channels num_classes",
}


@dataclass(frozen=True)
class Slot:
    """One thing that the code asks for."""

    name: str
    required: bool = True
    default: Any = None
    hint: str = ""  # the annotation, as text
    shape: tuple[int, ...] | None = None  # of a parameter; a lazy one has none yet
    linear: bool = False  # the weight of a torch linear layer, held as [out, in]
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
        owner = owners[name.rpartition(".")[0]]
        linear = isinstance(owner, torch.nn.Linear) and name.endswith("weight")
        shape = None if is_lazy(value) else tuple(value.shape)
        parameters.append(Slot(name, shape=shape, linear=linear))
    return find_arguments(target.forward), parameters


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


def rank_sizes(slot: str, sizes: list[str]) -> list[str]:
    """The sizes (and products of sizes) that an integer argument may be, the likely ones first."""
    folded = slot.lower()

    def distance(size: str) -> int:
        if fold(size) == fold(slot):
            return 0
        names = USUAL_NAMES.get(size, "").split()
        if folded in names:
            return 1 + names.index(folded)
        return 50 if "*" not in size else 60

    if folded in {"d_model", "embed_dim", "hidden_size", "n_embd", "emb_dim", "model_dim"}:
        merged = [size for size in sizes if "*" in size]  # E, if the formula has none, is H*D
        if "E" not in sizes and merged:
            return merged + [size for size in sorted(sizes, key=distance) if size not in merged]
    return sorted(sizes, key=distance)


def is_size_name(name: str) -> bool:
    """Is it a usual name of a size?"""
    return any(name.lower() in names.split() for names in USUAL_NAMES.values()) and len(name) > 1
