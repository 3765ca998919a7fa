"""Which part of a file is meant, and how an object of a class is made.

attend           a function, a lambda, an object, a class
Block.project    a method; of a class of torch modules it stands for `forward`, of another class an
                 object is made first, without arguments or with those that --init gives
block.proj       a part of an object
"""

from __future__ import annotations

import ast
import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

from derive.errors import Mark, refuse, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

_CALLED = "_called_with"


def find_member(names: Mapping[str, Any], member: str, init: str, shown: str) -> Any:
    """What a dotted name of a file is; whatever the user's constructor raises passes."""
    first, *rest = member.split(".")
    target = names[first]
    if init:
        if not isinstance(target, type):
            raise refuse("init-class", f"{shown}:{first} is no class, so --init makes nothing")
        target = make_object(target, init, names)
    for name in rest:
        if inspect.getattr_static(target, name, None) is None and not hasattr(target, name):
            public = [each for each in dir(target) if not each.startswith("_")]
            help = suggest(name, public)
            raise refuse("code-missing", f"{shown}:{first} has no {name}", help=help)
        target = _take(target, name, f"{shown}:{first}")
    if isinstance(target, type) and not _is_module(target):
        methods = [n for n, each in vars(target).items() if inspect.isfunction(each)]
        public = [name for name in methods if not name.startswith("_")]
        help = f"name a method: {shown}:{member}.{public[0]}" if public else ""
        raise refuse("code-class", f"{shown}:{member} is a class without a forward", help=help)
    if not callable(target):
        raise refuse("code-kind", f"{shown}:{member} is {type(target).__name__}, which is no code")
    return target


def _is_module(target: type) -> bool:
    import torch

    return issubclass(target, torch.nn.Module)


def make_object(target: type, init: str, names: Mapping[str, Any]) -> Any:
    """An object of the class: `init` are the constructor's arguments, or makes it itself."""
    try:
        call = compile(ast.parse(f"{_CALLED}({init}\n)", mode="eval"), "<--init>", "eval")
    except (SyntaxError, ValueError) as error:
        raise refuse(
            "init-form",
            f"--init cannot be read as arguments of {target.__name__}",
            marks=[Mark(init, 0, len(init))],
            help='write them as in a call: --init "Config(n_head=2)", --init "8, heads=2"',
        ) from error
    given, named = eval(call, {**names, _CALLED: lambda *given, **named: (given, named)})
    is_made = len(given) == 1 and isinstance(given[0], target)
    made: Any = given[0] if is_made else target(*given, **named)
    return made.eval() if _is_module(target) else made


def _take(owner: Any, name: str, shown: str) -> Any:
    """An attribute; a method as something to call with its own arguments."""
    kind = owner if isinstance(owner, type) else type(owner)
    method = inspect.getattr_static(kind, name, None)
    if not inspect.isfunction(method):
        return getattr(owner, name)
    if _is_module(kind):
        if name == "forward":
            return owner
        made = _stand_for_forward(kind, name, method)
        if owner is kind:
            return made
        owner.__class__ = made
        return owner
    if owner is kind:
        if list_needed(kind):
            raise refuse(
                "code-init",
                f"{shown} is made with arguments",
                facts=[f"it takes {inspect.signature(owner)}"],
                help='give them as in a call: --init "8, heads=2"',
            )
        owner = owner()
    return getattr(owner, name)


def list_needed(kind: type) -> list[str]:
    """The arguments without which no object of a class is made."""
    return [parameter.name for parameter in _list_parameters(kind) if _is_open(parameter)]


def _list_parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _is_open(parameter: inspect.Parameter) -> bool:
    variable = {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    return parameter.default is parameter.empty and parameter.kind not in variable


def _stand_for_forward(kind: type, name: str, method: Any) -> type:
    """The class of modules whose `forward` is the method, but for what the method itself calls."""

    @wraps(method)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        self.__class__ = kind
        try:
            return getattr(self, name)(*given, **named)
        finally:
            self.__class__ = made

    made = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return made
