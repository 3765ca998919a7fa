"""A rule of the linter: a code, a name, why it matters, an example that hurts and one that is fine.

    @rule(
        code="DE101", name="repeated-letter", severity=Severity.WARNING,
        why="...",
        hurts='torch.einsum("dd,bxcd->bxcd", W, x)',
        fine='torch.einsum("dk,bxck->bxcd", W, x)',
    )
    def find_repeated_letters(call: Call) -> Iterator[Remark]: ...

A rule looks at one call. One parametrised test lints both examples, each behind PRELUDE.
Codes: DE0 the call cannot run, DE1 it may not mean what was meant, DE2 it could be said better, DE9
the file itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from derive.linter.calls import Call
    from derive.linter.finding import Remark, Severity

# What the examples take for granted.
PRELUDE = """\
import torch
import numpy as np
import jax.numpy as jnp
import opt_einsum as oe
from einops import einsum, rearrange, reduce, repeat
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for; `find` is None where a file is judged, not a call."""

    code: str
    name: str
    severity: Severity
    title: str
    why: str
    hurts: str
    fine: str
    find: Callable[[Call], Iterable[Remark]] | None = None
    is_rare: bool = False  # where it fires the code is mostly meant so: shown when asked for


def rule(  # noqa: PLR0913 - a rule has that many parts
    *,
    code: str,
    name: str,
    severity: Severity,
    why: str,
    hurts: str,
    fine: str,
    is_rare: bool = False,
) -> Callable[[Callable[[Call], Iterator[Remark]]], Rule]:
    """A function on one call as a Rule; the first line of its docstring is the rule's title."""

    def wrap(find: Callable[[Call], Iterator[Remark]]) -> Rule:
        title = (find.__doc__ or "").strip().splitlines()[0]
        return Rule(code, name, severity, title, why, hurts, fine, find, is_rare)

    return wrap
