"""What somebody's code computes on its way, and which nodes of the formula that is.

The code runs unmodified under a torch function mode, which sees each call before it is taken apart:
every tensor of numbers or truth values is an event. A call that is made elsewhere belongs to the
line of the user's file that led to it.

A tensor is a node up to the order of axes, merged axes, and a factor. Power sums, which no order of
elements changes, tell what cannot match; what may is compared element by element under each order
of the indices. Beside the nodes as they are written there are those that code has for them: a
condition and its negation, the argument of a softmax with -inf where the condition fails, the terms
of a sum of products that is distributed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations, islice, permutations
from typing import TYPE_CHECKING, Any

from derive.checker.edits.sites import LONGEST
from derive.checker.runs.modes import find_line_now, make_mode
from derive.checker.runs.processes import where_it_lives
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_free, walk

if TYPE_CHECKING:
    from derive.checker.program import Program
    from derive.judge.evaluate import Evaluator


MOST_EVENTS = 600
_MOST_RECORDED = 1 << 20


@dataclass(frozen=True, eq=False)
class Event:
    """A tensor that a line of the code has made."""

    number: int
    line: int
    value: Any  # in float64, as it was then
    reads: tuple[int, ...]  # the events whose tensors it is made of


@dataclass
class Trace:
    """The events in order, and those that the results are."""

    events: list[Event] = field(default_factory=list)
    results: tuple[Any, ...] = ()
    error: str = ""


class _Recorder:
    """The bookkeeping of one run: which tensor object, and which memory, is of which event."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.events: list[Event] = []
        self._by_tensor: dict[Any, int] = {}  # a tensor's hash is its identity
        self._by_memory: dict[int, int] = {}

    def record(self, given: Any, found: Any, name: str) -> None:
        """The events of one call."""
        line = find_line_now(self.path)
        if line is None or len(self.events) >= MOST_EVENTS:
            return
        read = list(_find_tensors(given))
        reads = tuple(dict.fromkeys(n for t in read for n in self._find_events(t)))
        made = list(_find_tensors(found))
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if in_place and read:
            base = getattr(read[0], "_base", None)
            made = [read[0] if base is None else base]
        for tensor in made:
            self._add(tensor, line, reads, in_place)

    def _find_events(self, tensor: Any) -> Iterable[int]:
        found = (self._by_tensor.get(tensor), self._by_memory.get(_find_memory(tensor)))
        return (number for number in found if number is not None)

    def _add(self, tensor: Any, line: int, reads: tuple[int, ...], in_place: bool) -> None:
        import torch

        told = tensor.is_floating_point() or tensor.dtype == torch.bool
        if not told or not 0 < tensor.numel() <= _MOST_RECORDED:
            return
        number = len(self.events)
        value = tensor.detach().double()
        value = value.clone() if value.data_ptr() == tensor.data_ptr() else value
        self.events.append(Event(number, line, value, reads))
        self._by_tensor[tensor] = number
        if in_place:
            self._by_memory[_find_memory(tensor)] = number


def record(run: Callable[[Mapping[str, Any]], tuple[Any, ...]], values: Any, path: str) -> Trace:
    """The trace of one run of the code on these inputs."""
    import torch

    recorder = _Recorder(path)

    def act(function: Any, args: Any, named: Any) -> Any:
        found = function(*args, **named)
        recorder.record((args, named), found, getattr(function, "__name__", ""))
        return found

    trace = Trace(recorder.events)
    try:
        with torch.no_grad(), make_mode(act):
            trace.results = tuple(run(values))
    except Exception as error:  # what was seen before it stopped is of use
        trace.error = str(error)
    return trace


@where_it_lives
def record_program(program: Program, values: Mapping[str, Any], sizes: Mapping[str, int]) -> Trace:
    """The trace of one run of a program on inputs of the formula."""
    return record(lambda given: program.run(given, sizes).results, values, program.code.path)


def _find_tensors(value: Any) -> Iterable[Any]:
    """The tensors in arguments or results, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _find_tensors(each)
    elif isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        for each in value:
            yield from _find_tensors(each)


def _find_memory(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return -1


CLOSE = 1e-8
MOST_ORDERS = 120
_LARGEST = 64  # of the numbers in a factor


@dataclass(frozen=True, eq=False)
class Print:
    """A fingerprint: the same for every order of the elements and, but its size, every factor."""

    count: int
    finite: int
    ratios: tuple[float, float]
    size: float  # the root of the mean square

    def is_like(self, other: Print) -> bool:
        """May one be the other?"""
        return (
            self.count == other.count
            and self.finite == other.finite
            and all(abs(a - b) <= 1e-7 for a, b in zip(self.ratios, other.ratios, strict=True))
        )

    def is_same(self, other: Print) -> bool:
        """May one be the other, with no factor but a sign?"""
        return abs(self.size - other.size) <= 1e-7 * self.size and self.is_like(other)


def find_print(tensor: Any) -> Print | None:
    """The fingerprint of a tensor; None for one that is constant and so tells nothing."""
    flat = tensor.reshape(-1)
    total = float(flat.sum())
    if not math.isfinite(total):
        flat = flat[flat.isfinite()]
    if not flat.numel():
        return None
    size = flat.abs()
    square = size * size
    one, two, four = (float(each.mean()) for each in (size, square, square * square))
    if two <= 0 or not math.isfinite(four) or (one * one) / two > 1 - 1e-12:
        return None
    ratios = (one * one / two, two * two / max(four, 1e-300))
    return Print(tensor.numel(), flat.numel(), ratios, math.sqrt(two))


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the formula with its value, an axis for each index."""

    expr: ir.Expr
    name: str  # as it is shown
    value: Any
    indices: tuple[ir.Index, ...]
    equation: int  # whose part it is; -1 for an input
    whole: bool  # is it the whole of an equation, or an input
    of: str  # the tensor that the equation defines, or the input

    @cached_property
    def print(self) -> Print | None:
        """The fingerprint."""
        return find_print(self.value)


@dataclass(frozen=True)
class Match:
    """A tensor of the code as a node of the formula: the order of the indices, the factor."""

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
    value: Any, nodes: Iterable[Node], sizes: Mapping[str, int], mark: Print | None = None
) -> Match | None:
    """The node that a tensor is: one without a factor if there is one."""
    mark = mark or find_print(value)
    if mark is None:
        return None
    scaled: Match | None = None
    for node in nodes:
        if node.print is None or not mark.is_like(node.print):
            continue
        found = compare(value, node, sizes)
        if found is not None and not found.factor:
            return found
        scaled = scaled or found
    return scaled


def compare(value: Any, node: Node, sizes: Mapping[str, int]) -> Match | None:
    """The order and the factor under which a tensor is a node's value, if there are any."""
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
    """Are the axes of one the other's, some merged, some split, but none torn apart?"""
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
    """The factor in words, "" for 1: a fraction or a root of one, by sizes where they tell."""
    if abs(factor - 1) <= CLOSE:
        return ""
    sign, size = ("-" if factor < 0 else ""), abs(factor)
    for name, number in sizes.items():
        for value, text in (
            (number**-0.5, f"1/sqrt({name})"),
            (number**0.5, f"sqrt({name})"),
            (1 / number, f"1/{name}"),
            (float(number), name),
        ):
            if number > 1 and abs(value / size - 1) <= CLOSE:
                return sign + text
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
            yield _make_input(system, entry, evaluator)
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
    """One node with its value, if it has indices and is not too large."""
    if _count(expr, evaluator) > _MOST_EVALUATED:
        return None
    grid = evaluator.find(expr)
    if not grid.tensor.dim() or not (grid.tensor.is_floating_point() or is_condition(expr)):
        return None
    value = grid.tensor.double()
    value = value.expand([evaluator.extent(index.extent) for index in grid.indices])
    return Node(expr, "", value, grid.indices, -1, False, "")


def find_forms(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The node if its value tells anything, and what code may have for it."""
    match expr:
        case ir.Access(tensor, places):  # that reads no more than a part
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


def _make_input(system: ir.System, tensor: ir.Tensor, evaluator: Evaluator) -> Node:
    """An input under the indices with which it is read first."""
    value = evaluator.values[tensor.name].double()
    for equation in system.equations:
        for access in find_accesses(equation.value):
            if access.tensor is tensor:
                indices = _find_indices(access)
                return Node(access, to_text(access), value, indices, -1, True, tensor.name)
    indices = tuple(ir.Index("_", extent) for extent in tensor.shape)
    return Node(ir.Access(tensor, indices), tensor.name, value, indices, -1, True, tensor.name)


def _find_indices(access: ir.Access) -> tuple[ir.Index, ...]:
    """An index for each place: a place that is no index stands for itself."""
    return tuple(
        place if isinstance(place, ir.Index) else ir.Index(to_text(place), extent)
        for place, extent in zip(access.places, access.tensor.shape, strict=True)
    )


def is_condition(expr: ir.Expr) -> bool:
    """Is it true or false?"""
    return isinstance(expr, (ir.Compare, ir.And, ir.Or, ir.Not, ir.Truth))


def _count(expr: ir.Expr, evaluator: Evaluator) -> int:
    bound = expr.bound if isinstance(expr, ir.Reduce) else ()
    return math.prod(evaluator.extent(i.extent) for i in (*find_free(expr), *bound))
