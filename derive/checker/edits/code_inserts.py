"""Operators that insert a part at one site of the code: a factor, a term, a function.

Inserted parts come from the surrounding code and from the formula: its numbers, its functions, its
sizes as the code can write them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from derive.checker import samples
from derive.checker.edits import code
from derive.checker.edits.sites import LACKING, SEVERAL
from derive.frontend.torch.numbers import is_number
from derive.ir import nodes as ir
from derive.libraries import torch

INSERTED = SEVERAL  # the inserted part is new to the code

_ALONG = {"softmax", "log_softmax", "logsumexp", "sum", "mean", "max", "min", "cumsum"}


@dataclass(frozen=True)
class Stock:
    """The functions, numbers and sizes of the formula."""

    functions: tuple[str, ...]
    numbers: tuple[Fraction, ...]
    bounds: tuple[tuple[str, Fraction | str], ...]  # "min" or "max", and the number or scalar
    sizes: Mapping[str, int]

    @staticmethod
    def of(system: ir.System, sizes: Mapping[str, int], defaulted: Sequence[str] = ()) -> Stock:
        """The functions and numbers of the formula, with the defaults of some of its scalars."""
        functions: dict[str, None] = {}
        numbers: dict[Fraction, None] = {}
        bounds: dict[tuple[str, Fraction | str], None] = {}
        for node in samples.list_parts(system):
            ends: list[tuple[str, ir.Expr]] = []
            match node:
                case ir.Call("max" | "min" as side, parts):
                    functions |= dict.fromkeys((side, "relu"))  # max(x, 0)
                    ends = [("min" if side == "max" else "max", part) for part in parts]
                case ir.Call("clip", (_, low, high)):
                    ends = [("min", low), ("max", high)]
            for which, end in ends:
                if isinstance(end, ir.Number | ir.Scalar):
                    bounds[which, end.value if isinstance(end, ir.Number) else end.name] = None
            match node:
                case ir.Call(name) | ir.Along(name) | ir.Reduce(name):
                    functions[name] = None
                case ir.Number(value):
                    numbers |= dict.fromkeys((value, -value, 1 / value if value else value))
        defaults = [s.default for s in system.scalars if s.name in defaulted]
        numbers |= dict.fromkeys(n.value for n in defaults if isinstance(n, ir.Number))
        told = tuple(n for n in numbers if n not in {0, 1})
        return Stock(tuple(functions), told, tuple(bounds), sizes)


def spell_free(name: str) -> str:
    """The full name of a function of torch."""
    name = {"max": "amax", "min": "amin"}.get(name, name)
    return f"torch.{name}" if hasattr(torch, name) else f"torch.nn.functional.{name}"


def insert_factors(site: code.Site, stock: Stock) -> Iterator[code.Rewrite]:
    """A factor or divisor: a size or its root, a number, a name; the negative; a power."""
    if not site.is_place:
        return
    bare, text = site.text, f"({site.text})"
    yield site.replace(f"-{text}", f"the SIGN of {bare} is to be turned", LACKING + 0.1)
    yield site.replace(f"{text} ** 2", f"SQUARE {bare}", LACKING + 0.2)
    yield site.replace(f"{text}.sqrt()", f"ROOT of {bare}", LACKING + 0.2)
    yield site.replace(f"{text} ** 0.5", f"ROOT of {bare}", LACKING + 0.3)
    yield site.replace(f"1 / {text}", f"INVERT {bare}", INSERTED + 0.3)
    yield site.replace(f"1 - {text}", f"1 - {bare}, not {bare}", INSERTED + 0.3)
    scaled: list[tuple[str, str, float]] = []  # expression, factor, extra cost
    for size, extent in code.find_spelt_sizes(site):
        extra = 0.0 if extent in stock.sizes.values() else 0.3
        scaled += [
            (f"{text} * {size} ** -0.5", f"1/sqrt({size})", extra),
            (f"{text} * {size} ** 0.5", f"sqrt({size})", extra),
            (f"{text} / {size}", f"1/{size}", extra + 0.1),
            (f"{text} * {size}", size, extra + 0.1),
        ]
    for number in stock.numbers:
        is_part = (1 / number).denominator == 1
        spelt = f"{text} / {1 / number}" if is_part else f"{samples.show_number(number)} * {text}"
        scaled.append((spelt, str(number), 0.0))
    for name in (name for name, value in site.names.items() if isinstance(value, float)):
        scaled += [(f"{text} / {name}", f"1/{name}", 0.0), (f"{name} * {text}", name, 0.0)]
        scaled.append((f"(1 - {name}) * {text}", f"1 - {name}", 0.1))
    for spelt, by, extra in scaled:
        yield site.replace(spelt, f"SCALE {bare} by {by}", LACKING + 0.3 + extra)


def insert_terms(site: code.Site, stock: Stock) -> Iterator[code.Rewrite]:
    """A tensor or a number added, subtracted, multiplied or divided by."""
    if not site.is_place:
        return
    bare, text = site.text, f"({site.text})"
    for name, value in site.names.items():
        is_tensor = hasattr(value, "shape")
        is_size = isinstance(value, int) and value in stock.sizes.values()
        may_be = is_number(value) and not is_size
        is_truth = str(getattr(value, "dtype", "")) == "torch.bool"
        if name == bare or not (may_be or is_tensor) or is_truth:
            continue
        axes = value.dim() if is_tensor else 0
        if name in site.source.unused and axes == 2 and site.may_be_tensor:
            for spelt in (name, f"{name}.T"):
                words = f"MULTIPLY {bare} by {spelt}, which is unused"
                yield site.replace(f"{text} @ {spelt}", words, LACKING + 0.1)
        spread = {1: ("[:, None]", "[:, None, None]"), 2: ("[:, None]", "[..., None]")}
        for at, spelt in enumerate((name, *(name + each for each in spread.get(axes, ())))):
            is_unused = is_tensor and name in site.source.unused
            cost = (LACKING if is_unused else INSERTED) + 0.1 * (1 + at)
            yield site.replace(f"{text} + {spelt}", f"ADD the term {name} to {bare}", cost)
            yield site.replace(f"{text} - {spelt}", f"ADD the term -{name} to {bare}", cost + 0.1)
            if is_tensor:
                words = f"ADD the factor {name} to {bare}"
                yield site.replace(f"{text} * {spelt}", words, cost + 0.2)
                yield site.replace(f"{text} / {spelt}", f"DIVIDE {bare} by {name}", cost + 0.2)
    for number in (*stock.numbers, Fraction(1), Fraction(-1)):
        spelt = f"{text} {'-' if number < 0 else '+'} {samples.show_number(abs(number))}"
        yield site.replace(spelt, f"ADD the term {number} to {bare}", INSERTED + 0.2)


def insert_functions(site: code.Site, stock: Stock) -> Iterator[code.Rewrite]:
    """A function of the formula applied to a value, or an unused module; the negation of a mask."""
    if not site.may_be_tensor:
        return
    bare = site.text
    for name in stock.functions:
        spelt, words = spell_free(name), f"ADD {name}: APPLY {name} to {bare}"
        if name not in {*_ALONG, "clip"}:
            yield site.replace(f"{spelt}({bare})", words, LACKING + 0.3)
        for axis in (-1, -2, 0, 1) if name in _ALONG - {"sum"} else ():
            yield site.replace(f"{spelt}({bare}, dim={axis})", words, INSERTED + 0.1)
    for side, end in stock.bounds:
        spelt = end if isinstance(end, str) else samples.show_number(end)
        if not isinstance(end, str) or end in site.names:
            words = f"ADD the clamp: {bare} at {'least' if side == 'min' else 'most'} {spelt}"
            yield site.replace(f"({bare}).clamp({side}={spelt})", words, LACKING + 0.1)
    for owner, members in site.names.items():
        for name, kind in members.items() if isinstance(members, dict) else ():
            if isinstance(kind, str) and name in site.source.unused:
                words = f"APPLY {owner}.{name}, which is unused, to {bare}"
                yield site.replace(f"{owner}.{name}({bare})", words, LACKING + 0.1)
    match site.node:
        case ast.Name(id=name):
            may_be_truth = str(getattr(site.names.get(name), "dtype", "")) == "torch.bool"
        case _:
            is_test = isinstance(site.node, (ast.Compare, ast.Call))
            may_be_truth = is_test and not isinstance(site.parent, ast.BinOp)
    if may_be_truth:
        yield site.replace(f"~({bare})", f"INVERT {bare}: ~", LACKING)
