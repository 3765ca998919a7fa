"""Products: matmul in all its ranks, einsum in all its spellings, and what is made of them."""

from __future__ import annotations

from functools import reduce
from operator import matmul
from typing import TYPE_CHECKING, Any

from derive.errors import refuse
from derive.frontend.from_einsum import Fault, read_einsum, write_sublists
from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.exprs import multiply
from derive.frontend.torch.ops.sums import fold
from derive.frontend.torch.trace import Shadow, at
from derive.ir import nodes as ir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from derive.frontend.torch.trace import Trace


def contract(
    trace: Trace, parts: Sequence[Shadow], names: Sequence[Sequence[str]], out: Sequence[str]
) -> Shadow:
    """Sum over the names that are not in `out` of the product; a name is one index."""
    indices: dict[str, ir.Index] = {}
    for part, own in zip(parts, names, strict=True):
        for name, index in zip(own, part.indices, strict=True):
            known = indices.get(name)
            if known is None or (known.extent is ir.ONE and index.extent is not ir.ONE):
                indices[name] = trace.indices.copy(index)
            elif index.extent is not ir.ONE:
                trace.unify(known.extent, index.extent)
    factors = []
    for part, own in zip(parts, names, strict=True):
        pairs = zip(own, part.indices, strict=True)
        places = [at(old if old.extent is ir.ONE else indices[name]) for name, old in pairs]
        factors.append(trace.read_number(part, places))
    bound = [
        each for name, each in indices.items() if name not in out and each.extent is not ir.ONE
    ]
    value = fold("sum", bound, multiply(*factors))
    kind = "real" if any(part.kind == "real" for part in parts) else "int"
    return trace.make([indices[name] for name in out], value, kind)


def _matmul(call: Call) -> Shadow:
    """`one @ other`: leading axes are broadcast."""
    second = next((name for name in ("mat2", "vec", "tensor") if name in call.named), "other")
    one, other = call.shadow(0), call.shadow(1, second)
    lead = [f"b{k}" for k in range(max(one.rank, other.rank) - 2)]
    left, right = (
        ["k"] if part.rank == 1 else [*lead[len(lead) - part.rank + 2 :], *last]
        for part, last in ((one, "ik"), (other, "kj"))
    )
    out = [*lead, *("i" if one.rank > 1 else ""), *("j" if other.rank > 1 else "")]
    return contract(call.trace, (one, other), (left, right), out)


def _einsum(call: Call) -> Shadow:
    """The equation and the operands; lists of numbers are indices."""
    first, rest = call.get(0, "equation"), call.args[1:]
    if isinstance(first, str):
        operands = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
    else:
        has_output = len(call.args) % 2 == 1
        lists = [*call.args[1::2], *(call.args[-1:] if has_output else ())]
        terms = [[None if n is Ellipsis else n for n in each] for each in lists]
        first = write_sublists(terms, has_output=has_output)
        operands = call.args[: len(call.args) - has_output : 2]
    parts = [call.trace.shadow(operand) for operand in operands]
    spec = read_einsum(first)
    if isinstance(spec, Fault) or len(spec.operands) != len(parts):
        raise call.trace.refuse("lift-op", "the einsum string has another number of operands")
    return contract(call.trace, parts, *spec.expand([part.rank for part in parts]))


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


def _inner(input: Any, other: Any) -> Any:
    """The last axes are summed; all others stay."""
    import torch

    if not input.dim() or not other.dim():
        return input * other
    return torch.tensordot(input, other, ([-1], [-1]))


def _add_to(multiply: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Beta * input + alpha * product, as the addmm family has it; mat1 goes before mat2."""

    def run(input: Any, *factors: Any, beta: float = 1, alpha: float = 1, **named: Any) -> Any:
        product = multiply(*factors, *(named[name] for name in sorted(named)))
        product = product if alpha == 1 else alpha * product
        return product if beta == 0 else (input if beta == 1 else beta * input) + product

    return run


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    found = input @ (weight.mT if weight.dim() > 1 else weight)
    return found if bias is None else found + bias


def _bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    import torch

    found = torch.einsum("...i,...j,oij->...o", input1, input2, weight)
    return found if bias is None else found + bias


def _chain(*tensors: Any) -> Any:
    return reduce(matmul, tensors[0] if isinstance(tensors[0], (tuple, list)) else tensors)


def _matrix_norm(
    A: Any,  # noqa: N803 - torch's
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
) -> Any:
    if ord != "fro":
        raise refuse("lift-op", f"a norm of matrices of order {ord} is not known")
    return A.norm(2, dim, keepdim)


OPS = (
    op(
        "matmul mm bmm mv dot vdot",
        _matmul,
        "x[B, S, D]; y[D, E]: x @ y",
        "x[B, S, D]; y[B, T, D]: x @ y.mT",
        "x[S]; y[S]: x @ y",
        "x[B, S]; y[S]: torch.mv(x, y)",
    ),
    composite("rmatmul", lambda input, other: other.matmul(input)),
    composite(
        "inner", _inner, "x, y[S, S]: torch.inner(x, y)", "x[B, S]; y[T, S]: torch.inner(x, y)"
    ),
    composite(
        "outer ger", lambda input, vec2: input[:, None] * vec2, "x[S]; y[T]: torch.outer(x, y)"
    ),
    composite(
        "addmm baddbmm addmv",
        _add_to(matmul),
        "b[E]; x[S, D]; y[D, E]: torch.addmm(b, x, y)",
        "b[S, T]; x[B, S, D]; y[B, D, T]: torch.baddbmm(b, x, y, beta=0.5, alpha=2)",
    ),
    composite("linear", _linear, "x[B, S]; w[T, S]; b[T]: torch.nn.functional.linear(x, w, b)"),
    composite(
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
    composite(
        "multi_dot chain_matmul linalg_multi_dot",
        _chain,
        "x[B, S]; y[S, T]; z[T, D]: torch.linalg.multi_dot((x, y, z))",
    ),
    composite(
        "addr",
        _add_to(lambda one, other: one[:, None] * other),
        "x[B]; y[S]; z[B, S]: torch.addr(z, x, y, alpha=2)",
    ),
    composite(
        "addbmm",
        _add_to(lambda one, other: (one @ other).sum(0)),
        "x[B, T, S]; y[B, S, D]; z[T, D]: torch.addbmm(z, x, y, beta=0.5)",
    ),
    composite(
        "linalg_vecdot vecdot",
        lambda x, y, *, dim=-1: (x * y).sum(dim),
        "x, y[S, D]: torch.linalg.vecdot(x, y, dim=0)",
    ),
    composite(
        "linalg_matrix_norm matrix_norm", _matrix_norm, "x[B, S, D]: torch.linalg.matrix_norm(x)"
    ),
    composite(
        "cdist",
        lambda x1, x2, p=2.0, *_, **__: (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p=p, dim=-1),
        "x[B, T, D]; y[B, S, D]: torch.cdist(x, y)",
    ),
    composite(
        "dist", lambda input, other, p=2: (input - other).norm(p=p), "x, y[S, D]: torch.dist(x, y)"
    ),
)
