"""The nodes of the formula that the lines of the code compute.

A tensor matches a node up to a permutation, merged axes, and a factor. Candidates with an equal
fingerprint are compared element by element under each permutation. The tensor of one iteration of
a loop is compared with slices of nodes, at one place of an index. Equivalent forms of the nodes
are compared too: the negation of a condition, the argument of a function along a row with -inf
where the condition fails, the terms of a distributed sum of products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations, islice, permutations
from typing import Any

from derive.checker.edits.sites import LONGEST, POWERS, show_scale
from derive.checker.runs.trace import ERRORS, Event, Fingerprint, Trace, Turn, find_fingerprint
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_free, walk
from derive.judge.evaluate import Evaluator

CLOSE = 1e-8
MOST_ORDERS = 120
_LARGEST = 64  # the largest numerator and denominator of a factor


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the formula with its value, an axis for each index."""

    expr: ir.Expr
    name: str  # as shown in reports
    value: Any
    indices: tuple[ir.Index, ...]
    equation: int  # number of the equation it is part of; -1 for an input
    is_root: bool  # whether it is an equation's right-hand side, or an input
    of: str  # the tensor that the equation defines, or the input
    parts: dict[tuple[int, int], Node] = field(default_factory=dict)  # slices, by axis and place

    @cached_property
    def fingerprint(self) -> Fingerprint | None:
        """The fingerprint of the value; None if all its elements are equal."""
        return find_fingerprint(self.value)

    def find_parts(self, turn: Turn) -> Iterator[Node]:
        """Yield the slices that an iteration of a loop may compute, counted from either end."""
        number, count = turn
        for axis, extent in enumerate(self.value.shape):
            more = extent - count  # a recurrence has one more place, its start
            places = (number, number + 1, extent - 1 - number)
            for place in dict.fromkeys(places) if more in {0, 1} else ():
                if 0 <= place < extent:
                    key = axis, place
                    if key not in self.parts:
                        kept = (*self.indices[:axis], *self.indices[axis + 1 :])
                        value = self.value.select(axis, place)
                        self.parts[key] = replace(self, value=value, indices=kept, parts={})
                    yield self.parts[key]


@dataclass(frozen=True)
class Match:
    """The node that a tensor of the code equals, up to a permutation and a factor in words."""

    node: Node
    order: tuple[int, ...]
    factor: str  # "" for 1

    def __str__(self) -> str:
        text: str = self.node.name
        if self.factor:
            text = f"({text})" if " + " in text or " - " in text else text
            text = f"{text} * {self.factor}"
        if self.order != tuple(range(len(self.order))):
            text += f", as [{', '.join(self.node.indices[k].name for k in self.order)}]"
        return text


def find_match(
    value: Any,
    nodes: Iterable[Node],
    sizes: Mapping[str, int],
    mark: Fingerprint | None = None,
    turn: Turn | None = None,
) -> Match | None:
    """The first node (or slice at `turn`) that a tensor equals, else is a multiple of; or None."""
    mark = mark or find_fingerprint(value)
    if mark is None:
        return None
    scaled: Match | None = None
    nodes = list(nodes)
    parts = (part for node in nodes for part in (node.find_parts(turn) if turn else ()))
    for node in chain(nodes, parts):
        if node.fingerprint is None or not mark.is_like(node.fingerprint):
            continue
        found = match_node(value, node, sizes)
        if found is not None and not found.factor:
            return found
        scaled = scaled or found
    return scaled


def match_node(value: Any, node: Node, sizes: Mapping[str, int]) -> Match | None:
    """The permutation and factor under which a tensor equals a node; None for none."""
    flat = value.reshape(-1)
    finite = flat.isfinite()
    probe = int(flat.nan_to_num(0, 0, 0).abs().argmax())
    for order in islice(permutations(range(node.value.dim())), MOST_ORDERS):
        turned = node.value.permute(order)
        if not is_regrouped(turned.shape, value.shape):
            continue
        other = turned.reshape(-1)
        below, above = float(other[probe]), float(flat[probe])
        if not below or not math.isfinite(below):
            continue
        factor = above / below
        if not bool((other.isfinite() == finite).all()):
            continue
        off = (other[finite] * factor - flat[finite]).abs().max()
        if float(off) > CLOSE * abs(above):
            continue
        said = find_factor(factor, sizes)
        if said is not None:
            return Match(node, order, said)
    return None


def is_regrouped(one: Iterable[int], other: Iterable[int]) -> bool:
    """Whether one shape merges or splits whole axes of the other."""
    left, right = ([n for n in shape if n != 1] for shape in (one, other))
    while left and right:
        taken, given = [left.pop(0)], [right.pop(0)]
        while math.prod(taken) != math.prod(given):
            short, rest = (taken, left) if math.prod(taken) < math.prod(given) else (given, right)
            if not rest:
                return False
            short.append(rest.pop(0))
        if len(taken) > 1 and len(given) > 1:
            return False
    return not left and not right


def find_factor(factor: float, sizes: Mapping[str, int]) -> str | None:
    """The factor in words, "" for 1: by sizes, else a fraction or its root; None for others."""
    if abs(factor - 1) <= CLOSE:
        return ""
    sign, size = ("-" if factor < 0 else ""), abs(factor)
    for name, number in sizes.items():
        for exponent in POWERS if number > 1 else ():
            if abs(number ** float(exponent) / size - 1) <= CLOSE:
                return sign + show_scale({ir.Size(name): exponent})
    for power, shown in ((1, "{}"), (2, "sqrt({})")):
        near = Fraction(size**power).limit_denominator(_LARGEST)
        if 0 < near.numerator <= _LARGEST and abs(float(near) / size**power - 1) <= CLOSE:
            return sign + shown.format(near) if near != 1 else sign + "1"
    return None


_MOST_EVALUATED = 1 << 18
_MOST_PARTS = 5


def find_nodes(system: ir.System, evaluator: Evaluator) -> Iterator[Node]:
    """Every node of a formula that depends on a tensor: inputs, equations, then their parts."""
    for entry in system.inputs:
        if isinstance(entry, ir.Tensor) and entry.kind in {"real", "bool"} and entry.shape:
            own = tuple(ir.Index("_", extent) for extent in entry.shape)
            reads = (a for e in system.equations for a in find_accesses(e.value))
            first = next((access for access in reads if access.tensor is entry), None)
            access = first or ir.Access(entry, own)
            value, name = evaluator.values[entry.name].double(), entry.name
            text = to_text(first) if first else name
            yield Node(access, text, value, _find_indices(access), -1, True, name)
    for number, equation in enumerate(system.equations):
        target = equation.target
        value, name = evaluator.values[target.tensor.name], target.tensor.name
        if value.is_floating_point() and value.dim():
            indices = _find_indices(target)
            yield Node(equation.value, to_text(target), value, indices, number, True, name)
    for number, equation in enumerate(system.equations):
        target = equation.target
        seen = dict.fromkeys(walk(equation.value))
        for expr in dict.fromkeys(each for here in seen for each in find_forms(here)):
            node = find_node(expr, evaluator)
            if node is not None:
                text = to_text(expr)
                if len(text) > LONGEST and expr is not equation.value:
                    text = f"a part of {to_text(target)}"
                yield replace(node, name=text, equation=number, of=target.tensor.name)


def find_node(expr: ir.Expr, evaluator: Evaluator) -> Node | None:
    """The node of an expression, with its value; None if it has no index or is too large."""
    around = (*find_free(expr), *(expr.bound if isinstance(expr, ir.Reduce) else ()))
    if math.prod(evaluator.extent(index.extent) for index in around) > _MOST_EVALUATED:
        return None
    grid = evaluator.evaluate_node(expr)
    if not grid.tensor.dim() or not (
        grid.tensor.is_floating_point() or isinstance(expr, ir.TRUTHS)
    ):
        return None
    value = grid.tensor.double()
    value = value.expand([evaluator.extent(index.extent) for index in grid.indices])
    return Node(expr, "", value, grid.indices, -1, False, "")


def find_forms(expr: ir.Expr) -> Iterator[ir.Expr]:
    """Yield the expression if its value is distinctive, and its forms in code: `p`, `not p`."""
    match expr:
        case ir.Access(tensor, places):  # a whole tensor is a node already
            pairs = zip(places, tensor.shape, strict=True)
            if not all(isinstance(at, ir.Index) and at.extent == extent for at, extent in pairs):
                yield expr
        case ir.Compare() | ir.And() | ir.Or() | ir.Not():
            yield expr
            yield expr.part if isinstance(expr, ir.Not) else ir.Not(expr)
        case _ if find_accesses(expr):
            yield expr
    match expr:
        case ir.Along(_, _, condition, body) if condition != ir.TRUE:
            yield ir.Where(condition, body, ir.MINUS_INFINITY)
        case ir.Mul(parts) | ir.Add(parts) if 2 < len(parts) <= _MOST_PARTS:
            for count in range(2, len(parts)):
                for some in combinations(parts, count):
                    part = type(expr)(some)
                    if find_accesses(part):
                        yield part
        case ir.Reduce("sum", bound, condition, ir.Mul(factors)):
            for at, factor in enumerate(factors):
                for term in factor.terms if isinstance(factor, ir.Add) else ():
                    product = ir.Mul((*factors[:at], term, *factors[at + 1 :]))
                    yield ir.Reduce("sum", bound, condition, product)


def _find_indices(access: ir.Access) -> tuple[ir.Index, ...]:
    """An index for each place; a place that is no index gets one named by its text."""
    return tuple(
        place if isinstance(place, ir.Index) else ir.Index(to_text(place), extent)
        for place, extent in zip(access.places, access.tensor.shape, strict=True)
    )


_MOST_SAID = 4  # values of one line


@dataclass
class Lines:
    """The recorded tensors of a run, its events, and the formula's nodes that they equal."""

    system: ir.System
    trace: Trace
    sizes: Mapping[str, int]
    nodes: list[Node]

    @cached_property
    def turns(self) -> dict[Event, Turn]:
        """For each event in a loop the pair (turn, number of turns)."""
        return self.trace.find_turns()

    @cached_property
    def varying_events(self) -> list[Event]:
        """The recorded tensors whose entries are not all equal."""
        return [event for event in self.trace.events if event.fingerprint]

    @cached_property
    def matches(self) -> dict[Event, Match]:
        """The node that each recorded tensor equals; tensors that equal none are left out."""
        found = ((event, self.match_event(event, self.nodes)) for event in self.varying_events)
        return {event: match for event, match in found if match is not None}

    @cached_property
    def explained(self) -> set[int]:
        """The numbers of recorded tensors that match a node, lead to one, or have equal entries."""
        explained = {event.number for event in self.matches}
        for event in reversed(self.trace.events):
            if event.number in explained:
                explained |= set(event.reads)
        return explained | {event.number for event in self.trace.events if not event.fingerprint}

    @cached_property
    def forms(self) -> frozenset[ir.Expr]:
        """The formula's nodes and the equivalent forms of them in code."""
        values = (equation.value for equation in self.system.equations)
        return frozenset(form for v in values for node in walk(v) for form in find_forms(node))

    @cached_property
    def exact(self) -> list[Event]:
        """The recorded tensors that equal a node, not a multiple of it."""
        return [event for event, match in self.matches.items() if not match.factor]

    @property
    def result_line(self) -> int | None:
        """The line of the last recorded tensor, the result; None if there is none."""
        return self.trace.events[-1].line if self.trace.events else None

    def match_event(self, event: Event, nodes: Iterable[Node]) -> Match | None:
        """The node that an event's tensor equals, or has a slice of in a loop; None for none."""
        return find_match(event.value, nodes, self.sizes, event.fingerprint, self.turns.get(event))

    def annotate(self, elsewhere: Lines | None) -> tuple[tuple[int, str], ...]:
        """Pairs (line, its nodes in words); `elsewhere`, a run at other sizes, must agree."""
        same = [event.line for event in self.trace.events]
        events = [event for event in self.trace.events if self._is_shown(event)]
        other = elsewhere.trace.events if elsewhere is not None else []
        twins = other if [event.line for event in other] == same else []
        rows: dict[int, list[Event]] = {}
        for event in events:
            rows.setdefault(event.line, []).append(event)
        found = []
        for line, row in sorted(rows.items()):
            read = {number for event in row for number in event.reads}
            made = [event for event in row if event.number not in read][-_MOST_SAID:]
            said = [self._describe_event(event, elsewhere, twins) for event in made]
            if all(said):
                found.append((line, "; ".join(dict.fromkeys(said))))
                continue
            inner = [self._describe_event(event, elsewhere, twins) for event in row]
            parts = [words for words in dict.fromkeys(inner) if words]
            if parts:
                found.append((line, f"contains {'; '.join(parts[-_MOST_SAID:])}"))
        return tuple(found)

    def _describe_event(self, event: Event, elsewhere: Lines | None, twins: list[Event]) -> str:
        """Words for the node that an event equals; "" for none, or where other sizes disagree."""
        match = self.matches.get(event)
        twin = elsewhere.matches.get(twins[event.number]) if elsewhere and twins else None
        factor = twin.factor if twin is not None else ""
        is_varying = elsewhere and twins and twins[event.number].fingerprint
        if match is None or (elsewhere and (match.factor != factor or (is_varying and not twin))):
            return ""
        return str(match)

    @cached_property
    def _wrong_turn(self) -> int | None:
        """The iteration of the first wrong event, None outside of loops."""
        wrong = self.find_first_wrong()
        return self.turns[wrong][0] if wrong in self.turns else None

    def _is_shown(self, event: Event) -> bool:
        """Whether an event is reported: outside loops, in the first wrong iteration or the last."""
        number, count = self.turns.get(event, (0, 1))
        seen = count - 1 if self._wrong_turn is None else self._wrong_turn
        return count == 1 or number == min(seen, count - 1)

    @cached_property
    def last(self) -> dict[int, Event]:
        """The event to report for each line: the last shown one whose entries are not all equal."""
        return {event.line: event for event in self.varying_events if self._is_shown(event)}

    def equals_any(self, event: Event, nodes: Sequence[Node]) -> bool:
        """Whether the event equals one of the nodes without a factor."""
        found = self.match_event(event, nodes)
        return found is not None and not found.factor

    def score_agreement(self) -> int:
        """The lines and equations that agree, less the recorded tensors that equal no node."""
        ends = {*self.exact} & {*self.last.values()}
        nodes = [self.matches[event].node for event in self.varying_events if event in ends]
        made = {node.equation for node in nodes if node.is_root}
        return len(ends) + len(made) + len(self.exact) - len(self.varying_events)

    def find_first_wrong(self) -> Event | None:
        """The first recorded tensor that is not explained though its operands are, or None."""
        wrong = (event for event in self.varying_events if event.number not in self.explained)
        return next((event for event in wrong if self.explained.issuperset(event.reads)), None)

    def count_unexplained(
        self, edited: ir.System, evaluate: Callable[[ir.System], Evaluator]
    ) -> float:
        """The number of lines that equal no node of a formula, plus equations without a line."""
        if not self.varying_events:
            return 0.0
        nodes = find_all_nodes(edited, evaluate)
        lost: dict[int, bool] = {}
        met: set[int] = set()
        for event in filter(self._is_shown, self.varying_events):
            found = self.match_event(event, nodes)
            lost[event.line] = found is None
            if found is not None and found.node.is_root and (own := found.node.fingerprint):
                whole = (n for n in nodes if n.is_root and n.fingerprint)
                met |= {n.equation for n in whole if n.fingerprint and n.fingerprint.is_like(own)}
        missed = sum(number not in met for number in range(len(edited.equations)))
        return sum(lost.values()) + missed

    def order_equations(self) -> tuple[tuple[int, ...], ...]:
        """Equation numbers in groups: the first one no line computes, other such, computed ones."""
        met = {match.node.equation for match in self.matches.values() if match.node.is_root}
        numbers = range(len(self.system.equations))
        left, others = (
            tuple(n for n in numbers if (n in met) is is_met) for is_met in (False, True)
        )
        return tuple(filter(None, (left[:1], left[1:], others)))


def find_all_nodes(edited: ir.System, evaluate: Callable[[ir.System], Evaluator]) -> list[Node]:
    """The nodes of an edited formula with their values; none where evaluation fails."""
    try:
        return list(find_nodes(edited, evaluate(edited)))
    except ERRORS:
        return []


def find_lines(system: ir.System, evaluator: Any, trace: Trace, sizes: Mapping[str, int]) -> Lines:
    """The events of a trace with the nodes that they match."""
    return Lines(system, trace, sizes, find_all_nodes(system, lambda _: evaluator))


def find_changed_line(
    lines: Lines, edited: ir.System, evaluate: Callable[[ir.System], Evaluator]
) -> int | None:
    """The first line whose value an edit changes, else the first that only now matches, or None."""
    nodes = find_all_nodes(edited, evaluate)
    before = {e.target.tensor.name: e.value for e in lines.system.equations}
    apart = {  # the edited subexpressions and those around them
        node
        for each in edited.equations
        for node in _find_path(before.get(each.target.tensor.name, each.value), each.value)
    }
    changed = ({form for expr in apart for form in find_forms(expr)} - lines.forms) | apart
    names = {e.target.tensor.name for e in edited.equations if e not in lines.system.equations}
    mine = [n for n in nodes if n.of in names and (n.is_root or n.expr in changed)]
    events = _find_origins(lines, mine)
    if events:
        return events[0].line
    for event in lines.varying_events:
        if event not in lines.matches and lines.equals_any(event, nodes):
            return event.line
    return None


def _find_origins(lines: Lines, nodes: Sequence[Node]) -> list[Event]:
    """The events that equal one of the nodes and do not read such an event."""
    found: list[Event] = []
    seen: set[int] = set()
    for event in lines.varying_events:
        if not lines.equals_any(event, nodes):
            continue
        same = seen & set(event.reads)
        seen.add(event.number)
        if not same:
            found.append(event)
    mine = {node.equation for node in nodes if node.is_root}
    exact = {event: lines.matches[event].node for event in lines.exact}
    # Where the formula itself has this value, the first line that computes it is right: code with
    # the wrong weight computes the value that another equation has with that weight.
    twins = dict.fromkeys(
        event.line
        for event in found
        if event in exact and exact[event].is_root and exact[event].equation not in mine
    )
    if len(twins) > 1:
        first = next(iter(twins))
        return [event for event in found if event.line != first]
    return found


def _find_path(old: ir.Expr, new: ir.Expr) -> Iterator[ir.Expr]:
    """Yield the parts of `new` from its root down to each smallest part that differs from `old`."""
    if old is new:
        return
    yield new
    one, two = old.children, new.children
    if type(old) is type(new) and len(one) == len(two):
        apart = [pair for pair in zip(one, two, strict=True) if pair[0] is not pair[1]]
        yield from chain.from_iterable(_find_path(*pair) for pair in apart)
