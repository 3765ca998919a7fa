"""Cost grows as the algebra says, torch counts the same, and no order of contraction is cheaper.

Operations are counted, never timed.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from math import log2, prod
from random import Random, getstate
from string import ascii_lowercase
from threading import Thread
from typing import Any
from unittest.mock import patch

import opt_einsum
import pytest
import torch
from texts import read_rows
from torch.utils.flop_counter import FlopCounterMode

from derive.compiler import Built, build
from derive.errors import DeriveError
from derive.formulas import find_formula
from derive.frontend.from_text import parse
from derive.judge.samples import draw_inputs
from derive.plan import ops
from derive.plan.path import count_operations, search_many

NEAR = 0.02  # the part of a degree that lower terms add at the extents below


def read(text: str) -> dict[str, int]:
    """Sizes and numbers: B8 S16."""
    return {part[0]: int(part[1:]) for part in text.split()}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "extents", "degrees"), read_rows(__file__, "degrees.txt"))
def test_operations_grow_with_the_degree_of_the_algebra(
    name: str, extents: str, degrees: str
) -> None:
    sizes = read(extents)
    plan = build(find_formula(name), sizes=sizes).plan
    assert {*read(degrees)} == {*sizes}
    slopes = {
        size: log2(plan.at_sizes(plan.flops, sizes | {size: 2 * number}))
        - log2(plan.at_sizes(plan.flops, sizes))
        for size, number in sizes.items()
    }
    assert slopes == pytest.approx(read(degrees), abs=NEAR)


@dataclass(frozen=True)
class Network:
    """One sum of one product: the indices of each tensor and of the result, and their extents."""

    terms: tuple[str, ...]
    output: str
    extents: Mapping[str, int]

    @property
    def text(self) -> str:
        """The formula; each index has a size of its own."""
        shapes = "; ".join(f"X{k}[{', '.join(t.upper())}]" for k, t in enumerate(self.terms))
        product = " * ".join(f"X{k}[{','.join(t)}]" for k, t in enumerate(self.terms))
        bound = ", ".join(index for index in self.extents if index not in self.output)
        target = f"z[{','.join(self.output)}]" if self.output else "z"
        return f"{shapes}\n{target} = {f'sum[{bound}]({product})' if bound else product}"

    def find_cost(self, optimize: Any) -> int:
        """The operations of the order that opt_einsum finds."""
        string = f"{','.join(self.terms)}->{self.output}"
        shapes = [tuple(self.extents[index] for index in term) for term in self.terms]
        _, found = opt_einsum.contract_path(string, *shapes, shapes=True, optimize=optimize)
        return int(found.opt_cost)


def to_network(string: str, *extents: int) -> Network:
    """The network of an einsum string, with extents in the order in which its indices come."""
    left, output = string.split("->")
    indices = dict.fromkeys(left.replace(",", ""))
    return Network(tuple(left.split(",")), output, dict(zip(indices, extents, strict=True)))


def draw_network(count: int, extra: int, free: int, shared: int, seed: int) -> Network:
    """A connected network: a tree of `count` tensors and `extra` indices between two of them.

    `free` more indices belong to the result, `shared` ones are summed over three tensors. No two
    extents are the same.
    """
    dice = Random(seed)
    places = [[dice.randrange(k), k] for k in range(1, count)]
    places += [dice.sample(range(count), 2) for _ in range(extra)]
    places += [dice.sample(range(count), 3) for _ in range(shared)]
    places += [[dice.randrange(count)] for _ in range(free)]
    indices = ascii_lowercase[: len(places)]
    at = dict(zip(indices, places, strict=True))
    terms = tuple("".join(n for n in indices if k in at[n]) for k in range(count))
    extents = dice.sample(range(2, len(places) + 2), len(places))
    return Network(terms, indices[len(places) - free :], dict(zip(indices, extents, strict=True)))


def draw_chain(count: int, seed: int) -> Network:
    """The product of so many matrices, their extents distinct and far apart."""
    indices = ascii_lowercase[: count + 1]
    terms = tuple(indices[k : k + 2] for k in range(count))
    extents = Random(seed).sample(range(2, 200), count + 1)
    return Network(terms, indices[0] + indices[-1], dict(zip(indices, extents, strict=True)))


KNOWN = {
    "orbital integrals": to_network("pi,qa,rj,sb,pqrs->iajb", 20, 5, 21, 16, 22, 6, 23, 17),
    "CCD, quadratic": to_network("klcd,ijcd,klab->ijab", 5, 6, 13, 14, 7, 8, 15, 16),
    "CCSD, singles": to_network("klcd,ic,jd,ka,lb->ijab", 5, 6, 13, 14, 7, 8, 15, 16),
    "CCSD, used once": to_network("mnef,jf,nb,imae->ijab", 5, 6, 13, 14, 7, 15, 8, 16),
    "a ring of tensors": to_network("aib,bjc,ckd,dla->ijkl", 5, 20, 6, 21, 7, 22, 8, 23),
    "the energy of a matrix product state": to_network(
        "ip,pjq,qk,iux,xjvy,ykw,ua,avb,bw->", 2, 20, 3, 21, 4, 5, 9, 6, 10, 7, 22, 23
    ),
}
EXHAUSTIVE = 7  # factors up to which the plan looks at every order
CHAINS = {f"{n} matrices, {seed}": draw_chain(n, seed) for n in range(4, 9) for seed in range(2)}
DRAWN = {
    f"{count} tensors, {extra} indices more": draw_network(count, extra, 2, shared, 0)
    for count in range(3, 13)
    for extra, shared in ((1, 0), (count // 3, 2), (count // 2, 0))[: 3 if count < 8 else 2]
}
NETWORKS = KNOWN | CHAINS | DRAWN
SMALL = [title for title, network in NETWORKS.items() if len(network.terms) <= EXHAUSTIVE]
LARGE = [title for title in NETWORKS if title not in SMALL]


@cache
def built(title: str) -> Built:
    """The generated function of a network, planned for its extents where memory costs no pages."""
    network = NETWORKS[title]
    sizes = {index.upper(): extent for index, extent in network.extents.items()}
    free = [f"derive.plan.{name}" for name in ("cost.time_pages", "plan.time_returned")]
    with patch(free[0], return_value=0.0), patch(free[1], return_value=0.0):
        return build(parse(network.text), sizes=sizes)


def count_planned(title: str) -> int:
    """The operations of the plan; the formula is one product, so all of them contract."""
    plan = built(title).plan
    return plan.at_sizes(plan.flops)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("title", SMALL)
def test_no_order_of_contraction_is_cheaper(title: str) -> None:
    assert count_planned(title) == NETWORKS[title].find_cost("optimal")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "title",
    [
        pytest.param(t, marks=[pytest.mark.slow] if len(NETWORKS[t].terms) > 10 else [])
        for t in LARGE
    ],
)
def test_of_many_factors_no_order_found_by_dynamic_programming_is_cheaper(title: str) -> None:
    search = opt_einsum.DynamicProgramming(minimize="flops", search_outer=True)
    assert count_planned(title) <= NETWORKS[title].find_cost(search)


def find_cheapest(sides: list[int]) -> int:
    """Cormen et al., section 15.2: the cheapest product of each part of a chain of matrices."""
    cost = {(k, k): 0 for k in range(len(sides) - 1)}
    for width in range(1, len(sides) - 1):
        for i in range(len(sides) - 1 - width):
            j = i + width
            cost[i, j] = min(
                cost[i, k] + cost[k + 1, j] + 2 * sides[i] * sides[k + 1] * sides[j + 1]
                for k in range(i, j)
            )
    return cost[0, len(sides) - 2]


@pytest.mark.parametrize("batch", [1, 5])
def test_a_long_chain_of_matrices_is_planned_exactly(batch: int) -> None:
    dice = Random(7)
    sides = [dice.randint(2, 99) for _ in range(31)]
    shared = {31} if batch > 1 else set()
    inputs = [frozenset({k, k + 1} | shared) for k in dice.sample(range(30), 30)]
    output, extents = frozenset({0, 30} | shared), dict(enumerate([*sides, batch]))
    path = search_many(inputs, output, extents)
    assert count_operations(path, inputs, output, extents) == batch * find_cheapest(sides)


def count_by_torch(made: Built, sizes: Mapping[str, int]) -> int:
    """The operations of all matrix products that one call makes."""
    inputs = draw_inputs(made.system, sizes, dtype=torch.float32)
    with FlopCounterMode(display=False) as counter:
        made.function(**inputs)
    return int(counter.get_total_flops())


# What is left beside the products of matrices, an operation an element.
CONTRACTIONS = [
    ("head_projection_merged", "B3 S5 T7 N2 D4", ""),
    ("matrix_chain", "K9 L2 M8 N3 P7 Q6", ""),
    ("rotated_stiffness", "N5", ""),
    ("linear", "B3 I5 O4", "BO"),
    ("swiglu", "B2 S3 D5 F7", "BSF BSF"),
    ("triangle_multiplication", "N4 C3", "NNC"),
]


@pytest.mark.parametrize(("name", "extents", "beside"), CONTRACTIONS)
def test_torch_counts_the_same_operations(name: str, extents: str, beside: str) -> None:
    sizes = read(extents)
    made = build(find_formula(name), sizes=sizes)
    rest = sum(prod(sizes[index] for index in term) for term in beside.split())
    assert made.plan.at_sizes(made.plan.flops) == count_by_torch(made, sizes) + rest


def to_sum(count: int) -> str:
    """A sum of so many products of matrices, each of tensors of its own."""
    shapes = "; ".join(f"A{k}, B{k}[N, N]" for k in range(count))
    terms = " + ".join(f"sum[k](A{k}[i,k]*B{k}[k,j])" for k in range(count))
    return f"{shapes}\nz[i,j] = {terms}"


def to_power(count: int) -> str:
    """The square of a sum of so many terms."""
    shapes = "; ".join(f"A{k}[N, M]" for k in range(count))
    return f"{shapes}\nz[i] = sum[j](({' + '.join(f'A{k}[i,j]' for k in range(count))})**2)"


def to_rows(count: int) -> str:
    """Equations of which each reads the two before it: written out they grow like Fibonacci's."""
    rows = [f"h{k}[i] = h{k - 1}[i]*h{k - 2}[i] + x[i]" for k in range(2, count)]
    return "\n".join(["x[N]", "h0[i] = x[i]", "h1[i] = 2*x[i]", *rows])


def nest(form: str, depth: int) -> str:
    """An expression in itself."""
    inner = "x[i]"
    for _ in range(depth):
        inner = form.replace("@", inner)
    return f"x[N]\ny[i] = {inner}"


# Each of these once took minutes, or did not end.
LONG = {
    "a sum of 42 products": to_sum(42),
    "the square of 20 terms": to_power(20),
    "60 equations": to_rows(60),
    "7 products of both": nest("(@*(@ + 1))", 7),
}


@pytest.mark.sampled(3, 2)
@pytest.mark.parametrize("title", LONG)
def test_a_long_formula_has_a_plan(title: str) -> None:
    made = build(parse(LONG[title]), sizes={"N": 4})
    assert made.judge(count=1).agrees


FLAT = {
    "factors": lambda n: (
        "; ".join(f"a{k}[N]" for k in range(n))
        + "; y[i] = "
        + " * ".join(f"a{k}[i]" for k in range(n))
    ),
    "terms": lambda n: f"a[N, {n}]; y[i] = " + " + ".join(f"a[i,{k}]" for k in range(n)),
    "numbers": lambda n: (
        f"scalar {', '.join(f'a{k}' for k in range(n))}; x[N]; y[i] = x[i] * "
        + " * ".join(f"a{k}" for k in range(n))
    ),
    "names": lambda n: (
        "x[N]; a0[i] = x[i]; " + "; ".join(f"a{k + 1}[i] = sin(a{k}[i]) + 1" for k in range(n))
    ),
    "conditions": lambda n: (
        "x[N]; y[i] = x[i] * [" + " and ".join(f"i != {2 * k}" for k in range(n)) + "]"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLAT)
def test_what_is_flat_may_be_long(kind: str) -> None:
    build(FLAT[kind](200)).judge()


@pytest.mark.parametrize(
    "text", ["1/(1 + " * 70 + "x[i]" + ")" * 70, "sin(" * 70 + "x[i]" + ")" * 70]
)
def test_what_is_nested_may_not_be_deep(text: str) -> None:
    with pytest.raises(DeriveError, match="too-deep"):
        parse(f"x[N]; y[i] = {text}")


def to_layers(count: int) -> str:
    """So many layers with one matrix, each added to the one before."""
    layer = "h{}[b, e] = tanh(sum[d](h{}[b, d] * W[d, e])) + h{}[b, e]"
    layers = [layer.format(k, k - 1, k - 1) for k in range(1, count)]
    return "\n".join(["W[D, D]; x[B, D]", "h0[b, e] = sum[d](x[b, d] * W[d, e])", *layers])


def count_calls(text: str, sizes: dict[str, int]) -> int:
    """The calls of Python functions in which a text is read and a plan is found."""
    calls = count()
    sys.setprofile(lambda frame, event, _: event == "call" and next(calls))
    try:
        build(parse(text), sizes=sizes)
    finally:
        sys.setprofile(None)
    return next(calls)


@pytest.mark.slow
@pytest.mark.parametrize("extent", [16, 2048])
def test_twice_as_many_equations_take_little_more_than_twice_the_work(extent: int) -> None:
    sizes = {"B": extent, "D": extent}
    count_calls(to_layers(2), sizes)
    one, two = (count_calls(to_layers(layers), sizes) for layers in (50, 100))
    assert two < 2.4 * one


def make_graph(seed: int, operands: int, extra: int) -> tuple[list[frozenset[int]], Any, Any]:
    """The operands, output and extents of a network; two to four operands share an index."""
    dice = Random(seed)
    places = [[dice.randrange(k), k] for k in range(1, operands)]
    places += [dice.sample(range(operands), dice.randint(2, 4)) for _ in range(extra)]
    inputs = [frozenset(n for n, at in enumerate(places) if k in at) for k in range(operands)]
    extents = {n: dice.randint(2, 9) for n in range(len(places))}
    return inputs, frozenset([dice.randrange(len(places))]), extents


@pytest.mark.parametrize("operands", [14, 60, 200])
def test_orders_of_many_operands_are_no_worse_than_greedy(operands: int) -> None:
    inputs, output, extents = make_graph(operands, operands, operands // 8)
    state = getstate()
    path = search_many(inputs, output, extents)
    assert getstate() == state  # the random numbers of others are as they were
    greedy = opt_einsum.paths.greedy(inputs, output, extents)
    counts = [count_operations(each, inputs, output, extents) for each in (path, greedy)]
    assert counts[0] <= counts[1]
    assert path == search_many(inputs, output, extents)


@pytest.mark.slow
def test_many_factors_are_planned_without_deep_recursion() -> None:
    factors = " * ".join(f"T{k}[i{k}, i{k + 1}]" for k in range(300))
    bound = ", ".join(f"i{k}" for k in range(1, 300))
    declared = "; ".join(f"T{k}[N{k % 7}, N{(k + 1) % 7}]" for k in range(300))
    sizes = {f"N{k}": 2 + k for k in range(7)}
    formula = parse(f"{declared}\nz[i0, i300] = sum[{bound}]({factors})", "chain")
    found: list[Built] = []
    # Only in a main thread does a build raise the limit of recursion.
    builder = Thread(target=lambda: found.append(build(formula, sizes=sizes)))
    builder.start()
    builder.join()
    assert len(found[0].plan.steps) == 299
    assert sum(isinstance(step.op, ops.Einsum) for step in found[0].plan.steps) == 299


def test_a_product_of_more_indices_than_letters_is_one_product() -> None:
    dice = Random(4)
    names = [f"i{k}" for k in range(56)]
    extents = {name: 2 if k % 7 == 0 else 1 for k, name in enumerate(names)}
    roles = names[:12], names[12:24], names[24:40], names[40:]  # in both and kept, in one, summed
    one, other, kept = ([*roles[k], *roles[n]] for k, n in ((0, 1), (0, 2), (1, 2)))
    one, other, kept = [*one, *roles[3]], [*other, *roles[3]], [*kept, *roles[0]]
    for places in (one, other, kept):
        dice.shuffle(places)
    shapes = [", ".join(name.upper() for name in each) for each in (one, other)]
    text = (
        f"A[{shapes[0]}]; B[{shapes[1]}]\nz[{', '.join(kept)}] = "
        f"sum[{', '.join(roles[3])}](A[{', '.join(one)}] * B[{', '.join(other)}])"
    )
    sizes = {name.upper(): extent for name, extent in extents.items()}
    built = build(parse(text, "merged"), sizes=sizes)
    assert built.source.count("@") == 1
    a, b = (
        torch.rand([extents[name] for name in each], dtype=torch.float64) for each in (one, other)
    )
    letters = dict(zip([n for n in names if extents[n] > 1], ascii_lowercase, strict=False))
    left, right, made = ("".join(letters.get(n, "") for n in each) for each in (one, other, kept))
    wanted = torch.einsum(f"{left},{right}->{made}", a.squeeze(), b.squeeze())
    assert torch.allclose(built.function(a, b).squeeze(), wanted)


def test_a_cost_of_many_terms_is_shown_as_a_number() -> None:
    factors = " * ".join(f"T{k}[i{k}, i{k + 1}]" for k in range(50))
    declared = "; ".join(f"T{k}[N{k}, N{k + 1}]" for k in range(50))
    bound = ", ".join(f"i{k}" for k in range(1, 50))
    formula = parse(f"{declared}\nz[i0, i50] = sum[{bound}]({factors})", "chain")
    source = build(formula, sizes={f"N{k}": 2 + k for k in range(51)}).source
    assert "Cost at the sizes it is planned for: " in " ".join(source.split())
