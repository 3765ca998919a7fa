r"""A derivation as one `align*` environment of amsmath: the formula, then each entry under its law.

An entry's name and law stand between the lines as text, its two sides as equations, its costs and
remarks behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.backend.to_latex import escape, to_latex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.ir.nodes import System
    from derive.plan.log import Costs, Entry

END = " \\\\\n"


def to_align(system: System, entries: Sequence[Entry]) -> str:
    """The text of the environment."""
    parts = [END.join(map(to_latex, system.equations))]
    for number, entry in enumerate(entries, 1):
        law = rf"\intertext{{{number}. \texttt{{{escape(entry.name)}}}: {_write_text(entry.law)}}}"
        parts.append("\n".join([law, END.join(_find_rows(entry))]))
    return f"\\begin{{align*}}\n{END.join(parts)}\n\\end{{align*}}"


def _find_rows(entry: Entry) -> Iterator[str]:
    """The lines of an entry, each with one mark to align by."""
    sides = [to_latex(side) for side in (entry.before, entry.after) if side is not None]
    left = "" if entry.target is None else to_latex(entry.target)
    for k, side in enumerate(sides):
        sign = "=" if k or left else ""
        yield f"{left if not k else ''} &{sign} {side}".lstrip()
    for remark in entry.remarks:
        yield f"& {_write_text(remark)}"
    if entry.old is not None and entry.new is not None:
        yield from _compare(entry.old, entry.new)


def _compare(old: Costs, new: Costs) -> Iterator[str]:
    if old == new:
        yield r"& \text{costs as before}"
        return
    elements = "elements alive" if new.seconds is not None else "largest tensor"
    pairs = [("operations", old.operations, new.operations)]
    pairs.append((elements, old.elements, new.elements))
    for label, one, other in pairs:
        if one != other:
            sides = rf"{to_latex(one.to_expr())} \to {to_latex(other.to_expr())}"
            yield rf"& \text{{{label} }} {sides}"
    if old.seconds is not None and new.seconds is not None and old.seconds != new.seconds:
        yield rf"& \text{{estimated time }} {_write_time(old)} \to {_write_time(new)}"


def _write_time(costs: Costs) -> str:
    return rf"{costs.seconds:.3g}\,\text{{s}}"


def _write_text(text: str) -> str:
    """Text as it is, in signs of one width, so that all of them exist in the font."""
    return rf"\texttt{{{escape(text)}}}"
