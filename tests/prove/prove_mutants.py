"""Mutants of systems, compared on random inputs: evidence against a prover."""

from dataclasses import replace
from fractions import Fraction

import torch

from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import exchange, find_free, find_indices, substitute, walk
from derive.judge.evaluate import evaluate_system
from derive.judge.samples import choose_sizes, draw_inputs

RELATIONS = ["<", "<=", ">", ">=", "==", "!="]
FUNCTIONS = ["exp", "sin", "tanh", "sigmoid", "relu", "abs", "softplus", "silu", "cos"]
KINDS = ["sum", "max", "min", "mean", "logsumexp", "var"]


def find_mutants(system, random, count):
    """Systems that differ from this one at one node of one equation."""
    found = []
    for _ in range(count * 20):
        k = random.randrange(len(system.equations))
        equation = system.equations[k]
        here = random.choice(list(walk(equation.value)))
        indices = [*dict.fromkeys((*find_free(equation.target), *find_indices(equation.value)))]
        new = _mutate(here, random, system, indices)
        if new is None or new is here:
            continue
        value = exchange(equation.value, here, new)
        if value is equation.value or not set(find_free(value)) <= set(find_free(equation.target)):
            continue
        equations = list(system.equations)
        equations[k] = ir.Equation(equation.target, value)
        if not _is_clear(value):
            continue
        found.append(replace(system, equations=tuple(equations)))
        if len(found) == count:
            break
    return found


def _is_clear(value):
    """Whether no index is bound inside its own scope."""
    for here in walk(value):
        if isinstance(here, (ir.Reduce, ir.Along)):
            for inner in (*walk(here.body), *walk(here.condition)):
                is_binder = isinstance(inner, (ir.Reduce, ir.Along)) and inner is not here
                if is_binder and {*here.indices} & {*inner.indices}:
                    return False
    return True


def _alike(index, indices):
    return [i for i in indices if i is not index and is_same_extent(i.extent, index.extent)]


def _mutate(here: ir.Expr, random, system, indices):
    match here:
        case ir.Number(value):
            return ir.Number(random.choice([value + 1, -value, value * 2, value - 1, value / 2]))
        case ir.Index():
            others = _alike(here, indices)
            return random.choice(others) if others else None
        case ir.Access():
            return _mutate_access(here, random, system, indices)
        case ir.Add(parts) | ir.Mul(parts) | ir.And(parts) | ir.Or(parts):
            k = random.randrange(len(parts))
            rest = parts[:k] + parts[k + 1 :]
            if random.random() < 0.3 and isinstance(here, (ir.And, ir.Or)):
                return (ir.Or if isinstance(here, ir.And) else ir.And)(parts)
            if random.random() < 0.3 and isinstance(here, ir.Add):
                return ir.Add((*rest, ir.Mul((ir.MINUS_ONE, parts[k]))))
            if random.random() < 0.2:
                return type(here)((*parts, parts[k]))
            return rest[0] if len(rest) == 1 else type(here)(rest)
        case ir.Pow(base, _):
            return random.choice(
                [base, ir.Pow(base, ir.Number(Fraction(2))), ir.Pow(here, ir.MINUS_ONE)]
            )
        case ir.Call(function, (argument,)) if function in FUNCTIONS:
            return random.choice([argument, ir.Call(random.choice(FUNCTIONS), (argument,))])
        case ir.Call("floordiv" | "mod" as function, arguments):
            return ir.Call("mod" if function == "floordiv" else "floordiv", arguments)
        case ir.Where(condition, then, other):
            return random.choice(
                [ir.Where(condition, other, then), then, ir.Where(ir.Not(condition), then, other)]
            )
        case ir.Compare(_, left, right):
            return random.choice([ir.Compare(random.choice(RELATIONS), left, right), ir.Not(here)])
        case ir.Not(part):
            return part
        case ir.Reduce() | ir.Along():
            return _mutate_row(here, random, indices)
    return None


def _mutate_access(here, random, system, indices):
    tensor, places = here.tensor, here.places
    if places and random.random() < 0.4:
        k = random.randrange(len(places))
        if isinstance(places[k], ir.Index):
            others = _alike(places[k], indices)
            if others:
                return ir.Access(tensor, (*places[:k], random.choice(others), *places[k + 1 :]))
    if len(places) > 1 and random.random() < 0.6:
        one, two = random.sample(range(len(places)), 2)
        if is_same_extent(tensor.shape[one], tensor.shape[two]):
            new = list(places)
            new[one], new[two] = new[two], new[one]
            return ir.Access(tensor, tuple(new))
    if tensor.kind != "real":
        return None
    known = {e.target.tensor for e in system.equations}
    others = [
        other
        for other in system.inputs
        if getattr(other, "shape", None) is not None
        and other is not tensor
        and other not in known
        and other.kind == tensor.kind
        and len(other.shape) == len(tensor.shape)
        and all(map(is_same_extent, other.shape, tensor.shape))
    ]
    if others and random.random() < 0.7:
        return ir.Access(random.choice(others), places)
    return random.choice(
        [ir.Mul((here, here)), ir.Mul((ir.MINUS_ONE, here)), ir.Call("exp", (here,))]
    )


def _mutate_row(here, random, indices):
    bound = here.bound if isinstance(here, ir.Reduce) else (here.index,)
    index = random.choice(bound)
    if here.condition is not ir.TRUE and random.random() < 0.4:
        condition = random.choice([ir.TRUE, ir.Not(here.condition)])
        if isinstance(here, ir.Reduce):
            return ir.Reduce(here.kind, here.bound, condition, here.body)
        return ir.Along(here.kind, here.index, condition, here.body)
    if isinstance(here, ir.Reduce):
        if any(isinstance(inner, ir.Along) for inner in walk(here.body)):
            return None
        if here.kind not in KINDS or random.random() < 0.3:
            body = substitute(here.body, {index: ir.Number(Fraction(0))})
            return body if len(bound) == 1 and here.condition is ir.TRUE else None
        return ir.Reduce(random.choice(KINDS), here.bound, here.condition, here.body)
    others = _alike(index, indices)
    if others and random.random() < 0.6:
        return ir.Along(here.kind, random.choice(others), here.condition, here.body)
    kinds = ["softmax", "log_softmax", "cumsum"]
    return ir.Along(random.choice(kinds), here.index, here.condition, here.body)


def find_difference(one, other, draws=3, sizes=None):
    """A description of the first difference on random inputs; None where they agree."""
    if sizes is None:
        sizes = choose_sizes(other, count=draws)
    for number, each in enumerate(sizes):
        inputs = draw_inputs(other, each, number, empty_row=number == 2)
        values = [evaluate_system(system, inputs, each) for system in (one, other)]
        for ours, theirs in zip(one.results, other.results, strict=True):
            left, right = values[0][ours.name], values[1][theirs.name]
            left, right = left.double(), right.double()
            same = torch.isclose(left, right, rtol=1e-7, atol=1e-9, equal_nan=True)
            if not bool(same.all()):
                place = tuple((~same).nonzero()[0].tolist())
                return f"{each}: {ours.name}{place} {left[place]} {right[place]}"
    return None
