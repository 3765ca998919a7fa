# ruff: noqa: N803 - the names of parameters are torch's
"""Rows of functions of torch that are defined by other functions of torch.

A row has names, a definition, and examples. The parameters have torch's names, for keyword
arguments. The definition runs in place of the call, and its results are checked against torch's.
"""

import math
from collections.abc import Callable
from functools import partial, reduce
from operator import ge, le, matmul
from typing import Any

from derive.errors import refuse
from derive.frontend.torch.call import composite
from derive.frontend.torch.numbers import is_symbolic
from derive.frontend.torch.ops.views import clamp, to_list
from derive.libraries import torch


def refuse_call(says: str, code: str = "lift-op", help: str = "") -> Any:
    """Raise DeriveError for a call whose arguments a definition does not support."""
    raise refuse(code, says, help=help)


# Joins, splits, permutations of elements.


def _stack(tensors: Any, axis: int, vectors: int) -> Any:
    """hstack, vstack, column_stack: vectors get an axis at `vectors`; -1 joins them as they are."""
    if vectors < 0 and all(each.dim() == 1 for each in tensors):
        return torch.cat(tensors, 0)
    wide = [each.unsqueeze(vectors) if each.dim() == 1 else each for each in tensors]
    return torch.cat(wide, axis)


def _keep_where(input: Any, mask: Any) -> Any:
    """Return the elements where the mask is true, and 0 elsewhere."""
    return torch.where(mask, input, False if input.dtype is torch.bool else 0)


def _triangle(input: Any, diagonal: Any = 0, *, keep: Callable[[Any, Any], Any]) -> Any:
    rows, columns = (torch.arange(length) for length in input.shape[-2:])
    return _keep_where(input, keep(columns - rows[:, None], diagonal))


def _repeat_each(input: Any, repeats: Any, dim: Any = None, **_: Any) -> Any:
    """Return repeat_interleave: each element `repeats` times in a row, along an axis."""
    if not isinstance(repeats, int) or dim is None:
        refuse_call("repeat_interleave without a dimension is not known")
    axis = dim % input.dim()
    lengths = [-1] * (input.dim() + 1)
    lengths[axis + 1] = repeats
    return input.unsqueeze(axis + 1).expand(lengths).flatten(axis, axis + 1)


def _repeat(input: Any, *counts: Any, **named: Any) -> Any:
    """Return repeat or tile: copies along each axis; missing counts of leading axes are 1."""
    given = (*named.values(), *counts)
    counts = tuple(given[0]) if isinstance(given[0], (tuple, list)) else given
    input = input[(None,) * (len(counts) - input.dim())]
    for dim, count in enumerate(counts, -len(counts)):
        if is_symbolic(count) or count != 1:
            length = input.shape[dim]
            input = input.index_select(dim, torch.arange(length * count) % length)
    return input


def _test_all(input: Any, dim: Any = None, keepdim: bool = False, *, kind: str) -> Any:
    """Return any (`kind` "amax", the largest truth value) or all ("amin", the smallest)."""
    truths = input if input.dtype is torch.bool else input != 0
    return getattr(truths.long(), kind)(() if dim is None else dim, keepdim) > 0


def _flip(input: Any, dim: int) -> Any:
    length = input.shape[dim]
    return input.index_select(dim, length - 1 - torch.arange(length))


def _split_evenly(input: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """Return tensor_split: pieces between positions, or so many pieces, the longer ones first."""
    total = input.shape[dim]
    if isinstance(indices_or_sections, (tuple, list)):
        ends = [*(clamp(each, total) for each in indices_or_sections), total]
        lengths = [end - start for start, end in zip((0, *ends), ends, strict=False)]
        if any(length < 0 for length in lengths):
            refuse_call("pieces that overlap are not known")
        return input.split(lengths, dim)
    count = int(indices_or_sections)
    if total % count == 0:
        return input.split([total // count] * count, dim)
    each, more = divmod(int(total), count)
    return input.split([each + 1] * more + [each] * (count - more), dim)


def _roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    """Return roll: the elements shifted cyclically along axes, or in flat order."""
    if dims is None or dims in ((), []):
        return input.flatten().roll(shifts, 0).view(input.shape)
    for shift, dim in zip(to_list(shifts), to_list(dims), strict=True):
        length = input.shape[dim]
        input = input.index_select(dim, (torch.arange(length) - shift) % length)
    return input


def _pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """Return pad: with a constant, by reflection, by the nearest element, or circularly."""
    if mode == "constant":
        return torch.constant_pad_nd(input, pad, 0 if value is None else value)
    for dim, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        if not is_symbolic(before) and not is_symbolic(after) and before == 0 == after:
            continue
        length = input.shape[-dim]
        places = torch.arange(length + before + after) - before
        if mode == "circular":
            places = places % length
        elif mode == "replicate":
            places = places.clamp(0, length - 1)
        else:
            _ = length > max(before, after)  # records the condition
            places = places if not is_symbolic(before) and before == 0 else places.abs()
            back = length - 1 - (length - 1 - places).abs()
            places = places if not is_symbolic(after) and after == 0 else back
            places = places.clamp(0, length - 1)
        input = input.index_select(-dim, places)
    return input


def _mesh(*tensors: Any, indexing: str = "ij") -> Any:
    given = tensors[0] if isinstance(tensors[0], (tuple, list)) else tensors
    order = list(range(len(given)))
    if indexing == "xy":
        order[:2] = order[:2][::-1]
    lengths = [given[k].numel() for k in order]
    shapes = [[-1 if k == number else 1 for k in order] for number in range(len(given))]
    return tuple(each.reshape(own).expand(lengths) for each, own in zip(given, shapes, strict=True))


def _flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    rank = max(input.dim(), 1)
    start, end = start_dim % rank, end_dim % rank
    return input.reshape((*input.shape[:start], -1, *input.shape[end + 1 :]))


def _chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    total = input.shape[dim]
    whole = total % chunks == 0
    return input.split([total // chunks] * chunks if whole else -(-int(total) // chunks), dim)


def _fill_diagonal(x: Any, fill_value: Any, wrap: bool = False) -> Any:
    if wrap or x.dim() != 2:
        refuse_call("only the diagonal of a matrix is filled")
    x.diagonal().fill_(fill_value)
    return x


# Elementwise functions.


def _if_real(input: Any, test: Callable[[Any], Any], otherwise: bool) -> Any:
    """Return the mask `test(input)` for real numbers, a mask of `otherwise` for other kinds."""
    if input.is_floating_point():
        return test(input)
    return torch.full_like(input, otherwise, dtype=torch.bool)


def _log_times(input: Any, other: Any) -> Any:
    """Return xlogy: input * log(other), and 0 where the input is 0 and the other is not nan."""
    whole = input * other.log()
    return torch.where((input == 0) & (other == other), 0.0, whole)


# Reductions and products.


def _extreme(
    input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None, kind: str
) -> Any:
    """Return max or min: of all elements, of two tensors, or (values, positions) on an axis."""
    other = dim if hasattr(dim, "dtype") else other
    if other is not None:
        return getattr(torch, f"{kind}imum")(input, other)
    if dim is None:
        return getattr(input, f"a{kind}")()
    parts = getattr(input, f"a{kind}")(dim, keepdim), getattr(input, f"arg{kind}")(dim, keepdim)
    return getattr(torch.return_types, kind)(parts)


def _with_mean(input: Any, *args: Any, power: float, **named: Any) -> Any:
    dims = named.get("dim", args[0] if args else None)
    keepdim = named.get("keepdim", len(args) > 2 and args[2])
    mean = input.mean() if isinstance(dims, bool) else input.mean(dims, keepdim)
    spread = input.var(*args, **named)
    return spread if power == 1 else spread**power, mean


def _norm(
    input: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, ord: Any = None, **_: Any
) -> Any:
    order = p if ord is None else ord
    order = 2 if order is None or order == "fro" else order
    if isinstance(order, str) or not order > 0:
        refuse_call(f"a norm of order {order} is not known")
    if order == 2:
        return (input**2).sum(dim, keepdim) ** 0.5
    if order == math.inf:
        return input.abs().amax(() if dim is None else dim, keepdim)
    if order == 1:
        return input.abs().sum(dim, keepdim)
    return (input.abs() ** order).sum(dim, keepdim) ** (1 / order)


def _norm_of_matrix(
    A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, least: int = 2, **_: Any
) -> Any:
    count = A.dim() if dim is None else 1 if isinstance(dim, int) else len(dim)
    if ord not in {None, "fro"} and count >= least:
        refuse_call(f"a norm of matrices of order {ord} is not known")
    return A.norm(2 if ord is None else ord, dim, keepdim)


def _solve_triangle(
    input: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    if unitriangular:
        refuse_call("a triangle with ones that are not written is not known")
    triangle = (input.triu() if upper else input.tril()).inverse()
    return triangle @ B if left else B @ triangle


def _solve(A: Any, B: Any, *, left: bool = True, **_: Any) -> Any:
    if B.dim() == 1 or (B.dim() == A.dim() - 1 and B.shape == A.shape[:-1]):
        return (A.inverse() @ B.unsqueeze(-1)).squeeze(-1)
    return A.inverse() @ B if left else B @ A.inverse()


def _add_to(multiply: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the definition of addmm and the like: beta * input + alpha * multiply(factors)."""

    def run(input: Any, *factors: Any, beta: float = 1, alpha: float = 1, **named: Any) -> Any:
        product = multiply(*factors, *(named[name] for name in sorted(named)))
        product = product if alpha == 1 else alpha * product
        return product if beta == 0 else (input if beta == 1 else beta * input) + product

    return run


def _add_bias(found: Any, bias: Any) -> Any:
    return found if bias is None else found + bias


_NN = "torch.nn.functional"

# fmt: off
ROWS = (
    # views
    composite("mT", lambda input: input.transpose(-2, -1), "x[B, S, D]: x.mT"),
    composite("mH adjoint", lambda input: input.transpose(-2, -1).conj(),
        "x[B, S, D]: x.mH", "complex x[B, S, D]: x.mH"),
    composite("H", lambda input: input.t().conj(), "x[S, D]: x.H", "complex x[S, D]: x.H"),
    composite("vdot", lambda input, other: (input.conj() * other).sum(),
        "x, y[S]: x.vdot(y)", "complex x, y[S]: torch.vdot(x, y)"),
    composite("complex", lambda real, imag: real + 1j * imag, "x, y[S]: torch.complex(x, y)"),
    composite("expand_as", lambda input, other: input.expand(other.shape),
        "x[S]; y[B, S]: x.expand_as(y) * y"),
    composite("view_as", lambda input, other: input.view(other.shape),
        "x, y[B, S]: (x + 1).view_as(y)"),
    composite("reshape_as", lambda input, other: input.reshape(other.shape),
        "x[B, S]; y[S, B]: x.reshape_as(y)"),
    composite("flatten ravel", _flatten, "x[B, S, D]: x.flatten(1)"),
    composite("unflatten",
        lambda input, dim, sizes: input.reshape(
            (*input.shape[:dim % input.dim()], *sizes, *input.shape[dim % input.dim() + 1:])),
        "x[B, S, D]: x.flatten(1).unflatten(1, (x.shape[1], x.shape[2]))"),
    composite("select", lambda input, dim, index: input.movedim(dim, 0)[index],
        "x[B, S]: x.select(1, -1)"),
    composite("chunk", _chunk, "x[B, S]: torch.cat((x, x), 1).chunk(2, 1)[1]"),
    composite("unbind",
        lambda input, dim=0: tuple(input.select(dim, k) for k in range(int(input.shape[dim]))),
        "x[B, S]: x.unbind(0)[1]"),
    composite("trace", lambda input: input.diagonal().sum(), "x[S, S]: x.trace()"),
    # put together, taken, moved
    composite("hstack", partial(_stack, axis=1, vectors=-1),
        "x[B, S]; y[B, T]: torch.hstack((x, y))"),
    composite("vstack row_stack", partial(_stack, axis=0, vectors=0),
        "x[S]; y[S]: torch.vstack((x, y))"),
    composite("column_stack", partial(_stack, axis=1, vectors=1),
        "x[S]; y[S]: torch.column_stack((x, y))"),
    composite("stack",
        lambda tensors, dim=0: torch.cat([each.unsqueeze(dim) for each in tensors], dim),
        "x[B, S]; y[B, S]: torch.stack((x, y), -1)"),
    composite("diag_embed",
        lambda input, offset=0, dim1=-2, dim2=-1: (
            refuse_call("diag_embed beside the diagonal is not known")
            if offset or (dim1, dim2) != (-2, -1)
            else _keep_where(input.unsqueeze(-1), torch.eye(input.shape[-1], dtype=torch.bool))),
        "x[B, S]: x.diag_embed()"),
    composite("diag",
        lambda input, diagonal=0: (input.diag_embed(diagonal) if input.dim() == 1
            else input.diagonal(diagonal).clone()),
        "x[S]: torch.diag(x)", "x[S, S]: torch.diag(x, 1)"),
    composite("take", lambda input, index: input.flatten()[index],
        "x[B, V]; int t[S] < V: x.take(t)"),
    composite("take_along_dim", lambda input, indices, dim: input.gather(dim, indices),
        "x[B, V]; int t[B] < V: x.take_along_dim(t[:, None], 1)[:, 0]"),
    composite("one_hot",
        lambda tensor, num_classes=-1: (
            refuse_call("one_hot without num_classes depends on data") if num_classes < 0
            else (tensor[..., None] == torch.arange(num_classes)).long()),
        "int t[B] < V; E[V, D]: torch.nn.functional.one_hot(t, E.shape[0])"),
    composite("repeat_interleave", _repeat_each, "x[B, S]: x.repeat_interleave(2, dim=1)"),
    composite("repeat tile", _repeat, "x[B, S]: x.repeat(1, 2)"),
    composite("flip",
        lambda input, *dims: reduce(_flip, dims[0] if isinstance(dims[0], (tuple, list)) else dims,
            input),
        "x[B, S]: x.flip(1)"),
    composite("tensor_split", _split_evenly, "x[B, S]: torch.cat((x, x), 1).tensor_split(2, 1)[1]"),
    composite("fliplr", lambda input: input.flip(1), "x[B, S]: x.fliplr()"),
    composite("flipud", lambda input: input.flip(0), "x[B, S]: x.flipud()"),
    composite("addcdiv",
        lambda input, tensor1, tensor2, *, value=1: input + value * tensor1 / tensor2,
        "x[S]; y[S]; z[S]: torch.addcdiv(x, y, z)"),
    composite("polar", lambda abs, angle: abs * torch.exp(1j * angle),
        "x, y[S]: torch.polar(x, y)"),
    composite("isneginf", lambda input: _if_real(input, lambda x: x == -math.inf, False),
        "x[S]; bool m[S]: x * torch.where(m, -torch.inf, 0.0).isneginf()"),
    composite("isposinf", lambda input: _if_real(input, lambda x: x == math.inf, False),
        "x[S]; bool m[S]: x * torch.where(m, torch.inf, 0.0).isposinf()"),
    composite("dist", lambda input, other, p=2: (input - other).norm(p=p),
        "x, y[S, D]: torch.dist(x, y)"),
    composite("addr", _add_to(lambda one, other: one[:, None] * other),
        "x[B]; y[S]; z[B, S]: torch.addr(z, x, y, alpha=2)"),
    composite("addbmm", _add_to(lambda one, other: (one @ other).sum(0)),
        "x[B, T, S]; y[B, S, D]; z[T, D]: torch.addbmm(z, x, y, beta=0.5)"),
    composite("logit special_logit",
        lambda input, eps=None: (
            (x := input if eps is None else input.clamp(eps, 1 - eps)) / (1 - x)).log(),
        "x[S]: x.sigmoid().logit()"),
    composite("roll", _roll, "x[B, S]: x.roll(1, 1)", "x[B, S]: x.roll(-2)"),
    composite("pad", _pad,
        f"x[B, S]: {_NN}.pad(x, (1, 2))",
        f"x[B, S + 2, T + 2]: {_NN}.pad(x, (1, 2, 0, 1), mode='reflect')",
        f"x[B, C, S]: {_NN}.pad(x, (1, 2), mode='replicate')",
        f"x[B, C, S + 2]: {_NN}.pad(x, (1, 2), mode='circular')"),
    composite("tril", partial(_triangle, keep=le), "x[S, T]: x.tril()"),
    composite("triu", partial(_triangle, keep=ge), "x[S, T]: x.triu(1)"),
    composite("masked_fill", lambda input, mask, value: torch.where(mask, value, input),
        "x[B, S]; bool m[S]: x.masked_fill(m, 0.5)"),
    composite("meshgrid", _mesh,
        "x[S]; y[T]: sum(torch.meshgrid(x, y, indexing='ij'))",
        "x[S]: torch.meshgrid(x, x, indexing='ij')[1]",
        "x[S]: torch.meshgrid(x, x, indexing='xy')[1]"),
    # made and filled
    composite("linspace",
        lambda start, end, steps, **_: (
            torch.full((steps,), start + 0.0) if steps < 2
            else start + (end - start) * (torch.arange(steps) / (steps - 1))),
        "x[B, S]: x * torch.linspace(0, 1, x.shape[1])"),
    composite("eye",
        lambda n, m=None, *, dtype=None, **_: (
            torch.arange(n)[:, None] == torch.arange(n if m is None else m)
        ).to(torch.float64 if dtype is None else dtype),
        "x[S, S]: x + torch.eye(x.shape[0])"),
    composite("fill_diagonal_", _fill_diagonal, "x[S, S]: y = x.clone(); y.fill_diagonal_(0); y"),
    composite("zero_", lambda input: input.fill_(0), "x[B, S]: y = x.clone(); y[0].zero_(); y"),
    # elements
    composite("clamp_min", lambda input, min: input.clamp(min=min), "x[S]: x.clamp_min(1)"),
    composite("clamp_max", lambda input, max: input.clamp(max=max), "x[S]: x.clamp_max(1)"),
    composite("isinf",
        lambda input: _if_real(input, lambda x: (x == -math.inf) | (x == math.inf), False),
        "x[S]: torch.where(torch.isinf(torch.zeros(3)[0]), x, 2 * x)",
        "x[S]; bool m[S]: x * torch.isinf(torch.where(m, torch.inf, 0.0))"),
    composite("isfinite",
        lambda input: _if_real(input, lambda x: (x < math.inf) & (x > -math.inf), True),
        "x[S]; bool m[S]: x * torch.isfinite(x.masked_fill(m, -torch.inf) - 1)"),
    composite("lerp", lambda input, end, weight: input + weight * (end - input),
        "x[S]; y[S]: torch.lerp(x, y, 0.25)"),
    composite("addcmul",
        lambda input, tensor1, tensor2, *, value=1: input + value * tensor1 * tensor2,
        "x[S]; y[S]; z[S]: torch.addcmul(x, y, z, value=2)"),
    composite("prelu",
        lambda input, weight: torch.where(input > 0, input, (
            weight.reshape(-1, *([1] * (input.dim() - 2)))
            if weight.dim() == 1 and input.dim() > 1 else weight) * input),
        f"x[B, C, S]; w[C]: {_NN}.prelu(x, w)", f"x[S]; w[1]: {_NN}.prelu(x, w)"),
    composite("glu",
        lambda input, dim=-1: (half := input.chunk(2, dim))[0] * half[1].sigmoid(),
        f"x[B, 2]; y[S]: {_NN}.glu(x, -1) * y"),
    composite("xlogy special_xlogy", _log_times, "x, y[S]: torch.xlogy((x - 1).relu(), y.relu())"),
    # reductions
    composite("max", partial(_extreme, kind="max"), "x[B, S]: x.max(1).values", "x[B, S]: x.max()"),
    composite("any", partial(_test_all, kind="amax"),
        "x[B]; bool m[B, S]: torch.where(m.any(1), x, 0.0)"),
    composite("all", partial(_test_all, kind="amin"),
        "x[B, S]: torch.where((x > 0).all(1, keepdim=True), x, 0.0)"),
    composite("min", partial(_extreme, kind="min"), "x[B, S]; y[S]: torch.min(x, y)"),
    composite("argmin", lambda input, dim=None, keepdim=False: (-input).argmax(dim, keepdim),
        "x[B, S]; y[S]: y[x.argmin(1)]"),
    composite("count_nonzero", lambda input, dim=None: (input != 0).sum(dim),
        "x[B, S]: torch.count_nonzero(x.relu(), 1) * 1.0"),
    composite("std", lambda input, *args, **named: input.var(*args, **named) ** 0.5,
        "x[B, S]: x.std(-1, unbiased=False, keepdim=True)"),
    composite("var_mean", partial(_with_mean, power=1),
        "x[B, S]: torch.var_mean(x, 1, correction=0)[0]"),
    composite("std_mean", partial(_with_mean, power=0.5),
        "x[B, S]: torch.std_mean(x, 1, keepdim=True)[1]"),
    composite("norm vector_norm linalg_vector_norm", _norm,
        "x[B, S]: x.norm(dim=1)", "x[B, S]: torch.linalg.vector_norm(x, 3, dim=-1)"),
    composite("linalg_norm", _norm_of_matrix,
        "x[B, S]: torch.linalg.norm(x, ord=torch.inf, dim=-1)"),
    composite("linalg_matrix_norm matrix_norm",
        lambda A, ord="fro", dim=(-2, -1), keepdim=False: (
            _norm_of_matrix(A, ord, dim, keepdim, least=0)),
        "x[B, S, D]: torch.linalg.matrix_norm(x)"),
    # matrices
    composite("linalg_solve_triangular", _solve_triangle,
        "x[S, S]; y[S, D]: torch.linalg.solve_triangular(x, y, upper=False)"),
    composite("cholesky_solve",
        lambda input, L, upper=False: (
            ((root := L.mT.tril() if upper else L.tril()) @ root.mT).inverse() @ input),
        "x[S, S]; y[S, D]: torch.cholesky_solve(y, x)"),
    composite("slogdet linalg_slogdet",
        lambda A: torch.return_types.slogdet(((det := A.det()).sign(), det.abs().log())),
        "x[S, S]: torch.linalg.slogdet(x).logabsdet", "x[S, S]: x.slogdet()[0]"),
    composite("matrix_power linalg_matrix_power",
        lambda A, n: (
            reduce(matmul, [A if n > 0 else A.inverse()] * abs(n)) if n
            else refuse_call("the power 0 of a matrix is not known")),
        "x[S, S]: torch.linalg.matrix_power(x, -2)"),
    composite("linalg_solve", _solve,
        "x[S, S]; y[S]: torch.linalg.solve(x, y)",
        "x[B, S, S]; y[B, D, S]: torch.linalg.solve(x, y, left=False)"),
    # products
    composite("rmatmul", lambda input, other: other.matmul(input)),
    composite("inner",  # the last axes are summed; all others stay
        lambda input, other: (
            torch.tensordot(input, other, ([-1], [-1])) if input.dim() and other.dim()
            else input * other),
        "x, y[S, S]: torch.inner(x, y)", "x[B, S]; y[T, S]: torch.inner(x, y)"),
    composite("outer ger", lambda input, vec2: input[:, None] * vec2,
        "x[S]; y[T]: torch.outer(x, y)"),
    composite("linear",
        lambda input, weight, bias=None: (
            _add_bias(input @ (weight.mT if weight.dim() > 1 else weight), bias)),
        "x[B, S]; w[T, S]; b[T]: torch.nn.functional.linear(x, w, b)"),
    composite("bilinear",
        lambda input1, input2, weight, bias=None: (
            _add_bias(torch.einsum("...i,...j,oij->...o", input1, input2, weight), bias)),
        "x[B, S]; y[B, T]; w[O, S, T]: torch.nn.functional.bilinear(x, y, w)"),
    composite("multi_dot chain_matmul linalg_multi_dot",
        lambda *tensors: reduce(matmul,
            tensors[0] if isinstance(tensors[0], (tuple, list)) else tensors),
        "x[B, S]; y[S, T]; z[T, D]: torch.linalg.multi_dot((x, y, z))"),
    composite("addmm baddbmm addmv", _add_to(matmul),
        "b[E]; x[S, D]; y[D, E]: torch.addmm(b, x, y)",
        "b[S, T]; x[B, S, D]; y[B, D, T]: torch.baddbmm(b, x, y, beta=0.5, alpha=2)"),
    composite("linalg_vecdot vecdot", lambda x, y, *, dim=-1: (x.conj() * y).sum(dim),
        "x, y[S, D]: torch.linalg.vecdot(x, y, dim=0)",
        "complex x, y[B, S]: torch.linalg.vecdot(x, y)"),
    composite("cdist",
        lambda x1, x2, p=2.0, *_, **__: (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p=p, dim=-1),
        "x[B, T, D]; y[B, S, D]: torch.cdist(x, y)"),
)
