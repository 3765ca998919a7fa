"""Views that the code gives a name: their equations are written in their letters.

`q = (x @ w).view(B, S, H, D)` makes no new values, so the run has one step without a name over
b, s and H*D, read through a view. A reader knows it as q[b,s,h,d]; so it is written down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING

from derive.analysis.affine import divide, ravel
from derive.analysis.ranges import divide_exactly
from derive.frontend.torch.draft import is_reading, map_reads
from derive.frontend.torch.exprs import add, multiply
from derive.frontend.torch.places import put
from derive.frontend.torch.trace import View
from derive.ir.nodes import ONE, Access, Call, Expr, Index, Reduce, Tensor
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free, map_children, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from derive.frontend.torch.draft import Draft
    from derive.frontend.torch.trace import Trace


@dataclass(frozen=True)
class Digit:
    """A letter of a view as a digit of the flat position in a tensor."""

    letter: Index
    stride: Polynomial


def drop_copies(draft: Draft) -> None:
    """A tensor that is another one, element by element, is that one."""
    for tensor, value in list(draft.values.items()):
        step = draft.steps[tensor]
        if not isinstance(value, Access) or value.places != step.letters:
            continue
        other = value.tensor
        if other not in draft.values or (tensor in draft.results and other in draft.results):
            continue
        draft.results = [other if each is tensor else each for each in draft.results]
        del draft.values[tensor]
        _replace_reads(draft, tensor, partial(_read_instead, other))
        if not draft.steps[other].spot.name:
            _call(draft, other, step.spot.name)


def _read_instead(tensor: Tensor, access: Access) -> Expr:
    return Access(tensor, access.places)


def name_views(views: Sequence[View], draft: Draft) -> None:
    """Steps without a name take that of a view; and its letters, if it has more of them."""
    chosen: dict[Tensor, tuple[View, list[Digit]]] = {}
    for view in views:
        tensor = view.value.tensor
        if tensor not in draft.values or draft.steps[tensor].spot.name not in {"", view.name}:
            continue
        if _count(letter.extent for letter in view.letters) != _count(tensor.shape):
            continue
        if not draft.steps[tensor].spot.name:
            _call(draft, tensor, view.name)
        digits = _find_digits(view) or []
        least = len(chosen[tensor][1]) if tensor in chosen else _count_axes(tensor)
        if len(digits) > least and tensor not in draft.results:
            chosen[tensor] = view, digits
    for tensor, (view, digits) in chosen.items():
        _write_as(draft, tensor, view, digits)


def _count(extents: Iterable[Expr]) -> Polynomial:
    return prod(map(Polynomial.of, extents), start=Polynomial.of(1))


def _count_axes(tensor: Tensor) -> int:
    return sum(extent is not ONE for extent in tensor.shape)


def _call(draft: Draft, tensor: Tensor, name: str) -> None:
    step = draft.steps[tensor]
    draft.steps[tensor] = replace(step, spot=replace(step.spot, name=name))


def _find_digits(view: View) -> list[Digit] | None:
    """The letters as digits from the last to the first; None where they do not count it all up."""
    shape = view.value.tensor.shape
    line = ravel(view.value.places, shape)
    letters = [letter for letter in view.letters if letter.extent is not ONE]
    if line.constant.terms or set(line.terms) != set(letters):
        return None
    digits: list[Digit] = []
    stride = Polynomial.of(1)
    while len(digits) < len(letters):
        found = next((letter for letter in letters if line.terms[letter] == stride), None)
        if found is None:
            return None
        digits.append(Digit(found, stride))
        stride = stride * Polynomial.of(found.extent)
    return digits if stride == _count(shape) else None


def _write_as(draft: Draft, tensor: Tensor, view: View, digits: Sequence[Digit]) -> Tensor | None:
    """The tensor's equation in the letters of a view, and all its reads at their places."""
    step = draft.steps[tensor]
    letters = tuple(letter for letter in view.letters if letter.extent is not ONE)
    new = Tensor(tensor.name, tuple(letter.extent for letter in letters), tensor.kind)
    try:
        value = put(draft.values[tensor], step.letters, view.value.places)
    except ValueError:  # a softmax that would be read at a computed place
        return None

    def read(access: Access) -> Expr:
        rest = ravel(access.places, tensor.shape)
        places: dict[Index, Expr] = {}
        for digit in reversed(digits):
            place = divide(rest, digit.stride)
            rest = rest - place.scale(digit.stride)
            places[digit.letter] = place.to_expr()
        return Access(new, tuple(places[letter] for letter in letters))

    _replace_reads(draft, tensor, read)
    draft.steps[new] = replace(step, tensor=new, letters=letters)
    draft.values = {
        new if each is tensor else each: value if each is tensor else old
        for each, old in draft.values.items()
    }
    return new


def _replace_reads(draft: Draft, tensor: Tensor, read: Callable[[Access], Expr]) -> None:
    for reader, value in draft.values.items():
        if is_reading(value, tensor):
            draft.values[reader] = map_reads(value, tensor, read)


def split_letters(trace: Trace, draft: Draft) -> None:
    """`a[i,..] = .. i//H .. i%H ..` over i < B*H is an equation of a[b,h,..]."""
    todo = list(draft.values)
    while todo:
        tensor = todo.pop(0)
        letters, value = draft.steps[tensor].letters, draft.values[tensor]
        if tensor in draft.results:
            continue
        found = ((letter, _find_divisor(value, letter)) for letter in letters)
        index, under = next((each for each in found if each[1] is not None), (None, None))
        if index is None or under is None:
            continue
        outer, inner = _halve(trace, index, under)
        place = add(multiply(under.to_expr(), outer), inner)
        places = tuple(place if letter is index else letter for letter in letters)
        pieces = ((outer, inner) if letter is index else (letter,) for letter in letters)
        view = View("", tuple(chain.from_iterable(pieces)), Access(tensor, places))
        digits = _find_digits(view)
        new = _write_as(draft, tensor, view, digits) if digits else None
        if new is not None:
            todo.insert(0, new)


def _halve(trace: Trace, index: Index, under: Polynomial) -> tuple[Index, Index]:
    """Letters for the quotient and the rest of an index."""
    high = divide_exactly(Polynomial.of(index.extent), under)
    assert high is not None
    return trace.letter(high), trace.letter(under)


def split_sums(trace: Trace, draft: Draft) -> None:
    """`sum[i](.. i//D .. i%D ..)` over i < H*D is a sum over h and d."""

    def visit(here: Expr) -> Expr:
        new = map_children(here, visit)
        if not isinstance(new, Reduce) or new.kind == "argmax":
            return new
        for index in new.bound:
            under = _find_divisor(new.body, index)
            if under is not None:
                return visit(_split(trace, new, index, under))
        return new

    draft.values = {tensor: visit(value) for tensor, value in draft.values.items()}


def _find_divisor(body: Expr, index: Index) -> Polynomial | None:
    """The first number by which an index is divided and its extent can be."""
    for part in walk(body):
        match part:
            case Call("floordiv", (over, under)) if over is index and not find_free(under):
                found = Polynomial.of(under)
                if divide_exactly(Polynomial.of(index.extent), found) is not None:
                    return found
    return None


def _split(trace: Trace, whole: Reduce, index: Index, under: Polynomial) -> Reduce:
    outer, inner = _halve(trace, index, under)
    place = add(multiply(under.to_expr(), outer), inner)
    bound = [
        part for each in whole.bound for part in ((outer, inner) if each is index else (each,))
    ]
    condition, body = (put(part, (index,), (place,)) for part in (whole.condition, whole.body))
    return Reduce(whole.kind, tuple(bound), condition, body)
