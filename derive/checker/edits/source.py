"""Sites and edits of a text, and runs of the edited code.

Only code inside functions can be exchanged; the file itself is not run again. The exchange happens
in the process that loaded the code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from types import CodeType
from typing import Any

from derive.checker import load, processes, runs, subjects
from derive.checker.program import Program
from derive.checker.runs.trace import Example, are_close
from derive.frontend.torch.numbers import is_number
from derive.libraries import torch


@dataclass(frozen=True)
class Rewrite:
    """A replacement of a stretch of the source."""

    start: int
    end: int
    text: str
    words: str
    cost: float
    line: int = 0
    others: tuple[Rewrite, ...] = ()  # further edits of the same kind

    def apply(self, source: str) -> str:
        """The edited source."""
        for each in reversed((self, *self.others)):
            source = source[: each.start] + each.text + source[each.end :]
        return source


def repeat_rewrites(rewrites: Sequence[Rewrite], more: float) -> Iterator[Rewrite]:
    """Yield the edits with equal words as one, for `more` than the cost of the cheapest."""
    groups: dict[str, list[Rewrite]] = {}
    for rewrite in sorted(rewrites, key=lambda each: (each.start, each.cost)):
        apart = groups.setdefault(rewrite.words, [])
        if not apart or rewrite.start >= apart[-1].end:
            apart.append(rewrite)
    for apart in groups.values():
        if len(apart) > 1:
            cost = min(each.cost for each in apart) + more
            yield replace(apart[0], cost=cost, others=tuple(apart[1:]))


def put_brackets(text: str) -> str:
    """The text in brackets, if it is an expression that can need them."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return text
    atoms = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant)
    return text if isinstance(node, atoms) else f"({text})"


_LIBRARIES = {"torch", "F", "nn", "math", "np", "numpy", "einops"}


class SourceText:
    """A text, and the positions of its nodes in characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._rows = text.splitlines(keepends=True)
        self._starts = [0, *accumulate(map(len, self._rows))]

    @cached_property
    def statements(self) -> list[Any]:
        """The statements that may be edited, outer ones first; none of a `while` loop."""
        found: list[Any] = []

        def descend(node: ast.AST) -> None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.While):
                    continue  # edited loops might not end
                is_holder = isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler))
                if isinstance(child, ast.stmt) and not is_holder:
                    found.append(child)
                if is_holder or isinstance(child, (ast.If, ast.For, ast.With, ast.Try)):
                    descend(child)

        descend(self.tree)
        return found

    @cached_property
    def unused(self) -> frozenset[str]:
        """The names, of attributes and arguments too, that the text assigns and never reads."""
        made = {n.arg for n in ast.walk(self.tree) if isinstance(n, ast.arg)}
        read: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Name, ast.Attribute)):
                name = node.id if isinstance(node, ast.Name) else node.attr
                (read if isinstance(node.ctx, ast.Load) else made).add(name)
        return frozenset(made - read)

    def find_statement_lines(self, lines: set[int]) -> set[int]:
        """All lines of the innermost statements on these lines."""
        simple = (each for each in self.statements if not hasattr(each, "body"))
        spans = (set(range(each.lineno, (each.end_lineno or 0) + 1)) for each in simple)
        return lines.union(*(span for span in spans if span & lines))

    def find_number_lines(self, lines: set[int], traced: set[int]) -> set[int]:
        """The lines outside `traced` that assign a name that `lines` read: they made no tensors."""
        nodes = (node for each in self.statements for node in ast.walk(each))
        names = (node for node in nodes if isinstance(node, ast.Name))
        read = {name.id for name in names if name.lineno in lines}
        made = (n for n in self.statements if isinstance(n, ast.Assign) and n.lineno not in traced)
        return {
            each.lineno
            for each in made
            if any(isinstance(t, ast.Name) and t.id in read for t in each.targets)
        }

    def span(self, node: Any) -> tuple[int, int]:
        """The offsets in the text at which a node starts and ends."""

        def find_offset(line: int, column: int) -> int:
            row = self._rows[line - 1] if line <= len(self._rows) else ""
            return self._starts[line - 1] + len(row.encode()[:column].decode())

        return find_offset(node.lineno, node.col_offset), find_offset(
            node.end_lineno, node.end_col_offset
        )

    def text_of(self, node: Any) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]


@dataclass(frozen=True)
class CodeSite:
    """An expression of the executed code, which an edit may replace."""

    source: SourceText
    node: ast.expr
    parents: tuple[ast.AST, ...]  # from the statement to the enclosing node
    names: Mapping[str, Any]  # with their values at the first run of the line
    line: int

    @property
    def parent(self) -> ast.AST:
        """The enclosing node."""
        return self.parents[-1]

    @property
    def text(self) -> str:
        """The source of the node."""
        return self.source.text_of(self.node)

    @property
    def is_open(self) -> bool:
        """Whether any expression can replace the node without brackets."""
        kinds = (
            *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.keyword),
            *(ast.GeneratorExp, ast.ListComp, ast.Tuple, ast.List),
        )
        is_argument = isinstance(self.parent, ast.Call) and self.node is not self.parent.func
        return isinstance(self.parent, kinds) or is_argument

    @property
    def is_value(self) -> bool:
        """Whether it is a statement's value, an argument, an operand or a call's receiver."""
        if isinstance(self.parent, (ast.BinOp, ast.UnaryOp)):
            return True
        if isinstance(self.parent, ast.Attribute):  # the receiver of a method call
            return len(self.parents) > 1 and isinstance(self.parents[-2], ast.Call)
        return self.is_open

    @property
    def can_be_wrapped(self) -> bool:
        """Whether the node is a value that a function or an operator can be applied to."""
        node = self.node
        if not self.is_value or isinstance(node, (ast.Constant, ast.Tuple, ast.List, ast.Slice)):
            return False
        if isinstance(node, ast.Name) and node.id not in self.names:
            return False  # a module
        return not isinstance(node, ast.UnaryOp) or read_number(node) is None

    @property
    def may_be_tensor(self) -> bool:
        """Whether the node can be wrapped, and is a call or literal or reads a tensor."""
        names = [n.id for n in ast.walk(self.node) if isinstance(n, ast.Name)]
        is_tensor = any(hasattr(self.names.get(name), "shape") for name in names)
        is_call = not isinstance(self.node, (ast.Name, ast.BinOp, ast.Subscript))
        return self.can_be_wrapped and (is_tensor or is_call)

    def exchange(self, one: ast.expr, two: ast.expr) -> str:
        """The text with two of its parts exchanged."""
        begin, end = self.source.span(self.node)
        (a, b), (c, d) = self.source.span(one), self.source.span(two)
        text = self.source.text
        left, right = text[c:d], text[a:b]
        if isinstance(self.node, (ast.BinOp, ast.Compare)):
            left, right = put_brackets(left), put_brackets(right)
        return text[begin:a] + left + text[b:c] + right + text[d:end]

    def replace(self, text: str, words: str, cost: float) -> Rewrite:
        """The replacement of the node by another text."""
        start, end = self.source.span(self.node)
        around = self.source.text[start - 1 : start] + self.source.text[end : end + 1]
        text = text if self.is_open or around == "()" else put_brackets(text)
        return Rewrite(start, end, text, words, cost, self.line)


def read_number(node: ast.expr | None) -> Any:
    """The number of a literal with its sign; None for another expression."""
    match node:
        case ast.Constant(int() | float() as value) if is_number(value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
    return None


def find_name(call: ast.AST) -> str:
    """The last name of the called function: `sum` of `x.sum()`; "it" if unnamed, "" for no call."""
    match call:
        case ast.Call(ast.Attribute(attr=name) | ast.Name(id=name)):
            return name
        case ast.Call():
            return "it"
    return ""


def find_receiver(call: ast.expr) -> ast.expr | None:
    """The receiver of a method call, or the first argument of a function call; None without."""

    def is_library(node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in _LIBRARIES
        return isinstance(node, ast.Attribute) and is_library(node.value)

    match call:
        case ast.Call(ast.Attribute(owner)) if not is_library(owner):
            return owner
        case ast.Call(ast.Attribute() | ast.Name(), [first, *_]):
            return first
    return None


def find_spelt_sizes(site: CodeSite) -> Iterator[tuple[str, int]]:
    """Yield texts for sizes, with their values: a name of the code, else `x.shape[0]`."""
    met: set[int] = set()
    for name, value in site.names.items():
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            met.add(value)
            yield name, value
    for name, value in site.names.items():
        for axis, extent in enumerate(getattr(value, "shape", ())):
            if extent > 1 and extent not in met:
                met.add(extent)
                at = -1 if axis == value.dim() - 1 else axis
                yield f"{name}.shape[{at}]", extent


def find_sites(source: SourceText, lines: Mapping[int, Mapping[str, Any]]) -> Iterator[CodeSite]:
    """Yield the expressions of executed statements, outer first; `lines`: values of names there."""

    def descend(
        node: ast.AST, parents: tuple[ast.AST, ...], names: Mapping[str, Any]
    ) -> Iterator[CodeSite]:
        is_stored = isinstance(getattr(node, "ctx", None), ast.Store)
        if isinstance(node, (ast.JoinedStr, ast.Lambda)) or (
            is_stored and not isinstance(node, ast.Tuple)
        ):
            return  # targets of assignments stay; elements of a tuple may be exchanged
        if isinstance(node, ast.expr):
            yield CodeSite(source, node, parents, names, node.lineno)
        fixed = node.target if isinstance(node, ast.comprehension) else None
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.expr, ast.keyword, ast.comprehension)) and child is not fixed:
                yield from descend(child, (*parents, node), names)

    for statement in source.statements:
        own = range(statement.lineno, (statement.end_lineno or 0) + 1)
        for line in [n for n in own if n in lines][:1]:
            yield from descend(statement, (), lines[line])


def is_like(one: Any, other: Any) -> bool:
    """Whether one value can replace another: numbers, modules or tensors of a kind."""
    if hasattr(one, "dtype") and hasattr(other, "dtype"):
        kinds = [(e.is_floating_point(), str(e.dtype) == "torch.bool") for e in (one, other)]
        return kinds[0] == kinds[1]
    return (is_number(one) and is_number(other)) or (isinstance(one, str) and one == other)


Names = Mapping[str, Any]  # numbers, tensors without values, members of modules by name
Lines = dict[int, Names]  # the executed lines with the names at each


class CodeExchange:
    """The functions of a file, whose code can be exchanged for that of an edited text."""

    def __init__(self, code: load.Code) -> None:
        found = subjects.find_functions(code.target)
        self.code = code
        self.functions = [each for each in found if each.__code__.co_filename == code.path]
        self.before = [each.__code__ for each in self.functions]

    def put_code(self, edited: str, line: int) -> None:
        """Give the functions of the block at a line an edited text's code, others their own."""
        code = self.code
        if code.script is not None:
            made = load.compile_script(code, edited)
        else:
            blocks = load.find_blocks(code.source)
            first, last = next(each for each in blocks if each[0] <= line <= each[1])
            last += edited.count("\n") - code.source.count("\n")
            block = "\n".join(edited.split("\n")[first - 1 : last])
            made = compile("\n" * (first - 1) + block, code.path, "exec", dont_inherit=True)

        every = subjects.list_codes(made)
        new = {(each.co_qualname, each.co_firstlineno): each for each in every}
        for function, before in zip(self.functions, self.before, strict=True):
            function.__code__ = new.get((before.co_qualname, before.co_firstlineno), before)


@processes.run_remotely
def put_text(code: load.Code, edited: str, line: int) -> None:
    """Give each function of the block at a line its code from an edited text."""
    CodeExchange(code).put_code(edited, line)


@contextmanager
def exchange(code: load.Code, rewrite: Rewrite) -> Iterator[None]:
    """Exchange the code for the edited one within the context."""
    edited = rewrite.apply(code.source)
    put_text(code, edited, rewrite.line)
    try:
        yield
    finally:
        put_text(replace(code, source=edited), code.source, rewrite.line)


@processes.run_remotely
def find_passing(program: Program, rewrites: Sequence[Rewrite], trial: Example) -> tuple[int, ...]:
    """The numbers of the edits with which the program gives the results of a trial."""
    code, texts, how = program.code, CodeExchange(program.code), runs.RunOptions()
    with suppress(Exception):  # without requests for shorter floats, no mode has to replace them
        if not program.run(trial.values, trial.sizes).shorter:
            how = runs.RunOptions(double=False, asked=True)
    passing: list[int] = []
    with runs.prepare(how):
        constructor = program.find_given(trial.values, trial.sizes).constructor
        target, making = (code.target, set[int]())  # the lines of the constructor
        if processes.find_kind(target) == "class":
            made = partial(runs.make_module, code.target, constructor)
            making, target = {*watch(code.path, made)[0]}, made()
        for number, rewrite in enumerate(rewrites):
            is_made_again = making & {rewrite.line, *(each.line for each in rewrite.others)}
            of = code.target if is_made_again else target
            with suppress(Exception, SystemExit, KeyboardInterrupt):  # whatever edited code raises
                texts.put_code(rewrite.apply(code.source), rewrite.line)
                given = program.find_given_on_copies(trial.values, trial.sizes)
                found = runs.call_target(of, given.arguments, given.parameters, constructor)
                results = runs.flatten_results(runs.pick_results(found, program.names))
                if are_close(results, trial.results):
                    passing.append(number)
            for function, own in zip(texts.functions, texts.before, strict=True):
                function.__code__ = own
    return tuple(passing)


@processes.run_remotely
def watch_program(program: Program, trial: Example) -> tuple[Lines, tuple[int, ...]]:
    """The pair (executed lines of one run of a program, repeated lines)."""
    return watch(program.code.path, lambda: program.run(trial.values, trial.sizes))


def watch(path: str, run: Callable[[], Any]) -> tuple[Lines, tuple[int, ...]]:
    """The pair (executed lines of a file with the values of names, repeated lines)."""
    lines: Lines = {}
    repeated: set[int] = set()
    seen: set[tuple[int, CodeType]] = set()

    def note_line(frame: Any, event: str) -> None:
        place = (frame.f_lineno, frame.f_code)
        if event == "line" and place in seen:
            repeated.add(frame.f_lineno)
        elif event == "line":
            seen.add(place)
            found = ((name, _summarize_value(value)) for name, value in frame.f_locals.items())
            names = {name: each for name, each in found if each is not None}
            for name in frame.f_code.co_names:  # constants of the file
                number = frame.f_globals.get(name)
                if is_number(number):
                    names.setdefault(name, number)
            lines[frame.f_lineno] = {**lines.get(frame.f_lineno, {}), **names}

    with runs.trace_lines(path, note_line), suppress(Exception):  # the lines before a failure count
        run()
    return lines, tuple(sorted(repeated))


def _summarize_value(value: Any, *, inside: bool = False) -> Any:
    """A number, a meta tensor, the dict of a module's members, another type's name; else None."""
    if is_number(value):
        return value
    if isinstance(value, torch.Tensor):
        return torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")
    if isinstance(value, torch.nn.Module) and not inside:
        own = dict(vars(value))
        for held in ("_parameters", "_buffers", "_modules"):
            own |= own.get(held) or {}
        found = ((name, _summarize_value(each, inside=True)) for name, each in own.items())
        return {name: each for name, each in found if each is not None}
    return type(value).__name__ if isinstance(value, (torch.nn.Module, list)) else None
