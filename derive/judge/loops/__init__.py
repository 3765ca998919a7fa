"""The direct evaluation of a formula, one element at a time, in float64.

This evaluation is the reference for all other checks. It works on the user's SymPy equations, not
on the index language. The text of `entries` computes each element at its first read.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from math import inf
from typing import Any

from derive.errors import DeriveError, refuse
from derive.judge.loops import entries, runtime
from derive.judge.loops.names import Names, name_of_left
from derive.judge.loops.text import read_whole_names
from derive.notation.formula import Formula
from derive.notation.words import find_complex


def evaluate_loops(formula: Formula, tensors: Mapping[str, Any]) -> Any:
    """The results of a checked formula for these values, in the type of the given tensors.

    Raises DeriveError where values are missing or do not fit, and where a read is out of range.
    """
    names = read_whole_names(formula)
    if not isinstance(tensors, Mapping):
        raise refuse(
            "values-form",
            f"values are a dictionary by name, not {type(tensors).__name__}",
            help='write evaluate_loops(formula, {"x": x})',
        )
    results = formula.outputs or (name_of_left(formula.equations[-1]),)
    found = _evaluate(formula, names, tensors, inf, lambda each: _read_all(each, names))
    complexes = find_complex(formula.equations)
    kinds = [complex if n in complexes else int if n in names.whole else float for n in results]
    made = tuple(
        entries.to_result(found[name], tensors, kind)
        for name, kind in zip(results, kinds, strict=True)
    )
    return made[0] if len(made) == 1 else made


def evaluate_entries(
    formula: Formula,
    tensors: Mapping[str, Any],
    wanted: Mapping[str, Sequence[tuple[int, ...]]],
    steps: int,
) -> dict[str, dict[tuple[int, ...], runtime.Value]]:
    """The wanted entries of the results, by name and place.

    The entries of all results are computed in turn until the loops have taken `steps` steps. The
    remaining entries are left out.
    """
    names = read_whole_names(formula)
    found: dict[str, dict[tuple[int, ...], runtime.Value]] = {name: {} for name in wanted}
    turns = zip_longest(*([(name, at) for at in places] for name, places in wanted.items()))

    def read_wanted(namespace: Mapping[str, Any]) -> None:
        for name, place in (each for turn in turns for each in turn if each is not None):
            value = namespace[names.python[name]]
            key = place if len(place) > 1 else place[0] if place else ()
            found[name][place] = value[key] if place else value()

    try:
        _evaluate(formula, names, tensors, steps, read_wanted)
    except (entries.StepsOverError, RecursionError):  # long recurrences recurse deeply
        return found
    return found


def _evaluate(
    formula: Formula,
    names: Names,
    tensors: Mapping[str, Any],
    steps: float,
    read: Callable[[Mapping[str, Any]], Any],
) -> Any:
    """What `read` returns for the names of the executed text; errors as DeriveError."""
    code = runtime.compile_text(entries.write_entries(formula, names))
    values = entries.bind_values(formula, names, tensors)
    namespace: dict[str, Any] = {}
    try:
        namespace = entries.open_formula(code, names, values, steps)
        return read(namespace)
    except runtime.OutsideError as error:
        raise _refuse_outside(error) from None
    except OverflowError:
        raise refuse(
            "number-too-large", "an integer of the formula is too large for a float"
        ) from None


def _read_all(namespace: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """The results, with all elements computed.

    A recurrence is read from its first place, or from its last one where that recurses too deeply.
    """
    waiting = [namespace[names.python[name]] for name in names.defined]
    while waiting:
        left = [tensor for tensor in waiting if not (_is_read(tensor, 1) or _is_read(tensor, -1))]
        if len(left) == len(waiting):
            raise refuse("too-deep", "an element is computed from too many others, one by one")
        waiting = left
    found = ((name, namespace[names.python[name]]) for name in names.defined)
    return {name: value() if callable(value) else value for name, value in found}


def _is_read(tensor: Any, step: int) -> bool:
    """Whether all elements could be read, in increasing or decreasing order of places."""
    try:
        if callable(tensor):
            tensor()
        else:
            for place in [*tensor.list_places()][::step]:
                tensor[place]
    except RecursionError:
        return False
    return True


def _refuse_outside(error: runtime.OutsideError) -> DeriveError:
    """The error for a missing element: its tensor and its place."""
    name, shape = error.tensor.name, error.tensor.shape
    places = error.place if isinstance(error.place, tuple) else (error.place,)
    element = f"{name}[{', '.join(map(str, places))}]"
    if len(places) != len(shape):
        message = f"{element} names {len(places)} places, and {name} has {len(shape)}"
        return refuse("rank-differs", message)
    for number, (place, extent) in enumerate(zip(places, shape, strict=True)):
        if not 0 <= place < extent:
            return refuse(
                "reads-outside",
                f"{element} lies outside of {name}: place {number} is {place}, "
                f"and its extent is {extent}",
                help=f"guard it with a condition, {name}[..] * [0 <= .. < {extent}]",
            )
        if place != int(place):
            message = f"{element} is no element: place {number} is {place}, no integer"
            return refuse("place-not-whole", message)
    code = "place-filled-twice" if "twice" in error.reason else "place-not-filled"
    return refuse(code, error.reason.format(element))
