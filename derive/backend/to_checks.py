"""The part of a generated file that reads the sizes from the shapes and refuses wrong arguments.

Every size is read where `analysis.extents` finds it; every shape that determines no size of its own
is compared. Tensors of integers and truth values need such dtypes. A fixed place such as x[0] must
exist. A size that the code divides by, or takes a largest entry over, is not 0. A scalar that is
multiplied or added up is finite, because the value of 0 * inf depends on the order of operations.
Values of integers are compared with their bounds only under the keyword `validate`, because that
waits for the device and cannot be compiled.

`write_helpers` adds the functions of a file for operations that no single call of torch computes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import groupby

from derive.analysis.extents import SizeSource, find_size_sources, is_above_zero
from derive.analysis.safety import Guards, find_reads
from derive.backend.arithmetic import ADD, SIGN, to_python
from derive.backend.lines import (
    INDENT,
    WIDTH,
    fit_call,
    fit_signature,
    is_read,
    read_helpers,
    to_tuple,
    write_function,
)
from derive.backend.to_torch import FOURIER, RECUR, SPLIT, UNFOLD, is_growing
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_size_names, find_start, walk
from derive.plan import ops
from derive.plan.calls import TorchCall, walk_call
from derive.plan.lower.number import find_positive, find_small_extents
from derive.plan.plan import Plan
from derive.plan.steps import free_name
from derive.rewrite.guards import is_variable

CHECK, RANGE, FILL = "_check_shapes", "_check_range", "_fill"
KINDS = {  # test of a dtype that does not fit, and the dtypes that do
    "bool": ("{}.dtype != torch.bool", "truth values"),
    "int": ("{}.dtype not in (torch.int64, torch.int32)", "int64 or int32"),
    "complex": ("not {}.dtype.is_complex", "complex numbers"),
}
SHORT = 2**31  # torch wraps a number that an integer of 32 bits is compared with


def write_check(system: ir.System, code: Sequence[str], plan: Plan) -> tuple[list[str], str]:
    """The pair (lines that call the check of the arguments, the text of that function).

    The check returns the sizes that `code` reads. ([], "") if there is nothing to check. Raises
    DeriveError if no shape determines a size.
    """
    positive, counted = sorted(find_positive(plan)), find_small_extents(plan)
    known_sizes = find_size_sources(system)
    sizes = [source.name for source in known_sizes if is_read(source.name, code)]
    given = [
        *((each.name, "Tensor") for each in system.tensors),
        *((each.name, "float | Tensor") for each in system.scalars),
        *((each.name, "int") for each in system.sizes),
    ]
    call = fit_call(CHECK, ", ".join(sizes), [name for name, _ in given])
    arguments = [f"{name}: {kind}" for name, kind in given]
    several = f"tuple[{', '.join(['int'] * len(sizes))}]"
    returns = "None" if not sizes else "int" if len(sizes) == 1 else several
    words = "Compare the shapes" if system.tensors else "Compare the sizes"
    words = "Read the sizes from the shapes, and compare" if sizes else words
    body = _write_body(system, known_sizes, sizes, positive, counted)
    if not body:
        return [], ""
    body.insert(0, f'"""{words}; ValueError where they do not fit."""')
    if sizes:
        body.append(f"return {', '.join(sizes)}")
    call += [f"{name} = {name}.long()  # in 32 bits it may overflow" for name in _find_added(plan)]
    return call, write_function(fit_signature(CHECK, arguments, returns), body)


def _find_added(plan: Plan) -> list[str]:
    """The names of integer tensors that a plan computes with or returns, beyond positions."""
    kinds = (ops.Apply, ops.Reduction, ops.Along, ops.Fill, ops.Choose, ops.Cell)
    made = [*plan.results, *(step.op for step in plan.steps)]
    made += [part for op in made for part in ops.walk_ops(op) if isinstance(part, kinds)]
    made = [op for op in made if ops.is_integral(op) or _is_long(op)]
    names = {name for op in made for name in ops.find_reads(op)}
    given = plan.system.tensors
    return [each.name for each in given if each.name in names and each.kind == "int"]


def _is_long(op: ops.Op) -> bool:
    """Whether an operation compares with a number that may not fit into 32 bits."""
    match op:
        case ops.Apply(function, (_, ops.Num(value))) if function in ops.BOOLEANS:
            is_short = isinstance(value, ir.Number) and abs(value.value) < SHORT
            return not is_short and not isinstance(value, ir.Size)
    return False


def write_sizes(system: ir.System, code: Sequence[str]) -> list[str]:
    """The lines that read the sizes used in `code` from shapes, without comparisons."""
    known = find_size_sources(system)
    needed = {source.name for source in known if is_read(source.name, code)}
    for source in reversed(known):
        if source.name in needed:
            needed |= _needs(source)
    lines: list[str] = []
    for tensor, group in groupby(known, key=lambda source: source.tensor):
        wanted = [source for source in group if source.name in needed]
        if len(wanted) > 1 and _is_unpacked(tensor, wanted):
            lines.append(f"{', '.join(map(to_python, tensor.shape))} = {tensor.name}.shape")
        else:
            reads = [line for source in wanted for line in _write_size(source, system)]
            lines += [line for line in reads if line[0] != " " and not line.startswith("if ")]
    return lines


def name_validate(plan: Plan) -> str:
    """The keyword that asks for a check of integer values; "" if no integer has a bound."""
    system = plan.system
    if not _find_bounded(system):
        return ""
    taken = {entry.name for entry in (*system.inputs, *system.sizes, *plan.steps)}
    return free_name("validate", taken | {tile.block for tile in plan.tiles})


def write_ranges(system: ir.System, keyword: str) -> list[str]:
    """The lines that compare integers with their bounds if the keyword is true."""
    lines = []
    for tensor, below in _find_bounded(system):
        bound = to_python(below)
        words = f"0 <= {show_access(tensor, system)} < {_show_extent(bound)}"
        mark = "" if bound.isdigit() else "f"
        arguments = [f'{mark}"{words}"', tensor.name, bound]
        line = f"{RANGE}({', '.join(arguments)})"
        if len(line) > WIDTH - 2 * len(INDENT):
            lines += [f"{RANGE}(", *(f"{INDENT}{each}," for each in arguments), ")"]
        else:
            lines.append(line)
    return [f"if {keyword}:", *(f"{INDENT}{line}" for line in lines)] if lines else []


def _find_bounded(system: ir.System) -> list[tuple[ir.Tensor, ir.Expr]]:
    """The pairs (integer tensor, upper bound) of the declarations."""
    return [(t, t.below) for t in system.tensors if t.kind == "int" and t.below is not None]


def _write_body(
    system: ir.System,
    known_sizes: Sequence[SizeSource],
    returned: Sequence[str],
    positive: Sequence[str],
    counted: Sequence[tuple[ir.Index, int]],
) -> list[str]:
    """The lines of the check: read ranks and sizes, then compare shapes, kinds and least sizes."""
    whole = [t for t in system.tensors if _is_unpacked(t, known_sizes)]
    compared = [t for t in system.tensors if t not in whole]
    fixed = find_fixed(system)
    extents = [e for t in compared for e in t.shape] + [index.extent for index, _ in counted]
    extents += [e for a, k in fixed for e in (a.tensor.shape[k], a.places[k])]
    needed = {*returned, *positive, *find_size_names(*extents)}
    needed |= {size for source in known_sizes for size in _needs(source)}
    made = [size for size in positive if all(size != own.name for own in system.sizes)]
    return [
        *(line for size in system.sizes for line in _write_keyword(size.name, positive)),
        *_unpack_shapes(system, known_sizes, whole, needed),
        *_compare_shapes(system, compared),
        *_compare_kinds(system),
        *_compare_scalars(system),
        *_compare_fixed(fixed),
        *_compare_least(made, counted),
    ]


def _unpack_shapes(
    system: ir.System,
    known_sizes: Sequence[SizeSource],
    whole: Sequence[ir.Tensor],
    needed: set[str],
) -> list[str]:
    """The lines that compare ranks and read sizes; in `whole` each axis of a tensor is a size."""
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
    return lines


def _compare_shapes(system: ir.System, compared: Sequence[ir.Tensor]) -> Iterator[str]:
    for tensor in compared:
        shape = [to_python(extent) for extent in tensor.shape]
        must = f"{show_access(tensor, system)} must be [{', '.join(map(_show_extent, shape))}], "
        got = f"got {{list({tensor.name}.shape)}}"
        yield f"if {tensor.name}.shape != {to_tuple(shape)}:"
        yield from _write_raise(must, got)


def _compare_kinds(system: ir.System) -> Iterator[str]:
    """The lines that compare dtypes; torch itself refuses those of real tensors."""
    for tensor in system.tensors:
        if tensor.kind in KINDS:
            test, words = KINDS[tensor.kind]
            must = f"{show_access(tensor, system)} must hold {words}, "
            got = f"got {{{tensor.name}.dtype}}"
            yield f"if {test.format(tensor.name)}:"
            yield from _write_raise(must, got)


def _compare_scalars(system: ir.System) -> Iterator[str]:
    finite = find_finite(system)
    for name in (scalar.name for scalar in system.scalars):
        # only a tensor of one number may replace it: others would broadcast
        yield f"if torch.is_tensor({name}) and {name}.ndim != 0:"
        yield from _write_raise(f"{name} is a scalar, ", f"got {{list({name}.shape)}}")
        if name in finite:
            yield f"if isinstance({name}, float) and not abs({name}) < torch.inf:"
            yield from _write_raise(f"{name} must be finite, ", f"got {{{name}}}")


def _compare_fixed(fixed: Sequence[tuple[ir.Access, int]]) -> Iterator[str]:
    """The lines that compare fixed places, such as x[0], with their extents."""
    for access, k in fixed:
        last, length = Polynomial.of(access.places[k]).constant, to_python(access.tensor.shape[k])
        test = f"not 0 <= {to_python(access.places[k], ADD)} < {length}"
        yield f"if {test if last is None else f'{length} < {last + 1}'}:"
        yield from _write_raise(f"{to_text(access)} is not there, ", f"as {_show_extent(length)}")


def _compare_least(
    positive: Sequence[str], counted: Sequence[tuple[ir.Index, int]]
) -> Iterator[str]:
    """The lines that compare sizes with 1, and extents of indices with the least ones allowed."""
    for size in positive:
        yield f"if {size} < 1:"
        yield from _write_raise(f"{size} must be at least 1, ", f"got {{{size}}}")
    for index, least in counted:
        extent = to_python(index.extent)
        must = f"index {index.name} must have an extent of {least} at least, "
        got = f"got {to_text(index.extent).replace(' * ', '*')}={{{extent}}}"
        yield f"if {extent} < {least}:"
        yield from _write_raise(must, got)


def find_finite(system: ir.System) -> set[str]:
    """The names of scalars whose infinity would reach a product or a sum.

    In comparisons, bounds, divisors and softmaxes an infinity is allowed: its value there does not
    depend on the order of operations.
    """
    found: set[str] = set()
    reached: dict[ir.Tensor, set[str]] = {}  # the scalars with which a tensor is infinite

    def ask(expr: ir.Expr) -> set[str]:
        inside = [ask(child) for child in expr.children]
        inner: set[str] = set().union(*inside)
        match expr:
            case ir.Scalar(name):
                return {name}
            case ir.Access(tensor, _):
                return reached.get(tensor, set())
            case ir.Mul(parts) if sum(map(is_variable, parts)) > 1:
                found.update(inner)
            case ir.Add() if sum(map(len, inside)) > len(inner):
                found.update(inner)  # the terms may cancel
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
    """The pairs (access, axis) with a fixed place, such as x[0], on an axis that may be too short.

    Each place once; not the places before the first one of a recurrence.
    """
    found: dict[tuple[ir.Tensor, int, ir.Expr], tuple[ir.Access, int]] = {}
    read = [pair for equation in system.equations for pair in find_reads(equation.value, ())]
    left: list[tuple[ir.Access, Guards]]
    left = [(each.target, ()) for each in system.written if not find_start(each.target)]
    for access, guards in (*read, *left):
        for k, (place, extent) in enumerate(zip(access.places, access.tensor.shape, strict=True)):
            is_fixed = not any(isinstance(part, (ir.Index, ir.Access)) for part in walk(place))
            ends = (_subtract(place, ir.MINUS_ONE), _subtract(extent, place))
            is_begun = ir.negate(ir.Compare("<", place, ir.ZERO)) in guards
            is_there = (access, guards) in left and is_above_zero(ends[0])
            is_there = (is_there or is_begun) and is_above_zero(ends[1])
            if is_fixed and not is_there and Polynomial.of(extent).constant is None:
                found.setdefault((access.tensor, k, place), (access, k))
    return list(found.values())


def has_places(system: ir.System, extent: ir.Expr, count: int) -> bool:
    """Whether an extent is at least `count` for all sizes that pass the checks."""
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
    """Whether each axis determines a size of its own, so that nothing is left to compare."""
    own = [s for s in known_sizes if s.is_plain and s.tensor is tensor]
    return bool(own) and len(own) == len(tensor.shape)


def _needs(source: SizeSource) -> set[str]:
    return {*find_size_names(source.coefficient, source.rest)}


def _write_size(source: SizeSource, system: ir.System) -> list[str]:
    """The lines that read a size: `D = W.shape[1]`, or `D = W.shape[1] // H` after a check."""
    place = f"{source.tensor.name}.shape[{source.place}]"
    if source.is_plain:
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


def _write_keyword(size: str, positive: Sequence[str]) -> list[str]:
    """The lines that check the type and value of a size that no shape determines."""
    least = int(size in positive)
    is_wrong = f"isinstance({size}, bool) or not isinstance({size}, (int, torch.SymInt))"
    must = f"{size} must be an integer of at least {least}, "
    return [f"if {is_wrong} or {size} < {least}:", *_write_raise(must, f"got {{{size}!r}}")]


def _write_raise(must: str, got: str, *, is_short: bool = False) -> list[str]:
    line = f'{INDENT}raise ValueError(f"{must}{got}")'
    if is_short or len(INDENT) + len(line) <= WIDTH:
        return [line]
    opening = f"{INDENT}raise ValueError("
    return [opening, f'{INDENT * 2}f"{must}"', f'{INDENT * 2}f"{got}"', f"{INDENT})"]


def _show_extent(text: str) -> str:
    """The extent and its value in an f-string, `H*D={H * D}`; a number alone."""
    return text if text.isdigit() else f"{text.replace(' * ', '*')}={{{text}}}"


def show_access(tensor: ir.Tensor, system: ir.System) -> str:
    """The first read of a tensor in the formula, with plain indices if any has: `W_Q[h,d,e]`."""
    read = _find_first_reads(system).get(tensor)
    return to_text(read) if read else tensor.name


@lru_cache(maxsize=1 << 4)
def _find_first_reads(system: ir.System) -> Mapping[ir.Tensor, ir.Access]:
    reads = [a for e in system.equations for a in find_accesses(e.value)]
    reads.sort(key=lambda read: not all(isinstance(place, ir.Index) for place in read.places))
    return {read.tensor: read for read in reversed(reads)}


_WHOLE = "whole = count * chunk"
_CHECKED = f"""# a product of factors may be too large where no value is, and all after it are then
        try:
            is_finite = inner or bool(ends.select(dim, -1).isfinite().all())
        except RuntimeError:  # torch batches, or knows shapes alone
            is_finite = False
        {_WHOLE} if is_finite else 0"""


def write_helpers(plans: Sequence[Plan], *, ranges: bool = False) -> list[str]:
    """The texts of the helper functions that plans call; `ranges`: with the check of integers."""
    steps = [step.op for plan in plans for step in plan.steps]
    nests = [each for plan in plans for tile in plan.tiles for each in tile.nest]
    inside = [part for op in steps for part in ops.walk_ops(op)]
    inside += [part for tile in nests for _, op in tile.sliced for part in ops.walk_ops(op)]
    calls = [part for op in inside if isinstance(op, ops.Cell) for part in walk_call(op.call)]
    called = {part.function for part in calls if isinstance(part, TorchCall)}
    recurring = [op for op in steps if isinstance(op, ops.Recur)]
    uses = {RANGE: ranges, RECUR: recurring, FILL: any(tile.start for tile in nests)}
    uses[FOURIER] = any(isinstance(op, ops.Fourier) for op in inside)
    uses[UNFOLD] = any(map(is_growing, inside))
    uses[SPLIT] = any(tile.is_shifting(op) for tile in nests for _, op in tile.sliced)
    called |= {name for name, is_used in uses.items() if is_used}
    helpers = read_helpers()
    inner = {word for name in called for word in re.findall(r"\w+", helpers.get(name, ""))}
    texts = {name: text for name, text in helpers.items() if name in called | inner}
    if recurring:
        untraced = " and not torch.compiler.is_compiling()"  # the shape would depend on the values
        checked = (untraced, ", inner: bool = False", ", True", _CHECKED)
        pieces = ("", "", "", _WHOLE) if all(op.is_bounded for op in recurring) else checked
        words = zip(("untraced", "inner", "is_inner", "whole"), pieces, strict=True)
        texts[RECUR] = texts[RECUR].format(**dict(words))
    return [*texts.values()]
