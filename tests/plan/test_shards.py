"""Cutting indices over ranks: what is cut, what it costs, what is refused, and random formulas."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from strategies import formulas
from texts import Expressions

import derive
from derive.frontend.from_sympy import to_system
from derive.ir.nodes import Size
from derive.ir.text import to_text
from derive.judge.ranks import draw_meshes, judge_ranks, run_ranks
from derive.plan.shards import find_sharding, list_shardings

ROWS = Expressions(Path(__file__).with_name("shards_rows.txt"), globals())


def parse_cuts(cuts):
    return dict(part.split("=") for part in cuts.split(","))


def describe_transfers(transfers):
    return [f"{t.collective} {t.tensor} {to_text(t.elements.to_expr())}" for t in transfers]


PRODUCT = "A[M, K]; B[K, N]; C[N, P]\ny[m,p] = sum[k, n](A[m,k] * B[k,n] * C[n,p])"
CASES = [  # formula, cuts, forward, backward
    (PRODUCT, "m=r", [], ["all-reduce C N * P", "all-reduce B K * N"]),
    (PRODUCT, "k=r", ["all-reduce y M * P"], ["all-reduce C N * P"]),
    (PRODUCT, "m=r,k=s", ["all-reduce y M * P / r"], None),
    ("x[N]\ny[n] = 2 * x[n]", "n=r", [], []),
    ("x[N]\ny = sum[n](x[n])", "n=r", ["all-reduce y 1"], []),
    ("x[N]\ny = mean[n](x[n])", "n=r", ["all-reduce y_sum 1"], []),
    ("x[N, M]\ny[m] = max[n](x[n,m])", "n=r", ["all-reduce y M"], ["all-reduce y M"]),
    (
        "x[N, M]\ny[m] = logsumexp[n](x[n,m])",
        "n=r",
        ["all-reduce y_max M", "all-reduce y_sum M"],
        [],
    ),
    (
        "x[N, M]\ny[n,m] = softmax[m](x[n,m])",
        "m=r",
        ["all-reduce y_max N", "all-reduce y_sum N"],
        ["all-reduce y_sum N"],
    ),
    (
        "x[N, M]\ny[n] = var[m](x[n,m])",
        "m=r",
        ["all-reduce y_mean_sum N", "all-reduce y_sum N"],
        None,
    ),
    # a shifted parse_cuts, a gather, and a running sum need the whole tensor
    ("x[N]\nindex i < N - 1\ny[i] = x[i + 1] - x[i]", "i=r", [], ["all-reduce x N"]),
    ("x[N]\ny[n] = x[n] - x[N - 1 - n]", "n=r", ["all-gather x N / r"], ["reduce-scatter x N"]),
    ("E[V, D]; int t[N] < V\ny[n,d] = E[t[n],d]", "n=r", [], ["all-reduce E D * V"]),
    ("x[N]\nz[n] = cumsum[n](x[n])\ny[n] = z[n] * x[n]", "n=r", ["all-gather x N / r"], None),
    # positions count from where a rank's share begins
    ("x[N, N]\ny[i,j] = x[i,j] * [j <= i] * (i - j)", "i=r", [], []),
    # merged places: the first index lies together, the second does not
    ("x[B, H*D]\nsize H\nindex h < H\nindex d < D\ny[b,h,d] = x[b,h*D + d]", "h=r", [], []),
    (
        "x[B, H*D]\nsize H\nindex h < H\nindex d < D\ny[b,h,d] = x[b,h*D + d]",
        "d=r",
        [],
        ["all-reduce x B * D * H"],
    ),
    # a recurrence is cut along what does not recur
    ("a, x[T, I]\nh[-1,i] = 0\nh[t,i] = a[t,i] * h[t - 1,i] + x[t,i]", "i=r", [], []),
]
MATRIX = "S[B, N, N]\nI[b,i,j] = inverse[i, j](S[b,i,j] + 2 * N * delta(i, j))"
CASES += [(MATRIX, "b=r", [], [])]
REFUSED = ROWS["refused"]


@pytest.mark.parametrize(
    ("text", "cuts", "forward", "backward"),
    CASES,
    ids=lambda value: str(value)[:40].replace("\n", " "),
)
def test_what_a_cut_costs_and_that_it_is_right(text, cuts, forward, backward):
    built = derive.build(text, shard=parse_cuts(cuts))
    assert forward is None or describe_transfers(built.sharding.forward) == forward
    assert backward is None or describe_transfers(built.sharding.backward) == backward
    judge(built)


def test_a_number_that_is_a_tensor_is_differentiated():
    text = "x[N]; scalar a\ny = a * sum[n](x[n] * a)\nz[n] = a * x[n] + y\nreturn z"
    derive.build(text, shard={"n": "dp"}).judge()
    source = derive.build(text, shard={"n": "dp"}).source
    wrong = source.replace("_Copy.apply(a, dp) if torch.is_tensor(a) else a", "a")
    assert wrong != source
    with pytest.raises(derive.DeriveError, match="gate-failed"):
        judge_ranks(wrong, "formula", to_system(derive.parse(text)), ((Size("N"), "dp"),))


@pytest.mark.parametrize(("text", "cuts", "code"), REFUSED)
def test_what_cannot_be_cut_is_refused(text, cuts, code):
    with pytest.raises(derive.DeriveError) as refused:
        derive.build(text, shard=parse_cuts(cuts))
    assert refused.value.diagnostic.code == code


def judge(built):
    """The ranks give what one call gives, and send what was said."""
    system, sharding = built.system, built.sharding
    for axes, sizes, inputs in draw_meshes(system, built.case.shares):
        _, where, sent = run_ranks(built.source, built.name, system, axes, inputs)
        assert not where, (sharding.cuts, sizes)
        for said, record in zip((sharding.forward, sharding.backward), sent, strict=True):
            wanted = [(t.collective, built.plan.at_sizes(t.elements, sizes | axes)) for t in said]
            assert Counter(record) == Counter(wanted), sharding.cuts


def test_a_wrong_sharded_function_is_not_written():
    built = derive.build(PRODUCT, shard={"k": "r"})
    wrong = built.source.replace("y = _Add.apply(y_part, r)", "y = y_part")
    assert wrong != built.source
    with pytest.raises(derive.DeriveError, match="gate-failed"):
        judge_ranks(wrong, built.name, built.system, built.case.shares)
    alone = built.source.replace("C_r = _Copy.apply(C, r)", "C_r = C")
    assert alone != built.source
    with pytest.raises(derive.DeriveError, match="gate-failed"):
        judge_ranks(alone, built.name, built.system, built.case.shares)


def test_names_of_the_file_may_stand_in_a_formula():
    text = "mesh, dist[N, M]\ny[n] = max[m](mesh[n,m] + dist[n,m])"
    judge(derive.build(text, shard={"m": "dp"}))


def test_every_rank_knows_where_a_result_is_cut():
    formula = to_system(derive.parse(PRODUCT))
    found = find_sharding(formula, {"m": "dp", "p": "tp"})
    assert found.places["y"] == {"dp": 0, "tp": 1}
    assert found.places["B"] == {}


@pytest.mark.slow
@settings(max_examples=12)
@given(formulas())
def test_every_index_that_can_be_cut_is_cut_rightly(drawn):
    formula = derive.parse(drawn.text, empty_row=drawn.empty_row)
    try:
        derive.build(formula)
    except derive.DeriveError:
        return  # others judge what has no plan
    system = to_system(formula)
    able = [index.name for index, each in list_shardings(system, "ranks") if each.is_cut]
    for name in able:
        judge(derive.build(formula, shard={name: "ranks"}))
    if len(able) > 1:
        judge(derive.build(formula, shard={able[0]: "one", able[-1]: "other"}))
