"""From the text notation to a formula of SymPy equations.

    text -> statements of tokens      text.lines
         -> declarations, equations   text.statements, their expressions as trees
         -> one namespace             text.names, the indices' extents by text.extents
         -> SymPy, unevaluated        text.expr over text.build

Declarations say shapes, bounds, defaults, and extents of indices:

    extent  = number | size | extent (+ - * // % **) extent
    bound   = number | size | bound (+ - * / // % **) bound
    default = number | default (+ - * / **) default

Who claims which name: declarations first, then equations and functions, then indices. A name is an
index where a reduction binds it, where it stands on a left side, or where it stands alone in a
place of a tensor and nothing else claims it. Nothing of the text is ever evaluated, and every
mistake in it is a DeriveError with its place.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from sympy import Eq, Symbol

from derive.errors import refuse, suggest
from derive.frontend.text.build import (
    BINDING,
    KEEPING,
    check_expandable,
    find_value,
    is_arithmetic,
    read_arithmetic,
    to_rational,
    to_size,
)
from derive.frontend.text.expr import Scope, to_number, to_place
from derive.frontend.text.extents import Indices, begin_recurrences
from derive.frontend.text.lines import Source, match_call, span, split_statements, walk_in_order
from derive.frontend.text.names import (
    FUNCTION_WORDS,
    PLACED,
    RESERVED,
    Names,
    find_places,
    is_composite,
    to_article,
)
from derive.frontend.text.statements import (
    EquationLine,
    FunctionLine,
    IndexLine,
    ReturnLine,
    ScalarLine,
    SizeLine,
    TensorLine,
    read_statement,
)
from derive.notation.formula import Declarations, Formula, check_name
from derive.notation.words import tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from derive.errors import DeriveError
    from derive.frontend.text.lines import Token
    from derive.frontend.text.names import Claim
    from derive.frontend.text.statements import Line


def read_extent(names: Names, node: ast.expr) -> Any:
    """An expression over sizes, as SymPy; names in it become sizes."""

    def read(part: ast.expr) -> Any:
        advice = _find_fraction(part)
        if advice:
            says = "an extent is a whole number"
            raise names.source.refuse("extent-form", says, span(part), help=advice)
        match part:
            case ast.BinOp(left, ast.FloorDiv(), ast.Constant(1)):
                return read(left)  # extents are whole, so this says nothing
            case ast.Name(name):
                return to_size(name)
        if is_arithmetic(part):
            return read_arithmetic(names.source, part, read)
        raise names.source.refuse(
            "extent-form",
            "an extent is made of sizes, numbers and + - * // %",
            span(part),
            help="write it like (L - K)//2 + 1",
        )

    extent = read(node)
    check_expandable(names.source, node, extent)
    value = find_value(extent)
    if value is not None and (value < 0 or value.denominator != 1):
        says = f"an extent is a whole number of at least 0, not {value}"
        raise names.source.refuse("extent-form", says, span(node), help="write a size: N")
    return extent


def _find_fraction(part: ast.expr) -> str:
    """What to write instead of a part that need not be whole; nothing for one that is."""
    match part:
        case ast.BinOp(op=ast.Div()):
            return "write // to divide"
        case ast.Constant(float()):
            return "write a whole number"
        case ast.BinOp(op=ast.Pow(), right=exponent):
            whole = isinstance(exponent, ast.Constant) and isinstance(exponent.value, int)
            return "" if whole else "write a whole number as the exponent"
        case _:
            return ""


def declare(names: Names, line: Line) -> None:
    """Enter what one declaration says; other lines say nothing here."""
    match line:
        case TensorLine():
            _declare_tensors(names, line)
        case ScalarLine(entries):
            for token, default in entries:
                names.claim(token.text, "scalar", "on a scalar line", token.span)
                names.arguments[token.text] = None
                names.defaults[token.text] = _read_default(names, default)
        case SizeLine(entries):
            for token, default in entries:
                if token.text in names.sizes:
                    raise _declared_twice(names, token)
                names.claim(token.text, "size", "on a size line", token.span)
                value = _read_default(names, default)
                if value is not None and not (value.is_Integer and value > 0):
                    says = f"a size is a whole number of at least 1, not {value}"
                    advice = f"write size {token.text} = 2"
                    place = span(default) if default is not None else token.span
                    raise names.source.refuse("extent-form", says, place, help=advice)
                names.sizes[token.text] = None if value is None else int(value)
        case IndexLine(indices, extent):
            _claim_sizes(names, extent, "in the extent of an index line")
            for token in indices:
                if token.text in names.ranges:
                    raise _declared_twice(names, token)
                names.claim(token.text, "index", "on an index line", token.span)
                names.ranges[token.text] = read_extent(names, extent)


def _declared_twice(names: Names, token: Token) -> DeriveError:
    says = f"{token.text} is declared twice"
    return names.source.refuse(
        "declared-twice", says, token.span, help="take one of the declarations out"
    )


def _declare_tensors(names: Names, line: TensorLine) -> None:
    for extent in line.shape:
        _claim_sizes(names, extent, f"in the shape of {line.names[0].text}")
    shape = tuple(read_extent(names, extent) for extent in line.shape)
    facts = _read_bounds(names, line)
    for token in line.names:
        names.claim(token.text, "tensor", "declared with a shape", token.span)
        base = tensors(token.text, *shape, dtype=line.kind, **facts)
        names.arguments[token.text] = names.bases[token.text] = base
        names.shapes[token.text] = shape


def _read_bounds(names: Names, line: TensorLine) -> dict[str, Any]:
    """`below` or `domain`, as `notation.words.tensors` takes them."""
    for _, node in line.bounds:
        _claim_sizes(names, node, f"in a bound of {line.names[0].text}")
    if line.kind == "real":
        return {"domain": _read_domain(names, line)} if line.bounds else {}
    if not line.bounds:
        return {}
    relation, node = line.bounds[-1]
    if line.kind == "bool" or len(line.bounds) > 1 or relation != "<":
        says = f"{to_article(line.kind)} tensor holds {_HOLDS[line.kind]}"
        advice = "write int tok[B, S] < V" if line.kind == "int" else "take the bound away"
        raise names.source.refuse("bound-form", says, span(node), help=advice)
    return {"below": read_extent(names, node)}


_HOLDS = {
    "int": "whole numbers from 0, with one bound after <",
    "bool": "truth values, without bounds",
}


def _read_domain(names: Names, line: TensorLine) -> tuple[Any, ...]:
    sides: dict[str, tuple[Any, str]] = {}
    for relation, node in line.bounds:
        side = "low" if relation in {">", ">="} else "high"
        if side in sides:
            says = "both bounds are on the same side"
            raise names.source.refuse("bound-form", says, span(node), help="write 0 <= u[N] < 1")
        sides[side] = (_read_bound(names, node), "<" if relation in {"<", ">"} else "<=")
    low, high = sides.get("low", (None, "<=")), sides.get("high", (None, "<="))
    return (low[0], high[0], low[1], high[1])


def _read_bound(names: Names, node: ast.expr) -> Any:
    def read(part: ast.expr) -> Any:
        if is_arithmetic(part):
            return read_arithmetic(names.source, part, read)
        if isinstance(part, ast.Name) and names.kind(part.id) == "size":
            return to_size(part.id)
        says = "a bound is made of numbers and sizes"
        raise names.source.refuse("bound-form", says, span(part), help="write 0 <= u[N] < 1")

    bound = read(node)
    value = find_value(bound)
    return bound if value is None else to_rational(value)


def _read_default(names: Names, node: ast.expr | None) -> Any:
    if node is None:
        return None

    def read(part: ast.expr) -> Any:
        if is_arithmetic(part):
            return read_arithmetic(names.source, part, read)
        says = "a default is a number"
        raise names.source.refuse("default-form", says, span(part), help="write scalar eps = 1e-5")

    value = find_value(read(node))
    if value is None:
        raise names.source.refuse(
            "default-form",
            "a default is an exact number",
            span(node),
            help="write scalar eps = 1e-5",
        )
    return to_rational(value)


def _claim_sizes(names: Names, node: ast.expr, how: str) -> None:
    for part in walk_in_order(node):
        if isinstance(part, ast.Name):
            names.claim(part.id, "size", how, span(part))


def find_names(source: Source, lines: Sequence[Line]) -> Names:
    """The claims of all lines: declarations first, then equations, then indices."""
    names = Names(source)
    for line in lines:
        declare(names, line)
    for line in lines:
        if isinstance(line, EquationLine):
            _define(names, line)
        elif isinstance(line, FunctionLine):
            _define_function(names, line)
    for line in lines:
        if isinstance(line, (EquationLine, FunctionLine)):
            _claim_bound(names, line)
    for line in lines:
        if isinstance(line, (EquationLine, FunctionLine)):
            _claim_plain(names, line)
    _check_sizes(names)
    return names


def _define(names: Names, line: EquationLine) -> None:
    name = line.name.text
    known = names.claims.get(name)
    if known is not None and known.kind == "tensor" and not _is_part(names, line):
        raise _defined_twice(names, line, known)
    how = PLACED[1] if line.places is not None else "the left side of an equation"
    if name not in names.equations:
        names.claim(name, "tensor", how, line.name.span)
        names.bases[name] = tensors(name)
    names.equations.setdefault(name, []).append(line)


def _is_part(names: Names, line: EquationLine) -> bool:
    """Does the equation, beside others of its tensor, fill a part of it?"""
    lines = [*names.equations.get(line.name.text, ()), line]
    whole = [
        all(isinstance(p, ast.Name) and names.kind(p.id) != "size" for p in each.places or ())
        for each in lines
    ]
    return len(lines) > 1 and whole.count(True) < 2


def _defined_twice(names: Names, line: EquationLine, known: Claim) -> DeriveError:
    name = line.name.text
    if name not in names.equations:
        return names.source.refuse(
            "defined-twice",
            f"{name} is declared as an argument and defined by an equation",
            known.span,
            line.name.span,
            help="take the declaration away, or give the result a name of its own",
        )
    return names.source.refuse(
        "defined-twice",
        f"{name} is defined twice",
        known.span,
        line.name.span,
        help=f"give the second one a name of its own, {name}2",
    )


def _find_words(node: ast.expr) -> Iterable[ast.Name]:
    return (part for part in walk_in_order(node) if isinstance(part, ast.Name))


def _define_function(names: Names, line: FunctionLine) -> None:
    name = line.name.text
    if name in FUNCTION_WORDS and not is_composite(name):
        says = f"{name} is a function of the notation"
        raise names.source.refuse(
            "name-reserved", says, line.name.span, help=f"call yours {name}_of"
        )
    names.claim(name, "function", "defined with parameters", line.name.span)
    names.functions[name] = line


def _claim_bound(names: Names, line: EquationLine | FunctionLine) -> None:
    """The indices that reductions bind, and those on the left side."""
    for place in line.places or () if isinstance(line, EquationLine) else ():
        is_part = len(names.equations[line.name.text]) > 1  # R[T] beside R[t] is behind the last
        for word in _find_words(place):
            kind = names.kind(word.id)
            if not kind or (word is place and not (is_part and kind == "size")):
                names.claim(word.id, "index", f"a place of {line.name.text}", span(word))
    hidden = _find_hidden(line)
    for node in walk_in_order(line.value if isinstance(line, EquationLine) else line.body):
        call = match_call(node)
        if call is None or call.word not in {*BINDING, *KEEPING}:
            continue
        for part in call.brackets or ():
            if not isinstance(part, ast.Name) or part.id in hidden:
                break
            if part.id not in RESERVED:
                how = f"it stands in {call.word}[{part.id}]"
                names.claim(part.id, "index", how, span(part))


def _find_hidden(line: EquationLine | FunctionLine) -> tuple[str, ...]:
    parameters = line.parameters if isinstance(line, FunctionLine) else ()
    return tuple(token.text for token in parameters)


def _claim_plain(names: Names, line: EquationLine | FunctionLine) -> None:
    """The names that stand alone in a place and are nothing else."""
    hidden = _find_hidden(line)
    for tensor, _, place in find_places(
        line.value if isinstance(line, EquationLine) else line.body
    ):
        if isinstance(place, ast.Name) and not names.kind(place.id) and place.id not in hidden:
            names.claim(place.id, "index", f"a place of {tensor}", span(place))


def _check_sizes(names: Names) -> None:
    """Every size is told by a shape or stands on a size line."""
    told = {str(s) for shape in names.shapes.values() for e in shape for s in e.free_symbols}
    for name, claim in names.claims.items():
        if claim.kind == "size" and name not in told and name not in names.sizes:
            raise names.source.refuse(
                "size-untold",
                f"no shape tells the size {name}",
                claim.span,
                facts=[f"{name} is {to_article('size')}: {claim.how}"],
                help=suggest(name, [*sorted(told), *names.sizes])
                or f"make it an argument by a line before: size {name}"
                + (", or leave the bound out" if claim.how.startswith("in a bound") else ""),
            )


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
    moved = begin_recurrences(names, indices, lines)
    equations = [
        _read_equation(names, indices, line, dict([moved[k]] if k in moved else ()))
        for k, line in enumerate(lines)
        if isinstance(line, EquationLine)
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


def _read_equation(
    names: Names, indices: Indices, line: EquationLine, moved: Mapping[str, Any]
) -> Any:
    bound: dict[str, tuple[int, int]] = {}
    for place in line.places or ():
        for part in ast.walk(place):
            if isinstance(part, ast.Name) and names.kind(part.id) == "index":
                bound.setdefault(part.id, span(part))
    scope = Scope(names, indices, line, bound, moved)
    value = to_number(line.value, scope)
    target = names.bases[line.name.text]
    if line.places is not None:
        target = target[tuple(_read_place(place, scope) for place in line.places)]
    return Eq(target, value, evaluate=False)


def _read_place(place: ast.expr, scope: Scope) -> Any:
    """A place of the left side: an index, or indices merged by + and *."""
    inside = [part for part in ast.walk(place) if isinstance(part, ast.expr)]
    merging = (ast.Add, ast.Mult, ast.Sub)
    for part in inside:
        plain = isinstance(part, (ast.Name, ast.Constant, ast.UnaryOp))
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
        return (next(line.name.text for line in reversed(lines) if isinstance(line, EquationLine)),)
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
