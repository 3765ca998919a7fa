"""Recurrences rewritten as cumulative sums, or as sums in chunks.

A linear recurrence S that is read only in sums of products is computed in chunks. The chunks hold
the sums, and S only at the end of each chunk:

    S[t,i,j] = a[t] * S[t - 1,i,j] + k[t,i] * v[t,j]
    o[t,j] = sum[i](q[t,i] * S[t,i,j])

Let t = n*C + c. D[n,c,s] is the product of a from n*C + s + 1 to n*C + c, P[n,c] from n*C on:

    E[n,i,j] = P[n,C - 1] * E[n - 1,i,j] + sum[s](D[n,C - 1,s] * k[n,s,i] * v[n,s,j])
    o[n,c,j] = sum[i](q[n,c,i] * P[n,c] * E[n - 1,i,j])
             + sum[s,i](q[n,c,i] * D[n,c,s] * k[n,s,i] * v[n,s,j])

D and P are recurrences over c, without divisions, so all values stay finite.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeGuard

from derive.ir import nodes as ir
from derive.ir.polynomial import ONE, Polynomial
from derive.ir.recurrences import Recurrence, find_groups, find_recurrences
from derive.ir.walk import Names, find_accesses, find_free, rewrite_bottom_up, substitute, walk
from derive.plan.cost import Storage
from derive.plan.machine import EXPONENTIALS, RECURRED
from derive.plan.recurrences.loops import find_indices_of
from derive.plan.recurrences.readers import time_turn
from derive.plan.recurrences.turns import (
    excludes_first,
    find_interval,
    find_slope,
    multiply,
    read_linear,
)

LENGTHS = (64, 32, 16)  # lengths of a chunk: the longest whose pairs take less memory than S
SMALLER = 4  # size of S over that of the pairs of positions in a chunk


def use_prefixes(system: ir.System) -> ir.System:
    """Replace recurrences by prefix reductions, where they are equal.

    h[t] = h[t - 1] + x[t] is h0 plus a cumsum, and so for products, maxima, minima and
    log(exp(h[t - 1]) + exp(x[t])). A product must start at 1: without a small h0 it could overflow.
    """
    names = Names.of(system)
    for recurrence in find_recurrences(system):
        equation, *more = recurrence.equations
        if recurrence.inner is not None or more:
            continue
        whole = _find_prefix(recurrence, names)
        if whole is not None:
            new = ir.Equation(equation.target, whole)
            made = tuple(new if e is equation else e for e in system.equations)
            system = replace(system, equations=made)
    return system


def _find_prefix(recurrence: Recurrence, names: Names) -> ir.Expr | None:
    """The prefix reduction that equals a recurrence; None if there is none."""
    t, (target,) = recurrence.index, recurrence.targets.values()
    value, linear, start = read_linear(recurrence)
    slope, rest = linear or (None, value)
    kind: str
    match slope:
        case ir.Where(condition, ir.Number() as then, ir.Number() as other) if start is None:
            holds = condition if then is ir.ONE else ir.Not(condition)
            if {then, other} == {ir.ZERO, ir.ONE} and excludes_first(holds, t):
                return ir.Along("cumsum", t, ir.TRUE, rest)
    match value:
        case _ if start is None:
            return None
        case ir.Call("max" | "min" as kind, parts):
            pass
        case ir.Call("logaddexp", parts):
            kind = "logsumexp"
        case ir.Call("log", (ir.Add((ir.Call("exp", (one,)), ir.Call("exp", (two,)))),)):
            kind, parts = "logsumexp", (one, two)
        case _ if slope is ir.ONE:
            total, places = ir.Along("cumsum", t, ir.TRUE, rest), {*find_free(target)}
            if start is ir.ZERO:
                return total
            is_made = any(places <= {*find_free(access)} for access in find_accesses(rest))
            return ir.Add((start, total)) if is_made else None  # narrow factors: use chunks
        case _ if rest is ir.ZERO and start is ir.ONE and slope is not None:
            kind, parts = "prod", (slope,)
        case _:
            return None
    others = [part for part in parts if find_slope(part, recurrence) != (ir.ONE, ir.ZERO)]
    if kind != "prod" and len(others) != len(parts) - 1:
        return None
    if any(map(recurrence.reads, others)):
        return None
    body = others[0] if len(others) == 1 else ir.Call(kind, tuple(others))
    if start is None or t not in find_free(body):
        return None
    s = names.take_index(t)
    so_far = ir.Reduce(kind, (s,), ir.Compare("<=", s, t), substitute(body, {t: s}))
    match kind, start:
        case ("prod", _) | ("max" | "logsumexp", ir.Infinity(True)) | ("min", ir.Infinity(False)):
            return so_far
        case "logsumexp", _:
            kind = "logaddexp"
    return ir.Call(kind, (start, so_far))


@dataclass
class Chunks:
    """A system with sums in chunks, and its equations that cut a tensor or join chunks."""

    system: ir.System
    views: dict[ir.Equation, int] = field(default_factory=dict)  # the axis of the index
    # The keyword arguments, each with the index that it cuts and its default.
    lengths: dict[str, tuple[ir.Index, int]] = field(default_factory=dict)
    inner: set[ir.Tensor] = field(default_factory=set)  # D and P, products of decays in a chunk


def chunk_values(system: ir.System, sizes: Mapping[str, int], *, keywords: bool = True) -> Chunks:
    """The system with sums over linear recurrences in chunks, where that takes less memory.

    The length of a chunk is a keyword argument, or a constant without `keywords`.
    """
    made = Chunks(system)
    for recurrence in find_recurrences(system):
        if len(recurrence.equations) == 1:
            _Chunker(made, recurrence, sizes, keywords=keywords).chunk_sums()
    return made


class _Chunker:
    """One recurrence S of a system, over t; a position is c in chunk n."""

    def __init__(
        self, made: Chunks, recurrence: Recurrence, sizes: Mapping[str, int], *, keywords: bool
    ) -> None:
        system = made.system
        self.made, self.recurrence, self.sizes, self.keywords = made, recurrence, sizes, keywords
        self.target = recurrence.equations[0].target
        self.index = recurrence.index
        self.axis = recurrence.find_axis(self.target.tensor)
        self.state = tuple(i for i in find_indices_of(self.target) if i is not self.index)
        self.names = Names.of(system)
        self.names |= {*sizes}
        self.before: list[ir.Equation] = []  # equations that the chunks read
        self.cut: dict[ir.Tensor, ir.Tensor] = {}
        self.made_of: dict[ir.Expr, ir.Access] = {}

    def chunk_sums(self) -> None:
        """Replace the sums over the recurrence by sums in chunks, and drop the recurrence."""
        system = self.made.system
        _, parts, begin = read_linear(self.recurrence)
        if parts is None or begin is None:
            return
        self.begin = begin
        sums = self.find_sums(system)
        length = self.find_length(*parts)
        if not sums or length is None:
            return
        slope, added = parts
        t = self.index
        self.length: ir.Expr = ir.Number(Fraction(length))
        if self.keywords:
            word = self.names.take(f"{t.name}_chunk")
            self.length = ir.Size(word)
            self.made.lengths[word] = t, length
        # At least one chunk, even for extent 0: torch cannot pad to a negative length.
        count = ir.Add((ir.Call("floordiv", (t.extent, self.length)), ir.ONE))
        self.n = ir.Index(self.names.take("n"), count)
        self.c, self.s = (ir.Index(self.names.take(word), self.length) for word in "cs")
        self.make_states(slope, added)
        new: dict[ir.Expr, ir.Expr] = {}
        equations = []
        for equation in system.equations:
            if equation is self.recurrence.equations[0]:
                continue
            for part in walk(equation.value):
                if isinstance(part, ir.Reduce) and part in sums and part not in new:
                    new[part] = self.make_sum(part, added, equation.target.places)
            value = rewrite_bottom_up(equation.value, lambda part: new.get(part, part))
            if value is not equation.value:
                equations += self.before
                self.before = []
            equations.append(ir.Equation(equation.target, value))
        self.made.system = replace(system, equations=tuple(equations), written=())

    def find_sums(self, system: ir.System) -> list[ir.Reduce]:
        """The sums of products that read the recurrence; [] for a result, or if read otherwise."""
        tensor = self.target.tensor
        found: dict[ir.Reduce, None] = {}
        if tensor in system.results:
            return []

        def count_reads(expr: ir.Expr) -> int:
            """The number of reads outside of such sums."""
            match expr:
                case ir.Access() if expr.tensor is tensor:
                    return 1
                case ir.Reduce("sum", bound, condition, body) if condition is ir.TRUE:
                    factors = ir.split_product(body)
                    reads = [f for f in map(self.find_read, factors) if f is not None]
                    if len(reads) == 1 and self.is_plain(reads[0][0], bound):
                        found[expr] = None
                        return sum(count_reads(each) for each in factors) - 1
            return sum(map(count_reads, expr.children))

        others = [e for e in system.equations if e is not self.recurrence.equations[0]]
        together = {e for group in find_groups(system) for e in group if len(group) > 1}
        if any(count_reads(each.value) for each in others if each in together) or found:
            return []  # a recurrence reads the sums
        return [] if any(count_reads(each.value) for each in others) else list(found)

    def find_read(self, factor: ir.Expr) -> tuple[ir.Access, bool] | None:
        """The read of the recurrence that a factor is, and whether it is at t - 1, or None."""
        match factor:
            case ir.Access(tensor) if tensor is self.target.tensor:
                return factor, False
            case ir.Where(ir.Compare("<", place, ir.Number(0)), start, ir.Access(tensor, places)):
                others = (*places[: self.axis], *places[self.axis + 1 :])
                own: dict[ir.Expr, ir.Expr] = dict(zip(self.state, others, strict=False))
                is_begun = tensor is self.target.tensor and substitute(self.begin, own) is start
                gap = Polynomial.of(self.index) - Polynomial.of(place)
                if is_begun and places[self.axis] is place and gap == ONE:
                    here = (*places[: self.axis], self.index, *places[self.axis + 1 :])
                    return ir.Access(tensor, here), True
        return None

    def is_plain(self, read: ir.Access, bound: tuple[ir.Index, ...]) -> bool:
        """Whether the recurrence is read at t and at distinct indices, some of them summed over."""
        is_plain = all(isinstance(place, ir.Index) for place in read.places)
        is_plain = is_plain and len({*read.places}) == len(read.places)
        is_turn = is_plain and read.places[self.axis] is self.index
        return is_turn and not {*bound}.isdisjoint(read.places)

    def find_length(self, slope: ir.Expr, added: ir.Expr) -> int | None:
        """The longest chunk whose pairs of positions take less memory than the states, or None."""
        count_values = Storage(self.sizes).count
        factors = ir.split_product(added)
        if any({*self.state} <= {*find_free(factor)} for factor in factors):
            return None
        batch = [i for i in self.state if all(i in find_free(f) for f in factors)]
        both = [i for i in self.state if i in batch or i in find_free(slope)]
        room = count_values(self.state) // (SMALLER * max(1, count_values(both)))
        length = next((length for length in LENGTHS if length <= room), None)
        if {*both} == {*batch}:
            return length
        # no matrix product: values for each pair of positions
        pairs = 2 * RECURRED * (length or 1) * count_values(both) / EXPONENTIALS
        return length if pairs <= time_turn(count_values(self.state)) else None

    def cut_product(self, expr: ir.Expr, place: ir.Index) -> ir.Expr:
        """A product that reads no states, with factors cut into chunks, at `place` in a chunk."""
        if isinstance(expr, ir.Mul):
            return multiply(*(self.cut_product(factor, place) for factor in expr.factors))
        if self.index not in find_free(expr):
            return expr
        read = expr if _is_cut(expr, self.index) else self.made_of.get(expr)
        if read is None:
            name = self.names.take(f"{self.target.tensor.name}_in")
            read = ir.name_axes(name, find_free(expr))
            self.made_of[expr] = read
            self.before.append(ir.Equation(read, expr))
        tensor, axis = read.tensor, read.places.index(self.index)
        if tensor not in self.cut:
            lengths = (self.n.extent, self.length)
            shape = (*tensor.shape[:axis], *lengths, *tensor.shape[axis + 1 :])
            self.cut[tensor] = ir.Tensor(self.names.take(f"{tensor.name}_chunks"), shape)
            others = tuple(
                place if place in find_free(expr) else self.names.take_index(ir.Index("i", extent))
                for place, extent in zip(read.places, tensor.shape, strict=True)
            )
            made = (*others[:axis], self.n, self.c, *others[axis + 1 :])
            whole = ir.Add((ir.Mul((self.length, self.n)), self.c))
            source = ir.Access(tensor, (*others[:axis], whole, *others[axis + 1 :]))
            self.add_view(ir.Equation(ir.Access(self.cut[tensor], made), source), axis)
        before, after = read.places[:axis], read.places[axis + 1 :]
        return ir.Access(self.cut[tensor], (*before, self.n, place, *after))

    def add_view(self, equation: ir.Equation, axis: int) -> None:
        self.before.append(equation)
        self.made.views[equation] = axis

    def make_states(self, slope: ir.Expr, added: ir.Expr) -> None:
        """Define the products D and P of decays in a chunk, and the states E at chunks' ends."""
        name, n, c, s = self.target.tensor.name, self.n, self.c, self.s
        at_end: dict[ir.Expr, ir.Expr] = {c: ir.Add((self.length, ir.MINUS_ONE))}
        self.decay: ir.Expr = ir.Where(ir.Compare(">=", c, s), ir.ONE, ir.ZERO)
        self.kept: ir.Expr = ir.ONE
        decayed: ir.Expr = ir.ONE  # from s + 1 on
        behind: tuple[ir.Expr, ...] = (ir.ONE, ir.Where(ir.Compare(">", c, s), ir.ONE, ir.ZERO))
        if slope is not ir.ONE:
            decayed = self.decay = self.make_products(slope)
            before: dict[ir.Expr, ir.Expr] = {c: ir.Add((c, ir.MINUS_ONE))}
            is_first = ir.Compare("<", before[c], ir.ZERO)
            pairs = (ir.ONE, self.kept), (ir.ZERO, self.decay)
            behind = tuple(ir.Where(is_first, one, substitute(p, before)) for one, p in pairs)
        # The factors of S before the chunk and of values added in it: at t, and at t - 1.
        self.ways = ((self.kept, self.decay), behind)
        ends = self.make_access(f"{name}_ends", (n, *self.state))
        back = ir.Add((n, ir.MINUS_ONE))
        self.start = ir.Where(
            ir.Compare("<", back, ir.ZERO), self.begin, substitute(ends, {n: back})
        )
        decayed = multiply(substitute(decayed, at_end), self.cut_product(added, s))
        new = ir.Reduce("sum", (s,), ir.TRUE, decayed)
        self.add_equation(ends, ir.Add((multiply(substitute(self.kept, at_end), self.start), new)))
        if self.begin is ir.ZERO:  # zeros in front instead of a choice
            self.start = ir.Where(ir.Compare(">=", n, ir.ONE), substitute(ends, {n: back}), ir.ZERO)

    def name_products(self, word: str, slope: ir.Expr, places: tuple[ir.Index, ...]) -> ir.Access:
        """A new tensor for products of `slope` in a chunk; between 0 and 1 if `slope` is."""
        free = find_free(slope)
        lead = (self.n,) if self.index in free else ()
        own = tuple(i for i in self.state if i in free)
        name = f"{self.target.tensor.name}_{word}"
        made = self.make_access(name, (*lead, *places, *own))
        low, high = find_interval(slope, self.made.system)
        upper = ir.ONE if low >= 0 and high <= 1 else None
        lower = ir.ZERO if upper is not None else None
        tensor = replace(made.tensor, lower=lower, upper=upper)
        return replace(made, tensor=tensor)

    def make_products(self, slope: ir.Expr) -> ir.Access:
        """Define the products D and P of decays in a chunk as recurrences; return a read of D."""
        c, s, here = self.c, self.s, self.cut_product(slope, self.c)
        decay = self.name_products("decay", slope, (c, s))
        kept = self.kept = self.name_products("kept", slope, (c,))
        previous: dict[ir.Expr, ir.Expr] = {c: ir.Add((c, ir.MINUS_ONE))}
        one_back, kept_back = (substitute(each, previous) for each in (decay, kept))
        same = ir.Where(ir.Compare("==", c, s), ir.ONE, ir.ZERO)
        decayed = ir.Where(ir.Compare(">", c, s), multiply(here, one_back), ir.ZERO)
        self.add_equation(decay, ir.Add((decayed, same)))
        first = ir.Where(ir.Compare("<", previous[c], ir.ZERO), ir.ONE, kept_back)
        self.add_equation(kept, multiply(here, first))
        self.made.inner |= {decay.tensor, kept.tensor}
        return decay

    def make_access(self, name: str, axes: tuple[ir.Index, ...]) -> ir.Access:
        return ir.name_axes(self.names.take(name), axes)

    def add_equation(self, target: ir.Expr, value: ir.Expr) -> None:
        assert isinstance(target, ir.Access)
        self.before.append(ir.Equation(target, value))

    def make_sum(self, whole: ir.Reduce, added: ir.Expr, order: Sequence[ir.Expr]) -> ir.Access:
        """A read of `whole`, a sum over the recurrence with summand `added`, computed in chunks."""
        body = whole.body
        factors = ir.split_product(body)
        (of,) = (f for f in factors if self.find_read(f) is not None)
        read, is_before = self.find_read(of) or (self.target, False)
        rest = self.cut_product(multiply(*(f for f in factors if f is not of)), self.c)
        places = [p for k, p in enumerate(read.places) if k != self.axis]
        new: dict[ir.Expr, ir.Expr] = dict(zip(self.state, places, strict=True))
        kept, decay, start, here = (
            substitute(each, new)
            for each in (*self.ways[is_before], self.start, self.cut_product(added, self.s))
        )
        carried = ir.Reduce("sum", whole.bound, ir.TRUE, multiply(rest, kept, start))
        own = ir.Reduce("sum", (self.s, *whole.bound), ir.TRUE, multiply(rest, decay, here))
        free = find_free(whole)
        axes: list[ir.Index] = [i for i in order if isinstance(i, ir.Index) and i in free]
        axes += [i for i in free if i not in axes]
        axis = axes.index(self.index)
        others: tuple[ir.Index, ...] = (*axes[:axis], self.n, self.c, *axes[axis + 1 :])
        name = self.target.tensor.name
        made = self.make_access(f"{name}_sum_chunks", others)
        self.add_equation(made, ir.Add((carried, own)))
        joined = self.make_access(f"{name}_sum", tuple(axes))
        places_of: dict[ir.Expr, ir.Expr] = {
            self.n: ir.Call("floordiv", (self.index, self.length)),
            self.c: ir.Call("mod", (self.index, self.length)),
        }
        self.add_view(ir.Equation(joined, substitute(made, places_of)), axis)
        return joined


def _is_cut(read: ir.Expr, index: ir.Index) -> TypeGuard[ir.Access]:
    """Whether a read is of a real tensor, with the index as one of its positions alone."""
    return (
        isinstance(read, ir.Access)
        and read.tensor.kind == "real"
        and read.places.count(index) == 1
        and not any(index in find_free(place) for place in read.places if place is not index)
    )
