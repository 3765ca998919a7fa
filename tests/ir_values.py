"""The value of a node over fractions, evaluated directly: the reference of tests."""

import operator
from fractions import Fraction
from itertools import product
from math import prod

from derive.ir import nodes as ir

EXTENT = 3  # of every index that is bound
BY_NAME = {
    **{"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min, "abs": abs},
    "clip": lambda value, low, high: min(max(value, low), high),
}
COMPARING = {
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt},
    **{">=": operator.ge, "==": operator.eq, "!=": operator.ne},
}


def evaluate(expr, at):
    """The value, given the values of names in `at`; each entry of a tensor has its own number."""

    def go(part):
        return evaluate(part, at)

    match expr:
        case ir.Number(value):
            return value
        case ir.Size(name) | ir.Index(name) | ir.Scalar(name):
            return Fraction(at[name])
        case ir.Access(tensor, places):
            value = Fraction(sum(map(ord, tensor.name)))
            for place in places:
                value = value * 7 + go(place) ** 2
            return value
        case ir.Add(terms):
            return sum(map(go, terms), Fraction(0))
        case ir.Mul(factors):
            return prod(map(go, factors), start=Fraction(1))
        case ir.Pow(base, ir.Number(power)):
            return go(base) ** int(power)
        case ir.Call(name, arguments):
            return Fraction(BY_NAME[name](*map(go, arguments)))
        case ir.Where(condition, then, other):
            return go(then if go(condition) else other)
        case ir.Compare(relation, left, right):
            return COMPARING[relation](go(left), go(right))
        case ir.And(parts):
            return all(map(go, parts))
        case ir.Or(parts):
            return any(map(go, parts))
        case ir.Not(part):
            return not go(part)
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
    """Every assignment of values to the names of indices."""
    for values in product(range(EXTENT), repeat=len(indices)):
        yield {index.name: value for index, value in zip(indices, values, strict=True)}
