"""One namespace: what each name of the text is, from the declarations and from where it stands.

    tensor     declared with a shape, or the left side of an equation
    size       in a shape, in the extent of an index line, in a bound, or on a size line
    scalar     on a scalar line
    function   defined by `phi(x) = ..`
    index      on an index line; bound by `sum[j](..)`; on a left side; or a name that nothing else
               claims, alone in a place of a tensor

A name claimed in two ways is refused, and both claims are shown.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from derive.errors import suggest
from derive.frontend.text_arithmetic import find_value, is_arithmetic, read_arithmetic
from derive.frontend.text_build import BINDING, CONSTANTS, ELEMENTWISE, KEEPING, to_size
from derive.frontend.text_statements import (
    EquationLine,
    FunctionLine,
    IndexLine,
    ScalarLine,
    SizeLine,
    TensorLine,
)
from derive.frontend.text_syntax import match_call, read_elements, span, walk_in_order
from derive.notation.words import tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from derive.frontend.text_lines import Source, Token
    from derive.frontend.text_statements import Line

LINEAR_ALGEBRA = ("inverse", "solve", "cholesky", "det")
FUNCTION_WORDS = (*ELEMENTWISE, "where", *BINDING, *KEEPING, *LINEAR_ALGEBRA)
_RESERVED = {"True", "False", "None"}

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a name is, and the place that says so."""

    kind: str  # tensor | size | scalar | function | index
    how: str  # "declared with a shape"
    span: Span


@dataclass
class Names:
    """The names of one text; insertion order is the order of the text."""

    source: Source
    claims: dict[str, Claim] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)  # name: IndexedBase or Symbol
    defaults: dict[str, Any] = field(default_factory=dict)  # scalar: exact number or None
    sizes: dict[str, int | None] = field(default_factory=dict)  # those on size lines
    shapes: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # of declared tensors
    ranges: dict[str, Any] = field(default_factory=dict)  # index: the extent its line gives
    functions: dict[str, FunctionLine] = field(default_factory=dict)
    equations: dict[str, tuple[int, EquationLine]] = field(default_factory=dict)  # with its number
    bases: dict[str, Any] = field(default_factory=dict)

    def kind(self, name: str) -> str:
        """What the name is; nothing if it is free."""
        return self.claims[name].kind if name in self.claims else ""

    def claim(self, name: str, kind: str, how: str, place: Span) -> None:
        """Enter one claim; DeriveError where the name is something else already."""
        known = self.claims.get(name)
        if name in _RESERVED or (name in CONSTANTS and how not in _PLACED):
            says = f"{name} has a meaning of its own in the notation"
            raise self.source.refuse("name-reserved", says, place, help=f"write {name.lower()}_")
        if known is None:
            self.claims[name] = Claim(kind, how, place)
        elif known.kind != kind:
            raise self.source.refuse(
                "name-clash",
                f"{name} is {_article(known.kind)} and {_article(kind)}",
                known.span,
                place,
                facts=[
                    f"{name} is {_article(known.kind)}: {known.how}",
                    f"{name} is {_article(kind)}: {how}",
                ],
                help="give one of them another name",
            )
        elif kind not in {"size", "index"}:
            says = f"{name} is declared twice"
            raise self.source.refuse(
                "declared-twice",
                says,
                known.span,
                place,
                facts=[f"first {known.how}, then {how}"],
                help="give one of them another name",
            )


_PLACED = ("declared with a shape", "the left side of an equation, with places")


def find_names(source: Source, lines: Sequence[Line]) -> Names:
    """The claims of all lines: declarations first, then equations, then letters."""
    names = Names(source)
    for line in lines:
        _declare(names, line)
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


def read_extent(names: Names, node: ast.expr) -> Any:
    """An expression over sizes, as SymPy; names in it become sizes."""

    def read(part: ast.expr) -> Any:
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div):
            raise names.source.refuse(
                "extent-form", "an extent is a whole number", span(part), help="write // to divide"
            )
        if is_arithmetic(part):
            return read_arithmetic(names.source, part, read)
        if isinstance(part, ast.Name):
            return to_size(part.id)
        raise names.source.refuse(
            "extent-form",
            "an extent is made of sizes, numbers and + - * // %",
            span(part),
            help="write it like (L - K)//2 + 1",
        )

    extent = read(node)
    value = find_value(extent)
    if value is not None and (value < 0 or value.denominator != 1):
        says = f"an extent is a whole number of at least 0, not {value}"
        raise names.source.refuse("extent-form", says, span(node))
    return extent


def _declare(names: Names, line: Line) -> None:
    match line:
        case TensorLine():
            _declare_tensors(names, line)
        case ScalarLine(entries):
            for token, default in entries:
                names.claim(token.text, "scalar", "on a scalar line", _span(token))
                names.arguments[token.text] = None
                names.defaults[token.text] = _read_default(names, default)
        case SizeLine(entries):
            for token, default in entries:
                if token.text in names.sizes:
                    says = f"{token.text} is declared twice"
                    raise names.source.refuse("declared-twice", says, _span(token))
                names.claim(token.text, "size", "on a size line", _span(token))
                value = _read_default(names, default)
                if value is not None and not (value.is_Integer and value > 0):
                    says = f"a size is a whole number of at least 1, not {value}"
                    raise names.source.refuse("extent-form", says, span(default or ast.expr()))
                names.sizes[token.text] = None if value is None else int(value)
        case IndexLine(letters, extent):
            _claim_sizes(names, extent, "in the extent of an index line")
            for token in letters:
                if token.text in names.ranges:
                    says = f"{token.text} is declared twice"
                    raise names.source.refuse("declared-twice", says, _span(token))
                names.claim(token.text, "index", "on an index line", _span(token))
                names.ranges[token.text] = read_extent(names, extent)


def _declare_tensors(names: Names, line: TensorLine) -> None:
    for extent in line.shape:
        _claim_sizes(names, extent, f"in the shape of {line.names[0].text}")
    shape = tuple(read_extent(names, extent) for extent in line.shape)
    facts = _read_bounds(names, line)
    for token in line.names:
        names.claim(token.text, "tensor", "declared with a shape", _span(token))
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
        says = f"{_article(line.kind)} tensor holds {_HOLDS[line.kind]}"
        advice = "write int tok[B, S] < V" if line.kind == "int" else "take the bound away"
        raise names.source.refuse("bound-form", says, span(node), help=advice)
    return {"below": read_extent(names, node)}


_HOLDS = {"int": "whole numbers from 0, with one bound after <", "bool": "truth values, without bounds"}


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
    return bound if value is None else to_exact(value)


def to_exact(value: Any) -> Any:
    """A fraction as SymPy's rational."""
    from sympy import Rational

    return Rational(value.numerator, value.denominator)


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
            "default-form", "a default is an exact number", span(node), help="write scalar eps = 1e-5"
        )
    return to_exact(value)


def _claim_sizes(names: Names, node: ast.expr, how: str) -> None:
    for part in walk_in_order(node):
        if isinstance(part, ast.Name):
            names.claim(part.id, "size", how, span(part))


def _define(names: Names, line: EquationLine) -> None:
    name = line.name.text
    known = names.claims.get(name)
    if known is not None and known.kind == "tensor":
        raise _defined_twice(names, line, known)
    how = _PLACED[1] if line.places is not None else "the left side of an equation"
    names.claim(name, "tensor", how, _span(line.name))
    names.equations[name] = (len(names.equations), line)
    names.bases[name] = tensors(name)


def _defined_twice(names: Names, line: EquationLine, known: Claim) -> Exception:
    name = line.name.text
    if name not in names.equations:
        return names.source.refuse(
            "defined-twice",
            f"{name} is declared as an argument and defined by an equation",
            known.span,
            _span(line.name),
            help="take the declaration away, or give the result a name of its own",
        )
    lefts = [names.equations[name][1], line]
    if any(not isinstance(p, ast.Name) for left in lefts for p in left.places or ()):
        recurrence = any(n.id == name for left in lefts for n in _find_words(left.value))
        construct = "a recurrence" if recurrence else "several equations that fill one tensor"
        return _not_yet(names, construct, known.span, line.left)
    return names.source.refuse(
        "defined-twice",
        f"{name} is defined twice",
        known.span,
        _span(line.name),
        help=f"give the second one a name of its own, {name}2",
    )


def _not_yet(names: Names, construct: str, *places: Span) -> Exception:
    says = f"{construct} cannot be used yet"
    return names.source.refuse("not-yet", says, *places, help="write it without, for now")


def _find_words(node: ast.expr) -> Iterable[ast.Name]:
    return (part for part in walk_in_order(node) if isinstance(part, ast.Name))


def _define_function(names: Names, line: FunctionLine) -> None:
    name = line.name.text
    if name in FUNCTION_WORDS:
        says = f"{name} is a function of the notation"
        raise names.source.refuse(
            "name-reserved", says, _span(line.name), help=f"call yours {name}_of"
        )
    names.claim(name, "function", "defined with parameters", _span(line.name))
    names.functions[name] = line


def _claim_bound(names: Names, line: EquationLine | FunctionLine) -> None:
    """The letters that reductions bind, and those on the left side."""
    for place in line.places or () if isinstance(line, EquationLine) else ():
        for part in _find_words(place):
            if part is place or not names.kind(part.id):
                names.claim(part.id, "index", f"a place of {line.name.text}", span(part))
    hidden = _find_hidden(line)
    for node in walk_in_order(line.value if isinstance(line, EquationLine) else line.body):
        call = match_call(node)
        if call is None or call.word not in {*BINDING, *KEEPING, *LINEAR_ALGEBRA}:
            continue
        for part in call.brackets or ():
            if not isinstance(part, ast.Name) or part.id in hidden:
                break
            if part.id not in _RESERVED:
                how = f"it stands in {call.word}[{part.id}]"
                names.claim(part.id, "index", how, span(part))


def _claim_plain(names: Names, line: EquationLine | FunctionLine) -> None:
    """The names that stand alone in a place and are nothing else."""
    hidden = _find_hidden(line)
    for tensor, _, place in find_places(line.value if isinstance(line, EquationLine) else line.body):
        if isinstance(place, ast.Name) and not names.kind(place.id) and place.id not in hidden:
            names.claim(place.id, "index", f"a place of {tensor}", span(place))


def _find_hidden(line: EquationLine | FunctionLine) -> tuple[str, ...]:
    parameters = line.parameters if isinstance(line, FunctionLine) else ()
    return tuple(token.text for token in parameters)


def find_places(tree: ast.expr) -> Iterable[tuple[str, int, ast.expr]]:
    """(tensor, number, place) for each place of each access, in the order of the text."""
    heads = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for node in walk_in_order(tree):
        match node:
            case ast.Subscript(ast.Name(tensor), bracket) if id(node) not in heads:
                for number, place in enumerate(read_elements(bracket)):
                    yield tensor, number, place


def _check_sizes(names: Names) -> None:
    """Every size is told by a shape or stands on a size line."""
    told = {str(s) for shape in names.shapes.values() for e in shape for s in e.free_symbols}
    for name, claim in names.claims.items():
        if claim.kind == "size" and name not in told and name not in names.sizes:
            raise names.source.refuse(
                "size-untold",
                f"no shape tells the size {name}",
                claim.span,
                facts=[f"{name} is {_article('size')}: {claim.how}"],
                help=suggest(name, [*sorted(told), *names.sizes])
                or f"make it an argument by a line before: size {name}",
            )


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _span(token: Token) -> Span:
    return token.start, token.end
