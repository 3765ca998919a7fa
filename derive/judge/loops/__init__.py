"""The direct evaluation of a formula: its loop nest as Python text, and the value of that text.

    q = tensor(B, S, H, D)
    for b in range(B):
        for i in range(S):
            ...
                q[b, i, h, e] = sum(X[b, i, h, d] * W_Q[h, d, e] for d in range(D))

This evaluation is the reference for all other checks. It works on the user's SymPy equations, not
on the index language, and computes one element at a time: in float64, or exactly in fractions.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product, zip_longest
from typing import Any

from sympy import Indexed, S, expand

from derive.errors import DeriveError, refuse, suggest
from derive.judge.loops import entries, runtime
from derive.judge.loops.entries import bind_values, to_result
from derive.judge.loops.lines import INDENT, fold_line
from derive.judge.loops.names import Names, find_indices, label_of, name_of_left, places_of_left
from derive.judge.loops.text import (
    Scope,
    find_row_indices,
    find_rows,
    read_whole_names,
    write_operand,
    write_reduction,
    write_shape,
)
from derive.notation.formula import Formula, check_formula
from derive.notation.words import find_complex

MOST_LOOPS = 16  # nested loops; Python allows 20

_ROW_NAMES = {
    "Sum": "total",
    "Product": "product",
    "amax": "largest",
    "amin": "smallest",
    "mean": "center",
    "var": "spread",
    "sample_var": "spread",
    "logsumexp": "total",
    "argmax": "best",
}


def to_loops(formula: Formula) -> str:
    """The formula as a loop nest in Python, with one block of loops per equation."""
    return _to_text(formula, read_whole_names(check_formula(formula)))


def evaluate_loops(formula: Formula, tensors: Mapping[str, Any], exact: bool = False) -> Any:
    """The results of the formula for these values, computed by the text of `to_loops`.

    `tensors` maps the names of tensors, scalars and keyword sizes to torch tensors, arrays, nested
    lists or numbers. The results have the type of the given tensors: torch (float64, or int64 for
    integers), NumPy, or nested lists; a tuple if the formula has several results. With `exact`
    every number is a fraction, and the results are nested lists.

    Raises DeriveError where values are missing or do not fit, where a read is out of range, and
    `not-rational` where a function has no exact value.
    """
    names = read_whole_names(check_formula(formula))
    if not isinstance(tensors, Mapping):
        raise refuse(
            "values-form",
            f"values are a dictionary by name, not {type(tensors).__name__}",
            help='write evaluate_loops(formula, {"x": x})',
        )
    results = _find_results(formula, names)
    values = bind_values(formula, names, tensors, exact)
    namespace = runtime.make_namespace(exact) | {
        names.python[name]: v for name, v in values.items()
    }
    try:
        exec(runtime.compile_text(_to_text(formula, names), exact), namespace)  # our own text
    except runtime.OutsideError as error:
        raise _refuse_outside(error, namespace, names) from None
    except OverflowError:
        raise refuse(
            "number-too-large",
            "an integer of the formula is too large for a float",
            help="evaluate it with exact=True",
        ) from None
    complexes = find_complex(formula.equations)
    found = tuple(
        to_result(
            name,
            namespace[names.python[name]],
            tensors,
            exact,
            complex if name in complexes else int if name in names.whole else float,
        )
        for name in results
    )
    return found[0] if len(found) == 1 else found


def evaluate_entries(
    formula: Formula,
    tensors: Mapping[str, Any],
    wanted: Mapping[str, Sequence[tuple[int, ...]]],
    steps: int,
) -> dict[str, dict[tuple[int, ...], runtime.Value]]:
    """The wanted entries of the results, by name and place, computed on demand.

    The entries of all results are computed in turn until the loops have taken `steps` steps. The
    remaining entries are left out.
    """
    names = read_whole_names(check_formula(formula))
    found: dict[str, dict[tuple[int, ...], runtime.Value]] = {name: {} for name in wanted}
    namespace = entries.make_entry_namespace(steps)
    values = bind_values(formula, names, tensors, False, entries.open_entries)
    namespace |= {names.python[name]: value for name, value in values.items()}
    turns = zip_longest(*([(name, at) for at in places] for name, places in wanted.items()))
    text = entries.write_entries(formula, names)
    try:
        exec(runtime.compile_text(text, False), namespace)  # our own text
        for name, place in (each for turn in turns for each in turn if each is not None):
            value = namespace[names.python[name]]
            found[name][place] = value[place if len(place) > 1 else place[0]] if place else value
    except (entries.StepsOverError, RecursionError):  # long recurrences recurse deeply
        return found
    except runtime.OutsideError as error:
        raise _refuse_outside(error, namespace, names) from None
    return found


def _to_text(formula: Formula, names: Names) -> str:
    lines: list[str] = []
    begun: set[str] = set()
    done: set[int] = set()
    scope = Scope(names, empty_row=formula.empty_row)
    for group, around in _order_groups(formula, names):
        if done.issuperset(group):
            continue
        own = {name_of_left(formula.equations[each]) for each in group}
        starts = [
            k
            for k, e in enumerate(formula.equations)
            if is_start(e) and name_of_left(e) in own and k not in done
        ]
        for each in (*starts, *group):
            name = name_of_left(formula.equations[each])
            if places_of_left(formula.equations[each]) and name not in begun:
                lines += fold_line(f"{names.python[name]} = tensor({write_shape(name, scope)})")
            elif name in begun and not places_of_left(formula.equations[each]):
                raise refuse("place-filled-twice", f"{name} is defined twice")
            begun.add(name)
        for each in _order_starts(starts, formula, names):
            lines += _write_equation(formula.equations[each], scope, ())
        for depth, (index, is_downward) in enumerate(around.items()):
            head = _write_loop((index,), scope)
            head = f"{head[:-1].replace(' in ', ' in reversed(', 1)}):" if is_downward else head
            lines += fold_line(head, INDENT * depth)
        for each in group:
            inside = _write_equation(formula.equations[each], scope, around)
            lines += [INDENT * len(around) + line for line in inside]
        done |= {*starts, *group}
    return "\n".join(lines) + "\n"


def _order_groups(formula: Formula, names: Names) -> list[tuple[list[int], dict[str, bool]]]:
    """The equations in order of computation, grouped by shared loops: (group, shared loops).

    An equation follows the equations that it reads. A recurrence follows the equations of its fixed
    places, h[0] = .. or h[T] = ..
    """
    equations = formula.equations
    left = {k: name_of_left(e) for k, e in enumerate(equations) if not is_start(e)}
    reads = [_find_reads(each) for each in equations]
    ordered: list[tuple[list[int], dict[str, bool]]] = []
    met: set[int] = set()

    def place_group(number: int) -> None:
        if number in met:
            return
        group, around = find_recurring(number, formula, names)
        met.update(group)
        own = {name_of_left(equations[each]) for each in group}
        starts = [k for k, e in enumerate(equations) if is_start(e) and name_of_left(e) in own]
        needed = own.union(*(reads[k] for k in (*starts, *group)))
        others = [k for k in left if left[k] in needed and k not in group]
        begins = [k for k in others if around and left[k] in own and _is_begin(equations[k], names)]
        fixed = [equations[k] for k in (*starts, *begins)]
        for each in others:
            reached = own & _find_reached(each, reads, left)
            is_first = each in begins and all(
                any(_is_filling(one, read, names) for one in fixed)
                for read in equations[each].rhs.atoms(Indexed)
                if label_of(read.base) in own
            )
            if each not in met and (is_first or not reached):
                place_group(each)
        ordered.append((group, around))

    for number, each in enumerate(equations):
        whole = (k for k in left if is_start(each) and left[k] == name_of_left(each))
        place_group(next((k for k in whole if find_recurring(k, formula, names)[1]), number))
    return ordered


def _order_starts(starts: Sequence[int], formula: Formula, names: Names) -> list[int]:
    """The equations of initial values, each after those that it reads."""
    equations, ordered = formula.equations, list[int]()
    while rest := [k for k in starts if k not in ordered]:
        free = (
            k
            for k in rest
            if not any(
                _is_filling(equations[other], read, names)
                for read in equations[k].rhs.atoms(Indexed)
                for other in rest
                if other != k
            )
        )
        ordered.append(next(free, rest[0]))
    return ordered


def _is_begin(equation: Any, names: Names) -> bool:
    """Whether a place of the left side holds no index."""
    return not all(find_indices(place, names) for place in places_of_left(equation))


def _is_filling(equation: Any, read: Any, names: Names) -> bool:
    """Whether an equation may define the element read, judged by its places without an index."""
    places = places_of_left(equation)
    return name_of_left(equation) == label_of(read.base) and all(
        find_indices(place, names) or expand(place - at) == 0
        for place, at in zip(places, read.indices, strict=False)
    )


def find_recurring(
    number: int, formula: Formula, names: Names
) -> tuple[list[int], dict[str, bool]]:
    """The group of equations that read one another, and their shared loops: index -> is_downward.

    A loop is downward where the equations read later places. Shared loops are added until every
    read is computed before. An equation that does not depend on itself is a group of its own,
    without shared loops.
    """
    equations = formula.equations
    left = {k: name_of_left(e) for k, e in enumerate(equations) if not is_start(e)}
    if number not in left:
        return [number], {}
    reads = [_find_reads(each) for each in equations]
    own = _find_reached(number, reads, left)
    if left[number] not in own:
        return [number], {}
    whole = {k: _find_reached(k, reads, left) for k, name in left.items() if name in own}
    group = [k for k, reached in whole.items() if {left[number], left[k]} <= reached]
    ordered: list[int] = []  # an equation that reads another one's left side comes after it
    while rest := [k for k in group if k not in ordered]:
        lefts = {equations[k].lhs for k in rest}
        ordered.append(
            next((k for k in rest if not lefts & equations[k].rhs.atoms(Indexed)), rest[0])
        )
    for each in (group, ordered, [number]):
        loops = _find_loops(each, formula, names)
        if loops is not None:
            return each, loops
    return [number], {}


@lru_cache(maxsize=1 << 12)
def _find_reads(equation: Any) -> frozenset[str]:
    """The names that the right side reads."""
    return frozenset(label_of(read.base) for read in equation.rhs.atoms(Indexed))


def _find_reached(
    number: int, reads: Sequence[frozenset[str]], left: Mapping[int, str]
) -> set[str]:
    """The names that an equation depends on, directly or through other equations."""
    makers: dict[str, list[int]] = {}
    for k, name in left.items():
        makers.setdefault(name, []).append(k)
    found, waiting = set[str](), [number]
    while waiting:
        new = reads[waiting.pop()] - found
        found |= new
        waiting += [k for name in new for k in makers.get(name, ())]
    return found


def _find_loops(group: list[int], formula: Formula, names: Names) -> dict[str, bool] | None:
    """Shared loops in which every read within the group is computed before; None if none exist."""
    lefts = {k: formula.equations[k].lhs for k in group}
    every = [find_indices(left, names) for left in lefts.values()]
    shared = [index for index in every[0] if all(index in each for each in every)]
    turn = {k: place for place, k in enumerate(group)}
    last = {name_of_left(formula.equations[k]): turn[k] for k in group}
    waiting = [
        (read, k)
        for k in group
        for read in formula.equations[k].rhs.atoms(Indexed)
        if label_of(read.base) in last
    ]
    found: dict[str, bool] = {}
    while any(last[label_of(read.base)] >= turn[k] for read, k in waiting):
        for index, is_downward in product((i for i in shared if i not in found), (False, True)):
            places = [[_find_place(x, index, names) for x in (r, lefts[k])] for r, k in waiting]
            gaps = [S.NaN if None in pair else expand(pair[0] - pair[1]) for pair in places]
            signs = [-gap if is_downward else gap for gap in gaps]
            if all(s.is_nonpositive for s in signs) and any(s.is_negative for s in signs):
                found[index] = is_downward
                waiting = [w for w, gap in zip(waiting, gaps, strict=True) if gap.is_zero]
                break
        else:
            return None
    return found


def _find_place(element: Any, index: str, names: Names) -> Any:
    """The first place of an element that contains the index, or None."""
    return next((p for p in element.indices if index in find_indices(p, names)), None)


def is_start(equation: Any) -> bool:
    """Whether an equation defines initial values, at a negative place."""
    return any(place.is_Integer and place < 0 for place in places_of_left(equation))


def _write_equation(equation: Any, around: Scope, outer: Container[str]) -> list[str]:
    """The lines of an equation: its loops except the `outer` ones, lines for rows, the element."""
    names, empty_row = around.names, around.empty_row
    left = names.python[name_of_left(equation)]
    places = places_of_left(equation)
    indices = dict.fromkeys(k for place in places for k in find_indices(place, names))
    scope = Scope(names, frozenset(indices), empty_row=empty_row)
    rows = find_rows(equation.rhs, frozenset(indices), names)
    loops, depths = _order_loops([k for k in indices if k not in outer], rows, names)
    lines = []
    for depth in range(len(loops) + 1):
        for row in (row for row in rows if depths[row] == depth):
            spelt = _name_row(row, scope)
            text = f"{spelt} = {write_reduction(row, scope)}"
            lines += fold_line(text, INDENT * depth)
            scope.rows[row] = spelt
        if depth < len(loops):
            lines += fold_line(_write_loop(loops[depth], scope), INDENT * depth)
    if places:
        left += f"[{', '.join(write_operand(place, scope) for place in places)}]"
    return lines + fold_line(f"{left} = {write_operand(equation.rhs, scope)}", INDENT * len(loops))


def _write_loop(indices: tuple[str, ...], scope: Scope) -> str:
    names = ", ".join(scope.names.python[index] for index in indices)
    extents = ", ".join(write_operand(scope.names.indices[index], scope) for index in indices)
    return f"for {names} in {'range' if len(indices) == 1 else 'places'}({extents}):"


def _order_loops(
    indices: list[str], rows: Iterable[Any], names: Names
) -> tuple[list[tuple[str, ...]], dict[Any, int]]:
    """The loops in the order of the left side, with the indices of rows outermost; row depths."""
    needs = {row: set(find_row_indices(row, names)) for row in rows}
    ordered: list[str] = []
    for need in sorted(needs.values(), key=len):
        ordered += [k for k in indices if k in need and k not in ordered]
    ordered += [k for k in indices if k not in ordered]
    merged = max(1, len(ordered) - MOST_LOOPS + 1)
    loops = [tuple(ordered[:merged]), *((index,) for index in ordered[merged:])]
    loops = loops if ordered else []
    depths = {
        row: max((k for k, loop in enumerate(loops, 1) if need & set(loop)), default=0)
        for row, need in needs.items()
    }
    return loops, depths


def _name_row(row: Any, scope: Scope) -> str:
    """A fresh name for a reduction on a line of its own: its kind, numbered if necessary."""
    stem = _ROW_NAMES.get(type(row).__name__, "row")
    taken = {*scope.names.python.values(), *scope.rows.values()}
    numbered = (f"{stem}_{k}" for k in range(2, len(taken) + 3))
    return next(name for name in (stem, *numbered) if name not in taken)


def _find_results(formula: Formula, names: Names) -> tuple[str, ...]:
    if formula.outputs is None:
        return (name_of_left(formula.equations[-1]),)
    for name in formula.outputs:
        if name not in names.defined:
            raise refuse(
                "output-unknown",
                f"no equation defines the output {name}",
                facts=[f"defined are {', '.join(names.defined)}"],
                help=suggest(name, names.defined) or "name a tensor that an equation defines",
            )
    return formula.outputs


def _refuse_outside(
    error: runtime.OutsideError, namespace: dict[str, Any], names: Names
) -> DeriveError:
    """The error for a missing element: its tensor, its place and the values of the indices."""
    spelt = {python: name for name, python in names.python.items()}
    name = next(spelt[k] for k, v in namespace.items() if v is error.tensor and k in spelt)
    places = error.place if isinstance(error.place, tuple) else (error.place,)
    values = {
        spelt[k]: v
        for k, v in runtime.find_locals(error)
        if spelt.get(k) in names.indices and k in spelt
    }
    at = ", ".join(f"{index} = {value}" for index, value in values.items())
    element = f"{name}[{', '.join(map(str, places))}]"
    facts = [f"at {at}"] if at else []
    if isinstance(error, runtime.FilledTwiceError):
        return refuse("place-filled-twice", f"{element} is defined twice", facts=facts)
    return _explain_place(name, element, error.tensor, places, facts)


def _explain_place(
    name: str, element: str, tensor: runtime.Tensor, places: tuple[Any, ...], facts: list[str]
) -> DeriveError:
    shape = tensor.shape
    if len(places) != len(shape):
        message = f"{element} names {len(places)} places, and {name} has {len(shape)}"
        return refuse("rank-differs", message, facts=facts)
    for number, (place, extent) in enumerate(zip(places, shape, strict=True)):
        if not 0 <= place < extent:
            return refuse(
                "reads-outside",
                f"{element} lies outside of {name}: place {number} is {place}, "
                f"and its extent is {extent}",
                facts=facts,
                help=f"guard it with a condition, {name}[..] * [0 <= .. < {extent}]",
            )
        if place != int(place):
            message = f"{element} is no element: place {number} is {place}, no integer"
            return refuse("place-not-whole", message, facts=facts)
    message = f"{element} is read before an equation gives it a value"
    return refuse("place-not-filled", message, facts=facts)
