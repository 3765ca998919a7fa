"""Rules on logarithms of sums of exponentials and of a softmax.

Exponentials overflow where the logarithm of their sum does not.
"""

from collections.abc import Sequence
from itertools import combinations

from derive.analysis.extents import match_index
from derive.analysis.facts import is_positive
from derive.ir import nodes as ir
from derive.ir.functions import is_complex
from derive.ir.walk import find_free
from derive.rewrite.rule import rule
from derive.rewrite.rules import sums


@rule(
    law="log(sum_j exp(e_j) * b_j) = logsumexp_j(e_j + log(b_j)) where b > 0",
    before="x[M, N]; v[N] > 0; y[i] = log(sum[j](v[j] * exp(x[i,j])))",
    after="x[M, N]; v[N] > 0; y[i] = logsumexp[j](x[i,j] + log(v[j]))",
    refuses="x[M, N]; v[N]; y[i] = log(sum[j](v[j] * exp(x[i,j])))",
)
def find_logsumexp(expr: ir.Expr) -> ir.Expr | None:
    """Write the logarithm of a sum of products with exponentials as a logsumexp.

    A sum with a factor that has an index of no exponent is a matrix product, and stays.
    """
    match expr:
        case ir.Call("log", (ir.Reduce("sum", bound, condition, body),)) if not is_complex(body):
            logits, rest = split_logits(body)
        case ir.Call("log", (ir.Call("exp", (logit,)),)) if not is_complex(logit):
            return logit
        case _:
            return None
    logit = ir.sum_of(logits)
    is_bare = any(not isinstance(each, ir.Along) for each in logits)
    if is_bare and set(find_free(body)) <= set(find_free(logit)) and all(map(is_positive, rest)):
        logs = [ir.Call("log", (ir.product_of(rest),))] if rest else []
        return ir.Reduce("logsumexp", bound, condition, ir.sum_of([*logits, *logs]))
    return None


def split_logits(value: ir.Expr) -> tuple[list[ir.Expr], list[ir.Expr]]:
    """The logarithms of the factors that are exponentials or normalized, and the other factors."""
    logits, rest = list[ir.Expr](), list[ir.Expr]()
    for factor in sums.find_factors(value):
        match factor:
            case ir.Call("exp", (logit,)):
                logits.append(logit)
            case ir.Pow(ir.Call("exp", (logit,)), ir.Number() as power):
                logits.append(ir.product_of([power, logit]))
            case ir.Along("softmax", index, ir.TRUE, logit):
                logits.append(ir.Along("log_softmax", index, ir.TRUE, logit))
            case _:
                rest.append(factor)
    return logits, rest


@rule(
    law="e_j - logsumexp_j(e) = log_softmax_j(e);  log(softmax_j(e)) = log_softmax_j(e)",
    before="x[M, N]; b[N]; y[i,j] = x[i,j] + b[j] - logsumexp[k](x[i,k])",
    after="x[M, N]; b[N]; y[i,j] = b[j] + log_softmax[j](x[i,j])",
    refuses="x, z[M, N]; y[i,j] = z[i,j] - logsumexp[k](x[i,k])",
)
def find_log_softmax(expr: ir.Expr) -> ir.Expr | None:
    """Recognise a logit minus the logsumexp of its row, or a log of a softmax."""
    match expr:
        case ir.Call("log", (ir.Along("softmax", index, ir.TRUE, body),)):
            return ir.Along("log_softmax", index, ir.TRUE, body)
        case ir.Add(terms):
            for k, term in enumerate(terms):
                found = _find_normalised(term, [*terms[:k], *terms[k + 1 :]])
                if found is not None:
                    return found
    return None


@rule(
    law="log(softmax_{j: c}(e)) = log_softmax_{j: c}(e) where a row of nothing is nan",
    before="x[M, N]; bool m[N]; y[i,j] = log(softmax[j, m[j]](x[i,j]))",
    after="x[M, N]; bool m[N]; y[i,j] = log_softmax[j, m[j]](x[i,j])",
    refuses="x[M, N]; bool m[N]; y[i,j] = log(softmax[j, m[j]](x[i,j]) + 1)",
    nan_rows=True,
)
def find_masked_log_softmax(expr: ir.Expr) -> ir.Expr | None:
    """Write the log of a masked softmax as a log_softmax, unless an empty row is zeros."""
    match expr:
        case ir.Call("log", (ir.Along("softmax", index, condition, body),)):
            return ir.Along("log_softmax", index, condition, body)
    return None


def _find_normalised(term: ir.Expr, others: Sequence[ir.Expr]) -> ir.Expr | None:
    """The log_softmax of the terms under a subtracted logsumexp, plus the other terms."""
    match term:
        case ir.Mul((sign, ir.Reduce("logsumexp", (summed,), condition, logit))) if (
            sign is ir.MINUS_ONE
        ):
            if find_free(condition):
                return None
        case _:
            return None
    wanted = ir.split_sum(logit)
    for chosen in combinations(range(len(others)), len(wanted)):
        one = ir.sum_of([others[k] for k in chosen])
        index = match_index(one, logit, summed)
        if index is not None:
            rest = [other for k, other in enumerate(others) if k not in chosen]
            return ir.sum_of([*rest, ir.Along("log_softmax", index, condition, one)])
    return None
