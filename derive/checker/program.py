"""Code with its bindings: a program maps the formula's inputs to the code's results.

The source of an argument is an expression over the formula's names:

    Q   W_Q.T   K.permute(0, 2, 1, 3)   K[b, j, h, d]   W_Q.reshape(H*D, E)   cat(W_Q, W_K)
    zeros(B, D)   tensor(s)   not m   H   H*D   None   True   0.5   "causal"

Sources are parsed with `ast` and interpreted, never executed. Names are tensors, scalars and sizes
of the formula; indices in brackets permute a tensor's axes into that order.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from derive.checker import load, processes, runs
from derive.errors import DeriveError, Mark, refuse, suggest
from derive.frontend.torch.code import keep_sizes
from derive.frontend.torch.lift import Lifted, lift
from derive.ir import nodes as ir
from derive.ir.walk import find_accesses
from derive.judge.samples import find_sizes
from derive.libraries import torch

_METHODS = {
    *("permute", "transpose", "reshape", "view", "flatten", "unflatten", "unsqueeze", "squeeze"),
    *("contiguous", "movedim", "double", "expand", "flip"),
}
_ATTRIBUTES = ("T", "mT")
_MAKERS = {"cat", "stack", "tensor", "zeros"}


def parse_binds(text: str) -> dict[str, str]:
    """`query=Q, W_q.weight=W_Q.T` as a dictionary, commas in brackets aside; else DeriveError."""
    binds: dict[str, str] = {}
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    for part in filter(str.strip, parts):
        name, equals, source = part.partition("=")
        if not equals or not name.strip() or not source.strip():
            raise refuse(
                "bind-form",
                f"{part.strip() or 'nothing'} binds nothing",
                marks=[Mark(text, text.find(part), text.find(part) + len(part))],
                help="write NAME=SOURCE, as in --bind query=Q,W_q.weight=W_Q.T",
            )
        if name.strip() in binds:
            raise refuse("bind-twice", f"{name.strip()} is bound twice")
        binds[name.strip()] = source.strip()
    return binds


@lru_cache(maxsize=16)
def find_indices(system: ir.System) -> dict[str, tuple[str, ...]]:
    """The indices of each tensor's first access whose places are all plain indices."""
    indices: dict[str, tuple[str, ...]] = {}
    for equation in system.equations:
        for access in (*find_accesses(equation.value), equation.target):
            names = tuple(place.name for place in access.places if isinstance(place, ir.Index))
            if len(names) == len(access.places):
                indices.setdefault(access.tensor.name, names)
    return indices


def find_names(source: str) -> tuple[str, ...]:
    """The names that a source such as `H*D` or `W_Q.T` reads, in order."""
    return tuple(dict.fromkeys(n.id for n in ast.walk(_parse(source)) if isinstance(n, ast.Name)))


def find_number_names(source: str) -> tuple[str, ...]:
    """The names in a source of a number; none for a source that rearranges tensors."""
    is_moved = any(isinstance(n, (ast.Attribute, ast.Subscript)) for n in ast.walk(_parse(source)))
    return () if is_moved or source.startswith(("cat(", "stack(", "zeros(")) else find_names(source)


def evaluate_source(
    source: str,
    values: Mapping[str, Any],
    sizes: Mapping[str, Any],
    indices: Mapping[str, tuple[str, ...]],
) -> Any:
    """The value of a source such as `H*D` or `W_Q.T`; DeriveError for an invalid one."""
    names = {**sizes, **values}

    def read(node: ast.expr | None) -> Any:
        match node:
            case None:
                return None
            case ast.Constant(value):
                return value
            case ast.Name(name) if name in names:
                return names[name]
            case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
                return ~read(operand)
            case ast.UnaryOp(ast.USub(), operand):
                return -read(operand)
            case ast.BinOp(left, op, right) if type(op) in load.ARITHMETIC:
                return load.ARITHMETIC[type(op)](read(left), read(right))
            case ast.Tuple(parts) | ast.List(parts):
                return tuple(map(read, parts))
            case ast.Slice(lower, upper, step):
                return slice(*map(read, (lower, upper, step)))
            case ast.Attribute(value, name) if name in _ATTRIBUTES:
                return getattr(read(value), name)
            case ast.Subscript(ast.Name(name), places) if letters := _find_letters(places):
                return read(ast.Name(name)).permute(_order_axes(source, name, letters, indices))
            case ast.Subscript(value, places):
                return read(value)[read(places)]
            case ast.Call(ast.Attribute(value, name), given) if name in _METHODS:
                return getattr(read(value), name)(*map(read, given))
            case ast.Call(ast.Name("zeros" | "tensor" | "cat" | "stack" as name), given, named):
                options = {each.arg: read(each.value) for each in named if each.arg == "dim"}
                return _make_tensor(name, [*map(read, given)], values, **options)
        raise refuse("bind-form", f"{source} cannot be read as a source")

    return read(_parse(source))


def _make_tensor(name: str, given: list[Any], values: Mapping[str, Any], dim: int = 0) -> Any:
    """The value of a call in a source: zeros(..), tensor(number), cat(..) or stack(..)."""
    tensors = [each for each in values.values() if isinstance(each, torch.Tensor)]
    if name == "zeros":
        real = next((each for each in tensors if each.is_floating_point()), None)
        like = torch.zeros(0, dtype=torch.float64) if real is None else real
        return like.new_zeros(given)
    (first, *others) = given
    if name == "tensor":
        is_tensor = isinstance(first, torch.Tensor)
        return first if is_tensor else torch.tensor(first, dtype=torch.float64)
    parts = list(first) if isinstance(first, tuple) and not others else given
    return getattr(torch, name)(parts, dim=dim)


def _find_letters(places: ast.expr) -> list[str]:
    """The letters in brackets; [] if there is anything else."""
    parts = places.elts if isinstance(places, ast.Tuple) else [places]
    letters = [part.id for part in parts if isinstance(part, ast.Name)]
    return letters if len(letters) == len(parts) else []


def _order_axes(
    source: str, name: str, letters: Sequence[str], indices: Mapping[str, tuple[str, ...]]
) -> list[int]:
    """The positions of the letters among a tensor's indices; DeriveError for other letters."""
    own = indices.get(name, ())
    if sorted(own) != sorted(letters):
        raise refuse(
            "bind-letters",
            f"{source} has other indices than {name}[{', '.join(own)}]",
            help="write the indices of the formula in the order in which the code has them",
        )
    return [own.index(letter) for letter in letters]


def check_binds(binds: Mapping[str, str], system: ir.System, known: Sequence[str]) -> None:
    """Raise DeriveError for an argument that the code lacks, or a name that the formula lacks."""
    for name, source in binds.items():
        own = (result.name for result in system.results) if name == "return" else ()
        names = [*(entry.name for entry in system.inputs), *find_sizes(system), *own]
        used_indices = {index for used in find_indices(system).values() for index in used}
        for read in find_names(source):
            if read not in {*names, *used_indices, *_MAKERS}:
                raise refuse(
                    "bind-unknown",
                    f"{read} is neither a tensor nor a scalar nor a size of the formula",
                    facts=[f"its names are {', '.join(names)}"],
                    help=suggest(read, names),
                )
    for name in binds:
        if name not in known and name != "return":
            raise refuse(
                "bind-unknown",
                f"the code has no argument or parameter {name}",
                facts=[f"it has {', '.join(known)}"] if known else (),
                help=suggest(name, known),
            )


def _parse(source: str) -> ast.expr:
    try:
        return ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise refuse("bind-form", f"{source} cannot be read as a source") from error


@dataclass(frozen=True)
class Program:
    """Code with the sources of its arguments, parameters and constructor's arguments."""

    code: load.Code
    arguments: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    constructor: Mapping[str, str] = field(default_factory=dict)
    indices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)  # layouts of results that differ
    names: tuple[str, ...] = ()  # names of the formula's results
    doubt: int = 0  # sum of the name ranks of assigned numbers; 0: all names match
    optional: tuple[str, ...] = ()  # numbers that have a default

    @property
    def sources(self) -> dict[str, str]:
        """The sources (texts such as `W_Q.T`) of arguments and parameters, by name."""
        return {**self.arguments, **self.parameters}

    def give(self, kind: str, sources: Mapping[str, str]) -> "Program":
        """The program with further sources, of "arguments" or of the "constructor"."""
        own: dict[str, Any] = {kind: {**getattr(self, kind), **sources}}
        return replace(self, **own)

    @property
    def numbers(self) -> dict[str, str]:
        """The sources (texts such as `H*D`) of arguments and constructor's arguments, by name."""
        return {**self.constructor, **self.arguments}

    def run(
        self,
        values: Mapping[str, Any],
        sizes: Mapping[str, Any],
        how: runs.RunOptions | None = None,
    ) -> runs.Answer:
        """The answer of one run on copies of the formula's inputs."""
        how = replace(how or runs.RunOptions(), names=self.names)
        given = self.find_given_on_copies(values, sizes)
        found = runs.run_target(self.code.target, given, how, self.code.path)
        check_answer(found)
        return found

    def differentiate(
        self, values: Mapping[str, Any], sizes: Mapping[str, Any], how: runs.RunOptions
    ) -> tuple[runs.Answer, dict[str, Any]]:
        """The answer of a run, and by input the gradient of the results' weighted sum, or None."""
        given = self.find_given(values, sizes)
        answer = self.run(values, sizes, how)
        by_name = {**given.arguments, **given.parameters}
        told = {n: g for n, g in answer.gradients.items() if g is not None}
        made = [name for name in told if by_name[name].requires_grad]
        leaves = {n: v for n, v in values.items() if getattr(v, "requires_grad", False)}
        if not made:
            return answer, dict.fromkeys(leaves)
        found = torch.autograd.grad(
            [by_name[name] for name in made],
            list(leaves.values()),
            [told[name] for name in made],
            allow_unused=True,
        )
        return answer, dict(zip(leaves, found, strict=True))

    def pair(
        self, answer: runs.Answer, wanted: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        """Triples of a result's name, the code's value and the formula's."""
        both = zip(find_expected(self, wanted), answer.results, strict=False)
        return ((name, found, value) for (name, value), found in both)

    def find_given_on_copies(
        self, values: Mapping[str, Any], sizes: Mapping[str, Any]
    ) -> runs.Given:
        """The arguments, found on copies of the inputs; CannotRunError if one has no value."""
        own = {k: v.detach().clone() if hasattr(v, "clone") else v for k, v in values.items()}
        try:
            return self.find_given(own, sizes)
        except DeriveError:
            raise
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise runs.describe_error(error, self.code.path) from error  # a misfit at these sizes

    def find_given(self, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> runs.Given:
        """The values of the sources of arguments, parameters and constructor."""
        parts = list[dict[str, Any]]()
        for part in (self.arguments, self.parameters, self.constructor):
            own = {n: evaluate_source(s, values, sizes, self.indices) for n, s in part.items()}
            parts.append({})
            for name, value in own.items():
                is_list = isinstance(value, tuple) and any(hasattr(v, "shape") for v in value)
                named = [(f"{name}.{k}", v) for k, v in enumerate(value)] if is_list else []
                parts[-1] |= dict(named or [(name, value)])
        return runs.Given(*parts)

    def find_read(self) -> set[str]:
        """The formula's names, of tensors and sizes, in the sources of arguments and parameters."""
        return {name for source in self.sources.values() for name in find_names(source)}

    def find_taken(self) -> set[str]:
        """The sizes and scalars passed as numbers to the code."""
        sources = (*self.arguments.values(), *self.constructor.values())
        return {name for source in sources for name in find_number_names(source)}

    def describe(self) -> tuple[str, ...]:
        """The bindings whose source is not the argument's own name, as reports show them."""
        everything = {**self.constructor, **self.sources}
        said = [f"{name} = {source}" for name, source in everything.items() if name != source]
        return tuple(said + [f"{name} as {source}" for name, source in self.results.items()])


def find_expected(program: Program, found: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Pairs (name, result of the formula in the layout that the code has)."""
    return tuple(
        (name, evaluate_source(program.results.get(name, name), {name: value}, {}, {}))
        for name, value in found.items()
    )


def check_answer(found: Any) -> None:
    """Raise EndedError for a malformed answer: the code has replaced the runner's."""
    is_answer = isinstance(found, runs.Answer)
    told = (*found.results, *found.gradients.values()) if is_answer else (found,)
    if not is_answer or not all(each is None or isinstance(each, torch.Tensor) for each in told):
        raise processes.EndedError("the process that ran the code sent a malformed result")


@processes.run_remotely
def lift_program(program: Program, inputs: Sequence[Any], sizes: Mapping[str, int]) -> Lifted:
    """The equations of code, traced at these sizes; DeriveError where it cannot be lifted."""

    def call(**named: Any) -> Any:
        values = {name: value for name, value in named.items() if name not in sizes}
        given = program.find_given(values, {name: named[name] for name in sizes})
        target, made = program.code.target, given.constructor
        found = runs.call_target(target, given.arguments, given.parameters, made)
        return runs.pick_results(found, program.names)

    arguments: dict[str, Any] = {entry.name: entry for entry in inputs}
    arguments |= {name: ir.Size(name) for name in sizes}
    with keep_sizes(program.code.target, program.code.path):
        return lift(call, arguments, sizes, path=program.code.path)
