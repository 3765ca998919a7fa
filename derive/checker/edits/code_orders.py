"""Edits that reorder parts of a text: axes, ends of a sequence, joined tensors, statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations, permutations

from derive.checker.edits import code
from derive.checker.edits.sites import LACKING, SEVERAL


def reorder_axes(site: code.Site, _: object) -> Iterator[code.Rewrite]:
    """Axes exchanged, also after a view with exchanged lengths; a sequence or an axis reversed."""
    text, get = f"({site.text})", site.source.text_of
    is_tensor = site.may_be_tensor
    match site.node:
        case ast.Call(func=ast.Name(id="range")) if code.find_name(site.parent) != "reversed":
            yield site.replace(f"reversed({site.text})", f"{site.text} from its END", SEVERAL)
        case ast.Call(func=ast.Name(id="reversed"), args=[inner]) | ast.Subscript(
            inner, ast.Slice(None, None, ast.UnaryOp())
        ):
            yield site.replace(get(inner), f"{get(inner)} from its start", LACKING)
        case ast.Name(id=name) if site.names.get(name) == "list":
            yield site.replace(f"{name}[::-1]", f"{name} from its END", SEVERAL - 0.1)
        case _ if is_tensor:
            for axis in (0, -1):
                words = f"FLIP axis {axis} of {site.text}"
                yield site.replace(f"{text}.flip({axis})", words, SEVERAL + 0.3)
    if not is_tensor or isinstance(site.parent, ast.UnaryOp):
        return
    for one, two in ((-1, -2), (0, 1), (1, 2)):
        spelt = f".transpose({one}, {two})"
        yield site.replace(text + spelt, f"TRANSPOSE {site.text}: {spelt}", SEVERAL - 0.1)
    if not isinstance(site.node, ast.Call):
        return
    if code.find_name(site.node) in {"view", "reshape"} and isinstance(
        site.node.func, ast.Attribute
    ):
        for (one, a), (two, b) in combinations(enumerate(site.node.args), 2):
            spelt = f".transpose({one}, {two})"
            words = f"TRANSPOSE after splitting: {spelt}"
            yield site.replace(f"{site.exchange(a, b)}{spelt}", words, SEVERAL)
    given = code.find_receiver(site.node)
    axes = [code.read_number(each) for each in site.node.args]
    if code.find_name(site.node) == "permute" and given is not None and None not in axes:
        for at, to in permutations(range(len(axes)), 2):
            rest = [axis for axis in axes if axis != axes[at]]
            order = ", ".join(map(str, (*rest[:to], axes[at], *rest[to:])))
            if abs(at - to) > 1:  # neighbours are exchanged by `exchange_parts`
                words = f"PERMUTE by {order}, not {', '.join(map(str, axes))}"
                yield site.replace(f"{get(given)}.permute({order})", words, SEVERAL)
    if code.find_name(site.node) == "repeat" and given is not None:
        for at, part in enumerate(site.node.args):
            if code.read_number(part) != 1:
                turned = f"{get(given)}.repeat_interleave({get(part)}, dim={at})"
                yield site.replace(turned, "REPEAT_INTERLEAVE, not repeat", LACKING)


def interleave_tensors(site: code.Site, _: object) -> Iterator[code.Rewrite]:
    """Tensors interleaved instead of concatenated."""
    match site.node:
        case ast.Call(ast.Attribute(library), [parts, *axes], words) if code.find_name(
            site.node
        ) in {"cat", "concat", "concatenate"}:
            told = [*axes, *(each.value for each in words if each.arg in {"dim", "axis"})]
            axis = code.read_number(told[0]) if told else 0
            if isinstance(axis, int):
                at, first = (axis, axis - 1) if axis < 0 else (axis + 1, axis)
                made = f"{site.source.text_of(library)}.stack({site.source.text_of(parts)}, {at})"
                spelt = f"{made}.flatten({first}, {first + 1})"
                yield site.replace(spelt, "INTERLEAVE, not one behind the other", LACKING)


def exchange_statements(site: code.Site, _: object) -> Iterator[code.Rewrite]:
    """Two consecutive statements exchanged, of which one reads a name that the other assigns."""
    one, source = site.parents[0], site.source
    kinds = (ast.Assign, ast.AugAssign)
    if site.parent is not one or not isinstance(one, kinds):
        return
    last = one.end_lineno or one.lineno
    two = next((each for each in source.statements if each.lineno > last), None)
    if not isinstance(two, kinds) or two.col_offset != one.col_offset:
        return

    def find_names(statement: ast.AST, *contexts: type) -> set[str]:
        nodes = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
        return {each.id for each in nodes if isinstance(each.ctx, contexts)}

    pairs = ((one, two), (two, one))
    if any(find_names(a, ast.Store) & find_names(b, ast.Load, ast.Store) for a, b in pairs):
        (start, middle), (behind, end) = source.span(one), source.span(two)
        text = source.text
        text = text[behind:end] + text[middle:behind] + text[start:middle]
        words = f"EXCHANGE lines {one.lineno} and {two.lineno}"
        yield code.Rewrite(start, end, text, words, LACKING, site.line)
