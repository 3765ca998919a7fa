"""Loops over blocks: what they name hides nothing that the formula names."""

from derive import build, parse


def test_a_block_is_not_named_like_a_scalar():
    text = "x[N, D]; y[M, D]; scalar x_i\nd[i,j] = sum[k](tanh(x_i * x[i,k] - y[j,k]))"
    built = build(parse(text), sizes=dict(N=1024, M=1024, D=64))
    assert built.plan.tile is not None
    assert "x_i" not in [name for name, _ in built.plan.tile.sliced]
    built.judge()


def test_the_last_block_may_be_shorter():
    """What is expanded in a loop is as long as its block, not as all other blocks."""
    text = "x[N]; size D; size H\nindex e < D; index d < D; index h < H; index j < N\n"
    text += "z[j,h,d] = max[e, d <= h + 1](e)"
    built = build(parse(text), sizes=dict(N=64, D=1000, H=64))
    assert built.plan.tile is not None
    built.judge()
