"""What may be written beside one place of the code, or be read another way there.

add a function, a factor, a term, a keyword     transpose, turn round, shift a slice
another index of an einsum string              another part of an expression
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

from derive.checker.code_edits.running import is_number
from derive.ir.functions import FUNCTIONS, find_call

if TYPE_CHECKING:
    from derive.checker.code_edits.sites import Rewrite, Site
from derive.checker.code_edits.operators import (
    Stock,
    bracket,
    exchange,
    find_name,
    find_receiver,
    find_spelt_sizes,
    read_number,
    spell_free,
)

_KEYWORDS = {
    "var": ("correction=0", "correction=1"),
    "std": ("correction=0", "correction=1"),
    "scaled_dot_product_attention": ("scale=1.0", "is_causal=True"),
    "sum": ("keepdim=True",),
    "mean": ("keepdim=True",),
    "norm": ("keepdim=True",),
}
_KEYWORDS |= {  # approximations
    row.spellings: (f"{word}={told!r}",)
    for row in FUNCTIONS.values()
    if (call := find_call(row.name))
    for word, told in call.keywords.items()
    if isinstance(told, str)
}
_SHAPED = {"view", "reshape"}


def add_factors(site: Site, stock: Stock) -> Iterator[Rewrite]:
    """A factor or divisor: a size or its root, a number, a name; the contrary sign; a power."""
    if not _is_place(site):
        return
    text = bracket(site.node, site.text)
    factor = (
        site.text
        if isinstance(site.node, ast.BinOp)
        and isinstance(site.node.op, (ast.Mult, ast.Div, ast.MatMult))
        else text
    )
    yield site.join(f"-{text}", f"the SIGN of {site.text} is to be turned", 1.3)
    yield site.join(f"{text} ** 2", f"SQUARE {site.text}", 1.4)
    yield site.replace(f"{text}.sqrt()", f"ROOT of {site.text}", 1.4)
    yield site.join(f"{text} ** 0.5", f"ROOT of {site.text}", 1.5)
    yield site.join(f"1 / {text}", f"INVERT {site.text}", 1.9)
    for size, extent in find_spelt_sizes(site):
        extra = 0.0 if extent in stock.sizes.values() else 0.3
        for end, shown in ((" ** -0.5", "1/sqrt({})"), (" ** 0.5", "sqrt({})")):
            yield site.join(
                f"{factor} * {size}{end}", f"SCALE {site.text} by {shown.format(size)}", 1.5 + extra
            )
        yield site.join(f"{factor} / {size}", f"SCALE {site.text} by 1/{size}", 1.6 + extra)
        yield site.join(f"{factor} * {size}", f"SCALE {site.text} by {size}", 1.6 + extra)
    for number in stock.numbers:
        shown = str(number) if number.denominator == 1 else repr(float(number))
        spelt = f"{factor} / {1 / number}" if (1 / number).denominator == 1 else f"{shown} * {text}"
        yield site.join(spelt, f"SCALE {site.text} by {number}", 1.5)
    for name, value in site.names.items():
        if is_number(value) and isinstance(value, float):
            yield site.join(f"{factor} / {name}", f"SCALE {site.text} by 1/{name}", 1.5)
            yield site.join(f"{name} * {text}", f"SCALE {site.text} by {name}", 1.5)
            rest = f"(1 - {name})"
            yield site.join(f"{rest} * {factor}", f"SCALE {site.text} by 1 - {name}", 1.6)


def _is_place(site: Site) -> bool:
    """Is it a value that something may be put around, and no bare number, string or keyword?"""
    if not site.is_value or isinstance(site.node, (ast.Constant, ast.Tuple, ast.List, ast.Slice)):
        return False
    if isinstance(site.node, ast.Name) and site.node.id not in site.names:
        return False  # a module
    return not isinstance(site.node, ast.UnaryOp) or read_number(site.node) is None


def _may_be_tensor(site: Site) -> bool:
    """Is it a value that is not made of plain numbers alone?"""
    import torch

    if not _is_place(site):
        return False
    names = [n.id for n in ast.walk(site.node) if isinstance(n, ast.Name) and n.id in site.names]
    is_tensor = any(isinstance(site.names[name], torch.Tensor) for name in names)
    return is_tensor or not isinstance(site.node, (ast.Name, ast.BinOp, ast.Subscript))


def add_terms(site: Site, stock: Stock) -> Iterator[Rewrite]:
    """A tensor or a number added, taken away, multiplied by or divided by."""
    import torch

    if not _is_place(site):
        return
    text = bracket(site.node, site.text)
    for name, value in site.names.items():
        if name == site.text or not _may_be_term(value, stock):
            continue
        if isinstance(value, torch.Tensor) and value.dtype == torch.bool:
            continue
        if (
            name in site.source.unused
            and _may_be_tensor(site)
            and getattr(value, "dim", float)() == 2
        ):
            for spelt in (name, f"{name}.T"):
                words = f"MULTIPLY {site.text} by {spelt}, which is unused"
                yield site.join(f"{text} @ {spelt}", words, 1.3)
        for spelt, extra in _spread_out(name, value):
            yield site.join(
                f"{site.text} + {spelt}", f"ADD the term {name} to {site.text}", 1.7 + extra
            )
            yield site.join(
                f"{site.text} - {spelt}", f"ADD the term -{name} to {site.text}", 1.8 + extra
            )
            if isinstance(value, torch.Tensor):
                yield site.join(
                    f"{text} * {spelt}", f"ADD the factor {name} to {site.text}", 1.9 + extra
                )
                yield site.join(f"{text} / {spelt}", f"DIVIDE {site.text} by {name}", 1.9 + extra)
    for number in (*stock.numbers, Fraction(1), Fraction(-1)):
        size = abs(number)
        shown = str(size) if size.denominator == 1 else repr(float(size))
        sign = "-" if number < 0 else "+"
        yield site.join(f"{site.text} {sign} {shown}", f"ADD the term {number} to {site.text}", 1.8)


def _may_be_term(value: Any, stock: Stock) -> bool:
    """Is it a tensor, or a number that is no size?"""
    import torch

    return isinstance(value, torch.Tensor) or (
        is_number(value) and (isinstance(value, float) or value not in stock.sizes.values())
    )


def _spread_out(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """A tensor as it stands, and with axes of one place behind it or in it."""
    yield name, 0.0
    if getattr(value, "dim", float)() == 1:
        yield f"{name}[:, None]", 0.1
        yield f"{name}[:, None, None]", 0.2
    elif getattr(value, "dim", float)() == 2:
        yield f"{name}[:, None]", 0.1
        yield f"{name}[..., None]", 0.1


def replace_parts(site: Site, _: Stock) -> Iterator[Rewrite]:
    """A name that is there already instead of an expression."""
    import torch

    if not _may_be_tensor(site) or not isinstance(
        site.node, (ast.BinOp, ast.Call, ast.Compare, ast.Subscript)
    ):
        return
    for name, value in site.names.items():
        if isinstance(value, torch.Tensor) and not any(
            isinstance(node, ast.Name) and node.id == name for node in ast.walk(site.node)
        ):
            yield site.replace(name, f"USE {name}, not {site.text}", 1.9)


def turn_round(site: Site, _: Stock) -> Iterator[Rewrite]:
    """A sequence or a tensor from its end, or no longer so."""
    match site.node:
        case ast.Call(func=ast.Name(id="range")) if not _is_turned(site.parent):
            yield site.replace(f"reversed({site.text})", f"{site.text} from its END", 1.6)
        case ast.Call(func=ast.Name(id="reversed"), args=[inner]):
            yield site.replace(
                site.source.get(inner), f"{site.source.get(inner)} from its start", 1.2
            )
        case ast.Subscript(inner, ast.Slice(None, None, ast.UnaryOp())):
            yield site.replace(
                site.source.get(inner), f"{site.source.get(inner)} from its start", 1.2
            )
        case ast.Name(id=name) if name in site.names and site.names[name] == "list":
            yield site.replace(f"{name}[::-1]", f"{name} from its END", 1.5)
        case _ if _may_be_tensor(site):
            for axis in (0, -1):
                spelt = f"{bracket(site.node, site.text)}.flip({axis})"
                yield site.replace(spelt, f"FLIP axis {axis} of {site.text}", 1.9)


def _is_turned(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and find_name(node) == "reversed"


def add_functions(site: Site, stock: Stock) -> Iterator[Rewrite]:
    """A function of the formula around a value."""
    if not _may_be_tensor(site):
        return
    bare = site.text
    for name in stock.functions:
        spelt = spell_free(name)
        words = f"ADD {name}: APPLY {name} to {bare}"
        if name in {"softmax", "log_softmax", "logsumexp", "sum", "mean", "max", "min", "cumsum"}:
            for axis in (-1, -2, 0, 1):
                if name != "sum":
                    yield site.replace(f"{spelt}({bare}, dim={axis})", words, 1.7)
        else:
            yield site.replace(f"{spelt}({bare})", words, 1.5)
    for owner, members in site.names.items():
        for name, kind in members.items() if isinstance(members, dict) else ():
            if isinstance(kind, str) and name in site.source.unused:
                words = f"APPLY {owner}.{name}, which is unused, to {bare}"
                yield site.replace(f"{owner}.{name}({bare})", words, 1.3)
    if _may_be_truth(site):
        yield site.join(f"~{bracket(site.node, bare)}", f"INVERT {bare}: ~", 1.2)


def _may_be_truth(site: Site) -> bool:
    """May it be a tensor of truth values?"""
    import torch

    match site.node:
        case ast.Name(id=name):
            value = site.names.get(name)
            return isinstance(value, torch.Tensor) and value.dtype == torch.bool
        case ast.Compare() | ast.Call():
            return not isinstance(site.parent, ast.BinOp)
    return False


def transpose(site: Site, _: Stock) -> Iterator[Rewrite]:
    """Two axes exchanged; a view of exchanged lengths, with its axes exchanged."""
    if not _may_be_tensor(site) or isinstance(site.parent, ast.UnaryOp):
        return
    text = bracket(site.node, site.text)
    for one, two in ((-1, -2), (0, 1), (1, 2)):
        spelt = f"{text}.transpose({one}, {two})"
        yield site.replace(spelt, f"TRANSPOSE {site.text}: .transpose({one}, {two})", 1.5)
    match site.node:
        case ast.Call(func=ast.Attribute(attr=name), args=parts) if name in _SHAPED:
            for (one, a), (two, b) in combinations(enumerate(parts), 2):
                turned = f"{exchange(site, a, b)}.transpose({one}, {two})"
                words = f"TRANSPOSE after splitting: .transpose({one}, {two})"
                yield site.replace(turned, words, 1.6)
    if isinstance(site.node, ast.Call) and find_name(site.node) == "repeat":
        given = find_receiver(site)
        for at, part in enumerate(site.node.args):
            if read_number(part) != 1:
                turned = f"{given}.repeat_interleave({site.source.get(part)}, dim={at})"
                yield site.replace(turned, "REPEAT_INTERLEAVE, not repeat", 1.2)


def replace_indices(site: Site, _: Stock) -> Iterator[Rewrite]:
    """Another index in the string of an einsum, or two exchanged."""
    if not isinstance(site.node, ast.Constant) or not isinstance(site.node.value, str):
        return
    call = site.parent
    if not isinstance(call, ast.Call) or find_name(call) not in {
        "einsum",
        "rearrange",
        "reduce",
        "repeat",
    }:
        return
    spec = site.node.value
    quote = site.text[0]
    found = list(
        re.finditer(r"[A-Za-z]", spec)
        if find_name(call) == "einsum" and not re.search(r"[a-z]{1,2}\d|[a-z]{2} ", spec)
        else re.finditer(r"[A-Za-z_]\w*", spec)
    )
    indices = list(dict.fromkeys(m.group() for m in found))
    new: dict[str, float] = {}
    for m in found:
        for other in indices:
            if other != m.group():
                new.setdefault(spec[: m.start()] + other + spec[m.end() :], 1.2)
    for one, two in combinations(found, 2):
        if one.group() != two.group():
            turned = (
                spec[: one.start()]
                + two.group()
                + spec[one.end() : two.start()]
                + one.group()
                + spec[two.end() :]
            )
            near = not re.search(r",|->", spec[one.end() : two.start()])
            new[turned] = min(new.get(turned, 9.0), 1.0 if near else 1.4)
    left, arrow, right = spec.partition("->")
    if arrow:
        for index in indices:
            if index not in right:
                new.setdefault(f"{left}->{right}{index}", 1.5)
            else:
                new.setdefault(f"{left}->{right.replace(index, '', 1)}", 1.5)
    for text, cost in new.items():
        yield site.replace(f"{quote}{text}{quote}", f"READ {text!r}, not {spec!r}", cost)


def add_keywords(site: Site, _: Stock) -> Iterator[Rewrite]:
    """A keyword that has another default; the contrary truth value."""
    match site.node:
        case ast.Constant(value=bool() as value):
            yield site.replace(repr(not value), f"{not value}, not {value}", 1.0)
        case ast.Call(keywords=keywords, args=args):
            present = {keyword.arg for keyword in keywords}
            for each in _KEYWORDS.get(find_name(site.node), ()):
                if each.split("=")[0] not in present and not {"unbiased"} & present:
                    inner = site.text[:-1].rstrip().removesuffix(",")
                    comma = ", " if keywords or args else ""
                    yield site.replace(
                        f"{inner}{comma}{each})", f"ADD {each} to {find_name(site.node)}", 1.1
                    )


def move_slices(site: Site, _: Stock) -> Iterator[Rewrite]:
    """The other end of a slice; a slice that begins or ends one place before or behind."""
    if not isinstance(site.node, ast.Subscript):
        return
    part = site.node.slice
    for each in part.elts if isinstance(part, ast.Tuple) else [part]:
        if not isinstance(each, ast.Slice) or each.step is not None:
            continue
        old = site.source.get(each)
        start, end = site.source.span(each)
        begin = site.source.span(site.node)[0]
        for new, cost in _find_slices(each, old):
            text = site.text[: start - begin] + new + site.text[end - begin :]
            yield site.replace(text, f"READ [{new}], not [{old}]", cost)


def _find_slices(part: ast.Slice, old: str) -> Iterator[tuple[str, float]]:
    if (part.lower is None) != (part.upper is None):
        yield f":-{old[:-1]}" if part.upper is None else f"{old[1:].lstrip('-')}:", 1.2
    ends = [None if each is None else read_number(each) for each in (part.lower, part.upper)]
    known = (
        each is None or isinstance(end, int)
        for each, end in zip((part.lower, part.upper), ends, strict=True)
    )
    if not all(known):
        return
    low, high = ends
    for step in (1, -1):
        moved = (low or 0) + step, None if high is None and step > 0 else (high or 0) + step
        if high == -1 and step > 0:
            moved = moved[0], None
        if moved[0] >= 0:
            yield f"{moved[0] or ''}:{'' if moved[1] is None else moved[1]}", 1.3
