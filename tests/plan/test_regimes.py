"""Size regimes: the docstring says where another order takes fewer operations."""

from derive import build, parse

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
