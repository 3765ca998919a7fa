"""Statements on sizes in failing code, and the relations among sizes that follow.

    x.view(b, s, h, d)            failing at E=6 H=3 D=7 states an equal number of elements: E = H*D
    x.view(b, s, h, -1)           states a multiple of H
    assert x.size(-1) == h * d    failing, states which numbers have to be equal

The sizes of a sample are distinct, and distinct from products where possible, so that numbers
identify sizes.
"""

import ast
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import prod
from types import FrameType
from typing import Any, TypeAlias

from derive.checker.slots import parse_file
from derive.ir import nodes as ir
from derive.libraries import torch

Product: TypeAlias = tuple[str | int, ...]  # factors: names of sizes, and numbers
Relation: TypeAlias = tuple[str, Product]  # a size and the factors it is equal to
# The product of a relation may contain sizes defined by later relations.
Relations: TypeAlias = tuple[Relation, ...]
MOST_NAMES = 4  # factors of a product
MOST_GUESSES = 4  # relations guessed from the statements at one sample
_FACTOR = 2  # factor assumed for a multiple where no size is the other factor


@dataclass(frozen=True)
class Statement:
    """Two numbers that code requires to be equal, or the first to be a multiple of the second."""

    one: int
    other: int
    names: tuple[str | int, ...] = ()  # sizes whose product the second is, where known
    is_product: bool = False  # a product of several sizes, not one size
    is_multiple: bool = False


def read_view(name: str, args: Any, kwargs: Mapping[str, Any]) -> Iterator[Statement]:
    """The statement of a failing view or reshape: equal numbers of elements, common axes aside."""
    have: list[int] = []
    asked: list[Any] = []
    match name, args:
        case (("view" | "reshape"), (tensor, *shape)):
            shape = shape or [kwargs.get("shape", kwargs.get("size", ()))]
            have, asked = list(tensor.shape), _flatten(shape)
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


def read_refusal(frame: FrameType, line: int) -> tuple[list[Statement], bool]:
    """The pair (statements of the assert or raise at a line, whether it reads tensor elements)."""
    said, reads_elements = list[Statement](), False
    stops: list[Any]
    for node in ast.walk(parse_file(frame.f_code.co_filename)):
        match node:
            case ast.Assert(test=test):
                stops = [node]
            case ast.If(test, body):
                stops = [n for n in body if isinstance(n, ast.Raise)]
            case _:
                continue
        if any(stop.lineno <= line <= (stop.end_lineno or line) for stop in stops):
            said += _read_test(test, frame)
            reads_elements |= _reads_elements(test, frame)
    return said, reads_elements


def _reads_elements(test: ast.expr, frame: FrameType) -> bool:
    """Whether a condition reads elements of tensors, not shapes alone."""
    names = {**frame.f_globals, **frame.f_locals}
    names |= {n: each.to("meta") for n, each in names.items() if isinstance(each, torch.Tensor)}
    try:
        bool(eval(compile(ast.Expression(test), "<assertion>", "eval"), names))
    except (RuntimeError, NotImplementedError):  # torch's, where there are no elements
        return True
    except Exception:  # whatever else the user's expression raises
        return False
    return False


def _read_test(test: ast.expr, frame: FrameType) -> Iterator[Statement]:
    """Yield statements for the comparisons and remainders of a test that do not hold in a frame."""
    for node in ast.walk(test):
        match node:
            case ast.Compare(one, [ast.Eq() | ast.NotEq()], [other]):
                is_multiple = False
            case ast.BinOp(one, ast.Mod(), other):
                is_multiple = True
            case _:
                continue
        try:  # numbers, or shapes number by number
            codes = (compile(ast.Expression(e), "<assertion>", "eval") for e in (one, other))
            left, right = (eval(code, frame.f_globals, frame.f_locals) for code in codes)
        except Exception:  # whatever the user's expression raises
            continue
        both = isinstance(left, tuple) and isinstance(right, tuple)
        for here, there in zip(left, right, strict=False) if both else [(left, right)]:
            if not all(type(number) is int and number > 0 for number in (here, there)):
                continue
            if here % there if is_multiple else here != there:
                yield Statement(here, there, is_multiple=is_multiple)


def guess_relations(
    statements: Sequence[Sequence[Statement]],
    sizes: Mapping[str, int],
    relations: Relations,
    fixed: Collection[str],
    extents: Sequence[Product] = (),
) -> list[Relations]:
    """Sets of relations under which the statements of one run hold, smallest first.

    Each extends `relations` and sets no `fixed` size. `extents` are the formula's own products.
    """
    dependent = {name for name, _ in relations}
    known = {name: size for name, size in sizes.items() if name not in dependent and size > 1}
    names = _name_numbers(known, extents)
    solved = (
        each
        for together in statements
        if together
        for each in islice(_solve(together, names, fixed, extents, ()), MOST_GUESSES)
    )
    found = dict.fromkeys(each for each in solved if each)
    return [(*relations, *each) for each in sorted(found, key=len)[:MOST_GUESSES]]


def _name_numbers(sizes: Mapping[str, int], extents: Sequence[Product]) -> dict[int, list[Product]]:
    """The shortest products of sizes that are equal to each number, those of `extents` first."""
    found: dict[int, list[Product]] = {}
    own = [names for names in extents if {*names} <= {*sizes}]
    for count in range(1, MOST_NAMES + 1):
        for names in (*(n for n in own if len(n) == count), *combinations(sizes, count)):
            known = found.setdefault(prod(sizes[str(name)] for name in names), [])
            if all(len(each) == count and {*each} != {*names} for each in known):
                known.append(names)
    return found


def _solve(
    statements: Sequence[Statement],
    names: Mapping[int, list[Product]],
    fixed: Collection[str],
    extents: Sequence[Product],
    relations: Relations,
) -> Iterator[Relations]:
    """Yield the sets of relations, with those already known, that make all statements true."""
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
            yield from _solve(rest, names, fixed, extents, relations)
            continue
        relation: Relation | None = None
        if stated.is_multiple:  # one size as the other times a third, or times 2
            if len(one) == len(other) == 1 and one != other and one[0] not in fixed:
                third = [names for names in extents if other[0] in names and one[0] not in names]
                relation = str(one[0]), (third or [(other[0], _FACTOR)])[0]
        else:  # an equation with a single size on one side
            mine, yours = (*(left - right).elements(),), (*(right - left).elements(),)
            for a, b in ((yours, mine), (mine, yours)):
                is_single = len(a) == 1 and b and isinstance(a[0], str)
                if relation is None and is_single and a[0] not in fixed and a[0] not in b:
                    relation = str(a[0]), b
        if relation is not None and len(relation[1]) > stated.is_product:
            made = ((name, _expand(whole, (relation,))) for name, whole in relations)
            yield from _solve(rest, names, fixed, extents, (*made, relation))


def _expand(names: Product, relations: Relations) -> Product:
    """The product with each dependent size replaced by its factors."""
    known = dict(relations)
    return tuple(n for name in names for n in (known.get(str(name)) or (name,)))


def set_sizes(sizes: Mapping[str, int], relations: Relations) -> dict[str, int]:
    """The sizes, with dependent ones computed from the relations."""
    found = dict(sizes)
    for name, product in reversed(relations):
        found[name] = prod(n if isinstance(n, int) else found[n] for n in product)
    return found


def find_coincidences(names: Sequence[str], extents: Sequence[Product]) -> Iterator[Relations]:
    """Guesses of equal sizes: one is a product, then two are equal, then all are."""
    for product in extents:
        if {*product} <= {*names}:
            yield from (((whole, product),) for whole in names if whole not in product)
    yield from (((other, (one,)),) for one, other in combinations(names, 2))
    yield tuple((name, (names[0],)) for name in names[1:])


def find_merged(system: ir.System) -> list[tuple[str, ...]]:
    """The pairs of sizes that alone are multiplied in an extent, such as H and D in [B, 2*H*D]."""
    tensors = (*system.tensors, *(equation.target.tensor for equation in system.equations))
    merged = (e for tensor in tensors for e in tensor.shape if isinstance(e, ir.Mul))
    names = (sorted(f.name for f in e.factors if isinstance(f, ir.Size)) for e in merged)
    return list(dict.fromkeys(tuple(each) for each in names if len(each) == 2))
