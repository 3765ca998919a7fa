"""Size regimes: where another order takes fewer operations is told, and can be dispatched on."""

import pytest
import torch

from derive import build, parse
from derive.errors import DeriveError

FOUR = """
X[B, S, F]; W_Q, W_K[H, F, D]
s[b,h,i,j] = sum[d, f, g](X[b,i,f] * W_Q[h,f,d] * W_K[h,g,d] * X[b,j,g])
"""
TYPICAL = dict(B=8, S=256, F=512, D=64, H=8)


def make(**options):
    return build(parse(FOUR, "scores"), sizes=TYPICAL, **options)


def count(plan, **sizes):
    return plan.at_sizes(plan.flops, {**plan.sizes, **sizes})


def test_a_regime_begins_where_its_order_takes_fewer_operations():
    plan = make().plan
    assert [str(each) for each in plan.regimes] == ["F < 79", "D > 341"]
    for each in plan.regimes:
        last, first = each.number, each.number + (-1 if each.is_below else 1)
        assert count(each.plan, **{each.size: last}) >= count(plan, **{each.size: last})
        assert count(each.plan, **{each.size: first}) < count(plan, **{each.size: first})


def test_the_docstring_tells_of_them():
    words = " ".join(make().source.split())
    assert "another order takes fewer operations where F < 79, D > 341." in words


def test_a_lone_product_has_one_order():
    built = build(parse("A[M, K]; B[K, N]; C[i,j] = sum[k](A[i,k] * B[k,j])"))
    assert built.plan.regimes == ()
    assert "another order" not in built.source


def test_a_file_that_dispatches_takes_each_order_where_it_pays():
    built = make(dispatch=True)
    built.judge()
    taken = []
    space = vars(__import__(built.function.__module__))
    for name in [each for each in space if each.startswith("_scores_where")]:
        inner = space[name]
        space[name] = lambda *args, inner=inner, name=name: (taken.append(name), inner(*args))[1]
    for sizes in (dict(F=80, D=8), dict(F=4, D=8), dict(F=80, D=342)):
        drawn = {**dict(B=1, S=2, H=2), **sizes}
        B, S, F, D, H = (drawn[name] for name in "BSFDH")
        given = [torch.randn(shape, dtype=torch.float64) for shape in ((B, S, F), *[(H, F, D)] * 2)]
        expected = torch.einsum("bif,hfd,hgd,bjg->bhij", given[0], *given[1:], given[0])
        torch.testing.assert_close(built.function(*given), expected)
    assert taken == ["_scores_where_F_below_79", "_scores_where_D_above_341"]


def test_an_order_that_no_draw_chooses_is_judged(monkeypatch):
    built = make(dispatch=True)
    broken = [part.replace("torch.einsum(", "-torch.einsum(", 1) for part in built.parts]
    assert all(one != other for one, other in zip(broken, built.parts, strict=True))
    object.__setattr__(built, "parts", (built.parts[0], broken[1], built.parts[2]))
    with pytest.raises(DeriveError, match="gate-failed"):
        built.judge()
