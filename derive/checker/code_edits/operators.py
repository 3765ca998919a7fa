"""What may be written otherwise at one place of the code: another part, or one less.

    another number, name, operator, or function     exchange two parts
    drop a part                                     move a part out of or into another

What is put in comes from the code around it and from the formula: its numbers, its functions, the
sizes as the code can spell them. The cost says how likely a slip is; cheaper ones are tried first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

from derive.checker.code_edits.running import is_like, is_number
from derive.ir.functions import FUNCTIONS, find_confused
from derive.ir.nodes import Along, Call, Number, Reduce
from derive.ir.walk import walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.checker.code_edits.sites import Rewrite, Site
    from derive.ir.nodes import System

# Functions that are taken for one another, but for the activations, which their rows tell; the
# formula's own are tried in place of these and of the first two lines.
_ALIKE = (
    "softmax log_softmax sigmoid",
    "mean sum amax amin logsumexp prod",
    "sum cumsum",
    "sin cos",
    "exp log sqrt rsqrt square abs",
    "log log2 log10 log1p",
    "exp exp2 expm1",
    "tril triu",
    "maximum minimum",
    "max min argmax argmin",
    "std var",
    "bmm matmul",
    "any all",
    "softmin softmax",
)
_UNWRITTEN = {"tril", "triu", "any", "all"}  # the notation has no such functions
# Functions whose whole number is an axis.
_AXES = (
    *("softmax", "log_softmax", "softmin", "mean", "sum", "amax", "amin", "logsumexp", "prod"),
    *("cumsum", "cumprod", "var", "std", "norm", "max", "min", "argmax", "argmin", "any", "all"),
    *("unsqueeze", "squeeze", "gather", "select", "cat", "stack", "chunk", "size"),
)
_OPERATORS = {
    ast.Add: ("+", "- * /"),
    ast.Sub: ("-", "+ * /"),
    ast.Mult: ("*", "/ + -"),
    ast.Div: ("/", "* - +"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.Lt: ("<", "<= > >="),
    ast.LtE: ("<=", "< >= >"),
    ast.Gt: (">", ">= < <="),
    ast.GtE: (">=", "> <= <"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
_NAMES = {"amax": "max", "amin": "min", "maximum": "max", "minimum": "min"}
_FILLED = {"masked_fill", "masked_fill_", "where", "full", "full_like", "fill_", "clamp"}
_ROOTS = {"sqrt": "root", "rsqrt": "root"}
_LIBRARIES = {"torch", "F", "nn", "math", "np", "numpy", "einops"}
_TURNS = {"T", "mT", "transpose", "permute", "flip", "t", "swapaxes", "movedim"}


@dataclass(frozen=True)
class Stock:
    """What the formula has to put in."""

    functions: tuple[str, ...]
    numbers: tuple[Fraction, ...]
    sizes: Mapping[str, int]

    @staticmethod
    def of(system: System, sizes: Mapping[str, int]) -> Stock:
        """The functions and numbers of the formula, in its order."""
        nodes = [node for equation in system.equations for node in walk(equation.value)]
        functions: dict[str, None] = {}
        numbers: dict[Fraction, None] = {}
        for node in nodes:
            match node:
                case Call(name) | Along(name) | Reduce(name):
                    functions[name] = None
                    if name in {"max", "min"} and isinstance(node, Call):
                        functions["relu"] = None  # max(x, 0)
                case Number(value):
                    for each in (value, -value, 1 / value if value else value):
                        numbers[each] = None
        return Stock(tuple(functions), tuple(n for n in numbers if n not in {0, 1}), sizes)


def replace_numbers(site: Site, stock: Stock) -> Iterator[Rewrite]:
    """Another number: of the formula, another axis, one more or less, the contrary, the inverse."""
    old = read_number(site.node)
    if old is None or (isinstance(site.parent, ast.UnaryOp)):
        return
    tries: dict[Any, float] = {}
    if isinstance(old, int):
        tries |= {old + 1: 0.2, old - 1: 0.2}
        tries |= {n: 0.0 if _is_axis(site) else 0.6 for n in (-1, -2, -3, -4, 0, 1, 2, 3, 4)}
    for number in stock.numbers:
        tries.setdefault(int(number) if number.denominator == 1 else float(number), 0.1)
    tries.setdefault(-old, 0.1)
    for number in (old * 2, old / 2, 1 / old if old else old):
        tries.setdefault(number, 0.4)
    if _is_axis(site):  # counted from the same end
        tries = {n: cost + 0.02 * ((n < 0) != (old < 0)) for n, cost in tries.items()}
    yield from _name_numbers(site, old)
    beside = {read_number(each) for each in getattr(site.parent, "args", ())}
    if _is_axis(site) and isinstance(site.parent, (ast.keyword, ast.Call)):
        for axes in ("(0, 1)", "(1, 2)", "(2, 3)", "(-2, -1)", "(0, 2)", "(1, 3)"):
            yield site.replace(axes, _say_number(site, axes, repr(old)), 1.6)
    for number, extra in tries.items():
        if number not in beside | {old} and not _does_nothing(site, number):
            yield site.replace(
                repr(number), _say_number(site, repr(number), repr(old)), 1.0 + extra
            )


def _does_nothing(site: Site, number: Any) -> bool:
    """Would it be a factor or a power of 1, or a term of 0?"""
    match site.parent:
        case ast.BinOp(op=ast.Mult() | ast.Div() | ast.Pow()):
            return bool(number == 1)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return bool(number == 0)
    return False


def _name_numbers(site: Site, old: Any) -> Iterator[Rewrite]:
    """What has a name instead of a number: a whole number that runs, minus infinity in a mask."""
    for name, value in site.names.items():
        if is_number(value) and type(value) is type(old):
            yield site.replace(name, f"USE {name}, not {old}", 1.4)
    call = site.parent
    if isinstance(call, ast.Call) and find_name(call) in _FILLED:
        for filled in ('float("-inf")', "0.0"):
            yield site.replace(filled, f"FILL with {filled}, not {site.text}", 1.1)


def read_number(node: ast.expr) -> Any:
    """The number that an expression is, its sign included; None for another."""
    match node:
        case ast.Constant(value=int() | float() as value) if is_number(value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(value=int() | float() as value)):
            return -value
    return None


def _is_axis(site: Site) -> bool:
    match site.parent:
        case ast.keyword(arg=name):
            return name in {"dim", "axis", "dim0", "dim1", "dims", "diagonal"}
        case ast.Call() | ast.Tuple() | ast.List() | ast.Subscript():
            return True
    return False


def _say_number(site: Site, new: str, old: str) -> str:
    call = next((p for p in reversed(site.parents) if isinstance(p, ast.Call)), None)
    name = "" if call is None else find_name(call)
    if _is_axis(site) and name in _AXES:
        return f"{name.upper()} over axis {new}, not {old}"
    return f"the constant {new}, not {old}{name and f', in {name}'}"


def replace_names(site: Site, _: Stock) -> Iterator[Rewrite]:
    """Another name of a like value."""
    match site.node:
        case ast.Name(id=old) if old in site.names:
            others: Mapping[str, Any] = site.names
            prefix = ""
        case ast.Attribute(ast.Name(id=owner), old) if owner in site.names:
            members = site.names[owner]
            others, prefix = (members if isinstance(members, dict) else {}), f"{owner}."
        case _:
            return
    value = others.get(old)
    for name, other in others.items():
        if name != old and value is not None and is_like(value, other):
            same = getattr(value, "shape", 0) == getattr(other, "shape", 0)
            words = f"USE {prefix}{name}, not {prefix}{old}"
            less = 0.5 if name in site.source.unused else 0.0
            yield site.replace(prefix + name, words, (1.0 if same else 1.5) - less)
            if is_number(value) and is_number(other):
                yield site.join(f"1 - {name}", f"USE 1 - {name}, not {old}", 1.6)
    if is_number(value):
        for text, number in find_spelt_sizes(site):
            if number != value:
                yield site.replace(text, f"USE {text}, not {prefix}{old}", 1.3)


def exchange_parts(site: Site, _: Stock) -> Iterator[Rewrite]:
    """Two arguments, elements, places or operands in each other's place."""
    match site.node:
        case ast.Call(args=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case ast.BinOp(left, ast.Sub() | ast.Div() | ast.MatMult() | ast.Pow(), right):
            parts = [left, right]
        case ast.Compare(left, _, [right]):
            parts = [left, right]
        case _:
            return
    for one, two in combinations(parts, 2):
        texts = site.source.get(one), site.source.get(two)
        if texts[0] != texts[1] and not any(isinstance(p, ast.Starred) for p in (one, two)):
            words = f"EXCHANGE {' and '.join(sorted(texts))}"
            yield site.replace(exchange(site, one, two), words, 1.1)


def exchange_names(site: Site, _: Stock) -> Iterator[Rewrite]:
    """Two names in each other's place, wherever an expression has them."""
    if not site.is_open or not isinstance(site.node, ast.BinOp):
        return
    found = [n for n in ast.walk(site.node) if isinstance(n, ast.Name) and n.id in site.names]
    begin = site.source.span(site.node)[0]
    for one, two in combinations(dict.fromkeys(node.id for node in found), 2):
        text = site.text
        if not is_like(site.names[one], site.names[two]):
            continue
        spans = sorted((site.source.span(n), n.id) for n in found if n.id in {one, two})
        for (start, end), name in reversed(spans):
            other = two if name == one else one
            text = text[: start - begin] + other + text[end - begin :]
        yield site.replace(text, f"EXCHANGE {' and '.join(sorted((one, two)))}", 1.2)


def exchange(site: Site, one: ast.expr, two: ast.expr) -> str:
    """The text of a site with two of its parts exchanged."""
    begin, end = site.source.span(site.node)
    (a, b), (c, d) = site.source.span(one), site.source.span(two)
    text = site.source.text
    left, right = text[c:d], text[a:b]
    if isinstance(site.node, (ast.BinOp, ast.Compare)):
        left, right = (bracket(each, t) for each, t in ((two, left), (one, right)))
    return text[begin:a] + left + text[b:c] + right + text[d:end]


def bracket(node: ast.expr, text: str) -> str:
    """The text of a part, in brackets where it needs them beside another."""
    return f"({text})" if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) else text


def replace_operators(site: Site, _: Stock) -> Iterator[Rewrite]:
    """Another operator between the same operands."""
    match site.node:
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            pass
        case _:
            return
    old, others = _OPERATORS.get(type(op), ("", ""))
    gap = site.source.span(left)[1], site.source.span(right)[0]
    text = site.source.text[slice(*gap)]
    begin, end = site.source.span(site.node)
    one, two = site.source.get(left), site.source.get(right)
    for new in others.split():
        words = f"{new}, not {old}, between {one} and {two}"
        if _rank(new) == _rank(old):
            middle = text.replace(old, new, 1)
            whole = site.source.text[begin : gap[0]] + middle + site.source.text[gap[1] : end]
            yield site.replace(whole, words, 1.0)
        else:
            whole = f"{bracket(left, one)} {new} {bracket(right, two)}"
            yield site.join(whole, words, 1.6)


def _rank(operator: str) -> int:
    return {"+": 0, "-": 0, "*": 1, "/": 1, "//": 1, "%": 1}.get(operator, 2)


def find_name(call: ast.Call) -> str:
    """The last name of what is called."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return "it"


def _is_composite(name: str) -> bool:
    return name in FUNCTIONS and bool(FUNCTIONS[name].definition and FUNCTIONS[name].torch)


def replace_functions(site: Site, stock: Stock) -> Iterator[Rewrite]:
    """Another function of the same arguments, or of the first alone."""
    if not isinstance(site.node, ast.Call):
        return
    old = find_name(site.node)
    groups = [each.split() for each in _ALIKE]
    alike = [name for group in groups if old in group for name in group]
    activations = [*filter(_is_composite, find_confused(old))] if _is_composite(old) else []
    known = bool(activations) or old in {name for group in groups[:2] for name in group}
    mine = [name for name in stock.functions if known]
    plain = {_NAMES.get(name, name) for name in stock.functions}
    for name in dict.fromkeys((*alike, *activations, *mine)):
        if name == old:
            continue
        cost = 1.0 if _NAMES.get(name, name) in plain or name in _UNWRITTEN else 1.6
        words = f"{name}, not {old}"
        end, inside = site.source.span(site.node.func)[1], site.source.span(site.node)[1]
        rest = site.source.text[end:inside]
        given = find_receiver(site)
        for call in _spell(site, name, old):
            yield site.replace(call + rest, words, cost)
        if given is not None:
            for axis in ("", ", dim=-1", ", dim=-2", ", dim=0", ", dim=1"):
                spelt = spell_free(name)
                yield site.replace(f"{spelt}({given}{axis})", words, cost + 0.1)


def _spell(site: Site, name: str, old: str) -> Iterator[str]:
    text = site.source.get(site.node.func)  # type: ignore[attr-defined]
    yield text[: -len(old)] + name


def spell_free(name: str) -> str:
    """A function of torch's as the code can call it."""
    import torch

    names = {"max": "amax", "min": "amin"}
    name = names.get(name, name)
    return f"torch.{name}" if hasattr(torch, name) else f"torch.nn.functional.{name}"


def find_receiver(site: Site) -> str | None:
    """The text of the tensor that a call is of."""
    node = _find_receiver_node(site.node) if isinstance(site.node, ast.Call) else None
    return None if node is None else site.source.get(node)


def _find_receiver_node(call: ast.Call) -> ast.expr | None:
    """The tensor that a call is of: what the method is called on, or the first argument."""
    match call.func:
        case ast.Attribute(value=owner) if not _is_module(owner):
            return owner
        case ast.Attribute() | ast.Name() if call.args:
            return call.args[0]
    return None


def _is_module(node: ast.expr) -> bool:
    """Is it a library under one of its usual names, or a part of one?"""
    match node:
        case ast.Name(id=name):
            return name in _LIBRARIES
        case ast.Attribute(value=inner):
            return _is_module(inner)
    return False


def drop_parts(site: Site, _: Stock) -> Iterator[Rewrite]:
    """A call without its function, an operation without an operand, no keyword."""
    get = site.source.get
    match site.node:
        case ast.Call(keywords=keywords):
            given, name = find_receiver(site), find_name(site.node)
            if given is not None and site.is_value:
                cost = 1.0 if name in _TURNS else 1.4
                yield site.join(given, f"DROP {name} of {given}", cost)
            for keyword in keywords:
                gone = get(keyword)
                less = re.sub(r",?\s*" + re.escape(gone), "", site.text, count=1)
                yield site.replace(less, f"DROP {gone}", 1.7)
        case ast.Attribute(value=inner, attr=name) if name in _TURNS:
            yield site.join(get(inner), f"DROP .{name} of {get(inner)}: TRANSPOSE no more", 1.0)
        case ast.BinOp(left, op, right):
            what = "term" if isinstance(op, (ast.Add, ast.Sub)) else "factor"
            cost = 1.2 if read_number(right) is not None else 1.5
            yield site.join(get(left), f"DROP the {what} {get(right)}", cost)
            if not isinstance(op, ast.Pow):
                cost = 1.2 if read_number(left) is not None else 1.6
                yield site.join(get(right), f"DROP the {what} {get(left)}", cost)
        case ast.UnaryOp(operand=inner) if read_number(site.node) is None:
            yield site.join(get(inner), f"the SIGN of {get(inner)} is to be turned", 1.0)
        case ast.IfExp(body=body, orelse=other):
            for each in (body, other):
                yield site.join(get(each), f"USE {get(each)} always", 2.0)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if len(parts) > 1:
            for part in parts if all(read_number(part) is not None for part in parts) else ():
                kept = ", ".join(get(each) for each in parts if each is not part)
                kept = f"[{kept}]" if isinstance(site.node, ast.List) else f"({kept},)"
                yield site.replace(kept, f"over the axes {kept}, not {site.text}", 1.2)


def move_parts(site: Site, _: Stock) -> Iterator[Rewrite]:
    """(a + b) / c as a / c + b; f(a + b) as f(a) + b; and back."""
    get = site.source.get
    sums, products = (ast.Add, ast.Sub), (ast.Mult, ast.Div)
    match site.node:
        case ast.BinOp(ast.BinOp(a, inner, b), outer, c) if type(inner) is not type(outer):
            one, two = _show_op(inner), _show_op(outer)
            if one and two and isinstance(inner, (*sums, *products)):
                words = f"{two} {get(c)} concerns {{}} alone"
                at, bt, ct = (bracket(n, get(n)) for n in (a, b, c))
                if isinstance(inner, sums) and isinstance(outer, products):
                    yield site.join(f"{at} {two} {ct} {one} {bt}", words.format(get(a)), 1.4)
                    yield site.join(f"{at} {one} {bt} {two} {ct}", words.format(get(b)), 1.4)
                if isinstance(inner, products) and isinstance(outer, sums):
                    yield site.join(f"{at} {one} ({bt} {two} {ct})", words.format(get(b)), 1.5)
                    yield site.join(f"({at} {two} {ct}) {one} {bt}", words.format(get(a)), 1.5)
        case ast.BinOp(c, ast.Mult() as outer, ast.BinOp(a, (ast.Add() | ast.Sub()) as inner, b)):
            one, ct = _show_op(inner), bracket(c, get(c))
            at, bt = (bracket(n, get(n)) for n in (a, b))
            words = f"* {get(c)} concerns {{}} alone"
            yield site.join(f"{ct} * {at} {one} {bt}", words.format(get(a)), 1.4)
            yield site.join(f"{at} {one} {ct} * {bt}", words.format(get(b)), 1.4)
        case ast.BinOp(
            a, (ast.Add() | ast.Sub()) as inner, ast.BinOp(b, (ast.Mult() | ast.Div()) as outer, c)
        ):
            one, two = _show_op(inner), _show_op(outer)
            words = f"{two} {get(c)} concerns all of {get(a)} {one} {get(b)}"
            at, bt, ct = (bracket(n, get(n)) for n in (a, b, c))
            yield site.join(f"({at} {one} {bt}) {two} {ct}", words, 1.5)
        case ast.BinOp(ast.Call(f, [a]) as one_call, op, ast.Call(g, [b])) if (
            _show_op(op) and get(f) == get(g) and _find_receiver_node(one_call) is a
        ):
            joined = f"{get(f)}({bracket(a, get(a))} {_show_op(op)} {bracket(b, get(b))})"
            name = find_name(one_call)
            yield site.replace(
                joined, f"APPLY {name} once, to {get(a)} {_show_op(op)} {get(b)}", 1.2
            )
    yield from _move_calls(site)


def _move_calls(site: Site) -> Iterator[Rewrite]:
    """What a function is applied to, in brackets of its own or not."""
    for call, op, rest, before in _find_outer(site):
        given = _find_receiver_node(call)
        if given is None:
            continue
        (start, end), (begin, stop) = site.source.span(given), site.source.span(call)
        text, inner = site.source.text, site.source.get(given)
        parts = [bracket(given, inner), bracket(rest, site.source.get(rest))]
        joined = f" {_show_op(op)} ".join(parts[::-1] if before else parts)
        joined = joined if given in call.args else f"({joined})"
        what = _ROOTS.get(find_name(call), find_name(call))
        words = f"{site.source.get(rest)} INSIDE the {what}"
        if isinstance(op, (ast.Mult, ast.Div)):
            by = f"{'1/' * isinstance(op, ast.Div)}{site.source.get(rest)}"
            words = f"SCALE the argument of {find_name(call)} by {by}, not its value"
        yield site.replace(text[begin:start] + joined + text[end:stop], words, 1.4)
    if isinstance(site.node, ast.Call):
        given = _find_receiver_node(site.node)
        if isinstance(given, ast.BinOp) and _show_op(given.op):
            (start, end), (begin, stop) = site.source.span(given), site.source.span(site.node)
            head, tail = site.source.text[begin:start], site.source.text[end:stop]
            a, b = site.source.get(given.left), site.source.get(given.right)
            one, two = bracket(given.left, a), bracket(given.right, b)
            sign, name = _show_op(given.op), find_name(site.node)
            name = f"the {_ROOTS.get(name, name)}"
            yield site.join(f"{head}{a}{tail} {sign} {two}", f"{b} OUTSIDE {name}", 1.4)
            yield site.join(f"{one} {sign} {head}{b}{tail}", f"{a} OUTSIDE {name}", 1.4)


def _find_outer(site: Site) -> Iterator[tuple[ast.Call, ast.operator, ast.expr, bool]]:
    """A call beside an operator: the call, the operator, what else, and whether it is before."""
    match site.node:
        case ast.BinOp(left, op, right) if _show_op(op):
            if isinstance(left, ast.Call):
                yield left, op, right, False
            if isinstance(right, ast.Call):
                yield right, op, left, True


def _show_op(op: ast.operator) -> str:
    return _OPERATORS.get(type(op), ("", ""))[0]


def find_spelt_sizes(site: Site) -> Iterator[tuple[str, int]]:
    """The sizes as the code can spell them: a name, else an axis of a tensor."""
    import torch

    met: set[int] = set()
    for name, value in site.names.items():
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            met.add(value)
            yield name, value
    for name, value in site.names.items():
        if isinstance(value, torch.Tensor):
            for axis, extent in enumerate(value.shape):
                if extent > 1 and extent not in met:
                    met.add(extent)
                    at = -1 if axis == value.dim() - 1 else axis
                    yield f"{name}.shape[{at}]", extent
