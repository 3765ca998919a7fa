"""Loops over blocks: what they name hides nothing that the formula names."""

from derive import build, parse


def test_a_block_is_not_named_like_a_scalar():
    text = "x[N, D]; y[M, D]; scalar x_i\nd[i,j] = sum[k](tanh(x_i * x[i,k] - y[j,k]))"
    built = build(parse(text), sizes=dict(N=1024, M=1024, D=64))
    assert built.plan.tile is not None
    assert "x_i" not in [name for name, _ in built.plan.tile.sliced]
    built.judge()
