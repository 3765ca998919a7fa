"""From a text in the notation to a formula of SymPy equations.

    text -> statements with trees      text.lines
         -> one namespace             here, over frontend.names
         -> SymPy, unevaluated        text.expr over text.build

Declarations contain shapes, bounds, defaults, and extents of indices:

    extent  = number | size | extent (+ - * // % **) extent
    bound   = number | size | bound (+ - * / // % **) bound
    default = number | default (+ - * / **) default

Names are claimed by declarations first, then by equations and functions, then by indices. No part
of the text is evaluated, and every mistake is a DeriveError with its position.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Unpack

from sympy import Add, Eq, Interval, Symbol, expand

from derive.analysis.names import to_article
from derive.errors import refuse, refuse_depth, suggest
from derive.frontend.names import Extents, find_indices
from derive.frontend.text import build, expr
from derive.frontend.text.lines import (
    Line,
    find_places,
    match_call,
    read_statement,
    span,
    walk_in_order,
)
from derive.frontend.text.tokens import Source, find_span, split_statements
from derive.ir.functions import FUNCTIONS, ROWS
from derive.notation import words
from derive.notation.formula import About, Declarations, Formula, check_name
from derive.notation.words import tensors

_RESERVED = {"True", "False", "None"}
_PLACED = ("declared with a shape", "the left side of an equation, with places")
_WITH_RIGHT_SIDE = {"equation", "function"}  # kinds of lines
_WORDS = {*build.BINDING, *build.KEEPING}


@refuse_depth()
def parse(text: str, name: str = "formula", **about: Unpack[About]) -> Formula:
    """Return the formula of a text in the notation; DeriveError marks a mistake in it.

    `title`, `source`, `typical` and `empty_row` are those of `Formula`; the text may have a line
    `empty rows are zeros` too.
    """
    if not isinstance(text, str):
        raise refuse("text-wanted", f"the notation is text, not {type(text).__name__}")
    check_name(name)
    code = Source(text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = [line for tokens in split_statements(code) for line in read_statement(code, tokens)]
    return _to_formula(code, lines, name, **about)


def _to_formula(code: Source, lines: list[Line], name: str, **about: Unpack[About]) -> Formula:
    """Return the formula of parsed lines; `about`: its keywords besides the equations."""
    if not any(line.word == "equation" for line in lines):
        advice = "write at least one, y[i] = sum[j](A[i,j] * x[j])"
        raise refuse("formula-empty", "the text has no equation", help=advice)
    for line in lines:
        if line.word == "rows" and about.setdefault("empty_row", line.value) != line.value:
            says = f"empty rows are to be {about['empty_row']} and {line.value}"
            raise code.refuse("empty-row-unknown", says, find_span(line.names), help="say it once")
    names = _find_names(code, lines)
    names.arguments.update({n: Symbol(n) for n in names.defaults})
    lefts = {
        each: [[_to_form(names, place) for place in line.places or ()] for line in own]
        for each, own in names.equations.items()
    }
    uses = [(tensor, k, _to_form(names, place)) for tensor, k, place in _find_uses(lines)]
    names.extents = Extents(dict(names.ranges), names.shapes, lefts, uses).infer()
    moved = _begin_recurrences(names, lines)
    read = [
        _to_equation(names, line, moved.get(number, {}))
        for number, line in enumerate(lines)
        if line.word == "equation"
    ]
    known = [size for size, claim in names.claims.items() if claim.kind == "size"]
    for size in about.get("typical") or {}:
        if size not in known:
            says, facts = f"the formula has no size {size}", [f"its sizes are {', '.join(known)}"]
            raise refuse("typical-unknown", says, facts=facts, help=suggest(str(size), known))
    sizes = tuple((build.to_size(size), default) for size, default in names.sizes.items())
    return Formula(
        *read,
        name=name,
        outputs=_find_results(names, lines),
        scalars=names.defaults,
        declarations=Declarations(
            (*names.arguments.values(),), sizes, (*names.ranges,), (*names.domains.values(),)
        ),
        **about,
    )


def _find_names(source: Source, lines: Sequence[Line]) -> expr.Names:
    """Return the names of all lines with their kinds: declarations first, indices last."""
    names = expr.Names(source)
    for line in lines:
        _declare(names, line)
    for line in lines:
        if line.word == "equation":
            _define(names, line)
        elif line.word == "function":
            word, place = line.name.text, line.name.span
            rows = FUNCTIONS.get(word), ROWS.get(word)
            # a user may redefine a function that is no primitive
            is_composite = any(
                row and row.definition and (row is rows[0] or not row.is_kept) for row in rows
            )
            if word in expr.FUNCTION_WORDS and not is_composite:
                says = f"{word} is a function of the notation"
                raise source.refuse("name-reserved", says, place, help=f"call yours {word}_of")
            _claim(names, word, "function", "defined with parameters", place)
            names.functions[word] = line
    for line in lines:
        _claim_bound(names, line)
    for tensor, _, node in _find_uses(lines):
        if isinstance(node, ast.Name) and not names.kind(node.id):
            _claim(names, node.id, "index", f"a place of {tensor}", span(node))
    shaped = {str(s) for shape in names.shapes.values() for e in shape for s in e.free_symbols}
    for name, claim in names.claims.items():
        if claim.kind == "size" and name not in shaped and name not in names.sizes:
            advice = f"make it an argument by a line before: size {name}"
            advice += ", or leave the bound out" if claim.how.startswith("in a bound") else ""
            raise source.refuse(
                "size-untold",
                f"no shape determines the size {name}",
                claim.span,
                facts=[f"{name} is a size: {claim.how}"],
                help=suggest(name, [*sorted(shaped), *names.sizes]) or advice,
            )
    return names


def _claim(names: expr.Names, name: str, kind: str, how: str, place: tuple[int, int]) -> None:
    """Record that a name is a `kind`, and `how` it became one; DeriveError if reserved or taken."""
    if name in _RESERVED or (name in {"pi", "oo"} and how not in _PLACED):
        says = f"{name} has a meaning of its own in the notation"
        raise names.source.refuse("name-reserved", says, place, help=f"write {name.lower()}_")
    known = names.claims.get(name)
    if known is not None and known.kind == kind and kind not in {"size", "index"}:
        raise _declared_twice(names, name, "give one of them another name", known.span, place)
    names.claim(name, kind, how, place)


def _declared_twice(names: expr.Names, name: str, advice: str, *places: Any) -> Exception:
    return names.source.refuse("declared-twice", f"{name} is declared twice", *places, help=advice)


def _declare(names: expr.Names, line: Line) -> None:
    """Record the names and properties of one declaration (no other line), or raise DeriveError."""
    again = "take one of the declarations out"
    word, (first, *_), bounds, default = line.word, line.names, line.bounds, line.value
    name, place = first.text, first.span
    match word:
        case "scalar":
            _claim(names, name, "scalar", "on a scalar line", place)
            for _, bound in bounds:
                _claim_sizes(names, bound, f"in a bound of {name}")
            names.arguments[name] = None
            names.defaults[name] = value = _read_default(names, default)
            if not bounds:
                return
            base = tensors(name, **_to_bounds(names, "real", bounds))
            names.domains[name] = base
            low, high, *signs = base.domain
            held = Interval(low, high, *(str(sign) == "<" for sign in signs))
            if default is not None and held.contains(value) == False:  # noqa: E712 - SymPy's
                says, advice = "the default is outside the bounds", "write one between them"
                raise names.source.refuse("default-form", says, span(default), help=advice)
        case "size":
            if name in names.sizes:
                raise _declared_twice(names, name, again, place)
            _claim(names, name, "size", "on a size line", place)
            value = _read_default(names, default)
            if value is not None and not (value.is_Integer and value > 0):
                says = f"a size is a whole number of at least 1, not {value}"
                advice = f"write size {name} = 2"
                raise names.source.refuse("extent-form", says, span(default), help=advice)
            names.sizes[name] = None if value is None else int(value)
        case "index":
            _claim_sizes(names, default, "in the extent of an index line")
            for token in line.names:
                if token.text in names.ranges:
                    raise _declared_twice(names, token.text, again, token.span)
                _claim(names, token.text, "index", "on an index line", token.span)
                names.ranges[token.text] = read_extent(names, default)
        case "real" | "int" | "bool" | "complex":
            for extent in line.places or ():
                _claim_sizes(names, extent, f"in the shape of {name}")
            shape = tuple(read_extent(names, extent) for extent in line.places or ())
            for _, bound in bounds:
                _claim_sizes(names, bound, f"in a bound of {name}")
            facts = _to_bounds(names, word, bounds) if bounds else {}
            for token in line.names:
                _claim(names, token.text, "tensor", _PLACED[0], token.span)
                base = tensors(token.text, *shape, dtype=word, **facts)
                names.arguments[token.text] = names.bases[token.text] = base
                names.shapes[token.text] = shape


def _claim_sizes(names: expr.Names, node: ast.expr, how: str) -> None:
    called = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    for part in walk_in_order(node):
        if isinstance(part, ast.Name) and part not in called:
            _claim(names, part.id, "size", how, span(part))


def read_extent(names: expr.Names, node: ast.expr) -> Any:
    """Return an extent, an expression over sizes, as SymPy's; DeriveError for anything else."""
    for part in walk_in_order(node):
        advice = ""
        match part:
            case ast.BinOp(op=ast.Div()):
                advice = "write // to divide"
            case ast.Constant(float()):
                advice = "write a whole number"
            case ast.BinOp(op=ast.Pow(), right=exponent):
                is_whole = isinstance(exponent, ast.Constant) and isinstance(exponent.value, int)
                advice = "" if is_whole else "write a whole number as the exponent"
        if advice:
            says = "an extent is a whole number"
            raise names.source.refuse("extent-form", says, span(part), help=advice)
    says = "an extent is made of sizes, numbers, + - * // % and max(.., 0)"
    extent = _read_numbers(names, node, "extent-form", says, "write it like (L - K)//2 + 1")
    build.check_expandable(names.source, node, extent)
    value = build.find_value(extent)
    if value is not None and (value < 0 or value.denominator != 1):
        says = f"an extent is a whole number of at least 0, not {value}"
        raise names.source.refuse("extent-form", says, span(node), help="write a size: N")
    return extent


def _read_numbers(names: expr.Names, node: ast.expr, code: str, says: str, help: str) -> Any:
    """Return an expression over numbers and, except in defaults, sizes; else raise this error."""

    def read(part: ast.expr) -> Any:
        match part:
            case ast.BinOp(left, ast.FloorDiv(), ast.Constant(1)) if code == "extent-form":
                return read(left)  # extents are integers
            case ast.Name(name) if code != "default-form" and names.kind(name) == "size":
                return build.to_size(name)
            case ast.Call(ast.Name("max"), [least, most], []) if code == "extent-form":
                return build.ELEMENTWISE["max"][2](read(least), read(most))
        if build.is_arithmetic(part):
            return build.read_arithmetic(names.source, part, read)
        raise names.source.refuse(code, says, span(part), help=help)

    return read(node)


def _to_bounds(
    names: expr.Names, kind: str, bounds: Sequence[tuple[str, ast.expr]]
) -> dict[str, Any]:
    """Return the keyword of `tensors` for bounds: `below` of integers or `domain` of reals."""
    advice = "write 0 <= u[N] < 1"
    if kind == "real":
        sides: dict[str, tuple[Any, str]] = {}
        for relation, node in bounds:
            side = "low" if relation in {">", ">="} else "high"
            if side in sides:
                says = "both bounds are on the same side"
                raise names.source.refuse("bound-form", says, span(node), help=advice)
            says = "a bound is made of numbers and sizes"
            bound = _read_numbers(names, node, "bound-form", says, advice)
            value = build.find_value(bound)
            bound = bound if value is None else words.to_rational(value)
            sides[side] = (bound, "<" if relation in {"<", ">"} else "<=")
        low, high = sides.get("low", (None, "<=")), sides.get("high", (None, "<="))
        return {"domain": (low[0], high[0], low[1], high[1])}
    upper = [(relation, node) for relation, node in bounds if relation in {"<", "<="}]
    from_zero = [e for e in bounds if kind == "int" and _is_from_zero(names, *e)]
    if kind != "int":
        held = "truth values" if kind == "bool" else "numbers that have no order"
        says, advice = f"{held}, without bounds", "take the bound away"
    else:
        says = "whole numbers from 0, with one bound after < or <="
        advice = "write int tok[B, S] < V"
    strange = [each for each in bounds if each not in (*upper, *from_zero)] or bounds[-1:]
    if kind != "int" or len(upper) != 1 or len(upper) + len(from_zero) < len(bounds):
        says = f"{to_article(kind)} tensor holds {says}"
        raise names.source.refuse("bound-form", says, span(strange[0][1]), help=advice)
    ((relation, node),) = upper
    below = read_extent(names, node)
    if relation == "<=":
        terms = [term for term in Add.make_args(below) if not term.is_Integer]
        number = below - Add(*terms) + 1
        below = words.add(*terms, *([number] if number or not terms else []))
    return {"below": below}


def _is_from_zero(names: expr.Names, relation: str, node: ast.expr) -> bool:
    """Whether a bound of integers is `>= 0` or `> -1`."""
    if relation not in {">", ">="}:
        return False
    says = "a bound is made of numbers and sizes"
    bound = _read_numbers(names, node, "bound-form", says, "write int tok[B, S] < V")
    return bool(build.find_value(bound) == (0 if relation == ">=" else -1))


def _read_default(names: expr.Names, node: ast.expr | None) -> Any:
    if node is None:
        return None
    code, advice = "default-form", "write scalar eps = 1e-5"
    if isinstance(node, ast.Compare):
        advice = "write scalar h > 0 = 1, the bounds before the default"
    found = _read_numbers(names, node, code, "a default is a number", advice)
    value = build.find_value(found)
    if value is None:
        says = "a default is an exact number"
        raise names.source.refuse(code, says, span(node), help=advice)
    return words.to_rational(value)


def _define(names: expr.Names, line: Line) -> None:
    name = line.name.text
    known = names.claims.get(name)
    lines = [*names.equations.get(name, ()), line]
    whole = [
        all(isinstance(p, ast.Name) and names.kind(p.id) != "size" for p in each.places or ())
        for each in lines
    ]
    is_part = len(lines) > 1 and whole.count(True) < 2  # one of several equations that define parts
    if known is not None and known.kind == "tensor" and not is_part:
        says, advice = f"{name} is defined twice", f"give the second one a name of its own, {name}2"
        if name not in names.equations:
            says = f"{name} is declared as an argument and defined by an equation"
            advice = "take the declaration away, or give the result a name of its own"
        raise names.source.refuse("defined-twice", says, known.span, line.name.span, help=advice)
    if name not in names.equations:
        how = _PLACED[1] if line.places is not None else "the left side of an equation"
        _claim(names, name, "tensor", how, line.name.span)
        names.bases[name] = tensors(name)
    names.equations[name] = lines


def _claim_bound(names: expr.Names, line: Line) -> None:
    """Record the indices of a line's left side and of its reductions."""
    if line.word not in _WITH_RIGHT_SIDE:
        return
    hidden = {token.text for token in line.parameters}
    for place in line.places or ():
        # R[T] beside R[t] is the entry after the last
        is_part = len(names.equations[line.name.text]) > 1
        for word in walk_in_order(place):
            if not isinstance(word, ast.Name):
                continue
            kind = names.kind(word.id)
            if not kind or (word is place and not (is_part and kind == "size")):
                _claim(names, word.id, "index", f"a place of {line.name.text}", span(word))
    for node in walk_in_order(line.value):
        call = match_call(node)
        for part in call.brackets or () if call is not None and call.word in _WORDS else ():
            if not isinstance(part, ast.Name) or part.id in hidden:
                break
            if part.id not in _RESERVED and call is not None:
                how = f"it stands in {call.word}[{part.id}]"
                _claim(names, part.id, "index", how, span(part))


def _find_uses(lines: Sequence[Line]) -> Iterator[tuple[str, int, ast.expr]]:
    """Yield (tensor, axis, place) for each place of each access; no parameters of functions."""
    for line in lines:
        if line.word in _WITH_RIGHT_SIDE:
            hidden = {token.text for token in line.parameters}
            for tensor, number, place in find_places(line.value):
                if not (isinstance(place, ast.Name) and place.id in hidden):
                    yield tensor, number, place
            for number, place in enumerate(line.places or ()):
                yield line.name.text, number, place


def _to_form(names: expr.Names, place: ast.expr) -> Any:
    """Return a place as a polynomial over indices (plain symbols) and sizes; None for `t[n]`."""
    merging = (ast.Add, ast.Sub, ast.Mult, ast.unaryop)
    for part in walk_in_order(place):
        if isinstance(part, ast.Name):
            is_known = names.kind(part.id) in {"index", "size"}
        else:
            is_merged = isinstance(getattr(part, "op", ast.Add()), merging)
            is_known = is_merged and build.is_arithmetic(part)
        if not is_known:
            return None

    def read(part: ast.expr) -> Any:
        if isinstance(part, ast.Name):
            is_index = names.kind(part.id) == "index"
            return Symbol(part.id) if is_index else build.to_size(part.id)
        return build.read_arithmetic(names.source, part, read)

    value = read(place)
    build.check_expandable(names.source, place, value)
    return expand(value)


def _begin_recurrences(names: expr.Names, lines: Sequence[Line]) -> dict[int, dict[str, Any]]:
    """Return, by line number and index, what replaces the index of a recurrence: t + 1 for t.

    Equations of their own give its first or last places:

    h[0] = x[0]; h[t] = a*h[t - 1] + x[t]     becomes    h[t + 1] = a*h[t] + x[t + 1]
    R[T - 1] = 0; R[t] = r[t] + g*R[t + 1]    stays, with t < T - 1
    """
    # by line number and index: the numbers of first and of last places
    shifts: dict[int, dict[str, tuple[int, int]]] = {}
    for number, line in enumerate(lines):
        if line.word == "equation":
            shifts[number] = _find_shifts(names, lines, line)
    moved: dict[int, dict[str, Any]] = {}
    for index in dict.fromkeys(index for each in shifts.values() for index in each):
        users = [k for k, line in enumerate(lines) if _is_naming(line, index)]
        ends = {k: shifts.get(k, {}).get(index, (0, 0)) for k in users}
        extent, claim = names.extents.known[index], names.claims[index]
        # uses of the index that lose equally many places share a shortened index
        cuts = dict.fromkeys(map(sum, ends.values()))
        for cut in filter(None, cuts):
            fresh = (f"{index}{'_' * k}" for k in count(1))
            short = index if len(cuts) == 1 else next(n for n in fresh if n not in names.claims)
            names.claim(short, "index", claim.how, claim.span)
            names.extents.known[short] = extent - cut
            place = names.index(short, claim.span or (0, 0))
            for number in (k for k in users if sum(ends[k]) == cut):
                moved.setdefault(number, {})[index] = place + ends[number][0]
    return moved


def _find_shifts(
    names: expr.Names, lines: Sequence[Line], line: Line
) -> dict[str, tuple[int, int]]:
    """Return by index how many first and last places equations of their own give; {} for none."""
    every = names.equations[line.name.text]
    if len(every) == 1:
        return {}
    reads: list[str] = []
    waiting = [*every]
    while waiting:
        new = [t for t, _, _ in find_places(waiting.pop().value) if t not in reads]
        reads += new
        waiting += [each for tensor in new for each in names.equations.get(tensor, ())]
    if line.name.text not in reads:
        return {}
    bodies = [line.value, *(each.value for each in lines if each.word == "function")]
    calls = (match_call(n) for body in bodies for n in ast.walk(body) if isinstance(n, ast.expr))
    bound = {p.id for c in calls if c for p in c.brackets or () if isinstance(p, ast.Name)}
    rank = len(line.places or ())
    fixed = {e: _find_fixed(names, e) for e in every if e.places and len(e.places) == rank}
    own, found = fixed.get(line, {}), dict[str, tuple[int, int]]()
    for number, place in enumerate(line.places or ()):
        columns = ((e.places or ())[number] for e, f in fixed.items() if number not in f)
        if number in own or not all(isinstance(p, ast.Name) for p in columns):
            continue
        assert isinstance(place, ast.Name)
        if place.id in bound or place.id not in names.extents.known:
            continue
        alone = [
            each[number] for each in fixed.values() if each == own | {number: each.get(number)}
        ]
        alone += _find_corner(names, line, number, fixed)
        alone = [each for each in alone if not each.is_negative]  # h[-1] is an initial value
        ends = names.extents.find_ends(place.id, alone) if alone else None
        if ends:
            found[place.id] = ends
    return found


def _find_corner(
    names: expr.Names, line: Line, number: int, fixed: Mapping[Line, dict[int, Any]]
) -> list[Any]:
    """Return the positions on an axis that an earlier line defines with the same value.

    D[0,j] = j; D[i,0] = i     both define D[0,0] as 0: the 0 of i
    """
    own, found = fixed[line], []
    for other in list(fixed)[: list(fixed).index(line)]:
        both = own | fixed[other]
        at = [k for k in own if k not in fixed[other]]
        is_alike = all(fixed[other].get(k, form) == form for k, form in own.items())
        if not is_alike or len(at) != 1 or both != own | {number: both.get(number)}:
            continue
        values = set()
        for each, k in ((line, number), (other, at[0])):
            place = (each.places or ())[k]
            name = place.id if isinstance(place, ast.Name) else ""
            values.add(expr.to_number(each.value, expr.Scope(names, {}, {name: both[k]})))
        if len(values) == 1 and both not in fixed.values():
            found.append(both[number])
    return found


def _find_fixed(names: expr.Names, line: Line) -> dict[int, Any]:
    """Return the places of a left side that have no indices, by axis: {0: T - 1} of R[T - 1,i]."""
    forms = {number: _to_form(names, place) for number, place in enumerate(line.places or ())}
    return {k: form for k, form in forms.items() if form is not None and not find_indices(form)}


def _is_naming(line: Line, name: str) -> bool:
    if line.word not in _WITH_RIGHT_SIDE:
        return False
    trees = (*(line.places or ()), line.value)
    return any(isinstance(n, ast.Name) and n.id == name for tree in trees for n in ast.walk(tree))


def _to_equation(names: expr.Names, line: Line, moved: Mapping[str, Any]) -> Any:
    bound: dict[str, tuple[int, int]] = {}
    for place in line.places or ():
        for part in ast.walk(place):
            if isinstance(part, ast.Name) and names.kind(part.id) == "index":
                bound.setdefault(part.id, span(part))
    scope = expr.Scope(names, bound, moved)
    value = expr.to_number(line.value, scope)
    target = names.bases[line.name.text]
    if line.places is not None:
        target = target[tuple(_to_target_place(place, scope) for place in line.places)]
    return Eq(target, value, evaluate=False)


def _to_target_place(place: ast.expr, scope: expr.Scope) -> Any:
    """Return a place of a left side: an index, or indices merged by + and *; else DeriveError."""
    merging = (ast.Add, ast.Mult, ast.Sub, ast.Pow)
    for part in ast.walk(place):
        is_plain = isinstance(part, ast.Name | ast.Constant | ast.UnaryOp)
        is_merged = isinstance(part, ast.BinOp) and isinstance(part.op, merging)
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv):
            inside = {each.id for each in ast.walk(part) if isinstance(each, ast.Name)}
            is_merged = all(scope.names.kind(name) == "size" for name in inside)  # h*(D//2) + d
        if isinstance(part, ast.expr) and not is_plain and not is_merged:
            says = "a place of the left side is an index, or indices merged by + and *"
            raise scope.refuse("left-side", says, place, help="write it like y[b, h*D + d]")
    return expr.to_place(place, scope)


def _find_results(names: expr.Names, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the results' names, of the return line or the last equation; else DeriveError."""
    found = [line for line in lines if line.word == "return"]
    if len(found) > 1:
        says, place = "there are two return lines", found[1].names[0].span
        raise names.source.refuse("return-form", says, place, help="write one: return z, alpha")
    if not found:
        return (next(line.name.text for line in reversed(lines) if line.word == "equation"),)
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
