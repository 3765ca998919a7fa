"""Tools of the matchers: inlining of steps, equality of operations, sums and products as lists.

A step with a single reader may become part of a cell. Equality is decided by the algebra's normal
form, so a match does not depend on how the parts are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, reduce

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import rename_apart
from derive.plan import ops
from derive.plan.cost import Storage, find_strides, find_true_axes
from derive.plan.meaning import to_expr
from derive.plan.steps import Step
from derive.prove.definedness import to_key
from derive.prove.terms import GivesUp

# Note on calls whose derivatives depend on the version of torch, which a generated file does not.
LACKS = "it may lack second and forward derivatives; what --no-cells builds has them"
MOST_INLINED = 1000  # operations of a definition with everything it reads that may be inlined
PLAIN = (
    ops.Source,
    ops.Num,
    ops.Arrange,
    ops.Unflatten,
    ops.Expand,
    ops.Cast,
    ops.Apply,
    ops.Reduction,
)  # operations that are inlined before terms are compared


class Definitions:
    """The steps by name, the number of reads of each, and the options of matching."""

    def __init__(  # noqa: PLR0913 - the steps, their context and the options
        self,
        steps: Sequence[Step],
        results: Sequence[ops.Op],
        memory: Storage,
        inputs: Sequence[ir.Tensor | ir.ScalarInput] = (),
        *,
        varying: Collection[str] = (),
        chunks: bool = True,
        exact: bool = True,
    ) -> None:
        self.varying = frozenset(varying)
        self.chunks = chunks
        self.exact = exact
        self.steps = {step.name: step for step in steps}
        self.names = {*self.steps, *(each.name for each in inputs)}
        self.labels = {each.name: each.below for each in inputs if isinstance(each, ir.Tensor)}
        self.memory = memory
        self._reads = count_reads(steps, results)
        self.refused: set[ops.Op] = set()  # sums without a match, so that their parts are skipped
        self._instances: dict[ops.Op, ops.Op] = {}
        self._inlined_sizes: dict[str, int] = {}  # operations of each step with everything it reads
        for step in steps:
            self._inlined_sizes[step.name] = sum(
                self._inlined_sizes.get(part.name, 1) if isinstance(part, ops.Source) else 1
                for part in ops.walk_ops(step.op)
            )

    def inline_single_use(self, op: ops.Op) -> ops.Op:
        """Return the definition of a name with one reader, over the axes of `op`; else `op`."""
        while isinstance(op, ops.Source) and self._reads[op.name] == 1 and op.name in self.steps:
            op = self._instantiate(op)
        return op

    def definition_of(self, op: ops.Op) -> ops.Op:
        """Return a name's definition, with any number of readers; `op` if not one or too large."""
        if not isinstance(op, ops.Source) or op.name not in self.steps:
            return op
        return self._instantiate(op) if self._inlined_sizes[op.name] <= MOST_INLINED else op

    def _instantiate(self, op: ops.Source) -> ops.Op:
        if op not in self._instances:
            step = self.steps[op.name]
            self._instances[op] = rename_free_indices(
                step.op, dict(zip(step.axes, op.axes, strict=True))
            )
        return self._instances[op]

    def walk_parts(self, op: ops.Op) -> Iterator[ops.Op]:
        """Yield the parts of an operation and of the steps it depends on, each step once."""
        seen: set[str] = set()
        waiting = [op]
        while waiting:
            for part in ops.walk_ops(waiting.pop()):
                yield part
                if (
                    isinstance(part, ops.Source)
                    and part.name in self.steps
                    and part.name not in seen
                ):
                    seen.add(part.name)
                    waiting.append(self.steps[part.name].op)

    def is_varying(self, op: ops.Op) -> bool:
        """Whether the operation depends on a tensor that differs between iterations of the loop."""
        reads = {part.name for part in self.walk_parts(op) if isinstance(part, ops.Source)}
        return bool(reads & self.varying)

    def unwrap(self, op: ops.Op) -> ops.Op:
        """Inline names with a single reader and strip permutations."""
        op = self.inline_single_use(op)
        while isinstance(op, ops.Arrange):
            op = self.inline_single_use(op.arg)
        return op

    def unwrap_small(self, op: ops.Op, wide: Collection[ir.Index]) -> ops.Op:
        """Unwrap the operation; also inline names that lack an index of `wide`."""
        while True:
            opened = self.unwrap(op)
            if isinstance(opened, ops.Source) and not set(wide) <= set(opened.axes):
                opened = self.definition_of(opened)
            if opened is op:
                return op
            op = opened

    def count_reads(self, name: str) -> int:
        """Count the reads of a name by the results and the steps they depend on."""
        return self._reads[name]

    def inline_elementwise(self, op: ops.Op, kept: Collection[str] = ()) -> ops.Op:
        """Inline elementwise steps and reductions recursively, except the names in `kept`."""
        opened = self._find_plain_definition(op)
        if isinstance(op, ops.Source) and opened is not None and op.name not in kept:
            return self.inline_elementwise(opened, kept)
        return ops.with_args(op, tuple(self.inline_elementwise(arg, kept) for arg in op.args))

    def is_only_reader(self, op: ops.Op, wide: Collection[ir.Index] = ()) -> bool:
        """Whether `op` alone reads the steps over `wide` that `inline_elementwise` inlines."""
        opened, waiting = dict[str, ops.Op](), [op]
        while waiting:
            for part in ops.walk_ops(waiting.pop()):
                step = self._find_plain_definition(part)
                if isinstance(part, ops.Source) and step and opened.get(part.name) is not step:
                    opened[part.name] = step
                    waiting.append(step)
        inside = Counter(name for part in (op, *opened.values()) for name in _find_names(part))
        return all(
            inside[name] == self._reads[name]
            for name, part in opened.items()
            if set(wide) <= set(part.axes)
        )

    def _find_plain_definition(self, op: ops.Op) -> ops.Op | None:
        """Return a name's definition if `is_plain`, else None; None too if an index repeats."""
        opened = self.definition_of(op)
        is_apart = opened is not op and len({*op.axes}) == len(op.axes)
        return opened if is_apart and is_plain(opened) else None


def count_reads(steps: Sequence[Step], results: Sequence[ops.Op]) -> Counter[str]:
    """Count the reads of each name by the results and the steps they depend on."""
    found = Counter(name for op in results for name in _find_names(op))
    for step in reversed(steps):
        if step.name in found:
            found.update(_find_names(step.op))
    return found


def _find_names(op: ops.Op) -> list[str]:
    return [part.name for part in ops.walk_ops(op) if isinstance(part, ops.Source)]


def is_plain(op: ops.Op) -> bool:
    """Whether an operation consists of elementwise ones, reductions, row products and gathers."""
    if isinstance(op, ops.Take) and not any(arg.args for arg in op.args):
        return True
    is_row_product = isinstance(op, ops.Einsum) and len({frozenset(a.axes) for a in op.args}) == 1
    return (isinstance(op, PLAIN) or is_row_product) and all(map(is_plain, op.args))


def rename_free_indices(op: ops.Op, new: dict[ir.Index, ir.Index]) -> ops.Op:
    """Rename the free indices of an operation; bound indices in conflict are renamed apart."""
    coming = {index.name for index in new.values()}
    inner = {i for part in ops.walk_ops(op) for i in part.axes} - {*new}
    taken = coming | {i.name for i in inner} | {i.name for i in new}
    for index in sorted(inner, key=lambda i: i.name):
        if index.name in coming:
            new[index] = rename_apart(index, taken)
            taken.add(new[index].name)
    return ops.rename_indices(op, new)


STEPS = 4000  # the most steps of the normal form; longer expressions compare as unequal


def is_same(one: ops.Op, other: ops.Op) -> bool:
    """Whether both operations are equal at all sizes; False means not shown."""
    return one is other or is_equal(to_expr(one), to_expr(other))


def is_equal(one: ir.Expr, other: ir.Expr) -> bool:
    """Whether both expressions are equal at all sizes; False means not shown."""
    key = _to_key(one)
    return key is not None and key == _to_key(other)


@lru_cache(maxsize=1 << 14)
def _to_key(expr: ir.Expr) -> str | None:
    try:
        return to_key(expr, steps=STEPS)
    except (GivesUp, RecursionError):
        return None


def sort_stored(op: ops.Op, memory: Storage) -> tuple[ir.Index, ...]:
    """Return the axes by decreasing stride; ties keep their order."""
    strides = dict(zip(op.axes, find_strides(op, memory), strict=True))
    return tuple(sorted(strides, key=lambda index: -strides[index]))


def list_pairs(op: ops.Op) -> tuple[tuple[ops.Op, ...], ...]:
    """Return the operands of a contraction of two, in both orders; () for other operations."""
    is_pair = isinstance(op, ops.Einsum) and len(op.args) == 2
    return (op.args, op.args[::-1]) if is_pair else ()


def strip(op: ops.Op) -> ops.Op:
    """Return the operand below any permutations and added axes of size 1."""
    return strip(op.arg) if isinstance(op, ops.Arrange) else op


def is_floating(op: ops.Op) -> bool:
    """Whether the entries are real or complex numbers, neither integers nor truth values."""
    return not (isinstance(op, ops.Num) or ops.is_boolean(op) or ops.is_integral(op))


@dataclass(frozen=True, slots=True)
class Signed:
    """A term of a sum, and its sign."""

    op: ops.Op
    negative: bool = False


def split_sum(
    op: ops.Op, inline: Callable[[ops.Op], ops.Op], *, negative: bool = False
) -> tuple[Signed, ...]:
    """Return the terms of a sum, or (`negative`) of its negation; `inline` opens names."""
    match inline(op):
        case ops.Apply("+" | "-" as sign, (one, other)):
            turned = negative ^ (sign == "-")
            terms = split_sum(one, inline, negative=negative)
            return (*terms, *split_sum(other, inline, negative=turned))
        case ops.Apply("neg", (arg,)):
            return split_sum(arg, inline, negative=not negative)
    return (Signed(strip(op), negative),)


def _count_axes(term: Signed) -> int:
    return len(find_true_axes(term.op))


def join_sum(terms: Sequence[Signed], order: tuple[ir.Index, ...]) -> ops.Op:
    """Return the sum of the terms, those with few indices first to save additions."""
    total, *others = sorted(terms, key=_count_axes)
    for term in others:
        pair = (term, total) if _count_axes(term) > _count_axes(total) else (total, term)
        one, other = sorted(pair, key=lambda each: each.negative)
        sign = "+" if one.negative is other.negative else "-"
        total = Signed(ops.combine(sign, (one.op, other.op), order), one.negative)
    return ops.Apply("neg", (total.op,), total.op.axes) if total.negative else total.op


@dataclass(slots=True)
class Factors:
    """The factors of a product, its divisors, and its sign."""

    over: list[ops.Op] = field(default_factory=list)
    under: list[ops.Op] = field(default_factory=list)
    negative: bool = False


def split_product(op: ops.Op, inline: Callable[[ops.Op], ops.Op]) -> Factors:
    """Return the factors and divisors of a product; `inline` replaces names by definitions."""
    found = Factors()

    def sort_factor(op: ops.Op, above: list[ops.Op], below: list[ops.Op]) -> None:
        match inline(op):
            case ops.Apply("*" | "/" as function, (one, other)):
                sort_factor(one, above, below)
                sort_factor(other, *((above, below) if function == "*" else (below, above)))
            case ops.Apply("neg", (arg,)):
                found.negative = not found.negative
                sort_factor(arg, above, below)
            case ops.Apply("rsqrt", (arg,)):
                below.append(ops.Apply("sqrt", (arg,), arg.axes))
            case ops.Num(value) if value is ir.ONE:
                pass
            case ops.Apply("sqrt") as root:
                above.append(root)
            case _:
                above.append(strip(op))

    sort_factor(op, found.over, found.under)
    return found


def join_product(factors: Sequence[ops.Op], order: tuple[ir.Index, ...]) -> ops.Op | None:
    """Return the product of the factors, numbers last; None without factors."""
    ordered = sorted(factors, key=lambda op: isinstance(op, ops.Num))
    return (
        reduce(lambda one, other: ops.combine("*", (one, other), order), ordered)
        if ordered
        else None
    )


def divide_by_each(op: ops.Op, under: Sequence[ops.Op], order: tuple[ir.Index, ...]) -> ops.Op:
    """Return the operation divided by each divisor in turn."""
    return reduce(lambda one, other: ops.combine("/", (one, other), order), under, op)


def split_scale(term: Signed, definitions: Definitions | None = None) -> tuple[ops.Op, Fraction]:
    """Return (the term without its sign and constant factors, the constant): c * -2 as c and -2.

    Expressions of sizes or scalars are not constants: torch accepts no tensor in their place, and
    tracing would freeze their values. With definitions, names with a single reader are inlined.
    """
    op, number = term.op, Fraction(-1 if term.negative else 1)
    while True:
        op = strip(definitions.unwrap(op) if definitions else op)
        match op:
            case ops.Apply("*" | "/" as function, (arg, ops.Num(value))) if (
                constant := Polynomial.of(value).constant
            ):
                number = number * constant if function == "*" else number / constant
                op = arg
            case _:
                return op, number
