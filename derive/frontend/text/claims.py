"""Who claims which name: declarations first, then equations and functions, then index letters.

A letter is an index where a reduction binds it, where it stands on a left side, or where it stands
alone in a place of a tensor and nothing else claims it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from derive.errors import suggest
from derive.frontend.text.build import BINDING, KEEPING
from derive.frontend.text.declare import declare
from derive.frontend.text.names import (
    FUNCTION_WORDS,
    LINEAR_ALGEBRA,
    PLACED,
    RECURRENCE_INSTEAD,
    RESERVED,
    Names,
    find_places,
    is_composite,
    to_article,
)
from derive.frontend.text.statements import EquationLine, FunctionLine
from derive.frontend.text.syntax import match_call, span, walk_in_order
from derive.notation.words import tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from derive.errors import DeriveError
    from derive.frontend.text.lines import Source
    from derive.frontend.text.names import Claim
    from derive.frontend.text.statements import Line


def find_names(source: Source, lines: Sequence[Line]) -> Names:
    """The claims of all lines: declarations first, then equations, then letters."""
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
    if known is not None and known.kind == "tensor":
        raise _defined_twice(names, line, known)
    how = PLACED[1] if line.places is not None else "the left side of an equation"
    names.claim(name, "tensor", how, line.name.span)
    names.equations[name] = (len(names.equations), line)
    names.bases[name] = tensors(name)


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
    lefts = [names.equations[name][1], line]
    if any(not isinstance(p, ast.Name) for left in lefts for p in left.places or ()):
        if any(n.id == name for left in lefts for n in _find_words(left.value)):
            says, advice = "a recurrence cannot be used yet", RECURRENCE_INSTEAD
        else:
            says = "several equations that fill one tensor cannot be used yet"
            advice = "write one equation for all places, with where(..)"
        return names.source.refuse("not-yet", says, known.span, line.left, help=advice)
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
    """The letters that reductions bind, and those on the left side."""
    for place in line.places or () if isinstance(line, EquationLine) else ():
        for word in _find_words(place):
            if word is place or not names.kind(word.id):
                names.claim(word.id, "index", f"a place of {line.name.text}", span(word))
    hidden = _find_hidden(line)
    for node in walk_in_order(line.value if isinstance(line, EquationLine) else line.body):
        call = match_call(node)
        if call is None or call.word not in {*BINDING, *KEEPING, *LINEAR_ALGEBRA}:
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
                or f"make it an argument by a line before: size {name}",
            )
