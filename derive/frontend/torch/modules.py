"""A torch module as a function of its arguments and of its own tensors, which have dotted names.

    self.conv1.weight    conv1_weight[O, I, K, L]

A formula names a tensor by its dotted name with `_` for the dots. The extents are sizes of their
own: those of the arguments where the code takes both for equal, numbers where it uses them as such.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from keyword import iskeyword
from math import prod
from typing import TYPE_CHECKING, Any

from derive.errors import DeriveError, refuse
from derive.frontend.from_text import parse
from derive.frontend.system import to_system
from derive.frontend.torch.lift import (
    OWN,
    Lifted,
    call_module,
    call_plainly,
    in_double,
    lift,
    make_double,
    substitute_shape,
)
from derive.frontend.torch.numbers import to_expr
from derive.frontend.torch.trace import Indices, recognise
from derive.ir.nodes import Expr, ScalarInput, Size, System, Tensor
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import find_accesses, substitute
from derive.judge.samples import choose_sizes, draw_inputs, find_sizes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    Arguments = Mapping[str, Tensor | ScalarInput | Size]

_MOST_TRIES = 1500  # of sizes, until a module runs
_MOST_DRAWS = 4  # of small sizes
_LARGEST = 1 << 20  # elements of a tensor that is made to try sizes
_TIMES = (1, 3, 8)  # longer and longer: a kernel may not be too long
_LETTERS = "NMPQRSTUVWXYZABCDEFGHIJKLO"
_ROLES = {"out": "O", "in": "I", "row": "V"}
_KERNEL = "KLM"


@dataclass(frozen=True)
class _OwnTensor:
    """A parameter or a buffer: its dotted name, its name in a formula, and its extents there."""

    dotted: str
    name: str
    value: Any
    extents: tuple[str, ...]  # names of sizes; "1" where it is broadcast
    wishes: tuple[str, ...]  # the letters that the sizes would like
    is_spread: bool = False  # a variance that was counted up

    def declare(self) -> str:
        """The tensor in the notation."""
        kind, bound = "", " >= 0" if self.is_spread else ""
        if self.value.dtype.is_floating_point is False:
            is_truth = str(self.value.dtype) == "torch.bool"
            kind = "bool " if is_truth else "int "
            bound = "" if is_truth else f" < {int(self.value.max()) + 1}"
        extents = f"[{', '.join(self.extents)}]" if self.extents else "[]"
        return f"{kind}{self.name}{extents}{bound}"

    @property
    def numbers(self) -> dict[str, int]:
        """The sizes as this module has them."""
        pairs = zip(self.extents, self.value.shape, strict=True)
        return {size: int(length) for size, length in pairs if size != "1"}


def lift_module(
    module: Any, arguments: Arguments, inputs: str, sizes: Mapping[str, int], path: str
) -> tuple[Lifted, dict[str, str]]:
    """A module lifted with its tensors as arguments, and their names by the dotted ones.

    `inputs` declares the arguments. A first look at the module's own sizes tells which sizes are
    one; what stays of them gets letters, and the module is lifted at small ones.
    """
    declared = to_system(parse(f"{inputs}\nlifted_nothing = 0", "lifted"))
    taken = [*(entry.name for entry in declared.inputs), *find_sizes(declared), *arguments]
    own = _find_own(module, taken)
    text = "\n".join([inputs, *(each.declare() for each in own), "lifted_nothing = 0"])
    whole = to_system(parse(text, "lifted"))
    entries = {entry.name: entry for entry in whole.inputs}
    given = {**arguments, **{f"{OWN}{each.dotted}": entries[each.name] for each in own}}
    numbers = {size: n for each in own for size, n in each.numbers.items()}
    chosen, held = _find_running(module, given, (declared, whole), {**numbers, **sizes})
    first = lift(module, given, chosen, path=path, loose=("", *numbers))
    kept = [size for size in numbers if size not in first.merged and size not in first.fixed]
    letters = _name_sizes(own, kept, [*taken, *(each.name for each in own)])
    new: dict[Expr, Expr] = {Size(size): Size(letter) for size, letter in letters.items()}
    for size, other in reversed(tuple(first.merged.items())):
        new[Size(size)] = substitute(other, new)
    given = {name: substitute_shape(entry, new) for name, entry in given.items()}
    lifted = _lift_small(module, given, first, {**chosen, **sizes}, (letters, path))
    system = lifted.system
    read = {part.tensor.name for e in system.equations for part in find_accesses(e.value)}
    idle = {each.name for each in own if each.name not in read}
    system = replace(system, inputs=tuple(e for e in system.inputs if e.name not in idle))
    own_numbers = {*held, *numbers, *letters.values()}
    fixed = {n: size for n, size in lifted.fixed.items() if n not in own_numbers}
    names = {each.dotted: each.name for each in own if each.name in read}
    return replace(lifted, system=system, fixed=fixed), names


def _lift_small(
    module: Any,
    given: Arguments,
    first: Lifted,
    chosen: Mapping[str, int],
    told: tuple[Mapping[str, str], str],
) -> Lifted:
    """The module at small sizes, at which its equations are soon evaluated; else at its own."""
    letters, path = told
    fixed = {**first.fixed}
    draws = [
        choose_sizes(first.system, 1, seed=seed, fixed=fixed)[0] for seed in range(_MOST_DRAWS)
    ]
    for sizes in (*draws, chosen):
        here = {**{n: chosen[n] for n in chosen if n not in first.merged}, **sizes}
        here = {letters.get(n, n): size for n, size in here.items() if n not in first.merged}
        try:
            return lift(module, given, here, path=path)
        except DeriveError as error:
            if error.diagnostic.code != "lift-run" or sizes is chosen:
                raise
    raise AssertionError


def _find_running(
    module: Any, given: Arguments, systems: tuple[System, System], told: Mapping[str, int]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The first sizes at which a module runs, and those of them that are numbers of its own.

    `systems` declare its arguments, and all tensors.
    """
    first: Exception | None = None
    known: dict[str, Any] = {}
    for sizes, held in _list_sizes(module, systems, told):
        if any(_count(entry, sizes) > _LARGEST for entry in systems[1].inputs):
            continue
        try:
            if not known:  # its own tensors are the same at all of them
                known = draw_inputs(systems[1], sizes)
            values = {**known, **draw_inputs(systems[0], sizes)}
            with in_double(), make_double():
                call_plainly(partial(call_module, module), given, values, sizes)
            return sizes, held
        except Exception as error:  # whatever a module raises
            first = first or error
    raise refuse(
        "lift-run",
        f"the module runs at no sizes that were tried: {type(first).__name__}: {first}",
        help="write numbers for extents that the module fixes, as in x[B, 3, 28, 28]",
    )


def _count(entry: Tensor | ScalarInput, sizes: Mapping[str, int]) -> int:
    shape = entry.shape if isinstance(entry, Tensor) else ()
    return prod(evaluate_extent(extent, sizes) for extent in shape)


def _list_sizes(
    module: Any, systems: tuple[System, System], told: Mapping[str, int]
) -> Iterator[tuple[dict[str, int], tuple[str, ...]]]:
    """Small sizes, as few as can be numbers of the module's own: it has channels, as its input."""
    free = [size for size in find_sizes(systems[0]) if size not in told]
    numbers, tries = _find_numbers(module), 0
    for count in range(len(free) + 1):
        # A gate or a rotation halves an extent, so that the module has half of it.
        known_numbers = (*numbers, *(2 * n for n in numbers)) if count == 1 else numbers
        pairs = product(combinations(free, count), product(known_numbers, repeat=count))
        for held, chosen in pairs:
            known = {**told, **dict(zip(held, chosen, strict=True))}
            found = {**known, **choose_sizes(systems[0], 1, fixed=known)[0]}
            for times in _TIMES:
                longer = {n: times * (s + 1) for n, s in found.items() if n not in known}
                yield {**found, **longer}, held
            tries += len(_TIMES)
            if tries > _MOST_TRIES:
                return


def _find_own(module: Any, taken: Collection[str]) -> list[_OwnTensor]:
    """The tensors of a module, under names that are not taken."""
    from torch.nn.modules.batchnorm import _NormBase

    used = dict.fromkeys(taken)
    owners, found = dict(module.named_modules()), []
    for dotted, value in _list_tensors(module):
        owner, _, last = dotted.rpartition(".")
        name = _find_free(dotted.replace(".", "_"), used)
        used[name] = None
        extents = tuple(
            "1" if length == 1 else f"{name}_size{axis}" for axis, length in enumerate(value.shape)
        )
        wishes = _find_wishes(find_axes(owners[owner], last), value.dim())
        is_spread = last == "running_var" and isinstance(owners[owner], _NormBase)
        found.append(_OwnTensor(dotted, name, value, extents, wishes, is_spread))
    return found


def _list_tensors(module: Any) -> Iterator[tuple[str, Any]]:
    """Parameters, and buffers that are no counters or positions known by their values."""
    yield from module.named_parameters()
    indices = Indices()
    for name, value in module.named_buffers():
        is_count = not value.is_floating_point() and str(value.dtype) != "torch.bool"
        if not is_count or recognise(value, lambda n: indices.make(to_expr(n), "")) is None:
            yield name, value


def _find_free(wish: str, used: Mapping[str, None]) -> str:
    wish = f"layer_{wish}" if wish[:1].isdigit() else wish.lstrip("_") or "tensor"
    number, name = 1, f"{wish}_" if iskeyword(wish) else wish
    while name in used:
        number += 1
        name = f"{wish}_{number}"
    return name


def _find_wishes(axes: tuple[str, ...], rank: int) -> tuple[str, ...]:
    """A letter for each axis, by what torch uses it for."""
    found = [_ROLES[axis] for axis in axes if axis in _ROLES]
    return (*found, *(_KERNEL if "kernel" in axes else ""), *([""] * rank))[:rank]


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


def _name_sizes(
    own: Collection[_OwnTensor], kept: Collection[str], taken: Collection[str]
) -> dict[str, str]:
    """Letters for the sizes that are kept: those that they would like, or others that are free."""
    used, found = dict.fromkeys(taken), dict[str, str]()
    for tensor in own:
        for size, wish in zip(tensor.extents, tensor.wishes, strict=True):
            if size in kept and size not in found:
                free = (each for each in (*wish, *_LETTERS) if each not in used)
                found[size] = next(free, size)
                used[found[size]] = None
    return found


def _find_numbers(module: Any) -> tuple[int, ...]:
    """The numbers that may be extents of a module's arguments: of its tensors, and its own."""
    tensors = [*module.parameters(), *module.buffers()]
    found = [int(n) for tensor in tensors for n in tensor.shape]
    for part in module.modules():
        for value in vars(part).values():
            each = value if isinstance(value, (tuple, list)) else (value,)
            found += [n for n in each if type(n) is int]
    return tuple(dict.fromkeys(n for n in found if n > 1))
