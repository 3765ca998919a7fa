"""Sizes that others make, E = H*D: what code states of them where it fails, solved for ties."""

from __future__ import annotations

import ast
import itertools
import linecache
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, islice
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from derive.ir.nodes import Mul, Size, System, Tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from types import FrameType

Names: TypeAlias = tuple[str | int, ...]
Tie: TypeAlias = tuple[str, Names]  # a size, and those whose product it is; one that it is equal to
Ties: TypeAlias = tuple[Tie, ...]  # the size of a later tie may stand in the product of an earlier
MOST_NAMES = 4  # in the product that a number may be
MOST_GUESSES = 4  # that follow from what was stated at one draw
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
    asked: list[int] = []
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


def _flatten(shape: Sequence[Any]) -> list[int]:
    return [int(n) for part in shape for n in (part if hasattr(part, "__iter__") else (part,))]


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


def guess_ties(
    statements: Sequence[Sequence[Statement]],
    sizes: Mapping[str, int],
    ties: Ties,
    told: Collection[str],
    extents: Sequence[Names] = (),
) -> list[Ties]:
    """Ties under which what was stated together holds at these sizes, the fewest first.

    `extents` are the products of sizes that the formula has.
    """
    tied = {name for name, _ in ties}
    known = {name: size for name, size in sizes.items() if name not in tied and size > 1}
    names = _name_products(known, extents)
    solved = (
        each
        for together in statements
        if together
        for each in islice(_solve(together, names, told, extents, ()), MOST_GUESSES)
    )
    found = dict.fromkeys(each for each in solved if each)
    return [(*ties, *each) for each in sorted(found, key=len)[:MOST_GUESSES]]


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
    ties: Ties,
) -> Iterator[Ties]:
    """The ways to make all of these true by ties, beside those that are made already."""
    if not statements:
        yield ties
        return
    stated, *rest = statements
    others = [stated.names] if stated.names else names.get(stated.other, [])
    if stated.is_multiple and not stated.names:
        others = [*others, (stated.other,)]
    for one, other in itertools.product(names.get(stated.one, ()), others):
        left, right = (Counter(_expand(side, ties)) for side in (one, other))
        if left == right:
            yield from _solve(rest, names, told, extents, ties)
            continue
        if stated.is_multiple:
            tie = _make_multiple(one, other, told, extents)
        else:
            tie = _make_tie((*(left - right).elements(),), (*(right - left).elements(),), told)
        if tie is not None and len(tie[1]) > stated.is_product:
            made = ((name, _expand(whole, (tie,))) for name, whole in ties)
            yield from _solve(rest, names, told, extents, (*made, tie))


def _expand(names: Names, ties: Ties) -> Names:
    known = dict(ties)
    return tuple(n for name in names for n in (known.get(str(name)) or (name,)))


def _make_tie(one: Names, other: Names, told: Collection[str]) -> Tie | None:
    """The tie under which two products agree; None if there is none with one size on its left."""
    for a, b in ((other, one), (one, other)):
        if len(a) == 1 and b and isinstance(a[0], str) and a[0] not in told and a[0] not in b:
            return a[0], b
    return None


def _make_multiple(
    one: Names, other: Names, told: Collection[str], extents: Sequence[Names]
) -> Tie | None:
    """The one size as the other times a third: as the formula has it, or twice."""
    if len(one) != 1 or len(other) != 1 or one == other or one[0] in told:
        return None
    products = [names for names in extents if other[0] in names and one[0] not in names]
    return str(one[0]), (products or [(other[0], _FACTOR)])[0]


def set_sizes(sizes: Mapping[str, int], ties: Ties) -> dict[str, int]:
    """The sizes with those that are tied as the ties have them."""
    found = dict(sizes)
    for name, product in reversed(ties):
        found[name] = prod(n if isinstance(n, int) else found[n] for n in product)
    return found


def find_coincidences(names: Sequence[str], extents: Sequence[Names]) -> Iterator[Ties]:
    """Ties that no code states, to say under which it would be right: products, then equal sizes.

    After them come a product together with two equal sizes.
    """
    products = [(whole, product) for product in extents for whole in names if whole not in product]
    products = [tie for tie in products if {*tie[1]} <= {*names}]
    equal: list[Tie] = [(other, (one,)) for one, other in combinations(names, 2)]
    yield from ((tie,) for tie in (*products, *equal))
    if len(names) > 2:
        yield tuple((name, (names[0],)) for name in names[1:])
    for whole, product in products[:2]:
        yield from (((whole, product), tie) for tie in equal if whole not in {tie[0], *tie[1]})


def find_merged(system: System) -> list[tuple[str, ...]]:
    """The products of sizes that are extents of the formula."""
    tensors = [entry for entry in system.inputs if isinstance(entry, Tensor)]
    tensors += [equation.target.tensor for equation in system.equations]
    extents = (extent for tensor in tensors for extent in tensor.shape)
    merged = (extent.factors for extent in extents if isinstance(extent, Mul))
    names = (tuple(f.name for f in factors if isinstance(f, Size)) for factors in merged)
    return list(dict.fromkeys(tuple(sorted(each)) for each in names if len(each) == 2))
