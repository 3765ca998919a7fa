"""Rules on shapes, where the text says them: `x = torch.zeros(2, n)`, and x is nothing else."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from derive.frontend.from_einsum import DOTS
from derive.linter.rule import Remark, Severity, rule
from derive.linter.scopes import find_dotted, find_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.frontend.from_einsum import Spec, Token
    from derive.linter.calls import Call
    from derive.linter.scopes import Scope

    Shape = tuple[int | None, ...]  # None for a number that is not known

# What makes a tensor of a shape: all arguments are extents, or the first alone is the shape.
_BY_ARGUMENTS = {f"torch.{name}" for name in ("zeros", "ones", "rand", "randn", "empty")} | {
    "numpy.random.rand",
    "numpy.random.randn",
}
_BY_FIRST = {
    *(f"numpy.{name}" for name in ("zeros", "ones", "empty", "full")),
    *(f"jax.numpy.{name}" for name in ("zeros", "ones", "empty", "full")),
    "torch.full",
}
_VECTORS = {f"{home}.arange" for home in ("torch", "numpy", "jax.numpy")}
_MATRICES = {f"{home}.eye" for home in ("torch", "numpy", "jax.numpy")} | {"numpy.identity"}


@rule(
    code="DE006",
    name="rank-mismatch",
    severity=Severity.ERROR,
    why="A term has one letter for each index of its tensor.",
    hurts='A = torch.zeros(2, 3, 4)\nx = torch.einsum("ij->ji", A)',
    fine='A = torch.zeros(2, 3)\nx = torch.einsum("ij->ji", A)',
)
def find_wrong_ranks(call: Call, spec: Spec) -> Iterator[Remark]:
    """A tensor has another number of indices than its term has indices."""
    for name, operand, shape in _find_shapes(call, spec):
        indices = [index for index in operand if index.name != DOTS]
        is_open = len(indices) < len(operand)
        if len(indices) > len(shape) or (not is_open and len(indices) < len(shape)):
            start, end = (operand[0].start, operand[-1].end) if operand else (-1, -1)
            says = f"{name} has {len(shape)} indices, its term {len(indices)} letters"
            yield Remark(says, "give each index one letter", start, end)


@rule(
    code="DE007",
    name="extent-mismatch",
    severity=Severity.ERROR,
    why="A letter is one index: it has the same extent wherever it stands.",
    hurts='A = torch.zeros(2, 3)\nB = torch.zeros(4, 5)\nx = torch.einsum("ij,jk->ik", A, B)',
    fine='A = torch.zeros(2, 3)\nB = torch.zeros(3, 5)\nx = torch.einsum("ij,jk->ik", A, B)',
)
def find_wrong_extents(call: Call, spec: Spec) -> Iterator[Remark]:
    """An index stands for two different extents."""
    known: dict[str, tuple[int, str]] = {}
    for name, operand, shape in _find_shapes(call, spec):
        if len(operand) != len(shape) or any(index.name == DOTS for index in operand):
            continue
        for index, extent in zip(operand, shape, strict=True):
            if extent is None or extent == 1:
                continue  # an extent of 1 is stretched, in all libraries
            before, where = known.setdefault(index.name, (extent, name))
            if before != extent:
                says = f"{index.name} has extent {before} in {where} and {extent} in {name}"
                advice = "correct a letter, or a shape"
                yield Remark(says, advice, index.start, index.end)


def _find_shapes(call: Call, spec: Spec) -> Iterator[tuple[str, Sequence[Token], Shape]]:
    """The operands whose shape is known, with their terms."""
    given = call.operands
    if given is None or len(given) != len(spec.operands):
        return
    if call.function not in {"einsum", "contract"}:
        return
    for name, operand, expr in zip(call.names, spec.operands, given, strict=True):
        shape = _find_shape(expr, call.scope)
        if shape is not None:
            yield name, operand, shape


def _find_shape(expr: ast.expr, scope: Scope) -> Shape | None:
    match expr:
        case ast.Name(id=name) if (only := find_only(name, scope)) and only[1] is scope:
            value, home = only
            # `x.` is bound where something is done to x in place
            return _find_shape(value, home) if f"{name}." not in home.bound else None
        case ast.Call(func=func, args=arguments) if arguments:
            if any(isinstance(argument, ast.Starred) for argument in arguments):
                return None
            targets = find_dotted(func, scope)
            if len(targets) != 1:
                return None
            return _find_made(next(iter(targets)), expr, scope)
        case _:
            return None


def _find_made(target: str, made: ast.Call, scope: Scope) -> Shape | None:
    """The shape of what a call makes, from its arguments."""
    arguments, first = made.args, made.args[0]
    if target in _VECTORS:
        return (None,)
    if target in _MATRICES:
        rows = _find_extent(first, scope)
        # a second argument is the number of columns, by name or by place
        is_square = len(arguments) == 1 and all(k.arg == "dtype" for k in made.keywords)
        return (rows, rows) if is_square else (rows, None)
    if target in _BY_ARGUMENTS and len(arguments) > 1:
        return tuple(_find_extent(argument, scope) for argument in arguments)
    if target not in _BY_ARGUMENTS | _BY_FIRST:
        return None
    match first:
        case ast.Tuple(elts=extents) | ast.List(elts=extents):
            if any(isinstance(extent, ast.Starred) for extent in extents):
                return None
            return tuple(_find_extent(extent, scope) for extent in extents)
        case ast.Constant(value=int(extent)) if not isinstance(extent, bool):
            return (extent,)
        case _:
            return None


def _find_extent(expr: ast.expr, scope: Scope) -> int | None:
    match expr:
        case ast.Constant(value=int(extent)) if not isinstance(extent, bool):
            return extent
        case ast.Name(id=name) if only := find_only(name, scope):
            value = only[0]
            return _find_extent(value, only[1]) if isinstance(value, ast.Constant) else None
        case _:
            return None
