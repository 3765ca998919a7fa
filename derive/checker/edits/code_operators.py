"""Operators of edits at one site of the code.

exchange    another number, name, operator, function, keyword, slice; two parts for each other
leave out   an operand, a function, a keyword, an axis
move        an operand out of a function, into it, to one term alone
insert      a keyword; the other insertions are in `code_inserts`

Costs follow the rule in `sites`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

from derive.checker import load
from derive.checker.edits import code, code_inserts, code_orders
from derive.checker.edits.code_inserts import Stock, spell_free
from derive.checker.edits.sites import EXCHANGED, LACKING, MISPLACED, MOST_BLOCKS, SEVERAL
from derive.checker.samples import show_number
from derive.frontend.torch.numbers import is_number as is_plain_number
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
# functions that reduce along an axis, or along all axes by default
_REDUCE = (
    *("mean", "sum", "amax", "amin", "logsumexp", "prod", "var", "std", "norm", "max", "min"),
    *("argmax", "argmin", "any", "all"),
)
_AXES = (
    *(*_REDUCE, "softmax", "log_softmax", "softmin", "cumsum", "cumprod", "unsqueeze", "squeeze"),
    *("gather", "select", "cat", "stack", "chunk", "size"),
)
# the operators between two operands, and the operators that are tried for each
_SIGNS = {
    **{"+": "- * /", "-": "+ * /", "*": "/ + -", "/": "* - +", "//": "%", "%": "//", "@": ""},
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
_FILLED = {"masked_fill", "masked_fill_", "where", "full", "full_like", "fill_", "clamp"}
_ROOTS = {"sqrt": "root", "rsqrt": "root"}
_TURNS = {"T", "mT", "transpose", "permute", "flip", "t", "swapaxes", "movedim"}
# keyword arguments that are not numbers; the signatures of torch have the numbers
_KEYWORDS: dict[str, tuple[str, ...]] = {
    "var": ("correction=0", "correction=1"),
    "std": ("correction=0", "correction=1"),
    "scaled_dot_product_attention": ("scale=1.0", "is_causal=True"),
}
_KEYWORDS |= {  # approximations
    row.spellings: (f"{word}={told!r}",)
    for row in FUNCTIONS.values()
    if (call := find_call(row.name))
    for word, told in call.keywords.items()
    if isinstance(told, str)
}


def _show_op(op: ast.operator | ast.cmpop) -> str:
    return _SIGN_OF.get(type(op), "")


def exchange_numbers(site: code.Site, stock: Stock) -> Iterator[code.Rewrite]:
    """Another number or name: of the formula, the next ones, the negative, another axis."""
    old, call = code.read_number(site.node), site.parent
    if old is None or isinstance(call, ast.UnaryOp):
        return
    outer = next((code.find_name(p) for p in reversed(site.parents) if isinstance(p, ast.Call)), "")
    is_axis = isinstance(call, (ast.Call, ast.Tuple, ast.List, ast.Subscript))
    if isinstance(call, ast.keyword):
        is_axis = call.arg in {"dim", "axis", "dim0", "dim1", "dims", "diagonal"}

    def describe_change(new: str) -> str:
        if is_axis and outer in _AXES:
            return f"{outer.upper()} over axis {new}, not {old!r}"
        return f"the constant {new}, not {old!r}{outer and f', in {outer}'}"

    for name, value in site.names.items():
        if is_plain_number(value) and type(value) is type(old):
            yield site.replace(name, f"USE {name}, not {old}", MISPLACED)
    for text, size in code.find_spelt_sizes(site) if isinstance(old, int) and not is_axis else ():
        if size != old and text not in site.names:
            yield site.replace(text, f"USE {text}, not {old}", MISPLACED + 0.2)
    for filled in ('float("-inf")', "0.0") if code.find_name(call) in _FILLED else ():
        yield site.replace(filled, f"FILL with {filled}, not {site.text}", EXCHANGED + 0.1)
    if is_axis and isinstance(call, (ast.keyword, ast.Call)):
        for axes in ("(0, 1)", "(1, 2)", "(2, 3)", "(-2, -1)", "(0, 2)", "(1, 3)"):
            yield site.replace(axes, describe_change(axes), SEVERAL)
    near: list[tuple[Any, float]] = [(old + 1, 0.2), (old - 1, 0.2)] if isinstance(old, int) else []
    near += [(n, 0.0 if is_axis else 0.6) for n in (-1, -2, -3, -4, 0, 1, 2, 3, 4) if near]
    near += [(int(n) if n.denominator == 1 else float(n), 0.1) for n in stock.numbers]
    near += [(-old, 0.1), (old * 2, 0.4), (old / 2, 0.4), (1 / (old or 1), 0.4)]
    tries: dict[Any, float] = {}
    for number, extra in near:
        tries[number] = min(extra, tries.get(number, extra))
    idle: dict[type, int] = {ast.Mult: 1, ast.Div: 1, ast.Pow: 1, ast.Add: 0, ast.Sub: 0}
    beside = {old, *map(code.read_number, getattr(call, "args", ()))}
    beside.add(idle.get(type(getattr(call, "op", None))))
    for number, extra in tries.items():
        if number not in beside:  # axes are mostly counted from the same end
            other_end = 0.02 * (is_axis and (number < 0) != (old < 0))
            yield site.replace(
                repr(number), describe_change(repr(number)), EXCHANGED + extra + other_end
            )


def exchange_names(site: code.Site, _: Stock) -> Iterator[code.Rewrite]:
    """Another name whose value is of the same kind."""
    match site.node:
        case ast.Name(id=old) if old in site.names:
            others, prefix = site.names, ""
        case ast.Attribute(ast.Name(id=owner), old) if isinstance(site.names.get(owner), dict):
            others, prefix = site.names[owner], f"{owner}."
        case _:
            return
    value = others.get(old)
    for name, other in others.items():
        if name != old and value is not None and code.is_like(value, other):
            same = getattr(value, "shape", 0) == getattr(other, "shape", 0)
            cost = (EXCHANGED if same else MISPLACED + 0.1) - 0.5 * (name in site.source.unused)
            found = site.replace(prefix + name, f"USE {prefix}{name}, not {prefix}{old}", cost)
            yield replace(found, tells="a part" if hasattr(value, "shape") else "")
    for text, number in code.find_spelt_sizes(site) if is_plain_number(value) else ():
        if number != value:
            yield site.replace(text, f"USE {text}, not {prefix}{old}", EXCHANGED + 0.3)


def exchange_parts(site: code.Site, _: Stock) -> Iterator[code.Rewrite]:
    """Two arguments, elements, operands or names in each other's place."""
    get, node = site.source.text_of, site.node
    parts: Sequence[ast.expr] = ()
    match node:
        case ast.Call(args=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case ast.BinOp(left, ast.Sub() | ast.Div() | ast.MatMult() | ast.Pow(), right):
            parts = [left, right]
        case ast.Compare(left, _, [right]):
            parts = [left, right]
    is_whole = isinstance(node, ast.BinOp) and site.is_open
    pairs = [*combinations(parts, 2)]
    pairs += combinations(_find_operands(node), 2) if is_whole else ()  # factors and terms
    for one, two in pairs:
        texts = get(one), get(two)
        if texts[0] != texts[1] and not any(isinstance(p, ast.Starred) for p in (one, two)):
            words = f"EXCHANGE {' and '.join(sorted(texts))}"
            yield site.replace(site.exchange(one, two), words, EXCHANGED + 0.1)
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name)) if is_whole else ()
    found = [name for name in names if name.id in site.names]
    begin = site.source.span(node)[0]
    for one_name, two_name in combinations(dict.fromkeys(n.id for n in found), 2):
        if code.is_like(site.names[one_name], site.names[two_name]):
            text, turned = site.text, {one_name: two_name, two_name: one_name}
            spans = sorted((site.source.span(n), n.id) for n in found if n.id in turned)
            for (start, end), name in reversed(spans):
                text = text[: start - begin] + turned[name] + text[end - begin :]
            words = f"EXCHANGE {' and '.join(sorted(turned))}"
            yield site.replace(text, words, EXCHANGED + 0.2)


def _find_operands(node: ast.expr) -> Iterator[ast.expr]:
    """The factors of the products in a sum, and its single terms."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        for side in (node.left, node.right):
            inner = isinstance(side, ast.BinOp) and (
                _BINDING.get(_show_op(side.op), 2) >= _BINDING[_show_op(node.op)]
            )
            yield from _find_operands(side) if inner else [side]
    else:
        yield node


def exchange_operators(site: code.Site, _: Stock) -> Iterator[code.Rewrite]:
    """Another operator between the same operands."""
    match site.node:
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            pass
        case _:
            return
    old = _show_op(op)
    gap = site.source.span(left)[1], site.source.span(right)[0]
    begin, end = site.source.span(site.node)
    one, two, text = site.source.text_of(left), site.source.text_of(right), site.source.text
    for new in _SIGNS.get(old, "").split():
        words = f"{new}, not {old}, between {one} and {two}"
        whole, cost = f"({one}) {new} ({two})", SEVERAL
        if _BINDING.get(new, 2) == _BINDING.get(old, 2):
            middle = text[slice(*gap)].replace(old, new, 1)
            whole, cost = text[begin : gap[0]] + middle + text[gap[1] : end], EXCHANGED
        yield site.replace(whole, words, cost)


def exchange_bounds(site: code.Site, _: Stock) -> Iterator[code.Rewrite]:
    """An addition instead of a clamp, and a clamp instead of an addition."""
    get = site.source.text_of

    def is_number(node: ast.expr) -> bool:
        named = isinstance(node, ast.Name) and is_plain_number(site.names.get(node.id))
        return named or code.read_number(node) is not None

    match site.node:
        case ast.BinOp(left, ast.Add(), right) if is_number(left) != is_number(right):
            least, value = (get(e) for e in ((left, right) if is_number(left) else (right, left)))
            words = f"CLAMP {value} at {least}, not + {least}"
            yield site.replace(f"({value}).clamp(min={least})", words, EXCHANGED + 0.1)
        case ast.Call(args=args, keywords=[] | [ast.keyword("min")] as named) if (
            code.find_name(site.node) in {"clamp", "clamp_min", "clip"}
            and (given := code.find_receiver(site.node)) is not None
        ):
            told = [e for e in args if e is not given] + [each.value for each in named]
            if len(told) == 1 and is_number(told[0]):
                words = f"ADD {get(told[0])} to {get(given)}, not a clamp"
                whole = f"({get(given)}) + {get(told[0])}"
                yield site.replace(whole, words, EXCHANGED + 0.1)


def exchange_functions(site: code.Site, stock: Stock) -> Iterator[code.Rewrite]:
    """Another function of the same arguments, or of the first one only."""
    if not isinstance(site.node, ast.Call):
        return
    old, groups = code.find_name(site.node), [each.split() for each in _ALIKE]

    def is_activation(name: str) -> bool:
        return name in FUNCTIONS and bool(FUNCTIONS[name].definition and FUNCTIONS[name].torch)

    alike = [name for group in groups if old in group for name in group]
    activations = [*filter(is_activation, find_confused(old))] if is_activation(old) else []
    known = old in FUNCTIONS or old in {*groups[0], *groups[1]}
    plain = {_NAMES.get(name, name) for name in stock.functions}
    end, inside = site.source.span(site.node.func)[1], site.source.span(site.node)[1]
    owner = site.source.text_of(site.node.func).removesuffix(old)
    given = code.find_receiver(site.node)
    for name in dict.fromkeys((*alike, *activations, *(stock.functions if known else ()))):
        if name == old:
            continue
        cost = EXCHANGED if _NAMES.get(name, name) in plain or name in _UNWRITTEN else SEVERAL
        words = f"{name}, not {old}"
        yield site.replace(owner + name + site.source.text[end:inside], words, cost)
        for axis in ("", ", dim=-1", ", dim=-2", ", dim=0", ", dim=1") if given else ():
            inner = site.source.text_of(given)
            yield site.replace(f"{spell_free(name)}({inner}{axis})", words, cost + 0.1)


def exchange_keywords(site: code.Site, stock: Stock) -> Iterator[code.Rewrite]:
    """The negated truth value; a keyword with another value than its default."""
    match site.node:
        case ast.Constant(value=bool() as value):
            word = f"{site.parent.arg}=" if isinstance(site.parent, ast.keyword) else ""
            yield site.replace(repr(not value), f"{word}{not value}, not {value}", EXCHANGED)
        case ast.Call(keywords=keywords, args=args):
            name = code.find_name(site.node)
            given = {keyword.arg for keyword in keywords}
            inner = site.text[:-1].rstrip().removesuffix(",")
            comma = ", " if keywords or args else ""
            numbers = [show_number(each) for each in stock.numbers]
            numbers += [name for name, value in site.names.items() if isinstance(value, float)]
            told = [(each, 0.1) for each in _KEYWORDS.get(name, ())]
            for at, (word, default) in enumerate(_list_signatures().get(name, ())):
                if word and at >= len(args):
                    near = [default + 1, default - 1] if isinstance(default, int) else []
                    told += [(f"{word}={number}", 0.2) for number in (*numbers, *near)]
            receiver = code.find_receiver(site.node)
            axes = [each for each in args if each is not receiver]
            if name in _REDUCE and receiver is not None:
                is_whole = not axes and not {"dim", "axis"} & given
                kept = "keepdims=True" if "axis" in given else "keepdim=True"
                along = [f"dim={axis}" for axis in (-1, -2, 0, 1)]
                if is_whole:
                    told += [(each, 0.1) for each in along]
                    told += [(f"{each}, {kept}", 0.2) for each in along]
                elif len(axes) == 1 or not axes:
                    told.append((kept, 0.1))
            for each, extra in told:
                if each.split("=")[0] not in given and not {"unbiased"} & given:
                    text = f"{inner}{comma}{each})"
                    found = site.replace(text, f"ADD {each} to {name}", EXCHANGED + extra)
                    yield replace(found, tells="an index" if "keepdim" in each else "")


@cache
def _list_signatures() -> dict[str, tuple[tuple[str, Any], ...]]:
    """The parameters of torch's functions and modules: "" but for numbers, with their default."""
    from torch.overrides import get_testing_overrides

    found: dict[str, tuple[tuple[str, Any], ...]] = {}
    known: dict[str, Any] = {f.__name__: like for f, like in get_testing_overrides().items()}
    known |= {name: each for name, each in vars(torch.nn).items() if isinstance(each, type)}
    for name, each in known.items():
        parameters = inspect.signature(each).parameters.values()
        found[name] = tuple(
            (p.name, p.default)
            if is_plain_number(p.default) and p.name not in {"dim", "axis"}
            else ("", None)
            for p in parameters
        )
    return found


def exchange_indices(site: code.Site, _: Stock) -> Iterator[code.Rewrite]:
    """Another index in the string of an einsum, or two exchanged."""
    spec = site.node.value if isinstance(site.node, ast.Constant) else None
    name = code.find_name(site.parent)
    if not isinstance(spec, str) or name not in {"einsum", "rearrange", "reduce", "repeat"}:
        return
    is_short = name == "einsum" and not re.search(r"[a-z]{1,2}\d|[a-z]{2} ", spec)
    found = [*re.finditer(r"[A-Za-z]" if is_short else r"[A-Za-z_]\w*", spec)]
    indices = list(dict.fromkeys(m.group() for m in found))
    new: dict[str, float] = {}
    for m in found:
        for other in indices:
            new.setdefault(spec[: m.start()] + other + spec[m.end() :], 0.2)
    for one, two in combinations(found, 2):
        between = spec[one.end() : two.start()]
        turned = spec[: one.start()] + two.group() + between + one.group() + spec[two.end() :]
        new[turned] = min(new.get(turned, 9.0), 0.4 if re.search(r",|->", between) else 0.0)
    left, arrow, right = spec.partition("->")
    for index in indices if arrow else ():
        other = right.replace(index, "", 1) if index in right else right + index
        new.setdefault(f"{left}->{other}", 0.5)
    new.pop(spec, None)
    for text, extra in new.items():
        quoted = f"{site.text[0]}{text}{site.text[0]}"
        yield site.replace(quoted, f"READ {text!r}, not {spec!r}", EXCHANGED + extra)


def exchange_slices(site: code.Site, _: Stock) -> Iterator[code.Rewrite]:
    """The other end of a slice, a slice shifted by one, or another block of its length."""
    if not isinstance(site.node, ast.Subscript):
        return
    whole = site.node.slice
    parts = whole.elts if isinstance(whole, ast.Tuple) else [whole]
    owner = site.names.get(getattr(site.node.value, "id", ""))
    source = site.source
    for at, each in enumerate(parts):
        if not isinstance(each, ast.Slice) or each.step is not None:
            continue
        old = source.text_of(each)
        for beside in parts if (each.lower, each.upper) == (None, None) else ():
            kind = str(getattr(site.names.get(getattr(beside, "id", "")), "dtype", ""))
            if kind.startswith("torch.int"):  # one entry of each row, instead of all of them
                new = f"torch.arange(len({source.text_of(beside)}))"
                text = source.replace_part(site.node, each, new)
                yield site.replace(text, f"READ [{new}], not [{old}]", EXCHANGED + 0.1)
        from_end = any(isinstance(p, ast.Constant) and p.value is ... for p in parts[:at])
        shape = getattr(owner, "shape", ())
        axis = at - len(parts) if from_end else at
        extent = shape[axis] if -len(shape) <= axis < len(shape) else 0
        for new, extra in _list_slices(site, each, old, extent):
            if new != old:
                text = source.replace_part(site.node, each, new)
                yield site.replace(text, f"READ [{new}], not [{old}]", LACKING + extra)


def _list_slices(
    site: code.Site, part: ast.Slice, old: str, extent: int
) -> Iterator[tuple[str, float]]:
    """Other slices of an axis of this extent, and how much less likely each is."""
    if (part.lower is None) != (part.upper is None):
        yield f":-{old[:-1]}" if part.upper is None else f"{old[1:].lstrip('-')}:", 0.1
    low, high = code.read_number(part.lower), code.read_number(part.upper)
    is_plain = (low is None) == (part.lower is None) and (high is None) == (part.upper is None)
    for step in (1, -1) if is_plain else ():
        moved = (low or 0) + step, None if high is None and step > 0 else (high or 0) + step
        if high == -1 and step > 0:
            moved = moved[0], None
        if moved[0] >= 0:
            yield f"{moved[0] or ''}:{'' if moved[1] is None else moved[1]}", 0.1
    first = 0 if part.lower is None else load.fold_number(part.lower, site.names)
    last = extent if part.upper is None else load.fold_number(part.upper, site.names)
    for size, length in (
        code.find_spelt_sizes(site) if first is not None and last is not None else ()
    ):
        if length == (last or 0) - (first or 0):
            for block in range(min(extent // length, MOST_BLOCKS)):
                one, two = (f"{n} * {size}" if n > 1 else size * n for n in (block, block + 1))
                yield f"{one}:{two}" if (block + 1) * length < extent else f"{one}:", 0.0


def leave_out_parts(site: code.Site, _: Stock) -> Iterator[code.Rewrite]:
    """A call without its function or a keyword, an operation without an operand."""
    get = site.source.text_of
    match site.node:
        case ast.Call(keywords=keywords):
            given, name = code.find_receiver(site.node), code.find_name(site.node)
            if given is not None and site.is_value:
                cost = EXCHANGED if name in _TURNS else MISPLACED
                yield site.replace(get(given), f"DROP {name} of {get(given)}", cost)
            for keyword in keywords:
                gone = get(keyword)
                less = re.sub(r",?\s*" + re.escape(gone), "", site.text, count=1)
                yield site.replace(less, f"DROP {gone}", SEVERAL + 0.1)
        case ast.Attribute(value=inner, attr=name) if name in _TURNS:
            words = f"DROP .{name} of {get(inner)}: TRANSPOSE no more"
            yield site.replace(get(inner), words, EXCHANGED)
        case ast.BinOp(left, op, right):
            what = "term" if isinstance(op, (ast.Add, ast.Sub)) else "factor"
            sides = [(left, right, 0.3)]
            sides += [] if isinstance(op, ast.Pow) else [(right, left, 0.4)]
            for kept, gone_node, extra in sides:
                cost = LACKING + (0.0 if code.read_number(gone_node) is not None else extra)
                yield site.replace(get(kept), f"DROP the {what} {get(gone_node)}", cost)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if len(parts) > 1:
            for part in parts if all(code.read_number(part) is not None for part in parts) else ():
                kept_text = ", ".join(get(each) for each in parts if each is not part)
                axes = f"[{kept_text}]" if isinstance(site.node, ast.List) else f"({kept_text},)"
                yield site.replace(axes, f"over the axes {axes}, not {site.text}", LACKING)
        case ast.UnaryOp(op, inner) if code.read_number(site.node) is None:
            words = f"the SIGN of {get(inner)} is to be turned"
            if isinstance(op, (ast.Invert, ast.Not)):
                words = f"INVERT {site.text}: {get(inner)}"
            yield site.replace(get(inner), words, EXCHANGED)


def move_parts(site: code.Site, _: Stock) -> Iterator[code.Rewrite]:
    """(a + b) / c as a / c + b or a + b / c, f(a + b) as f(a) + b or a + f(b); and the reverse."""
    get, text = site.source.text_of, site.source.text
    match site.node:
        case ast.BinOp(left, op, right) if outer := _show_op(op):
            for part, rest, is_before in ((left, right, False), (right, left, True)):
                yield from _move_into(site, part, rest, is_before)
            match left, right:
                case ast.Call(f, [a, *_]), ast.Call(g, [b, *_]) if get(f) == get(g):
                    both, name = f"({get(a)}) {outer} ({get(b)})", code.find_name(left)
                    tail = text[site.source.span(a)[1] : site.source.span(left)[1]]
                    words = f"APPLY {name} once, to {get(a)} {outer} {get(b)}"
                    yield site.replace(f"{get(f)}({both}{tail}", words, LACKING)
        case ast.Call():
            given = code.find_receiver(site.node)
            if isinstance(given, ast.BinOp) and (outer := _show_op(given.op)):
                one, two, name = get(given.left), get(given.right), code.find_name(site.node)
                parts = (f"({part})" for part in (one, two))
                calls = [site.source.replace_part(site.node, given, part) for part in parts]
                name = f"the {_ROOTS.get(name, name)}"
                whole = f"{calls[0]} {outer} ({two})", f"({one}) {outer} {calls[1]}"
                yield site.replace(whole[0], f"{two} OUTSIDE {name}", MISPLACED)
                yield site.replace(whole[1], f"{one} OUTSIDE {name}", MISPLACED)


def _move_into(
    site: code.Site, part: ast.expr, rest: ast.expr, is_before: bool
) -> Iterator[code.Rewrite]:
    """An operand moved into the other operand: to one side of an operation, or into a function."""
    assert isinstance(site.node, ast.BinOp)
    get, outer, by = site.source.text_of, site.node.op, site.source.text_of(rest)
    sign, is_scale = _show_op(outer), isinstance(outer, (ast.Mult, ast.Div))

    def apply_operand(inner: str) -> str:
        return f"(({by}) {sign} ({inner}))" if is_before else f"(({inner}) {sign} ({by}))"

    given = code.find_receiver(part)
    if isinstance(part, ast.BinOp) and type(part.op) is not type(outer) and _show_op(part.op):
        a, inner, b = get(part.left), _show_op(part.op), get(part.right)
        is_sum = isinstance(part.op, (ast.Add, ast.Sub))
        cost = MISPLACED if is_sum and is_scale else MISPLACED + 0.1
        words = f"{sign} {by} concerns {{}} alone"
        yield site.replace(f"{apply_operand(a)} {inner} ({b})", words.format(a), cost)
        yield site.replace(f"({a}) {inner} {apply_operand(b)}", words.format(b), cost)
    elif given is not None and isinstance(part, ast.Call):
        name = code.find_name(part)
        words = f"{by} INSIDE the {_ROOTS.get(name, name)}"
        if is_scale:
            factor = f"{'1/' * (sign == '/')}{by}"
            words = f"SCALE the argument of {name} by {factor}, not its value"
        inside = site.source.replace_part(part, given, apply_operand(get(given)))
        yield site.replace(inside, words, MISPLACED)


OPERATORS = (
    *(exchange_numbers, exchange_names, exchange_parts, exchange_operators, exchange_bounds),
    exchange_functions,
    *(
        leave_out_parts,
        move_parts,
        code_inserts.insert_factors,
        code_inserts.insert_terms,
        code_inserts.insert_functions,
        code_orders.reorder_axes,
    ),
    *(exchange_indices, exchange_keywords, exchange_slices),
    *(code_orders.interleave_tensors, code_orders.exchange_statements),
)
