"""One call of a torch function: its arguments by position or by name, and what torch gave back.

An op is a row of a table: the names under which torch knows it, what it means, and examples:

    Op("softmax", act, "x[B, S]: torch.softmax(x, -1)")

The part before the colon declares tensors, the rest is Python whose last statement is the result;
one parametrised test lifts every example and compares the values with torch's at two sets of sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.numbers import plain
from derive.frontend.torch.trace import kind_of

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Shadow, Trace


_MISSING = object()


@dataclass(frozen=True)
class Call:
    """A call that torch has answered."""

    trace: Trace
    name: str
    args: tuple[Any, ...]
    named: dict[str, Any]
    out: Any

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its place or its name."""
        if position < len(self.args):
            return self.args[position]
        return self.named.get(name, default)

    def shadow(self, position: int, name: str = "input") -> Shadow:
        """What is known of a tensor argument."""
        value = self.get(position, name, _MISSING)
        if value is _MISSING or value is None:
            raise self.trace.refuse("lift-op", f"{self.name} is called in a way that is not known")
        return self.trace.shadow(value)

    @property
    def kind(self) -> str:
        """What the result holds."""
        return kind_of(self.out)

    def axis(self, position: int, rank: int, default: Any = None, name: str = "dim") -> int:
        """An axis argument, counted from the first."""
        value = self.get(position, name, default)
        if value is None:
            raise self.trace.refuse("lift-op", f"{self.name} without a dimension is not known")
        return int(plain(value)) % max(rank, 1)

    def axes(self, position: int, rank: int, name: str = "dim") -> tuple[int, ...]:
        """The axes of a reduction; all of them where none are told."""
        value = self.get(position, name)
        if value is None or value in ((), []):
            return tuple(range(rank))
        if isinstance(value, int):
            value = (value, *(a for a in self.args[position + 1 :] if type(a) is int))
        return tuple(int(plain(each)) % max(rank, 1) for each in value)

    def spread_args(self, position: int, name: str) -> tuple[Any, ...]:
        """Arguments given one by one or as one tuple: `view(2, 3)`, `view((2, 3))`."""
        if name in self.named:
            value = self.named[name]
        else:
            rest = self.args[position:]
            value = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
        return (value,) if isinstance(value, int) else tuple(value)

    def flag(self, position: int, name: str, default: bool = False) -> bool:
        """A truth argument."""
        return bool(self.get(position, name, default))


Act = Callable[[Call], Any]


@dataclass(frozen=True)
class Op:
    """A function of torch: its names, what it computes, whether it is a view, examples."""

    names: str
    act: Act | None
    examples: tuple[str, ...]
    is_view: bool = False
    is_write: bool = False
    definition: Callable[..., Any] | None = None


def composite(names: str, definition: Callable[..., Any], *examples: str) -> Op:
    """A row whose meaning is a small Python definition over other ops."""
    return Op(names, None, examples, definition=definition)


def op(names: str, act: Act, *examples: str, is_view: bool = False, is_write: bool = False) -> Op:
    """A row of the table."""
    return Op(names, act, examples, is_view, is_write)
