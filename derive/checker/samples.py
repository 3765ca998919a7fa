"""The sizes at which code is judged, and inputs there by seed.

    relations    E = H*D: what code states of its sizes where it fails, in a view, an assertion, a
                 shape, solved for the sizes that others make
    samples      distinct sizes that respect the relations, and inputs by seed
    sizes        each 1 in turn, each two equal in turn, around each whole number of the code, and
                 the other side of each condition under which code was lifted; each far beyond the
                 others

How many there are is bounded in steps and elements, never in time.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, islice
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import walk
from derive.judge.evaluate import Evaluator
from derive.judge.samples import (
    choose_sizes,
    count_work,
    draw_inputs,
    find_domain,
    find_sizes,
    is_possible,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from types import FrameType

    from derive.frontend.torch.numbers import Condition

    Values = dict[str, Any]


Names: TypeAlias = tuple[str | int, ...]
Relation: TypeAlias = tuple[
    str, Names
]  # a size, and those whose product it is; one that it is equal to
Relations: TypeAlias = tuple[
    Relation, ...
]  # the size of a later relation may stand in the product of an earlier
MOST_NAMES = 4  # in the product that a number may be
MOST_GUESSES = 4  # that follow from what was stated at one sample
_FACTOR = 2  # of a size that has to be a multiple, where no size is the other factor


@dataclass(frozen=True)
class Statement:
    """Two numbers of which code says that they agree, or that the first is a multiple."""

    one: int
    other: int
    names: tuple[str | int, ...] = ()  # of the second, where they are known
    is_product: bool = False  # of several sizes: that two are equal is not said
    is_multiple: bool = False


def read_view(name: str, args: Any, kwargs: Mapping[str, Any]) -> Iterator[Statement]:
    """The elements that a view has, and those that it asks for, without what both have."""
    have: list[int] = []
    asked: list[Any] = []
    match name, args:
        case (("view" | "reshape"), (tensor, *shape)):
            shape = shape or [kwargs.get("shape", kwargs.get("size", ()))]
            have, asked = list(tensor.shape), _flatten(shape)
        case "unflatten", (tensor, int(place), shape):
            have, asked = [tensor.shape[place]], _flatten([shape])
    if not all(type(number) is int for number in asked) or not asked:
        return
    common = Counter(have) & Counter(asked)
    one = prod((Counter(have) - common).elements())
    other = prod(n for n in (Counter(asked) - common).elements() if n != -1)
    if other > 0 and (one % other if -1 in asked else one != other):
        yield Statement(one, other, is_product=True, is_multiple=-1 in asked)


def _flatten(shape: Sequence[Any]) -> list[Any]:
    each = [n for part in shape for n in (part if hasattr(part, "__iter__") else (part,))]
    return [int(n) if hasattr(n, "__index__") else n for n in each]


def read_refusal(frame: FrameType, line: int) -> Iterator[Statement]:
    """The comparisons for which the code's own assert or raise stopped it."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=test) if node.lineno <= line <= (node.end_lineno or line):
                yield from _read_test(test, frame, ast.Eq, ast.And)
            case ast.If(test=test, body=body) if any(
                isinstance(each, ast.Raise) and each.lineno <= line <= (each.end_lineno or line)
                for each in body
            ):
                yield from _read_test(test, frame, ast.NotEq, ast.Or)


def _read_test(
    test: ast.expr, frame: FrameType, wanted: type[ast.cmpop], joined: type[ast.boolop]
) -> Iterator[Statement]:
    match test:
        case ast.BoolOp(op=op, values=parts) if isinstance(op, joined):
            for part in parts:
                yield from _read_test(part, frame, wanted, joined)
        case ast.Compare(
            left=ast.BinOp(left=one, op=ast.Mod(), right=other), ops=[op], comparators=[_]
        ) if isinstance(op, wanted):
            yield from _compare(one, other, frame, is_multiple=True)
        case ast.BinOp(left=one, op=ast.Mod(), right=other) if wanted is ast.NotEq:
            yield from _compare(one, other, frame, is_multiple=True)
        case ast.Compare(left=one, ops=[op], comparators=[other]) if isinstance(op, wanted):
            yield from _compare(one, other, frame, is_multiple=False)


def _compare(
    one: ast.expr, other: ast.expr, frame: FrameType, *, is_multiple: bool
) -> Iterator[Statement]:
    """Numbers, or shapes number by number, as the frame that failed has them."""
    try:
        left, right = (_evaluate(each, frame) for each in (one, other))
    except Exception:  # whatever the user's expression raises
        return
    pairs = [(left, right)]
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        pairs = list(zip(left, right, strict=True))
    for here, there in pairs:
        if not all(type(number) is int and number > 0 for number in (here, there)):
            continue
        if here % there if is_multiple else here != there:
            yield Statement(here, there, is_multiple=is_multiple)


def _evaluate(expr: ast.expr, frame: FrameType) -> Any:
    code = compile(ast.Expression(expr), "<assertion>", "eval")
    return eval(code, frame.f_globals, frame.f_locals)


def guess_relations(
    statements: Sequence[Sequence[Statement]],
    sizes: Mapping[str, int],
    relations: Relations,
    told: Collection[str],
    extents: Sequence[Names] = (),
) -> list[Relations]:
    """Ties under which what was stated together holds at these sizes, the fewest first.

    `extents` are the products of sizes that the formula has.
    """
    dependent = {name for name, _ in relations}
    known = {name: size for name, size in sizes.items() if name not in dependent and size > 1}
    names = _name_products(known, extents)
    solved = (
        each
        for together in statements
        if together
        for each in islice(_solve(together, names, told, extents, ()), MOST_GUESSES)
    )
    found = dict.fromkeys(each for each in solved if each)
    return [(*relations, *each) for each in sorted(found, key=len)[:MOST_GUESSES]]


def _name_products(sizes: Mapping[str, int], extents: Sequence[Names]) -> dict[int, list[Names]]:
    """The names whose product a number is: as few as can be, those that the formula has first."""
    found: dict[int, list[Names]] = {}
    own = [names for names in extents if {*names} <= {*sizes}]
    for count in range(1, MOST_NAMES + 1):
        for names in (*(n for n in own if len(n) == count), *combinations(sizes, count)):
            known = found.setdefault(prod(sizes[str(name)] for name in names), [])
            if all(len(each) == count and {*each} != {*names} for each in known):
                known.append(names)
    return found


def _solve(
    statements: Sequence[Statement],
    names: Mapping[int, list[Names]],
    told: Collection[str],
    extents: Sequence[Names],
    relations: Relations,
) -> Iterator[Relations]:
    """The ways to make all of these true by relations, beside those that are known already."""
    if not statements:
        yield relations
        return
    stated, *rest = statements
    others = [stated.names] if stated.names else names.get(stated.other, [])
    if stated.is_multiple and not stated.names:
        others = [*others, (stated.other,)]
    for one, other in itertools.product(names.get(stated.one, ()), others):
        left, right = (Counter(_expand(side, relations)) for side in (one, other))
        if left == right:
            yield from _solve(rest, names, told, extents, relations)
            continue
        relation: Relation | None = None
        if stated.is_multiple:  # the one size as the other times a third, or twice
            if len(one) == len(other) == 1 and one != other and one[0] not in told:
                third = [names for names in extents if other[0] in names and one[0] not in names]
                relation = str(one[0]), (third or [(other[0], _FACTOR)])[0]
        else:  # with one size on its left
            mine, yours = (*(left - right).elements(),), (*(right - left).elements(),)
            for a, b in ((yours, mine), (mine, yours)):
                is_single = len(a) == 1 and b and isinstance(a[0], str)
                if relation is None and is_single and a[0] not in told and a[0] not in b:
                    relation = str(a[0]), b
        if relation is not None and len(relation[1]) > stated.is_product:
            made = ((name, _expand(whole, (relation,))) for name, whole in relations)
            yield from _solve(rest, names, told, extents, (*made, relation))


def _expand(names: Names, relations: Relations) -> Names:
    known = dict(relations)
    return tuple(n for name in names for n in (known.get(str(name)) or (name,)))


def set_sizes(sizes: Mapping[str, int], relations: Relations) -> dict[str, int]:
    """The sizes, with those that others make as the relations have them."""
    found = dict(sizes)
    for name, product in reversed(relations):
        found[name] = prod(n if isinstance(n, int) else found[n] for n in product)
    return found


def find_coincidences(names: Sequence[str], extents: Sequence[Names]) -> Iterator[Relations]:
    """Ties that no code states, to say under which it would be right: products, then equal sizes.

    After them come a product together with two equal sizes.
    """
    products = [(whole, product) for product in extents for whole in names if whole not in product]
    products = [relation for relation in products if {*relation[1]} <= {*names}]
    equal: list[Relation] = [(other, (one,)) for one, other in combinations(names, 2)]
    yield from ((relation,) for relation in (*products, *equal))
    if len(names) > 2:
        yield tuple((name, (names[0],)) for name in names[1:])
    for whole, product in products[:2]:
        yield from (
            ((whole, product), relation)
            for relation in equal
            if whole not in {relation[0], *relation[1]}
        )


def find_merged(system: ir.System) -> list[tuple[str, ...]]:
    """The products of sizes that are extents of the formula."""
    tensors = [entry for entry in system.inputs if isinstance(entry, ir.Tensor)]
    tensors += [equation.target.tensor for equation in system.equations]
    extents = (extent for tensor in tensors for extent in tensor.shape)
    merged = (extent.factors for extent in extents if isinstance(extent, ir.Mul))
    names = (tuple(f.name for f in factors if isinstance(f, ir.Size)) for factors in merged)
    return list(dict.fromkeys(tuple(sorted(each)) for each in names if len(each) == 2))


FACTORS = ((3, 2, 4, 5), (2, 4, 3, 5), (1, 5, 2, 3))  # sizes whose product is a size, by sample
COUNT = 3  # samples; the second has a size 1, if the code can bear it
_SCALARS = (1.5, 0.75, 1.25, 0.625, 2.5)  # small fractions, which fields have exactly


@dataclass(frozen=True)
class Sample:
    """Sizes, and inputs by seed.

    `change` is what is done to the inputs, `reason` what is special of it all; `resize` is the way
    to the same sample at other sizes.
    """

    system: ir.System
    sizes: Mapping[str, int]
    seed: int
    defaulted: tuple[str, ...] = ()  # scalars that the code does not take keep their default
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that cannot be otherwise
    relations: Relations = ()  # sizes that others make, E = H*D
    change: Callable[[Sample, dict[str, Any]], dict[str, Any]] | None = None
    reason: str = ""
    is_defined: bool = False  # does it say something only where the formula has finite values?
    is_limit: bool = False  # are its sizes around a number of the code, which may be a limit of it?
    is_remark: bool = False  # is a difference there no more than a finding?

    def resize(self, **sizes: int) -> Sample | None:
        """The sample at other sizes; None where they are fixed, made of others, or impossible."""
        if any(name in self.fixed or name in dict(self.relations) for name in sizes):
            return None
        moved = set_sizes({**self.sizes, **sizes}, self.relations)
        return replace(self, sizes=moved) if is_possible(self.system, moved) else None

    def make_inputs(self, dtype: Any = None, *, empty_row: bool = False) -> dict[str, Any]:
        """Inputs of the formula by name, new ones at every call."""
        import torch

        values = draw_inputs(self.system, self.sizes, self.seed, dtype, empty_row=empty_row)
        plain = draw_inputs(self.system, self.sizes) if self.defaulted else {}
        values |= {name: plain[name] for name in self.defaulted}
        for name, value in () if empty_row else values.items():
            if getattr(value, "dtype", None) is torch.bool and 1 in value.shape:
                values[name] = torch.ones_like(value)  # else a row along that index were empty
        scalars = [entry for entry in self.system.inputs if isinstance(entry, ir.ScalarInput)]
        for number, entry in enumerate(scalars):
            if entry.name not in self.defaulted and (entry.default is None or self.seed):
                values[entry.name] = _SCALARS[(number + self.seed) % len(_SCALARS)]
        return values if self.change is None else self.change(self, values)

    def describe(self) -> str:
        """What is special about it, and its sizes."""
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return ", ".join(filter(None, (self.reason, f"at {sizes}" if sizes else "")))


@dataclass(frozen=True)
class Samples:
    """The first of some samples; the others are made when they are asked for."""

    first: Sample
    make_others: Callable[[], list[Sample]]
    told: frozenset[str] = frozenset()  # sizes that cannot be otherwise


def make_samples(
    system: ir.System, fixed: Mapping[str, int], relations: Relations = ()
) -> Samples | None:
    """Samples at sizes that are free but for those fixed and related; None where there are none."""
    dependent = {name for name, _ in relations}
    merged = [
        n for _, product in relations if len(product) > 1 for n in product if isinstance(n, str)
    ]
    roots = list(
        dict.fromkeys(name for name in merged if name not in dependent and name not in fixed)
    )

    def make(number: int) -> Sample:
        told = {**dict(zip(roots, FACTORS[number], strict=False)), **fixed}
        if roots:
            known = set_sizes({**dict.fromkeys(find_sizes(system), 1), **told}, relations)
            told |= {n: known[n] for n, made in relations if all(_is_told(m, told) for m in made)}
            free = choose_sizes(system, 1, seed=number, fixed=told)[0]
        else:
            free = choose_sizes(system, number + 1, fixed=fixed)[number]
        return Sample(system, set_sizes(free, relations), number, fixed=fixed, relations=relations)

    first = make(0)
    if not is_possible(system, first.sizes):
        return None

    def make_others() -> list[Sample]:
        return [d for d in map(make, range(1, COUNT)) if is_possible(system, d.sizes)]

    equal = {
        str(name)
        for relation in relations
        if len(relation[1]) == 1
        for name in (relation[0], *relation[1])
    }
    return Samples(first, make_others, frozenset({*fixed, *equal}))


def _is_told(name: str | int, told: Mapping[str, int]) -> bool:
    return isinstance(name, int) or name in told


MOST_SIZES = 80  # samples at other sizes
MOST_ELEMENTS = 500_000  # that the formula computes at one of them
MOST_TOGETHER = 5_000_000  # and at all of them
_EVERY, _DOUBLINGS = 130, 12  # sizes that are tried one by one, then so often twice as large
_LEAST = 2  # numbers of a formula beyond which every sample goes
_FARTHEST = 1 << 14  # the longest index that is tried
_MOST_PLACED = 1 << 24  # values of indices for which one condition is looked at
_FAR = (71, 303, 5003)  # sizes that are tried whatever the code has, if they are cheap
_BESIDE = 4  # sizes beside one another, since what holds at one may hang on its remainder


def find_ends(sample: Sample, entry: ir.Tensor) -> tuple[int, int]:
    """The least and the largest integer that a tensor may hold."""
    domain = find_domain(entry, sample.sizes)
    low = -1000 if domain.low is None else int(domain.low)
    return low, 1000 if domain.high is None else max(int(domain.high), low)


def place_values(
    pool: Callable[[Sample, ir.Tensor], list[float]], turn: int, sample: Sample, values: Values
) -> Values:
    """The values of a pool at random places of each tensor."""
    import torch

    generator = torch.Generator().manual_seed(sample.seed + turn)
    for entry in sample.system.inputs:
        found = pool(sample, entry) if isinstance(entry, ir.Tensor) else []
        if isinstance(entry, ir.Tensor) and found:
            value = values[entry.name]
            count = value.numel()
            places = torch.randperm(count, generator=generator)[: len(found)]
            chosen = [found[(turn * count + k) % len(found)] for k in range(len(places))]
            flat = value.reshape(-1).clone()
            flat[places] = torch.tensor(chosen, dtype=value.dtype)
            values[entry.name] = flat.reshape(value.shape)
    return values


def vary_sizes(sample: Sample, numbers: Sequence[float]) -> Iterator[Sample]:
    """Samples at other sizes, the cheapest kinds first."""
    left = MOST_TOGETHER
    seen = [dict(sample.sizes)]
    for changed, reason in islice(_list_sizes(sample, numbers), 4 * MOST_SIZES):
        varied = sample.resize(**changed)
        if varied is None or dict(varied.sizes) in seen or len(seen) > MOST_SIZES:
            continue
        work = count(varied)
        if work <= min(left, MOST_ELEMENTS):
            left -= work
            seen.append(dict(varied.sizes))
            yield replace(varied, reason=reason, is_limit="of the code" in reason)


def pass_limits(sample: Sample, *, has_loops: bool) -> Iterator[tuple[str, list[Sample]]]:
    """Each size with samples at which it is far larger than the others, from near to far.

    What rounds of a loop, an alphabet or a table bound stands in the code as no number.
    """
    for name in find_free_sizes(sample):
        fars = (lengthen(sample, name, far) for far in _FAR[: -1 if has_loops else None])
        yield name, [far for far in fars if far is not None and count(far) <= MOST_ELEMENTS]


def lengthen(sample: Sample, name: str, size: int) -> Sample | None:
    """The sample with one size far larger than the others, small ones if it can be.

    Integers that look up are at both ends of their range.
    """
    small = {
        other: min(sample.sizes[other], 2 + k % 2)
        for k, other in enumerate(find_free_sizes(sample))
    }
    tries = (sample.resize(**{**rest, name: size}) for rest in (small, {}))
    far = next((each for each in tries if each is not None), None)
    if far is None:
        return None
    is_whole = any(getattr(entry, "kind", "") == "int" for entry in sample.system.inputs)

    def find_pool(sample: Sample, entry: ir.Tensor) -> list[float]:
        return list(find_ends(sample, entry)) if entry.kind == "int" else []

    change = partial(place_values, find_pool, 0) if is_whole else None
    return replace(far, change=change, reason=f"{name} is {size}", is_limit=True)


def find_free_sizes(sample: Sample) -> list[str]:
    """The sizes that may be otherwise."""
    return [name for name in sample.sizes if name not in {*sample.fixed, *dict(sample.relations)}]


def pass_bounds(sample: Sample, most: int = MOST_ELEMENTS) -> tuple[list[Sample], list[int]]:
    """Samples in which indices go beyond the numbers of the formula, and those not gone beyond.

    A number bounds or divides an index where both stand in one condition or function; the other
    sizes are small. At most so many elements are computed.
    """
    found: dict[tuple[int, ...], Sample] = {}
    missed: dict[int, None] = {}
    for part in (part for each in sample.system.equations for part in walk(each.value)):
        inside = list(walk(part)) if isinstance(part, (ir.Compare, ir.Call)) else []
        told = [abs(n.value) for n in inside if isinstance(n, ir.Number) and abs(n.value) > _LEAST]
        extents = (each for i in inside if isinstance(i, ir.Index) for each in walk(i.extent))
        names = dict.fromkeys(each.name for each in extents if isinstance(each, ir.Size))
        if not told or not names or any(isinstance(each, ir.Access) for each in inside):
            continue
        if names.keys() <= {*sample.fixed} or _is_beyond(part, sample):
            continue
        far = int(max(told))
        lengths = dict.fromkeys((far + 3, 2 * far + 3, min(int(prod(told)), _FARTHEST) + 2))
        small = {name: min(size, 2) for name, size in sample.sizes.items() if name not in names}
        tries = (
            sample.resize(**{n: size for n, size in given.items() if sample.resize(**{n: size})})
            for length in lengths
            for given in (small | dict.fromkeys(names, length), dict.fromkeys(names, length))
        )
        fits = (each for each in tries if each is not None and count(each) <= most)
        beyond = next((each for each in fits if _is_beyond(part, each)), None)
        if beyond is None:
            missed[far] = None
        else:
            reason = f"beyond the {far:g} of the formula"
            found.setdefault((*beyond.sizes.values(),), replace(beyond, reason=reason))
    return list(found.values())[:MOST_SIZES], list(missed)


def _is_beyond(part: ir.Expr, sample: Sample) -> bool:
    """Is a condition on indices true and false, or does an index go beyond what a function has?"""
    inside = list(walk(part))
    indices = dict.fromkeys(each for each in inside if isinstance(each, ir.Index))
    lengths = [evaluate_extent(index.extent, sample.sizes) for index in indices]
    if isinstance(part, ir.Call):
        return max(lengths) > max(abs(n.value) for n in inside if isinstance(n, ir.Number))
    if prod(lengths) > _MOST_PLACED:
        return False
    held = Evaluator({}, sample.sizes, sample.system.empty_row).condition(part).tensor
    return bool(held.any()) and not bool(held.all())


def find_other_sides(
    sample: Sample, path: Sequence[Condition]
) -> Iterator[tuple[Condition, Sample]]:
    """The sample at sizes at which a condition does not hold and those before it do.

    One size is changed: to the smallest such, those after it, and one about twice as large.
    """
    sizes = (*range(1, _EVERY), *(_EVERY << k for k in range(_DOUBLINGS)))
    for k, condition in enumerate(path):
        for name in condition.sizes:
            varied = (
                sample.resize(**{name: n})
                for n in sizes
                if not _holds(condition, sample, name, n)
                and all(_holds(each, sample, name, n) for each in path[:k])
            )
            found = (each for each in varied if each is not None and count(each) <= MOST_ELEMENTS)
            first = list(islice(found, _BESIDE))
            twice = (each for each in found if each.sizes[name] >= 2 * first[0].sizes[name])
            for each in (*first, *islice(twice, 1)):
                other = replace(each, reason=f"where not {condition}", is_limit=True)
                yield condition, other


def _holds(condition: Condition, sample: Sample, name: str, size: int) -> bool:
    """Does it hold at another size, as far as can be told?"""
    try:
        return condition.holds({**sample.sizes, name: size})
    except (KeyError, ZeroDivisionError):
        return True


def count(sample: Sample) -> int:
    """How many elements are computed at a sample."""
    return int(max(count_work(sample.system, sample.sizes), prod(sample.sizes.values())))


def _list_sizes(sample: Sample, numbers: Sequence[float]) -> Iterator[tuple[dict[str, int], str]]:
    names = find_free_sizes(sample)
    for size, name in itertools.product((1, 2), names):
        yield {name: size}, f"{name} is {size}"
    for one, other in combinations(names, 2):
        yield {other: sample.sizes[one]}, f"{one} equals {other}"
    if len(names) > 2:
        yield dict.fromkeys(names, max(sample.sizes.values())), "all sizes are equal"
    owners = dict.fromkeys(_find_lengths(find_numbers(sample.system)), "the formula")
    owners |= dict.fromkeys(_find_lengths(numbers), "the code")
    for number, whose in sorted(owners.items()):
        for name in names:
            yield {name: 2 * number + 1}, f"{name} is above the {number} of {whose}"
            small = {other: 1 for other in names if other != name}
            if small:
                shown = f"{name} is above the {number} of {whose}, the other sizes are 1"
                yield {**small, name: 2 * number + 1}, shown
    for number, whose in sorted(owners.items()):
        for name in names:
            for size in (number - 1, number, number + 1):
                yield {name: size}, f"{name} is {size}, for the {number} of {whose}"
    # Products that code may compare with a number: of two sizes, and of a whole tensor.
    tensors = [entry for entry in sample.system.inputs if isinstance(entry, ir.Tensor)]
    inside = [{getattr(p, "name", "") for x in e.shape for p in walk(x)} for e in tensors]
    shapes = (tuple(name for name in names if name in own) for own in inside)
    products = [p for p in dict.fromkeys((*combinations(names, 2), *shapes)) if len(p) > 1]
    for number, whose in sorted(owners.items()):
        for others in products:
            for name in others:
                rest = prod(sample.sizes[other] for other in others if other != name)
                size = number // max(rest, 1) + 1
                if size > sample.sizes[name]:
                    shown = " * ".join(others)
                    yield {name: size}, f"{shown} is above the {number} of {whose}"


def _find_lengths(numbers: Iterable[float]) -> set[int]:
    return {abs(int(n)) for n in numbers if math.isfinite(n) and n == int(n) and abs(n) > 2}


def find_numbers(system: ir.System) -> list[float]:
    """The numbers of the formula."""
    parts = (part for each in system.equations for part in walk(each.value))
    return [float(part.value) for part in parts if isinstance(part, ir.Number)]
