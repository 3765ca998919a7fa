"""The extent of each index letter of the text.

In this order: its `index` line; else its first plain use, alone in a place of a tensor whose extent
there is known: a declared one, or one that an equation defines, whose extents are those of the
left side's places. What one equation leaves open a later one may tell. A merged place `h*D + d` on
a left side has the extent H*D.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from sympy import Add, Integer, Symbol, expand

from derive.frontend.text.arithmetic import check_expandable, is_arithmetic, read_arithmetic
from derive.frontend.text.build import to_index, to_size
from derive.frontend.text.names import find_places
from derive.frontend.text.statements import EquationLine, FunctionLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from derive.frontend.text.names import Names
    from derive.frontend.text.statements import Line


class Letters:
    """The index letters with their extents; `letters[name]` gives the SymPy index."""

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
        """Is the extent of the letter told?"""
        return name in self._extents

    def write_extent(self, name: str) -> str:
        """The extent of a letter that is known, in the notation."""
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
        _, line = self._names.equations.get(tensor, (0, None))
        if line is None or line.places is None or number >= len(line.places):
            return None
        place = line.places[number]
        if isinstance(place, ast.Name):
            return self._extents.get(place.id)
        form = _to_form(self._names, place)
        if form is None:
            return None
        letters, value = form
        if not letters or any(letter not in self._extents for letter in letters):
            return None
        return _find_last(value, letters, self._extents) + 1

    def _untold(self, name: str, place: tuple[int, int]) -> Exception:
        return self._names.source.refuse(
            "extent-unknown",
            f"nothing tells the extent of index {name}",
            place,
            facts=[f"{name} never stands alone in a place of a tensor whose shape is known"],
            help=f"add the line: index {name} < {self._propose(name)}",
        )

    def _propose(self, name: str) -> str:
        """The largest extent that keeps the first access inside, `T - K + 1` for x[t + k]."""
        for tensor, number, place in self._uses:
            extent = self._find_extent(tensor, number)
            form = _to_form(self._names, place)
            if extent is None or form is None or name not in form[0]:
                continue
            letters, value = form
            step = value.coeff(Symbol(name))
            others = [letter for letter in letters if letter != name]
            is_told = all(other in self._extents for other in others)
            if step.free_symbols or not step.is_positive or not is_told:
                continue
            rest = _find_last(expand(value - step * Symbol(name)), others, self._extents)
            if rest.is_negative:
                rest = Integer(0)  # x[t - 1] is guarded at the start, not run over at the end
            if step == 1:
                return write_extent(extent - rest)
            return f"({write_extent(extent - 1 - rest)})//{step} + 1"
        sizes = [n for n, claim in self._names.claims.items() if claim.kind == "size"]
        return sizes[0] if sizes else "8"


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
    """(letters, polynomial over their symbols and sizes) of a place; None where it is none."""
    words = [part for part in ast.walk(place) if isinstance(part, ast.Name)]
    inside = [part for part in ast.walk(place) if isinstance(part, ast.expr)]
    if not all(isinstance(part, ast.Name) or is_arithmetic(part) for part in inside):
        return None
    merging = (ast.Add, ast.Sub, ast.Mult)
    if any(isinstance(p, ast.BinOp) and not isinstance(p.op, merging) for p in inside):
        return None
    letters = [w.id for w in words if names.kind(w.id) == "index"]
    if any(names.kind(w.id) not in {"index", "size"} for w in words):
        return None

    def read(part: ast.expr) -> Any:
        if is_arithmetic(part):
            return read_arithmetic(names.source, part, read)
        assert isinstance(part, ast.Name)
        return Symbol(part.id) if part.id in letters else to_size(part.id)

    value = read(place)
    check_expandable(names.source, place, value)
    return list(dict.fromkeys(letters)), expand(value)


def _find_last(value: Any, letters: Sequence[str], extents: Mapping[str, Any]) -> Any:
    """The largest value of a place: every letter with a positive step at its last value."""
    for letter in letters:
        step = value.coeff(Symbol(letter))
        last = Integer(0) if step.could_extract_minus_sign() else extents[letter] - 1
        value = value.subs(Symbol(letter), last)
    return expand(value)


def write_extent(extent: Any) -> str:
    """An extent in the notation, multiplied out, positive terms first."""
    extent = expand(extent)
    terms = sorted(
        Add.make_args(extent), key=lambda t: (t.is_Number, str(t).startswith("-"), str(t))
    )
    out = "".join(f" - {str(t)[1:]}" if str(t).startswith("-") else f" + {t}" for t in terms)
    return out[3:] if out.startswith(" + ") else f"-{out[3:]}"
