"""From SymPy equations to expressions of the index language, and a checked system.

SymPy has one class, `Symbol`, for four roles. The role is inferred from the use:
- size: in a tensor's shape, in the range of an index, or declared as one
- index: an `Idx`, or a `Symbol` that a sum binds, that is on a left side, or that is a plain place
- scalar: named in `Formula.scalars`, or declared as one
- tensor: an `IndexedBase`, or the bare left side of an equation

Laws:
- `show(parse(text)) == text` for a text in canonical form.
- Equations made with SymPy, which sorts, are put in a readable order.
- Shapes are those declared for arguments; defined tensors are as long as their left sides reach.
- Mistakes that only the SymPy objects show are refused here; `analysis.names` checks the system.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

import sympy
from sympy import (
    Dummy,
    Equality,
    Idx,
    Indexed,
    IndexedBase,
    Product,
    Rational,
    Sum,
    Symbol,
    expand,
    floor,
)
from sympy.logic.boolalg import BooleanAtom

from derive.analysis import names, places
from derive.analysis.extents import find_open_sizes
from derive.analysis.integers import mark_integers
from derive.analysis.names import find_missing, find_name_mistakes
from derive.errors import DeriveError, refuse, refuse_depth, suggest
from derive.frontend.names import Extents
from derive.frontend.sympy.nodes import (
    Context,
    find_extent,
    find_index,
    find_label,
    to_extent,
    to_node,
    walk_sympy,
)
from derive.frontend.text.build import to_size
from derive.ir import functions, pieces, polynomial, recurrences, starts, text
from derive.ir import nodes as ir
from derive.notation import words
from derive.notation.formula import Formula, check_formula, check_name


def from_sympy(formula: Formula) -> ir.System:
    """Return the system of a formula; DeriveError if the SymPy objects have no meaning."""
    declarations = formula.declarations
    context = find_names(formula)
    _find_tensors(formula, context)
    equations = []
    for equation in formula.equations:
        left = equation.lhs
        places = tuple(to_node(place, context) for place in getattr(left, "indices", ()))
        target = ir.Access(context.tensors[find_label(getattr(left, "base", left))], places)
        equations.append(ir.Equation(target, to_node(equation.rhs, context)))
    results = [equations[-1].target.tensor.name] if formula.outputs is None else formula.outputs
    for name in results:
        if name not in context.defined:
            raise refuse(
                "output-unknown",
                f"no equation defines the output {name}",
                facts=[f"defined are {', '.join(context.defined)}"],
                help=suggest(name, context.defined)
                or "name a tensor that stands left of an equation",
            )
    system = ir.System(
        formula.name or "formula",
        _find_inputs(formula, context),
        tuple(
            ir.SizeInput(find_label(symbol), None if default is None else int(default))
            for symbol, default in (declarations.sizes if declarations else ())
        ),
        tuple(equations),
        tuple(context.tensors[name] for name in results),
        formula.empty_row,
    )
    if declarations is None:
        system = replace(system, sizes=tuple(map(ir.SizeInput, find_open_sizes(system))))
    else:  # undeduced indices get an `index` line in any case
        undeduced = {index.name for index in text.find_undeduced(system)}
        winning = text.find_contradicted(system, declarations.indices)
        system = replace(system, declared=tuple(name for name in winning if name not in undeduced))
    missing = () if declarations is None else find_missing(system, declarations.indices)
    for mistake in chain(find_name_mistakes(system), missing):
        raise DeriveError(mistake)
    return system


def show(formula: Formula) -> str:
    """Return the formula in the notation; `derive.parse` reads it back."""
    return "\n".join(text.to_lines(from_sympy(check_formula(formula))))


# Names.


def find_names(formula: Formula) -> Context:
    """Return a formula's context, each name's role and properties; DeriveError for two roles."""
    _check_equations(formula)
    context = Context(is_ordered=formula.declarations is not None)
    context.scalars.update({str(name): default for name, default in formula.scalars.items()})
    if formula.declarations is not None:
        for argument in formula.declarations.arguments:
            if isinstance(argument, IndexedBase):
                _enter_node(argument, context)
            else:
                context.scalars.setdefault(find_label(argument), None)
        sizes = (find_label(size) for size, _ in formula.declarations.sizes)
        context.sizes.update(dict.fromkeys(sizes))
        for bounded in formula.declarations.domains:
            context.domains[find_label(bounded)] = _to_domain(bounded.domain, context)
    every = [value for equation in formula.equations for value in walk_sympy(equation)]
    for value in every:
        if isinstance(value, IndexedBase | Idx):
            context.sizes.update(dict.fromkeys(_find_sizes(value)))
    for equation in formula.equations:
        name = find_label(getattr(equation.lhs, "base", equation.lhs))
        context.defined.setdefault(name, equation)
        for value in walk_sympy(equation):
            _enter_node(value, context)
        for place in getattr(equation.lhs, "indices", ()):
            for part in walk_sympy(place):
                if isinstance(part, Symbol) and _is_open(part, context):
                    context.extents.setdefault(part.name, [])
    # an index without a range has the extent of its sum's limits, if they start at 0
    sums = (value for value in every if isinstance(value, Sum | Product))
    for index, *limits in (each for value in sums for each in value.args[1:]):
        if len(limits) == 2 and limits[0] == 0 and not context.extents[find_label(index)]:
            names = {find_label(symbol) for symbol in limits[1].free_symbols}
            if not names & set(context.extents):
                context.sizes.update(dict.fromkeys(sorted(names - set(context.scalars))))
                context.extents[find_label(index)].append(limits[1] + 1)
    roles: dict[str, Any] = {
        "a tensor": {**context.bases, **context.defined},
        "an index": context.extents,
        "a size": context.sizes,
        "a scalar": context.scalars,
    }
    taken: dict[str, str] = {}
    for role, name in ((role, name) for role, members in roles.items() for name in members):
        if taken.setdefault(name, role) != role:
            says, advice = f"{name} is {taken[name]} and {role}", "give one of them another name"
            raise refuse("name-clash", says, help=advice)
    _find_extents(formula, context)
    return context


def _find_extents(formula: Formula, context: Context) -> None:
    """Set the extents of indices without a range, from their uses."""

    def to_sizes(expr: Any) -> Any:
        """Return the expression with symbols of sizes, positive integers, for plain symbols."""
        symbols = sorted(expr.free_symbols, key=str)
        plain = (each for each in symbols if isinstance(each, Symbol))
        return expr.xreplace({each: to_size(each.name) for each in plain})

    def to_form(place: Any) -> Any:
        """Return a place as a polynomial over indices (plain symbols) and sizes, or None."""
        atoms = [part for part in walk_sympy(place) if isinstance(part, Idx | Symbol)]
        indices = {a: Symbol(find_label(a)) for a in atoms if find_label(a) in context.extents}
        sizes = {a: to_size(a.name) for a in atoms if a not in indices and isinstance(a, Symbol)}
        form = place.xreplace({**indices, **sizes})
        known = {*context.sizes, *context.extents}
        is_known = all(symbol.name in known for symbol in form.free_symbols)
        own = {*indices.values()}  # a quotient of sizes counts as a size
        bare = form.xreplace({f: Dummy() for f in form.atoms(floor) if not f.free_symbols & own})
        return expand(form) if is_known and bare.is_polynomial(*bare.free_symbols) else None

    lefts: dict[str, list[list[Any]]] = {}
    for equation in formula.equations:
        places = [to_form(place) for place in getattr(equation.lhs, "indices", ())]
        lefts.setdefault(find_label(getattr(equation.lhs, "base", equation.lhs)), []).append(places)
    every = (value for equation in formula.equations for value in walk_sympy(equation))
    uses = [
        (find_label(value.base), number, to_form(place))
        for value in every
        if isinstance(value, Indexed)
        for number, place in enumerate(value.indices)
    ]
    bases = {n: base.shape for n, base in context.bases.items() if base.shape is not None}
    shapes = {name: [*map(to_sizes, shape)] for name, shape in bases.items()}
    known = {name: to_sizes(e[0]) for name, e in context.extents.items() if e}
    context.resolved = Extents(known, shapes, lefts, uses).infer()
    for name, extent in context.resolved.known.items():
        if not context.extents[name]:
            context.extents[name].append(extent)


def _check_equations(formula: Formula) -> None:
    """Raise DeriveError without equations, for other objects, decided equations or left sides."""
    if not formula.equations:
        advice = "write at least one, y[i] = sum[j](A[i,j] * x[j])"
        raise refuse("formula-empty", "the formula has no equation", help=advice)
    for number, equation in enumerate(formula.equations, 1):
        if isinstance(equation, (bool, BooleanAtom)):
            says = f"equation {number} is {equation}: SymPy has compared its sides already"
            advice = "give the result a name of its own, or write Eq(left, right, evaluate=False)"
            raise refuse("equation-decided", says, help=advice)
        if not isinstance(equation, Equality):
            says = f"equation {number} is no equation: {equation}"
            raise refuse("equation-wanted", says, help="write Eq(y[i], ...)")
        if not isinstance(equation.lhs, (Indexed, IndexedBase, Symbol)):
            says = f"the left side of equation {number} is no element of a tensor: {equation.lhs}"
            raise refuse(
                "left-side", says, help="write the result alone on the left, Eq(y[i], ...)"
            )


def _find_sizes(value: Any) -> Iterator[str]:
    """Yield the symbols in the shape and bounds of a tensor, or in the range of an index."""
    if isinstance(value, Idx):
        parts = [value.lower, value.upper]
    else:
        parts = [*(value.shape or ()), getattr(value, "below", None), *getattr(value, "domain", ())]
    for part in parts:
        symbols = getattr(part, "free_symbols", ())
        yield from sorted(s.name for s in symbols if isinstance(s, Symbol))


def _enter_node(value: Any, context: Context) -> None:
    """Record the names in one node of an equation, with their shapes, extents and uses."""
    if isinstance(value, IndexedBase):
        name, known = find_label(value), context.bases.get(find_label(value))
        context.sizes.update(dict.fromkeys(_find_sizes(value)))
        if known is None or (known.shape is None and value.shape is not None):
            context.bases[name] = value
        elif value.shape is not None and tuple(value.shape) != tuple(known.shape):
            facts = [f"one of shape [{', '.join(map(str, base.shape))}]" for base in (known, value)]
            advice = "give one of them another name"
            raise refuse("name-clash", f"{name} names two tensors", facts=facts, help=advice)
    elif isinstance(value, Idx):
        extents, extent = context.extents.setdefault(find_label(value), []), find_extent(value)
        if extent is not None and extent not in extents:
            extents.append(extent)
    elif isinstance(value, words.Reduction):
        for index in value.bound:
            context.extents.setdefault(find_label(index), [])
    elif isinstance(value, (Sum, Product)):
        for limits in value.args[1:]:
            context.extents.setdefault(find_label(limits[0]), [])
    elif isinstance(value, Indexed):
        for number, place in enumerate(value.indices):
            if isinstance(place, Idx) or (isinstance(place, Symbol) and _is_open(place, context)):
                name = find_label(place)
                context.extents.setdefault(name, [])
                context.plain.setdefault(name, []).append((find_label(value.base), number))


def _is_open(place: Any, context: Context) -> bool:
    return place.name not in context.sizes and place.name not in context.scalars


# Tensors and arguments.


def _find_tensors(formula: Formula, context: Context) -> None:
    """Record every tensor of the formula in the context, arguments first."""
    declared = formula.declarations.arguments if formula.declarations is not None else ()
    values = [value for equation in formula.equations for value in walk_sympy(equation)]
    if "I" in {*context.bases, *context.extents, *context.sizes} and sympy.I in values:
        advice = "give one of them another name"
        raise refuse("name-clash", "I is the imaginary unit and a name", help=advice)
    context.complex |= words.find_complex(formula.equations)
    given = {find_label(argument) for argument in declared if isinstance(argument, IndexedBase)}
    for name, base in context.bases.items():
        if name not in context.defined or name in given:
            shape = () if base.shape is None and name in given else _find_shape(base, formula)
            made = tuple(to_extent(extent, context) for extent in shape)
            context.tensors[name] = _to_tensor(name, base, made, context)
    for name in context.defined:
        if name not in context.tensors:
            context.tensors[name] = _define(name, context)


def _find_shape(base: Any, formula: Formula) -> Sequence[Any]:
    """Return an argument's declared shape, or that of its first use; DeriveError for neither."""
    if base.shape is not None:
        return tuple(base.shape)
    name = find_label(base)
    if isinstance(base, words.TensorBase):
        says = f"tensor {name} has no shape and no equation defines it"
        advice = f'give it a shape, tensors("{name}", ...), or an equation'
        raise refuse("tensor-undefined", says, help=advice)
    for value in (value for equation in formula.equations for value in walk_sympy(equation)):
        if isinstance(value, Indexed) and find_label(value.base) == name:
            extents = [find_extent(place) for place in value.indices]
            if None not in extents:
                return extents
    advice = f'write IndexedBase("{name}", shape=(...)), or index it with Idx("i", S)'
    raise refuse("shape-unknown", f"the shape of {name} is unknown", help=advice)


def _to_tensor(name: str, base: Any, shape: tuple[ir.Expr, ...], context: Context) -> ir.Tensor:
    if not isinstance(base, words.TensorBase):
        return ir.Tensor(name, shape)
    bound = to_extent(base.below, context) if base.below is not None else None
    return ir.Tensor(name, shape, base.kind, bound, *_to_domain(base.domain, context))


def _to_domain(domain: Sequence[Any], context: Context) -> tuple[Any, Any, tuple[bool, bool]]:
    """Return (lower, upper, whether each is excluded) of a domain; None for an open side."""
    low, high, *relations = domain or (-sympy.oo, sympy.oo, "<=", "<=")
    lower, upper = (None if abs(end) == sympy.oo else to_node(end, context) for end in (low, high))
    return lower, upper, (str(relations[0]) == "<", str(relations[1]) == "<")


def _define(name: str, context: Context) -> ir.Tensor:
    """Return a tensor that equations define; its extents are the largest places on the left + 1."""
    base = context.bases.get(name)
    shape: tuple[ir.Expr, ...]
    if base is not None and base.shape is not None:
        shape = tuple(to_extent(extent, context) for extent in base.shape)
        return _to_tensor(name, base, shape, context)
    left, value = context.defined[name].args
    shape = ()
    for number, place in enumerate(getattr(left, "indices", ())):
        extent = context.resolved.find_extent(name, number)
        if extent is None:  # a constant place
            shape += (to_node(place, context),)
            continue
        whole = polynomial.Polynomial.of(to_node(extent, context)).to_expr()
        is_index = isinstance(place, Idx | Symbol) and find_label(place) in context.extents
        own = find_index(place, context).extent if is_index else whole
        is_own = len(context.resolved.lefts[name]) == 1 or polynomial.is_same_extent(own, whole)
        shape += (own if is_own else whole,)
    if isinstance(value, words.argmax) and len(value.bound) == 1:
        return ir.Tensor(name, shape, "int", find_index(value.bound[0], context).extent)
    made = ir.Tensor(name, shape) if base is None else _to_tensor(name, base, shape, context)
    return replace(made, kind="complex") if name in context.complex else made


def _find_inputs(formula: Formula, context: Context) -> tuple[ir.Tensor | ir.ScalarInput, ...]:
    """Return the arguments: as declared, else the tensors without equations and the scalars."""
    if formula.declarations is not None:
        given = [find_label(argument) for argument in formula.declarations.arguments]
    else:
        open_ones = (name for name in context.bases if name not in context.defined)
        is_plain = {n: not hasattr(base, "declared") for n, base in context.bases.items()}
        given = sorted(open_ones, key=lambda name: (is_plain[name], context.sort_key(name)[1]))
        given += context.scalars
    return tuple(
        ir.ScalarInput(
            name, _to_default(name, context.scalars[name]), *context.domains.get(name, ())
        )
        if name in context.scalars
        else context.tensors[name]
        for name in given
    )


def _to_default(name: str, value: Any) -> ir.Expr | None:
    if value is None:
        return None
    if isinstance(value, Rational):
        return pieces.to_exact(Fraction(int(value.p), int(value.q)))
    try:
        return pieces.to_exact(Fraction(str(value)))
    except ValueError:
        says = f"the default of {name} is no number: {value}"
        raise refuse("default-form", says, help="write a finite number, 1e-5") from None


def to_system(formula: Formula, name: str | None = None) -> ir.System:
    """Return the checked system of a formula; DeriveError for its first mistake."""
    check_formula(formula)
    if name is not None:
        check_name(name)
    with refuse_depth():
        system = mark_integers(from_sympy(formula))
        for mistake in names.find_mistakes(system):
            raise DeriveError(mistake)
        system = places.join_parts(starts.inline_starts(recurrences.lift_alongs(system)))
        system = recurrences.order_recurrences(recurrences.widen_turns(system))
        for mistake in recurrences.find_recurrence_mistakes(system):
            raise DeriveError(mistake)
    return replace(system, name=name) if name else system


def check_real(system: ir.System) -> ir.System:
    """Return the system itself; DeriveError if a part of it is complex."""
    if any(functions.holds_complex(equation.value) for equation in system.equations):
        raise refuse(
            "not-yet",
            "the gradients of complex numbers have no formula yet",
            help="let autograd go through the generated function, or write the real and the "
            "imaginary part as real tensors",
        )
    return system
