"""Values of names and texts, as far as a file shows them: the scope of a name, and its bindings.

Names resolve as in Python: in their own scope, then outwards, past classes. An imported name has a
dotted name, and an assigned name an expression. Other bindings (arguments, loops, unpacking, `del`)
are unknown values.

A text is a literal, adjacent literals, literals joined by +, both branches of a conditional, or a
name with one assignment of such a text. An f-string is unknown. The shape of a tensor is known from
its constructor, `x = torch.zeros(2, n)`, if x has no other binding.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Shape = tuple[int | None, ...]  # None for an unknown extent
Value = str | ast.expr | None  # a dotted import, an expression, or None for anything else

_OPENING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")")
_DEEPEST = 8  # longest chain of names bound to names


@dataclass(slots=True, eq=False)
class Scope:
    """The names that a module, a class, a function or a comprehension binds."""

    outer: tuple[Scope, ...] = ()  # the scopes around it, the module last
    is_class: bool = False
    bound: dict[str, list[Value]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)  # modules of `from MODULE import *`

    def bind(self, name: str, value: Value = None) -> None:
        """Add a binding of a name."""
        self.bound.setdefault(name, []).append(value)


def find_calls(tree: ast.Module) -> list[tuple[ast.Call, Scope, bool]]:
    """The calls of a module in the order of their places, each with its scope.

    The truth value says whether a call is a statement of its own. Calls that a test expects to fail
    are left out.
    """
    seen: list[tuple[ast.Call, Scope, bool]] = []
    top = Scope()
    bare: set[ast.AST] = set()
    tried: set[ast.AST] = set()
    stack: list[tuple[ast.AST, Scope, bool]] = [(tree, top, False)]  # files may nest deeply
    while stack:
        node, scope, fails = stack.pop()
        match node:
            case ast.Expr(value=value) if value not in tried:
                bare.add(value)
            case ast.Try(body=body, handlers=[_, *_]):
                # a call inside `try` may only test whether it raises
                tried |= {inner.value for inner in body if isinstance(inner, ast.Expr)}
            case ast.Call() if not fails:
                seen.append((node, scope, node in bare))
            case ast.With() | ast.AsyncWith():
                fails = fails or any(map(_is_raises, node.items))
            case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")], level=0):
                top.stars.append(module)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                for name in names:
                    for home in [top] if isinstance(node, ast.Global) else scope.outer[:-1]:
                        home.bind(name)
        for name, bound in _find_bindings(node):
            scope.bind(name, bound)
        here, inside = _split_children(node)
        inner = Scope((scope, *scope.outer), isinstance(node, ast.ClassDef)) if inside else scope
        stack += [(child, inner, fails) for child in inside]
        stack += [(child, scope, fails) for child in here]
    return sorted(seen, key=lambda each: (each[0].lineno, each[0].col_offset))


def _split_children(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """The children that may bind a name or hold a call: of the same scope, and of an inner one."""
    children = [*ast.iter_child_nodes(node)]
    match node:
        case (
            ast.Assign(targets=[ast.Name()], value=value)
            | ast.AnnAssign(target=ast.Name(), value=ast.expr() as value)
            | ast.NamedExpr(target=ast.Name(), value=value)
        ):
            return [value], []
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args) | ast.Lambda(args=args):
            given = [*ast.iter_child_nodes(args)]
            arguments = [each for each in given if isinstance(each, ast.arg)]
            defaults = [each for each in given if not isinstance(each, ast.arg)]
            if isinstance(node, ast.Lambda):
                return defaults, [*arguments, node.body]
            return [*node.decorator_list, *defaults], [*arguments, *node.body]
        case ast.ClassDef():
            return [*node.decorator_list, *node.bases, *node.keywords], [*node.body]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return [], children
    return children, []


def _find_bindings(node: ast.AST) -> Iterator[tuple[str, Value]]:
    """Yield the pairs (name, value) of what a node binds; a dotted name for an import."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            | ast.NamedExpr(target=ast.Name(id=name), value=value)
        ):
            yield name, value
        case ast.Import(names=aliases):
            for alias in aliases:
                whole = alias.name if alias.asname else alias.name.split(".")[0]
                yield alias.asname or whole, whole
        case ast.ImportFrom(module=module, names=aliases, level=level):
            for alias in aliases:
                whole = "" if level or not module else f"{module}.{alias.name}"
                if alias.name != "*":
                    yield alias.asname or alias.name, whole or None
        case (
            ast.Name(id=name, ctx=ast.Store() | ast.Del())
            | ast.arg(arg=name)
            | ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            yield name, None
        case ast.Attribute(value=ast.Name(id=name), attr=attribute, ctx=context):
            # x.unsqueeze_(0) and x.shape = .. change x
            if attribute.endswith("_") or not isinstance(context, ast.Load):
                yield f"{name}.", None


def _is_raises(item: ast.withitem) -> bool:
    """Whether it expects an error: `pytest.raises(..)`, `self.assertRaisesRegex(..)`."""
    called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else None
    return "raises" in str(getattr(called, "attr", getattr(called, "id", ""))).lower()


def find_values(name: str, scope: Scope) -> list[tuple[Value, Scope]]:
    """All bindings of a name, each with its scope; empty for a free name."""
    for home in (scope, *scope.outer):
        if name in home.bound and (home is scope or not home.is_class):
            return [(value, home) for value in home.bound[name]]
    top = (scope, *scope.outer)[-1]
    return [(f"{module}.{name}", top) for module in top.stars]


def find_only(name: str, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """The pair (bound expression, its scope) of a name with a single binding; None for others."""
    match find_values(name, scope):
        case [(ast.expr() as value, home)]:
            return value, home
    return None


def find_dotted(expr: ast.expr, scope: Scope, depth: int = 0) -> frozenset[str]:
    """The dotted names of imports that an expression may be, and "" if it may be anything else."""
    match expr:
        case ast.Attribute(value=value, attr=attribute):
            owners = find_dotted(value, scope, depth)
            return frozenset(f"{name}.{attribute}" if name else "" for name in owners)
        case ast.Name(id=name) if depth < _DEEPEST:
            found: set[str] = set()
            for bound, home in find_values(name, scope):
                if not isinstance(bound, ast.expr):
                    found.add(bound or "")
                elif not (isinstance(bound, ast.Constant) and bound.value is None):
                    # a failed import binds None, and such a name is not called
                    found |= find_dotted(bound, home, depth + 1)
            return frozenset(found or {""})
    return frozenset({""})


@dataclass(frozen=True, slots=True)
class Text:
    """A string, the literals that form it, and the argument of the call."""

    value: str
    pieces: tuple[ast.Constant, ...]
    node: ast.expr

    @property
    def is_at_call(self) -> bool:
        """Whether the literals stand inside the call, not where a name is bound."""
        first, last = self.pieces[0], self.pieces[-1]
        start = (self.node.lineno, self.node.col_offset)
        end = (self.node.end_lineno or 0, self.node.end_col_offset or 0)
        return (
            start <= (first.lineno, first.col_offset)
            and (last.end_lineno or 0, last.end_col_offset or 0) <= end
        )


def find_texts(node: ast.expr, scope: Scope, depth: int = 0) -> list[Text]:
    """All strings that an expression may be; empty if unknown."""

    def find_inner(inner: ast.expr, home: Scope = scope) -> list[Text]:
        return find_texts(inner, home, depth + 1) if depth < _DEEPEST else []

    match node:
        case ast.Constant(value=str(value)):
            return [Text(value, (node,), node)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            match find_inner(left), find_inner(right):
                case [one], [other]:
                    return [Text(one.value + other.value, one.pieces + other.pieces, node)]
        case ast.IfExp(body=body, orelse=other):
            return find_inner(body) + find_inner(other)
        case ast.Name(id=name) if only := find_only(name, scope):
            return [Text(text.value, text.pieces, node) for text in find_inner(*only)]
    return []


def find_start(text: Text, lines: Sequence[str]) -> tuple[int, int] | None:
    """The line (from 1) and column (from 0) of a literal's text; None if it is not on one line."""
    (piece, *others) = text.pieces
    if others or piece.lineno != piece.end_lineno:
        return None
    line = lines[piece.lineno - 1]
    start, end = (to_column(line, k) for k in (piece.col_offset, piece.end_col_offset or 0))
    opening = _OPENING.match(line[start:end])
    if opening is None or line[start:end] != f"{opening[0]}{text.value}{opening[2]}":
        return None  # escapes, or adjacent literals
    return piece.lineno, start + opening.end()


def to_column(line: str, offset: int) -> int:
    """The column of an offset that Python counts in bytes."""
    return len(line.encode()[:offset].decode(errors="replace"))


_MAKERS = ("zeros", "ones", "empty", "full", "rand", "randn")  # constructors of tensors


def find_shape(expr: ast.expr, scope: Scope) -> Shape | None:
    """The shape of a tensor that the text shows, as in `torch.zeros(2, n)`; None if it does not."""
    match expr:
        case ast.Name(id=name) if (only := find_only(name, scope)) and only[1] is scope:
            # a binding of `x.` marks a change in place
            return None if f"{name}." in scope.bound else find_shape(*only)
        case ast.Call(func=func, args=[*given]):
            (target, *others) = find_dotted(func, scope)
            home, _, name = target.rpartition(".")
            if others or home not in {"torch", "numpy", "jax.numpy"} or name not in _MAKERS:
                return None
            match given:
                case [ast.Tuple(elts=extents) | ast.List(elts=extents), *_]:
                    pass
                case [_, _, *_] if home == "torch" and name != "full":
                    extents = given
                case [ast.Constant(value=int()) as extent, *_]:
                    extents = [extent]
                case _:
                    return None
            if not any(isinstance(each, ast.Starred) for each in (*given, *extents)):
                return tuple(_find_extent(extent, scope) for extent in extents)
    return None


def _find_extent(expr: ast.expr, scope: Scope) -> int | None:
    match expr:
        case ast.Constant(value=int(extent)) if not isinstance(extent, bool):
            return extent
        case ast.Name(id=name) if only := find_only(name, scope):
            value = only[0]
            return _find_extent(value, only[1]) if isinstance(value, ast.Constant) else None
    return None
