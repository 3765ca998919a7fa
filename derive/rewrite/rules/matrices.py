"""Functions of matrices."""

from __future__ import annotations

from derive.ir import nodes as ir
from derive.rewrite.rule import rule


@rule(
    law="log(det A) = logdet A",
    before="A[M, N, N]; y[b] = log(det[i, j](A[b,i,j]))",
    after="A[M, N, N]; y[b] = logdet[i, j](A[b,i,j])",
    refuses="A[M, N, N]; y[b] = log(1 + det[i, j](A[b,i,j]))",
)
def find_logdet(expr: ir.Expr) -> ir.Expr | None:
    """The logarithm of a determinant is found without it, which leaves the range of floats."""
    match expr:
        case ir.Call("log", (ir.Reduce("det", bound, condition, body),)):
            return ir.Reduce("logdet", bound, condition, body)
        case _:
            return None
