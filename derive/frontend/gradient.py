"""The gradients of a formula's results, as a formula: reverse mode over its equations.

    gradient(formula, ["A_K"]) -> a formula of dA_K, whose arguments are the tensors that it
                                  reads and dz, the gradient by each result z

Equations are passed from the last to the first. The gradient by a left side goes down the right
side to each tensor that is read there: through a sum unchanged, through a product times the other
factors, through a function times its row's derivative, through a normalized row by its short form.
A contribution to `T[places]` is summed over all indices in scope that the element of T does not
determine. Where a place is an index or merged indices, they name the element of dT. Else the place
is solved for an index, `x[2*i + k]` at l for `i = (l - k)//2` where that is whole and inside. Else
it is compared, `[t[n] == v]`, as for a gather.

Where a function has no derivative, the choice is torch's: 0 for abs or a norm at 0, equal parts
for the ties of max. Source: Griewank and Walther, Evaluating Derivatives, 2008, chapter 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from derive.analysis.facts import is_whole
from derive.analysis.safety import is_finite
from derive.errors import refuse, refuse_depth
from derive.frontend.arrivals import Flow, choose_places, narrow_flow, place_contribution
from derive.frontend.from_sympy import check_real, to_system
from derive.frontend.from_text import parse
from derive.frontend.torch.exprs import add, divide, multiply, negate_truth, power, subtract
from derive.ir import nodes as ir
from derive.ir.definitions import PLAIN, bind, read_definition, unfold
from derive.ir.functions import EXPONENTIALS, FUNCTIONS, ROWS
from derive.ir.norms import is_norm
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.recurrences import find_groups
from derive.ir.text import to_lines
from derive.ir.walk import (
    find_accesses,
    find_all_indices,
    find_broadcast,
    find_free,
    find_indices,
    find_sizes,
    rename_apart,
    substitute,
    walk,
)
from derive.rewrite.guards import find_nonfinite, find_tensor_needs, mark_tensors
from derive.rewrite.rule import IndexNames, rename_clashes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from derive.notation.formula import Formula


@refuse_depth()
def gradient(formula: Formula, wrt: str | Iterable[str] = (), name: str = "") -> Formula:
    """The formula of the gradients by `wrt`, names of arguments, by default all real tensors.

    For each real result `z[b,i]` it takes `dz[b,i]`, the gradient of the loss with respect to z;
    a single result that is a number is the loss itself. It returns `dX[..]`, of X's shape, for
    each X in the order of `wrt`. The formula is called `name`, else as this one and `_gradient`.

    Raises DeriveError for names that are no real arguments, for results that do not depend on one,
    and for functions without a derivative in the notation.
    """
    system = check_real(to_system(formula))
    wanted = [wrt] if isinstance(wrt, str) else list(wrt)
    tensors = [e.name for e in system.inputs if isinstance(e, ir.Tensor) and _is_real(e)]
    return _parse_gradient(formula, _Reverse(system, wanted or tensors).build_system(), name)


@dataclass(frozen=True, slots=True)
class Backward:
    """The formula of all gradients, with the names of its inputs dz and its results dX."""

    formula: Formula
    given: Mapping[str, str]  # input gradients, keyed by result
    made: Mapping[str, str]  # output gradients, keyed by argument


def find_backward(formula: Formula, system: ir.System | None = None) -> Backward:
    """The formula of the gradients by all real arguments, scalars too, that a result depends on.

    The gradient of each result is an input, even of a number. `system` replaces the formula's own.
    """
    system = check_real(system or to_system(formula))
    wanted = [e.name for e in system.inputs if _is_real(e)]
    reverse = _Reverse(system, wanted, is_backward=True)
    found = _parse_gradient(formula, reverse.build_system(), "")
    return Backward(found, reverse.given, reverse.made)


def _parse_gradient(formula: Formula, made: ir.System, name: str) -> Formula:
    return parse(
        "\n".join(to_lines(made)),
        name or f"{formula.name or 'formula'}_gradient",
        title=f"Gradients of {formula.title or formula.name or 'a formula'}",
        source=formula.source,
        typical=formula.typical,
        empty_row=formula.empty_row,
    )


def _is_real(entry: object) -> bool:
    return not isinstance(entry, ir.Tensor) or entry.kind == "real"


@dataclass
class _Reverse:
    """Reverse mode: one pass over a system's equations, from its results to its arguments."""

    system: ir.System
    wanted: list[str]
    is_backward: bool = False  # as for autograd: gradients of all results and real arguments
    # the reads of each tensor or scalar: their places, and the gradient that arrives there
    arrived: dict[str, list[tuple[tuple[ir.Expr, ...], Flow]]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)  # names of anything but indices
    extents: dict[str, ir.Expr] = field(default_factory=dict)  # extents of indices, by name
    active: set[str] = field(default_factory=set)  # tensors that depend on a wanted argument
    here: ir.Equation | None = None  # the current equation
    passed: dict[str, ir.Expr | None] = field(default_factory=dict)  # gradients of left sides
    backward: list[ir.Equation] = field(default_factory=list)  # equations of gradients
    given: dict[str, str] = field(default_factory=dict)  # names of input gradients, by result
    made: dict[str, str] = field(default_factory=dict)  # names of output gradients, by argument
    values: Mapping[str, ir.Expr] = field(default_factory=dict)  # right sides, no recurrences
    # the condition under which any equation uses an element; elsewhere its gradient is 0
    needed: Mapping[ir.Tensor, ir.Expr] = field(default_factory=dict)
    nonfinite: Mapping[ir.Tensor, ir.Tensor] = field(default_factory=dict)  # by `safety`

    def build_system(self) -> ir.System:
        system = self.system
        inputs = {entry.name: entry for entry in system.inputs}
        for each in self.wanted:
            if each not in inputs or not _is_real(inputs[each]):
                known = ", ".join(n for n, entry in inputs.items() if _is_real(entry))
                raise refuse(
                    "gradient-unknown",
                    f"{each} is no real argument of the formula",
                    help=f"take the gradient by {known}",
                )
        tensors = [*inputs.values(), *(e.target.tensor for e in system.equations)]
        self.taken = {each.name for each in tensors} | set(find_sizes(system))
        self.extents = {index.name: index.extent for index in find_all_indices(system)}
        self.active = set(self.wanted)
        self.needed, self.nonfinite = find_tensor_needs(system), find_nonfinite(system)
        groups = find_groups(system)
        together = {equation: group for group in groups for equation in group}
        self.values = {e.target.tensor.name: e.value for e in system.equations if e not in together}
        for equation in (e for _ in range(1 + bool(groups)) for e in system.equations):
            if any(self.is_active(each.value) for each in together.get(equation, (equation,))):
                self.active.add(equation.target.tensor.name)
        given: list[ir.Tensor | ir.ScalarInput] = []
        whole = {e.target.tensor for e in system.equations if is_whole(Polynomial.of(e.value))}
        if self.is_backward or len(system.results) > 1 or system.results[0].shape:
            for made in (t for t in system.results if self.is_backward or t not in whole):
                self.given[made.name] = name = self.name_gradient(made.name)
                given.append(ir.Tensor(name, made.shape) if made.shape else ir.ScalarInput(name))
        seeds = dict(zip((t for t in system.results if t.name in self.given), given, strict=True))
        passed: set[ir.Equation] = set()
        for equation in reversed(system.equations):
            if equation in together and equation not in passed:
                self.pass_group(together[equation], seeds)
                passed |= {*together[equation]}
            elif equation not in passed:
                self.pass_equation(equation, seeds)
        if self.is_backward:
            self.wanted = [each for each in self.wanted if each in self.arrived]
            if not self.wanted:
                raise _refuse("no result depends on a real argument")
        last = [self.sum_contributions(inputs[each]) for each in self.wanted]
        self.made = {
            each: equation.target.tensor.name
            for each, equation in zip(self.wanted, last, strict=True)
        }
        results = tuple(equation.target.tensor for equation in last)
        return self.drop_unneeded([*system.equations, *self.backward, *last], given, results)

    def name_gradient(self, of: str) -> str:
        """A free name for the gradient of something: `dx` of x, or `dx_` if that is taken."""
        names = (f"d{of}{'_' * k}" for k in count())
        found = next(each for each in names if each not in {*self.taken, *self.extents})
        self.taken.add(found)
        return found

    def rename(self, index: ir.Index, seen: set[str]) -> ir.Index:
        """The index under a name unused in `seen` that has one extent everywhere."""
        others = {n for n, e in self.extents.items() if not is_same_extent(e, index.extent)}
        found = rename_apart(index, seen | others | self.taken)
        self.extents.setdefault(found.name, found.extent)
        return found

    def is_active(self, expr: ir.Expr) -> bool:
        """Whether the expression depends on a wanted argument."""
        return any(
            (isinstance(part, ir.Access) and part.tensor.name in self.active)
            or (isinstance(part, ir.Scalar) and part.name in self.active)
            for part in walk(expr)
        )

    def pass_equation(
        self, equation: ir.Equation, given: Mapping[ir.Tensor, ir.Tensor | ir.ScalarInput]
    ) -> None:
        """Add the equation of a left side's gradient, and carry it down the right side."""
        target = equation.target
        tensor = target.tensor
        if tensor.name not in self.active:
            return
        value = self.find_seed(target, given)
        if tensor.name in self.arrived:
            if value is not None:
                flow = Flow(value, find_free(target))
                self.arrived[tensor.name].insert(0, (target.places, flow))
            self.backward.append(self.sum_contributions(tensor))
            value = ir.Access(self.backward[-1].target.tensor, target.places)
        self.passed[tensor.name] = value
        if value is not None:
            self.carry_equation(equation, value)

    def find_seed(
        self, target: ir.Access, given: Mapping[ir.Tensor, ir.Tensor | ir.ScalarInput]
    ) -> ir.Expr | None:
        """The gradient of a result: as `given`, or 1 of the loss itself; None if no result."""
        if target.tensor not in self.system.results:
            return None
        seed = given.get(target.tensor)
        if isinstance(seed, ir.Tensor):
            return ir.Access(seed, target.places)
        return ir.ONE if seed is None else ir.Scalar(seed.name)

    def pass_group(
        self, group: Sequence[ir.Equation], given: Mapping[ir.Tensor, ir.Tensor | ir.ScalarInput]
    ) -> None:
        """Add the equations of the gradients of a recurrence, and carry them down the right sides.

        They are named before they are computed, because they depend on each other.
        """
        passed = [e for e in reversed(group) if e.target.tensor.name in self.active]
        for target in (equation.target for equation in passed):
            seed = self.find_seed(target, given)
            if seed is not None:
                flow = Flow(seed, find_free(target))
                self.arrived.setdefault(target.tensor.name, []).insert(0, (target.places, flow))
        if not any(equation.target.tensor.name in self.arrived for equation in passed):
            return
        begun: list[tuple[int, ir.Access]] = []
        for equation in passed:
            tensor, places = equation.target.tensor, equation.target.places
            made = ir.Access(ir.Tensor(self.name_gradient(tensor.name), tensor.shape), places)
            begun.append((len(self.backward), made))
            self.carry_equation(equation, made)
        for equation, (at, made) in reversed([*zip(passed, begun, strict=True)]):
            self.backward.insert(at, self.sum_contributions(equation.target.tensor, made))

    def rename_apart(
        self, indices: Sequence[ir.Index], seen: Iterable[ir.Expr], *parts: ir.Expr
    ) -> tuple[tuple[ir.Index, ...], list[ir.Expr]]:
        """(the indices under names unused in `seen`, the parts with the renamed indices)."""
        taken = {index.name for part in seen for index in find_indices(part)}
        new: dict[ir.Expr, ir.Index] = {}
        for index in indices:
            new[index] = made = self.rename(index, taken)
            taken.add(made.name)
        return tuple(new.values()), [substitute(part, new) for part in parts]

    def freshen(
        self, indices: Sequence[ir.Index], *parts: ir.Expr
    ) -> tuple[tuple[ir.Index, ...], list[ir.Expr]]:
        """Fresh copies of the indices, and the parts over them; for a sum beside the originals."""
        return self.rename_apart(indices, (*parts, *indices), *parts)

    def read_left_side(self, expr: ir.Expr) -> ir.Expr:
        """The left side of the current equation if the expression is its right side; else itself.

        A left side with an index that the right side lacks is not taken.
        """
        here = self.here
        if here is None or expr is not here.value or find_broadcast(here):
            return expr
        return here.target

    def carry_equation(self, equation: ir.Equation, value: ir.Expr) -> None:
        """Carry a left side's gradient down the right side.

        It is 0 where the left side is not needed, even if a factor is infinite there.
        """
        self.here = equation
        flow = Flow(value, find_free(equation.target))
        if not is_finite(mark_tensors(equation.value, self.nonfinite)):
            flow = flow.where(*ir.split_and(self.needed[equation.target.tensor]))
        self.carry(equation.value, flow)

    def carry(self, expr: ir.Expr, flow: Flow) -> None:
        """Carry an expression's gradient down to the tensors that it reads."""
        if flow.value is ir.ZERO or not self.is_active(expr):
            return
        if isinstance(expr, (ir.Along, ir.Call, ir.Pow)) or getattr(expr, "kind", "sum") != "sum":
            flow = narrow_flow(flow, expr)
        match expr:
            case ir.Access(tensor, places):
                self.arrived.setdefault(tensor.name, []).append((places, flow))
            case ir.Scalar(name):
                self.arrived.setdefault(name, []).append(((), flow))
            case ir.Add(terms):
                for term in terms:
                    self.carry(term, flow)
            case ir.Mul(factors):
                for k, factor in enumerate(factors):
                    self.carry(factor, flow.times(*factors[:k], *factors[k + 1 :]))
            case ir.Pow(ir.Pow(base, ir.Number(one)), ir.Number(two)) if two == -1:
                self.carry(ir.Pow(base, ir.Number(one * two)), flow)
            case ir.Pow(ir.Mul(factors), ir.Number(number)) if number.denominator == 1:
                self.carry(multiply(*(power(each, expr.exponent) for each in factors)), flow)
            case ir.Pow(base, exponent):
                slope = multiply(exponent, power(base, add(exponent, ir.MINUS_ONE)))
                zero = base if isinstance(exponent, ir.Number) else exponent
                if zero is exponent or is_norm(expr, self.values):  # 0 where the base is 0
                    slope = ir.Where(ir.Compare("==", zero, ir.ZERO), ir.ZERO, slope)
                self.carry(base, flow.times(slope))
                self.carry(exponent, flow.times(self.read_left_side(expr), ir.Call("log", (base,))))
            case ir.Where(condition, then, other):
                self.carry(then, flow.where(condition))
                self.carry(other, flow.where(ir.Not(condition)))
            case ir.Call():
                self.carry_call(expr, flow)
            case ir.Reduce():
                self.carry_reduction(expr, flow)
            case ir.Along():
                self.carry_along(expr, flow)

    def carry_call(self, call: ir.Call, flow: Flow) -> None:
        row = FUNCTIONS.get(call.function)
        arguments = call.arguments
        if row is not None and row.is_variadic:
            sign = ">=" if call.function == "max" else "<="  # of the result to other arguments
            pairs = [[ir.Compare(sign, a, b) for b in arguments if b != a] for a in arguments]
            best = [ir.all_of(*each) for each in pairs]
            alike = (ir.Where(each, ir.ONE, ir.ZERO) for each in best)
            share = flow.times(power(add(*alike), ir.MINUS_ONE))
            for each, is_best in zip(arguments, best, strict=True):
                self.carry(each, share.where(is_best))
            return
        slopes = row.derivative.split(";") if row is not None and row.derivative else []
        if row is not None and not any(map(self.is_active, arguments[len(slopes) :])) and slopes:
            values = bind(row, arguments, PLAIN)
            for slope, argument in zip(slopes, arguments, strict=False):
                self.carry(argument, flow.times(read_definition(slope.strip(), values, PLAIN)))
            return
        opened = unfold(call)
        if opened is None:
            raise _refuse(f"{call.function} has no derivative in the notation")
        self.carry(opened, flow)

    def carry_reduction(self, expr: ir.Reduce, flow: Flow) -> None:
        # The bound indices come into scope, under names of their own.
        seen = (*flow.indices, flow.value, *flow.conditions)
        bound, (condition, body) = self.rename_apart(expr.bound, seen, expr.condition, expr.body)
        inner = replace(flow, indices=(*flow.indices, *bound)).where(condition)
        again, (where, other) = self.freshen(bound, condition, body)
        reduce = partial(ir.Reduce, bound=again, condition=where)
        result = self.read_left_side(expr)
        match expr.kind:
            case "sum":
                self.carry(body, inner)
            case "mean":
                self.carry(body, inner.times(power(_count_values(again, where), ir.MINUS_ONE)))
            case "var" | "sample_var":
                number = _count_values(again, where)
                off = subtract(body, reduce(kind="mean", body=other))
                under = number if expr.kind == "var" else add(number, ir.MINUS_ONE)
                slope = divide(multiply(ir.Number(Fraction(2)), off), under)
                self.carry(body, inner.times(slope))
            case "max" | "min":
                ties = reduce(
                    kind="sum", body=ir.Where(ir.Compare("==", other, result), ir.ONE, ir.ZERO)
                )
                shares = inner.times(power(ties, ir.MINUS_ONE))
                self.carry(body, shares.where(ir.Compare("==", body, result)))
            case "logsumexp":
                self.carry(body, inner.times(ir.Call("exp", (subtract(body, result),))))
            case "prod":
                same = [ir.Compare("==", a, b) for a, b in zip(again, bound, strict=True)]
                rest = ir.Reduce(
                    "prod", again, ir.all_of(where, negate_truth(ir.all_of(*same))), other
                )
                self.carry(body, inner.times(rest))
            case "argmax":
                return
            case "det" | "logdet":
                turned: dict[ir.Expr, ir.Expr] = dict(zip(again, reversed(bound), strict=True))
                inverse = substitute(
                    ir.Along("inverse", again[0], ir.TRUE, other, again[1]), turned
                )
                self.carry(body, inner.times(inverse, *((result,) if expr.kind == "det" else ())))
            case kind:
                raise _refuse(f"{kind} has no derivative in the notation")

    def carry_along(self, expr: ir.Along, flow: Flow) -> None:
        index, made = expr.index, self.read_left_side(expr)
        if expr.kind == "inverse":
            self.carry_inverse(expr, flow)
            return
        own = [each for each in flow.conditions if index in find_free(each)]
        if own and not ROWS[expr.kind].is_linear:  # the row depends on the gradient elsewhere too
            rest = tuple(each for each in flow.conditions if each not in own)
            given = ir.Where(ir.all_of(*own), flow.value, ir.ZERO)
            flow = replace(flow, value=given, conditions=rest)
        inner = flow.where(expr.condition)
        (other,), (value, there, where, held) = self.freshen(
            (index,), flow.value, made, expr.condition, ir.all_of(*flow.conditions)
        )
        over = partial(ir.Reduce, "sum", (other,), ir.all_of(where, held))
        row = ROWS[expr.kind]
        match expr.kind:
            case _ if row.normalizes:
                total = self.find_total(expr) if self.is_backward else None
                total = over(multiply(value, there)) if total is None else total
                value = multiply(made, subtract(flow.value, total))
            case _ if row.ignores_shift:
                raised: ir.Expr = ir.Call("exp", (made,))
                if made is expr:
                    raised = ir.Along(EXPONENTIALS[expr.kind], index, expr.condition, expr.body)
                value = subtract(flow.value, multiply(raised, over(value)))
            case _ if row.is_linear:
                later = ir.all_of(ir.Compare(">=", other, index), held)
                value = ir.Reduce("sum", (other,), later, value)
                inner = replace(inner, conditions=())
            case kind:
                raise _refuse(f"{kind} has no derivative in the notation")
        self.carry(expr.body, self.name_flow(replace(inner, value=value), expr.body))

    def find_total(self, expr: ir.Along) -> ir.Expr | None:
        """sum_j dp_j * p_j of a softmax p, computed without p; None if a reader is not linear.

        Where z[i,e] = sum[j](p[i,j] * V[j,e]) it is sum[e](dz[i,e] * z[i,e]).
        """
        assert self.here is not None
        named = self.here.target.tensor if expr is self.here.value else None
        if named is not None and named in self.system.results:
            return None
        terms: list[ir.Expr] = []
        for reader in self.system.equations if named is not None else (self.here,):
            reads = [a for a in find_accesses(reader.value) if a.tensor is named]
            if named is not None and not reads:
                continue
            part: ir.Expr = reads[0] if reads else expr
            own = self.here.target.places if reads else find_free(expr)
            places = reads[0].places if reads else own
            target = reader.target
            new = dict(zip(places, own, strict=True))
            rows = [place for place, index in new.items() if index is not expr.index]
            free = find_free(target)
            if (
                any(each is not part for each in reads)
                or reader.target.tensor.name not in self.passed
                or len(new) < len(own)
                or not all(isinstance(place, ir.Index) for place in (*places, *own))
                or not set(rows) <= {*free}
                or len(rows) == len(places)
                or set(free) & (set(places) - {*rows})
                or not _is_linear(reader.value, part)
            ):
                return None
            value = self.passed[target.tensor.name]
            if value is not None:
                more = tuple(index for index in free if index not in rows)
                seen = (*own, *free)
                bound, (value, made) = self.rename_apart(more, seen, value, target)
                shown = multiply(substitute(value, new), substitute(made, new))
                terms.append(ir.sum_over(bound, shown))
        return add(*terms) if terms else None

    def carry_inverse(self, expr: ir.Along, flow: Flow) -> None:
        """Carry - sum[p, q](Y[p, i] * g[p, q] * Y[j, q]) to A[i, j], for the inverse Y."""
        made = self.read_left_side(expr)
        rows, columns = expr.indices
        (p, q), (given, held) = self.freshen(expr.indices, flow.value, ir.all_of(*flow.conditions))
        left = substitute(made, {rows: p, columns: rows})
        right = substitute(made, {rows: columns, columns: q})
        value = ir.Reduce("sum", (p, q), held, multiply(ir.MINUS_ONE, left, given, right))
        inner = replace(flow, value=value, conditions=())
        self.carry(expr.body, self.name_flow(inner, expr.body))

    def name_flow(self, flow: Flow, expr: ir.Expr) -> Flow:
        """The flow, read from an equation of its own if several reads in `expr` receive it."""
        reads = [part for part in find_accesses(expr) if part.tensor.name in self.active]
        assert self.here is not None
        if len(reads) < 2 or flow.conditions or set(find_free(flow.value)) - set(flow.indices):
            return flow
        made = ir.name_axes(self.name_gradient(f"{self.here.target.tensor.name}_in"), flow.indices)
        self.backward.append(ir.Equation(made, flow.value))
        return replace(flow, value=made)

    def sum_contributions(
        self, entry: ir.Tensor | ir.ScalarInput, target: ir.Access | None = None
    ) -> ir.Equation:
        """The equation `target = sum of contributions` of a gradient; DeriveError without any."""
        name = entry.name
        shape = entry.shape if isinstance(entry, ir.Tensor) else ()
        arrived = self.arrived.pop(name, [])
        if not arrived:
            raise refuse(
                "gradient-none",
                f"no result depends on {name}",
                help="leave it out of the arguments by which the gradient is taken",
            )
        if target is None:
            places = choose_places(shape, [places for places, _ in arrived], self.rename)
            target = ir.Access(ir.Tensor(self.name_gradient(name), shape), places)
        terms = [
            place_contribution(read_at, flow, target.places, shape, self.rename)
            for read_at, flow in arrived
        ]
        return ir.Equation(target, add(*terms))

    def drop_unneeded(
        self,
        equations: list[ir.Equation],
        given: list[ir.Tensor | ir.ScalarInput],
        results: tuple[ir.Tensor, ...],
    ) -> ir.System:
        """The system of the equations that the results depend on, with those `given` read there."""
        needed = {tensor.name for tensor in results}
        kept: list[ir.Equation] = []
        numbers: set[str] = set()
        while len(kept) < len(kept := [e for e in equations if e.target.tensor.name in needed]):
            needed |= {a.tensor.name for each in kept for a in find_accesses(each.value)}
            numbers |= {p.name for e in kept for p in walk(e.value) if isinstance(p, ir.Scalar)}
        inputs = [*self.system.inputs, *given]
        used = tuple(e for e in inputs if isinstance(e, ir.Tensor) or e.name in numbers)
        made = replace(self.system, inputs=used, equations=tuple(kept), results=results, written=())
        settled = tuple(IndexNames(made).rename_bound(e) for e in kept)
        return rename_clashes(replace(made, equations=settled), self.system)


def _is_linear(expr: ir.Expr, part: ir.Expr) -> bool:
    """Whether the expression is a multiple of the part, or a sum of multiples."""
    match expr:
        case _ if expr is part:
            return True
        case ir.Add(terms):
            return all(_is_linear(term, part) for term in terms)
        case ir.Mul(factors):
            own = [factor for factor in factors if part in walk(factor)]
            return len(own) == 1 and _is_linear(own[0], part)
        case ir.Reduce("sum", _, condition, body):
            return part not in walk(condition) and _is_linear(body, part)
        case ir.Where(condition, then, other) if other is ir.ZERO:
            return part not in walk(condition) and _is_linear(then, part)
    return False


def _refuse(says: str) -> Exception:
    return refuse("gradient-none", says, help="write it by functions that have one")


def _count_values(indices: Sequence[ir.Index], condition: ir.Expr) -> ir.Expr:
    """The number of values of the indices for which the condition holds."""
    if condition is ir.TRUE:
        return multiply(*(index.extent for index in indices))
    return ir.Reduce("sum", tuple(indices), condition, ir.ONE)
