"""The direct evaluation of a formula, one element at a time, in float64.

This evaluation is the reference for all other checks. It works on the user's SymPy equations, not
on the index language.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from math import inf
from typing import Any

from derive.errors import refuse
from derive.judge.loops import entries, runtime
from derive.judge.loops.names import Names, name_of_left, read_names
from derive.notation.formula import Formula
from derive.notation.words import find_complex


def evaluate_loops(formula: Formula, tensors: Mapping[str, Any]) -> Any:
    """The results of a checked formula for these values, in the type of the given tensors.

    Raises DeriveError where values are missing or do not fit, and where a read is out of range.
    """
    names = read_names(formula)
    if not isinstance(tensors, Mapping):
        raise refuse(
            "values-form",
            f"values are a dictionary by name, not {type(tensors).__name__}",
            help='write evaluate_loops(formula, {"x": x})',
        )
    results = formula.outputs or (name_of_left(formula.equations[-1]),)
    complexes = find_complex(formula.equations)

    def read_all(found: Mapping[str, runtime.Tensor]) -> tuple[Any, ...]:
        for tensor in found.values():
            runtime.read_deeply(tensor.fill)
        integers = names.integers
        kinds = (complex if n in complexes else int if n in integers else float for n in results)
        return tuple(
            entries.to_result(found[name], tensors, kind)
            for name, kind in zip(results, kinds, strict=True)
        )

    made = _evaluate(formula, names, tensors, inf, read_all)
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
    names = read_names(formula)
    found: dict[str, dict[tuple[int, ...], runtime.Value]] = {name: {} for name in wanted}
    turns = zip_longest(*([(name, at) for at in places] for name, places in wanted.items()))

    def read_wanted(made: Mapping[str, runtime.Tensor]) -> None:
        for name, place in (each for turn in turns for each in turn if each is not None):
            found[name][place] = runtime.read_deeply(partial(made[name].__getitem__, place))

    try:
        _evaluate(formula, names, tensors, steps, read_wanted)
    except entries.StepsOverError:
        return found
    return found


def _evaluate(
    formula: Formula,
    names: Names,
    tensors: Mapping[str, Any],
    steps: float,
    read: Callable[[Mapping[str, runtime.Tensor]], Any],
) -> Any:
    """The value of `read` on the formula's results; an overflow becomes a DeriveError."""
    values = entries.bind_values(formula, names, tensors)
    try:
        return read(entries.open_formula(formula, names, values, steps))
    except OverflowError:
        raise refuse(
            "number-too-large", "an integer of the formula is too large for a float"
        ) from None
