"""The part of a generated file that reads the sizes from the shapes and refuses wrong ones.

First every size is read, where `analysis.extents` says where it stands; then every shape that was
not unpacked whole is compared. Integers and truth values must be such, a fixed place such as x[0]
must be there, and a size that the code divides by, or takes a largest entry over, is not 0. A
number that is multiplied or added up is finite: what 0 * inf gives is told by the order of work,
which is not that of the formula. The values of integers are looked at only where the caller asks
for it by the keyword `validate`: that waits for the device, and a compiler cannot trace it.

Below them stand the functions that a file has for what no single call of torch computes.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from typing import TypeAlias

from derive.analysis.extents import FromEquation, FromShape, find_size_sources, is_above_zero
from derive.backend.lines import (
    INDENT,
    WIDTH,
    fit_call,
    fit_signature,
    is_read,
    to_tuple,
    write_function,
)
from derive.backend.to_torch import ADD, FOURIER, RECUR, SIGN, UNFOLD, is_growing, to_python
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial
from derive.ir.recurrences import find_start
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_children, walk
from derive.plan import gates, ops
from derive.plan.build import NORM
from derive.plan.cells import attention, scatter, segments, windows
from derive.plan.lower.number import find_counted, find_positive
from derive.plan.plan import Plan
from derive.plan.steps import free_name
from derive.rewrite.guards import is_variable

CHECK = "_check_shapes"
KINDS = {  # the test of a dtype that does not fit, and what must be held
    "bool": ("{}.dtype != torch.bool", "truth values"),
    "int": ("{}.dtype not in (torch.int64, torch.int32)", "int64 or int32"),
    "complex": ("not {}.dtype.is_complex", "complex numbers"),
}
RANGE_CHECK = '''def _check_range(wanted: str, integers: Tensor, below: int) -> None:
    """ValueError where one of the integers is not at least 0 and below the bound."""
    outside = integers[(integers < 0) | (integers >= below)]
    if outside.numel():
        raise ValueError(f"{wanted} must hold, got {outside[0].item()}")
'''

SizeSource: TypeAlias = FromShape | FromEquation


def write_check(
    system: ir.System, code: Sequence[str], plans: Sequence[Plan]
) -> tuple[list[str], str]:
    """(the lines that call it, its text): the check of the arguments, before the code of plans.

    It returns the sizes that the code reads. Nothing where nothing is to check. Raises DeriveError
    where no shape tells some size.
    """
    positive, counted = sorted({s for p in plans for s in find_positive(p)}), find_counted(plans)
    known_sizes = [s for s in find_size_sources(system) if isinstance(s, (FromShape, FromEquation))]
    sizes = [source.name for source in known_sizes if is_read(source.name, code)]
    given = list_arguments(system)
    call = fit_call(CHECK, ", ".join(sizes), [name for name, _ in given])
    arguments = [f"{name}: {kind}" for name, kind in given]
    several = f"tuple[{', '.join(['int'] * len(sizes))}]"
    returns = "None" if not sizes else "int" if len(sizes) == 1 else several
    has_tensors = any(isinstance(entry, ir.Tensor) for entry in system.inputs)
    words = "Compare the shapes" if has_tensors else "Compare the sizes"
    words = "Read the sizes from the shapes, and compare" if sizes else words
    body = _write_body(system, known_sizes, sizes, positive, counted)
    if not body:
        return [], ""
    body.insert(0, f'"""{words}; ValueError where they do not fit."""')
    if sizes:
        body.append(f"return {', '.join(sizes)}")
    return call, write_function(fit_signature(CHECK, arguments, returns), body)


def write_sizes(system: ir.System, code: Sequence[str]) -> list[str]:
    """The lines that read the sizes that the code reads, of shapes that are known to fit."""
    known = [s for s in find_size_sources(system) if isinstance(s, (FromShape, FromEquation))]
    needed = {source.name for source in known if is_read(source.name, code)}
    for source in reversed(known):
        if source.name in needed and isinstance(source, FromEquation):
            needed |= _needs(source)
    lines: list[str] = []
    for tensor, group in groupby(known, key=lambda source: source.tensor):
        wanted = [source for source in group if source.name in needed]
        if len(wanted) > 1 and _is_unpacked(tensor, wanted):
            lines.append(f"{', '.join(map(to_python, tensor.shape))} = {tensor.name}.shape")
        else:
            told = [line for source in wanted for line in _write_size(source, system)]
            lines += [line for line in told if line[0] != " " and not line.startswith("if ")]
    return lines


def name_validate(plan: Plan) -> str:
    """The keyword that asks for the ranges of integers, or nothing where none has a range."""
    system = plan.system
    if not _find_bounded(system):
        return ""
    taken = {entry.name for entry in (*system.inputs, *system.sizes, *plan.steps)}
    return free_name("validate", taken | {tile.block for tile in plan.tiles})


def write_ranges(system: ir.System, keyword: str) -> list[str]:
    """The lines that compare integers with their ranges where the keyword is true."""
    lines = []
    for tensor, below in _find_bounded(system):
        bound = to_python(below)
        words = f"0 <= {show_access(tensor, system)} < {_show_extent(bound)}"
        mark = "" if bound.isdigit() else "f"
        arguments = [f'{mark}"{words}"', tensor.name, bound]
        line = f"_check_range({', '.join(arguments)})"
        if len(line) > WIDTH - 2 * len(INDENT):
            lines += ["_check_range(", *(f"{INDENT}{each}," for each in arguments), ")"]
        else:
            lines.append(line)
    return [f"if {keyword}:", *(f"{INDENT}{line}" for line in lines)] if lines else []


def _find_bounded(system: ir.System) -> list[tuple[ir.Tensor, ir.Expr]]:
    """The integers that are declared to lie below a bound, with it."""
    tensors = [entry for entry in system.inputs if isinstance(entry, ir.Tensor)]
    return [(t, t.below) for t in tensors if t.kind == "int" and t.below is not None]


def list_arguments(system: ir.System) -> list[tuple[str, str]]:
    """The name and the type of each argument of the check."""
    tensors = [entry for entry in system.inputs if isinstance(entry, ir.Tensor)]
    return [
        *((each.name, "Tensor") for each in tensors),
        *((each.name, "float | Tensor") for each in _find_scalars(system)),
        *((each.name, "int") for each in system.sizes),
    ]


def list_keywords(system: ir.System) -> list[str]:
    """The keywords of the sizes that no shape tells."""
    defaults = ("" if s.default is None else f" = {s.default}" for s in system.sizes)
    return [f"{s.name}: int{end}" for s, end in zip(system.sizes, defaults, strict=True)]


def _write_body(
    system: ir.System,
    known_sizes: Sequence[SizeSource],
    returned: Sequence[str],
    positive: Sequence[str],
    counted: Sequence[tuple[ir.Index, int]],
) -> list[str]:
    """Ranks and sizes tensor by tensor, then the shapes that are left to compare, then values."""
    tensors = [t for t in system.inputs if isinstance(t, ir.Tensor)]
    whole = [t for t in tensors if _is_unpacked(t, known_sizes)]
    compared = [t for t in tensors if t not in whole]
    fixed = find_fixed(system)
    extents = [e for t in compared for e in t.shape] + [index.extent for index, _ in counted]
    extents += [e for a, k in fixed for e in (a.tensor.shape[k], a.places[k])]
    needed = {*returned, *positive, *(s for e in extents for s in _sizes_in(e))}
    needed |= {
        s for source in known_sizes if isinstance(source, FromEquation) for s in _needs(source)
    }
    lines: list[str] = []
    for tensor, group in groupby(known_sizes, key=lambda source: source.tensor):
        sources = list(group)
        if not any(line.startswith(f"if {tensor.name}.ndim ") for line in lines):
            rank = len(tensor.shape)
            must = f"{show_access(tensor, system)} has {rank} place{'s' * (rank != 1)}, "
            got = f"got {{list({tensor.name}.shape)}}"
            lines += [f"if {tensor.name}.ndim != {rank}:", *_write_raise(must, got, is_short=True)]
        if tensor in whole and len(tensor.shape) > 1:
            lines.append(f"{', '.join(map(to_python, tensor.shape))} = {tensor.name}.shape")
        else:
            wanted = [source for source in sources if source.name in needed]
            lines += [line for source in wanted for line in _write_size(source, system)]
    for tensor in compared:
        shape = [to_python(extent) for extent in tensor.shape]
        must = f"{show_access(tensor, system)} must be [{', '.join(map(_show_extent, shape))}], "
        got = f"got {{list({tensor.name}.shape)}}"
        lines += [f"if {tensor.name}.shape != {to_tuple(shape)}:", *_write_raise(must, got)]
    for tensor in tensors:  # real ones may have any dtype: torch says itself what it does not take
        if tensor.kind in KINDS:
            test, words = KINDS[tensor.kind]
            must = f"{show_access(tensor, system)} must hold {words}, "
            got = f"got {{{tensor.name}.dtype}}"
            lines += [f"if {test.format(tensor.name)}:", *_write_raise(must, got)]
    finite = find_finite(system)
    for name in (scalar.name for scalar in _find_scalars(system)):
        # a tensor of one number may stand for it, and no other: that would broadcast
        lines.append(f"if torch.is_tensor({name}) and {name}.ndim != 0:")
        lines += _write_raise(f"{name} is a scalar, ", f"got {{list({name}.shape)}}")
        if name in finite:
            lines.append(f"if isinstance({name}, float) and not abs({name}) < torch.inf:")
            lines += _write_raise(f"{name} must be finite, ", f"got {{{name}}}")
    for access, k in fixed:
        last, length = Polynomial.of(access.places[k]).constant, to_python(access.tensor.shape[k])
        test = f"not 0 <= {to_python(access.places[k], ADD)} < {length}"
        lines.append(f"if {test if last is None else f'{length} < {last + 1}'}:")
        lines += _write_raise(f"{to_text(access)} is not there, ", f"as {_show_extent(length)}")
    for size in positive:
        must = f"{size} must be at least 1, "
        lines += [f"if {size} < 1:", *_write_raise(must, f"got {{{size}}}")]
    for index, least in counted:
        extent = to_python(index.extent)
        must = f"index {index.name} must have an extent of {least} at least, "
        got = f"got {to_text(index.extent).replace(' * ', '*')}={{{extent}}}"
        lines += [f"if {extent} < {least}:", *_write_raise(must, got)]
    return lines


def _find_scalars(system: ir.System) -> list[ir.ScalarInput]:
    return [entry for entry in system.inputs if isinstance(entry, ir.ScalarInput)]


def find_finite(system: ir.System) -> set[str]:
    """The scalars of which an infinity would reach a product or a sum.

    It may stand in a comparison, a bound, a divisor or the exponent of a normalized row: there it
    means the same in whatever order the work is done.
    """
    found: set[str] = set()
    reached: dict[ir.Tensor, set[str]] = {}  # the scalars with which a tensor is infinite

    def ask(expr: ir.Expr) -> set[str]:
        inside = [ask(child) for child in find_children(expr)]
        inner: set[str] = set().union(*inside)
        match expr:
            case ir.Scalar(name):
                return {name}
            case ir.Access(tensor, _):
                return reached.get(tensor, set())
            case ir.Mul(parts) if sum(map(is_variable, parts)) > 1:
                found.update(inner)
            case ir.Add() if sum(map(len, inside)) > len(inner):
                found.update(inner)  # it may cancel
            case ir.Reduce("var" | "sample_var" | "prod"):
                found.update(inner)
            case ir.Reduce(kind) | ir.Along(kind) if ROWS[kind].is_linear:
                found.update(inner)
            case ir.Pow(_, ir.Number(value)) if value < 0:
                return set()
            case ir.Compare():
                return set()
            case ir.Along(kind) if ROWS[kind].normalizes:
                return set()
        return inner

    for equation in system.equations:
        reached[equation.target.tensor] = ask(equation.value)
    return found


def find_fixed(system: ir.System) -> list[tuple[ir.Access, int]]:
    """What is read, or written on the left, at a fixed place of an extent that may be 0: x[0].

    Each place once.
    """
    found: dict[tuple[ir.Tensor, int, ir.Expr], tuple[ir.Access, int]] = {}
    read = [access for equation in system.equations for access in find_accesses(equation.value)]
    left = [each.target for each in system.written if not find_start(each.target)]
    for access in (*read, *left):
        for k, (place, extent) in enumerate(zip(access.places, access.tensor.shape, strict=True)):
            is_fixed = not any(isinstance(part, (ir.Index, ir.Access)) for part in walk(place))
            ends = (_subtract(place, ir.MINUS_ONE), _subtract(extent, place))
            is_there = access in left and all(map(is_above_zero, ends))
            if is_fixed and not is_there and Polynomial.of(extent).constant is None:
                found.setdefault((access.tensor, k, place), (access, k))
    return list(found.values())


def has_places(system: ir.System, extent: ir.Expr, count: int) -> bool:
    """Is the extent at least so large wherever the sizes pass the checks?"""
    if is_above_zero(_subtract(extent, ir.Number(Fraction(count - 1)))):
        return True
    for access, k in find_fixed(system):
        if Polynomial.of(access.tensor.shape[k]) == Polynomial.of(extent):
            place = access.places[k]
            before, behind = Polynomial.of(place), Polynomial.of(_subtract(extent, place))
            if max(before.constant or 0, (behind.constant or 1) - 1) >= count - 1:
                return True
    return False


def _subtract(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    return (Polynomial.of(one) - Polynomial.of(other)).to_expr()


def _is_unpacked(tensor: ir.Tensor, known_sizes: Sequence[SizeSource]) -> bool:
    """Does each of its places tell a size of its own? Then nothing of it is left to compare."""
    own = [s for s in known_sizes if isinstance(s, FromShape) and s.tensor is tensor]
    return bool(own) and len(own) == len(tensor.shape)


def _sizes_in(extent: ir.Expr) -> set[str]:
    return {name for part in walk(extent) if (name := getattr(part, "name", None))}


def _needs(source: FromEquation) -> set[str]:
    return _sizes_in(source.coefficient) | _sizes_in(source.rest)


def _write_size(source: SizeSource, system: ir.System) -> list[str]:
    """`D = W.shape[1]`, or `D = W.shape[1] // H`, whose remainder the comparison finds."""
    place = f"{source.tensor.name}.shape[{source.place}]"
    if isinstance(source, FromShape):
        return [f"{source.name} = {place}"]
    rest, coefficient = Polynomial.of(source.rest), Polynomial.of(source.coefficient)
    over = f"{place} - {to_python(source.rest, ADD + 1)}" if rest.terms else place
    if rest.constant is not None and rest.constant < 0:
        over = f"{place} + {-rest.constant}"
    if coefficient.constant == 1:
        extent = to_text(source.tensor.shape[source.place])
        shown = f"{show_access(source.tensor, system)}: the extent must be {extent}"
        return [
            f"{source.name} = {over}",
            f"if {source.name} < 0:",
            f'{INDENT}raise ValueError(f"{shown} with {source.name} >= 0, got {{{place}}}")',
        ]
    factor = to_python(source.coefficient, SIGN)
    over = f"({over})" if rest.terms else over
    extent = to_text(source.tensor.shape[source.place]).replace(" * ", "*")
    shown = f"{show_access(source.tensor, system)}: the extent must be {extent}"
    value = "" if coefficient.constant else f" with {factor}={{{factor}}}"
    is_zero = "" if coefficient.constant else f"{factor} == 0 or "
    return [
        f"if {is_zero}{over} % {factor}:",
        f'{INDENT}raise ValueError(f"{shown}{value}, got {{{place}}}")',
        f"{source.name} = {over} // {factor}",
    ]


def _write_raise(must: str, got: str, *, is_short: bool = False) -> list[str]:
    line = f'{INDENT}raise ValueError(f"{must}{got}")'
    if is_short or len(INDENT) + len(line) <= WIDTH:
        return [line]
    opening = f"{INDENT}raise ValueError("
    return [opening, f'{INDENT * 2}f"{must}"', f'{INDENT * 2}f"{got}"', f"{INDENT})"]


def _show_extent(text: str) -> str:
    """`H*D={H * D}`: the extent, and in the message its value."""
    return text if text.isdigit() else f"{text.replace(' * ', '*')}={{{text}}}"


def show_access(tensor: ir.Tensor, system: ir.System) -> str:
    """The tensor as the formula first reads it, in plain indices if it does: `W_Q[h,d,e]`."""
    read = _find_first_reads(system).get(tensor)
    return to_text(read) if read else tensor.name


@lru_cache(maxsize=1 << 4)
def _find_first_reads(system: ir.System) -> Mapping[ir.Tensor, ir.Access]:
    reads = [a for e in system.equations for a in find_accesses(e.value)]
    reads.sort(key=lambda read: not all(isinstance(place, ir.Index) for place in read.places))
    return {read.tensor: read for read in reversed(reads)}


_RECUR = '''def {name}(a: Tensor, x: Tensor, h: Tensor, dim: int, chunk: int{inner}) -> Tensor:
    """The values of h = a*h + x at each place along dim, a negative one; a may be one for all.

    Chunks of places run side by side: from 0, for what each ends with; then, as that tells what
    each begins with, from there.
    """
    places, chunk, whole = x.shape[dim], max(chunk, 2), 0
    if places > chunk{untraced}:
        count = places // chunk
        parts = [
            [p] * chunk
            if p.shape[dim] == 1
            else p.narrow(dim, 0, count * chunk).unflatten(dim, (count, chunk)).unbind(dim)
            for p in (a, x)
        ]
        turns = list(zip(*parts, strict=True))
        end = turns[0][1]
        for a_t, x_t in turns[1:]:
            end = torch.addcmul(x_t, a_t, end)
        factor = a**chunk if a.shape[dim] == 1 else parts[0][0]
        for a_t in parts[0][1:] if a.shape[dim] != 1 else ():
            factor = a_t * factor
        ends = {name}(factor, end, h, dim, chunk{is_inner})
        {whole}
    if whole:
        start = torch.cat([h.unsqueeze(dim), ends.narrow(dim, 0, count - 1)], dim)
        found = torch.stack([start := torch.addcmul(x_t, a_t, start) for a_t, x_t in turns], dim)
        found, h = found.flatten(dim - 1, dim), ends.select(dim, -1)
    if whole == places:
        return found if places else h.unsqueeze(dim).narrow(dim, 0, 0)
    left = places - whole
    a = [a.select(dim, 0)] * left if a.shape[dim] == 1 else a.narrow(dim, whole, left).unbind(dim)
    rest = zip(a, x.narrow(dim, whole, left).unbind(dim), strict=True)
    last = torch.stack([h := torch.addcmul(x_t, a_t, h) for a_t, x_t in rest], dim)
    return torch.cat([found, last], dim) if whole else last
'''
_SO_FAR = '''def {name}(q: Tensor, k: Tensor, v: Tensor, diagonal: int, chunk: int) -> Tensor:
    """The sum of (q_i . k_j) v_j over the places j up to i plus the diagonal, by chunks."""
    places, dtype = q.shape[-2], q.dtype
    count = -(-places // chunk) or 1
    q, k, v = (x.to(torch.promote_types(dtype, torch.float32)) for x in (q, k, v))
    more = (x.new_zeros(*x.shape[:-2], count * chunk - places, x.shape[-1]) for x in (q, k, v))
    pairs = zip((q, k, v), more, strict=True)
    q, k, v = (torch.cat(pair, -2).unflatten(-2, (count, chunk)) for pair in pairs)
    total = (k.mT @ v).cumsum(-3).narrow(-3, 0, count - 1)
    before = torch.nn.functional.pad(total, (0, 0, 0, 0, 1, 0))
    found = (q @ k.mT).tril(diagonal) @ v + q @ before
    return found.flatten(-3, -2).narrow(-2, 0, places).to(dtype)
'''
_RANKS = '''def {name}(key: Tensor) -> Tensor:
    """The place of each entry in the order of its row: equal ones as they stand, nan last."""
    order = key.argsort(dim=-1, stable=True)
    places = torch.arange(key.shape[-1], device=key.device).expand_as(order)
    return torch.zeros_like(order).scatter(-1, order, places)
'''
_COUNT = '''def {name}(
    key: Tensor, rank: Tensor, bound: Tensor | None = None, *, equal: bool | None, above: bool
) -> Tensor:
    """How many key_j < bound_i, <= if `equal`, > and >= if `above`; each key is its own bound.

    With None for `equal` those of lower or higher rank.
    """
    known, through = (key == key).sum(-1, keepdim=True), equal != above
    ordered = key if equal is None else torch.zeros_like(key).scatter(-1, rank, key)
    if equal is None:
        place, bound = rank + 1 if above else rank, key
    elif bound is None:  # equal ones are neighbours
        ordered = ordered.flip(-1) if through else ordered
        places = torch.arange(key.shape[-1], device=key.device)
        place = torch.where(ordered != ordered.roll(1, -1), places, 0).cummax(-1).values
        place = (key.shape[-1] - place.flip(-1) if through else place).gather(-1, rank)
        bound = key
    else:
        dtype = torch.promote_types(key.dtype, bound.dtype)
        sides = (ordered.nan_to_num(torch.inf, torch.inf, -torch.inf), bound)
        lead = torch.broadcast_shapes(key.shape[:-1], bound.shape[:-1])
        ordered, sought = (x.to(dtype).expand(*lead, -1).contiguous() for x in sides)
        place = torch.searchsorted(ordered, sought, right=through).minimum(known)
    place = known - place if above else place
    return torch.where(bound == bound, place, 0)  # nan is on no side
'''
_BELOW = '''def {name}(
    x: Tensor, rank: Tensor, count: Tensor, above: Tensor | None = None, *, kind: str
) -> Tensor:
    """The first so many x in the order of their ranks reduced, or the last of those `above`."""
    empty = {{"sum": 0, "prod": 1, "min": torch.inf}}.get(kind, -torch.inf)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if above is not None:  # those whose key is nan are the very last
        wide, rank = torch.where(above == above, wide, empty), x.shape[-1] - 1 - rank
        count = count + (above != above).sum(-1, keepdim=True)
    lead = torch.broadcast_shapes(wide.shape[:-1], count.shape[:-1])
    wide, rank, count = (each.expand(*lead, -1) for each in (wide, rank, count))
    wide = torch.zeros_like(wide).scatter(-1, rank, wide)
    match kind:
        case "max" | "min":
            wide = (wide.cummax(-1) if kind == "max" else wide.cummin(-1)).values
        case "prod":
            wide = wide.cumprod(-1)
        case _:
            wide = wide.cumsum(-1) if kind == "sum" else wide.logcumsumexp(-1)
    wide = torch.nn.functional.pad(wide, (1, 0), value=empty)
    return wide.gather(-1, count).to(x.dtype)
'''
_SEGMENT_SUM = '''def {name}(x: Tensor, segments: Tensor, count: int, dim: int = 0) -> Tensor:
    """The sum over each of so many segments of one place, in float32 at least."""
    wide = torch.promote_types(x.dtype, torch.float32)
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    return x.new_zeros(shape, dtype=wide).index_add(dim, segments, x.to(wide)).to(x.dtype)
'''
_PLACES = '''def {name}(
    x: Tensor, places: tuple[Tensor, ...], shape: tuple[int, ...]
) -> Tensor:
    """The sum at each place of the shape of what goes there, in float32 at least.

    Whole numbers tell the places, one for each entry; what has none in the shape is left out.
    """
    place, count = places[0].long(), shape[0]
    inside = (places[0] >= 0) & (places[0] < count)
    for each, extent in zip(places[1:], shape[1:], strict=True):
        inside = inside & (each >= 0) & (each < extent)
        place, count = place * extent + each.long(), count * extent
    wide = x.to(torch.promote_types(x.dtype, torch.float32)).flatten(0, place.ndim - 1)
    rows = wide.new_zeros(count + 1, *wide.shape[1:])
    rows = rows.index_add(0, torch.where(inside, place, count).flatten(), wide)
    return rows.narrow(0, 0, count).unflatten(0, shape).to(x.dtype)
'''
_AVERAGE = '''def {name}(logits: Tensor, x: Tensor, segments: Tensor, count: int) -> Tensor:
    """The mean of x over each of so many segments by the softmax of the logits; of none nan."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    places = segments.long().reshape(-1, *[1] * (wide.ndim - 1)).expand(wide.shape)
    least = wide.new_full((count, *wide.shape[1:]), -torch.inf)
    top = least.scatter_reduce(0, places, wide.detach(), "amax")
    weights = (wide - top.index_select(0, segments)).exp()
    total = torch.zeros_like(least).index_add(0, segments, weights)
    parts = weights * x
    sums = parts.new_zeros(count, *parts.shape[1:]).index_add(0, segments, parts)
    return (sums / total if x.shape[0] else sums).to(x.dtype)  # a sum of nothing is 0
'''
_PICK = '''def {name}(x: Tensor, places: Tensor) -> Tensor:
    """The entries of x at places that whole numbers tell, zeros where it has none."""
    count, rest = x.shape[0], x.shape[1:]
    inside = (places >= 0) & (places < count)
    rows = torch.cat([x, x.new_zeros(1, *rest)])
    found = rows.index_select(0, torch.where(inside, places, count).long().flatten())
    return found.reshape(places.shape + rest)
'''
_SEGMENT_EXTREME = '''def {name}(x: Tensor, segments: Tensor, count: int, kind: str) -> Tensor:
    """The largest ("amax"), the least ("amin") or the product of each of so many segments."""
    empty = 1 if kind == "prod" else -torch.inf if kind == "amax" else torch.inf
    places = segments.long().reshape(-1, *[1] * (x.ndim - 1)).expand(x.shape)
    return x.new_full((count, *x.shape[1:]), empty).scatter_reduce(0, places, x, kind)
'''
_SEGMENT_LOGSUMEXP = '''def {name}(x: Tensor, segments: Tensor, count: int) -> Tensor:
    """The logarithm of the sum of exp(x) over each of so many segments, in float32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    places = segments.long().reshape(-1, *[1] * (x.ndim - 1)).expand(x.shape)
    least = wide.new_full((count, *x.shape[1:]), -torch.inf)
    top = least.scatter_reduce(0, places, wide.detach(), "amax")
    top = torch.where(top.isinf(), 0, top)  # of no entries, or of infinite ones
    total = torch.zeros_like(least).index_add(0, segments, (wide - top[segments]).exp())
    return (total.log() + top).to(x.dtype)
'''
_WINDOWS = '''def {name}(x: Tensor, width: int) -> Tensor:
    """The sum of each so many neighbours: the end of a block as wide, and the start of the next."""
    count, dtype = x.shape[-1] - width + 1, x.dtype
    x = torch.nn.functional.pad(x, (0, -x.shape[-1] % width)).unflatten(-1, (-1, width))
    x = x.to(torch.promote_types(dtype, torch.float32))
    end = x.flip(-1).cumsum(-1).flip(-1).flatten(-2)
    start = torch.nn.functional.pad(x[..., :-1], (1, 0)).cumsum(-1).flatten(-2)
    start = torch.nn.functional.pad(start, (0, width))
    return (end.narrow(-1, 0, count) + start.narrow(-1, width, count)).to(dtype)
'''
_APART = '''def {name}(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """The sum over j of softmax_j(a_ij + b_jd) v_jd: products of exponentials are its parts.

    Where such a product is too small to be told from 0, or no value is known, row by row.
    """
    if not a.shape[-1]:
        return a @ (b * v)
    dtype = torch.promote_types(v.dtype, torch.float32)
    one = (a - a.detach().amax(-1, keepdim=True)).to(dtype).exp()
    other = (b - b.detach().amax(-2, keepdim=True)).to(dtype).exp()
    total = one @ other
    try:
        is_large = not torch.compiler.is_compiling() and bool(
            (total > torch.finfo(dtype).tiny ** 0.5).all()
        )
    except RuntimeError:  # under vmap
        is_large = False
    if is_large:
        return (one @ (other * v) / total).to(v.dtype)
    pairs = zip(*(x.unbind(-1) for x in torch.broadcast_tensors(b, v)), strict=True)
    rows = [torch.softmax(a + b_d[..., None, :], -1) @ v_d[..., None] for b_d, v_d in pairs]
    return torch.cat(rows, -1) if rows else total
'''
_FOURIER = '''\
def {name}(kind: str, x: Tensor, n: int, dim: int = -1, norm: str = "backward") -> Tensor:
    """The transform torch.fft.kind in float32 at least, of no entries too: torch has neither."""
    fft = torch.fft
    transform = dict(fft=fft.fft, ifft=fft.ifft, rfft=fft.rfft, irfft=fft.irfft)[kind]
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if n and x.numel():
        return transform(x, n, dim, norm)
    lacking = [int(extent == 0) for extent in x.shape]
    x = torch.nn.functional.pad(x, [k for extent in reversed(lacking) for k in (0, extent)])
    lacking[dim] = int(n == 0 and kind != "rfft")
    kept = tuple(slice(0 if extent else None) for extent in lacking)
    return transform(x, max(n, 1), dim, norm)[kept]
'''
_UNFOLD = '''def {name}(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """x.unfold(dim, size, step) for any size: traced, its own is a constant."""
    shape, strides = list(x.shape), list(x.stride())
    shape[dim:] = [(shape[dim] - size) // step + 1, *shape[dim + 1 :], size]
    strides[dim:] = [strides[dim] * step, *strides[dim + 1 :], strides[dim]]
    return x.as_strided(shape, strides)
'''
_NORM = '''def {name}(x: Tensor, power: float = 0.5) -> Tensor:
    """The root of a sum of powers; its slope at 0 is that of a norm, 0, where a root has none."""
    is_zero = x == 0
    return (x.masked_fill(is_zero, 1) ** power).masked_fill(is_zero, 0)
'''
_LSTM = '''def {name}(x: Tensor, h: Tensor, c: Tensor, v: Tensor, u: Tensor, a: Tensor) -> Tensor:
    """The states h of torch.lstm; what it has no rule for, as for vmap, place by place."""
    try:
        given = [v, u, a, torch.zeros_like(a)]
        return torch.lstm(x, (h[None], c[None]), given, True, 1, 0.0, True, False, True)[0]
    except RuntimeError:
        made = []
    for x_t in torch.nn.functional.linear(x, v, a).unbind(1):
        i, f, g, o = (x_t + h @ u.mT).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        made.append(h := o.sigmoid() * c.tanh())
    return torch.stack(made, 1) if made else x.new_empty(*h.shape[:1], 0, *h.shape[1:])
'''
_GRU = '''def {name}(x: Tensor, h: Tensor, v: Tensor, u: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The states h of torch.gru; what it has no rule for, as for vmap, place by place."""
    try:
        given = [v, u, a, torch.nn.functional.pad(b, (2 * b.shape[0], 0))]
        return torch.gru(x, h[None], given, True, 1, 0.0, True, False, True)[0]
    except RuntimeError:
        made = []
    for x_t in torch.nn.functional.linear(x, v, a).unbind(1):
        (r, z, n), (s, y, m) = x_t.chunk(3, -1), (h @ u.mT).chunk(3, -1)
        n = torch.tanh(n + torch.sigmoid(r + s) * (m + b))
        made.append(h := torch.lerp(n, h, torch.sigmoid(z + y)))
    return torch.stack(made, 1) if made else x.new_empty(*h.shape[:1], 0, *h.shape[1:])
'''
_WHOLE = "whole = count * chunk"
_CHECKED = f"""# a product of factors may be too large where no value is, and all after it are then
        try:
            is_finite = inner or bool(ends.select(dim, -1).isfinite().all())
        except RuntimeError:  # torch batches, or knows shapes alone
            is_finite = False
        {_WHOLE} if is_finite else 0"""


def _find_called(call: ops.Operand) -> Iterator[str]:
    """The functions in a call."""
    match call:
        case ops.TorchCall(function, args):
            yield function
            yield from _find_called(args)
        case ops.Pick(arg):
            yield from _find_called(arg)
        case tuple():
            for part in call:
                yield from _find_called(part)


def write_helpers(plans: Sequence[Plan]) -> list[str]:
    """The functions that linear recurrences and running sums of products call, if any do."""
    steps = [step.op for plan in plans for step in plan.steps if isinstance(step.op, ops.Recur)]
    bounded = ("", "", "", _WHOLE)
    untraced = " and not torch.compiler.is_compiling()"  # which would have to know the values
    checked = (untraced, ", inner: bool = False", ", True", _CHECKED)
    pieces = bounded if all(op.is_bounded for op in steps) else checked
    words = zip(("untraced", "inner", "is_inner", "whole"), pieces, strict=True)
    found = [_RECUR.format(name=RECUR, **dict(words))] if steps else []
    made = [step.op for plan in plans for step in plan.steps]
    nests = (each for plan in plans for tile in plan.tiles for each in tile.nest)
    made += [op for each in nests for _, op in each.sliced]
    inside = [part for op in made for part in ops.walk_ops(op)]
    called = {name for op in inside if isinstance(op, ops.Cell) for name in _find_called(op.call)}
    called |= {FOURIER} if any(isinstance(op, ops.Fourier) for op in inside) else set()
    called |= {UNFOLD} if any(map(is_growing, inside)) else set()
    texts = {
        segments.RUNNING: _SO_FAR,
        segments.RANKS: _RANKS,
        segments.COUNT: _COUNT,
        segments.BELOW: _BELOW,
        scatter.SUMS: _SEGMENT_SUM,
        scatter.PLACES: _PLACES,
        scatter.PICK: _PICK,
        scatter.AVERAGE: _AVERAGE,
        scatter.EXTREMES: _SEGMENT_EXTREME,
        scatter.LOGSUMEXP: _SEGMENT_LOGSUMEXP,
        windows.SUMS: _WINDOWS,
        attention.APART: _APART,
        NORM: _NORM,
        gates.LSTM: _LSTM,
        gates.GRU: _GRU,
        FOURIER: _FOURIER,
        UNFOLD: _UNFOLD,
    }
    return [*found, *(text.format(name=name) for name, text in texts.items() if name in called)]
