"""What cells are matched by: looking through names, and operations as algebra.

A step that only one other reads may become part of a cell. Equality is decided by the normal form,
so that a cell is known whichever way its parts are spelled.
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

# Of calls whose derivatives depend on the version of torch; a file is the same with all of them.
LACKS = "it may lack second and forward derivatives; what --no-cells builds has them"
MOST_SPELLED = 1000  # operations of a step, written out with all it reads, that are looked through
PLAIN = (
    ops.Source,
    ops.Num,
    ops.Arrange,
    ops.Unflatten,
    ops.Expand,
    ops.Cast,
    ops.Apply,
    ops.Reduction,
)  # what the algebra looks into


@dataclass(frozen=True, slots=True)
class CellRule:
    """A call of torch for several operations, and how it is found in a plan.

    `computes` is a formula in the notation that becomes the call, `refuses` one that looks alike
    and must not; tests build both. What the call `lacks` stands in the docstring of a file
    that has it. A call that lowering makes itself has no match.
    """

    call: str
    computes: str
    refuses: str
    match: Callable[[ops.Op, Definitions], ops.Op | None] | None = None
    lacks: str = ""


class Definitions:
    """The steps by name, and how often each is read."""

    def __init__(  # noqa: PLR0913 - the steps, and what is known and asked of them
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
        self.refused: set[ops.Op] = set()  # sums that are known to hold no call
        self._opened: dict[ops.Op, ops.Op] = {}
        self._spelled: dict[str, int] = {}  # the operations of each step with all it reads
        for step in steps:
            self._spelled[step.name] = sum(
                self._spelled.get(part.name, 1) if isinstance(part, ops.Source) else 1
                for part in ops.walk_ops(step.op)
            )

    def open(self, op: ops.Op) -> ops.Op:
        """What a name stands for, under the indices of its reader, if nothing else reads it."""
        while isinstance(op, ops.Source) and self._reads[op.name] == 1 and op.name in self.steps:
            op = self._read(op)
        return op

    def look(self, op: ops.Op) -> ops.Op:
        """What a name stands for, whoever reads it; of what is too much to write out, the name."""
        is_light = isinstance(op, ops.Source) and self._spelled.get(op.name, 0) <= MOST_SPELLED
        return self._read(op) if is_light else op

    def _read(self, op: ops.Op) -> ops.Op:
        if not isinstance(op, ops.Source) or op.name not in self.steps:
            return op
        if op not in self._opened:
            step = self.steps[op.name]
            self._opened[op] = rename(step.op, dict(zip(step.axes, op.axes, strict=True)))
        return self._opened[op]

    def walk(self, op: ops.Op) -> Iterator[ops.Op]:
        """The parts of an operation, and of the steps that it needs, each step once."""
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
        """Has each turn of a loop another one?"""
        reads = {part.name for part in self.walk(op) if isinstance(part, ops.Source)}
        return bool(reads & self.varying)

    def unwrap(self, op: ops.Op) -> ops.Op:
        """The same, without the order of its axes."""
        op = self.open(op)
        while isinstance(op, ops.Arrange):
            op = self.open(op.arg)
        return op

    def unwrap_small(self, op: ops.Op, wide: Collection[ir.Index]) -> ops.Op:
        """The same; of names with fewer indices than `wide`, whoever reads them."""
        while True:
            opened = self.unwrap(op)
            if isinstance(opened, ops.Source) and not set(wide) <= set(opened.axes):
                opened = self.look(opened)
            if opened is op:
                return op
            op = opened

    def count_reads(self, name: str) -> int:
        """How often the results, and the steps that they need, read a name."""
        return self._reads[name]

    def spell(self, op: ops.Op, kept: Collection[str] = ()) -> ops.Op:
        """The operation with elementwise steps and reductions written out where they are read.

        Steps of other kinds stay names, and so do those that are `kept`.
        """
        opened = self._write_out(op)
        if isinstance(op, ops.Source) and opened is not None and op.name not in kept:
            return self.spell(opened, kept)
        return ops.with_args(op, tuple(self.spell(arg, kept) for arg in ops.args_of(op)))

    def is_alone(self, op: ops.Op, wide: Collection[ir.Index] = ()) -> bool:
        """Does nothing else read what `spell` opens, as far as it has the indices `wide`?"""
        opened: dict[str, ops.Op] = {}
        self._find_opened(op, opened)
        inside = Counter(name for part in (op, *opened.values()) for name in _find_names(part))
        return all(
            inside[name] == self._reads[name]
            for name, part in opened.items()
            if set(wide) <= set(ops.axes_of(part))
        )

    def _find_opened(self, op: ops.Op, opened: dict[str, ops.Op]) -> None:
        for part in ops.walk_ops(op):
            step = self._write_out(part)
            if (
                isinstance(part, ops.Source)
                and step is not None
                and opened.get(part.name) is not step
            ):
                opened[part.name] = step
                self._find_opened(step, opened)

    def _write_out(self, op: ops.Op) -> ops.Op | None:
        """What a name stands for, if it is plain; a diagonal is read from what is there."""
        if not isinstance(op, ops.Source) or op.name not in self.steps:
            return None
        opened = self.look(op)
        if opened is op:
            return None
        return opened if len({*op.axes}) == len(op.axes) and is_plain(opened) else None


def count_reads(steps: Sequence[Step], results: Sequence[ops.Op]) -> Counter[str]:
    """How often each name is read by the results and by the steps that they need."""
    found = Counter(name for op in results for name in _find_names(op))
    for step in reversed(steps):
        if step.name in found:
            found.update(_find_names(step.op))
    return found


def _find_names(op: ops.Op) -> list[str]:
    return [part.name for part in ops.walk_ops(op) if isinstance(part, ops.Source)]


def is_plain(op: ops.Op) -> bool:
    """Is it made of elementwise operations, reductions, products of rows and of rows read alone?"""
    if isinstance(op, ops.Take) and not any(map(ops.args_of, ops.args_of(op))):
        return True
    is_here = isinstance(op, PLAIN) or _is_row_product(op)
    return is_here and all(map(is_plain, ops.args_of(op)))


def _is_row_product(op: ops.Op) -> bool:
    return isinstance(op, ops.Einsum) and len({frozenset(ops.axes_of(arg)) for arg in op.args}) == 1


def rename(op: ops.Op, new: dict[ir.Index, ir.Index]) -> ops.Op:
    """The operation under other free indices; its bound ones give way."""
    coming = {index.name for index in new.values()}
    inner = {i for part in ops.walk_ops(op) for i in ops.axes_of(part)} - {*new}
    taken = coming | {i.name for i in inner} | {i.name for i in new}
    for index in sorted(inner, key=lambda i: i.name):
        if index.name in coming:
            new[index] = rename_apart(index, taken)
            taken.add(new[index].name)
    return ops.rename_indices(op, new)


STEPS = 4000  # of the normal form: what takes more does not count as equal


def is_same(one: ops.Op, other: ops.Op) -> bool:
    """Are both equal for all sizes, as far as the normal form tells?"""
    return one is other or is_equal(to_expr(one), to_expr(other))


def is_equal(one: ir.Expr, other: ir.Expr) -> bool:
    """The same of their meanings."""
    key = _to_key(one)
    return key is not None and key == _to_key(other)


@lru_cache(maxsize=1 << 14)
def _to_key(expr: ir.Expr) -> str | None:
    try:
        return to_key(expr, steps=STEPS)
    except (GivesUp, RecursionError):
        return None


def sort_stored(op: ops.Op, memory: Storage) -> tuple[ir.Index, ...]:
    """Its axes as they lie in memory, the closest one last; those of one place as they stand."""
    strides = dict(zip(ops.axes_of(op), find_strides(op, memory), strict=True))
    return tuple(sorted(strides, key=lambda index: -strides[index]))


def strip(op: ops.Op) -> ops.Op:
    """The operation without the order of its axes."""
    return strip(op.arg) if isinstance(op, ops.Arrange) else op


@dataclass(frozen=True, slots=True)
class Signed:
    """A term of a sum."""

    op: ops.Op
    negative: bool = False


def split_sum(op: ops.Op, see: Callable[[ops.Op], ops.Op]) -> tuple[Signed, ...]:
    """The terms; `see` looks through the names that may be opened."""
    match see(op):
        case ops.Apply("+", (one, other)):
            return (*split_sum(one, see), *split_sum(other, see))
        case ops.Apply("-", (one, other)):
            return (*split_sum(one, see), *_turn(split_sum(other, see)))
        case ops.Apply("neg", (arg,)):
            return _turn(split_sum(arg, see))
    return (Signed(strip(op)),)


def _turn(terms: Sequence[Signed]) -> tuple[Signed, ...]:
    return tuple(Signed(term.op, not term.negative) for term in terms)


def _count_axes(term: Signed) -> int:
    return len(find_true_axes(term.op))


def join_sum(terms: Sequence[Signed], order: tuple[ir.Index, ...]) -> ops.Op:
    """The terms added up, those of few indices first, so that few entries are added."""
    total, *others = sorted(terms, key=_count_axes)
    for term in others:
        pair = (term, total) if _count_axes(term) > _count_axes(total) else (total, term)
        one, other = sorted(pair, key=lambda each: each.negative)
        sign = "+" if one.negative is other.negative else "-"
        total = Signed(ops.combine(sign, (one.op, other.op), order), one.negative)
    return ops.Apply("neg", (total.op,), ops.axes_of(total.op)) if total.negative else total.op


@dataclass(slots=True)
class Factors:
    """A product: what is multiplied, what divides, the sign."""

    over: list[ops.Op] = field(default_factory=list)
    under: list[ops.Op] = field(default_factory=list)
    negative: bool = False


def split_product(op: ops.Op, see: Callable[[ops.Op], ops.Op]) -> Factors:
    """The factors; `see` looks through the names that may be opened."""
    found = Factors()
    _sort_factor(op, found, see, is_under=False)
    return found


def _sort_factor(
    op: ops.Op, found: Factors, see: Callable[[ops.Op], ops.Op], *, is_under: bool
) -> None:
    match see(op):
        case ops.Apply("*", (one, other)):
            _sort_factor(one, found, see, is_under=is_under)
            _sort_factor(other, found, see, is_under=is_under)
        case ops.Apply("/", (one, other)):
            _sort_factor(one, found, see, is_under=is_under)
            _sort_factor(other, found, see, is_under=not is_under)
        case ops.Apply("neg", (arg,)):
            found.negative = not found.negative
            _sort_factor(arg, found, see, is_under=is_under)
        case ops.Apply("rsqrt", (arg,)):
            root = ops.Apply("sqrt", (arg,), ops.axes_of(arg))
            (found.over if is_under else found.under).append(root)
        case ops.Num(value) if value is ir.ONE:
            pass
        case ops.Apply("sqrt") as root:
            (found.under if is_under else found.over).append(root)
        case _:
            (found.under if is_under else found.over).append(strip(op))


def join_product(factors: Sequence[ops.Op], order: tuple[ir.Index, ...]) -> ops.Op | None:
    """The factors multiplied, numbers last; None where there are none."""
    ordered = sorted(factors, key=lambda op: isinstance(op, ops.Num))
    return (
        reduce(lambda one, other: ops.combine("*", (one, other), order), ordered)
        if ordered
        else None
    )


def divide(op: ops.Op, under: Sequence[ops.Op], order: tuple[ir.Index, ...]) -> ops.Op:
    """The operation over each of the divisors."""
    return reduce(lambda one, other: ops.combine("/", (one, other), order), under, op)


def split_scale(term: Signed, definitions: Definitions | None = None) -> tuple[ops.Op, Fraction]:
    """(the term without its sign and its constant factors, those): c * 2 as c and 2.

    A number over sizes or scalars is no constant: torch takes no tensor for one, and a traced
    graph would fix it. With definitions, names are looked through.
    """
    number = Fraction(-1 if term.negative else 1)
    op = term.op
    while True:
        op = strip(definitions.unwrap(op) if definitions else op)
        match op:
            case ops.Apply("*" | "/" as function, (arg, ops.Num(value))):
                constant = Polynomial.of(value).constant
                if not constant:
                    return op, number
                number = number * constant if function == "*" else number / constant
                op = arg
            case _:
                return op, number
