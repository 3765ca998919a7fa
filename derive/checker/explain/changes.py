"""The line of the code at which an edit has to be made.

An edited formula differs from the formula in a few nodes: the one that was put in, and those that
it is part of. The line is the first whose value is one of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from derive.checker.edits.judge import ERRORS
from derive.checker.explain.lines import Lines, find_all_nodes
from derive.checker.trace.match import find_match
from derive.checker.trace.nodes import find_forms, find_node
from derive.ir.nodes import Along, Reduce
from derive.ir.walk import find_accesses, find_children, walk

if TYPE_CHECKING:
    from derive.checker.edits.judge import Changed, Judge
    from derive.checker.trace import Event, Trace
    from derive.checker.trace.match import Node
    from derive.ir.nodes import Expr, System

_SHAPES = 100  # what it counts that results have the right shapes


def find_changed_line(lines: Lines, edited: System, judge: Judge) -> int | None:
    """The first line whose value is what the edit changes; else, one that is new with it."""
    nodes = find_all_nodes(edited, judge)
    changed = find_changed_forms(lines, edited)
    names = {e.target.tensor.name for e in edited.equations if e not in lines.system.equations}
    mine = [n for n in nodes if n.of in names and (n.whole or n.expr in changed)]
    events = _find_origins(lines, mine)
    if events:
        return events[0].line
    for event in lines.told:
        if event not in lines.matches and _is_one(lines, event, nodes):
            return event.line
    return None


def find_changed_forms(lines: Lines, edited: System) -> set[Expr]:
    """What the edit puts in, what is around it, and what code may have for these."""
    apart = tuple(find_changed_nodes(lines.system, edited))
    return ({form for expr in apart for form in find_forms(expr)} - lines.forms) | {*apart}


def find_later_forms(lines: Lines, edited: System, names: set[str]) -> Iterator[Expr]:
    """The sums and softmaxes of equations that the edit leaves alone, over tensors it changes."""
    for equation in edited.equations:
        if equation in lines.system.equations:
            for expr in walk(equation.value):
                row = isinstance(expr, (Along, Reduce)) or expr is equation.value
                if row and names & {access.tensor.name for access in find_accesses(expr)}:
                    yield expr


def count_gained(lines: Lines, edited: System, judge: Judge) -> int:
    """How many lines without a meaning have one as what the edit changes; shapes count most."""
    try:
        evaluator = judge.evaluate(edited)
        gained = _SHAPES if _mends_shapes(lines, edited, evaluator, judge) else 0
        left = [event for event in lines.told if event not in lines.matches]
        forms: tuple[Expr, ...] = ()
        if left and not gained:
            later = find_later_forms(lines, edited, evaluator.changed)
            forms = (*find_changed_forms(lines, edited), *later)
        found = [find_node(form, evaluator) for form in forms]
        nodes = [node for node in found if node is not None and node.print is not None]
    except ERRORS:
        return 0
    return gained + len({event.line for event in left if _is_one(lines, event, nodes)})


def _mends_shapes(lines: Lines, edited: System, evaluator: Changed, judge: Judge) -> bool:
    """Have the results the shapes of the code's now, and had they not before?"""
    found = [tuple(result.shape) for result in judge.runs[0].results]
    base = judge.bases[0]
    before = [tuple(base.values[tensor.name].shape) for tensor in lines.system.results]
    after = [tuple(evaluator.values[tensor.name].shape) for tensor in edited.results]
    return found[: len(before)] != before and found[: len(after)] == after


def _is_one(lines: Lines, event: Event, nodes: Sequence[Node]) -> bool:
    found = find_match(event.value, nodes, lines.sizes, lines.prints[event])
    return found is not None and not found.factor


def _find_origins(lines: Lines, nodes: Sequence[Node]) -> list[Event]:
    """The events that are one of the nodes and no mere view of one that is the same.

    Where the formula itself has such a value too, the line that computes it first is right: what
    is made with the wrong weight looks like what is made with that weight rightly.
    """
    found: list[Event] = []
    seen: set[int] = set()
    for event in lines.told:
        if not _is_one(lines, event, nodes):
            continue
        same = seen & set(event.reads)
        seen.add(event.number)
        if not same:
            found.append(event)
    mine = {node.equation for node in nodes if node.whole}
    twins = dict.fromkeys(event.line for event in found if _is_twin(lines, event, mine))
    if len(twins) > 1:
        first = next(iter(twins))
        return [event for event in found if event.line != first]
    return found


def _is_twin(lines: Lines, event: Event, mine: set[int]) -> bool:
    """Is it the whole of another equation of the formula itself?"""
    match = lines.matches.get(event)
    if match is None or match.factor:
        return False
    return match.node.whole and match.node.equation not in mine


def find_changed_nodes(old: System, edited: System) -> Iterator[Expr]:
    """The nodes that the edit puts in, and those around them."""
    before = {equation.target.tensor.name: equation for equation in old.equations}
    for equation in edited.equations:
        was = before.get(equation.target.tensor.name)
        if was is not None and was is not equation:
            yield from _find_path(was.value, equation.value)


def _find_path(old: Expr, new: Expr) -> Iterator[Expr]:
    """From the whole down to the smallest part that holds all that differs."""
    if old is new:
        return
    yield new
    one, two = find_children(old), find_children(new)
    if type(old) is type(new) and len(one) == len(two):
        apart = [pair for pair in zip(one, two, strict=True) if pair[0] is not pair[1]]
        yield from chain.from_iterable(_find_path(*pair) for pair in apart)


def find_result_line(trace: Trace) -> int | None:
    """The line that makes the result."""
    return trace.events[-1].line if trace.events else None
