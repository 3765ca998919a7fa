"""From the text notation to a formula of SymPy equations.

    text -> statements of tokens      text_lines
         -> declarations, equations   text_statements, their expressions as trees by text_syntax
         -> one namespace             text_names, the indices' extents by text_extents
         -> SymPy, unevaluated        text_expr over text_arithmetic and text_build

Nothing of the text is ever evaluated, and every mistake in it is a DeriveError with its place.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from sympy import Eq, Symbol

from derive.errors import refuse, suggest
from derive.frontend.text.build import to_size
from derive.frontend.text.declare import find_names
from derive.frontend.text.expr import Scope, to_number, to_place
from derive.frontend.text.extents import Indices
from derive.frontend.text.lines import Source, span, split_statements
from derive.frontend.text.statements import EquationLine, ReturnLine, read_statement
from derive.notation.formula import Declarations, Formula, check_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.frontend.text.names import Names
    from derive.frontend.text.statements import Line


def parse(  # noqa: PLR0913 - all but the text are keywords
    text: str,
    name: str = "formula",
    *,
    title: str = "",
    source: str = "",
    typical: Mapping[str, int] | None = None,
    empty_row: str = "nan",
) -> Formula:
    """The formula of a text in the notation; DeriveError says what is wrong in it, and where."""
    if not isinstance(text, str):
        raise refuse("text-wanted", f"the notation is text, not {type(text).__name__}")
    check_name(name)
    code = Source(text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = [read_statement(code, tokens) for tokens in split_statements(code)]
    if not any(isinstance(line, EquationLine) for line in lines):
        raise refuse(
            "formula-empty",
            "the text has no equation",
            help="write at least one, y[i] = sum[j](A[i,j] * x[j])",
        )
    names = find_names(code, lines)
    names.arguments.update({n: Symbol(n) for n in names.defaults})
    indices = Indices(names, lines)
    equations = [
        _read_equation(names, indices, line) for line in lines if isinstance(line, EquationLine)
    ]
    arguments = tuple(names.arguments.values())
    sizes = tuple((to_size(size), default) for size, default in names.sizes.items())
    _check_typical(names, typical)
    return Formula(
        *equations,
        name=name,
        title=title,
        source=source,
        typical=typical,
        outputs=_find_results(names, lines),
        scalars=names.defaults,
        empty_row=empty_row,
        declarations=Declarations(arguments, sizes, tuple(names.ranges)),
    )


def _check_typical(names: Names, typical: Mapping[str, int] | None) -> None:
    known = [name for name, claim in names.claims.items() if claim.kind == "size"]
    for size in typical or {}:
        if size not in known:
            raise refuse(
                "typical-unknown",
                f"the formula has no size {size}",
                facts=[f"its sizes are {', '.join(known)}"],
                help=suggest(str(size), known),
            )


def _read_equation(names: Names, indices: Indices, line: EquationLine) -> Any:
    number, _ = names.equations[line.name.text]
    bound: dict[str, tuple[int, int]] = {}
    for place in line.places or ():
        for part in ast.walk(place):
            if isinstance(part, ast.Name) and names.kind(part.id) == "index":
                bound.setdefault(part.id, span(part))
    scope = Scope(names, indices, line.name.text, number, bound)
    value = to_number(line.value, scope)
    target = names.bases[line.name.text]
    if line.places is not None:
        target = target[tuple(_read_place(place, scope) for place in line.places)]
    return Eq(target, value, evaluate=False)


def _read_place(place: ast.expr, scope: Scope) -> Any:
    """A place of the left side: an index, or indices merged by + and *."""
    inside = [part for part in ast.walk(place) if isinstance(part, ast.expr)]
    indices = [p for p in inside if isinstance(p, ast.Name) and scope.names.kind(p.id) == "index"]
    merging = (ast.Add, ast.Mult, ast.Sub)
    if not indices:
        raise scope.refuse(
            "not-yet",
            "a fixed place on the left side cannot be used yet: it fills only a part of the tensor",
            place,
            help="write one equation for all places, with where(..)",
        )
    for part in inside:
        plain = isinstance(part, (ast.Name, ast.Constant))
        if not plain and not (isinstance(part, ast.BinOp) and isinstance(part.op, merging)):
            raise scope.refuse(
                "left-side",
                "a place of the left side is an index, or indices merged by + and *",
                place,
                help="write it like y[b, h*D + d]",
            )
    return to_place(place, scope)


def _find_results(names: Names, lines: Sequence[Line]) -> tuple[str, ...]:
    """The results in order: those of the return line, else the last equation's."""
    found = [line for line in lines if isinstance(line, ReturnLine)]
    if len(found) > 1:
        token = found[1].names[0]
        says = "there are two return lines"
        raise names.source.refuse(
            "return-form", says, token.span, help="write one: return z, alpha"
        )
    if not found:
        return (list(names.equations)[-1],)
    results: dict[str, None] = {}
    for token in found[0].names:
        if token.text not in names.equations:
            raise names.source.refuse(
                "return-unknown",
                f"no equation defines {token.text}",
                token.span,
                facts=[f"defined are {', '.join(names.equations)}"],
                help=suggest(token.text, names.equations) or "return the left side of an equation",
            )
        if token.text in results:
            says = f"{token.text} is returned twice"
            raise names.source.refuse("return-form", says, token.span, help="name it once")
        results[token.text] = None
    return tuple(results)
