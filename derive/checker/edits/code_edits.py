"""Edits of the code at one site: the text of a node replaced by another.

exchange    a number, name, operator, function, keyword or letter of an einsum for another;
            two parts for each other
leave out   an operand, a function, a keyword
insert      a text of the tables around a value, filled with sizes, numbers, names and functions

Inserted parts come from the surrounding code and from the formula. Costs follow the rule in
`sites`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

from derive.checker import samples
from derive.checker.edits import source
from derive.checker.edits.sites import EXCHANGED, LACKING, MISPLACED, SEVERAL
from derive.frontend.torch.numbers import is_number
from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS, find_call, find_confused
from derive.libraries import torch

# Functions that are mistaken for one another; their rows name the activations. The formula's own
# functions are tried for all functions of one argument, and for those of the first two rows.
_ALIKE = (
    "softmax log_softmax sigmoid",
    "mean sum amax amin logsumexp prod",
    "sum cumsum",
    "sin cos",
    "exp log sqrt rsqrt square abs",
    "tril triu",
    "maximum minimum",
    "max min argmax argmin",
    "std var",
)
_REDUCE = ("mean", "sum", "amax", "amin", "logsumexp", "prod", "var", "std", "norm", "max", "min")
_AXES = (*_REDUCE, "softmax", "log_softmax", "cumsum", "unsqueeze", "gather", "cat", "stack")
_ALONG = {"softmax", "log_softmax", "logsumexp", "mean", "max", "min", "cumsum"}
# the operators between two operands, and the operators that are tried for each
_SIGNS = {
    **{"+": "- * /", "-": "+ * /", "*": "/ + -", "/": "* - +", "//": "", "%": "", "@": ""},
    **{"&": "|", "|": "&", "<": "<= > >=", "<=": "< >= >", ">": ">= < <=", ">=": "> <= <"},
    **{"==": "!=", "!=": "=="},
}
_BOTH = {sign: ast.parse(f"a {sign} b", mode="eval").body for sign in _SIGNS}
_SIGN_OF = {
    type(node.ops[0] if isinstance(node, ast.Compare) else getattr(node, "op", None)): sign
    for sign, node in _BOTH.items()
}
_BINDING = {"+": 0, "-": 0, "*": 1, "/": 1, "//": 1, "%": 1, "@": 1}
_NAMES = {"amax": "max", "amin": "min", "maximum": "max", "minimum": "min"}
_FILLED = {"masked_fill", "masked_fill_", "where", "full", "full_like"}
_TURNS = {"T", "mT", "transpose", "permute", "flip", "t", "swapaxes", "movedim"}
_KEYWORDS: dict[str, tuple[str, ...]] = {
    "var": ("correction=0", "correction=1"),
    "std": ("correction=0", "correction=1"),
    "tril": ("diagonal=1", "diagonal=-1"),
    "triu": ("diagonal=1", "diagonal=-1"),
    "scaled_dot_product_attention": ("scale=1.0", "is_causal=True"),
}
_KEYWORDS |= {  # approximations
    row.spellings: (f"{word}={told!r}",)
    for row in FUNCTIONS.values()
    if (call := find_call(row.name))
    for word, told in call.keywords.items()
    if isinstance(told, str)
}
# What is inserted around a value: its text, the words, and the cost beyond that of a missing part.
_ALONE = (
    ("-{x}", "the SIGN of {bare} is to be turned", 0.1),
    ("{x} ** 2", "SQUARE {bare}", 0.2),
    ("{x} ** 0.5", "ROOT of {bare}", 0.2),
    ("1 / {x}", "INVERT {bare}", 0.7),
    ("1 - {x}", "1 - {bare}, not {bare}", 0.7),
)
_BY_SIZE = (
    ("{x} * {by} ** -0.5", "SCALE {bare} by 1/sqrt({by})", 0.3),
    ("{x} * {by} ** 0.5", "SCALE {bare} by sqrt({by})", 0.3),
    ("{x} / {by}", "SCALE {bare} by 1/{by}", 0.4),
    ("{x} * {by}", "SCALE {bare} by {by}", 0.4),
)
_BY_NUMBER = (
    ("{x} / {by}", "SCALE {bare} by 1/{by}", 0.3),
    ("{by} * {x}", "SCALE {bare} by {by}", 0.3),
    ("(1 - {by}) * {x}", "SCALE {bare} by 1 - {by}", 0.4),
)
_WITH = (
    ("{x} + {by}", "ADD the term {by} to {bare}", 0.1),
    ("{x} - {by}", "ADD the term -{by} to {bare}", 0.2),
    ("{x} * {by}", "ADD the factor {by} to {bare}", 0.3),
    ("{x} / {by}", "DIVIDE {bare} by {by}", 0.3),
)
_UNUSED = (
    ("{x} @ {by}", "MULTIPLY {bare} by {by}, which is unused", 0.1),
    ("{x} @ {by}.T", "MULTIPLY {bare} by {by}.T, which is unused", 0.1),
)
_TRANSPOSED = tuple(
    ("{x}" + f".transpose({axes})", "TRANSPOSE {bare}: " + f".transpose({axes})", 0.3)
    for axes in ("-1, -2", "0, 1", "1, 2")
)
_NEW = SEVERAL - LACKING  # the inserted part is new to the code


@dataclass(frozen=True)
class Stock:
    """The functions, numbers and sizes of the formula."""

    functions: tuple[str, ...]
    numbers: tuple[Fraction, ...]
    sizes: Mapping[str, int]

    @staticmethod
    def of(system: ir.System, sizes: Mapping[str, int], defaulted: Sequence[str] = ()) -> Stock:
        """The functions and numbers of the formula, with the defaults of some of its scalars."""
        functions: dict[str, None] = {}
        numbers: dict[Fraction, None] = {}
        for node in samples.list_parts(system):
            match node:
                case ir.Call(name) | ir.Along(name) | ir.Reduce(name):
                    functions[name] = None
                case ir.Number(value):
                    numbers |= dict.fromkeys((value, -value, 1 / value if value else value))
        defaults = [s.default for s in system.scalars if s.name in defaulted]
        numbers |= dict.fromkeys(n.value for n in defaults if isinstance(n, ir.Number))
        return Stock(tuple(functions), tuple(n for n in numbers if n not in {0, 1}), sizes)


def _show_op(op: ast.operator | ast.cmpop) -> str:
    return _SIGN_OF.get(type(op), "")


def _spell_free(name: str) -> str:
    """The full name of a function of torch: `torch.amax` for max."""
    name = {"max": "amax", "min": "amin"}.get(name, name)
    return f"torch.{name}" if hasattr(torch, name) else f"torch.nn.functional.{name}"


def exchange_numbers(site: source.CodeSite, stock: Stock) -> Iterator[source.Rewrite]:
    """Replace a number by one of the formula, a near one, its negative, a name, another axis."""
    old, call = source.read_number(site.node), site.parent
    if old is None or isinstance(call, ast.UnaryOp):
        return
    calls = (p for p in reversed(site.parents) if isinstance(p, ast.Call))
    outer = next(map(source.find_name, calls), "")
    is_axis = isinstance(call, (ast.Call, ast.Tuple, ast.List, ast.Subscript))
    if isinstance(call, ast.keyword):
        is_axis = call.arg in {"dim", "axis", "dim0", "dim1", "dims", "diagonal"}
    of_axis, inside = is_axis and outer in _AXES, outer and f", in {outer}"
    says = f"{outer.upper()} over axis {{}}, not {old!r}" if of_axis else ""
    says = says or f"the constant {{}}, not {old!r}{inside}"
    for name, value in site.names.items():
        if is_number(value) and type(value) is type(old):
            yield site.replace(name, f"USE {name}, not {old}", MISPLACED)
    for text, size in source.find_spelt_sizes(site) if isinstance(old, int) and not is_axis else ():
        if size != old and text not in site.names:
            yield site.replace(text, f"USE {text}, not {old}", MISPLACED + 0.2)
    if source.find_name(call) in _FILLED:
        words = f'FILL with float("-inf"), not {site.text}'
        yield site.replace('float("-inf")', words, EXCHANGED + 0.1)
    if is_axis and isinstance(call, (ast.keyword, ast.Call)):
        for axes in ("(0, 1)", "(1, 2)", "(2, 3)", "(-2, -1)", "(0, 2)", "(1, 3)"):
            yield site.replace(axes, says.format(axes), SEVERAL)
    near: list[tuple[Any, float]] = [(old + 1, 0.2), (old - 1, 0.2)] if isinstance(old, int) else []
    near += [(n, 0.0 if is_axis else 0.6) for n in (-1, -2, -3, -4, 0, 1, 2, 3, 4) if near]
    near += [(int(n) if n.denominator == 1 else float(n), 0.1) for n in stock.numbers]
    near += [(-old, 0.1), (old * 2, 0.4), (old / 2, 0.4), (1 / (old or 1), 0.4)]
    tries: dict[Any, float] = {}
    for number, extra in near:
        tries[number] = min(extra, tries.get(number, extra))
    idle: dict[type, int] = {ast.Mult: 1, ast.Div: 1, ast.Pow: 1, ast.Add: 0, ast.Sub: 0}
    beside = {old, *map(source.read_number, getattr(call, "args", ()))}
    beside.add(idle.get(type(getattr(call, "op", None))))
    for number, extra in tries.items():
        if number not in beside:  # axes are mostly counted from the same end
            other_end = 0.02 * (is_axis and (number < 0) != (old < 0))
            cost = EXCHANGED + extra + other_end
            yield site.replace(repr(number), says.format(repr(number)), cost)


def exchange_names(site: source.CodeSite, _: Stock) -> Iterator[source.Rewrite]:
    """Replace a name by another with a value of its kind; a number also by `x.shape[0]`."""
    match site.node:
        case ast.Name(id=old) if old in site.names:
            others, prefix = site.names, ""
        case ast.Attribute(ast.Name(id=owner), old) if isinstance(site.names.get(owner), dict):
            others, prefix = site.names[owner], f"{owner}."
        case _:
            return
    value = others.get(old)
    for name, other in others.items():
        if name != old and value is not None and source.is_like(value, other):
            same = getattr(value, "shape", 0) == getattr(other, "shape", 0)
            cost = (EXCHANGED if same else MISPLACED + 0.1) - 0.5 * (name in site.source.unused)
            yield site.replace(prefix + name, f"USE {prefix}{name}, not {prefix}{old}", cost)
    for text, number in source.find_spelt_sizes(site) if is_number(value) else ():
        if number != value:
            yield site.replace(text, f"USE {text}, not {prefix}{old}", EXCHANGED + 0.3)


def exchange_parts(site: source.CodeSite, _: Stock) -> Iterator[source.Rewrite]:
    """Exchange two arguments, elements of a list, or operands of `-`, `/`, `@`, `**`, `<`."""
    get, node = site.source.text_of, site.node
    parts: Sequence[ast.expr] = ()
    match node:
        case ast.Call(args=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case ast.BinOp(left, ast.Sub() | ast.Div() | ast.MatMult() | ast.Pow(), right):
            parts = [left, right]
        case ast.Compare(left, _, [right]):
            parts = [left, right]
    for one, two in combinations(parts, 2):
        texts = get(one), get(two)
        if texts[0] != texts[1] and not any(isinstance(p, ast.Starred) for p in (one, two)):
            words = f"EXCHANGE {' and '.join(sorted(texts))}"
            yield site.replace(site.exchange(one, two), words, EXCHANGED + 0.1)


def exchange_operators(site: source.CodeSite, _: Stock) -> Iterator[source.Rewrite]:
    """Put another operator between the same operands."""
    match site.node:
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            pass
        case _:
            return
    old, get, text = _show_op(op), site.source.text_of, site.source.text
    (begin, end), middle = site.source.span(site.node), site.source.span(left)[1]
    behind = site.source.span(right)[0]
    for new in _SIGNS.get(old, "").split():
        is_like = _BINDING.get(new, 2) == _BINDING.get(old, 2)
        gap = text[middle:behind].replace(old, new, 1)
        whole = text[begin:middle] + gap + text[behind:end]
        whole = whole if is_like else f"({get(left)}) {new} ({get(right)})"
        words, cost = f"{new}, not {old}, between {get(left)} and {get(right)}", EXCHANGED
        yield site.replace(whole, words, cost if is_like else SEVERAL)


def exchange_functions(site: source.CodeSite, stock: Stock) -> Iterator[source.Rewrite]:
    """Call another function with the same arguments, or with the first one only."""
    if not isinstance(site.node, ast.Call):
        return
    old, groups = source.find_name(site.node), [each.split() for each in _ALIKE]

    def is_activation(name: str) -> bool:
        return name in FUNCTIONS and bool(FUNCTIONS[name].definition and FUNCTIONS[name].torch)

    alike = [name for group in groups if old in group for name in group]
    activations = [*filter(is_activation, find_confused(old))] if is_activation(old) else []
    known = old in FUNCTIONS or old in {*groups[0], *groups[1]}
    plain = {"tril", "triu", *(_NAMES.get(name, name) for name in stock.functions)}
    owner = site.source.text_of(site.node.func).removesuffix(old)
    rest = site.text[len(owner) + len(old) :]
    given = source.find_receiver(site.node)
    for name in dict.fromkeys((*alike, *activations, *(stock.functions if known else ()))):
        if name != old:
            cost = EXCHANGED if _NAMES.get(name, name) in plain else SEVERAL
            yield site.replace(owner + name + rest, f"{name}, not {old}", cost)
            for axis in ("", ", dim=-1", ", dim=0") if given else ():
                spelt = f"{_spell_free(name)}({site.source.text_of(given)}{axis})"
                yield site.replace(spelt, f"{name}, not {old}", cost + 0.1)


def exchange_keywords(site: source.CodeSite, _: Stock) -> Iterator[source.Rewrite]:
    """Negate a literal True or False; add a keyword to a call or leave one out."""
    match site.node:
        case ast.Constant(value=bool() as value):
            word = f"{site.parent.arg}=" if isinstance(site.parent, ast.keyword) else ""
            yield site.replace(repr(not value), f"{word}{not value}, not {value}", EXCHANGED)
        case ast.Call(keywords=keywords, args=args):
            name, receiver = source.find_name(site.node), source.find_receiver(site.node)
            given = {keyword.arg for keyword in keywords}
            comma = ", " if keywords or args else ""
            more = [*_KEYWORDS.get(name, ())]
            if name in _REDUCE and receiver is not None and not {"dim", "axis"} & given:
                is_whole = not any(each is not receiver for each in args)
                along = [f"dim={axis}" for axis in (-1, -2, 0, 1)] if is_whole else []
                more += [*along, *(f"{each}, keepdim=True" for each in along)]
            if name in _REDUCE:
                more.append("keepdims=True" if "axis" in given else "keepdim=True")
            for each in more if "unbiased" not in given else ():
                if each.split("=")[0] not in given:
                    text = f"{site.text[:-1].rstrip().removesuffix(',')}{comma}{each})"
                    yield site.replace(text, f"ADD {each} to {name}", EXCHANGED + 0.1)
            for keyword in keywords:
                gone = site.source.text_of(keyword)
                less = re.sub(r",?\s*" + re.escape(gone), "", site.text, count=1)
                yield site.replace(less, f"DROP {gone}", SEVERAL + 0.1)


def exchange_letters(site: source.CodeSite, _: Stock) -> Iterator[source.Rewrite]:
    """Replace an index in the string of an einsum, or exchange two."""
    spec = site.node.value if isinstance(site.node, ast.Constant) else None
    if not isinstance(spec, str) or source.find_name(site.parent) not in {"einsum", "rearrange"}:
        return
    found = [*re.finditer(r"[A-Za-z_]\w*" if " " in spec.strip() else "[A-Za-z]", spec)]
    new: dict[str, float] = {}
    for m in found:
        for other in dict.fromkeys(each.group() for each in found):
            new.setdefault(spec[: m.start()] + other + spec[m.end() :], 0.2)
    for one, two in combinations(found, 2):
        between = spec[one.end() : two.start()]
        turned = spec[: one.start()] + two.group() + between + one.group() + spec[two.end() :]
        new[turned] = min(new.get(turned, 9.0), 0.4 if re.search(r",|->", between) else 0.0)
    new.pop(spec, None)
    for text, extra in new.items():
        quoted = f"{site.text[0]}{text}{site.text[0]}"
        yield site.replace(quoted, f"READ {text!r}, not {spec!r}", EXCHANGED + extra)


def leave_out_parts(site: source.CodeSite, _: Stock) -> Iterator[source.Rewrite]:
    """Leave out the function around an argument, or an operand."""
    get = site.source.text_of
    match site.node:
        case ast.Call():
            given, name = source.find_receiver(site.node), source.find_name(site.node)
            if given is not None and site.is_value:
                cost = EXCHANGED if name in _TURNS else MISPLACED
                yield site.replace(get(given), f"DROP {name} of {get(given)}", cost)
        case ast.Attribute(value=inner, attr=name) if name in _TURNS:
            words = f"DROP .{name} of {get(inner)}: TRANSPOSE no more"
            yield site.replace(get(inner), words, EXCHANGED)
        case ast.BinOp(left, op, right):
            what = "term" if isinstance(op, (ast.Add, ast.Sub)) else "factor"
            for kept, gone, extra in ((left, right, 0.3), (right, left, 0.4)):
                if kept is left or not isinstance(op, ast.Pow):
                    cost = LACKING + (0.0 if source.read_number(gone) is not None else extra)
                    yield site.replace(get(kept), f"DROP the {what} {get(gone)}", cost)
        case ast.UnaryOp(op, inner) if source.read_number(site.node) is None:
            words = f"the SIGN of {get(inner)} is to be turned"
            if isinstance(op, (ast.Invert, ast.Not)):
                words = f"INVERT {site.text}: {get(inner)}"
            yield site.replace(get(inner), words, EXCHANGED)


def insert_parts(site: source.CodeSite, stock: Stock) -> Iterator[source.Rewrite]:
    """Insert a text of the tables around a value: a sign, power, factor, term or transpose."""
    if not site.can_be_wrapped:
        return

    def fill(table: Sequence[tuple[str, str, float]], by: str, more: float) -> Iterator[Any]:
        for text, words, extra in table:
            told = {"x": source.put_brackets(site.text), "bare": site.text, "by": by}
            sign = re.match(r"\{x\} ([-+*/@]) ", text)
            mine = _BINDING.get(_show_op(getattr(site.node, "op", ast.Pow())), -1)
            if sign and mine >= _BINDING[sign[1]]:
                told["x"] = site.text
            yield site.replace(text.format(**told), words.format(**told), LACKING + extra + more)

    yield from fill(_ALONE, "", 0.0)
    for size, extent in source.find_spelt_sizes(site):
        yield from fill(_BY_SIZE, size, 0.0 if extent in stock.sizes.values() else 0.3)
    for number in stock.numbers:
        is_part = (1 / number).denominator == 1
        by = f"{1 / number}" if is_part else samples.show_number(number)
        yield from fill(_BY_NUMBER[:1] if is_part else _BY_NUMBER[1:2], by, 0.0)
    for number in (*stock.numbers, Fraction(1), Fraction(-1)):
        table = _WITH[1:2] if number < 0 else _WITH[:1]
        yield from fill(table, samples.show_number(abs(number)), _NEW + 0.1)
    for name, value in site.names.items():
        axes = value.dim() if hasattr(value, "shape") else None
        is_size = isinstance(value, int) and value in stock.sizes.values()
        is_truth = str(getattr(value, "dtype", "")) == "torch.bool"
        if name == site.text or is_size or is_truth or (axes is None and not is_number(value)):
            continue
        is_unused = axes is not None and name in site.source.unused
        if isinstance(value, float):
            yield from fill(_BY_NUMBER, name, 0.0)
        if is_unused and axes == 2 and site.may_be_tensor:
            yield from fill(_UNUSED, name, 0.0)
        spread = {1: ("[:, None]", "[:, None, None]"), 2: ("[:, None]", "[..., None]")}
        for at, spelt in enumerate(("", *spread.get(axes or 0, ()))):
            yield from fill(
                _WITH if axes is not None else _WITH[:2],
                name + spelt,
                0.1 * at + (0.0 if is_unused else _NEW + 0.1),
            )
    if site.may_be_tensor and not isinstance(site.parent, ast.UnaryOp):
        yield from fill(_TRANSPOSED, "", 0.0)


def insert_functions(site: source.CodeSite, stock: Stock) -> Iterator[source.Rewrite]:
    """Apply one of the formula's functions to a value: `x` -> `torch.exp(x)`."""
    if not site.may_be_tensor:
        return
    bare = site.text
    for name in stock.functions:
        spelt, words = _spell_free(name), f"ADD {name}: APPLY {name} to {bare}"
        if name not in {*_ALONG, "sum", "clip"}:
            yield site.replace(f"{spelt}({bare})", words, LACKING + 0.3)
        for axis in (-1, -2, 0, 1) if name in _ALONG else ():
            yield site.replace(f"{spelt}({bare}, dim={axis})", words, SEVERAL + 0.3)


def reorder_parts(site: source.CodeSite, _: Stock) -> Iterator[source.Rewrite]:
    """Exchange lengths of a view and transpose back; move an axis of permute; repeat_interleave."""
    if not isinstance(site.node, ast.Call) or not isinstance(site.node.func, ast.Attribute):
        return
    name, given, get = source.find_name(site.node), site.node.func.value, site.source.text_of
    for (one, a), (two, b) in combinations(enumerate(site.node.args), 2):
        if name in {"view", "reshape"}:
            spelt = f".transpose({one}, {two})"
            words = f"TRANSPOSE after splitting by {name}: {spelt}"
            yield site.replace(f"{site.exchange(a, b)}{spelt}", words, SEVERAL)
    axes = [source.read_number(each) for each in site.node.args] if name == "permute" else []
    for at, to in permutations(range(len(axes)), 2):
        rest = [axis for axis in axes if axis != axes[at]]
        order = ", ".join(map(str, (*rest[:to], axes[at], *rest[to:])))
        if abs(at - to) > 1 and None not in axes:  # neighbours are exchanged by `exchange_parts`
            words = f"PERMUTE by {order}, not {', '.join(map(str, axes))}"
            yield site.replace(f"{get(given)}.permute({order})", words, SEVERAL)
    for at, part in enumerate(site.node.args if name == "repeat" else ()):
        if source.read_number(part) != 1:
            turned = f"{get(given)}.repeat_interleave({get(part)}, dim={at})"
            yield site.replace(turned, "REPEAT_INTERLEAVE, not repeat", LACKING)


CODE_EDITS = (
    *(exchange_numbers, exchange_names, exchange_parts, exchange_operators, exchange_functions),
    *(exchange_keywords, exchange_letters, leave_out_parts),
    *(insert_parts, insert_functions, reorder_parts),
)
