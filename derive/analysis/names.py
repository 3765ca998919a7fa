"""The mistakes of a formula in names, indices and kinds of values; the list of all checks.

Each name is declared, has one role, and is defined before use. Each index of an equation is on the
left side or bound by exactly one reduction around its uses.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from keyword import iskeyword

from derive.analysis import extents
from derive.analysis.places import fills_once, find_cover_mistakes
from derive.errors import Diagnostic, suggest
from derive.ir import nodes as ir
from derive.ir.functions import COUNTING, FUNCTIONS, REDUCTIONS, ROWS, is_complex
from derive.ir.polynomial import is_same_extent
from derive.ir.recurrences import find_reach, is_dependent
from derive.ir.starts import find_start_mistakes
from derive.ir.text import find_free_marks, find_marks, to_count, to_text, write_extent
from derive.ir.walk import (
    find_accesses,
    find_all_indices,
    find_broadcast,
    find_free,
    find_size_names,
    find_start,
    rename_apart,
    walk,
)
from derive.notation.formula import FUNCTION_WORDS, find_owner


def find_scope_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors in indices: repeated on the left, free on the right, bound twice or unused."""
    counts = Counter(equation.target.tensor for equation in system.equations)
    for equation in system.equations:
        yield from _find_left_mistakes(equation, system, is_part=counts[equation.target.tensor] > 1)
        yield from _find_rank_mistakes(equation)
        indices = {index.name for index in find_free(equation.target)}
        yield from _find_binding_mistakes(equation.value, equation, indices, system)
        yield from _find_dangling(equation, system)


def find_missing(system: ir.System, declared: Collection[str]) -> Iterator[Diagnostic]:
    """The errors for indices that are on the left side only, and not declared."""
    for equation in system.equations:
        # Other equations of the tensor have the indices too, beside an initial value or h[0,i].
        is_start = bool(find_start(equation.target)) or any(
            not find_free(place) for place in equation.target.places
        )
        for index in () if is_start else find_broadcast(equation):
            if index.name not in declared:
                yield Diagnostic(
                    "index-missing",
                    f"index {index.name} stands on the left but not on the right",
                    find_marks(equation, equation.target, index),
                    (extents.describe_extent(index, system),),
                    f"use {index.name} on the right; to repeat the values along {index.name}, "
                    f"add the line: index {index.name} < {write_extent(index.extent)}",
                )


def _find_left_mistakes(
    equation: ir.Equation, system: ir.System, *, is_part: bool
) -> Iterator[Diagnostic]:
    target = equation.target
    if len(target.places) != len(target.tensor.shape):
        return
    met: dict[str, None] = {}
    for number, place in enumerate(target.places):
        free = find_free(place)
        if free and not is_part and not fills_once(place, target.tensor.shape[number]):
            yield Diagnostic(
                "left-side",
                f"the place {write_extent(place)} does not fill every position of "
                f"{target.tensor.name} once",
                find_marks(equation, target, place),
                tuple(extents.describe_extent(index, system) for index in free),
                "a place of the left side is an index, or indices merged like h*D + d",
            )
        for index in free:
            if index.name in met:
                yield Diagnostic(
                    "index-repeats",
                    f"index {index.name} stands twice on the left side",
                    find_marks(equation, target),
                    (f"places off the diagonal of {target.tensor.name} would have no value",),
                    f"take another index, and multiply by [{index.name} == ..] for a diagonal",
                )
            met[index.name] = None


def _find_rank_mistakes(equation: ir.Equation) -> Iterator[Diagnostic]:
    for access in (equation.target, *find_accesses(equation.value)):
        tensor = access.tensor
        if len(access.places) != len(tensor.shape):
            wanted = to_count(len(tensor.shape), "place")
            shape = ", ".join(map(write_extent, tensor.shape))
            yield Diagnostic(
                "wrong-rank",
                f"{tensor.name} has {wanted}, not {len(access.places)}",
                find_marks(equation, access),
                (f"{tensor.name} has shape [{shape}]",),
                f"give {wanted} to {tensor.name}" if tensor.shape else f"write {tensor.name} alone",
            )


def _find_binding_mistakes(
    expr: ir.Expr, equation: ir.Equation, scope: set[str], system: ir.System
) -> Iterator[Diagnostic]:
    """The errors in indices bound inside an expression; `scope`: names of the indices around it."""
    inner = scope
    match expr:
        case ir.Reduce(kind, bound, _, _):
            inner = set(scope)
            for index in bound:
                if index.name in inner:
                    yield _report_bound_again(expr, index, equation, system)
                inner.add(index.name)
            yield from _find_absent(expr, kind, bound, equation)
            yield from _find_matrix_mistakes(expr, bound, equation)
        case ir.Along(kind):
            inner = scope | {index.name for index in expr.indices}
            yield from _find_absent(expr, kind, expr.indices, equation)
            yield from _find_matrix_mistakes(expr, expr.indices, equation)
    for child in expr.children:
        yield from _find_binding_mistakes(child, equation, inner, system)


def _report_bound_again(
    expr: ir.Expr, index: ir.Index, equation: ir.Equation, system: ir.System
) -> Diagnostic:
    fresh = rename_apart(index, {i.name for i in find_all_indices(system)} | {index.name})
    return Diagnostic(
        "index-bound-again",
        f"index {index.name} is bound again where it already has a meaning",
        find_marks(equation, expr, index),
        help=f"take a fresh name here, {fresh.name}",
    )


def _find_absent(
    expr: ir.Reduce | ir.Along, kind: str, bound: tuple[ir.Index, ...], equation: ir.Equation
) -> Iterator[Diagnostic]:
    """The errors for indices of a reduction that do not occur in its body or condition."""
    if kind in COUNTING:
        return
    inside = {index.name for index in (*find_free(expr.body), *find_free(expr.condition))}
    for index in bound:
        if index.name not in inside:
            yield Diagnostic(
                "index-absent",
                f"{kind} runs over {index.name}, which does not occur in what it is taken of",
                find_marks(equation, expr, index),
                (f"{to_text(expr.body)} holds {_list_names(find_free(expr.body))}",),
                f"name an index of it, or leave {kind}[{index.name}] out",
            )


def _find_matrix_mistakes(
    expr: ir.Reduce | ir.Along, indices: tuple[ir.Index, ...], equation: ir.Equation
) -> Iterator[Diagnostic]:
    """The errors for a function of a matrix that is not square or has a condition."""
    if not ROWS[expr.kind].is_matrix:
        return
    rows, columns = indices
    if not is_same_extent(rows.extent, columns.extent):
        yield Diagnostic(
            "matrix-not-square",
            f"{expr.kind}[{rows.name}, {columns.name}] is of a square matrix",
            find_marks(equation, expr, columns),
            tuple(f"{i.name} has extent {write_extent(i.extent)}" for i in indices),
            f"give {rows.name} and {columns.name} one extent",
        )
    if expr.condition is not ir.TRUE:
        yield Diagnostic(
            "matrix-condition",
            f"{expr.kind} takes all entries of its matrix",
            find_marks(equation, expr, expr.condition),
            help=f"write {expr.kind}[{rows.name}, {columns.name}](where(.., .., 0))",
        )


def _list_names(indices: tuple[ir.Index, ...]) -> str:
    names = [index.name for index in indices]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none"


def _find_dangling(equation: ir.Equation, system: ir.System) -> Iterator[Diagnostic]:
    left = {index.name for index in find_free(equation.target)}
    dangling = [index for index in find_free(equation.value) if index.name not in left]
    for index in dangling:
        use = _find_free_use(equation.value, index)
        marks = find_free_marks(equation, use or index, index)
        others = [other for other in dangling if other is not index]
        facts = [extents.describe_extent(index, system)]
        facts += [extents.describe_extent(other, system) for other in others[:1]]
        yield Diagnostic(
            "index-dangles",
            f"index {index.name} stands on the right but is neither summed nor on the left",
            marks,
            tuple(facts),
            _propose_end(index, use, others, equation),
        )


def _find_free_use(expr: ir.Expr, index: ir.Index) -> ir.Access | ir.Along | None:
    """The first access, or function along the index, in which it is free; None if there is none."""
    match expr:
        case ir.Reduce(_, bound, _, _) if index in bound:
            return None
        case ir.Access(_, places) if index in places:
            return expr
        case ir.Along() if index in expr.indices:
            return expr
    found = (_find_free_use(child, index) for child in expr.children)
    return next((use for use in found if use is not None), None)


def _propose_end(
    index: ir.Index, use: ir.Access | ir.Along | None, others: list[ir.Index], equation: ir.Equation
) -> str:
    """The advice for a free index: another index of its extent, a sum, or a place on the left."""
    name = index.name
    if isinstance(use, ir.Access):
        known = [(other, equation.value) for other in others]
        known += [pair for pair in _find_around(equation.value, use) if pair[0] not in use.places]
        for other, scope in known:
            inside = (access for access in find_accesses(scope) if access is not use)
            partner = next((access for access in inside if other in access.places), None)
            if partner is not None and is_same_extent(other.extent, index.extent):
                swapped = tuple(other if place is index else place for place in use.places)
                return (
                    f"write {to_text(ir.Access(use.tensor, swapped))} to contract with "
                    f"{partner.tensor.name}, or sum[{name}](...) to add it up"
                )
    places = ",".join([*map(to_text, equation.target.places), name])
    target = f"{equation.target.tensor.name}[{places}]"
    return f"write sum[{name}](...) to add it up, or {target} = ... to keep it"


def _find_around(expr: ir.Expr, use: ir.Access) -> tuple[tuple[ir.Index, ir.Expr], ...]:
    """Pairs (index, body) of the reductions around the first occurrence of an access."""
    bound = tuple((i, expr.body) for i in expr.bound) if isinstance(expr, ir.Reduce) else ()
    for child in expr.children:
        if child is use:
            return bound
        if use in walk(child):
            return (*bound, *_find_around(child, use))
    return ()


_INSTEAD = {
    "Heaviside": "write the bracket [x > 0]: Piecewise((1, x > 0), (0, True))",
    "ceiling": "write -floor(-x)",
    "ln": "write log",
}


def find_name_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors for names that code cannot have, unknown names, and calls with wrong arguments."""
    kinds = find_kinds(system)
    yield from _find_bad_names(kinds)
    for equation in system.equations:
        for here in walk(equation.value):
            match here:
                case ir.Scalar(name) if kinds.get(name) != "scalar":
                    yield _report_unknown_name(here, equation, list(kinds))
                case ir.Call(function, arguments):
                    yield from _find_bad_call(here, function, len(arguments), equation)


def find_kinds(system: ir.System) -> dict[str, str]:
    """The kind of each name: scalar, tensor, size or index."""
    found: dict[str, str] = {}
    for entry in system.inputs:
        found[entry.name] = "scalar" if isinstance(entry, ir.ScalarInput) else "tensor"
        if isinstance(entry, ir.Tensor):
            parts = (*entry.shape, entry.below, entry.lower, entry.upper)
            sizes = find_size_names(*(part for part in parts if part is not None))
            found |= dict.fromkeys(sizes, "size")
    found |= {keyword.name: "size" for keyword in system.sizes}
    found |= {equation.target.tensor.name: "tensor" for equation in system.equations}
    for index in find_all_indices(system):
        found |= {index.name: "index", **dict.fromkeys(find_size_names(index.extent), "size")}
    return found


def _find_bad_names(kinds: dict[str, str]) -> Iterator[Diagnostic]:
    for name, kind in kinds.items():
        owner = find_owner(name, FUNCTION_WORDS)
        if owner and kind != "index":
            yield Diagnostic(
                "name-form",
                f"{name} cannot be {to_article(kind)}: {owner}",
                help=f"call it {name.strip('_')}_",
            )
        if name.isidentifier() and not iskeyword(name):
            continue
        fresh = "".join(c if f"a{c}".isidentifier() else "_" for c in name)
        yield Diagnostic(
            "name-form",
            f"{name} cannot be a name in Python, and the generated code needs one",
            facts=(f"{name} is {to_article(kind)}",),
            help=f"call it {fresh if fresh.isidentifier() and fresh != name else f'{fresh}_'}",
        )


def to_article(kind: str) -> str:
    """The kind with its article: `a size`, `an index`."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _report_unknown_name(here: ir.Scalar, equation: ir.Equation, known: list[str]) -> Diagnostic:
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
            "argument-count", f"{function} takes {wanted}, not {count}", find_marks(equation, here)
        )


def find_order_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors for tensors used before their definition or defined twice."""
    places = {equation.target.tensor.name: k for k, equation in enumerate(system.equations)}
    plain: dict[str, ir.Equation] = {}  # the last equation of each tensor over plain indices
    for number, equation in enumerate(system.equations):
        target, name = equation.target, equation.target.tensor.name
        if all(isinstance(place, ir.Index) for place in target.places):
            if name in plain:
                before = plain[name]
                marks = (*find_marks(before, before.target), *find_marks(equation, target))
                help_ = f"give the second one a name of its own, {name}2"
                yield Diagnostic("defined-twice", f"{name} is defined twice", marks, help=help_)
            plain[name] = equation
        for access in find_accesses(equation.value):
            name = access.tensor.name
            if places.get(name, -1) <= number or is_dependent(access.tensor, equation, system):
                continue
            later, reach = system.equations[places[name]], find_reach(system)
            both = target.tensor, later.target.tensor
            if not all(tensor in reach.get(tensor, ()) for tensor in both):  # no recurrence
                yield Diagnostic(
                    "used-before-defined",
                    f"{name} is used before it is defined",
                    (*find_marks(equation, access), *find_marks(later, later.target)),
                    help=f"move the equation of {name} up",
                )


def is_condition(expr: ir.Expr) -> bool:
    """Whether the value of an expression is a truth value, not a number."""
    is_read = isinstance(expr, ir.Access) and expr.tensor.kind == "bool"
    return is_read or isinstance(expr, ir.TRUTHS)


def find_kind_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors for truth values used as numbers; the frontends find the reverse."""
    for equation in system.equations:
        wants_condition = equation.target.tensor.kind == "bool"
        yield from _find_kind_mistakes(equation.value, equation, wants_condition=wants_condition)
        for place in equation.target.places:
            yield from _find_kind_mistakes(place, equation, wants_condition=False)


def _find_kind_mistakes(
    expr: ir.Expr, equation: ir.Equation, *, wants_condition: bool
) -> Iterator[Diagnostic]:
    if is_condition(expr) and not wants_condition:
        yield _report_kind(expr, equation)
    conditions = _find_conditions(expr)
    for child in expr.children:
        wanted = any(child is condition for condition in conditions)
        yield from _find_kind_mistakes(child, equation, wants_condition=wanted)


def _find_conditions(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The children of a node that must be conditions; () where it has none."""
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


def _report_kind(expr: ir.Expr, equation: ir.Equation) -> Diagnostic:
    """The error for a truth value in place of a number."""
    name = expr.tensor.name if isinstance(expr, ir.Access) else ""
    return Diagnostic(
        "condition-as-number",
        "a truth value stands where a number is needed",
        find_marks(equation, expr),
        (f"{name} is a tensor of truth values",) if name else (),
        f"write [{to_text(expr)}] for 1 or 0",
    )


# reductions of complex numbers that have a meaning; the others compare entries
_OF_COMPLEX = {"prod", *(row.name for row in REDUCTIONS if row.is_linear)}


def find_complex_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors for complex numbers where only real ones have a meaning or generated code."""
    for equation in system.equations:
        for here in (part for side in (equation.value, equation.target) for part in walk(side)):
            match here:
                case ir.Call("im", (part,)) if not is_complex(part):
                    message, marks = "im of a real number is 0", find_marks(equation, here)
                    yield Diagnostic("complex-number", message, marks, (), "leave it out")
            for part, message, advice in _find_real_parts(here):
                if is_complex(part):
                    facts = (f"{to_text(part)} is complex",)
                    marks = find_marks(equation, here)
                    yield Diagnostic("complex-number", message, marks, facts, advice)


def _find_real_parts(here: ir.Expr) -> Iterator[tuple[ir.Expr, str, str]]:
    """Yield triples (part that must be real, message if it is not, advice) of a node."""
    parts = "take re(..), im(..) or abs(..) of it"
    match here:
        case ir.Call(function, arguments) if not FUNCTIONS[function].complex:
            for part in arguments:
                yield part, f"{function} has no meaning for complex numbers", parts
        case ir.Compare(_, left, right):
            for part in (left, right):
                yield part, "complex numbers are not compared", parts
        case ir.Pow(base, exponent):
            yield exponent, "an exponent is a real number", "write exp(log(a)*z) for a**z"
            if not isinstance(exponent, ir.Number) or exponent.value.denominator != 1:
                message = "a power of a complex number that is not whole has several values"
                yield base, message, "write the one that is meant: abs(z)**p * exp(I*p*arg(z))"
        case ir.Reduce(kind, _, _, body) | ir.Along(kind, _, _, body) if kind not in _OF_COMPLEX:
            yield body, f"{kind} has no meaning, or no code yet, for complex numbers", parts
        case ir.Access(_, places):
            for part in places:
                yield part, "a position is a whole number", parts


def find_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors of the first check that finds any; checks are in the order of fixing."""
    for stage in (
        find_name_mistakes,
        find_order_mistakes,
        find_scope_mistakes,
        find_kind_mistakes,
        find_complex_mistakes,
        extents.find_extent_mistakes,
        extents.find_read_mistakes,
        find_start_mistakes,
        find_cover_mistakes,
        extents.find_size_mistakes,
    ):
        found = tuple(stage(system))
        if found:
            yield from found
            return
