"""Recurrences with gates that one call of torch computes: LSTM and GRU.

A row of KINDS defines each state by the gates and the previous states, c_ and h_:

    lstm    h = o*tanh(c),  c = f*c_ + i*g
    gru     h = (1 - z)*n + z*h_

Gates are sigmoids and hyperbolic tangents of the formula. A choice of gates fits if the normal
forms are equal: a gate may be one minus a sigmoid of the formula, and one value may be two gates.
The argument of each gate is a matrix times the input x, plus a matrix times h_, plus a bias. In
torch's GRU, n = tanh(V x + a + r*(U h_ + b)).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, permutations, product

from derive.ir import nodes as ir
from derive.ir.definitions import PLAIN, multiply, read_definition
from derive.ir.polynomial import is_same_extent
from derive.ir.recurrences import Recurrence
from derive.ir.walk import find_accesses, find_free, map_children, rewrite_bottom_up, substitute
from derive.plan import ops
from derive.plan.calls import CellArgument, TorchCall
from derive.plan.cells.matching import is_equal


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of recurrence: the function in the file that calls torch, its states and gates."""

    call: str
    states: Mapping[str, str]  # the definition of each; the first one is the result of the call
    gates: Mapping[str, str]  # the function of each, in torch's order
    reset: tuple[str, str] = ("", "")  # a gate that scales the term with h_ of another gate


LSTM, GRU = "_lstm", "_gru"
_KINDS = (
    Kind(
        LSTM,
        {"h": "o*tanh(c)", "c": "f*c_ + i*g"},
        {"i": "sigmoid", "f": "sigmoid", "g": "tanh", "o": "sigmoid"},
    ),
    Kind(GRU, {"h": "(1 - z)*n + z*h_"}, {"r": "sigmoid", "z": "sigmoid", "n": "tanh"}, ("r", "n")),
)


@dataclass(frozen=True, slots=True)
class Part:
    """An argument of the call: a name, its indices in order, and the expression of an entry."""

    name: str
    axes: tuple[ir.Index, ...]
    value: ir.Expr


@dataclass(frozen=True, slots=True)
class GatedCall:
    """A recurrence with gates as a call of torch.

    The parts are the input, the input matrix of each gate, the hidden matrix of each gate, the bias
    of each gate, and for a GRU the bias inside the reset product.
    """

    kind: Kind
    target: ir.Access
    states: tuple[ir.Tensor, ...]  # the first one is the target
    feature: ir.Index
    value: ir.Expr  # the right side of the target's equation
    needed: tuple[Part, ...]
    parts: tuple[ir.Access, ...] = ()  # the initial states and the needed parts, as tensors

    def to_op(self, index: ir.Index, *args: ops.Op) -> ops.Op:
        """The operation on the initial states and the parts."""
        axes = tuple(place for place in self.target.places if isinstance(place, ir.Index))
        batch = tuple(i for i in axes if i not in (index, self.feature))
        rows = batch or (ir.Index("1", ir.ONE),)
        count, gates = len(self.states), len(self.kind.gates)
        aligned = [ops.arrange(op, p.axes) for op, p in zip(args[count:], self.needed, strict=True)]
        x, *weights = aligned
        others = [i for i in x.axes if i not in batch]
        starts = [ops.merge(_align(op, rows), [rows, (self.feature,)]) for op in args[:count]]
        x = ops.merge(_align(x, rows), [rows, *((i,) for i in others)])
        given = (x, *starts, *weights)
        places = tuple(map(CellArgument, range(len(given))))
        ends = [1 + count + gates * k for k in range(4)]
        stacked = (places[a:b] for a, b in pairwise(ends))
        cats = (TorchCall("torch.cat", (each,)) for each in stacked)
        call = TorchCall(self.kind.call, (*places[: ends[0]], *cats, *places[ends[-1] :]))
        inner = (x.axes[0], index, self.feature)
        whole = ops.Gated(given, inner, self.value)
        made: ops.Op = ops.Cell(call, given, whole, inner, scratch=(inner,) * gates)
        if not batch:
            made = ops.Select(made, 0, ir.ZERO)
        elif len(batch) > 1:
            made = ops.Unflatten(made, 0, batch)
        return ops.arrange(made, axes)


def _align(op: ops.Op, rows: tuple[ir.Index, ...]) -> ops.Op:
    """The operation with the batch axes first; without a batch, an axis of size 1."""
    axes = (*rows, *(i for i in op.axes if i not in rows))
    return ops.arrange(op, axes) if {*rows} <= {*op.axes} else ops.Expand(op, axes)


def find_gated(
    recurrence: Recurrence, values: Sequence[ir.Expr], shown: Collection[ir.Tensor]
) -> GatedCall | None:
    """The recurrence as one call of torch if only its first state is `shown`; None if none fits.

    `values` lack the initial values. The `shown` tensors are results or read by other equations.
    """
    targets = recurrence.targets
    by_tensor = dict(zip(targets, values, strict=True))
    reads = recurrence.find_reads(*values)
    lags = {(access.tensor, recurrence.find_lag(access)) for access in reads}
    states = [tensor for tensor in targets if (tensor, 1) in lags]
    read = [tensor for tensor in targets if tensor in shown]
    is_plain = all(isinstance(p, ir.Index) for target in targets.values() for p in target.places)
    if not is_plain or len(read) != 1 or any(lag not in (0, 1) for _, lag in lags):
        return None

    def inline(expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Access) and expr.tensor in targets and expr.tensor not in states:
            new = dict(zip(targets[expr.tensor].places, expr.places, strict=True))
            return rewrite_bottom_up(substitute(by_tensor[expr.tensor], new), inline)
        return expr

    whole = {tensor: rewrite_bottom_up(by_tensor[tensor], inline) for tensor in states}
    for kind in _KINDS:
        for order in permutations(states) if len(states) == len(kind.states) else ():
            named = dict(zip(kind.states, order, strict=True))
            features = find_free(targets[order[0]]) if order[0] is read[0] else ()
            for feature in (i for i in features if i is not recurrence.index):
                match = _Match(recurrence, kind, named, feature, by_tensor, whole)
                if (found := match.find_gated()) is not None:
                    return found
    return None


@dataclass
class _Match:
    """A match of one kind, with a tensor for each of its states."""

    recurrence: Recurrence
    kind: Kind
    states: Mapping[str, ir.Tensor]
    feature: ir.Index
    by_tensor: Mapping[ir.Tensor, ir.Expr]  # the right side of each equation
    values: Mapping[ir.Tensor, ir.Expr]  # the states' right sides with other equations inlined
    columns: dict[str, ir.Index] = field(default_factory=dict)  # the summed index for x and for h
    x: ir.Expr | None = None  # the input

    def find_gated(self) -> GatedCall | None:
        """The recurrence as one of this kind; None where it does not fit."""
        self.target = self.recurrence.targets[self.states["h"]]
        self.others = [place for place in self.target.places if place is not self.feature]
        insides: dict[str, ir.Expr] = {}
        for name, text in self.kind.states.items():
            found = self.find_insides(name, text)
            if found is None:
                return None
            insides |= found
        return self.make_gated(insides)

    def find_insides(self, state: str, text: str) -> dict[str, ir.Expr] | None:
        """The argument of each gate of a state, if the state fits its definition; else None."""
        names = {tensor: name for name, tensor in self.states.items()}
        calls: dict[ir.Call, ir.Expr] = {}

        def outline(expr: ir.Expr) -> ir.Expr:
            if isinstance(expr, ir.Access) and expr.tensor in names:
                lag, target = self.recurrence.find_lag(expr), self.recurrence.targets[expr.tensor]
                back = self.recurrence.find_axis(expr.tensor)
                pairs = enumerate(zip(expr.places, target.places, strict=True))
                if all(k == back or one is other for k, (one, other) in pairs):
                    return ir.Scalar(names[expr.tensor] + "_" * (lag or 0))
            if isinstance(expr, ir.Call) and expr.function in self.kind.gates.values():
                inside = map_children(expr, outline)
                if not find_accesses(inside):
                    return inside
                return calls.setdefault(expr, ir.Scalar(f"@{len(calls)}"))
            return map_children(expr, outline)

        value = outline(self.values[self.states[state]])
        if len(calls) > len(self.kind.gates):
            return None
        wanted = [gate for gate in self.kind.gates if gate in re.findall(r"\w+", text)]
        scalars = (name + end for name in self.kind.states for end in ("", "_"))
        given = {name: ir.Scalar(name) for name in scalars}
        for each in product(*(self.find_choices(gate, calls) for gate in wanted)):
            gates = {gate: by for gate, (by, _) in zip(wanted, each, strict=True)}
            if is_equal(read_definition(text, {**given, **gates}, PLAIN), value):
                return {gate: inside for gate, (_, inside) in zip(wanted, each, strict=True)}
        return None

    def find_choices(
        self, gate: str, calls: Mapping[ir.Call, ir.Expr]
    ) -> Iterator[tuple[ir.Expr, ir.Expr]]:
        """Yield (an expression that a gate may be, the gate's argument then)."""
        for call, named in calls.items():
            if call.function == self.kind.gates[gate]:
                yield named, call.arguments[0]
                less = multiply(ir.MINUS_ONE, named)  # tanh(-x) = -tanh(x)
                if call.function == "sigmoid":  # sigmoid(-x) = 1 - sigmoid(x)
                    less = ir.Add((ir.ONE, less))
                yield less, multiply(ir.MINUS_ONE, call.arguments[0])

    def make_gated(self, insides: dict[str, ir.Expr]) -> GatedCall | None:
        """The call with each gate's weights, from the gates' arguments; None if they do not fit."""
        reset, scaled = self.kind.reset
        sums: dict[tuple[str, str], list[ir.Expr]] = {}
        for gate in sorted(self.kind.gates, key=lambda gate: gate == reset):
            if gate not in insides:
                return None
            for bound, factors in _expand_terms(insides[gate]):
                calls = [f for f in factors if isinstance(f, ir.Call) and self.recurrence.reads(f)]
                rest = [f for f in factors if f not in calls]
                if calls:
                    (inside, *_), function = calls[0].arguments, calls[0].function
                    known = insides.setdefault(reset, inside) is inside
                    is_reset = gate == scaled and function == self.kind.gates[reset]
                    is_alone = len(calls) == 1 and not {*bound} & {*find_free(inside)}
                    if not (is_reset and is_alone and known):
                        return None
                word, weight = self.classify_term(bound, rest) or ("none", ir.ZERO)
                if word == "none" or (gate == scaled and word and (word == "h") != bool(calls)):
                    return None
                sums.setdefault((gate, word or ("late" if calls else "bias")), []).append(weight)
        if self.x is None or set(self.columns) != {"x", "h"}:
            return None
        e, places = self.feature, self.target.places
        turns = tuple(i for i in places if isinstance(i, ir.Index) and i is not e)
        parts = [Part("x", (*turns, self.columns["x"]), self.x)]
        for word, name in (("x", "input"), ("h", "hidden"), ("bias", "bias")):
            axes = (e, self.columns[word]) if word in self.columns else (e,)
            for gate in self.kind.gates:
                parts.append(Part(f"{gate}_{name}", axes, ir.sum_of(sums.get((gate, word), []))))
        if scaled:
            late = ir.sum_of(sums.get((scaled, "late"), []))
            parts.append(Part(f"{scaled}_{reset}_bias", (e,), late))
        value = self.by_tensor[self.target.tensor]
        return GatedCall(self.kind, self.target, (*self.states.values(),), e, value, tuple(parts))

    def classify_term(
        self, bound: tuple[ir.Index, ...], factors: Sequence[ir.Expr]
    ) -> tuple[str, ir.Expr] | None:
        """The factor that a term multiplies ("x", "h" or "") and its weight; None for others."""
        moving = [
            f for f in factors if self.recurrence.reads(f) or {*self.others} & {*find_free(f)}
        ]
        weight = multiply(*(f for f in factors if f not in moving))
        if not moving and len({*bound}) == len(bound):
            return "", ir.sum_over(bound, weight)
        if len(bound) != 1 or any(self.feature in find_free(f) for f in moving):
            return None
        (own,), word = bound, "h" if any(map(self.recurrence.reads, moving)) else "x"
        index = self.columns.setdefault(word, own)
        if not is_same_extent(index.extent, own.extent):
            return None
        renamed: dict[ir.Expr, ir.Expr] = {own: index}
        value = substitute(multiply(*moving), renamed)
        if word == "x":
            self.x = self.x or value
            fits = value is self.x
        else:
            fits = isinstance(value, ir.Access) and self.is_before(value, index)
        return (word, substitute(weight, renamed)) if fits else None

    def is_before(self, access: ir.Access, index: ir.Index) -> bool:
        """Whether an access reads the target's previous value, with `index` for its feature."""
        target, here = self.target, [*access.places]
        if access.tensor is not target.tensor or self.recurrence.find_lag(access) != 1:
            return False
        back = self.recurrence.find_axis(target.tensor)
        here[back] = target.places[back]
        return here == [index if place is self.feature else place for place in target.places]


def _expand_terms(expr: ir.Expr) -> list[tuple[tuple[ir.Index, ...], list[ir.Expr]]]:
    """The terms, each as bound indices and factors; a name may be bound twice."""
    match expr:
        case ir.Add(terms):
            return [found for term in terms for found in _expand_terms(term)]
        case ir.Mul(factors):
            rows = (zip(*row, strict=True) for row in product(*map(_expand_terms, factors)))
            return [(tuple(chain(*bound)), [*chain(*parts)]) for bound, parts in rows]
        case ir.Reduce("sum", bound, condition, body) if condition is ir.TRUE:
            return [((*bound, *inner), factors) for inner, factors in _expand_terms(body)]
    return [((), [expr])]
