"""Rows of constant tensors, elementwise arithmetic, comparisons, logic, reductions and products.

Reductions include those that keep their axis (softmax, cumsum).
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from derive.analysis.names import is_condition
from derive.frontend.from_einsum import Fault, read_einsum, write_sublists
from derive.frontend.torch import exprs
from derive.frontend.torch.call import Act, Call, Op, op, write_through
from derive.frontend.torch.numbers import is_symbolic, to_expr
from derive.frontend.torch.trace import Shadow, at, find_address
from derive.ir import functions
from derive.ir import nodes as ir
from derive.ir.definitions import Maker, expand_call, read_definition
from derive.ir.functions import FUNCTIONS, find_by_torch_name
from derive.ir.polynomial import Polynomial

_MOST_PARTS = 8  # elements of a list with sizes that becomes a choice


@op(
    "zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones "
    "new_full new_empty",
    "x[B, S]: x + torch.ones(x.shape[0], 1)",
    "x[B, S]: x + torch.full_like(x, 0.5)",
    "x[B, S]: x + x.new_zeros(x.shape[1])",
    "x[B, S]: x + torch.full_like(x, x.sum())",
    "x[B, S]: torch.full((x.shape[0],), 2, dtype=torch.bool)",
)
def _fill(call: Call) -> Shadow:
    trace, name = call.trace, call.name
    first = int(name.startswith("new_"))  # position of the size, after the tensor if any
    is_full = "full" in name
    if name.endswith("_like"):
        indices = trace.fresh_indices(*call.shadow(0).indices)
    else:
        asked = call.argument(first, "size") if is_full else call.list_numbers(first, "size")
        indices = tuple(trace.index(trace.extent(length)) for length in asked)
    value = call.argument(first + 1, "fill_value") if is_full else int("ones" in name)
    return trace.make_tensor(indices, _to_value(call, value), call.kind)


def _to_value(call: Call, value: Any) -> ir.Expr:
    """Return a number, or the element of a tensor without axes, in the kind of the result."""
    if hasattr(value, "dtype"):
        shadow = call.trace.shadow(value)
        return _convert_value(
            call, shadow, call.trace.read_element(shadow, [ir.ZERO] * shadow.rank)
        )
    if call.kind == "bool":
        return ir.Truth(bool(value))
    if call.kind == "int" and not isinstance(value, int):
        value = int(value)
    return call.trace.constant(value if call.kind == "int" else value + 0, call.kind).buffer.value


def _convert_value(call: Call, shadow: Shadow, value: ir.Expr) -> ir.Expr:
    """Return an element of a tensor converted to the kind of the result."""
    if call.kind == shadow.kind:
        return value
    if shadow.kind == "complex" or (call.kind == "int" and shadow.kind == "real"):
        says = f"{shadow.kind} numbers cut to {call.kind} ones are not known"
        raise call.trace.refuse("lift-op", says)
    change = exprs.to_condition if call.kind == "bool" else exprs.to_number
    return change(value)


@op(
    "arange",
    "x[B, S]: x * torch.arange(x.shape[1])",
    "x[B, S]: x * torch.arange(1, x.shape[1] + 1)",
    "x[B, S]: x * torch.arange(1, end=x.shape[1] + 1)",
    "x[B, S]: x[:, :1] * torch.arange(0.5, 3.7)",
)
def _make_arange(call: Call) -> Shadow:
    """Return the vector start + step * index; a single argument is the end."""
    trace, given = call.trace, list(call.args)
    if any(not isinstance(each, (int, float)) for each in given):
        raise trace.refuse("lift-op", "arange to the value of a tensor is not known")
    if len(given) == 1 and "end" not in call.named:
        given = [0, *given]
    words = ("start", "end", "step")
    found = {"start": 0, "step": 1, **dict(zip(words, given, strict=False))}
    start, end, step = ({**found, **call.named}[word] for word in words)
    whole = all(isinstance(each, int) for each in (start, end, step))
    if call.kind == "int" and not whole:
        raise trace.refuse("lift-op", "integers counted between real numbers are not known")
    gap, is_one = end - start, not is_symbolic(step) and step == 1
    length = gap if is_one else -(-gap // step) if whole else gap / step
    index = trace.index(trace.extent(length if whole else math.ceil(length)))
    value = exprs.add(exprs.multiply(to_expr(step), at(index)), to_expr(start))
    return trace.make_tensor((index,), value, call.kind)


@op(
    "tensor as_tensor scalar_tensor new_tensor",
    "x[B, S]: x * torch.tensor(0.5)",
    "x[B, S]: x * torch.tensor([x.shape[0]])",
    "x[B, S]: torch.tensor([x.shape[0], x.shape[1]])",
    "x[B, S]: x * x.new_tensor(0.5)",
)
def _literal(call: Call) -> Shadow:
    """Return the tensor of literal data: numbers, some of them symbolic, or a constant table."""
    trace = call.trace
    value = call.argument(1 if call.name == "new_tensor" else 0, "data")
    if hasattr(value, "dtype"):
        shadow = trace.shadow(value)
        if shadow.kind != call.kind:
            says = f"{call.name} of a tensor to another type is not known"
            raise trace.refuse("lift-op", says, "use .to(dtype)")
        shared = find_address(value) == find_address(call.out)
        return shadow if shared else trace.copy(shadow)
    if isinstance(value, (int, float)):
        return trace.make_tensor((), _to_value(call, value), call.kind)

    def open_list(part: Any) -> list[Any]:
        is_list = isinstance(part, (list, tuple))
        return [each for inner in part for each in open_list(inner)] if is_list else [part]

    parts = open_list(value)
    if not any(map(is_symbolic, parts)):
        return trace.shadow(call.out)
    if call.out.dim() != 1 or len(parts) > _MOST_PARTS:
        trace.watch.fix(*map(to_expr, parts))
        return trace.shadow(call.out)
    index = trace.index(trace.extent(len(parts)))
    found = exprs.choose_element(at(index), [_to_value(call, each) for each in parts])
    return trace.make_tensor((index,), found, call.kind)


@op("data", "x[B, S]: y = x.clone(); y.data[0] = 4; y", is_view=True)
def _share_data(call: Call) -> Shadow:
    return call.shadow(0)


@op(
    "copy_ fill_",
    "x[B, S]: y = torch.zeros_like(x); y.copy_(x); y",
    "x[B, S]: y = x.clone(); y[:, 0].fill_(2.0); y",
    "x[S, S]: y = x.clone(); y.diagonal().fill_(0); y",
    is_write=True,
)
def _copy(call: Call) -> Shadow:
    value = call.shadow(1, "src" if call.name == "copy_" else "value")
    write_through(call.trace, call.shadow(0), value)
    return call.shadow(0)


@op(
    "contiguous clone detach to type double float type_as alias requires_grad_ half bfloat16 "
    "bool long int cfloat cdouble resolve_conj resolve_neg",
    "x[S]; complex z[S]: x.to(z.dtype) * z.resolve_conj()",
    "x[S]; int t[S] < S: torch.where(t.bool(), x, 0.0)",
    "x[S]; bool m[S]: x * m.long()",
    "x[B, S]: x.mT.contiguous()",
    "x[S]; bool m[S]: x * m.float()",
    is_view=True,
)
def _convert(call: Call) -> Shadow:
    """Return the tensor converted to the kind of the result; all float types are one kind."""
    trace, shadow = call.trace, call.shadow(0)
    if call.kind == shadow.kind:
        return shadow
    indices = trace.fresh_indices(*shadow.indices)
    value = trace.read_element(shadow, [at(index) for index in indices])
    return trace.make_tensor(indices, _convert_value(call, shadow, value), call.kind)


# Elementwise functions, under broadcasting.


def _spread(call: Call, *values: Any) -> tuple[tuple[ir.Index, ...], list[ir.Expr]]:
    """Return (indices of the broadcast shape, the element of each operand there)."""
    shadows = [call.trace.shadow(value) for value in values]
    indices = call.trace.broadcast(*shadows)
    return indices, [call.trace.read_broadcast(shadow, indices) for shadow in shadows]


def _apply(call: Call, act: Callable[..., ir.Expr], *values: Any) -> Shadow:
    """Return the tensor of `act(element, ..)` under broadcasting."""
    indices, elements = _spread(call, *values)
    return call.trace.make_tensor(indices, act(*map(exprs.to_number, elements)), call.kind)


def _map(names: str, act: Callable[..., ir.Expr], *examples: str, count: int = 2) -> Op:
    """Return the row of an elementwise function of `count` operands; `alpha` scales the second."""

    def run(call: Call) -> Shadow:
        values = [call.argument(k, ("input", "other")[k]) for k in range(count)]
        is_backward = call.name in {"rsub", "rdiv", "rpow"}
        values = values[::-1] if is_backward else values
        if "alpha" not in call.named:
            return _apply(call, act, *values)
        factor = to_expr(call.named["alpha"])
        return _apply(call, lambda a, b: act(a, exprs.multiply(factor, b)), *values)

    return Op(names, run, examples)


@op("div divide true_divide", "x[B, S]; y[S]: x / y")
def _divide(call: Call) -> Shadow:
    mode = call.named.get("rounding_mode")
    if mode not in {None, "floor"}:
        raise call.trace.refuse("lift-op", f"rounding_mode={mode!r} is not known")
    values = call.argument(0, "input"), call.argument(1, "other")
    if mode is None:
        return _apply(call, exprs.divide, *values)
    return _apply(call, lambda *pair: ir.Call("floordiv", pair), *values)


@op("floor_divide remainder", "x[S]: x[torch.arange(x.shape[0]) // 2]")
def _divide_integers(call: Call) -> Shadow:
    """Return // or % of integers; DeriveError for reals."""
    if call.kind != "int":
        raise call.trace.refuse("lift-op", f"{call.name} of real numbers is not known")
    name = "floordiv" if "floor" in call.name else "mod"
    values = call.argument(0, "input"), call.argument(1, "other")
    return _apply(call, lambda *pair: ir.Call(name, pair), *values)


@op("clamp clip", "x[S]: x.clamp(0.7, 1.2)", "x[S]: x.clamp(min=1)")
def _clamp(call: Call) -> Shadow:
    low, high = call.argument(1, "min"), call.argument(2, "max")
    name = "max" if high is None else "min" if low is None else "clip"
    given = [each for each in (low, high) if each is not None]
    return _apply(call, lambda *values: ir.Call(name, values), call.argument(0, "input"), *given)


@op("eq ne lt le gt ge", "x[B, S]; y[S]: torch.where(x <= y, x, 0.0)")
def _compare(call: Call) -> Shadow:
    relation = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[call.name]
    indices, parts = _spread(call, call.argument(0, "input"), call.argument(1, "other"))
    if all(map(is_condition, parts)) and relation in {"==", "!="}:
        same = _agree(*parts)
        found = same if relation == "==" else exprs.negate_truth(same)
    else:
        found = exprs.compare(relation, *map(exprs.to_number, parts))
    return call.trace.make_tensor(indices, found, "bool")


def _agree(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    """Return the condition that two conditions have the same truth value."""
    return exprs.choose(one, other, exprs.negate_truth(other))


@op(
    "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor bitwise_not logical_not",
    "x[S]; bool m[S]; bool n[S]: torch.where(m & n, x, 0.0)",
    "x[S]; bool m[S]; bool n[S]: torch.where(m | ~n, x, 0.0)",
    "x[S]; bool m[S]: torch.where(~m, x, 0.0)",
)
def _logic(call: Call) -> Shadow:
    """Return and, or, xor, not of truth values; DeriveError for bits of integers."""
    prefix, _, word = call.name.partition("_")
    given = [call.argument(0, "input"), *([] if word == "not" else [call.argument(1, "other")])]
    indices, parts = _spread(call, *given)
    if prefix == "bitwise" and not all(map(is_condition, parts)):
        raise call.trace.refuse("lift-op", f"{call.name} of integers is not known")
    acts: dict[str, Callable[..., ir.Expr]] = {
        "and": ir.all_of,
        "or": ir.any_of,
        "xor": lambda one, other: _agree(one, exprs.negate_truth(other)),
        "not": exprs.negate_truth,
    }
    found = acts[word](*map(exprs.to_condition, parts))
    return call.trace.make_tensor(indices, found, "bool")


def _call_function(call: Call) -> Shadow:
    """Return the result of a function of the notation that torch has under this name."""
    row = find_by_torch_name(call.name, call.named)
    assert row is not None
    names = ("input", "other") if row.is_variadic or len(row.tensors) == 2 else row.tensors
    elements = [call.argument(k, word if k else "input") for k, word in enumerate(names)]
    options = [call.argument(len(names) + k, word) for k, word in enumerate(row.defaults)]
    numbers = [read_definition(text, {}, _EXPRS) for text in row.defaults.values()]
    for k, (word, least) in enumerate(row.least.items(), len(names) + len(options)):
        if call.argument(k, word, least) < least:
            says = f"{call.name} with a {word} below {least} is not known"
            raise call.trace.refuse("lift-op", says)
    pairs = zip(options, numbers, strict=True)
    given = [default if value is None else to_expr(value) for value, default in pairs]
    while given and given[-1] is numbers[len(given) - 1]:
        given.pop()
    return _apply(call, lambda *values: _EXPRS.call(row.name, (*values, *given)), *elements)


def _call(name: str, arguments: tuple[ir.Expr, ...]) -> ir.Expr:
    if FUNCTIONS[name].is_kept:
        return ir.Call(name, arguments)
    found: ir.Expr = expand_call(name, arguments, _EXPRS)
    return found


_EXPRS = Maker(
    ir.Number, exprs.add, exprs.multiply, exprs.power, exprs.compare, exprs.choose, _call
)


def _refuse_cut(call: Call) -> None:
    """Raise DeriveError for `dtype=torch.int64`, which truncates reals before a reduction."""
    if call.kind != "real" and call.shadow(0).kind == "real":
        raise call.trace.refuse("lift-op", "real numbers cut to integers are not known")


def _open_axes(
    call: Call, axes: Sequence[int], keepdim: bool
) -> tuple[tuple[ir.Index, ...], tuple[ir.Index, ...], ir.Expr]:
    """Return (indices of the result, reduced indices, the element) of a reduction over axes."""
    fresh, value = call.trace.read_fresh(call.shadow(0))
    bound = tuple(fresh[k] for k in axes if fresh[k].extent is not ir.ONE)
    kept = [
        index if k not in axes else call.trace.index(ir.ONE)
        for k, index in enumerate(fresh)
        if k not in axes or keepdim
    ]
    return tuple(kept), bound, value


def _reduce(call: Call, kind: str) -> Shadow:
    axes = call.axes(1, call.shadow(0).rank)
    _refuse_cut(call)
    indices, bound, value = _open_axes(call, axes, call.flag(2, "keepdim"))
    return call.trace.make_tensor(indices, exprs.reduce_over(kind, bound, value), call.kind)


@op("argmax", "x[B, S]; y[S]: y[x.argmax(1)]")
def _argmax(call: Call) -> Shadow:
    """Return argmax: the position of the largest element along an axis."""
    axes = (call.axis(1, call.shadow(0).rank),)
    indices, bound, value = _open_axes(call, axes, call.flag(2, "keepdim"))
    found = ir.Reduce("argmax", bound, ir.TRUE, value) if bound else ir.ZERO
    return call.trace.make_tensor(indices, found, "int")


@op("var", "x[B, S]: x.var(1)")
def _variance(call: Call) -> Shadow:
    """Return the variance; torch takes (dims, correction=), (dims, unbiased) or (unbiased)."""
    if isinstance(call.argument(1, "dim"), bool):
        correction, keepdim, axes = call.args[1], False, tuple(range(call.shadow(0).rank))
    else:
        correction = call.named.get("correction", call.argument(2, "unbiased", 1))
        keepdim, axes = call.flag(3, "keepdim"), call.axes(1, call.shadow(0).rank)
    indices, bound, value = _open_axes(call, axes, keepdim)
    found = exprs.reduce_over("var", bound, value) if bound else exprs.subtract(value, value)
    if correction or correction is None:
        count = Polynomial.of(ir.product_of([index.extent for index in bound]))
        whole, less = count.to_expr(), 1 if correction in (None, True) else correction
        _ = call.trace.to_int(whole) >= math.ceil(less)  # a condition: otherwise torch divides by 0
        share = exprs.divide(whole, exprs.subtract(whole, to_expr(less)))
        found = exprs.multiply(found, share)
    return call.trace.make_tensor(indices, found, "real")


def _along(call: Call, kind: str) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    axis = call.axis(1, shadow.rank)
    indices, value = trace.read_fresh(shadow)
    if functions.ROWS[kind].normalizes and trace.may_be_empty(value):
        trace.empty_rows["zeros" if call.name.startswith("_safe") else "nan"] = None
    _refuse_cut(call)
    if indices[axis].extent is not ir.ONE:
        value = ir.Along(kind, indices[axis], ir.TRUE, value)
    elif not functions.ROWS[kind].is_linear:  # an axis of length 1; nan stays nan
        gap = exprs.subtract(value, value)
        value = ir.Call("exp", (gap,)) if functions.ROWS[kind].normalizes else gap
    return trace.make_tensor(indices, value, call.kind)


def _running(call: Call, kind: str) -> Shadow:
    """Return at each position the reduction `kind` of the elements up to it, as cumprod does."""
    trace, shadow = call.trace, call.shadow(0)
    axis = call.axis(1, shadow.rank)
    indices, value = trace.read_fresh(shadow)
    _refuse_cut(call)
    if indices[axis].extent is not ir.ONE:
        (inner,) = trace.fresh_indices(indices[axis])
        upto = exprs.compare("<=", inner, indices[axis])
        value = ir.Reduce(
            kind, (inner,), upto, exprs.substitute_at(value, (indices[axis],), (inner,))
        )
    return trace.make_tensor(indices, value, call.kind)


def _of_matrix(call: Call, kind: str) -> Shadow:
    """Return the function `kind`, such as det, of the matrices in the last two axes."""
    trace, shadow = call.trace, call.shadow(0)
    if shadow.rank < 2:
        raise trace.refuse("lift-op", f"{call.name} of a tensor of {shadow.rank} axes is not known")
    if call.flag(1, "upper"):
        raise trace.refuse("lift-op", f"{call.name} with upper=True is not known")
    indices, value = trace.read_fresh(shadow)
    *batch, rows, columns = indices
    trace.unify(rows.extent, columns.extent)
    keeps = functions.ROWS[kind].keeps
    found: ir.Expr
    if rows.extent is ir.ONE:
        inverse = exprs.divide(ir.ONE, value)
        alone = {"det": value, "logdet": ir.Call("log", (value,)), "inverse": inverse}
        found = alone.get(kind) or ir.Pow(value, ir.Number(Fraction(1, 2)))
    elif keeps:
        found = ir.Along(kind, rows, ir.TRUE, value, columns)
    else:
        found = ir.Reduce(kind, (rows, columns), ir.TRUE, value)
    return trace.make_tensor(indices if keeps else batch, found, call.kind)


# Products.


def _contract(
    call: Call, parts: Sequence[Shadow], names: Sequence[Sequence[str]], out: Sequence[str]
) -> Shadow:
    """Return the product, summed over names not in `out`; axes of equal names are one index."""
    trace = call.trace
    axes: dict[str, list[ir.Index]] = {}
    for part, own in zip(parts, names, strict=True):
        for name, index in zip(own, part.indices, strict=True):
            axes.setdefault(name, []).append(index)
    indices = {name: trace.join_axes(own) for name, own in axes.items()}
    factors = []
    for part, own in zip(parts, names, strict=True):
        pairs = zip(own, part.indices, strict=True)
        places = [at(old if old.extent is ir.ONE else indices[name]) for name, old in pairs]
        factors.append(trace.read_number(part, places))
    bound = [each for name, each in indices.items() if name not in out]
    value = exprs.reduce_over("sum", bound, exprs.multiply(*factors))
    return trace.make_tensor([indices[name] for name in out], value, call.kind)


@op(
    "matmul mm bmm mv dot",
    "x[B, S, D]; y[D, E]: x @ y",
    "x[B, S, D]; y[B, T, D]: x @ y.mT",
    "x[S]; y[S]: x @ y",
    "x[B, S]; y[S]: torch.mv(x, y)",
)
def _matmul(call: Call) -> Shadow:
    """Return the matrix product; leading axes are broadcast."""
    second = next((name for name in ("mat2", "vec", "tensor") if name in call.named), "other")
    one, other = call.shadow(0), call.shadow(1, second)
    lead = [f"b{k}" for k in range(max(one.rank, other.rank) - 2)]
    left, right = (
        ["k"] if part.rank == 1 else [*lead[len(lead) - part.rank + 2 :], *last]
        for part, last in ((one, "ik"), (other, "kj"))
    )
    out = [*lead, *("i" if one.rank > 1 else ""), *("j" if other.rank > 1 else "")]
    return _contract(call, (one, other), (left, right), out)


@op(
    "einsum",
    "x[B, S, D]; y[B, T, D]: torch.einsum('bsd,btd->bst', x, y)",
    "x[B, S, D]; y[D, E]: torch.einsum('...d,de->...e', x, y)",
    "x[S, S]: torch.einsum('ii', x)",
    "x[B, S]; y[S, T]: torch.einsum(x, [0, 1], y, [1, 2], [0, 2])",
)
def _einsum(call: Call) -> Shadow:
    """Return the contraction of an equation string, or of sublists of numbers."""
    first, rest = call.argument(0, "equation"), call.args[1:]
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
    return _contract(call, parts, *spec.expand([part.rank for part in parts]))


@op("tensordot", "x[B, S, D]; y[D, S]: torch.tensordot(x, y, ([1, 2], [1, 0]))")
def _tensordot(call: Call) -> Shadow:
    one, other = call.shadow(0, "a"), call.shadow(1, "b")
    dims = call.argument(2, "dims", 2)
    if isinstance(dims, int):
        count = int(dims)
        dims = range(one.rank - count, one.rank), range(count)
    left, right = [f"l{k}" for k in range(one.rank)], [f"r{k}" for k in range(other.rank)]
    for a, b in zip(*dims, strict=True):
        right[b] = left[a]
    out = [name for name in (*left, *right) if not (name in left and name in right)]
    return _contract(call, (one, other), (left, right), out)


def _find_act(row: functions.Reduction) -> Act:
    act = _of_matrix if row.is_matrix else _along if row.keeps else _reduce
    return partial(act, kind=row.name)


ROWS = (
    *(Op(r.spellings, _call_function, r.examples) for r in FUNCTIONS.values() if r.spellings),
    _map("add", exprs.add, "x[B, S]; y[S]: x + y", "x[S]: 1 + x"),
    _map("sub subtract", exprs.subtract, "x[B, S]; y[S]: x - y"),
    _map("rsub", exprs.subtract, "x[S]: 1 - x", "x, y[S]: torch.rsub(x, y, alpha=2)"),
    _map("mul multiply", exprs.multiply, "x[B, S]; y[S]: x * y"),
    _map("rdiv", exprs.divide, "x[S]: 1 / x"),
    _map("pow", exprs.power, "x[S]: x ** 2", "x[S]: x ** -0.5", "x[S]: 2.0 ** x"),
    _map("rpow", exprs.power, "x[S]: 3.0 ** x"),
    _map("neg negative", exprs.flip_sign, "x[S]: -x", count=1),
    *(Op(row.spellings, _find_act(row), row.examples) for row in functions.ROWS.values()),
    Op("cumprod", partial(_running, kind="prod"), ("x[B, S]: x.cumprod(1)",)),
    Op("logcumsumexp", partial(_running, kind="logsumexp"), ("x[B, S]: x.logcumsumexp(-1)",)),
)
