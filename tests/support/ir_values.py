"""Evaluate a node directly over fractions: the reference of the tests of ir."""

import operator
from fractions import Fraction
from itertools import product
from math import prod

from derive.ir import nodes as ir

EXTENT = 3  # extent of every bound index


def clip(value, low, high):
    """The value, at least `low`, and at most `high`."""
    return min(max(value, low), high)


BY_NAME = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
    "clip": clip,
    "abs": abs,
}
COMPARING = {
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt},
    **{">=": operator.ge, "==": operator.eq, "!=": operator.ne},
}


def evaluate(expr, at):
    """The value of an expression where `at` gives names; tensor entries are distinct numbers."""

    def evaluate_part(part):
        return evaluate(part, at)

    match expr:
        case ir.Number(value):
            return value
        case ir.Size(name) | ir.Index(name) | ir.Scalar(name):
            return Fraction(at[name])
        case ir.Access(tensor, places):
            value = Fraction(sum(map(ord, tensor.name)))
            for place in places:
                value = value * 7 + evaluate_part(place) ** 2
            return value
        case ir.Add(terms):
            return sum(map(evaluate_part, terms), Fraction(0))
        case ir.Mul(factors):
            return prod(map(evaluate_part, factors), start=Fraction(1))
        case ir.Pow(base, ir.Number(power)):
            return evaluate_part(base) ** int(power)
        case ir.Call(name, arguments):
            return Fraction(BY_NAME[name](*map(evaluate_part, arguments)))
        case ir.Where(condition, then, other):
            return evaluate_part(then if evaluate_part(condition) else other)
        case ir.Compare(relation, left, right):
            return COMPARING[relation](evaluate_part(left), evaluate_part(right))
        case ir.And(parts):
            return all(map(evaluate_part, parts))
        case ir.Or(parts):
            return any(map(evaluate_part, parts))
        case ir.Not(part):
            return not evaluate_part(part)
        case ir.Reduce("sum", bound, condition, body):
            inner = (at | each for each in all_values(bound))
            return sum(
                (
                    evaluate(body, each)
                    for each in inner
                    if condition is ir.TRUE or evaluate(condition, each)
                ),
                Fraction(0),
            )
        case ir.Along("cumsum", index, _, body):
            places = range(int(at[index.name]) + 1)
            return sum((evaluate(body, at | {index.name: n}) for n in places), Fraction(0))
        case _:
            raise AssertionError(expr)


def all_values(indices):
    """Yield every assignment of the indices, by name."""
    for values in product(range(EXTENT), repeat=len(indices)):
        yield {index.name: value for index, value in zip(indices, values, strict=True)}
