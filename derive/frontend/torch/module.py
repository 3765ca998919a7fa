"""Lifting of a module: its parameters and buffers become arguments of the formula.

The sizes at which it runs are searched for: the extents that it fixes, such as a number of
channels, are among its tensors' extents and its integer attributes.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count, product
from keyword import iskeyword
from math import prod
from typing import Any

from derive.errors import DeriveError, refuse
from derive.frontend.torch import trace
from derive.frontend.torch.lift import (
    OWN,
    Argument,
    Lifted,
    call_module,
    call_plainly,
    in_double,
    lift,
    make_double,
    substitute_shape,
)
from derive.frontend.torch.numbers import to_expr
from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import Names, find_accesses, find_size_names, rewrite_bottom_up, substitute
from derive.judge.samples import choose_sizes, draw_inputs, find_sizes
from derive.libraries import internals
from derive.notation.formula import Held

Arguments = Mapping[str, Argument]

_MOST_TRIES = 1500  # sizes tried until a module runs
_SMALL_DRAWS = 4  # small sizes drawn for a module
_LARGEST = 1 << 20  # elements of a tensor that is made to try sizes
_TIMES = (1, 3, 8)  # growing factors: a kernel must not exceed its input
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
    wishes: tuple[str, ...]  # preferred names of the sizes
    is_spread: bool = False  # a running variance

    def to_tensor(self) -> ir.Tensor:
        """The tensor as an argument of the formula."""
        kind = trace.kind_of(self.value)
        if not self.extents and kind != "real":
            raise refuse(
                "lift-places",
                f"{self.dotted} is a tensor of no places, and holds no real number",
                help=f"keep it as a number of the module, or give it a place: {self.dotted}[None]",
            )
        shape = tuple(ir.ONE if size == "1" else ir.Size(size) for size in self.extents)
        below = to_expr(int(self.value.max()) + 1) if kind == "int" else None
        return ir.Tensor(self.name, shape, kind, below, ir.ZERO if self.is_spread else None)

    @property
    def numbers(self) -> dict[str, int]:
        """The sizes and their numbers in this module."""
        pairs = zip(self.extents, self.value.shape, strict=True)
        return {size: int(length) for size, length in pairs if size != "1"}


def lift_module(
    module: Any, arguments: Arguments, declared: ir.System, sizes: Mapping[str, int], path: str
) -> tuple[Lifted, tuple[Held, ...]]:
    """Lift a module with its tensors as arguments; return its held tensors too.

    A first run at the module's own sizes finds the sizes that are equal. The remaining ones are
    named by letters, and the module is lifted at small sizes.
    """
    taken = [*(entry.name for entry in declared.inputs), *find_sizes(declared), *arguments]
    own = _find_own(module, taken)
    entries = {f"{OWN}{each.dotted}": each.to_tensor() for each in own}
    whole = replace(declared, inputs=(*declared.inputs, *entries.values()))
    given: dict[str, Argument] = {**arguments, **entries}
    numbers = {size: n for each in own for size, n in each.numbers.items()}
    tried = replace(declared, inputs=tuple(map(_bound, declared.inputs)))
    chosen, held = _find_running(module, given, (tried, whole), {**numbers, **sizes})
    first = lift(module, given, chosen, path=path, loose=("", *numbers))
    kept = [size for size in numbers if size not in first.merged and size not in first.fixed]
    taken += [*(each.name for each in own), *(each.dotted.partition(".")[0] for each in own)]
    names = _name_sizes(own, kept, taken)
    parts = [size for size in first.sizes if size not in chosen]
    parts = [size for size in parts if size in taken or size.startswith((*numbers,))]
    clashes = (  # an attribute of the module is self.D
        size
        for size in find_sizes(declared)
        if taken.count(size) > 1 and size not in arguments and size not in first.merged
    )
    for size in (*parts, *clashes):
        names[size] = next(each for each in _LETTERS if each not in {*taken, *names.values()})
    new: dict[ir.Expr, ir.Expr] = {ir.Size(size): ir.Size(name) for size, name in names.items()}
    for size, other in reversed(tuple(first.merged.items())):
        new[ir.Size(size)] = substitute(other, new)
    given = {name: substitute_shape(entry, new) for name, entry in given.items()}
    chosen = {**first.sizes, **{n: s for n, s in sizes.items() if n not in first.merged}}
    draws = (choose_sizes(first.system, 1, seed=k, fixed=first.fixed) for k in range(_SMALL_DRAWS))
    for (drawn,) in (*draws, [chosen]):  # small: its equations are soon evaluated
        here = {names.get(n, n): s for n, s in {**chosen, **drawn}.items() if n not in first.merged}
        try:
            lifted = lift(module, given, here, path=path, known=(*first.fixed,))
            break
        except DeriveError as error:
            if error.diagnostic.code != "lift-run" or drawn is chosen:
                raise
    system = lifted.system
    read = {part.tensor.name for e in system.equations for part in find_accesses(e.value)}
    idle = {each.name for each in own if each.name not in read}
    system = replace(system, inputs=tuple(e for e in system.inputs if e.name not in idle))
    # a tensor without axes is a scalar of the formula
    system = _to_scalars(system, [each for each in entries.values() if not each.shape])
    own_numbers = {*held, *numbers, *names.values()}
    # the names in D = 2*E of a held size D
    own_numbers |= {*find_size_names(*(e for size, e in first.merged.items() if size in held))}
    fixed = {n: size for n, size in lifted.fixed.items() if n not in own_numbers}
    read_names = {each.dotted: each.name for each in own if each.name in read}
    return replace(lifted, system=system, fixed=fixed), tuple(list_held(module, read_names))


def _bound(entry: ir.Tensor | ir.ScalarInput) -> ir.Tensor | ir.ScalarInput:
    """The entry with a default upper bound of 2 for integers, which may be positions."""
    if isinstance(entry, ir.Tensor) and entry.kind == "int" and entry.below is None:
        return replace(entry, below=to_expr(2))
    return entry


def _to_scalars(system: ir.System, tensors: Collection[ir.Tensor]) -> ir.System:
    """The system with scalars for tensors without axes."""
    new: dict[ir.Expr, ir.Expr] = {ir.Access(t, ()): ir.Scalar(t.name) for t in tensors}
    equations = (
        ir.Equation(each.target, rewrite_bottom_up(each.value, lambda part: new.get(part, part)))
        for each in system.equations
    )
    inputs = (ir.ScalarInput(e.name) if e in tensors else e for e in system.inputs)
    return replace(system, inputs=tuple(inputs), equations=tuple(equations))


def _find_running(
    module: Any, given: Arguments, systems: tuple[ir.System, ir.System], preset: Mapping[str, int]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The first sizes at which a module runs, and the names of those set to its own numbers.

    `systems`: the first declares its arguments, the second its tensors too.
    """
    first: Exception | None = None
    known: dict[str, Any] = {}

    def run(sizes: Mapping[str, int]) -> int | None:
        """The number of profiled events before the module fails; None if it runs."""
        nonlocal first
        shapes = (getattr(entry, "shape", ()) for entry in systems[1].inputs)
        if any(prod(evaluate_extent(n, sizes) for n in shape) > _LARGEST for shape in shapes):
            return 0
        count, before = 0, sys.getprofile()

        def step(*_: Any) -> None:
            nonlocal count
            count += 1

        try:
            if not known:  # the module's tensors are drawn once
                known.update(draw_inputs(systems[1], sizes))
            values = {**known, **draw_inputs(systems[0], sizes)}
            sys.setprofile(step)
            with in_double(), make_double():
                call_plainly(partial(call_module, module), given, values, sizes)
        except Exception as error:  # a module may raise anything
            first = first or error
            return count
        finally:
            sys.setprofile(before)
        return None

    for sizes, held in _list_sizes(module, systems, preset):
        if run(sizes) is None:
            return sizes, held
    found = _find_further(module, systems[0], preset, run)
    if found is not None:
        return found
    raise refuse(
        "lift-run",
        f"the module runs at no sizes that were tried: {type(first).__name__}: {first}",
        help="write numbers for extents that the module fixes, as in x[B, 3, 28, 28]",
    )


def _find_further(
    module: Any,
    system: ir.System,
    preset: Mapping[str, int],
    run: Callable[[Mapping[str, int]], int | None],
) -> tuple[dict[str, int], tuple[str, ...]] | None:
    """Fix one or two sizes at a time, greedily by progress, until the module runs."""
    free = [size for size in find_sizes(system) if size not in preset]
    numbers, held, furthest = (*_find_numbers(module), 1), dict[str, int](), -1

    others = (n for n in count(3) if n not in numbers)  # no numbers of the module
    rest = dict(zip(free, others, strict=False))

    def choose(more: Mapping[str, int]) -> dict[str, int]:
        return {**preset, **rest, **held, **more}

    while True:
        best: dict[str, int] = {}
        furthest = max(furthest, run(choose({})) or 0)
        for many in (1, 2):
            groups = combinations([size for size in free if size not in held], many)
            for names, chosen in product(groups, product(numbers, repeat=many)):
                more = dict(zip(names, chosen, strict=True))
                far = run(choose(more))
                if far is None:
                    return choose(more), (*held, *more)
                if far > furthest:
                    furthest, best = far, more
            if best:
                break
        if not best:
            return None
        held |= best


def _list_sizes(
    module: Any, systems: tuple[ir.System, ir.System], preset: Mapping[str, int]
) -> Iterator[tuple[dict[str, int], tuple[str, ...]]]:
    """Candidate sizes, with as few as possible set to the module's numbers, such as channels."""
    free = [size for size in find_sizes(systems[0]) if size not in preset]
    numbers, tries = _find_numbers(module), 0
    for many in range(len(free) + 1):
        # A gate or a rotation halves an extent, so that the module has half of it.
        known_numbers = (*numbers, *(2 * n for n in numbers)) if many == 1 else numbers
        pairs = product(combinations(free, many), product(known_numbers, repeat=many))
        for held, chosen in pairs:
            known = {**preset, **dict(zip(held, chosen, strict=True))}
            found = {**known, **choose_sizes(systems[0], 1, fixed=known)[0]}
            for times in _TIMES:
                longer = {n: times * (s + 1) for n, s in found.items() if n not in known}
                yield {**found, **longer}, held
            tries += len(_TIMES)
            if tries > _MOST_TRIES:
                return


def _find_own(module: Any, taken: Collection[str]) -> list[_OwnTensor]:
    """The tensors of a module, under free names."""
    used = Names(taken)
    owners, found, indices = dict(module.named_modules()), [], trace.Indices()
    tensors = dict(module.named_parameters())
    for name, value in module.named_buffers():  # leaves out recognised counters and positions
        is_count = trace.kind_of(value) == "int"
        if (
            not is_count
            or trace.recognise(value, lambda n: indices.make_index(to_expr(n), "")) is None
        ):
            tensors[name] = value
    for dotted, value in tensors.items():
        owner, _, last = dotted.rpartition(".")
        wish = dotted.replace(".", "_")
        wish = f"layer_{wish}" if wish[:1].isdigit() else wish.lstrip("_") or "tensor"
        name = used.take(f"{wish}_" if iskeyword(wish) else wish)
        extents = tuple(
            "1" if length == 1 else f"{name}_size{axis}" for axis, length in enumerate(value.shape)
        )
        axes = find_axes(owners[owner], last)
        wishes = [_ROLES[axis] for axis in axes if axis in _ROLES]
        wishes += [*(_KERNEL if "kernel" in axes else ""), *([""] * value.dim())]
        is_spread = last == "running_var" and isinstance(owners[owner], internals.NormBase)
        own = _OwnTensor(dotted, name, value, extents, tuple(wishes[: value.dim()]), is_spread)
        found.append(own)
    return found


def list_held(module: Any, names: Mapping[str, str]) -> Iterator[Held]:
    """The parameters and buffers of a module; `names` maps those in the formula."""
    kept, parameters = module.state_dict(), dict(module.named_parameters(remove_duplicate=False))
    every = {**parameters, **dict(module.named_buffers())}
    read = [(every[dotted], name) for dotted, name in names.items()]
    for dotted, value in every.items():  # one tensor may have several names
        name = next((name for other, name in read if other is value), "")
        shape, dtype = tuple(map(int, value.shape)), ""
        if not value.is_floating_point():
            dtype = str(value.dtype).removeprefix("torch.")
        is_buffer = dotted not in parameters
        flat = value.detach().flatten()
        number = float(flat[0]) if flat.numel() and bool((flat == flat[0]).all()) else None
        yield Held(dotted, name, shape, dtype, is_buffer, dotted in kept, number)


def find_axes(owner: Any, name: str) -> tuple[str, ...]:
    """The roles of a parameter's axes, as torch documents its module; () if not known.

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
        case nn.Linear() | nn.Bilinear() | nn.MultiheadAttention():
            return "out", "in"
        case nn.RNNBase() | nn.RNNCellBase():
            return "out", "in"
    return ()


def _name_sizes(
    own: Collection[_OwnTensor], kept: Collection[str], taken: Collection[str]
) -> dict[str, str]:
    """Letters for the kept sizes: the preferred ones, or others that are free."""
    used, found = Names(taken), dict[str, str]()
    for tensor in own:
        for size, wish in zip(tensor.extents, tensor.wishes, strict=True):
            if size in kept and size not in found:
                free = (each for each in (*wish, *_LETTERS) if each not in used)
                found[size] = next(free, size)
                used.add(found[size])
    return found


def _find_numbers(module: Any) -> tuple[int, ...]:
    """Candidate extents of a module's arguments: its tensors' extents and integer attributes."""
    tensors = [*module.parameters(), *module.buffers()]
    found = [int(n) for tensor in tensors for n in tensor.shape]
    for part in module.modules():
        for value in vars(part).values():
            each = value if isinstance(value, (tuple, list)) else (value,)
            found += [n for n in each if type(n) is int]
    return tuple(dict.fromkeys(n for n in found if n > 1))
