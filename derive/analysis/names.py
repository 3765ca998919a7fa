"""What the names of a system stand for: each is known, has one role, and is defined before use."""

from __future__ import annotations

from keyword import iskeyword
from typing import TYPE_CHECKING

from derive.analysis.extents import find_extent_mistakes, find_size_mistakes
from derive.analysis.places import find_cover_mistakes
from derive.analysis.reads import find_read_mistakes
from derive.analysis.scopes import find_scope_mistakes
from derive.errors import DeriveError, Diagnostic, suggest
from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS
from derive.ir.recurrences import find_start_mistakes, recurs
from derive.ir.text import find_marks, to_count, to_text, write_extent
from derive.ir.walk import find_accesses, find_all_indices, find_children, walk
from derive.notation.formula import FUNCTION_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator


_INSTEAD = {
    "Heaviside": "write the bracket [x > 0]: Piecewise((1, x > 0), (0, True))",
    "ceiling": "write -floor(-x)",
    "ln": "write log",
}


def check_names(system: ir.System) -> None:
    """Raise the first name that is unknown or has two roles."""
    for mistake in find_name_mistakes(system):
        raise DeriveError(mistake)


def find_name_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """Names that are unknown, have two roles, or cannot be names in code."""
    roles = find_names(system)
    yield from _find_bad_names(roles)
    yield from _find_clashes(roles)
    for equation in system.equations:
        for here in walk(equation.value):
            match here:
                case ir.Scalar(name) if ("scalar", "an argument") not in roles.get(name, ()):
                    yield _unknown_name(here, equation, list(roles))
                case ir.Call(function, arguments):
                    yield from _find_bad_call(here, function, len(arguments), equation)


def find_names(system: ir.System) -> dict[str, tuple[tuple[str, str], ...]]:
    """name: its roles as (kind, how it came by it); a name with two roles is a mistake."""
    found: dict[str, dict[tuple[str, str], None]] = {}

    def note(name: str, kind: str, how: str) -> None:
        found.setdefault(name, {})[kind, how] = None

    for entry in system.inputs:
        if isinstance(entry, ir.ScalarInput):
            note(entry.name, "scalar", "an argument")
            continue
        note(entry.name, "tensor", "an argument")
        for size in find_symbols(entry):
            note(size, "size", f"an extent of {entry.name}")
    for keyword in system.sizes:
        note(keyword.name, "size", "an argument")
    for equation in system.equations:
        note(equation.target.tensor.name, "tensor", "defined by an equation")
    for index in find_all_indices(system):
        note(index.name, "index", "an index")
        for here in walk(index.extent):
            if isinstance(here, ir.Size):
                note(here.name, "size", f"the extent of index {index.name}")
    return {name: tuple(roles) for name, roles in found.items()}


def find_symbols(tensor: ir.Tensor) -> tuple[str, ...]:
    """The sizes in a tensor's shape and bounds, in order."""
    parts = (*tensor.shape, tensor.below, tensor.lower, tensor.upper)
    inside = (here for part in parts if part is not None for here in walk(part))
    return tuple(dict.fromkeys(here.name for here in inside if isinstance(here, ir.Size)))


def _find_bad_names(roles: dict[str, tuple[tuple[str, str], ...]]) -> Iterator[Diagnostic]:
    for name, ((kind, _), *_) in roles.items():
        is_special = name.startswith("__") and name.endswith("__")
        if (name in FUNCTION_WORDS or is_special) and kind != "index":
            user = "Python" if is_special else "the generated code"
            yield Diagnostic(
                "name-form",
                f"{name} cannot be {_article(kind)}: {user} uses the name itself",
                help=f"call it {name.strip('_')}_",
            )
        if name.isidentifier() and not iskeyword(name):
            continue
        fresh = "".join(c if f"a{c}".isidentifier() else "_" for c in name)
        yield Diagnostic(
            "name-form",
            f"{name} cannot be a name in Python, and the generated code needs one",
            facts=(f"{name} is {_article(kind)}",),
            help=f"call it {fresh if fresh.isidentifier() and fresh != name else f'{fresh}_'}",
        )


def _find_clashes(roles: dict[str, tuple[tuple[str, str], ...]]) -> Iterator[Diagnostic]:
    for name, claims in roles.items():
        kinds = dict(reversed(claims))
        if len(kinds) > 1:
            (one, how), (other, why) = list(dict(reversed(kinds.items())).items())[:2]
            yield Diagnostic(
                "name-clash",
                f"{name} is {_article(one)} and {_article(other)}",
                facts=(
                    f"{name} is {_article(one)}: {how}",
                    f"{name} is {_article(other)}: {why}",
                ),
                help="give one of them another name",
            )


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _unknown_name(here: ir.Scalar, equation: ir.Equation, known: list[str]) -> Diagnostic:
    return Diagnostic(
        "unknown-name",
        f"{here.name} is not declared",
        find_marks(equation, here),
        (f"known are {', '.join(known)}",),
        suggest(here.name, known)
        or f'make it an argument, Formula(..., scalars="{here.name}"), or use it in a shape',
    )


def _find_bad_call(
    here: ir.Expr, function: str, count: int, equation: ir.Equation
) -> Iterator[Diagnostic]:
    if function not in FUNCTIONS:
        yield Diagnostic(
            "unknown-function",
            f"there is no function {function}",
            find_marks(equation, here),
            help=_INSTEAD.get(function)
            or suggest(function, FUNCTIONS)
            or f"known are {', '.join(sorted(FUNCTIONS))}",
        )
        return
    fewest, most = FUNCTIONS[function].counts
    if not fewest <= count <= most:
        wanted = to_count(fewest, "argument") if fewest == most else f"{fewest} to {most} arguments"
        yield Diagnostic(
            "argument-count",
            f"{function} takes {wanted}, not {count}",
            find_marks(equation, here),
        )


def find_order_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """Tensors used before they are defined, defined twice, or by themselves."""
    given = {entry.name for entry in system.inputs}
    places = {equation.target.tensor.name: k for k, equation in enumerate(system.equations)}
    plain: dict[str, ir.Equation] = {}  # of each tensor, the first equation for all its places
    for number, equation in enumerate(system.equations):
        target, name = equation.target, equation.target.tensor.name
        if name in given:
            yield Diagnostic(
                "defined-twice",
                f"{name} is declared as an argument and defined by an equation",
                find_marks(equation, target),
                help="give the result a name of its own",
            )
        if all(isinstance(place, ir.Index) for place in target.places):
            if name in plain:
                before = plain[name]
                marks = (*find_marks(before, before.target), *find_marks(equation, target))
                help_ = f"give the second one a name of its own, {name}2"
                yield Diagnostic("defined-twice", f"{name} is defined twice", marks, help=help_)
            plain[name] = equation
        for access in find_accesses(equation.value):
            yield from _find_early(access, equation, places, number, system)


def _find_early(
    access: ir.Access, equation: ir.Equation, places: dict[str, int], number: int, system: ir.System
) -> Iterator[Diagnostic]:
    """Does an equation use a tensor that is not defined yet?"""
    name = access.tensor.name
    if places.get(name, -1) > number and not recurs(access.tensor, equation, system):
        later = system.equations[places[name]]
        yield Diagnostic(
            "used-before-defined",
            f"{name} is used before it is defined",
            (*find_marks(equation, access), *find_marks(later, later.target)),
            help=f"move the equation of {name} up",
        )


# Numbers where numbers are asked for, conditions where conditions are asked for.


def is_condition(expr: ir.Expr) -> bool:
    """Is the expression true or false, and no number?"""
    match expr:
        case ir.Access(tensor, _):
            return tensor.kind == "bool"
        case ir.Truth() | ir.Compare() | ir.And() | ir.Or() | ir.Not():
            return True
    return False


def find_kind_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """Truth values used as numbers, and numbers used as conditions."""
    for equation in system.equations:
        wants_condition = equation.target.tensor.kind == "bool"
        yield from _find_mistakes(equation.value, equation, wants_condition=wants_condition)
        for place in equation.target.places:
            yield from _find_mistakes(place, equation, wants_condition=False)


def _find_mistakes(
    expr: ir.Expr, equation: ir.Equation, *, wants_condition: bool
) -> Iterator[Diagnostic]:
    if wants_condition is not is_condition(expr):
        yield _say_kind(expr, equation, wants_condition=wants_condition)
    conditions = _find_conditions(expr)
    for child in find_children(expr):
        wanted = any(child is condition for condition in conditions)
        yield from _find_mistakes(child, equation, wants_condition=wanted)


def _find_conditions(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The children that must be conditions."""
    match expr:
        case (
            ir.Where(condition, _, _) | ir.Reduce(_, _, condition, _) | ir.Along(_, _, condition, _)
        ):
            return (condition,)
        case ir.And(parts) | ir.Or(parts):
            return parts
        case ir.Not(part):
            return (part,)
    return ()


def _say_kind(expr: ir.Expr, equation: ir.Equation, *, wants_condition: bool) -> Diagnostic:
    """A number stands where a condition is needed, or a truth value where a number is."""
    written, declared = to_text(expr), "bool m[B, S]"
    facts: tuple[str, ...] = ()
    if isinstance(expr, ir.Access):
        name, kind = expr.tensor.name, _KINDS.get(expr.tensor.kind, "real numbers")
        facts = (f"{name} is a tensor of {kind}",)
        declared = f"bool {name}[{', '.join(map(write_extent, expr.tensor.shape))}]"
    marks = find_marks(equation, expr)
    if wants_condition:
        says = "a number stands where a condition is needed"
        advice = f"compare it, {written} > 0, or declare a tensor of truth values: {declared}"
        return Diagnostic("mask-not-boolean", says, marks, facts, advice)
    says = "a truth value stands where a number is needed"
    return Diagnostic("condition-as-number", says, marks, facts, f"write [{written}] for 1 or 0")


_KINDS = {"int": "integers", "bool": "truth values"}


# Every check of a formula, in the order in which a person would mend what they find.
#
# names, definitions, indices and places, kinds of values, extents, reads, sizes


def find_unplanned(system: ir.System) -> Diagnostic | None:
    """The refusal of a result that has a meaning but no code yet, or nothing."""
    for equation in system.equations:
        if equation.target.tensor.kind == "bool":
            return Diagnostic(
                "not-yet",
                f"{equation.target.tensor.name} is a result of truth values, which has no code yet",
                find_marks(equation, equation.target),
                help=f"define it as numbers, {to_text(equation.target)} = [...]",
            )
    return None


def check_system(system: ir.System) -> None:
    """Raise the first mistake of the formula, if it holds one."""
    for mistake in find_mistakes(system):
        raise DeriveError(mistake)


def find_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The mistakes of the formula; those of a stage only if the stages before it found none."""
    if not system.equations:
        yield Diagnostic(
            "formula-empty",
            "the formula has no equation",
            help="write at least one, y[i] = sum[j](A[i,j] * x[j])",
        )
        return
    for stage in (
        find_name_mistakes,
        find_order_mistakes,
        find_scope_mistakes,
        find_kind_mistakes,
        find_extent_mistakes,
        find_read_mistakes,
        find_start_mistakes,
        find_cover_mistakes,
        find_size_mistakes,
    ):
        found = tuple(stage(system))
        if found:
            yield from found
            return
