"""Guards moved inward: a value that is used only under a condition is made finite elsewhere.

where(c, 1/x, 0)  evaluates  1/where(c, x, 1)  instead of 1/x, so that neither the value nor the
gradient of the other branch can be nan. A value is harmless if it and its gradient are finite.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain, product
from typing import TypeAlias

from derive.analysis import facts, safety
from derive.analysis.extents import to_key
from derive.ir import functions, polynomial
from derive.ir import nodes as ir
from derive.ir.recurrences import find_groups
from derive.ir.walk import (
    exchange_reads,
    find_accesses,
    find_free,
    map_children,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.rewrite.needs import find_need

# The harmless argument for each function that may be infinite: in its gradient, 0 * inf is nan.
HARMLESS = {
    name: ir.Number(Fraction(row.inside))
    for name, row in functions.FUNCTIONS.items()
    if row.is_partial and len(row.tensors) == 1
}
_GUARDS = {ir.ONE, *HARMLESS.values()}


@dataclass(frozen=True, slots=True)
class Protector:
    """Rewrites values to be harmless where they are not used.

    With `zeros`, an empty row is 0. Values with keys in `needed` are computed without a guard
    elsewhere in the system, so they are left as they are.
    """

    zeros: bool = False
    needed: Collection[ir.Expr] = ()

    def protect(self, expr: ir.Expr, condition: ir.Expr, *, as_divisor: bool = False) -> ir.Expr:
        """The expression without an infinity or nan where the condition is false.

        The arguments of partial functions become 1 there, or another number at which they are
        finite. With `as_divisor`, so does the expression itself. A part that may still be infinite,
        or nan as an empty row is, becomes 1 wherever a gradient is multiplied by it.
        """
        asked = ir.Pow(expr, ir.MINUS_ONE) if as_divisor else expr  # a divisor may be 0
        if condition is ir.TRUE or (self._is_finite(asked) and not _may_overflow(expr)):
            return expr
        condition = find_need(condition, expr)
        if condition is ir.TRUE or is_guarded(expr, condition) or not _depends_on(asked, condition):
            return expr
        if self._is_needed(expr, asked) or isinstance(expr, ir.TRUTHS):
            return expr  # truth values have no gradient; guards are found by them

        inner = _drop_bound(condition, expr)
        inside = map_children(expr, lambda child: self.protect(child, inner))
        match inside:
            case ir.Pow(base, exponent) if not is_natural(exponent):
                exponent = self.guard_needed(exponent, condition)
                if not self._is_positive_there(base, condition):
                    base = _guard(base, condition)
                inside = ir.Pow(base, exponent)
            case ir.Call(function, (argument,)) if function in HARMLESS and not self.is_harmless(
                inside, condition
            ):
                harmless = HARMLESS[function]
                if harmless is not ir.ONE or not self._is_positive_there(argument, condition):
                    argument = _guard(argument, condition, harmless)
                inside = ir.Call(function, (argument,))
            case ir.Mul(factors) if sum(map(is_variable, factors)) < 2:
                pass
            case ir.Mul() | ir.Pow() | ir.Call():
                inside = map_children(inside, lambda child: self.guard_needed(child, condition))
            case ir.Reduce("sample_var") if inner is not ir.TRUE:  # 0 / 0 for a row of one entry
                inside = replace(inside, body=_guard(inside.body, inner))
            case ir.Reduce(kind) | ir.Along(kind) if functions.ROWS[kind].is_matrix:
                return expr  # a guard would change the matrix, and a matrix of ones has no inverse
            case ir.Reduce(kind) | ir.Along(kind) if not functions.ROWS[kind].is_linear:
                inside = replace(inside, body=self.guard_needed(inside.body, inner))
        is_divisor = as_divisor and not self._is_positive_there(inside, condition)
        return _guard(inside, condition) if is_divisor else inside

    def guard_needed(self, expr: ir.Expr, condition: ir.Expr) -> ir.Expr:
        """A protected expression, or 1 where it is not needed and may be infinite."""
        return self.guard_unless_finite(expr, find_need(condition, expr))

    def guard_unless_finite(self, expr: ir.Expr, condition: ir.Expr) -> ir.Expr:
        """A protected expression, or 1 where the condition is false and it may be infinite."""
        if condition is ir.TRUE or not _depends_on(expr, condition):
            return expr
        return expr if self.is_harmless(expr, condition) else _guard(expr, condition)

    def is_harmless(self, expr: ir.Expr, condition: ir.Expr) -> bool:
        """Whether a protected expression is finite where the condition is false."""
        return self._is_finite(self._simplify_outside(expr, condition))

    def _is_finite(self, expr: ir.Expr) -> bool:
        return safety.is_finite(expr, zeros=self.zeros)

    def _is_needed(self, expr: ir.Expr, asked: ir.Expr) -> bool:
        """Whether a function or a power is computed without a guard elsewhere in the system."""
        is_read = isinstance(expr, (ir.Call, ir.Pow)) and bool(self.needed)
        return is_read and to_key(asked)[0] in self.needed

    def _simplify_outside(
        self, expr: ir.Expr, condition: ir.Expr, *, is_finite: bool = True
    ) -> ir.Expr:
        """A protected expression simplified under the assumption that the condition is false.

        `is_finite`: parts that are computed in any case are finite numbers there.
        """
        if condition is ir.TRUE:
            return expr
        condition, is_unknown = find_need(condition, expr), is_finite and is_variable(expr)
        if condition is ir.TRUE:
            return _make_unknown(expr) if is_unknown else expr
        if isinstance(expr, ir.Where) and is_guarded(expr, condition):
            return ir.ONE
        if is_unknown and (not _depends_on(expr, condition) or self._is_needed(expr, expr)):
            return _make_unknown(expr)
        if isinstance(expr, ir.Access):
            return expr
        ask = partial(self._simplify_outside, condition=condition, is_finite=is_finite)
        return map_children(expr, ask)

    def _is_positive_there(self, expr: ir.Expr, condition: ir.Expr) -> bool:
        """Whether a protected expression is a positive number where the condition is false."""
        opened = self._simplify_outside(expr, condition, is_finite=False)
        return not is_variable(opened) and not find_free(opened) and facts.is_positive(opened)


def _drop_bound(condition: ir.Expr, expr: ir.Expr) -> ir.Expr:
    """The parts of the condition without bound indices: a row is read at all of its entries."""
    if not isinstance(expr, (ir.Reduce, ir.Along)):
        return condition
    parts = ir.split_and(condition)
    return ir.all_of(*(p for p in parts if not {*expr.indices} & {*find_free(p)}))


def find_number(expr: ir.Expr, condition: ir.Expr) -> Fraction | None:
    """The number that a protected expression is where the condition is false; None if it varies."""

    def replace_known(here: ir.Expr) -> ir.Expr:
        match here:
            case ir.Pow(ir.Number(base), _) if base == 1:
                return ir.ONE
            case ir.Call("log", (ir.Number(argument),)) if argument == 1:
                return ir.ZERO
            case ir.Where(asked, _, other) if asked is condition and other in _GUARDS:
                return other
        return here

    return polynomial.Polynomial.of(rewrite_bottom_up(expr, replace_known)).constant


def _make_unknown(expr: ir.Expr) -> ir.Expr:
    """An unknown finite number with the sign of the expression."""
    sign = facts.find_sign(expr)
    lower = ir.ZERO if sign is facts.Sign.NEVER_NEGATIVE else None
    number = ir.Access(ir.Tensor("#", (), lower=lower), ())
    return ir.ONE if sign is facts.Sign.POSITIVE else number


def find_needed(
    system: ir.System, conditions: Mapping[ir.Tensor, ir.Expr] | None = None
) -> frozenset[ir.Expr]:
    """The keys of functions and powers that are needed at all indices, by `to_key`.

    A tensor is needed under its condition in `conditions`, or everywhere without one.
    """
    found: dict[ir.Expr, dict[ir.Expr, None]] = {}
    known = conditions or {}
    stack = [(each.value, known.get(each.target.tensor, ir.TRUE)) for each in system.equations]
    while stack:
        here, where = stack.pop()
        around = find_need(where, here)
        if isinstance(here, (ir.Call, ir.Pow)):
            key, free = to_key(here)
            plain: dict[ir.Expr, ir.Expr] = dict(zip(free, find_free(key), strict=True))
            found.setdefault(key, {})[substitute(around, plain)] = None
        match here:
            case ir.Access() | ir.Compare():
                pass
            case ir.Where(condition, then, other):
                stack.append((then, ir.all_of(around, condition)))
                stack.append((other, ir.all_of(around, ir.negate(condition))))
            case ir.Reduce(_, _, condition, body) | ir.Along(_, _, condition, body):
                stack.append((body, ir.all_of(around, condition)))
            case _:
                parts = here.children
                guards = [p.condition for p in parts if isinstance(p, ir.Where)]
                inner = ir.all_of(around, *guards) if isinstance(here, ir.Mul) else around
                stack.extend((part, inner) for part in parts)
    return frozenset(key for key, where in found.items() if _unite_conditions(where) is ir.TRUE)


def _may_overflow(expr: ir.Expr) -> bool:
    """Whether a power with a variable exponent is inside."""
    powers = (part.exponent for part in walk(expr) if isinstance(part, ir.Pow))
    return not all(isinstance(exponent, ir.Number) for exponent in powers)


def is_variable(expr: ir.Expr) -> bool:
    """Whether the expression reads a tensor or a scalar, which may have a gradient."""
    return any(isinstance(part, (ir.Access, ir.Scalar)) for part in walk(expr))


def is_count(expr: ir.Expr) -> bool:
    """Whether the expression reads values in conditions alone."""
    if isinstance(expr, ir.Access):
        return expr.tensor.kind == "bool"
    is_scalar = isinstance(expr, ir.Scalar)
    return isinstance(expr, ir.TRUTHS) or (not is_scalar and all(map(is_count, expr.children)))


def _depends_on(expr: ir.Expr, condition: ir.Expr) -> bool:
    """Whether the expression may be nan or infinite just where the condition is false.

    Then it reads tensors, scalars in the condition, or scalars at indices of the condition. Other
    scalars do not depend on the condition, nor do finite numbers made of positions and sizes.
    """
    if find_accesses(expr):
        return True
    scalars = {part for part in walk(expr) if isinstance(part, ir.Scalar)}
    compared = scalars & set(walk(condition))
    if compared or (scalars and set(find_free(expr)) & set(find_free(condition))):
        return True
    return not scalars and not safety.is_finite(expr)


def is_natural(exponent: ir.Expr) -> bool:
    """Whether the exponent is an integer >= 0."""
    value = exponent.value if isinstance(exponent, ir.Number) else Fraction(-1)
    return value >= 0 and value.denominator == 1


def _guard(expr: ir.Expr, condition: ir.Expr, harmless: ir.Expr = ir.ONE) -> ir.Expr:
    """where(condition, expr, harmless), merged with such a guard around the expression."""
    match expr:
        case _ if is_guarded(expr, condition):
            return expr
        case ir.Where(inner, then, other) if other is harmless:
            return ir.Where(ir.all_of(inner, condition), then, other)
    return ir.Where(condition, expr, harmless)


def is_guarded(expr: ir.Expr, condition: ir.Expr) -> bool:
    """Whether nested guards around the expression include this condition."""
    asked = {*ir.split_and(condition)}
    while isinstance(expr, ir.Where) and expr.other in _GUARDS:
        if asked <= {*ir.split_and(expr.condition)}:
            return True
        expr = expr.then
    return False


# Guards moved through definitions: a tensor that is read only where a condition holds.
#
#     r[i,j] = sqrt(s[i,j]); z = sum[i, j, i < j](1 / r[i,j])
#
# reads r above the diagonal alone, so the definition of r is protected by i < j: on the diagonal
# the gradient of the root is infinite, and 0 * inf is nan.


Read: TypeAlias = tuple[ir.Access, safety.Guards]


def carry_guards(system: ir.System) -> ir.System:
    """The system with each definition protected by the condition under which it is needed."""
    nonfinite, conditions = find_nonfinite(system), find_tensor_needs(system)
    zeros = system.empty_row == "zeros"
    protector, plain = Protector(zeros, find_needed(system, conditions)), Protector(zeros)
    valued = _find_valued(system)
    equations = []
    for equation in system.equations:
        value, tensor = equation.value, equation.target.tensor
        if tensor.name not in system.finite and tensor in valued:
            value = mark_tensors(value, nonfinite)
            is_defined = safety.is_finite_where_defined(value)
            value = protector.protect(value, conditions[tensor])
            is_harmful = not is_defined or not plain.is_harmless(value, conditions[tensor])
            value = unmark_tensors(value, nonfinite)
            if not is_harmful:
                nonfinite.pop(tensor, None)  # finite at all needed entries
        equations.append(ir.Equation(equation.target, value))
    return replace(system, equations=tuple(equations))


def _find_valued(system: ir.System) -> set[ir.Tensor]:
    """The tensors that are read outside of conditions, so that they may have a gradient."""
    values = {equation.target.tensor: equation.value for equation in system.equations}
    found, waiting = {*system.results}, [values[tensor] for tensor in system.results]
    while waiting:
        here = waiting.pop()
        if isinstance(here, ir.Access) and here.tensor not in found and here.tensor in values:
            found.add(here.tensor)
            waiting.append(values[here.tensor])
        waiting += () if isinstance(here, ir.TRUTHS) else here.children
    return found


def mark_harmful(system: ir.System) -> ir.System:
    """The system with tensors marked that may be infinite or nan at unneeded entries."""
    conditions, bound = (find_tensor_needs(system), partial(_bound_value, _find_compared(system)))
    harmful, protector = dict[ir.Tensor, ir.Tensor](), Protector(system.empty_row == "zeros")
    equations: list[ir.Equation] = []
    for equation in system.equations:
        value, tensor = mark_tensors(equation.value, harmful), equation.target.tensor
        known = rewrite_bottom_up(value, bound)
        if not protector.is_harmless(known, conditions[tensor]):
            harmful[tensor] = replace(tensor, upper=ir.Infinity(False))
        equations.append(ir.Equation(equation.target, value))
    return replace(system, equations=tuple(equations))


def find_tensor_needs(system: ir.System) -> dict[ir.Tensor, ir.Expr]:
    """The condition under which each defined tensor is needed, over the indices of its definition.

    A result is needed everywhere. Another tensor is needed where a needed equation reads it.
    """
    found: dict[ir.Tensor, ir.Expr] = dict.fromkeys(system.results, ir.TRUE)
    defined = {equation.target.tensor: k for k, equation in enumerate(system.equations)}
    reads: dict[ir.Tensor, list[Read]] = {tensor: [] for tensor in defined}
    for place, equation in reversed(list(enumerate(system.equations))):
        target = equation.target
        undefined = {tensor for tensor, k in defined.items() if k >= place}
        where = [
            _transfer_guards(around, read, target, undefined)
            for read, around in reads[target.tensor]
        ]
        needed = found.setdefault(target.tensor, _unite_conditions(dict.fromkeys(where)))
        own: dict[ir.Tensor, list[Read]] = {}
        outer = () if needed is ir.TRUE else (needed,)
        for access, around in safety.find_reads(equation.value, outer):
            own.setdefault(access.tensor, []).append((access, around))
        for tensor in own.keys() & defined.keys():
            reads[tensor] = own[tensor] + reads[tensor]
    return found


def _unite_conditions(conditions: Collection[ir.Expr]) -> ir.Expr:
    """The disjunction of conditions, where `a and c` or `a and not c` is `a`."""
    found = {each: {*ir.split_and(each)} for each in conditions or (ir.TRUE,)}
    before = 0
    while before < (before := len(found)):
        for one, other in product(tuple(found), repeat=2):
            ruled = found[other] - found[one]
            denied = {*map(ir.negate, ruled)}
            asked = [p for p in found[one] if ruled == {ir.negate(p)} or denied == {p}]
            if asked:
                both = ir.all_of(*(p for p in ir.split_and(one) if p not in asked))
                found[both] = {*ir.split_and(both)}
    least = dict(found)
    for each, own in found.items():
        implied = own.union(*map(_find_implied, own))
        if any(other <= implied for one, other in least.items() if one is not each):
            del least[each]
    return ir.TRUE if ir.TRUE in found else ir.any_of(*least)


def _find_implied(condition: ir.Expr) -> set[ir.Expr]:
    """`i != j` and `j != i` for a condition `f(i) != f(j)`, which implies them; else nothing."""
    match condition:
        case ir.Compare("!=", left, right) if not isinstance(left, ir.Index):
            pairs = product(find_free(left), find_free(right))
            return {
                ir.Compare("!=", *ends)
                for one, other in pairs
                if one is not other and substitute(left, {one: other}) is right
                for ends in ((one, other), (other, one))
            }
    return set()


def _transfer_guards(
    guards: safety.Guards, access: ir.Access, target: ir.Access, undefined: Collection[ir.Tensor]
) -> ir.Expr:
    """A read's guards over `target`'s indices, without tensors defined later; TRUE for none."""
    new: dict[ir.Expr, ir.Expr] = {}
    for here, there in zip(access.places, target.places, strict=True):
        if not isinstance(here, ir.Index) or not isinstance(there, ir.Index) or here in new:
            return ir.TRUE
        if not polynomial.is_same_extent(here.extent, there.extent):
            return ir.TRUE
        new[here] = there
    kept = [
        substitute(part, new)
        for guard in guards
        for part in ir.split_and(guard)
        if set(find_free(part)) <= set(new)
        and not any(read.tensor in undefined for read in find_accesses(part))
    ]
    return ir.all_of(*kept)


# Tensors that may not be finite.


def find_nonfinite(system: ir.System, *, signs: bool = False) -> dict[ir.Tensor, ir.Tensor]:
    """The tensors that may be infinite or nan, each with a marked copy.

    `signs`: nonnegative tensors are included, with a lower bound on the copy. Recurrences are
    decided by a fixed point: all equations are tried again until no tensor is added.
    """
    inputs = [entry for entry in system.inputs if isinstance(entry, ir.Tensor)]
    found = {  # inputs that an earlier loop computed are marked already
        replace(tensor, lower=None, upper=None): tensor
        for tensor in inputs
        if isinstance(tensor.upper, ir.Infinity)
    }
    recurs, bound = bool(find_groups(system)), partial(_bound_value, _find_compared(system))
    while True:
        known = dict(found)
        for equation in system.equations:
            value, tensor = mark_tensors(equation.value, found), equation.target.tensor
            value = rewrite_bottom_up(value, bound)
            is_bounded, is_known = safety.is_finite(value), safety.is_finite_where_defined(value)
            sign = facts.find_sign(value) if signs and is_known else facts.Sign.UNKNOWN
            if (is_bounded and not sign) or tensor.name in system.finite:
                continue
            lower = (ir.ZERO if sign else None) if is_known else ir.MINUS_INFINITY
            upper = None if is_bounded else ir.Infinity(False)
            kept = (tensor.name, tensor.shape, tensor.kind, tensor.below)
            found[tensor] = ir.Tensor(*kept, lower, upper, (sign is facts.Sign.POSITIVE, False))
        if not recurs or found == known:
            return found


def _find_compared(system: ir.System) -> set[ir.Expr]:
    """The scalars in conditions, apart from those in divisors and other powers without tensors."""
    found: set[ir.Expr] = set()
    values = chain.from_iterable(walk(equation.value) for equation in system.equations)
    waiting: list[ir.Expr] = [part for part in values if isinstance(part, ir.Compare)]
    while waiting:
        here = waiting.pop()
        found |= {here} if isinstance(here, ir.Scalar) else set()
        is_divisor = isinstance(here, ir.Pow) and not find_accesses(here)
        waiting += () if is_divisor else here.children
    return found


def _bound_value(compared: set[ir.Expr], expr: ir.Expr) -> ir.Expr:
    """A power's base, finite where the power is, or an unknown number for scalars; else `expr`.

    A scalar in a divisor is assumed to be other than 0, unless a condition compares it.
    """
    match expr:
        case ir.Pow(base, ir.Number(power)) if power > 0 and facts.is_never_negative(base):
            return base
        case ir.Pow(base, ir.Number()) if is_variable(base) and not find_accesses(base):
            return expr if compared & {*walk(base)} else _make_unknown(expr)
    return expr


def mark_tensors(expr: ir.Expr, marks: Mapping[ir.Tensor, ir.Tensor]) -> ir.Expr:
    """The expression with tensors replaced by their marked copies."""
    is_read = any(access.tensor in marks for access in find_accesses(expr))
    return exchange_reads(expr, marks) if is_read else expr


def unmark_tensors(expr: ir.Expr, marks: Mapping[ir.Tensor, ir.Tensor]) -> ir.Expr:
    """The expression with the tensors restored that `mark_tensors` replaced."""
    return mark_tensors(expr, {like: tensor for tensor, like in marks.items()})


def find_singular(system: ir.System, nonfinite: Collection[ir.Tensor]) -> set[str]:
    """The names of tensors that are infinite only where a divisor or the argument of a log is 0."""
    found: set[str] = set()

    def is_defined(part: ir.Expr) -> bool:
        """Whether a value is finite apart from zeros of divisors and logs."""
        match part:
            case ir.Infinity():
                return False
            case ir.Access(tensor):
                is_bounded = not isinstance(tensor.upper, ir.Infinity)
                return (is_bounded and tensor not in nonfinite) or tensor.name in found
            case ir.Pow(base, ir.Number(power)):
                return power.denominator == 1 or facts.is_never_negative(base)
            case ir.Call(name, (argument,)) if name in HARMLESS:
                return name == "log" and facts.is_never_negative(argument)
            case ir.Reduce(kind, _, condition) | ir.Along(kind, _, condition):
                return condition is ir.TRUE or functions.ROWS[kind].nothing in {"0", "1"}
        return safety.is_finite(part) or bool(part.children)

    for each in system.equations:
        if all(map(is_defined, walk(each.value))):
            found.add(each.target.tensor.name)
    return found
