"""The lines of the code as nodes of the formula: which is none, which an edit is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

from derive.checker.edits import ERRORS
from derive.checker.edits.sites import find_kept
from derive.checker.trace import Match, Node, Print, find_forms, find_match, find_nodes, find_print
from derive.ir.walk import find_children, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.checker.edits import Judge
    from derive.checker.trace import Event, Node, Trace
    from derive.ir import nodes as ir


_MOST_SAID = 4  # values of one line


@dataclass
class Lines:
    """The events of a run and the nodes that they are."""

    system: ir.System
    trace: Trace
    sizes: Mapping[str, int]
    nodes: list[Node]
    prints: dict[Event, Print] = field(default_factory=dict)  # of those that tell anything
    matches: dict[Event, Match] = field(default_factory=dict)
    good: set[int] = field(default_factory=set)  # events that are nodes or lead to one

    @property
    def result_line(self) -> int | None:
        """The line that makes the result."""
        return self.trace.events[-1].line if self.trace.events else None

    @cached_property
    def forms(self) -> frozenset[ir.Expr]:
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

    def find_standing(self) -> dict[int, str]:
        """What the last value of each line is, if it is any node.

        That is "an equation" that no other line is, "a part", "turned" where it has indices of one
        extent in another order than the equation, "a multiple" of an equation that no line is.
        """
        found: dict[int, str] = {}
        for line, event in self.last.items():
            match = self.matches.get(event)
            if match is None:
                continue
            number, whole = match.node.equation, match.node.whole
            kept = find_kept(self.system.equations[number]) if number >= 0 else ()
            order = [(match.node.indices[at], match.node.value.shape[at]) for at in match.order]
            ranks = [(kept.index(index), extent) for index, extent in order if index in kept]
            if any(a > b and one == two > 1 for (a, one), (b, two) in combinations(ranks, 2)):
                found[line] = "turned"
            elif match.factor and whole and number not in self.made:
                found[line] = "a multiple"
            elif not match.factor:
                alone = whole and number >= 0 and len(self.made[number]) == 1
                found[line] = "an equation" if alone else "a part"
        return found

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

    def find_first_wrong(self) -> int | None:
        """The first line whose value is no node and leads to none, though what it reads does."""
        for event in self.told:
            if event.number not in self.good and self.good.issuperset(event.reads):
                return event.line
        return None

    def count_unexplained(self, edited: ir.System, judge: Judge) -> float:
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
            if found is not None and found.node.whole and (own := found.node.print):
                whole = (n for n in nodes if n.whole and n.print)
                met |= {n.equation for n in whole if n.print and n.print.is_like(own)}
        missed = sum(number not in met for number in range(len(edited.equations)))
        return sum(lost.values()) + missed

    def order_equations(self) -> tuple[tuple[int, ...], ...]:
        """The first equation that no line computes, the others of these, those that one does."""
        met = {match.node.equation for match in self.matches.values() if match.node.whole}
        left = tuple(n for n in range(len(self.system.equations)) if n not in met)
        others = tuple(n for n in range(len(self.system.equations)) if n in met)
        return tuple(filter(None, (left[:1], left[1:], others)))


def find_all_nodes(edited: ir.System, judge: Judge) -> list[Node]:
    """The nodes of an edited formula with their values; none where it has none."""
    try:
        return list(find_nodes(edited, judge.evaluate(edited)))
    except ERRORS:
        return []


def find_lines(system: ir.System, evaluator: Any, trace: Trace, sizes: Mapping[str, int]) -> Lines:
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


def find_changed_line(lines: Lines, edited: ir.System, judge: Judge) -> int | None:
    """The first line whose value is what the edit changes; else, one that is new with it."""
    nodes = find_all_nodes(edited, judge)
    before = {e.target.tensor.name: e.value for e in lines.system.equations}
    apart = {  # what the edit puts in and what is around it, and what code may have for these
        node
        for each in edited.equations
        for node in _find_path(before.get(each.target.tensor.name, each.value), each.value)
    }
    changed = ({form for expr in apart for form in find_forms(expr)} - lines.forms) | apart
    names = {e.target.tensor.name for e in edited.equations if e not in lines.system.equations}
    mine = [n for n in nodes if n.of in names and (n.whole or n.expr in changed)]
    events = _find_origins(lines, mine)
    if events:
        return events[0].line
    for event in lines.told:
        if event not in lines.matches and _is_one(lines, event, nodes):
            return event.line
    return None


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
    exact = {event: lines.matches[event].node for event in lines.exact}
    twins = dict.fromkeys(  # that are the whole of another equation of the formula itself
        event.line
        for event in found
        if event in exact and exact[event].whole and exact[event].equation not in mine
    )
    if len(twins) > 1:
        first = next(iter(twins))
        return [event for event in found if event.line != first]
    return found


def _find_path(old: ir.Expr, new: ir.Expr) -> Iterator[ir.Expr]:
    """From the whole down to the smallest part that holds all that differs."""
    if old is new:
        return
    yield new
    one, two = find_children(old), find_children(new)
    if type(old) is type(new) and len(one) == len(two):
        apart = [pair for pair in zip(one, two, strict=True) if pair[0] is not pair[1]]
        yield from chain.from_iterable(_find_path(*pair) for pair in apart)
