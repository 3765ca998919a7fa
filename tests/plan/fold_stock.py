"""Formulas to be summed in blocks: over which of their indices, and with how many peaks there."""

from derive import parse
from derive.backend.to_module import Header, to_module
from derive.compiler import Built
from derive.frontend.system import to_system
from derive.ir.walk import find_sizes
from derive.plan.blocks import find_indices, make_tiled, open_region
from derive.plan.blocks.body import find_body
from derive.plan.build import make_plan

SCORES = "q[N, D]; k[M, D]; v[M, E]\ns[i,j] = sum[d](tanh(q[i,d] + k[j,d]))\n"

# name: (the formula, the summed indices that have a loop, each with the number of its peaks)
FOLDS = {
    "sum": ("q[N, D]; k[M, D]; v[M]\nz[i] = sum[j,d](tanh(q[i,d] + k[j,d]) * v[j])", "d j"),
    "two-sums": (
        f"{SCORES}z[i,e] = sum[j](s[i,j] * v[j,e])\nw[i] = sum[j](s[i,j]**2)\nreturn z, w",
        "d j",
    ),
    "in-a-root": (
        "q[N, D]; k[M, D]\nz[i] = sqrt(1 + sum[j,d](tanh(q[i,d] + k[j,d])**2)) / 3",
        "d j",
    ),
    "part": ("q[N, D]; k[M, D]\nz[i] = sum[j, j <= i](sum[d](tanh(q[i,d] + k[j,d])))", "d j"),
    "mean": ("q[N, D]; k[M, D]\nz[i] = mean[j](sum[d](abs(q[i,d] - k[j,d])))", "d j"),
    "max": ("q[N, D]; k[M, D]\nz[i] = max[j](sum[d](abs(q[i,d] - k[j,d])))", "d j"),
    "min-and-max": (
        "q[N, D]; k[M, D]\ns[i,j] = sum[d](abs(q[i,d] - k[j,d]))\n"
        "z[i] = max[j](s[i,j]) - min[j](s[i,j])",
        "d j",
    ),
    "prod": ("q[N, D]; k[M, D]\nz[i] = prod[j](sum[d](tanh(q[i,d] - k[j,d])))", "d j"),
    "logsumexp": ("q[N, D]; k[M, D]\nz[i] = logsumexp[j](sum[d](tanh(q[i,d] + k[j,d])))", "d j*1"),
    "logsumexp-of-two": (
        "q[N, D]; k[M, L, D]\nz[i] = logsumexp[j,l](sum[d](tanh(q[i,d] + k[j,l,d])))",
        "d j*1 l*1",
    ),
    "softmax": (f"{SCORES}z[i,e] = sum[j](softmax[j](s[i,j]) * v[j,e])", "d j*1"),
    "masked": (
        f"bool m[N, M]; {SCORES}z[i,e] = sum[j](softmax[j, m[i,j]](s[i,j]) * v[j,e])",
        "d j*1",
    ),
    "causal": (f"{SCORES}z[i,e] = sum[j](softmax[j, j <= i](s[i,j]) * v[j,e])", "d j*1"),
    "relative": (
        "q[N, H, D]; k[M, H, D]; v[M, H, E]; A[N, M, H, D]; R[N, M, H, E]\n"
        "alpha[i,j,h] = softmax[j](sum[d](q[i,h,d] * (k[j,h,d] + A[i,j,h,d])) / sqrt(D))\n"
        "z[i,h,e] = sum[j](alpha[i,j,h] * (v[j,h,e] + R[i,j,h,e]))",
        "d j*1",
    ),
    "weights-in-two-places": (
        f"R[N, M]; {SCORES}alpha[i,j] = softmax[j](s[i,j])\nbeta[i,j] = alpha[i,j] * R[i,j]\n"
        "z[i,e] = sum[j](beta[i,j] * v[j,e])\nw[i] = sum[j](alpha[i,j] * R[i,j])\nreturn z, w",
        "d j*1",
    ),
    "two-softmaxes": (
        f"{SCORES}z[i,e] = sum[j](softmax[j](s[i,j]) * v[j,e])"
        " + sum[j](softmax[j](-s[i,j]) * v[j,e])",
        "d j*2",
    ),
    "read-after": (
        f"W[E, E]; {SCORES}z[i,e] = sum[j](softmax[j](s[i,j]) * v[j,e])\n"
        "y[i,f] = tanh(sum[e](z[i,e] * W[e,f])) + v[0,f]",
        "d e j*1",
    ),
    "talking-before": (
        "q[H, N, D]; k[H, M, D]; v[G, M, E]; T[H, G]\n"
        "l[g,i,j] = sum[h](T[h,g] * tanh(sum[d](q[h,i,d] * k[h,j,d])))\n"
        "z[g,i,e] = sum[j](softmax[j](l[g,i,j]) * v[g,j,e])",
        "h j*1",
    ),
    "quotient": (
        "q[N, D]; k[M, D]; v[M, E]\ns[i,j] = sum[d](tanh(q[i,d] + k[j,d]))**2\n"
        "z[i,e] = sum[j](s[i,j] * v[j,e]) / sum[j](s[i,j])",
        "d j",
    ),
    "names-that-a-loop-would-like": (
        "peak[N, D]; total[M, D]; wide[M, E]; scalar block = 2.0, weights\n"
        "rescale[i,j] = sum[d](tanh(block * peak[i,d] + total[j,d] * weights))\n"
        "z[i,e] = sum[j](softmax[j](rescale[i,j]) * wide[j,e])",
        "d j*1",
    ),
    "long-letters": (
        "query[N, D]; key[M, D]; v[M, E]\nindex place < N; index other < M\n"
        "s[place,other] = sum[d](tanh(query[place,d] + key[other,d]))\n"
        "z[place,e] = sum[other](softmax[other](s[place,other]) * v[other,e])",
        "d other*1",
    ),
    "merged-places": ("x[N, H*D]; w[H, D]\ny[n] = sum[h,d](tanh(x[n,h*D+d] * w[h,d]))", "d h"),
    # the softmax as a whole: what reads it is not proportional to it, or reads it elsewhere
    "softmax-returned": (
        f"{SCORES}alpha[i,j] = softmax[j](s[i,j])\n"
        "z[i,e] = sum[j](alpha[i,j] * v[j,e])\nreturn z, alpha",
        "d",
    ),
    "softmax-squared": (
        "a[N, M]; v[M]\nalpha[i,j] = softmax[j](tanh(a[i,j]))\n"
        "z[i] = sum[j](alpha[i,j] * alpha[i,j] * v[j])",
        "j",
    ),
    "softmax-mixed": (  # over i too, whose rows have peaks of their own
        "a[N, M]; v[M]; W[N, K]\nalpha[i,j] = softmax[j](tanh(a[i,j]))\n"
        "z[k] = sum[i,j](alpha[i,j] * W[i,k] * v[j])",
        "i j*1",
    ),
    "softmax-under-a-guard": (  # a row of nan that is all left out is 0
        "a[N, M]; v[M]\nalpha[i,j] = softmax[j](tanh(a[i,j]))\n"
        "z[i] = sum[j, j <= i](alpha[i,j] * v[j])",
        "j",
    ),
    "softmax-under-its-own-guard": (  # likewise: 0 / 0 would be nan
        "a[N, M]; bool m[N, M]; v[M]\nalpha[i,j] = softmax[j, m[i,j]](tanh(a[i,j]))\n"
        "z[i] = sum[j, m[i,j]](alpha[i,j] * v[j])",
        "j",
    ),
    "softmax-exchanged": (
        "a[N, M]; v[M]\nalpha[i,k,j] = softmax[j](a[i,j] * a[k,j])\n"
        "z[i,k] = sum[j](alpha[k,i,j] * v[j])",
        "j",
    ),
    "sum-of-a-sum": (
        "q[N, D]; k[M, D]\ns[i,j] = sum[d](tanh(q[i,d] + k[j,d]))\nm[i] = mean[j](s[i,j])\n"
        "z[i] = sum[j]((s[i,j] - m[i])**2)",
        "d",
    ),
    "variance": ("q[N, D]; k[M, D]\nz[i] = var[j](sum[d](tanh(q[i,d] + k[j,d])))", "d"),
    "argmax": ("q[N, D]; k[M, D]\nz[i] = argmax[j](sum[d](tanh(q[i,d] + k[j,d])))", "d"),
}


def build_loops(text, indices, *, empty_row="nan", length=2):
    """What is built with a loop over the first of these, and one in it over the next: "i", "j*".

    Over an index with a star the loop sums.
    """
    formula = parse(text)
    formula.empty_row = empty_row
    system = to_system(formula)
    plan = make_plan(system, dict.fromkeys(find_sizes(system), 64))
    for index in indices:
        scope = open_region(plan)
        (each,) = [i for i in find_indices(plan) if i.name == index.removesuffix("*")]
        group = find_body(scope, each, is_summed=index.endswith("*"), longest=True)
        plan = make_tiled(plan, group, length)
    source = to_module(plan, system.name, Header("", "", "a formula", "derive build"))
    return Built(system.name, formula, system, plan, source)
