"""Each operation of a plan as a Python expression over torch tensors."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from derive.analysis.affine import to_linear
from derive.analysis.extents import is_above_zero
from derive.analysis.facts import is_never_negative
from derive.backend.arithmetic import (
    ADD,
    AND,
    ATOM,
    COMPARE,
    MUL,
    OR,
    POWER,
    SIGN,
    to_python,
    write_number,
)
from derive.ir import nodes as ir
from derive.ir.functions import ROWS, find_call, is_complex
from derive.ir.polynomial import Polynomial
from derive.ir.walk import walk
from derive.plan import ops, plan
from derive.plan.calls import (
    CellArgument,
    Condition,
    DtypeLimit,
    Extents,
    LocalName,
    Operand,
    Subscript,
    TorchCall,
)
from derive.plan.matrices import find_matrices, is_batched, to_matmul
from derive.plan.steps import Tile

ONE = Polynomial.of(1)
# names of helper functions of a generated file
RECUR, FOURIER, UNFOLD, SPLIT = "_recur", "_transform", "_unfold", "_split_windows"


INFIX = {
    **dict.fromkeys(("+", "-"), ADD),
    **dict.fromkeys(("*", "/", "floordiv", "mod", "@"), MUL),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), COMPARE),
    "and": AND,
    "or": OR,
}
SIGNS = {"floordiv": "//", "mod": "%", "and": "&", "or": "|"}


@dataclass(frozen=True, slots=True)
class Printer:
    """The writer of operations as Python text, with the names and the dtype that it uses."""

    like: str  # the tensor whose device and dtype new tensors have
    dtype: str  # text of the dtype
    subscripts: Mapping[ir.Index, str]  # letters in einsum strings
    scalars: tuple[str, ...] = ()  # scalars that are tensors in the code
    # in a loop, for it and those around it: the block's extent, and the length of this turn's block
    blocks: tuple[tuple[str, str], ...] = ()
    wanted: Mapping[str, str] = field(default_factory=dict)  # steps computed under a condition
    is_matmul: bool = False  # whether contractions are products of matrices, not einsum

    @property
    def _complex(self) -> str:
        """The text of the complex dtype whose parts have the formula's dtype, at least 32 bits."""
        of_parts = self.dtype.endswith(".real.dtype")
        return (
            f"{self.like}.dtype"
            if of_parts
            else f"torch.promote_types({self.dtype}, torch.complex64)"
        )

    def text(self, op: ops.Op, precedence: int = 0) -> str:
        """The expression, in parentheses if it binds less tightly than `precedence`."""
        text, own = self._write_op(op)
        return text if own >= precedence else f"({text})"

    def _write_op(self, op: ops.Op) -> tuple[str, int]:
        match op:
            case ops.Source(name, _, _):
                return name, ATOM
            case ops.Num(value):
                return write_number(value)
            case ops.NumTensor(value, wide):
                return self._number_tensor(value, "torch.float64" if wide else self.dtype), ATOM
            case ops.Iota(index):
                extent = to_python(index.extent)
                if not is_above_zero(ir.Add((index.extent, ir.ONE))):
                    extent = f"max({extent}, 0)"  # 2*N - 1 where N is 0
                return f"torch.arange({extent}, device={self.like}.device)", ATOM
            case ops.Triangle(rows, columns, offset, upper):
                side = "triu" if upper else "tril"
                by = "" if offset == Polynomial({}).to_expr() else to_python(offset)
                return f"{self._ones((rows, columns), 'torch.bool')}.{side}({by})", ATOM
            case ops.Einsum():
                is_einsum = not self.is_matmul and plan.has_letters(op)
                return self._contract(op) if is_einsum else self._write_op(to_matmul(op))
            case ops.Apply(function, args, _):
                return self._apply(function, args)
            case ops.Reduction():
                return self._reduction(op), ATOM
            case ops.Along(kind, arg, _, columns) if columns is not None:
                return f"torch.{ROWS[kind].torch}({self.text(arg)})", ATOM
            case ops.Along("cumsum", arg, _):
                return f"{self.text(arg, ATOM)}.cumsum({len(arg.axes) - 1})", ATOM
            case ops.Along(kind, arg, index):
                place, last = arg.axes.index(index), len(arg.axes) - 1
                return f"torch.{kind}({self.text(arg)}, dim={place if place < last else -1})", ATOM
            case ops.Fill(arg, mask, value, where):
                return self._choose(mask, *((value, arg) if where else (arg, value))), ATOM
            case ops.Choose(condition, then, other, _):
                return self._choose(condition, then, other), ATOM
            case ops.Cast(ops.NumTensor(value) | ops.Num(value), "int"):
                return self._number_tensor(value, "torch.int64"), ATOM
            case ops.Cast(arg, "int" | "wide" as kind):
                return f"{self.text(arg, ATOM)}.{'long' if kind == 'int' else 'double'}()", ATOM
            case ops.Cast(arg, kind):
                single = f"torch.promote_types({self.dtype}, torch.float32)"
                dtype = {"complex": self._complex, "single": single}.get(kind, self.dtype)
                return f"{self.text(arg, ATOM)}.to({dtype})", ATOM
            case ops.Recur():
                return self._recur(op), ATOM
            case ops.Fourier():
                return self._transform(op), ATOM
            case ops.Cell():
                return self._call_cell(op)
        return self._view(op), ATOM

    def _contract(self, op: ops.Einsum) -> tuple[str, int]:
        """The text of a contraction, by `@`, bmm or einsum, and its precedence."""
        matrices = find_matrices(op.args, op.axes)
        if matrices:
            return " @ ".join(self.text(each, SIGN) for each in matrices), MUL
        parts = ", ".join(self.text(a) for a in op.args)
        if is_batched(op.args, op.axes):
            return f"torch.bmm({parts})", ATOM
        return f'torch.einsum("{plan.to_equation(op, self.subscripts)}", {parts})', ATOM

    def _recur(self, op: ops.Recur) -> str:
        """The call of `_recur`, a helper function of the file, for a linear recurrence."""
        axes, index = op.axes, op.index
        assert op.first.axes == tuple(i for i in axes if i is not index)
        once = {i: index for i in op.decay.axes if i not in axes}
        decay = ops.arrange(ops.rename_indices(op.decay, once), axes)
        parts = ", ".join(map(self.text, (decay, ops.arrange(op.added, axes), op.first)))
        return f"{RECUR}({parts}, dim={axes.index(index) - len(axes)}, chunk={op.chunk})"

    def _call_cell(self, op: ops.Cell) -> tuple[str, int]:
        """The call of a cell; if it has conditions, `call if conditions else operations`."""

        def write_argument(place: int, precedence: int) -> str:
            return self.text(op.args[place], precedence)

        text, precedence = write_call(op.call, write_argument, self.like, self.dtype)
        if not op.when:
            return text, precedence
        test = write_conditions(op.when, write_argument, self.dtype)
        return f"{text} if {test} else {self.text(op.whole)}", OR

    def text_blocks(self, op: ops.Op, tile: Tile) -> str:
        """The expression that cuts an operation into blocks along the index of a loop."""
        last: tuple[Operand, ...]
        match op:
            case ops.Unfold(arg, place, _, inner, step) if tile.is_shifting(op):
                size, last = ops.Num(inner.extent), ()
            case ops.Cell(TorchCall(_, (_, place, *_, to)), (arg, size, ops.Num(step))) if (
                tile.is_shifting(op)
            ):
                last = (to,)
            case _:
                at = op.axes.index(tile.index)
                return f"{self.text(op, ATOM)}.split({tile.block}, {at})"
        parts = (self.text(arg), place, self.text(size), to_python(step), tile.block, *last)
        return f"{SPLIT}({', '.join(map(str, parts))})"

    def _transform(self, op: ops.Fourier) -> str:
        axes = op.arg.axes
        parts = [f'"{op.kind}"', self.text(op.arg), to_python(op.length)]
        place = axes.index(op.index)
        parts += [f"dim={place}"] if place < len(axes) - 1 else []
        parts += ['norm="forward"'] if op.is_plain else []
        return f"{FOURIER}({', '.join(parts)})"

    def _view(self, op: ops.Op) -> str:
        match op:
            case ops.Select(arg, place, at):
                return f"{self.text(arg, ATOM)}[{':, ' * place}{to_python(at)}]"
            case ops.Slice():
                cuts: dict[int, str] = {}
                bare: ops.Op = op
                while isinstance(bare, ops.Slice) and bare.place not in cuts:
                    cuts[bare.place] = _write_slice(bare)
                    bare = bare.arg
                where = ", ".join(cuts.get(k, ":") for k in range(max(cuts) + 1))
                return f"{self.text(bare, ATOM)}[{where}]"
            case ops.Flip(arg, place):
                return f"{self.text(arg, ATOM)}.flip({place})"
            case ops.Unfold(arg, place, _, inner, step):
                sizes = f"{place}, {to_python(inner.extent)}, {to_python(step)}"
                if not is_growing(op):
                    return f"{self.text(arg, ATOM)}.unfold({sizes})"
                return f"{UNFOLD}({self.text(arg)}, {sizes})"
            case ops.Pad():
                return self._pad(op)
            case ops.Take(arg, places, by):
                first, count = by[0], len(arg.axes)
                if len(by) == 1 and len(first.axes) == 1:
                    return f"{self.text(arg, ATOM)}.index_select({places[0]}, {self.text(first)})"
                if places == (0,) and count == 2 and not ops.is_boolean(arg):
                    given = f"{self.text(first)}, {self.text(arg)}"
                    return f"torch.nn.functional.embedding({given})"
                by_axis = dict(zip(places, map(self.text, by), strict=True))
                where = ", ".join(by_axis.get(k, ":") for k in range(places[-1] + 1))
                return f"{self.text(arg, ATOM)}[{where}]"
            case ops.Unflatten(arg, place, parts):
                sizes = ", ".join(to_python(i.extent) for i in parts)
                return f"{self.text(arg, ATOM)}.unflatten({place}, ({sizes}))"
            case ops.Diagonal(arg, first, second):
                where = "" if (first, second) == (0, 1) else f"dim1={first}, dim2={second}"
                return f"{self.text(arg, ATOM)}.diagonal({where})"
            case ops.Flatten(arg, start, end, _):
                return f"{self.text(arg, ATOM)}.flatten({start}, {end})"
            case ops.Arrange(arg, axes):
                return _arrange(self.text(arg, ATOM), arg.axes, axes)
            case ops.Expand(arg, axes):
                text = _arrange(self.text(arg, ATOM), arg.axes, axes)
                own = arg.axes
                lengths = ("-1" if self._is_cut(i) and i in own else self._extent(i) for i in axes)
                return f"{text}.expand({', '.join(lengths)})"
            case _:
                raise TypeError(f"no text for {type(op).__name__}")

    def _pad(self, pad: ops.Pad) -> str:
        """The call that pads one tensor with numbers; torch lists the last axis first."""
        pairs: dict[int, tuple[str, str]] = {}
        op: ops.Op = pad
        while isinstance(op, ops.Pad) and op.place not in pairs and op.value is pad.value:
            here = op.arg.axes[op.place].extent
            before = _find_before(op.before, here, op.index.extent)
            after = Polynomial.of(op.index.extent) - Polynomial.of(here) - Polynomial.of(before)
            amounts = before, after.to_expr()
            if Polynomial.of(here).terms.get((), 0) < 0:  # N - 1 where N is 0
                amounts = _limit(*amounts, op.index.extent)
            elif ir.ZERO in amounts:  # also at size 0
                amounts = _keep_from_below(amounts[0], here), _keep_from_below(amounts[1], here)
            pairs[op.place] = to_python(amounts[0]), to_python(amounts[1])
            op = op.arg
        count = len(op.axes)
        each = (pairs.get(place, ("0", "0")) for place in reversed(range(min(pairs), count)))
        text = ", ".join(", ".join(pair) for pair in each)
        filling = "" if pad.value is ir.ZERO else f", value={to_python(pad.value)}"
        return f"torch.nn.functional.pad({self.text(op)}, ({text}){filling})"

    def _is_cut(self, index: ir.Index) -> bool:
        return any(index.extent == ir.Size(name) for name, _ in self.blocks)

    def _extent(self, index: ir.Index) -> str:
        """The text of an axis' length; for a block, its length in this turn."""
        lengths = (length for name, length in self.blocks if index.extent == ir.Size(name))
        return next(lengths, "") or to_python(index.extent)

    def _ones(self, indices: Sequence[ir.Index], dtype: str) -> str:
        sizes = ", ".join(map(self._extent, indices))
        return f"{self.like}.new_ones({sizes}, dtype={dtype})"

    def _number_tensor(self, value: ir.Expr, dtype: str) -> str:
        if _has_scalar(ops.Num(value)):
            return to_python(value, ATOM)  # scalars of this form are tensors
        dtype = self._complex if is_complex(value) else dtype
        return f"{self.like}.new_full((), {to_python(value)}, dtype={dtype})"

    def _apply(self, function: str, args: tuple[ops.Op, ...]) -> tuple[str, int]:
        if function in INFIX:
            return self._infix(function, args)
        match function, args:
            case "neg", (arg,):
                return f"-{self.text(arg, SIGN)}", SIGN
            case "not", (arg,):
                return f"~{self.text(arg, SIGN)}", SIGN
            case "pow", (base, exponent):
                return f"{self.text(base, ATOM)}**{self.text(exponent, SIGN)}", POWER
            case "max" | "min", _:
                return self._extreme(function, args), ATOM
            case "clip", (arg, low, high):
                lower = self._extreme("max", (arg, low))
                if not isinstance(high, ops.Num):
                    return f"torch.minimum({lower}, {self.text(high)})", ATOM
                # one clamp takes two numbers or two tensors, and a scalar may be either
                if not isinstance(low, ops.Num) or _has_scalar(low, high):
                    return f"{lower}.clamp(max={self.text(high)})", ATOM
                bounds = f"{self.text(low)}, {self.text(high)}"
                return f"{self.text(arg, ATOM)}.clamp({bounds})", ATOM
            case _:
                found = find_call(function)
                if found is None:
                    raise TypeError(f"no call for {function}")
                parts = [self.text(arg) for arg in args]
                parts += [f"{key}={json.dumps(value)}" for key, value in found.keywords.items()]
                return f"{found.path}({', '.join(parts)})", ATOM

    def _choose(self, *parts: ops.Op) -> str:
        return f"torch.where({', '.join(self.text(part) for part in parts)})"

    def _extreme(self, function: str, args: tuple[ops.Op, ...]) -> str:
        """The max or min of operations, by torch.maximum, or clamp for a number."""
        text = self.text(args[0])
        for arg in args[1:]:
            if isinstance(arg, ops.Num):
                bound = "min" if function == "max" else "max"
                text = f"torch.clamp({text}, {bound}={self.text(arg)})"
            else:
                text = f"torch.{function}imum({text}, {self.text(arg)})"
        return text

    def _infix(self, function: str, args: tuple[ops.Op, ...]) -> tuple[str, int]:
        precedence = INFIX[function]
        if precedence in {COMPARE, AND, OR} or function == "@":
            left, right = (self.text(a, ADD if precedence == COMPARE else SIGN) for a in args)
        else:  # `*`, `/` and `@` bind alike, from the left: x * (y @ z) is not x * y @ z
            left, right = self.text(args[0], precedence), self.text(args[1], precedence + 1)
        return f"{left} {SIGNS.get(function, function)} {right}", precedence

    def _reduction(self, op: ops.Reduction) -> str:
        axes = op.arg.axes
        places = sorted(axes.index(i) for i in op.over)
        text = self.text(op.arg, ATOM)
        if ROWS[op.kind].is_matrix:
            return f"torch.{ROWS[op.kind].torch}({text})"
        if op.kind == "prod":
            return text + "".join(f".prod({place})" for place in reversed(places))
        where = _places(places, len(axes))
        if len(places) == len(axes) and op.kind in {"sum", "mean", "max", "min"}:
            where = ""
        row = ROWS[op.kind]
        if ops.is_boolean(op):
            return f"{text}.{'any' if op.kind == 'max' else 'all'}({where})"
        if op.kind == "argmax" and not ops.is_integral(op.arg):
            return f"{text}.max({where}).indices"  # faster than argmax, up to three times
        keywords = f", {row.keywords}" if row.keywords else ""
        return f"{text}.{row.torch or op.kind}({where}{keywords})"


def _limit(before: ir.Expr, after: ir.Expr, most: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """The pair of amounts padded before and after a range, at most `most` together."""
    first, last = (ir.Call("min", (amount, most)) for amount in (before, after))
    if before is ir.ZERO or after is ir.ZERO:
        return (before, last) if before is ir.ZERO else (first, after)
    left = (Polynomial.of(most) - Polynomial.of(before)).to_expr()
    return first, ir.Call("max", (ir.Call("min", (after, left)), ir.ZERO))


def _keep_from_below(amount: ir.Expr, here: ir.Expr) -> ir.Expr:
    """An amount of padding, at least 0 also where the padded length `here` is 0."""
    is_own = isinstance(here, ir.Size) and {p for p in walk(amount) if isinstance(p, ir.Size)} == {
        here
    }
    value = Polynomial.of(amount)
    if is_own and is_never_negative(value) and not is_above_zero((value + ONE).to_expr()):
        return ir.Call("max", (amount, ir.ZERO))
    return amount


def _find_before(before: ir.Expr, here: ir.Expr, wanted: ir.Expr) -> ir.Expr:
    """The amount padded before a range of length `here`, or cut off if negative.

    It is bounded by both lengths, because torch cuts before it pads.
    """
    number = Polynomial.of(before)
    back = Polynomial.of(0) - number
    if is_never_negative(number) or is_never_negative(back):
        return before
    if not is_above_zero((Polynomial.of(wanted) + back + ONE).to_expr()):
        before = ir.Call("min", (before, wanted))
    if not is_above_zero((Polynomial.of(here) + number + ONE).to_expr()):
        before = ir.Call("max", (before, (Polynomial.of(0) - Polynomial.of(here)).to_expr()))
    return before


def _write_slice(op: ops.Slice) -> str:
    """The text `start:stop:step` of a slice, without the parts that are defaults."""
    length = Polynomial.of(op.arg.axes[op.place].extent)
    start, step = Polynomial.of(op.start), Polynomial.of(op.step)
    stop = start + step * Polynomial.of(op.index.extent)
    count = ir.Call("floordiv", ((length - start + step - ONE).to_expr(), op.step))
    is_last = to_linear(count) == to_linear(op.index.extent)
    first = to_python(op.start) if start.terms else ""
    has_end = not is_last or (start.terms and isinstance(op.arg, ops.Unfold))  # also for no entries
    end = to_python(stop.to_expr()) if has_end else ""
    return f"{first}:{end}" + (f":{to_python(op.step)}" if step != ONE else "")


def is_growing(op: ops.Op) -> bool:
    """Whether an operation is a window whose length is a size, which torch's unfold would fix."""
    return isinstance(op, ops.Unfold) and not isinstance(op.inner.extent, ir.Number)


def write_call(
    call: Operand, given: Callable[[int, int], str], like: str, dtype: str
) -> tuple[str, int]:
    """The text of a call and its precedence; `given` writes an argument of its cell."""

    def write(part: Operand, precedence: int = 0) -> str:
        if isinstance(part, CellArgument):
            return given(part.place, precedence)
        text, own = write_call(part, given, like, dtype)
        return f"({text})" if own < precedence else text

    match call:
        case CellArgument(place):
            return given(place, 0), ATOM
        case LocalName(name):
            return {"like": like, "dtype": dtype, "device": f"{like}.device"}.get(name, name), ATOM
        case Subscript(TorchCall(".max" | ".min") as pair, (int(place),)):
            return f"{write(pair)}.{('values', 'indices')[place]}", ATOM
        case Subscript(arg, at):
            return f"{write(arg, ATOM)}[{', '.join(map(str, at))}]", ATOM
        case Extents(arg, start, stop):
            places = f"{start or ''}:{'' if stop is None else stop}"
            return f"*{write(arg, ATOM)}.shape[{places}]", ATOM
        case DtypeLimit(kind, word):
            return f"torch.finfo({write(kind)}).{word}", ATOM
        case TorchCall(function, (one, other)) if function in INFIX:
            precedence = INFIX[function]
            left = write(one, precedence + (function == "@"))
            right = write(other, precedence + 1)
            return f"{left} {function} {right}", precedence
        case TorchCall("**", (base, power)):
            return f"{write(base, ATOM)}**{write(power, SIGN)}", POWER
        case TorchCall(function, args, keywords):
            head, rest = ("", args)
            if function.startswith("."):
                head, rest = write(args[0], ATOM), args[1:]
            parts = [*map(write, rest), *(f"{name}={write(part)}" for name, part in keywords)]
            return f"{head}{function}({', '.join(parts)})", ATOM
        case tuple():
            return f"({', '.join(map(write, call))}{',' * (len(call) == 1)})", ATOM
        case str():
            return f'"{call}"', ATOM
    return repr(call), ATOM


def write_conditions(
    when: Sequence[Condition], given: Callable[[int, int], str], dtype: str
) -> str:
    """The text of the conditions under which a call of torch is used."""
    texts = {
        "wide": f"{dtype} in (torch.float32, torch.float64)",
        "real": f"{dtype}.is_floating_point",
    }
    return " and ".join(
        f"isinstance({given(each.place, 0)}, float)"
        if isinstance(each, CellArgument)
        else texts[each]
        for each in when
    )


def _has_scalar(*numbers: ops.Num) -> bool:
    return any(isinstance(part, ir.Scalar) for number in numbers for part in walk(number.value))


def _places(places: Sequence[int], rank: int) -> str:
    if list(places) == [rank - 1]:
        return "-1"
    return str(places[0]) if len(places) == 1 else f"({', '.join(map(str, places))})"


def _arrange(text: str, here: tuple[ir.Index, ...], there: tuple[ir.Index, ...]) -> str:
    """The text with permuted axes, and missing axes as 1 (leading ones are broadcast anyway)."""
    kept = tuple(a for a in there if a in here)
    text += _permute(here, kept)
    if not kept:
        return text
    after = there[there.index(kept[0]) :]
    if after == kept:
        return text
    while after and after[-1] in kept and any(a not in kept for a in after[:-1]):
        after = after[:-1]
    picks = [":" if a in kept else "None" for a in after]
    if all(p == ":" for p in picks[: len(kept)]) and len(picks) > len(kept) > 1:
        picks = ["...", *picks[len(kept) :]]
    return f"{text}[{', '.join(picks)}]"


def _permute(here: tuple[ir.Index, ...], there: tuple[ir.Index, ...]) -> str:
    if here == there:
        return ""
    order = [here.index(a) for a in there]
    moved = [k for k, place in enumerate(order) if k != place]
    if len(moved) == 2:
        first, second = moved
        is_matrix = (first, second) == (len(here) - 2, len(here) - 1)
        return ".mT" if is_matrix else f".transpose({first}, {second})"
    return f".permute({', '.join(map(str, order))})"
