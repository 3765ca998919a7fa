"""The formula that a function of torch tensors computes, found by one run at declared shapes.

    from_torch(attend, "q[B, S, D]; k, v[B, T, D]")

The tensors of a module have to be arguments:

    lambda x, w, b: torch.func.functional_call(linear, {"weight": w, "bias": b}, x)
"""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from derive.analysis.facts import Facts, find_range, is_never_negative
from derive.analysis.safety import find_guarded
from derive.errors import DeriveError, refuse
from derive.frontend.from_sympy import to_system
from derive.frontend.from_text import parse
from derive.frontend.torch import code
from derive.frontend.torch.lift import Argument, Lifted, lift
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_lines, to_text
from derive.ir.walk import walk
from derive.judge.samples import choose_sizes, find_sizes
from derive.libraries import torch
from derive.notation.formula import Formula

_NOTHING = "lifted_nothing"
_MOST_DRAWS = 8  # sizes drawn until the code runs


@dataclass(frozen=True)
class FromCode:
    """A formula lifted from code, and the assumptions under which it holds."""

    formula: Formula
    fixed: Mapping[str, int]  # sizes that the code uses as numbers
    notes: tuple[str, ...] = ()  # conditions on sizes that decided the code's branches

    def describe_assumptions(self) -> tuple[str, ...]:
        """A sentence for each assumption."""
        words = [f"the code runs so while {note}" for note in self.notes]
        if self.fixed:
            sizes = " ".join(f"{size}={number}" for size, number in self.fixed.items())
            words.append(f"the code takes sizes as numbers: the formula is for {sizes}")
        return tuple(words)


def from_torch(
    function: Any,
    inputs: str = "",
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Formula:
    """The formula that a function of torch tensors computes.

    `inputs` declares its arguments in the notation, `"q[B, S, D]; k[B, T, D]; size H"`, by their
    names. `sizes` are those at which the code runs once. Raises DeriveError, with the line, for
    branches on data, numbers read out and random numbers. Warns where the formula holds only for
    some sizes.
    """
    found = lift_code(function, inputs, name=name, sizes=sizes)
    for note in found.describe_assumptions():
        warnings.warn(note, stacklevel=2)
    return found.formula


def lift_code(
    function: Any,
    inputs: str = "",
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> FromCode:
    """The formula of a function, and its assumptions on sizes; arguments are as in `from_torch`."""
    if isinstance(function, torch.nn.Module):
        _refuse_held(function)
        name, function = name or type(function).__name__, function.forward
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        says = f"{function!r} is no function with known arguments"
        raise refuse("lift-code", says) from None
    if not inputs:
        says = f"the shapes of {', '.join(parameters) or 'the arguments'} are not known"
        example = f"{next(iter(parameters), 'x')}[B, S, D]; bool mask[B, S]"
        advice = f'declare them, as in "{example}", by --inputs on the command line'
        raise refuse("lift-shapes", says, help=advice)
    own_name = getattr(function, "__name__", "")
    is_name = own_name.isidentifier() and not own_name.startswith("_")
    name = name or (own_name if is_name else "formula")
    declared = to_system(parse(f"{inputs}\n{_NOTHING} = 0", "lifted"))
    arguments = _match_parameters(declared, parameters, name)
    path = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "")
    path = "" if code.is_foreign(path) else path
    lifted = _lift_anywhere(function, arguments, declared, dict(sizes or {}), path)
    system, needs = _guard_sizes(lifted.system)
    formula = parse("\n".join(to_lines(system)), name, empty_row=system.empty_row)
    to_system(formula)  # DeriveError where the notation cannot say it
    notes = dict.fromkeys((*map(to_text, lifted.notes), *needs))
    return FromCode(formula, lifted.fixed, tuple(notes))


def _refuse_held(module: "torch.nn.Module") -> None:
    """Raise DeriveError for a module with parameters or buffers: only arguments can be tensors."""
    held = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    if held:
        kind, entries = type(module).__name__, ", ".join(f'"{name}": ..' for name in held)
        raise refuse(
            "lift-module",
            f"{kind} holds tensors, which have to be arguments of the code",
            facts=[f"it holds {', '.join(held)}"],
            help=f"lift a function that calls torch.func.functional_call(module, {{{entries}}}, x)",
        )


def _lift_anywhere(
    function: Any,
    arguments: Mapping[str, Argument],
    declared: ir.System,
    preset: Mapping[str, int],
    path: str,
) -> Lifted:
    """The equations of the code, by a run at the first drawn sizes at which it does not fail."""
    first: DeriveError | None = None
    for seed in range(_MOST_DRAWS):
        chosen = choose_sizes(declared, 1, seed=seed, fixed=preset)[0]
        try:
            return lift(function, arguments, chosen, path=path)
        except DeriveError as error:
            if error.diagnostic.code != "lift-run":
                raise first or error from None
            first = first or error
    assert first is not None
    raise first


def _guard_sizes(system: ir.System) -> tuple[ir.System, tuple[str, ...]]:
    """The pair (guarded system, texts of the guards); the guard of x[i + S - 2] is `[S >= 2]`.

    The guards are assumptions of the code on its sizes.
    """
    equations, conditions = [], dict[str, None]()
    for equation in system.equations:
        needs: dict[ir.Expr, None] = {}
        for access, facts in find_guarded(equation.value, ()):
            for place, extent in zip(access.places, access.tensor.shape, strict=True):
                last = Polynomial.of(extent) - Polynomial.of(1) - Polynomial.of(place)
                needs |= dict.fromkeys(_find_needs(Polynomial.of(place), facts))
                needs |= dict.fromkeys(_find_needs(last, facts))
        conditions |= dict.fromkeys(map(to_text, needs))
        brackets = [ir.Where(need, ir.ONE, ir.ZERO) for need in needs]
        value = ir.Mul((*brackets, equation.value)) if brackets else equation.value
        equations.append(replace(equation, value=value))
    return replace(system, equations=tuple(equations)), tuple(conditions)


def _find_needs(value: Polynomial, facts: Facts) -> Iterator[ir.Expr]:
    """The condition on sizes under which a value is >= 0; nothing if always, or if unknown."""
    low = None if is_never_negative(value, facts) else find_range(value.to_expr()).low
    atoms = low.atoms if low is not None else ()
    is_fixed = not any(isinstance(p, ir.Index | ir.Access) for atom in atoms for p in walk(atom))
    if low is not None and atoms and is_fixed:
        number = Polynomial.of(low.terms.get((), 0))
        sizes = low - number
        below = Polynomial({monomial: -n for monomial, n in sizes.terms.items() if n < 0})
        yield ir.Compare(">=", (sizes + below).to_expr(), (below - number).to_expr())


def _match_parameters(
    declared: ir.System, parameters: Mapping[str, inspect.Parameter], name: str
) -> dict[str, Argument]:
    """The declared argument of each parameter, which only one with a default may lack."""
    known: dict[str, Argument] = {each.name: each for each in declared.inputs}
    sizes = [e.name for e in declared.sizes]
    sizes += [size for size in find_sizes(declared) if size in parameters]
    known |= {size: ir.Size(size) for size in sizes}
    strange = [each for each in known if each not in parameters]
    if strange:
        facts = [f"it takes {', '.join(parameters)}"]
        raise refuse("lift-argument", f"{name} takes no {strange[0]}", facts=facts)
    for each, parameter in parameters.items():
        is_rest = parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
        if parameter.default is parameter.empty and not is_rest and each not in known:
            raise refuse(
                "lift-argument",
                f"{each} of {name} is not declared",
                help=f"declare it, by --inputs on the command line: {each}[..] for a tensor, "
                f"size {each}, scalar {each}",
            )
    return {each: known[each] for each in parameters if each in known}
