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

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# Most nodes of a tree neither bind names nor call; these lists halve the time of the walk.
_LEAVES = frozenset(
    (ast.Constant, ast.Load, ast.Pass, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Eq, ast.Is, ast.Not)
)
_OPERATIONS = (ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp, ast.Subscript, ast.Slice, ast.IfExp)
_BLOCKS = (ast.If, ast.For, ast.While, ast.Return)
_PLAIN = frozenset((*_OPERATIONS, *_BLOCKS, ast.Tuple, ast.List, ast.Dict, ast.keyword))
_OPENING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")")
_DEEPEST = 8  # longest chain of names bound to names


@dataclass(slots=True, eq=False)
class Scope:
    """The names that a module, a class, a function or a comprehension binds."""

    outer: Scope | None = None
    is_class: bool = False
    bound: dict[str, list[str | ast.expr | None]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)  # modules of `from MODULE import *`

    def bind(self, name: str, value: str | ast.expr | None) -> None:
        """Add a binding of a name: a dotted import, an expression, or None for anything else."""
        self.bound.setdefault(name, []).append(value)

    def find_home(self, name: str) -> Scope | None:
        """The scope that binds a name seen from here."""
        here: Scope | None = self
        while here is not None:
            if name in here.bound and (here is self or not here.is_class):
                return here
            here = here.outer
        return None

    def find_top(self) -> Scope:
        """The scope of the module."""
        here = self
        while here.outer is not None:
            here = here.outer
        return here


@dataclass(frozen=True, slots=True)
class Seen:
    """A call with its scope and context."""

    node: ast.Call
    scope: Scope
    is_bare: bool  # a statement of its own
    is_expected_to_fail: bool  # inside `with pytest.raises(..)` and the like


def find_calls(tree: ast.Module) -> list[Seen]:
    """All calls of a module in the order of their places, with their scopes."""
    walk = _Walk()
    walk.walk_tree(tree)
    return sorted(walk.seen, key=lambda seen: (seen.node.lineno, seen.node.col_offset))


def find_values(name: str, scope: Scope) -> list[tuple[str | ast.expr | None, Scope]]:
    """All bindings of a name, each with its scope; empty for a free name."""
    home = scope.find_home(name)
    if home is not None:
        return [(value, home) for value in home.bound[name]]
    top = scope.find_top()
    return [(f"{module}.{name}", top) for module in top.stars]


def find_only(name: str, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """The bound expression of a name with a single binding, and its scope."""
    match find_values(name, scope):
        case [(ast.expr() as value, home)]:
            return value, home
    return None


def find_dotted(expr: ast.expr, scope: Scope, depth: int = 0) -> frozenset[str]:
    """The dotted names of imports that an expression may be; "" for anything else."""
    unknown = frozenset({""})
    match expr:
        case ast.Attribute(value=value, attr=attribute):
            return frozenset(
                f"{name}.{attribute}" if name else "" for name in find_dotted(value, scope, depth)
            )
        case ast.Name(id=name) if depth < _DEEPEST:
            found: frozenset[str] = frozenset()
            for bound, home in find_values(name, scope):
                if isinstance(bound, str):
                    found |= {bound}
                elif bound is None:
                    found |= unknown
                elif not (isinstance(bound, ast.Constant) and bound.value is None):
                    # a failed import binds None, and such a name is not called
                    found |= find_dotted(bound, home, depth + 1)
            return found or unknown
    return unknown


class _Walk:
    """One pass over a tree with an explicit stack: some files nest deeper than Python's stack."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._stack: list[tuple[ast.AST, Scope, bool]] = []
        self._bare: set[ast.AST] = set()
        self._tried: set[ast.AST] = set()

    def walk_tree(self, tree: ast.Module) -> None:
        top = Scope()
        self._push_nodes(tree.body, top, False)
        while self._stack:
            node, scope, fails = self._stack.pop()
            if type(node) in _PLAIN:
                self._push_nodes(_find_children(node), scope, fails)
            else:
                self._visit_node(node, scope, fails)

    def _push_nodes(self, nodes: Sequence[ast.AST], scope: Scope, fails: bool) -> None:
        self._stack.extend((node, scope, fails) for node in reversed(nodes))

    def _visit_node(self, node: ast.AST, scope: Scope, fails: bool) -> None:
        match node:
            case ast.Expr(value=value):
                if value not in self._tried:
                    self._bare.add(value)
            case ast.Try(body=body, handlers=[_, *_]):
                # a call inside `try` may only test whether it raises
                self._tried |= {inner.value for inner in body if isinstance(inner, ast.Expr)}
            case ast.Call():
                self.seen.append(Seen(node, scope, node in self._bare and not fails, fails))
            case ast.With() | ast.AsyncWith():
                fails = fails or any(map(_is_raises, node.items))
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                scope.bind(name, value)
                self._push_nodes([value], scope, fails)
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._enter_function(node, scope, fails)
                return
            case ast.ClassDef(name=name):
                scope.bind(name, None)
                inner = Scope(scope, is_class=True)
                self._push_nodes([*node.decorator_list, *node.bases, *node.keywords], scope, fails)
                self._push_nodes(node.body, inner, fails)
                return
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                scope = Scope(scope)
            case _:
                for bound, imported in _find_bindings(node):
                    scope.bind(bound, imported)
                _note_declared(node, scope)
        self._push_nodes(_find_children(node), scope, fails)

    def _enter_function(self, node: _FUNCTION, scope: Scope, fails: bool) -> None:
        inner = Scope(scope)
        given = node.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        for argument in every:
            if argument is not None:
                inner.bind(argument.arg, None)
        outside: list[ast.AST] = [*given.defaults, *(d for d in given.kw_defaults if d)]
        if isinstance(node, ast.Lambda):
            self._push_nodes(outside, scope, fails)
            self._push_nodes([node.body], inner, fails)
            return
        scope.bind(node.name, None)
        self._push_nodes([*node.decorator_list, *outside], scope, fails)
        self._push_nodes(node.body, inner, fails)


def _find_children(node: ast.AST) -> list[ast.AST]:
    """The nodes below a node that may bind a name or hold a call, in the order of the text."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        for child in value if isinstance(value, list) else (value,):
            is_read = isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)
            if isinstance(child, ast.AST) and not is_read and type(child) not in _LEAVES:
                found.append(child)
    return found


def _find_bindings(node: ast.AST) -> Iterator[tuple[str, str | None]]:
    """Names that a node binds other than by a plain assignment."""
    match node:
        case ast.Import(names=aliases):
            for alias in aliases:
                whole = alias.name if alias.asname else alias.name.split(".")[0]
                yield alias.asname or whole, whole
        case ast.ImportFrom(module=module, names=aliases, level=level):
            for alias in aliases:
                whole = "" if level or not module else f"{module}.{alias.name}"
                if alias.name != "*":
                    yield alias.asname or alias.name, whole or None
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name, None
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name, None
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name, None
        case ast.Attribute(value=ast.Name(id=name), attr=attribute, ctx=context):
            # x.unsqueeze_(0) and x.shape = .. change x
            if attribute.endswith("_") or not isinstance(context, ast.Load):
                yield f"{name}.", None


def _note_declared(node: ast.AST, scope: Scope) -> None:
    """Record `import *`, and names that are assigned from another scope."""
    match node:
        case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")], level=0):
            scope.find_top().stars.append(module)
        case ast.Global(names=names):
            for name in names:
                scope.find_top().bind(name, None)
        case ast.Nonlocal(names=names):
            here = scope.outer
            while here is not None and here.outer is not None:
                for name in names:
                    here.bind(name, None)
                here = here.outer


def _is_raises(item: ast.withitem) -> bool:
    """`pytest.raises(..)`, `self.assertRaisesRegex(..)`, `np.testing.assert_raises(..)`."""
    called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else None
    match called:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return "raises" in name.lower()
    return False


@dataclass(frozen=True, slots=True)
class Text:
    """A string, the literals that form it, and the argument of the call."""

    value: str
    pieces: tuple[ast.Constant, ...]
    node: ast.expr

    @property
    def is_at_call(self) -> bool:
        """Whether the literals are inside the call."""
        first, last = self.pieces[0], self.pieces[-1]
        start = (self.node.lineno, self.node.col_offset)
        end = (self.node.end_lineno or 0, self.node.end_col_offset or 0)
        return (
            start <= (first.lineno, first.col_offset)
            and (last.end_lineno or 0, last.end_col_offset or 0) <= end
        )


def find_texts(node: ast.expr, scope: Scope, depth: int = 0) -> list[Text]:
    """All strings that an expression may be; empty if unknown."""
    match node:
        case ast.Constant(value=str(value)):
            return [Text(value, (node,), node)]
        case ast.BinOp(left=left, op=ast.Add(), right=right) if depth < _DEEPEST:
            lefts = find_texts(left, scope, depth + 1)
            rights = find_texts(right, scope, depth + 1)
            if len(lefts) == len(rights) == 1:
                (one,), (other,) = lefts, rights
                return [Text(one.value + other.value, one.pieces + other.pieces, node)]
            return []
        case ast.IfExp(body=body, orelse=other) if depth < _DEEPEST:
            return find_texts(body, scope, depth + 1) + find_texts(other, scope, depth + 1)
        case ast.Name(id=name) if depth < _DEEPEST and (only := find_only(name, scope)):
            found = find_texts(*only, depth + 1)
            return [Text(text.value, text.pieces, node) for text in found]
    return []


def find_start(text: Text, lines: Sequence[str]) -> tuple[int, int] | None:
    """The line (from 1) and column (from 0) of the first character of a literal on one line."""
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
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))


_MAKERS = ("zeros", "ones", "empty", "full", "rand", "randn")  # constructors of tensors


def find_shape(expr: ast.expr, scope: Scope) -> Shape | None:
    """The shape of a tensor, if the text shows it: `torch.zeros(2, n)`."""
    match expr:
        case ast.Name(id=name) if (only := find_only(name, scope)) and only[1] is scope:
            value, home = only
            # a binding of `x.` marks a change in place
            return find_shape(value, home) if f"{name}." not in home.bound else None
        case ast.Call(func=func, args=arguments) if arguments:
            if any(isinstance(argument, ast.Starred) for argument in arguments):
                return None
            targets = find_dotted(func, scope)
            (target, *others) = targets
            return None if others else _find_made(target, arguments, scope)
    return None


def _find_made(target: str, arguments: list[ast.expr], scope: Scope) -> Shape | None:
    """The shape of a constructor's result, from its arguments."""
    home, _, name = target.rpartition(".")
    if home not in {"torch", "numpy", "jax.numpy"} or name not in _MAKERS:
        return None
    match arguments:
        case [ast.Tuple(elts=extents) | ast.List(elts=extents), *_]:
            if any(isinstance(extent, ast.Starred) for extent in extents):
                return None
        case [_, _, *_] if home == "torch" and name != "full":
            extents = arguments
        case [ast.Constant(value=int()) as first, *_]:
            extents = [first]
        case _:
            return None
    return tuple(_find_extent(extent, scope) for extent in extents)


def _find_extent(expr: ast.expr, scope: Scope) -> int | None:
    match expr:
        case ast.Constant(value=int(extent)) if not isinstance(extent, bool):
            return extent
        case ast.Name(id=name) if only := find_only(name, scope):
            value = only[0]
            return _find_extent(value, only[1]) if isinstance(value, ast.Constant) else None
    return None
