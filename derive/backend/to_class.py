"""The class of a generated file: a module that holds some of the function's arguments.

Of PyTorch's own layers it has `device` and `dtype`, `reset_parameters` and `extra_repr`. What it
does not hold is given to `forward`; sizes and numbers with a default are given where it is made.
A parameter that is multiplied and summed over starts uniform within n**-0.5, where n is the extent
that it is summed over, as that of nn.Linear does; one that is read by integers starts normal; any
other one starts with zeros where it is added, and with ones elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import TypeGuard

from derive.backend import arithmetic, to_checks, to_module
from derive.backend.lines import (
    INDENT,
    WIDTH,
    fit_assignment,
    fit_call,
    fit_signature,
    quote,
    write_function,
    write_returns,
)
from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_accesses, find_children, find_free, find_sizes, substitute, walk
from derive.notation.formula import FILE_WORDS, Held
from derive.plan.plan import Plan

ROOM = WIDTH - 2 * len(INDENT)  # columns of a line of a method


def name_class(name: str) -> str:
    """`MultiHeadAttention` for multi_head_attention, and never the function's own name."""
    found = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    return f"{found}Module" if found in {name, *FILE_WORDS} or not found else found


def find_numbers(system: ir.System, held: Sequence[Held]) -> dict[str, str]:
    """The constructor's arguments, sizes and numbers, each with its default or None.

    The sizes are those of the shapes that it holds, and those that no shape tells.
    """
    entries = {entry.name: entry for entry in system.inputs}
    told = dict.fromkeys((size.name for size in system.sizes), "")
    for each in held:
        entry = entries.get(each.name)
        for k, extent in enumerate(entry.shape if _is(entry) else ()):
            names = [part.name for part in walk(extent) if isinstance(part, ir.Size)]
            told = dict.fromkeys(names, "") | told
            form = Polynomial.of(extent)
            factor = form.terms.get(((ir.Size(names[0]), 1),)) if len(names) == 1 else None
            if each.shape is not None and factor and len(form.terms) <= 1 + (() in form.terms):
                told[names[0]] = str(int((each.shape[k] - form.terms.get((), 0)) / factor))
    told |= {s.name: str(s.default) for s in system.sizes if s.default is not None}
    found = {name: told[name] for name in find_sizes(system) if name in told}
    own = {each.name for each in held}
    for name, entry in entries.items():
        default = entry.default if isinstance(entry, ir.ScalarInput) else None
        if default is not None and name not in own:
            found[name] = arithmetic.to_python(default)
    return dict(sorted(found.items(), key=lambda pair: bool(pair[1])))


def to_class(
    plan: Plan, name: str, header: to_module.Header, held: Sequence[Held], blocks: Sequence[str]
) -> str:
    """The text of the class around the function `name`, whose `blocks` are keywords."""
    system = plan.system
    numbers, own = find_numbers(system, held), _write_held(held, system)
    validate = to_checks.name_validate(plan)
    if name in {*blocks, validate}:
        raise refuse(
            "module-name",
            f"{name} is the name of a keyword of its own function",
            help="give the function another one, --name",
        )
    shown = ", ".join(f"{number}={{self.{number}}}" for number in numbers)
    build = [*(f"self.{number} = {number}" for number in numbers), *own.build]
    starting = ["super().__init__()", *build, "self.reset_parameters()"]
    given = [
        each
        for each in to_module.order_inputs(system)
        if each.name not in own.places and each.name not in numbers
    ]
    keywords = [f"{block}: int | None = None" for block in blocks]
    keywords += [f"{validate}: bool = False"] if validate else []
    arguments = [
        "self",
        *map(to_module.write_argument, given),
        *(["*", *keywords] if keywords else []),
    ]
    words = [*blocks, *([validate] if validate else [])]
    passed = _list_passed(system, numbers, own.places, words)
    call = [f'"""{name} with what is held here."""', *fit_call(f"return {name}", "", passed, ROOM)]
    reset = ['"""Give them their first values."""', *own.reset]
    methods = [
        ("__init__", _list_parameters(system, numbers), "None", starting),
        ("reset_parameters", ["self"], "None", reset),
        ("forward", arguments, write_returns(len(plan.results)), call),
        ("extra_repr", ["self"], "str", [f'return {"f" * bool(shown)}"{shown}"']),
    ]
    title = to_module.to_sentence(header.title or name.replace("_", " ").capitalize())
    lines = [title, "", *to_module.pad_rows(own.rows), ""]
    lines.append(f"The other arguments of {name} are given to forward.")
    texts = [write_function(f"class {name_class(name)}(nn.Module):", quote(lines))]
    for method, parameters, result, body in methods:
        head = fit_signature(method, parameters, result, WIDTH - len(INDENT))
        texts.append(write_function(head, body, depth=1))
    return "\n".join(texts)


@dataclass(frozen=True, slots=True)
class _HeldLines:
    """The lines of a class for the tensors that it holds."""

    rows: list[tuple[str, str, str, str]]  # of the docstring
    build: list[str]
    reset: list[str]
    places: dict[str, str]  # the attribute of each argument that is held


def _write_held(held: Sequence[Held], system: ir.System) -> _HeldLines:
    entries = {entry.name: entry for entry in system.inputs}
    own = _HeldLines([], [], [], {})
    known: set[str] = set()  # modules for the parts of dotted names
    for each in held:
        entry, place = entries.get(each.name), _find_place(each.dotted)
        start = _find_start(each, entry, system)
        own.build.extend(_write_owners(each.dotted, known))
        if each.name in own.places:
            own.build.append(f"{place} = {own.places[each.name]}")
        else:
            own.build.extend(_write_new(each, entry, place))
            own.reset.append(start.call.format(place))
        if each.name:
            own.places.setdefault(each.name, place)
        indices = to_checks.show_access(entry, system).removeprefix(each.name) if _is(entry) else ""
        shape = to_module.write_shape(entry) if _is(entry) else f"{list(each.shape or ())}"
        kind = "buffer" if each.is_buffer else "parameter"
        own.rows.append((each.dotted, indices, shape, f"{kind}, {start.words}"))
    return own


def _list_passed(
    system: ir.System, numbers: Mapping[str, str], places: Mapping[str, str], words: Sequence[str]
) -> list[str]:
    """The arguments of the function's call in `forward`."""
    return [
        *(
            places.get(each.name, f"self.{each.name}" if each.name in numbers else each.name)
            for each in to_module.order_inputs(system)
        ),
        *(f"{size.name}=self.{size.name}" for size in system.sizes),
        *(f"{word}={word}" for word in words),
    ]


def _list_parameters(system: ir.System, numbers: Mapping[str, str]) -> list[str]:
    """The parameters of `__init__`: sizes, and numbers as keywords."""
    entries = {entry.name for entry in system.inputs}
    return [
        "self",
        *(_declare(n, "int", numbers[n]) for n in numbers if n not in entries),
        "*",
        *(_declare(n, "float", numbers[n]) for n in numbers if n in entries),
        "device: torch.device | str | None = None",
        "dtype: torch.dtype | None = None",
    ]


def _is(entry: ir.Tensor | ir.ScalarInput | None) -> TypeGuard[ir.Tensor]:
    return isinstance(entry, ir.Tensor)


def _declare(name: str, kind: str, default: str) -> str:
    return f"{name}: {kind} = {default}" if default else f"{name}: {kind}"


def _find_place(dotted: str) -> str:
    """`self.layer.weight`; a part that is a number is asked for by its name."""
    place = "self"
    for part in filter(None, dotted.split(".")):
        place = f"{place}.{part}" if part.isidentifier() else f'getattr({place}, "{part}")'
    return place


def _write_owners(dotted: str, known: set[str]) -> Iterator[str]:
    """The lines that make the modules of a dotted name that are not known yet."""
    parts = dotted.split(".")
    for k in range(1, len(parts)):
        inner = ".".join(parts[:k])
        if inner not in known:
            known.add(inner)
            if parts[k - 1].isidentifier():
                yield f"{_find_place(inner)} = nn.Module()"
            else:
                outside = _find_place(".".join(parts[: k - 1]))
                yield f'{outside}.add_module("{parts[k - 1]}", nn.Module())'


def _write_new(each: Held, entry: ir.Tensor | ir.ScalarInput | None, place: str) -> list[str]:
    """The line that makes a parameter or a buffer."""
    extents = [arithmetic.to_python(e) for e in entry.shape] if _is(entry) else []
    if entry is None:
        extents = [str(length) for length in each.shape or ()]
    dtype = f"torch.{each.dtype}" if each.dtype else "dtype"
    new = f"torch.empty({', '.join(extents) or '()'}, device=device, dtype={dtype})"
    if not each.is_buffer:
        return fit_assignment(place, f"nn.Parameter({new})", ROOM)
    outside, _, last = each.dotted.rpartition(".")
    arguments = [f'"{last}"', new, *([] if each.is_persistent else ["persistent=False"])]
    return fit_call(f"{_find_place(outside)}.register_buffer", "", arguments, ROOM)


@dataclass(frozen=True, slots=True)
class _Start:
    """The initial value of a held tensor: in words, and as the call that sets it."""

    words: str
    call: str


def _find_start(each: Held, entry: ir.Tensor | ir.ScalarInput | None, system: ir.System) -> _Start:
    zeros, ones = _Start("zeros", "nn.init.zeros_({})"), _Start("ones", "nn.init.ones_({})")
    if each.is_buffer:
        if each.value is None:
            is_real = not each.dtype
            call = "{}.fill_(torch.nan)" if is_real else "{}.zero_()"
            return _Start(f"{'nan' if is_real else 'zeros'} until it is loaded", call)
        if each.value in {0, 1}:
            return ones if each.value else zeros
        value = f"{int(each.value)}" if each.dtype else repr(each.value)
        value = value if isfinite(each.value) else value.replace("inf", "torch.inf")
        return _Start(f"each {value}", f"nn.init.constant_({{}}, {value})")
    if isinstance(entry, ir.ScalarInput):
        if entry.default is None:
            return ones
        value = arithmetic.to_python(entry.default)
        return _Start(value, f"nn.init.constant_({{}}, {value})")
    if entry is None:
        return zeros
    summed, is_picked, is_added = _find_use(entry.name, system)
    if summed and entry.lower is None:
        extents = tuple(entry.shape[k] for k in sorted(summed))
        extent = ir.Mul(extents) if len(extents) > 1 else extents[0]
        root = ir.Pow(extent, ir.Number(Fraction(-1, 2)))
        words = f"uniform within {arithmetic.to_python(root)}".replace(" * ", "*")
        own: dict[ir.Expr, ir.Expr] = {
            part: ir.Size(f"self.{part.name}") for part in walk(root) if isinstance(part, ir.Size)
        }
        bound = arithmetic.to_python(substitute(root, own))
        return _Start(words, f"nn.init.uniform_({{}}, -({bound}), {bound})")
    if is_picked:
        return _Start("normal", "nn.init.normal_({})")
    return zeros if is_added and entry.lower is None else ones


def _find_use(name: str, system: ir.System) -> tuple[set[int], bool, bool]:
    """(places that are summed over, whether some are gathered, whether it is a term of a sum)."""
    summed: set[int] = set()
    is_picked, is_added = False, False
    for equation in system.equations:
        for access, bound, parents in _find_reads(equation.value):
            if access.tensor.name != name:
                continue
            inner: set[int] = set()
            if access is equation.value:  # another name for it, or for a part of it
                inner, *more = _find_use(equation.target.tensor.name, system)
                is_picked, is_added = is_picked or more[0], is_added or more[1]
            indices = {i for k in inner for i in find_free(equation.target.places[k])}
            for k, place in enumerate(access.places):
                summed |= {k} if {*bound, *indices}.intersection(find_free(place)) else set()
                is_picked = is_picked or bool(find_accesses(place))
            is_added = is_added or (bool(parents) and isinstance(parents[-1], ir.Add))
    return summed, is_picked, is_added


def _find_reads(
    expr: ir.Expr, bound: tuple[ir.Index, ...] = (), parents: tuple[ir.Expr, ...] = ()
) -> Iterator[tuple[ir.Access, tuple[ir.Index, ...], tuple[ir.Expr, ...]]]:
    """The accesses, each with the indices summed around it and the expression around it."""
    if isinstance(expr, ir.Access):
        yield expr, bound, parents
    if isinstance(expr, ir.Reduce) and expr.kind in {"sum", "mean"}:
        bound = (*bound, *expr.bound)
    elif not isinstance(expr, (ir.Add, ir.Mul)):
        bound = ()  # arguments of a function belong to another layer
    for child in find_children(expr):
        yield from _find_reads(child, bound, (*parents, expr))
