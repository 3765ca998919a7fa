"""Products: matmul in all its ranks, einsum in all its spellings, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from derive.errors import refuse
from derive.frontend.from_einsum import Fault, read_einsum, write_sublists
from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.exprs import add, multiply, to_number
from derive.frontend.torch.numbers import to_expr
from derive.frontend.torch.ops.sums import fold
from derive.frontend.torch.trace import Shadow, at
from derive.ir.nodes import ONE, Expr, Index

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Trace


def contract(
    trace: Trace, parts: Sequence[Shadow], names: Sequence[Sequence[str]], out: Sequence[str]
) -> Shadow:
    """Sum over the names that are not in `out` of the product; a name is one index."""
    indices: dict[str, Index] = {}
    for part, own in zip(parts, names, strict=True):
        for name, index in zip(own, part.indices, strict=True):
            known = indices.get(name)
            if known is None or (known.extent is ONE and index.extent is not ONE):
                indices[name] = trace.indices.copy(index)
            elif index.extent is not ONE:
                trace.unify(known.extent, index.extent)
    factors = [
        trace.read_number(
            part, [_place(indices[n], old) for n, old in zip(own, part.indices, strict=True)]
        )
        for part, own in zip(parts, names, strict=True)
    ]
    bound = [
        indices[name] for name in indices if name not in out and indices[name].extent is not ONE
    ]
    value = fold("sum", bound, multiply(*factors))
    kind = "real" if any(part.kind == "real" for part in parts) else "int"
    return trace.make([indices[name] for name in out], value, kind)


def _place(index: Index, own: Index) -> Expr:
    return at(own) if own.extent is ONE else at(index)


def matmul(trace: Trace, one: Shadow, other: Shadow) -> Shadow:
    """`one @ other`: leading axes are broadcast."""
    batch = max(one.rank - 2, other.rank - 2, 0)
    lead = [f"b{k}" for k in range(batch)]
    left = [*lead[batch - max(one.rank - 2, 0) :], "i", "k"][-one.rank or None :]
    left = ["k"] if one.rank == 1 else left
    right = [*lead[batch - max(other.rank - 2, 0) :], "k", "j"]
    right = ["k"] if other.rank == 1 else right
    out = [*lead, *(["i"] if one.rank > 1 else []), *(["j"] if other.rank > 1 else [])]
    return contract(trace, (one, other), (left, right), out)


def _matmul(call: Call) -> Shadow:
    return matmul(
        call.trace, call.shadow(0), call.shadow(1, "mat2" if "mat2" in call.named else "other")
    )


def _rmatmul(call: Call) -> Shadow:
    return matmul(call.trace, call.shadow(1, "other"), call.shadow(0))


def _inner(call: Call) -> Shadow:
    """The last axes are summed; all others stay."""
    one, other = call.shadow(0), call.shadow(1, "other")
    if not one.rank or not other.rank:
        raise call.trace.refuse("lift-op", f"{call.name} of a number is not known")
    left = [*(f"l{k}" for k in range(one.rank - 1)), "k"]
    right = [*(f"r{k}" for k in range(other.rank - 1)), "k"]
    return contract(call.trace, (one, other), (left, right), [*left[:-1], *right[:-1]])


def _outer(call: Call) -> Shadow:
    return contract(
        call.trace, (call.shadow(0), call.shadow(1, "vec2")), (["i"], ["j"]), ["i", "j"]
    )


def _add_product(call: Call) -> Shadow:
    """addmm, baddbmm, addmv: beta * input + alpha * product."""
    trace = call.trace
    names = ("mat", "vec") if call.name == "addmv" else ("mat1", "mat2")
    if "batch1" in call.named:
        names = ("batch1", "batch2")
    product = matmul(trace, call.shadow(1, names[0]), call.shadow(2, names[1]))
    added = call.shadow(0)
    beta, alpha = call.named.get("beta", 1), call.named.get("alpha", 1)
    indices = trace.broadcast(product, added)
    total = multiply(to_expr(alpha), trace.spread(product, indices))
    if beta:
        own = to_number(trace.spread(added, indices), added.kind)
        total = add(multiply(to_expr(beta), own), total)
    return trace.make(indices, total, "real")


def _linear(call: Call) -> Shadow:
    trace, value, weight = call.trace, call.shadow(0), call.shadow(1, "weight")
    lead = [f"b{k}" for k in range(value.rank - 1)]
    own = ["o", "k"] if weight.rank == 2 else ["k"]
    out = [*lead, "o"] if weight.rank == 2 else lead
    product = contract(trace, (value, weight), ([*lead, "k"], own), out)
    bias = call.get(2, "bias")
    if bias is None:
        return product
    added = trace.shadow(bias)
    indices = trace.broadcast(product, added)
    return trace.make(
        indices, add(trace.spread(product, indices), trace.spread(added, indices)), "real"
    )


def _bilinear(call: Call) -> Shadow:
    trace = call.trace
    one, other, weight = (
        call.shadow(0, "input1"),
        call.shadow(1, "input2"),
        call.shadow(2, "weight"),
    )
    lead = [f"b{k}" for k in range(one.rank - 1)]
    names = ([*lead, "i"], [*lead, "j"], ["o", "i", "j"])
    product = contract(trace, (one, other, weight), names, [*lead, "o"])
    bias = call.get(3, "bias")
    if bias is None:
        return product
    added = trace.shadow(bias)
    indices = trace.broadcast(product, added)
    return trace.make(
        indices, add(trace.spread(product, indices), trace.spread(added, indices)), "real"
    )


def _einsum(call: Call) -> Shadow:
    trace = call.trace
    equation, operands = _read_einsum(call)
    parts = [trace.shadow(operand) for operand in operands]
    spec = read_einsum(equation)
    if isinstance(spec, Fault) or len(spec.operands) != len(parts):
        raise trace.refuse("lift-op", "the einsum string has another number of operands")
    return contract(trace, parts, *spec.expand([part.rank for part in parts]))


def _read_einsum(call: Call) -> tuple[str, list[Any]]:
    """The equation and the operands; lists of numbers are indices."""
    first = call.get(0, "equation")
    if isinstance(first, str):
        rest = call.args[1:]
        operands = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
        return first, list(operands)
    has_output = len(call.args) % 2 == 1
    lists = [*call.args[1::2], *(call.args[-1:] if has_output else ())]
    terms = [[None if n is Ellipsis else n for n in each] for each in lists]
    end = len(call.args) - has_output
    return write_sublists(terms, has_output=has_output), list(call.args[:end:2])


def _tensordot(call: Call) -> Shadow:
    one, other = call.shadow(0, "a"), call.shadow(1, "b")
    dims = call.get(2, "dims", 2)
    if isinstance(dims, int):
        pairs = [(one.rank - dims + k, k) for k in range(dims)]
    else:
        pairs = [(a % one.rank, b % other.rank) for a, b in zip(*dims, strict=True)]
    left = [f"l{k}" for k in range(one.rank)]
    right = [f"r{k}" for k in range(other.rank)]
    for a, b in pairs:
        right[b] = left[a]
    inner = {left[a] for a, _ in pairs}
    out = [name for name in (*left, *right) if name not in inner]
    return contract(call.trace, (one, other), (left, right), out)


def _chain(call: Call) -> Shadow:
    given = call.args[0] if isinstance(call.args[0], (tuple, list)) else call.args
    parts = [call.trace.shadow(tensor) for tensor in given]
    found = parts[0]
    for part in parts[1:]:
        found = matmul(call.trace, found, part)
    return found


def _add_outer(input: Any, vec1: Any, vec2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    product = alpha * vec1[:, None] * vec2
    return product if beta == 0 else beta * input + product


def _add_batches(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    product = alpha * (batch1 @ batch2).sum(0)
    return product if beta == 0 else beta * input + product


def _vector_products(x: Any, y: Any, *, dim: int = -1) -> Any:
    return (x * y).sum(dim)


def _matrix_norm(
    A: Any,  # noqa: N803 - torch's
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
) -> Any:
    import torch

    if ord != "fro":
        raise refuse("lift-op", f"a norm of matrices of order {ord} is not known")
    return torch.linalg.vector_norm(A, 2, dim, keepdim)


def _distances(x1: Any, x2: Any, p: float = 2.0, *_: Any, **__: Any) -> Any:
    return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p=p, dim=-1)


def _distance(input: Any, other: Any, p: float = 2) -> Any:
    return (input - other).norm(p=p)


OPS = (
    op(
        "matmul mm bmm mv dot vdot",
        _matmul,
        "x[B, S, D]; y[D, E]: x @ y",
        "x[B, S, D]; y[B, T, D]: x @ y.mT",
        "x[S]; y[S]: x @ y",
        "x[B, S]; y[S]: torch.mv(x, y)",
    ),
    op("rmatmul", _rmatmul),
    op("inner", _inner, "x, y[S, S]: torch.inner(x, y)", "x[B, S]; y[T, S]: torch.inner(x, y)"),
    op("outer ger", _outer, "x[S]; y[T]: torch.outer(x, y)"),
    op(
        "addmm baddbmm addmv",
        _add_product,
        "b[E]; x[S, D]; y[D, E]: torch.addmm(b, x, y)",
        "b[S, T]; x[B, S, D]; y[B, D, T]: torch.baddbmm(b, x, y, beta=0.5, alpha=2)",
    ),
    op("linear", _linear, "x[B, S]; w[T, S]; b[T]: torch.nn.functional.linear(x, w, b)"),
    op(
        "bilinear", _bilinear, "x[B, S]; y[B, T]; w[O, S, T]: torch.nn.functional.bilinear(x, y, w)"
    ),
    op(
        "einsum",
        _einsum,
        "x[B, S, D]; y[B, T, D]: torch.einsum('bsd,btd->bst', x, y)",
        "x[B, S, D]; y[D, E]: torch.einsum('...d,de->...e', x, y)",
        "x[S, S]: torch.einsum('ii', x)",
        "x[B, S]; y[S, T]: torch.einsum(x, [0, 1], y, [1, 2], [0, 2])",
    ),
    op("tensordot", _tensordot, "x[B, S, D]; y[D, S]: torch.tensordot(x, y, ([1, 2], [1, 0]))"),
    op(
        "multi_dot chain_matmul linalg_multi_dot",
        _chain,
        "x[B, S]; y[S, T]; z[T, D]: torch.linalg.multi_dot((x, y, z))",
    ),
    composite("addr", _add_outer, "x[B]; y[S]; z[B, S]: torch.addr(z, x, y, alpha=2)"),
    composite(
        "addbmm", _add_batches, "x[B, T, S]; y[B, S, D]; z[T, D]: torch.addbmm(z, x, y, beta=0.5)"
    ),
    composite(
        "linalg_vecdot vecdot", _vector_products, "x, y[S, D]: torch.linalg.vecdot(x, y, dim=0)"
    ),
    composite(
        "linalg_matrix_norm matrix_norm", _matrix_norm, "x[B, S, D]: torch.linalg.matrix_norm(x)"
    ),
    composite("cdist", _distances, "x[B, T, D]; y[B, S, D]: torch.cdist(x, y)"),
    composite("dist", _distance, "x, y[S, D]: torch.dist(x, y)"),
)
