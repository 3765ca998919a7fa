"""The lines of the code as nodes of the formula, and the first one that is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from derive.checker.edits.judge import ERRORS
from derive.checker.trace.match import Match, Node, Print, find_match, find_print
from derive.checker.trace.nodes import find_forms, find_nodes
from derive.ir.walk import walk

if TYPE_CHECKING:
    from derive.checker.edits.judge import Judge
    from derive.checker.trace import Event, Trace
    from derive.ir.nodes import Expr, System

_MOST_SAID = 4  # values of one line


@dataclass
class Lines:
    """The events of a run and the nodes that they are."""

    system: System
    trace: Trace
    sizes: Mapping[str, int]
    nodes: list[Node]
    prints: dict[Event, Print] = field(default_factory=dict)  # of those that tell anything
    matches: dict[Event, Match] = field(default_factory=dict)
    good: set[int] = field(default_factory=set)  # events that are nodes or lead to one

    @cached_property
    def forms(self) -> frozenset[Expr]:
        """All that the formula's nodes are, and what code may have for them."""
        values = (equation.value for equation in self.system.equations)
        return frozenset(form for v in values for node in walk(v) for form in find_forms(node))

    @cached_property
    def told(self) -> list[Event]:
        """The events that are no constant."""
        return [event for event in self.trace.events if event in self.prints]

    @cached_property
    def exact(self) -> list[Event]:
        """The events that are a node and no multiple of one."""
        return [
            event for event in self.told if event in self.matches and not self.matches[event].factor
        ]

    def annotate(self, elsewhere: Lines | None) -> tuple[tuple[int, str], ...]:
        """What the values of each line are, in order of the lines, at other sizes too.

        A line whose own value is nothing, though something on its way is, contains that.
        """
        events = self.trace.events
        same = [event.line for event in events]
        other = elsewhere.trace.events if elsewhere is not None else []
        twins = other if [event.line for event in other] == same else []
        rows: dict[int, list[Event]] = {}
        for event in events:
            rows.setdefault(event.line, []).append(event)
        found = []
        for line, row in sorted(rows.items()):
            read = {number for event in row for number in event.reads}
            made = [event for event in row if event.number not in read][-_MOST_SAID:]
            said = [self._say(event, elsewhere, twins) for event in made]
            if all(said):
                found.append((line, "; ".join(dict.fromkeys(said))))
                continue
            inner = [self._say(event, elsewhere, twins) for event in row]
            parts = [words for words in dict.fromkeys(inner) if words]
            if parts:
                found.append((line, f"contains {'; '.join(parts[-_MOST_SAID:])}"))
        return tuple(found)

    def _say(self, event: Event, elsewhere: Lines | None, twins: list[Event]) -> str:
        """What an event is; nothing if it is something else at other sizes."""
        match = self.matches.get(event)
        if match is None:
            return ""
        if elsewhere is None:
            return str(match)
        if not twins:
            return "" if match.factor else str(match)
        twin = elsewhere.matches.get(twins[event.number])
        if twin is None:
            is_told = twins[event.number] in elsewhere.prints
            return "" if is_told or match.factor else str(match)
        return "" if twin.factor != match.factor else str(match)

    @cached_property
    def last(self) -> dict[int, Event]:
        """The last value of each line that is no constant."""
        return {event.line: event for event in self.told}

    @cached_property
    def made(self) -> dict[int, set[int]]:
        """The lines whose last value is an equation of the formula, by the equation."""
        made: dict[int, set[int]] = {}
        for line, event in self.last.items():
            match = self.matches.get(event)
            if match is not None and not match.factor and match.node.whole:
                made.setdefault(match.node.equation, set()).add(line)
        return made

    def find_right(self) -> set[int]:
        """The lines whose last value is an equation of the formula that no other line is."""
        found = (rows for number, rows in self.made.items() if number >= 0 and len(rows) == 1)
        return set().union(*found)

    def find_scaled(self) -> set[int]:
        """The lines whose last value is only a multiple of an equation that no line is."""
        found = ((line, self.matches.get(event)) for line, event in self.last.items())
        return {
            line
            for line, match in found
            if match is not None and match.factor and match.node.whole
            if match.node.equation not in self.made
        }

    def count_met(self, prints: Sequence[Print]) -> int:
        """How many nodes have one of these fingerprints; equations count twice."""
        return sum(
            1 + node.whole
            for node in self.nodes
            if node.print is not None and any(node.print.is_same(each) for each in prints)
        )

    def count_parts(self) -> tuple[int, int]:
        """How many lines and equations agree; less the values on the way that are no part."""
        exact = {*self.exact}
        ends = len(exact & {*self.last.values()})
        return ends + len(self.made), len(exact) - len(self.told)

    def find_first_inexact(self) -> int | None:
        """The first line whose value is no node, or only a multiple of one."""
        exact = set(self.exact)
        return next((event.line for event in self.told if event not in exact), None)

    def find_first_wrong(self) -> int | None:
        """The first line whose value is no node and leads to none, though what it reads does."""
        for event in self.told:
            reads = (number in self.good for number in event.reads)
            if event.number not in self.good and all(reads):
                return event.line
        return None

    def count_unexplained(self, edited: System, judge: Judge) -> float:
        """How many lines are no node of the edited formula, and how many of its equations no line.

        Equations that the formula has too and that no line computes count alike for all edits.
        """
        if not self.told:
            return 0.0
        nodes = find_all_nodes(edited, judge)
        lost: dict[int, bool] = {}
        met: set[int] = set()
        for event in self.told:
            found = find_match(event.value, nodes, self.sizes, self.prints[event])
            lost[event.line] = found is None
            if found is not None and found.node.whole:
                met |= {n.equation for n in nodes if n.whole and n.print and _is_like(n, found)}
        missed = sum(number not in met for number in range(len(edited.equations)))
        return sum(lost.values()) + missed

    def order_equations(self) -> tuple[tuple[int, ...], ...]:
        """The first equation that no line computes, the others of these, those that one does."""
        met = {match.node.equation for match in self.matches.values() if match.node.whole}
        left = tuple(n for n in range(len(self.system.equations)) if n not in met)
        others = tuple(n for n in range(len(self.system.equations)) if n in met)
        return tuple(filter(None, (left[:1], left[1:], others)))


def find_all_nodes(edited: System, judge: Judge) -> list[Node]:
    """The nodes of an edited formula with their values; none where it has none."""
    try:
        return list(find_nodes(edited, judge.evaluate(edited)))
    except ERRORS:
        return []


def _is_like(node: Node, match: Match) -> bool:
    assert node.print is not None
    assert match.node.print is not None
    return node.print.is_like(match.node.print)


def find_lines(system: System, evaluator: Any, trace: Trace, sizes: Mapping[str, int]) -> Lines:
    """The events of a trace with the nodes that they are."""
    try:
        nodes = list(find_nodes(system, evaluator))
    except ERRORS:
        nodes = []
    lines = Lines(system, trace, sizes, nodes)
    for event in trace.events:
        mark = find_print(event.value)
        if mark is None:
            continue
        lines.prints[event] = mark
        found = find_match(event.value, nodes, sizes, mark)
        if found is not None:
            lines.matches[event] = found
    good = {e.number for e in trace.events if e in lines.matches or e not in lines.prints}
    for event in reversed(trace.events):
        if event.number in good:
            good |= set(event.reads)
    lines.good = good
    return lines
