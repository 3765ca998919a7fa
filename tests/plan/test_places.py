"""Places read through index arithmetic: the file agrees with the loops, and with torch's own."""

import pytest
import torch
from texts import Expressions, read_named
from torch.nn import functional

from derive import DeriveError, build, evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs, find_sizes

ROWS = Expressions(__file__, "places_rows.txt")

FORMULAS = read_named(__file__, "places.txt")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("title", FORMULAS)
def test_every_place_is_read_as_the_loops_read_it(title):
    build(FORMULAS[title], name="y").judge(2)


@pytest.mark.parametrize(("text", "draws"), ROWS["sizes decide whether a side is padded or cut"])
def test_sizes_decide_whether_a_side_is_padded_or_cut(text, draws):
    """Nothing is cut off that is not there, whichever side of the tensor the window is at."""
    built = build(text, name="y", cells=False)
    for draw in draws:
        sizes = dict(zip(find_sizes(built.system), draw, strict=True))
        given = draw_inputs(built.system, sizes, 1, torch.float64)
        wanted = evaluate_loops(built.formula, given)
        torch.testing.assert_close(built.function(**given), wanted)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("title", [t for t in FORMULAS if "argmax" not in t and "sum A" not in t])
def test_gradients_and_arguments_of_any_strides(title):
    built = build(FORMULAS[title], name="y")
    sizes = choose_sizes(built.system, 1)[0]
    given = draw_inputs(built.system, sizes, 0)
    wanted = built.function(**given)
    turned = {
        name: value.mT.contiguous().mT if torch.is_tensor(value) and value.ndim > 1 else value
        for name, value in given.items()
    }
    assert torch.allclose(built.function(**turned), wanted)
    real = {
        name: value.requires_grad_()
        for name, value in turned.items()
        if torch.is_tensor(value) and value.is_floating_point()
    }
    if sum(value.numel() for value in real.values()) > 400:
        return
    call = lambda *values: built.function(**{**turned, **dict(zip(real, values, strict=True))})  # noqa: E731
    assert torch.autograd.gradcheck(call, tuple(real.values()))


@pytest.mark.parametrize("title", [t for t in FORMULAS if "offsets" in t])
def test_offsets_are_read_from_a_table_of_any_length(title):
    """A table, a convolution or a transform replaces all pairs, also at small sizes."""
    built = build(FORMULAS[title], name="y")
    assert "By tabulate_" in built.source or "By transform_product" in built.source
    assert "tril" not in built.source
    assert any(each in built.source for each in ("unfold(", "conv1d(", "By transform_product"))
    for size in (0, 1, 3) if "conv1d(" not in built.source else (1, 3):
        sizes = dict.fromkeys(built.plan.sizes, size)
        given = draw_inputs(built.system, sizes, 1, torch.float64)
        expected, found = evaluate_loops(built.formula, given), built.function(**given)
        torch.testing.assert_close(found, expected)


def test_factors_that_are_read_at_one_place_are_multiplied_before_they_are_gathered():
    text = (
        "h[N,F]; W[F,G]; c[N]; int s, t[E] < N; index n < N\n"
        "m[n,f] = sum[e, t[e] == n](c[s[e]] * h[s[e],f]); y[n,g] = sum[f](m[n,f] * W[f,g])"
    )
    built = build(text, sizes={"N": 512, "E": 4096, "F": 64, "G": 16})
    assert built.source.count("index_select(0, s)") == 1
    assert "y_of_u.index_select(0, s)" in built.source
    assert built.judge().agrees


@pytest.mark.parametrize(
    ("text", "is_multiplied"), ROWS["rows are multiplied once for each offset where that is faster"]
)
def test_rows_are_multiplied_once_for_each_offset_where_that_is_faster(text, is_multiplied):
    """The product is flattened and reshaped, without windows, for rows of any length."""
    built = build(text, name="y", sizes={"N": 512})
    assert ("By tabulate_places" in built.source) is is_multiplied
    for size in (1, 2, 5):
        sizes = {**dict.fromkeys(built.plan.sizes, size), "K": 3, "D": 2}
        given = draw_inputs(built.system, sizes, 1, torch.float64)
        given = {n: 1e4 * e if torch.is_tensor(e) else e for n, e in given.items()}
        expected, found = evaluate_loops(built.formula, given), built.function(**given)
        torch.testing.assert_close(found, expected)
        assert "unfold(" not in built.source or not is_multiplied


@pytest.mark.parametrize(("text", "is_cut"), ROWS["a range of an index is cut out and padded"])
def test_a_range_of_an_index_is_cut_out_and_padded(text, is_cut):
    """At every size, 0 too; values outside of the range are harmless."""
    built = build(text, name="y")
    assert any(each in built.source for each in ("mask", "triu(")) is not is_cut
    for size in (0, 1, 2, 3, 5):
        sizes = {name: size + place * (size > 2) for place, name in enumerate(built.plan.sizes)}
        given = draw_inputs(built.system, sizes, 1, torch.float64)
        expected, found = evaluate_loops(built.formula, given), built.function(**given)
        torch.testing.assert_close(found, expected)
        for value in given.values():
            value.requires_grad_()
        if size:
            assert torch.autograd.gradcheck(built.function, tuple(given.values()))


@pytest.mark.parametrize(("text", "calls"), ROWS["what is taken lies in one piece"])
def test_what_is_taken_lies_in_one_piece(text, calls):
    source = build(text, name="y").source
    assert all(call in source for call in calls)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("text", "recurs"), ROWS["sums of powers recur where that is faster"])
def test_sums_of_powers_recur_where_that_is_faster(text, recurs):
    """Values agree with the loops at small sizes, and gradients are right."""
    declared = "r[B, T]; W[B, D]; a[D]; c[B] > 0; scalar g = 0.9; index t < T\n"
    built = build(declared + text, dict(B=64, T=2048, D=8), name="y")
    assert ("_recur(" in built.source) is recurs
    built.judge(2)
    for size in (0, 1, 3):
        given = draw_inputs(built.system, dict.fromkeys(built.plan.sizes, size), 1, torch.float64)
        expected, found = evaluate_loops(built.formula, given), built.function(**given)
        torch.testing.assert_close(found, expected)
    real = {k: v.requires_grad_() for k, v in given.items() if torch.is_tensor(v)}
    call = lambda *values: built.function(**{**given, **dict(zip(real, values, strict=True))})  # noqa: E731
    assert torch.autograd.gradcheck(call, tuple(real.values()))


CONVOLUTION = """
size Z = 2; size P = 1; size Q = 2
x[B, C, H, W]; w[O, C, K, M]
index p < (H + 2*P - Q*(K - 1) - 1)//Z + 1; index q < (W + 2*P - Q*(M - 1) - 1)//Z + 1
y[b,o,p,q] = sum[c,k,m](x[b,c,Z*p + Q*k - P,Z*q + Q*m - P] * w[o,c,k,m]
    * [0 <= Z*p + Q*k - P < H] * [0 <= Z*q + Q*m - P < W])
"""


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (3, 2, 2)])
def test_a_convolution_is_one_call(stride, padding, dilation):
    built = build(CONVOLUTION, name="y")
    assert "torch.nn.functional.conv2d(x, w, stride=Z, padding=P, dilation=Q)" in built.source
    x, w = torch.randn(2, 3, 9, 8), torch.randn(4, 3, 3, 2)
    found = built.function(x, w, Z=stride, P=padding, Q=dilation)
    assert torch.allclose(
        found, functional.conv2d(x, w, None, stride, padding, dilation), atol=1e-5
    )
    with pytest.raises(ValueError, match="must have an extent of 1 at least"):
        built.function(x[:, :, :1, :1], w, Z=1, P=0, Q=1)


@pytest.mark.parametrize("title", ["conv1d groups dil", "conv3d dil"])
def test_a_dilated_convolution_is_one_call(title):
    assert "unfold(" not in build(FORMULAS[title], name="y").source


@pytest.mark.parametrize("more", [-1, 0, 1, 2])
def test_a_dilated_convolution_has_the_declared_number_of_windows(more):
    told = f"x[B, C, L]; w[O, C, 3]; index p < (L - 7 + {more})//2 + 1"
    read = "x[b,c,2*p + 3*k] * w[o,c,k] * [2*p + 3*k < L]"
    built = build(f"{told}\ny[b,o,p] = sum[c,k]({read})", name="y")
    assert "conv1d(" in built.source
    for length in range(7, 13):
        sizes = {"B": 2, "C": 2, "O": 2, "L": length}
        given = draw_inputs(built.system, sizes, 0, torch.float64)
        if (length - 7 + more) // 2 + 1:
            expected = evaluate_loops(built.formula, given)
            torch.testing.assert_close(built.function(**given), expected)
        else:
            with pytest.raises(ValueError, match="must have an extent of 1 at least"):
                built.function(**given)


@pytest.mark.parametrize(("text", "view"), ROWS["a place is written as a person would"])
def test_a_place_is_written_as_a_person_would(text, view):
    built = build(text, name="y")
    assert view in built.source
    assert built.judge().agrees


@pytest.mark.parametrize("text", ROWS["a read that may leave its tensor is refused"])
def test_a_read_that_may_leave_its_tensor_is_refused(text):
    with pytest.raises(DeriveError, match="may read outside"):
        build(text, name="y")


@pytest.mark.parametrize(
    "places",
    [
        "j[m] = min(k[m] + 1, N - 1)",
        "j[m] = max(k[m] - 1, 0)",
        "j[m] = min(max(2*k[m] - 3, 0), N - 1)",
        "h[m] = min(k[m] + 1, N - 1); j[m] = max(h[m] - 2, 0)",
        "h[m] = clip(floor(u[m]), 0, N - 1); j[m] = min(h[m] + 1, N - 1)",
    ],
)
def test_named_places_made_of_named_places_are_inside(places: str) -> None:
    built = build(f"x[N]; u[M]; int k[M] < N; {places}; y[m] = x[j[m]]*u[m]")
    assert built.judge(count=2).agrees


@pytest.mark.parametrize(
    "places", ["j[m] = min(k[m] + 1, N)", "j[m] = max(k[m] - 1, -1)", "j[m] = k[m] + 1"]
)
def test_named_places_that_may_leave_the_tensor_are_refused(places: str) -> None:
    with pytest.raises(DeriveError, match="reads-outside"):
        build(f"x[N]; u[M]; int k[M] < N; {places}; y[m] = x[j[m]]*u[m]")


def test_a_view_that_skips_entries_is_one_slice_named_once():
    source = build(
        "x[2*H, 2*W]; index i < H; index j < W; "
        "s[i,j] = x[2*i,2*j] * x[2*i + 1,2*j + 1]; t[i,j] = x[2*i,2*j] - s[i,j]; return s, t"
    ).source
    assert source.count("x[::2, ::2]") == source.count("x[1::2, 1::2]") == 1
    assert "x_strided = x[::2, ::2]" in source
