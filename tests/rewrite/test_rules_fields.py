"""Both sides of every rule mean the same, exactly, over random fields; a wrong sibling does not.

Each side is judged twice: by the plain evaluation of its own text, which knows no rules, and by the
function that is emitted for it. Nothing is compared with a tolerance, but the runs at huge logits.
"""

from fractions import Fraction

import pytest
import torch

from derive.checker.draws import Draw
from derive.checker.runs import precisely
from derive.compiler import build
from derive.errors import DeriveError
from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.ir.polynomial import evaluate_extent
from derive.ir.text import to_lines
from derive.judge.exactly import draw_over, evaluate_over
from derive.judge.fields import (
    DEEPEST,
    TooDeepError,
    UnluckyError,
    draw_tower,
    exact,
    find_differences,
)
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs
from derive.rewrite.options import LOSSY, OPTIONS, find_rewritings
from derive.rewrite.recipes import RULES

RULE = {rule.name: rule for rule in (*RULES, *OPTIONS, *LOSSY)}

# An `after` that a mistake in the law would give.
WRONG = {
    "flatten_sum": "A, B[N]; y[i] = A[i] + (B[i] - A[i])",
    "flatten_product": "A[M, N]; y[i,j] = A[i,j] * 2",
    "merge_mask": "x[M, N]; y[i,j] = where(i <= j, x[i,j], -oo)",
    "exponentiate_mask": "x[M, N]; y[i,j] = where(j <= i, exp(x[i,j]), 1)",
    "guard_product": "x, y[N]; z[i,j] = where(i <= j, x[i] / y[j], 0)",
    "contract_mean": "a, b[M, N]; y[i,k] = sum[j](a[i,j] * b[k,j]) / M",
    "find_softmax": "x[M, N]; y[i,j] = softmax[i](x[i,j])",
    "find_full_softmax": "x[N, N]; y[i,j] = softmax[j](x[i,j])",
    "find_weighted_softmax": "x[M, N]; v[N]; bool m[M, N]; "
    "y[i] = sum[j, m[i,j]](softmax[j](x[i,j]) * v[j])",
    "exponentiate_row": "x[M, N]; y[i,j] = softmax[i](x[i,j])",
    "drop_largest": "x[M, N]; y[i,j] = softmax[i](x[i,j])",
    "return_shift": "x[M, N]; c[M]; y[i] = logsumexp[j](x[i,j]) + c[i]",
    "find_masked_softmax": "x[M, N]; y[i,j] = where(j <= i, softmax[j](x[i,j]), 0)",
    "find_logsumexp": "x[M, N]; y[i] = logsumexp[j](x[i,j]) - log(N)",
    "find_log_softmax": "x[M, N]; b[N]; y[i,j] = log_softmax[j](x[i,j] + b[j])",
    "restrict_softmax": "x[M, N]; y[i,j] = where(j <= i, softmax[j](x[i,j]), 0)",
    "restrict_sum": "x[N]; s = sum[j, j >= 1](x[j])",
    "pull_sum_out": "A[M, N]; x[N]; y[M]; z[i] = sum[j](y[i] + A[i,j] * x[j])",
    "merge_sums": "A[M, N]; s = sum[i](sum[j](A[i,j]) / M)",
    "distribute_product": "q[M, D]; k[N, D]; a[M, N, D]; "
    "s[i,j] = sum[e](q[i,e] * k[j,e]) + sum[e](a[i,j,e])",
    "count_unused": "x[M]; y[N]; s[i] = M * (x[i] * 2) + y[0]",
    "factor_sum": "q[M, D]; u, w[D]; k, r[N, D]; s[i,j] = sum[e]((q[i,e] + w[e]) * k[j,e])"
    " + sum[e]((q[i,e] + u[e]) * r[j,e])",
    "split_sum": "A[M, N]; x, b[N]; y[i] = sum[j](A[i,j] * x[j]) + sum[j](b[j]) / N",
    "hoist_factor": "A[M, N]; y[M]; z[i] = N * y[i] / 2 * sum[j](A[i,j])",
    "hoist_term": "a[M]; f[M, N]; y[i] = N * a[i] + logsumexp[j](f[i,j])",
    "hoist_scale": "f[M, N]; size D; y[i] = 1 / D * max[j](f[i,j])",
    "drop_shift": "q[M, D]; k[N, D]; b[D]; c[M]; size H; "
    "p[i,j] = softmax[j](sum[d](q[i,d] * b[d]) + sum[d](q[i,d] * k[j,d]) / H)",
    "delay_division": "x[M, N + 1]; v[N + 1, D]; y[i,d] = "
    "sum[j](exp(x[i,j] - max[k](x[i,k])) * v[j,d]) / sum[j](exp(x[i,j]))",
    "sift_delta": "int tok[L] < N; E[N, D]; w[N]; y[l,d] = E[tok[l],d]",
    "sift_index": "A[M, N]; x[N]; z[N]; y[i] = z[i] * sum[j](x[j])",
    "split_delta": "A[N, N]; x[N]; y[i] = sum[j](A[i,j] * x[j]) + sum[j](x[j])",
    "prefix_sum": "x[N]; A[N, D]; bool m[N]; "
    "y[i,d] = where(m[i], cumsum[i](exp(x[i]) * A[i,d]), 0)",
    "accumulate_chain": "q, k[N, D]; v[N, E]; z[i,e] = sum[d](cumsum[i](q[i,d] * k[i,d] * v[i,e]))",
    "distribute_chain": "x[N, I]; w[O, I]; b[O, R]; a[R, I]; "
    "y[n,o] = sum[i](x[n,i] * w[o,i]) + sum[i, r](b[o,r] * a[r,i])",
    "inline_equation": "q[M, D]; k[N, D]; v[N, E]; "
    "z[i,e] = sum[d](q[i,d] * sum[j](k[j,d])) * sum[j](v[j,e])",
    "inline_row": "x[M, N]; v[N, E]; z[i,e] = sum[k](softmax[i](x[i,k]) * v[k,e])",
    "expand_square": "x[M, D]; y[N, D]; "
    "z[i,j] = sum[d](x[i,d]**2) + sum[d](y[j,d]**2) - sum[d](x[i,d] * y[j,d])",
    "strict_prefix_sum": "x[N]; y[i] = cumsum[i](tanh(x[i]))",
    "suffix_sum": "x[N]; y[i] = sum[j](x[j]) - cumsum[i](x[i]) + x[i]",
    "split_diagonal": "A[N, N]; y[i] = sum[j](A[i,j]) - sum[j](A[j,j])",
    "pair_sum": "v[N, F]; x[N]; "
    "y = sum[f]((sum[i](x[i] * v[i,f])**2 + sum[i]((x[i] * v[i,f])**2)) / 2)",
}

# Largest entries are chosen over a field by a random order, which no shift and no scale keeps.
BY_ORDER = ("hoist_scale",)

each_rule = pytest.mark.parametrize("name", RULE)
each_field_rule = pytest.mark.parametrize("name", [n for n in RULE if n not in BY_ORDER])


def test_every_rule_has_a_wrong_sibling():
    assert set(WRONG) == set(RULE)
    assert len(RULE) == len(RULES) + len(OPTIONS) + len(LOSSY)


def find_draws(text):
    """Pairwise distinct sizes, small, one draw with a size 1."""
    system = from_sympy(parse(text))
    return [Draw(system, sizes, seed) for seed, sizes in enumerate(choose_sizes(system, count=3))]


def find_meanings(text):
    """The two ways to the value of a text over a tower: evaluated, and by the emitted function.

    The first alone where a place is read that has a meaning but no code yet, as E[tok[l],d].
    """
    formula = parse(text)
    system = from_sympy(formula)
    (result,) = system.results

    def evaluate(tower, draw, values):
        return evaluate_over(tower, draw.system, values, draw.sizes)[result.name]

    ways = [evaluate]
    try:
        function = build(formula).function
    except DeriveError as refusal:
        assert refusal.diagnostic.code == "not-yet"
    else:
        ways.append(lambda tower, draw, values: function(**values))
    return system, ways


def are_equal(one, other):
    """Do all ways to both texts give the same, in every entry, at all sizes?"""
    meanings = [find_meanings(text) for text in (one, other)]
    return all(is_equal_at(meanings, draw) for draw in find_draws(one))


def is_equal_at(meanings, draw):
    """The same at sizes of one draw; over deeper towers where exponentials nest deeper."""
    for depth in range(1, DEEPEST + 1):
        for attempt in range(5):
            try:
                return is_equal_over(draw_tower(draw.seed + 100 * attempt, depth), meanings, draw)
            except UnluckyError:
                continue
            except TooDeepError:
                break
    raise AssertionError("no tower is deep enough")


def is_equal_over(tower, meanings, draw):
    with precisely(), exact(tower):
        values = draw_over(tower, draw.system, draw.make_inputs(), draw.seed)
        found = [
            way(tower, Draw(system, draw.sizes, draw.seed), values)
            for system, ways in meanings
            for way in ways
        ]
        first, *others = found
        return all(
            first.shape == other.shape and not bool(find_differences(first, other).any())
            for other in others
        )


@each_field_rule
def test_both_sides_are_the_same_over_fields(name):
    assert are_equal(RULE[name].before, RULE[name].after)


@each_field_rule
def test_a_wrong_sibling_is_not(name):
    assert not are_equal(RULE[name].before, WRONG[name])


def draw_fractions(text, sizes, seed):
    """Small fractions for every tensor."""
    inputs = draw_inputs(from_sympy(parse(text)), sizes, seed)
    return {
        name: (value * 8).round().div(8).tolist() if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }


MAX = "f[M, N]; a[M]; y[i] = "
ORDERED = {
    "hoist_scale": [
        (
            MAX + "max[j](2 * f[i,j] / 3)",
            MAX + "2 / 3 * max[j](f[i,j])",
            MAX + "2 * max[j](f[i,j])",
        ),
        (MAX + "min[j](f[i,j] / N)", MAX + "1 / N * min[j](f[i,j])", MAX + "max[j](f[i,j]) / N"),
    ],
    "hoist_term": [
        (MAX + f"{kind}[j](f[i,j] + a[i])", MAX + f"a[i] + {kind}[j](f[i,j])", MAX + f"{wrong}")
        for kind, wrong in (
            ("max", "max[j](f[i,j])"),
            ("min", "a[i] + max[j](f[i,j])"),
            ("mean", "a[i] + sum[j](f[i,j])"),
        )
    ],
}


@pytest.mark.parametrize("name", ORDERED)
def test_both_sides_are_the_same_in_exact_fractions(name):
    """Where an order decides, the loops judge, in fractions."""
    for one, other, wrong in ORDERED[name]:
        seen = []
        for seed, sizes in enumerate(choose_sizes(from_sympy(parse(one)), count=3)):
            values = draw_fractions(one, sizes, seed)
            found, same, mistaken = (
                evaluate_loops(parse(text), values, exact=True) for text in (one, other, wrong)
            )
            assert all(isinstance(entry, (Fraction, int)) for entry in found)
            assert found == same
            seen.append(found == mistaken)
        assert not all(seen)


@pytest.mark.parametrize("name", ORDERED)
def test_the_rule_says_so(name):
    for one, other, _ in ORDERED[name]:
        (before,), (after,) = (from_sympy(parse(text)).equations for text in (one, other))
        assert RULE[name](before.value) is after.value


# Further left sides: what the rule makes of each is judged in the same way.
MORE = {
    "factor_sum": [
        "a, b, c[N]; y[i] = a[i] * c[i] + 3 * b[i] * c[i] - c[i]",
        "A[M, N]; x, w[N]; bool m[N]; "
        "z[i] = sum[j, m[j]](A[i,j] * x[j]) - sum[k, m[k]](w[k] * A[i,k])",
        "A, B[N, N]; x[N]; y = sum[i, j](A[i,j] * B[j,i] * x[i]) + sum[j, i](A[j,i] * B[i,j])",
        "A, B[M, N]; x[M]; y[i] = sum[j](A[i,j] / x[i]) + sum[k](B[i,k] / x[i]) + x[i]",
    ],
    "split_sum": [
        "A[M, N]; x[N]; c[M]; y[i] = sum[j](A[i,j] * x[j] + c[i])",
        "A[M, N]; B[N, M]; x[N]; bool m[N]; "
        "y[i] = sum[j, m[j]](x[j] * A[i,j] / 2 + A[i,j] + tanh(B[j,i]) * x[j])",
    ],
    "hoist_factor": [
        "A[M, N]; x[M]; y[N]; z[i] = sum[j, j <= i](A[i,j] * x[i] * y[j])",
        "A[M, N]; x[M]; y[N]; z[i] = mean[j](x[i] * A[i,j] / x[i]**2 * y[j])",
    ],
    "drop_shift": [
        "x[M, N]; y[i,j] = log_softmax[j](x[i,j] - max[k](x[i,k]) + x[i,0])",
        "x[M, N]; c[M]; bool m[M, N]; y[i,j] = softmax[j](where(m[i,j], x[i,j] + c[i], -oo))",
        "q[M, D]; k[N, D]; b[D]; c[M] > 0; "
        "y[i,j] = softmax[j, j <= i](sum[d](q[i,d] * (k[j,d] + b[d])) / c[i])",
    ],
    "delay_division": [
        "size N; x[N + 1, N + 1]; v[N + 1, D]; "
        "y[i,d] = sum[j, j <= i](softmax[j, j <= i](x[i,j]) * v[j,d])",
        "x[M, 5]; v[5, D]; z[i] = sum[d, j](v[j,d] * softmax[j](x[i,j] / 3) * v[j,d])",
    ],
    "sift_delta": [
        "A[N, N]; x[N]; y[i] = sum[j](A[i,j] * x[j] * delta(i, j))",
        "A[N, N]; x[N]; z = sum[i, j, i == j and j >= 1](A[i,j] * x[i])",
        "A[N, M]; y[k] = sum[j, j == N - 1](A[j,k])",
    ],
    "prefix_sum": [
        "x[N, D]; index i < N; y[i] = sum[d, j, i >= j](x[j,d] * x[j,d])",
        "x[N]; index i, k < N; y[i,k] = sum[j, j <= i and j != k](x[j] / 2)",
    ],
    "accumulate_chain": [
        "q, k[N, D]; v[N, E]; bool m[N]; "
        "z[i,e] = sum[d, j, j <= i and m[j]](k[j,d] * v[j,e] * q[i,d]) + v[i,e]",
        "w, x[N]; y = sum[i, j, j <= i](w[i] * x[j])",
    ],
    "inline_equation": [
        "X[N, D]; W_Q, W_K[D, E]; q[i,e] = sum[d](X[i,d] * W_Q[d,e]); "
        "k[j,e] = sum[d](X[j,d] * W_K[d,e]); s[i,j] = softmax[j](sum[e](q[i,e] * k[j,e]))",
        "q, k[N, D]; v[N, E]; s[i,j] = sum[d](q[i,d] * k[j,d]); "
        "z[i,e] = sum[j](s[i,j] * v[j,e]) / sum[j](s[i,j])",
    ],
    "inline_row": [
        "x[M, N]; u, v[N, E]; p[i,j] = softmax[j](x[i,j]); "
        "z[i,e] = sum[j](p[i,j] * v[j,e]) + sum[k](p[i,k] * u[k,e])"
    ],
    "expand_square": [
        "x[M, D]; y[N, D]; w, c[D]; z[i,j] = sum[d](w[d] * (2 * x[i,d] - y[j,d] + c[d])**2 / 3)",
        "x[M, D]; y[N, D]; z[i,j] = mean[d]((x[i,d] + y[j,d])**2)",
    ],
    "strict_prefix_sum": ["x[N]; bool m[N]; index i < N; y[i] = sum[j, j <= i - 1 and m[j]](x[j])"],
    "suffix_sum": ["x[N, D]; index i < N; y[i] = sum[j, d, j >= i](x[j,d]**2)"],
    "split_diagonal": [
        "A[N, N]; x[N]; z = sum[i, j](A[i,j] * x[j] * [i != j])",
        "int t[L] < N; x[N]; bool m[N]; y[n] = sum[j, j != t[n] and m[j]](x[j])",
    ],
    "pair_sum": [
        "x[N]; y = sum[i, j, i <= j](2 * x[i] * x[j])",
        "x[N, D]; w[D]; y[d] = sum[i, j, j < i](tanh(x[i,d]) * w[d] * tanh(x[j,d]))",
    ],
}
each_more = pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in MORE.items() for text in texts]
)


@each_more
def test_further_forms_are_the_same_over_fields(name, text):
    found = list(find_rewritings(from_sympy(parse(text)), (RULE[name],)))
    assert found
    for rewriting in found:
        after = "\n".join(to_lines(rewriting.system))
        assert are_equal(text, after)


ROWS = "x[M, N]; "
HUGE = {
    "merge_mask": (
        ROWS + "y[i,j] = softmax[j](x[i,j] + where(j <= i, 0, -oo))",
        ROWS + "y[i,j] = softmax[j](where(j <= i, x[i,j], -oo))",
    ),
    "exponentiate_mask": (
        ROWS + "y[i,j] = exp(where(j <= i, x[i,j], -oo)) / sum[k, k <= i](exp(x[i,k]))",
        ROWS + "y[i,j] = where(j <= i, exp(x[i,j]), 0) / sum[k, k <= i](exp(x[i,k]))",
        ROWS + "y[i,j] = where(j <= i, softmax[j, j <= i](x[i,j]), 0)",
    ),
    "restrict_softmax": (),
    "find_softmax": (RULE["find_softmax"].before, RULE["find_softmax"].after) * 2,
    "find_masked_softmax": (
        *(RULE["find_masked_softmax"].before, RULE["find_masked_softmax"].after) * 2,
    ),
    "find_full_softmax": (
        *(RULE["find_full_softmax"].before, RULE["find_full_softmax"].after) * 2,
    ),
    "find_weighted_softmax": (
        "x[N, N]; v[N]; y[i] = sum[j, j <= i](exp(x[i,j]) * v[j]) / sum[j, j <= i](exp(x[i,j]))",
        *("x[N, N]; v[N]; y[i] = sum[j](softmax[j, j <= i](x[i,j]) * v[j])",) * 2,
    ),
    "exponentiate_row": (),
    "drop_largest": (),
    "return_shift": (),
    "find_logsumexp": (RULE["find_logsumexp"].before, RULE["find_logsumexp"].after) * 2,
    "find_log_softmax": (),
    "hoist_term": (),
    "drop_shift": (),
    "delay_division": (),
    "inline_row": (),
}


def draw_huge(text, sizes, seed, dtype):
    """Logits up to 1e4 and numbers beside them, all of them exact in the dtype, ties among them."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {}
    for tensor in from_sympy(parse(text)).inputs:
        shape = [evaluate_extent(extent, sizes) for extent in tensor.shape]
        match tensor.name:
            case "q":
                values = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
            case "v":
                values = torch.randint(0, 9, shape, generator=generator) / 8.0
            case "k" | "b" | "a" | "c":
                values = torch.randint(-20, 21, shape, generator=generator) * 64.0
            case _:
                values = torch.randint(0, 6, shape, generator=generator) * 64.0 + 9664
                signs = torch.randint(0, 4, shape, generator=generator) > 0
                values = torch.where(signs, values, -values)
                if dtype is torch.float32:
                    values += torch.randint(0, 16, shape, generator=generator) / 16.0
        inputs[tensor.name] = values
    return inputs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", HUGE)
def test_both_sides_are_finite_at_huge_logits(name, dtype):
    """Equal to the loops in float64 up to the rounding of a few operations.

    Where a text has a quotient that overflows even there, the loops run its stable form.
    """
    rule = RULE[name]
    before, after, *stable = HUGE[name] or (rule.before, rule.after)
    for seed, (M, N) in enumerate(((3, 5), (4, 2), (2, 1))):
        sizes = dict(M=M, N=N, D=3, E=3, H=4)
        keywords = {entry.name: 4 for entry in from_sympy(parse(before)).sizes}
        inputs = draw_huge(before, sizes, seed, dtype)
        expected = evaluate_loops(parse(stable[-1] if stable else before), inputs | keywords)
        assert bool(expected.isfinite().all())
        given = {key: value.to(dtype) for key, value in inputs.items()}
        assert all(bool((given[key].double() == inputs[key]).all()) for key in inputs)
        for text in (before, after):
            found = build(parse(text)).function(**given, **keywords)
            assert found.dtype is dtype
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(found.double(), expected, rtol=2 * eps, atol=eps / 64)


def test_a_plain_quotient_overflows_at_huge_logits():
    inputs = draw_huge(ROWS + "y = sum[i, j](x[i,j])", {"M": 3, "N": 5}, 0, torch.float32)
    plain = inputs["x"].exp() / inputs["x"].exp().sum(-1, keepdim=True)
    assert not bool(plain.isfinite().all())
