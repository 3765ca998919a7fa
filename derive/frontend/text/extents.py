"""The extent of each index of the text.

In this order: its `index` line; else its first plain use, alone in a place of a tensor whose extent
there is known: a declared one, or one that an equation defines, whose extents are those of the
left side's places. What one equation leaves open a later one may tell. A merged place `h*D + d` on
a left side has the extent H*D.
"""

from __future__ import annotations

import ast
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from sympy import Add, Integer, Poly, S, Symbol, cancel, expand, floor, fraction, together

from derive.frontend.text.build import (
    check_expandable,
    is_arithmetic,
    read_arithmetic,
    to_index,
    to_size,
)
from derive.frontend.text.lines import match_call
from derive.frontend.text.names import find_places
from derive.frontend.text.statements import EquationLine, FunctionLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from derive.frontend.text.names import Names
    from derive.frontend.text.statements import Line


class Indices:
    """The indices with their extents; `indices[name]` gives the SymPy index."""

    def __init__(self, names: Names, lines: Sequence[Line]) -> None:
        self._names = names
        self._extents: dict[str, Any] = dict(names.ranges)
        self._uses = tuple(_find_uses(lines))
        self._spread()
        self._made: dict[str, Any] = {}

    def get(self, name: str, place: tuple[int, int]) -> Any:
        """The index; DeriveError with the line to write where nothing tells its extent."""
        if name not in self._made:
            if name not in self._extents:
                raise self._untold(name, place)
            self._made[name] = to_index(name, self._extents[name])
        return self._made[name]

    def is_known(self, name: str) -> bool:
        """Is the extent of the index told?"""
        return name in self._extents

    def shorten(self, name: str, short: str, by: int) -> None:
        """Enter an index that runs over fewer places than another one, or let that one do so."""
        claim = self._names.claims[name]
        self._names.claim(short, "index", claim.how, claim.span)
        self._extents[short] = self._extents[name] - by

    def find_ends(self, name: str, places: Sequence[Any]) -> tuple[int, int] | None:
        """How many places, all of them the first or the last ones that an index runs over."""
        first, last = (
            [k for k in range(len(places)) if any(expand(end - k * step - p) == 0 for p in places)]
            for end, step in ((S.Zero, -1), (self._extents[name] - 1, 1))
        )
        is_row = [*first, *last] == [*range(len(first)), *range(len(last))]
        return (len(first), len(last)) if is_row and len(first) + len(last) == len(places) else None

    def write_extent(self, name: str) -> str:
        """The extent of an index that is known, in the notation."""
        return write_extent(self._extents[name])

    def _spread(self) -> None:
        """Read extents off plain uses until nothing more is told."""
        changed = True
        while changed:
            changed = False
            for tensor, number, place in self._uses:
                if not isinstance(place, ast.Name) or place.id in self._extents:
                    continue
                if self._names.kind(place.id) != "index":
                    continue
                extent = self._find_extent(tensor, number)
                if extent is not None:
                    self._extents[place.id] = extent
                    changed = True

    def _find_extent(self, tensor: str, number: int) -> Any:
        """The extent of one place of a tensor, as far as it is known."""
        if tensor in self._names.shapes:
            shape = self._names.shapes[tensor]
            return shape[number] if number < len(shape) else None
        reaches = [self._find_reach(line, number) for line in self._names.equations.get(tensor, ())]
        if not reaches or None in reaches:
            return None
        each = [r for r in reaches if not r.is_Number] or reaches
        longest = [r for r in each if all((r - other).is_nonnegative for other in each)]
        return longest[0] if longest else each[0]

    def _find_reach(self, line: EquationLine, number: int) -> Any:
        """How far one place of a left side reaches, as far as it is known."""
        if line.places is None or number >= len(line.places):
            return None
        place = line.places[number]
        if isinstance(place, ast.Name):
            return self._extents.get(place.id)
        form = _to_form(self._names, place)
        if form is None:
            return None
        indices, value = form
        if any(index not in self._extents for index in indices):
            return None
        return _find_last(value, indices, self._extents) + 1

    def _untold(self, name: str, place: tuple[int, int]) -> Exception:
        return self._names.source.refuse(
            "extent-unknown",
            f"nothing tells the extent of index {name}",
            place,
            facts=[f"{name} never stands alone in a place of a tensor whose shape is known"],
            help=self._advise(name),
        )

    def _advise(self, name: str) -> str:
        """The line to add where the extent follows from the accesses, else what to choose from."""
        found = list(dict.fromkeys(e for e in map(partial(self._fit, name), self._uses) if e))
        found = [] if S.NaN in found else found
        least = [e for e in found if all((other - e).is_nonnegative for other in found)]
        if least:
            return f"add the line: index {name} < {write_extent(least[0])}"
        sizes = [n for n, claim in self._names.claims.items() if claim.kind == "size"]
        own = [name.upper()] if name.upper() not in self._names.claims else []
        choice = " or ".join([", ".join(sizes)] * bool(sizes) + [f"size {n}" for n in own])
        return f"say how far it runs: index {name} < .., with the extent that is meant" + (
            f", {choice}" if choice else ""
        )

    def _fit(self, name: str, use: tuple[str, int, ast.expr]) -> Any:
        """The extent for which an access fills a place: of x[t + k] it is T - K + 1.

        Of merged indices, x[h*D + d] in a place of H*D, each runs as far as the next one steps.
        None where the access does not tell, nan where it says that others do not tell either.
        """
        tensor, number, place = use
        extent, form = self._find_extent(tensor, number), _to_form(self._names, place)
        if extent is None or form is None or name not in form[0]:
            return None
        indices, value = form
        step = value.coeff(Symbol(name))
        others = [index for index in indices if index != name]
        rest = expand(value - step * Symbol(name))
        if step.is_Integer and all(other in self._extents for other in others):
            if step < 0:
                least = -_find_last(expand(-rest), others, self._extents)
                return least + 1 if step == -1 and least.free_symbols else None
            last = _find_last(rest, others, self._extents)
            last = Integer(0) if last.is_negative else last  # x[t - 1] has a guard at the start
            found = _divide(expand(extent - 1 - last), step) + 1
            return found if _is_plausible(found) else None
        steps = [value.coeff(Symbol(index)) for index in others]
        if expand(rest - sum(a * Symbol(b) for a, b in zip(steps, others, strict=True))) != 0:
            return S.NaN  # H*D + h*D + d: a part of the place, and no one says which
        ratios = [cancel(other / step) for other in (*steps, extent)]
        whole = [ratio for ratio in ratios if ratio.is_polynomial() and ratio != 1]
        nearest = [r for r in whole if all(cancel(o / r).is_polynomial() for o in whole)]
        return nearest[0] if nearest else None


def begin_recurrences(
    names: Names, indices: Indices, lines: Sequence[Line]
) -> dict[int, tuple[str, Any]]:
    """What the index of a recurrence is read as where other lines give its first or last places.

    h[0] = x[0]; h[t] = a*h[t - 1] + x[t]     is read as    h[t + 1] = a*h[t] + x[t + 1]
    R[T - 1] = 0; R[t] = r[t] + g*R[t + 1]    is read so, with t < T - 1
    """
    shifts: dict[int, tuple[str, int, int]] = {}  # line: its index, how many places stand alone
    for number, line in enumerate(lines):
        if isinstance(line, EquationLine) and (shift := _find_shift(names, indices, lines, line)):
            shifts[number] = shift
    short: dict[tuple[str, int, int], str] = {}
    for shift in dict.fromkeys(shifts.values()):
        index, first, last = shift
        users = (k for k, line in enumerate(lines) if _mentions(line, index))
        is_own = all(shifts.get(k) == shift for k in users)
        fresh = (f"{index}{'_' * k}" for k in count(1))
        short[shift] = index if is_own else next(n for n in fresh if n not in names.claims)
        indices.shorten(index, short[shift], first + last)
    return {
        number: (shift[0], indices.get(short[shift], names.claims[shift[0]].span) + shift[1])
        for number, shift in shifts.items()
    }


def _find_shift(
    names: Names, indices: Indices, lines: Sequence[Line], line: EquationLine
) -> tuple[str, int, int] | None:
    """The index of a recurrence whose first or last places have equations of their own."""
    others = [each for each in names.equations[line.name.text] if each is not line]
    reads: list[str] = []
    waiting = [line]
    while waiting:
        new = [t for t, _, _ in find_places(waiting.pop().value) if t not in reads]
        reads += new
        waiting += [each for tensor in new for each in names.equations.get(tensor, ())]
    if not others or line.name.text not in reads:
        return None
    bodies = [line.value, *(each.body for each in lines if isinstance(each, FunctionLine))]
    calls = (match_call(n) for body in bodies for n in ast.walk(body) if isinstance(n, ast.expr))
    bound = {p.id for c in calls if c for p in c.brackets or () if isinstance(p, ast.Name)}
    for number, place in enumerate(line.places or ()):
        if not isinstance(place, ast.Name) or place.id in bound or not indices.is_known(place.id):
            continue
        columns = [other.places[number : number + 1] for other in others if other.places]
        forms = [_to_form(names, p) for column in columns for p in column]
        alone = [form[1] for form in forms if form is not None and not form[0]]
        ends = indices.find_ends(place.id, alone) if len(alone) == len(others) else None
        if ends:
            return place.id, *ends
    return None


def _mentions(line: Line, name: str) -> bool:
    match line:
        case EquationLine(_, places, value, _):
            trees = (*(places or ()), value)
        case FunctionLine(_, _, body):
            trees = (body,)
        case _:
            return False
    return any(isinstance(n, ast.Name) and n.id == name for tree in trees for n in ast.walk(tree))


def _divide(value: Any, step: Any) -> Any:
    """The whole part of a quotient, without a // where only a number is left over."""
    number, sizes = value.as_coeff_Add()
    if all(term.as_coeff_Mul()[0] % step == 0 for term in Add.make_args(sizes)):
        return expand(sizes / step) + number // step
    return floor(value / step)


def _is_plausible(extent: Any) -> bool:
    """May it be above 0 for large sizes? T - K + 1 may, M + N - M*N may not."""
    degrees = {True: 0, False: 0}  # of the terms that are added, and of those taken away
    for term in Add.make_args(expand(extent)):
        number, rest = term.as_coeff_Mul()
        is_plain = rest.free_symbols and rest.is_polynomial()
        degree = int(Poly(rest).total_degree()) if is_plain else len(rest.free_symbols)
        degrees[number > 0] = max(degrees[number > 0], degree)
    return degrees[False] <= max(1, degrees[True])


def _find_uses(lines: Sequence[Line]) -> Iterable[tuple[str, int, ast.expr]]:
    for line in lines:
        match line:
            case EquationLine(name, places, value, _):
                yield from find_places(value)
                yield from ((name.text, k, place) for k, place in enumerate(places or ()))
            case FunctionLine(_, parameters, body):
                hidden = {token.text for token in parameters}
                for tensor, number, place in find_places(body):
                    if not (isinstance(place, ast.Name) and place.id in hidden):
                        yield tensor, number, place


def _to_form(names: Names, place: ast.expr) -> tuple[list[str], Any] | None:
    """(indices, polynomial over their symbols and sizes) of a place; None where it is none."""
    words = [part for part in ast.walk(place) if isinstance(part, ast.Name)]
    inside = [part for part in ast.walk(place) if isinstance(part, ast.expr)]
    if not all(isinstance(part, ast.Name) or is_arithmetic(part) for part in inside):
        return None
    merging = (ast.Add, ast.Sub, ast.Mult)
    if any(isinstance(p, ast.BinOp) and not isinstance(p.op, merging) for p in inside):
        return None
    indices = [w.id for w in words if names.kind(w.id) == "index"]
    if any(names.kind(w.id) not in {"index", "size"} for w in words):
        return None

    def read(part: ast.expr) -> Any:
        if is_arithmetic(part):
            return read_arithmetic(names.source, part, read)
        assert isinstance(part, ast.Name)
        return Symbol(part.id) if part.id in indices else to_size(part.id)

    value = read(place)
    check_expandable(names.source, place, value)
    return list(dict.fromkeys(indices)), expand(value)


def _find_last(value: Any, indices: Sequence[str], extents: Mapping[str, Any]) -> Any:
    """The largest value of a place: every index with a positive step at its last value."""
    for index in indices:
        step = value.coeff(Symbol(index))
        last = Integer(0) if step.could_extract_minus_sign() else extents[index] - 1
        value = value.subs(Symbol(index), last)
    return expand(value)


def write_extent(extent: Any) -> str:
    """An extent in the notation, multiplied out, positive terms first."""
    extent = expand(extent)
    if extent.has(floor):
        (part,) = extent.atoms(floor)
        above, below = fraction(together(part.args[0]))
        rest = write_extent(extent - part)
        return f"({write_extent(above)})//{below}" + (f" + {rest}" if rest != "0" else "")
    terms = sorted(
        Add.make_args(extent), key=lambda t: (t.is_Number, str(t).startswith("-"), str(t))
    )
    out = "".join(f" - {str(t)[1:]}" if str(t).startswith("-") else f" + {t}" for t in terms)
    return out[3:] if out.startswith(" + ") else f"-{out[3:]}"
