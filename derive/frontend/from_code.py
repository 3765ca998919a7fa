"""A formula out of code: lifted at inputs of declared shapes, and its text read back.

    from_torch(attend, "q[B, S, D]; k, v[B, T, D]")
    from_torch(nn.Conv2d(3, 8, 5), "input[B, C, H, W]")      of a module: its tensors come too

Shapes that are not declared are read from the function's own text:

    def attend(q, k):  # q: (B, S, D), k: (B, T, D)         a comment
    \"\"\"q [B, S, D] the queries\"\"\"                            a docstring
    def attend(q: Float[Tensor, "b s d"])                     an annotation in the jaxtyping form
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from derive.analysis.facts import Facts, find_range, is_nonnegative
from derive.analysis.reads import find_guarded
from derive.errors import DeriveError, refuse
from derive.frontend.from_text import parse
from derive.frontend.system import to_system
from derive.frontend.torch.lift import Lifted, lift
from derive.frontend.torch.modules import lift_module
from derive.frontend.torch.spots import is_foreign
from derive.ir.nodes import ONE, ZERO, Compare, Expr, Mul, ScalarInput, Size, System, Tensor, Where
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_lines, to_text
from derive.judge.samples import choose_sizes, find_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.notation.formula import Formula


_NOTHING = "lifted_nothing"
_MOST_DRAWS = 8  # of sizes, until the code runs


@dataclass(frozen=True)
class FromCode:
    """A formula out of code, and what it rests on: sizes that are numbers in the code."""

    formula: Formula
    fixed: Mapping[str, int]
    notes: tuple[str, ...] = ()

    def say(self) -> tuple[str, ...]:
        """The same in words."""
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
    """The formula that a function of torch tensors, or a module, computes.

    `inputs` declares its arguments in the notation, `"q[B, S, D]; k[B, T, D]; size H"`, by their
    names; without it the shapes are read from annotations, the docstring or comments. `sizes` are
    those at which the code runs once. The parameters and buffers of a module are arguments of the
    formula, `conv1_weight` for conv1.weight: `formula.parameters` has the names by the dotted ones.
    A module is lifted as it is, in training or not. Raises DeriveError, with the line, for what no
    formula says: branches on data, numbers read out, random numbers. Warns where the formula holds
    for some sizes alone.
    """
    found = lift_code(function, inputs, name=name, sizes=sizes)
    for note in found.say():
        warnings.warn(note, stacklevel=2)
    return found.formula


def lift_code(
    function: Any,
    inputs: str = "",
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    source: str = "",
) -> FromCode:
    """The formula of a function, and what it rests on."""
    import torch

    is_module = isinstance(function, torch.nn.Module)
    called_by = type(function).forward if is_module else function
    parameters = _find_parameters(function.forward if is_module else function)
    inputs = inputs or _find_declared(called_by, parameters, source)
    called = name or _find_name(type(function) if is_module else function)
    if is_module:
        inputs = _tell_bounds(inputs)
    declared = to_system(parse(f"{inputs}\n{_NOTHING} = 0", "lifted"))
    arguments = _match(declared, parameters, called, is_module)
    path = getattr(getattr(inspect.unwrap(called_by), "__code__", None), "co_filename", "")
    own: dict[str, str] = {}
    if is_module:
        path = "" if is_foreign(path) else path
        lifted, own = lift_module(function, arguments, inputs, dict(sizes or {}), path)
    else:
        lifted = _lift_anywhere(function, arguments, declared, dict(sizes or {}), path)
    system, needs = _guard_sizes(lifted.system)
    formula = parse("\n".join(to_lines(system)), called, empty_row=system.empty_row)
    formula.parameters = own
    notes = dict.fromkeys((*map(str, lifted.notes), *needs))
    return FromCode(formula, lifted.fixed, tuple(notes))


def _lift_anywhere(
    function: Any,
    arguments: Mapping[str, Tensor | ScalarInput | Size],
    declared: System,
    told: Mapping[str, int],
    path: str,
) -> Lifted:
    """The code lifted at the first sizes at which it runs: a kernel may not be too long."""
    first: DeriveError | None = None
    for seed in range(_MOST_DRAWS):
        chosen = choose_sizes(declared, 1, seed=seed, fixed=told)[0]
        try:
            return lift(function, arguments, chosen, path=path)
        except DeriveError as error:
            if error.diagnostic.code != "lift-run":
                raise first or error from None
            first = first or error
    assert first is not None
    raise first


def _guard_sizes(system: System) -> tuple[System, tuple[str, ...]]:
    """The system with `[S >= 2]` before an equation that reads x[i + S - 2], and these conditions.

    They are what the code asks of its sizes.
    """
    equations, conditions = [], dict[str, None]()
    for equation in system.equations:
        needs: dict[Expr, None] = {}
        for access, facts in find_guarded(equation.value, ()):
            for place, extent in zip(access.places, access.tensor.shape, strict=True):
                last = Polynomial.of(extent) - Polynomial.of(1) - Polynomial.of(place)
                needs |= dict.fromkeys(_find_needs(Polynomial.of(place), facts))
                needs |= dict.fromkeys(_find_needs(last, facts))
        conditions |= dict.fromkeys(map(to_text, needs))
        brackets = [Where(need, ONE, ZERO) for need in needs]
        value = Mul((*brackets, equation.value)) if brackets else equation.value
        equations.append(replace(equation, value=value))
    return replace(system, equations=tuple(equations)), tuple(conditions)


def _find_needs(value: Polynomial, facts: Facts) -> Iterator[Expr]:
    """The condition on sizes under which a value is never negative, if it is not so anyway."""
    low = None if is_nonnegative(value, facts) else find_range(value.to_expr()).low
    if low is not None and low.atoms and all(isinstance(atom, Size) for atom in low.atoms):
        number = Polynomial.of(low.terms.get((), 0))
        sizes = low - number
        below = Polynomial({monomial: -n for monomial, n in sizes.terms.items() if n < 0})
        yield Compare(">=", (sizes + below).to_expr(), (below - number).to_expr())


def _tell_bounds(inputs: str) -> str:
    """The declarations with a line for a bound, `int t[B, S] < V`, that a module's tensor tells."""
    shapes = " ".join(re.findall(r"\[[^\]]*\]", inputs))
    names = dict.fromkeys(re.findall(r"\]\s*<\s*([A-Za-z_]\w*)", inputs))
    alone = [n for n in names if not re.search(rf"\b{n}\b", shapes) and f"size {n}" not in inputs]
    return "\n".join([inputs, *(f"size {name}" for name in alone)])


def _find_parameters(function: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise refuse("lift-code", f"{function!r} is no function with known arguments") from None


def _find_name(function: Any) -> str:
    found = getattr(function, "__name__", "")
    return found if found.isidentifier() and not found.startswith("_") else "formula"


def _find_declared(function: Any, parameters: Mapping[str, Any], source: str) -> str:
    if not source:
        try:
            source = inspect.getsource(inspect.getmodule(function) or function)
        except (OSError, TypeError):
            source = ""
    told = find_shapes(source, getattr(function, "__name__", ""), list(parameters))
    if not told:
        names = list(parameters)
        raise refuse(
            "lift-shapes",
            f"the shapes of {', '.join(names) or 'the arguments'} are not known",
            help=f'declare them, as in "{names[0] if names else "x"}[B, S, D]; bool mask[B, S]", '
            "by --inputs on the command line",
        )
    return "; ".join(told.values())


def _match(
    declared: System, parameters: Mapping[str, inspect.Parameter], name: str, is_module: bool
) -> dict[str, Tensor | ScalarInput | Size]:
    """What each parameter is given; one with a default may keep it."""
    known: dict[str, Tensor | ScalarInput | Size] = {e.name: e for e in declared.inputs}
    known |= {
        size.name: Size(size.name)
        for size in declared.sizes
        if not is_module or size.name in parameters
    }
    known |= {name: Size(name) for name in find_sizes(declared) if name in parameters}
    _refuse_strangers(list(known), list(parameters), name)
    free = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
        and parameter.name not in known
    ]
    if free:
        raise refuse(
            "lift-argument",
            f"nothing tells what {free[0]} of {name} is",
            help=f"declare it, by --inputs on the command line: {free[0]}[..] for a tensor, "
            f"size {free[0]}, scalar {free[0]}",
        )
    return {each: known[each] for each in parameters if each in known}


def _refuse_strangers(known: Sequence[str], parameters: Sequence[str], name: str) -> None:
    strange = [each for each in known if each not in parameters]
    if strange:
        raise refuse(
            "lift-argument",
            f"{name} takes no {strange[0]}",
            facts=[f"it takes {', '.join(parameters)}"],
        )


_SIZE = re.compile(r"[A-Za-z]\w*|\d+")
_KINDS = {"Int": "int ", "Bool": "bool "}
_NO_SIZES = frozenset(("Tensor", "Optional", "None", "True", "False", "Any"))
_TOLD = re.compile(
    r"(?<![\w.])(\w+(?:\s*,\s*\w+)*)"  # the names, one or several
    r"\s*(?:\([A-Za-z. ]*\))?\s*"  # a type, as in `x (Tensor): ..`
    r"(?:(?:of|with|has|shape|tensor|Tensor|float|bool)\b\s*|[:=]\s*(?:[^\[\]()\n]*?\s)?)*"
    r"[\[(]([^\[\]()]*)[\])]"
)


def find_shapes(source: str, name: str, arguments: Sequence[str]) -> dict[str, str]:
    """The declarations `q[B, S, D]` of the arguments whose shapes are told; others are absent."""
    function = _find_function(source, name)
    if function is None:
        return {}
    told = {**_read_words(source, function), **_read_annotations(function)}
    return {argument: told[argument] for argument in arguments if argument in told}


def _find_function(source: str, name: str) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def _list_arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _read_annotations(function: ast.FunctionDef) -> dict[str, str]:
    """`Float[Tensor, "b s d"]` and `"(B, S, D)"`, the indices as names of sizes."""
    told = {}
    for argument in _list_arguments(function):
        kind, shape = "", ""
        match argument.annotation:
            case ast.Subscript(
                value=ast.Name(word) | ast.Attribute(attr=word),
                slice=ast.Tuple(elts=[_, ast.Constant(str(shape))]),
            ):
                kind = _KINDS.get(word, "")
            case ast.Constant(str(shape)):
                pass
        sizes = _split(re.sub(r"[\[\](),]", " ", shape).split())
        if sizes:
            told[argument.arg] = f"{kind}{argument.arg}[{sizes}]"
    return told


def _read_words(source: str, function: ast.FunctionDef) -> dict[str, str]:
    """What the docstring and the comments say; a comment beside an argument is about it."""
    known = [argument.arg for argument in _list_arguments(function)]
    lines = source.splitlines()
    words = (ast.get_docstring(function) or "").splitlines()
    for argument in _list_arguments(function):
        comment = lines[argument.lineno - 1].partition("#")[2].strip()
        if comment.startswith(("(", "[")):
            words.append(f"{argument.arg}: {comment}")
    own = lines[function.lineno - 1 : function.end_lineno]
    words += [line.partition("#")[2] for line in own if "#" in line]
    told: dict[str, str] = {}
    for line in words:
        for names, shape in _TOLD.findall(line):
            sizes = _split([size.strip() for size in shape.split(",")])
            kind = "bool " if re.search(r"\bbool\b", line) else ""
            for name in re.split(r"\s*,\s*", names) if sizes else ():
                if name in known:
                    told.setdefault(name, f"{kind}{name}[{sizes}]")
    return told


def _split(sizes: Sequence[str]) -> str:
    """Sizes in the notation, large: small indices are those of indices. "" for other words."""
    if not sizes or not all(_SIZE.fullmatch(size) for size in sizes):
        return ""
    if any(size in _NO_SIZES for size in sizes) or all(size.isdigit() for size in sizes):
        return ""
    if len(sizes) == 1 and len(sizes[0]) > 2 and sizes[0][0].islower():
        return ""  # a word in brackets
    return ", ".join(size[0].upper() + size[1:] for size in sizes)
