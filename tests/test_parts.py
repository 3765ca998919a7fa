"""Several equations that fill one tensor together: a table of formulas, right code and wrong code.

Each is read back as it is shown, built in both ways, differentiated, and compared with code by
hand; what does not fill each place once is refused with the place.
"""

from __future__ import annotations

import pytest
import sympy
import torch
from sympy import Eq

from derive import (
    DeriveError,
    Formula,
    build,
    check,
    evaluate_loops,
    gradient,
    indices,
    parse,
    show,
    sizes,
    tensors,
)


def rope(x, c, s):
    """The rotary embedding of pairs that stand side by side."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


def rope_mirrored(x, c, s):
    """The same, turned the other way."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * c + b * s, a * s - b * c], -1).flatten(-2)


def rope_in_place(x, c, s):
    """The same as `rope`, filled in."""
    out = torch.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * c - x[..., 1::2] * s
    out[..., 1::2] = x[..., 0::2] * s + x[..., 1::2] * c
    return out


def rope_halves(x, c, s):
    """The rotary embedding of pairs from both halves."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, a * s + b * c], -1)


def rope_rotated(x, c, s):
    """The same, as models write it."""
    half = c.shape[-1]
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * torch.cat([c, c], -1) + turned * torch.cat([s, s], -1)


def heat(u, k):
    """An explicit step of the heat equation with fixed ends."""
    v = u.clone()
    v[1:-1] = u[1:-1] + k * (u[:-2] - 2 * u[1:-1] + u[2:])
    return v


def heat_cyclic(u, k):
    """The same on a ring."""
    return u + k * (torch.roll(u, 1) - 2 * u + torch.roll(u, -1))


def blocks(a, b, c, d):
    """A matrix of four blocks."""
    return torch.cat([torch.cat([a, b], 1), torch.cat([c, d @ d], 1)], 0)


def blocks_transposed(a, b, c, d):
    """The same with another product."""
    return torch.cat([torch.cat([a, b], 1), torch.cat([c, d @ d.T], 1)], 0)


def sums_first(x):
    """A prefix of zero, the sums, and the mean behind them."""
    return torch.cat([x.new_zeros(1), x.cumsum(0), x.mean()[None]])


def sums_first_shifted(x):
    """The same with the mean in front."""
    return torch.cat([x.mean()[None], x.cumsum(0), x.new_zeros(1)])


def features(t, w):
    """Sines and cosines of frequencies, and the position itself."""
    angle = t[:, None] * w
    return torch.cat([t[:, None], angle.sin(), angle.cos()], 1)


def features_exchanged(t, w):
    """The same with cosines first."""
    angle = t[:, None] * w
    return torch.cat([t[:, None], angle.cos(), angle.sin()], 1)


def thirds(x, y):
    """Three that take turns."""
    return torch.stack([x, x * y, y], -1).flatten()


def flipped(x, y):
    """One tensor backwards in front of another."""
    return torch.cat([x.flip(0), y])


def unflipped(x, y):
    """One tensor in front of another."""
    return torch.cat([x, y])


def edges(x):
    """A frame of zeros around a square, and its corner values kept."""
    return torch.nn.functional.pad(x, (1, 1, 1, 1))


def edges_of_one(x):
    """The same with a frame of ones."""
    return torch.nn.functional.pad(x, (1, 1, 1, 1), value=1.0)


def uneven(a, b):
    """Two tensors of lengths N + 1 and N that take turns."""
    out = a.new_empty(a.shape[0] + b.shape[0])
    out[::2] = a
    out[1::2] = b
    return out


ROPE = """x[T, 2*P]; c, s[T, P]
    y[t,2*p] = x[t,2*p] * c[t,p] - x[t,2*p + 1] * s[t,p]
    y[t,2*p + 1] = x[t,2*p] * s[t,p] + x[t,2*p + 1] * c[t,p]"""
HALVES = """x[T, 2*P]; c, s[T, P]; index p < P
    y[t,p] = x[t,p] * c[t,p] - x[t,p + P] * s[t,p]
    y[t,p + P] = x[t,p] * s[t,p] + x[t,p + P] * c[t,p]"""
HEAT = """u[N]; scalar k; index i < N - 2
    v[0] = u[0]
    v[i + 1] = u[i + 1] + k * (u[i] - 2 * u[i + 1] + u[i + 2])
    v[N - 1] = u[N - 1]"""
BLOCKS = """a[N, N]; b[N, M]; c[M, N]; d[M, M]
    S[i,j] = a[i,j]
    S[i,k + N] = b[i,k]
    S[k + N,j] = c[k,j]
    S[k + N,l + N] = sum[m](d[k,m] * d[m,l])"""
FRAME = """x[M, N]; index p < M + 2; index j < N
    y[i + 1,j + 1] = x[i,j]
    y[0,j + 1] = 0
    y[M + 1,j + 1] = 0
    y[p,0] = 0
    y[p,N + 1] = 0"""

# formula, code that is right, code that is wrong unless the row above has some, a call in the file
TABLE = {
    "rotary, interleaved": (ROPE, rope, rope_mirrored, "torch.stack("),
    "rotary, filled in": (ROPE, rope_in_place, None, "torch.stack("),
    "rotary, halves": (HALVES, rope_halves, rope, "torch.cat("),
    "rotary, as in models": (HALVES, rope_rotated, None, "torch.cat("),
    "boundaries": (HEAT, heat, heat_cyclic, "torch.cat("),
    "blocks": (BLOCKS, blocks, blocks_transposed, "torch.cat("),
    "a prefix and an end": (
        "x[N]; y[0] = 0; y[i + 1] = cumsum[i](x[i]); y[N + 1] = mean[i](x[i])",
        sums_first,
        sums_first_shifted,
        "torch.cat(",
    ),
    "features": (
        """t[T]; w[F]
        y[n,0] = t[n]; y[n,k + 1] = sin(t[n] * w[k]); y[n,k + F + 1] = cos(t[n] * w[k])""",
        features,
        features_exchanged,
        "torch.cat(",
    ),
    "three in turn": (
        "x, y[N]; z[3*i] = x[i]; z[3*i + 2] = y[i]; z[3*i + 1] = x[i] * y[i]",
        thirds,
        unflipped,
        "torch.stack(",
    ),
    "backwards": ("x[N]; y[M]; z[N - 1 - i] = x[i]; z[j + N] = y[j]", flipped, unflipped, ".flip("),
    "a frame": (FRAME, edges, edges_of_one, "pad("),
    "uneven turns": ("a[N + 1]; b[N]; y[2*p] = a[p]; y[2*q + 1] = b[q]", uneven, unflipped, ""),
}


@pytest.mark.parametrize("name", TABLE)
def test_parts_are_shown_built_and_differentiated(name):
    text, right, _, call = TABLE[name]
    formula = parse(text)
    assert show(parse(show(formula))) == show(formula)
    built = build(formula)
    assert built.judge().agrees
    assert call in built.source
    assert build(formula, cells=False).judge().agrees
    given = {"uneven turns": [3, 2]}.get(name, [4] * 4)
    shapes = {"c": (3, 2), "s": (3, 2)} if "rotary" in name else {}
    values = {
        entry.name: torch.randn(
            shapes.get(entry.name, (3, 4) if "rotary" in name else (4,) * len(entry.shape)),
            dtype=torch.float64,
        )
        for entry in built.system.inputs
        if hasattr(entry, "shape")
    }
    if name == "uneven turns":
        values = dict(zip("ab", map(torch.randn, given), strict=True))
    if name == "boundaries":
        values["k"] = 0.25
    expected = right(*values.values())
    torch.testing.assert_close(
        torch.as_tensor(evaluate_loops(formula, values)), expected.double(), rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(built.function(**values), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_parts_are_differentiated(name):
    assert build(gradient(parse(TABLE[name][0]))).judge().agrees


@pytest.mark.parametrize("name", TABLE)
def test_code_is_checked_against_parts(name):
    text, right, wrong, _ = TABLE[name]
    assert check(right, text).same is True
    assert wrong is None or check(wrong, text).same is False


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_the_gradient_of_code_is_checked_against_parts(name):
    assert check(TABLE[name][1], TABLE[name][0], backward=True).same is True


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a, b[N]; y[2*p] = a[p]; y[2*p + 2] = b[p]", "place-not-filled", "y[1]"),
        ("a, b[N]; y[p] = a[p]; y[p + N - 1] = b[p]", "place-filled-twice", "y[0]"),
        ("a, b[N]; y[p] = a[p]; y[p + N + 1] = b[p]", "place-not-filled", "y[1]"),
        ("a[N]; y[i + 1] = a[i]", "left-side", ""),
        ("a[N]; y[2] = 1; y[1] = 2", "place-not-filled", "y[0]"),
        ("a, b[N]; y[3*p] = a[p]; y[3*p + 1] = b[p]", "place-not-filled", "y[2]"),
        ("a, b[N, N]; y[i,j] = a[i,j]; y[i,j + N] = b[i,j]; y[i + N,j] = b[i,j]", "", "y[1, 1]"),
        ("a, b[N]; y[p] = a[p]; z[p] = y[p]; y[p + N] = b[p]", "used-before-defined", ""),
        ("a, b[N]; y[i] = a[i]; y[j] = b[j]", "defined-twice", ""),
    ],
)
def test_what_does_not_fill_each_place_once_is_refused(text, code, place):
    with pytest.raises(DeriveError) as caught:
        build(parse(text))
    assert code in caught.value.diagnostic.code
    assert place in caught.value.diagnostic.says


def test_parts_are_written_with_sympy_too():
    T, P = sizes("T P")
    t, p = indices("t", T), indices("p", P)
    x, c = tensors("x", T, 2 * P), tensors("c", T, P)
    y = tensors("y")
    formula = Formula(
        Eq(y[t, 2 * p], x[t, 2 * p] * c[t, p]),
        Eq(y[t, 2 * p + 1], x[t, 2 * p + 1] * sympy.exp(c[t, p])),
        name="pairs",
    )
    assert build(formula).judge().agrees
    assert show(formula).count("\n") == 2
