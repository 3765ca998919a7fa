"""Formulas that are one attention of torch's, and formulas that are none."""

HEADS = "Q[B, H, N, D]; K, V[B, H, M, D]"
SQUARE = "Q, K, V[B, H, N, D]"
LOGITS = "sum[c](Q[b,h,i,c] * K[b,h,j,c]) / sqrt(D)"


def attend(logits=LOGITS, more="", *, heads=HEADS, range_="j", value="V[b,h,j,d]"):
    """`z = softmax_j(logits) value` over the batch b and the heads h."""
    declared = f"{heads}; {more}" if more else heads
    return f"{declared}\nz[b,h,i,d] = sum[j](softmax[{range_}]({logits}) * {value})"


def attend_batch(logits="", more="", range_="j"):
    """The same without heads."""
    product = "sum[c](Q[b,i,c] * K[b,j,c]) / sqrt(D)"
    declared = f"Q[B, N, D]; K, V[B, M, D]; {more}" if more else "Q[B, N, D]; K, V[B, M, D]"
    return f"{declared}\nz[b,i,d] = sum[j](softmax[{range_}]({product}{logits}) * V[b,j,d])"


def attend_alone(logits="", more="", range_="j"):
    """The same without a batch."""
    product = "sum[c](Q[i,c] * K[j,c]) / sqrt(D)"
    declared = f"Q[N, D]; K, V[M, D]; {more}" if more else "Q[N, D]; K, V[M, D]"
    return f"{declared}\nz[i,d] = sum[j](softmax[{range_}]({product}{logits}) * V[j,d])"


def attend_groups(logits="", more="", range_="j", extent="M"):
    """Groups of heads that share keys and values."""
    product = "sum[c](Q[b,g,r,i,c] * K[b,g,j,c]) / sqrt(D)"
    declared = f"Q[B, G, R, N, D]; K, V[B, G, {extent}, D]"
    declared += f"; {more}" if more else ""
    weights = f"softmax[{range_}]({product}{logits})"
    return f"{declared}\nz[b,g,r,i,d] = sum[j]({weights} * V[b,g,j,d])"


def attend_shared(logits="", more=""):
    """One head of keys and values for all heads of queries."""
    product = "sum[c](Q[b,r,i,c] * K[b,j,c]) / sqrt(D)"
    declared = "Q[B, R, N, D]; K, V[B, M, D]" + (f"; {more}" if more else "")
    return f"{declared}\nz[b,r,i,d] = sum[j](softmax[j]({product}{logits}) * V[b,j,d])"


PLAIN = (
    attend(),
    attend(LOGITS.replace(" / sqrt(D)", "")),
    attend("sum[c](Q[b,h,i,c] / sqrt(D) * K[b,h,j,c])"),
    attend("sum[c](Q[b,h,i,c] * (K[b,h,j,c] * t))", "scalar t = 2"),
    attend("t * sum[c](Q[b,h,i,c] * K[b,h,j,c])", "scalar t"),
    attend(heads=SQUARE, range_="j, j <= i"),
    attend(range_="j, j <= i"),
    attend_batch(),
    attend_batch(range_="j, j <= i"),
    attend_alone(),
    attend_groups(),
    attend_groups(range_="j, j <= i"),
    attend_shared(),
    "Q[R, N, D]; K, V[M, D]\n"
    "z[r,i,d] = sum[j](softmax[j](sum[c](Q[r,i,c] * K[j,c]) / sqrt(D)) * V[j,d])",
    "x[B, N, D]\nz[b,i,d] = sum[j](softmax[j](sum[c](x[b,i,c] * x[b,j,c]) / sqrt(D)) * x[b,j,d])",
    "Q[B, N, H, D]; K, V[B, M, H, D]\na[b,h,i,j] = softmax[j](sum[c](Q[b,i,h,c] * K[b,j,h,c]))\n"
    "z[b,i,h,d] = sum[j](V[b,j,h,d] * a[b,h,i,j])",
)

BIASED = (
    attend(f"{LOGITS} + bias[h,i,j]", "bias[H, N, M]"),
    attend(f"{LOGITS} + bias[b,i,j]", "bias[B, N, M]"),
    attend(f"{LOGITS} + bias[b,h,i,j]", "bias[B, H, N, M]"),
    attend(f"{LOGITS} + bias[i,j]", "bias[N, M]"),
    attend(f"bias[j] + {LOGITS}", "bias[M]"),
    attend(f"{LOGITS} + bias[i,j] - far[h] * (i - j)", "bias[N, M]; far[H]"),
    attend("(sum[c](Q[b,h,i,c] * K[b,h,j,c]) + bias[h,i,j]) / sqrt(D)", "bias[H, N, M]"),
    attend_batch(" + bias[b,i,j]", "bias[B, N, M]"),
    attend_batch(" + bias[i,j]", "bias[N, M]"),
    attend_batch(" + bias[b,j]", "bias[B, M]"),
    attend_batch(" + bias[j]", "bias[M]"),
    attend_alone(" + bias[i,j]", "bias[N, M]"),
    attend_alone(" + bias[j]", "bias[M]"),
    attend_groups(" + bias[i,j]", "bias[N, M]"),
    attend_groups(" + bias[b,i,j]", "bias[B, N, M]"),
    attend_shared(" + bias[r,i,j]", "bias[R, N, M]"),
    attend_shared(" + bias[b,i,j]", "bias[B, N, M]"),
    attend_shared(" + bias[b,r,i,j]", "bias[B, R, N, M]"),
    attend(f"{LOGITS} + sum[c](Q[b,h,i,c] * R[i,j,c])", "R[N, M, D]"),  # relative keys
)

MASKED = (
    attend(more="bool m[B, M]", range_="j, m[b,j]"),
    attend(more="bool m[N, M]", range_="j, m[i,j]"),
    attend(more="bool m[B, H, N, M]", range_="j, m[b,h,i,j]"),
    attend(more="bool m[M]", range_="j, m[j]"),
    attend(f"where(m[b,j], {LOGITS}, -oo)", "bool m[B, M]"),
    attend(f"{LOGITS} + where(m[b,j], 0, -oo)", "bool m[B, M]"),
    attend(more="int len[B] < M + 1", range_="j, j < len[b]"),
    attend(heads=SQUARE, range_="j, j < i"),
    attend(heads=SQUARE, more="bool m[B, N]", range_="j, j <= i and m[b,j]"),
    attend(f"{LOGITS} + bias[h,i,j]", "bias[H, N, M]; bool m[B, M]", range_="j, m[b,j]"),
    attend_batch(" + bias[i,j]", "bias[N, M]; bool m[B, M]", "j, m[b,j]"),
    attend_alone(more="bool m[M]", range_="j, m[j]"),
    attend_groups(more="bool m[B, M]", range_="j, m[b,j]"),
    attend_groups(more="bool m[N, M]", range_="j, m[i,j]"),
)

OTHERS = (
    # weights that are a result, or read twice
    f"{HEADS}\na[b,h,i,j] = softmax[j]({LOGITS})\nz[b,h,i,d] = sum[j](a[b,h,i,j] * V[b,h,j,d])\n"
    "return z, a",
    f"{HEADS}\na[b,h,i,j] = softmax[j]({LOGITS})\n"
    "z[b,h,i,d] = sum[j](a[b,h,i,j]**2 * V[b,h,j,d]) + sum[j](a[b,h,i,j])",
    # over the wrong index, with values or keys of another place
    f"{SQUARE}\nz[b,h,i,d] = sum[j](softmax[i]({LOGITS}) * V[b,h,j,d])",
    f"{SQUARE}\na[b,h,i,j] = softmax[j]({LOGITS})\nz[b,h,j,d] = sum[i](a[b,h,i,j] * V[b,h,i,d])",
    f"Q, K[B, H, N, D]; V[H, N, D]\nz[b,h,i,d] = sum[j](softmax[j]({LOGITS}) * V[h,j,d])",
    f"Q, K[B, H, N, D]; V[B, N, D]\nz[b,h,i,d] = sum[j](softmax[j]({LOGITS}) * V[b,j,d])",
    "Q[B, H, N, D]; K[H, M, D]; V[B, H, M, D]\n"
    "z[b,h,i,d] = sum[j](softmax[j](sum[c](Q[b,h,i,c] * K[h,j,c])) * V[b,h,j,d])",
    # something between the product and the softmax, or the weights and the value
    attend("tanh(sum[c](Q[b,h,i,c] * K[b,h,j,c]))"),
    attend(LOGITS, value="V[b,h,j,d] * [j != i]"),
    attend(heads=SQUARE, value="V[b,h,i,d]"),
    attend(f"{LOGITS} * bias[h,i,j]", "bias[H, N, M]"),
    # three indices of the batch, heads in two places with a bias each
    "Q[A, B, H, N, D]; K, V[A, B, H, M, D]\nz[a,b,h,i,d] = "
    "sum[j](softmax[j](sum[c](Q[a,b,h,i,c] * K[a,b,h,j,c])) * V[a,b,h,j,d])",
    attend_groups(" + bias[r,i,j]", "bias[R, N, M]"),
    attend_groups(" + bias[g,i,j]", "bias[G, N, M]"),
)
