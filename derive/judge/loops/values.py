"""Values in and out of a loop nest: what was given becomes elements by place, and back.

The sizes are read off the shapes of the given tensors: an extent `S` by itself, `2*S - 1` or `H*D`
by solving for the one size that is not known yet. What does not fit is refused by name.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

from sympy import Symbol, expand

from derive.errors import refuse, suggest
from derive.judge.loops import runtime
from derive.judge.loops.names import label_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from derive.judge.loops.names import Names
    from derive.notation.formula import Formula


def bind(
    formula: Formula,
    names: Names,
    given: Mapping[str, Any],
    exact: bool,
    open_tensor: Callable[..., runtime.Tensor] | None = None,
) -> dict[str, Any]:
    """The value of every tensor, size and scalar.

    `open_tensor(shape, elements, convert)` makes a tensor whose elements are converted when read.
    """
    _check_names(names, given)
    scalars = {name: _find_scalar(name, names, given, exact) for name in names.scalars}
    tensors = {name: _read(name, names, given[name], exact, open_tensor) for name in names.inputs}
    sizes = _find_sizes(formula, names, given, tensors)
    return {**sizes, **scalars, **tensors}


def _check_names(names: Names, given: Mapping[str, Any]) -> None:
    known = (*names.inputs, *names.scalars, *names.sizes)
    for name in given:
        if name not in known:
            what = "a result, no argument" if name in names.defined else "no name of the formula"
            raise refuse(
                "argument-unknown",
                f"{name} is {what}",
                facts=[f"the arguments are {', '.join(known)}"],
                help=suggest(name, known),
            )
    for name in names.inputs:
        if name not in given:
            shape = names.shapes.get(name)
            facts = [f"its shape is [{', '.join(map(_show, shape))}]"] if shape else []
            raise refuse("tensor-missing", f"tensor {name} is not given", facts=facts)


def _show(extent: Any) -> str:
    return "?" if extent is None else str(extent)


def _find_scalar(name: str, names: Names, given: Mapping[str, Any], exact: bool) -> Any:
    value = given.get(name, names.scalars[name])
    if value is None:
        raise refuse(
            "scalar-missing",
            f"scalar {name} is not given and has no default",
            help=f"pass {name}=...",
        )
    shape, elements = _open(name, value)
    if shape:
        raise refuse("rank-differs", f"{name} is a number, and what was given has shape {shape}")
    return _convert(name, "real", elements[0], exact)


def _read(
    name: str,
    names: Names,
    value: Any,
    exact: bool,
    open_tensor: Callable[..., runtime.Tensor] | None,
) -> Any:
    """A given tensor as elements by place; of no index, the number itself."""
    shape, elements = _open(name, value)
    kind = getattr(names.bases[name], "kind", "real")
    rank = len(names.shapes.get(name, ()))
    if len(shape) != rank:
        wanted = ", ".join(map(_show, names.shapes.get(name, ())))
        raise refuse(
            "rank-differs",
            f"{name} has {rank} indices, [{wanted}], and what was given has shape {shape}",
        )
    if open_tensor is not None and rank:
        return open_tensor(shape, elements, lambda element: _convert(name, kind, element, exact))
    converted = [_convert(name, kind, element, exact) for element in elements]
    if not rank:
        return converted[0]
    tensor = runtime.Tensor(*shape)
    places = range(shape[0]) if rank == 1 else product(*map(range, shape))
    dict.update(tensor, zip(places, converted, strict=True))
    return tensor


def _open(name: str, value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of any value, and its elements in row-major order as Python numbers."""
    if hasattr(value, "detach"):
        value = value.detach().resolve_conj().resolve_neg()
        if value.is_complex():
            raise refuse("tensor-complex", f"{name} is complex; the loops compute real numbers")
        if value.is_floating_point():
            value = value.double()  # also float16 and the like, which tolist would round
        return tuple(value.shape), value.reshape(-1).tolist()
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return tuple(value.shape), value.reshape(-1).tolist()
    if isinstance(value, (list, tuple)):
        parts = [_open(name, part) for part in value]
        shapes = {shape for shape, _ in parts}
        if len(shapes) > 1:
            raise refuse("tensor-ragged", f"the rows of {name} differ in length")
        inner = shapes.pop() if shapes else ()
        return (len(parts), *inner), [element for _, part in parts for element in part]
    return (), [value]


def _convert(name: str, kind: str, element: Any, exact: bool) -> Any:
    """One element as the text computes with it."""
    if kind == "bool":
        if element not in {0, 1}:
            raise refuse("tensor-not-boolean", f"{name} holds truth values, not {element!r}")
        return bool(element)
    if kind == "int":
        if isinstance(element, (bool, float)):
            raise refuse(
                "tensor-not-whole",
                f"{name} holds integers, not {element!r}",
                help=f"give it as integers: {name}.long()",
            )
        number = _to_number(name, element)
        if number != number or number in {inf, -inf} or number != int(number):
            raise refuse("tensor-not-whole", f"{name} holds integers, not {element!r}")
        return int(element)
    if getattr(element, "is_Rational", False):
        element = Fraction(int(element.p), int(element.q))
    number = _to_number(name, element)
    if not exact or number - number != 0:  # inf and nan stay what they are
        return number
    return Fraction(element if isinstance(element, (int, float, Fraction)) else number)


def _to_number(name: str, element: Any) -> float:
    try:
        return float(element)
    except (TypeError, ValueError):
        raise refuse("tensor-not-number", f"{name} holds numbers, not {element!r}") from None


def _find_sizes(
    formula: Formula, names: Names, given: Mapping[str, Any], tensors: Mapping[str, Any]
) -> dict[str, int]:
    """Every size, from keywords, shapes and defaults, each checked against all the others."""
    sizes = {name: _to_size(name, given[name]) for name in names.sizes if name in given}
    facts = [
        (name, place, extent, found)
        for name, tensor in tensors.items()
        for place, (extent, found) in enumerate(
            zip(names.shapes.get(name, ()), getattr(tensor, "shape", ()), strict=True)
        )
        if extent is not None
    ]
    _solve(facts, sizes)
    declared = formula.declarations.sizes if formula.declarations else ()
    defaults = {label_of(symbol): default for symbol, default in declared}
    for name in names.sizes:
        default = defaults.get(name)
        if name not in sizes and default is not None:
            sizes[name] = int(default)
    _solve(facts, sizes)
    for name in names.sizes:
        if name not in sizes:
            raise refuse(
                "size-unknown",
                f"no shape tells the size {name}",
                help=f"pass it as a keyword, {name}=...",
            )
    return sizes


def _solve(facts: list[tuple[str, int, Any, int]], sizes: dict[str, int]) -> None:
    """Work out sizes from extents with one unknown, until nothing new comes; check the rest."""
    sources: dict[str, str] = {}
    pending = facts
    while pending:
        waiting = []
        for fact in pending:
            extent = fact[2]
            known = {s: sizes[s.name] for s in extent.free_symbols if s.name in sizes}
            rest = expand(extent.subs(known))
            if rest.is_number:
                _check_extent(fact, int(rest) if rest.is_Integer else rest, sizes, sources)
            elif not _solve_one(fact, rest, sizes, sources):
                waiting.append(fact)
        if len(waiting) == len(pending):
            return
        pending = waiting


def _solve_one(
    fact: tuple[str, int, Any, int], rest: Any, sizes: dict[str, int], sources: dict[str, str]
) -> bool:
    """Find the one unknown of a linear extent."""
    name, place, extent, found = fact
    unknown = [s for s in rest.free_symbols if isinstance(s, Symbol)]
    slope = rest.coeff(unknown[0]) if len(unknown) == 1 else 0
    start = expand(rest - slope * unknown[0])
    if not (slope and getattr(slope, "is_Rational", False) and start.is_Rational):
        return False
    value = (found - start) / slope
    if not value.is_Integer or value < 0:
        raise refuse(
            "extent-differs",
            f"place {place} of {name} has extent {extent}, and {found} was given",
            facts=[f"no size {unknown[0]} makes that true", *_list_sizes(extent, sizes, sources)],
        )
    sizes[unknown[0].name] = int(value)
    sources[unknown[0].name] = f", from place {place} of {name}"
    return True


def _check_extent(
    fact: tuple[str, int, Any, int], wanted: Any, sizes: dict[str, int], sources: dict[str, str]
) -> None:
    name, place, extent, found = fact
    if wanted != found:
        raise refuse(
            "extent-differs",
            f"place {place} of {name} has extent {extent} = {wanted}, and {found} was given",
            facts=_list_sizes(extent, sizes, sources),
        )


def _list_sizes(extent: Any, sizes: dict[str, int], sources: dict[str, str]) -> list[str]:
    known = sorted(s.name for s in getattr(extent, "free_symbols", ()) if s.name in sizes)
    return [f"{name} = {sizes[name]}{sources.get(name, ', as given')}" for name in known]


def _to_size(name: str, value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise refuse("size-not-whole", f"size {name} is a whole number, not {value!r}")
    if int(value) < 0:
        raise refuse("size-not-whole", f"size {name} is not negative, but {value!r} was given")
    return int(value)


def to_result(
    name: str, value: Any, given: Mapping[str, Any], exact: bool, is_integer: bool
) -> Any:
    """A result in the form of what was given: torch, NumPy, or nested lists."""
    shape = value.shape if isinstance(value, runtime.Tensor) else ()
    places = product(*map(range, shape))
    elements = [_find(name, value, place) for place in places] if shape else [value]
    if exact:
        return _nest([e if isinstance(e, float) else Fraction(e) for e in elements], shape)
    if all(isinstance(element, bool) for element in elements) and elements:
        numbers, kind = elements, "bool"
    else:
        as_number = int if is_integer else float
        numbers, kind = [as_number(e) for e in elements], "int64" if is_integer else "float64"
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(v, torch.Tensor) for v in given.values()):
        return torch.tensor(numbers, dtype=getattr(torch, kind)).reshape(shape)
    numpy = sys.modules.get("numpy")
    if numpy is not None and any(isinstance(v, numpy.ndarray) for v in given.values()):
        return numpy.array(numbers, dtype=kind).reshape(shape)
    return _nest(numbers, shape)


def _find(name: str, tensor: runtime.Tensor, place: tuple[int, ...]) -> Any:
    key: Any = place if len(place) > 1 else place[0]
    if key not in tensor:
        raise refuse(
            "place-not-filled",
            f"no equation gives {name}[{', '.join(map(str, place))}] a value",
            facts=[f"the shape of {name} is {list(tensor.shape)}"],
        )
    return tensor[key]


def _nest(elements: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return elements[0]
    step = len(elements) // shape[0] if shape[0] else 0
    return [_nest(elements[k * step : (k + 1) * step], shape[1:]) for k in range(shape[0])]
