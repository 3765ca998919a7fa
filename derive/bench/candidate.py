"""One way to compute a formula: a call without arguments, with and without gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.checker.runs import flatten_results
from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from functools import partial


@dataclass(frozen=True)
class Candidate:
    """A name, a call, and the tensors that it reads, which gradients are taken by."""

    name: str
    call: partial[Any]
    inputs: tuple[Any, ...]

    @property
    def leaves(self) -> tuple[Any, ...]:
        """The real tensors."""
        return tuple(each for each in self.inputs if each.is_floating_point())


def to_forward(candidate: Candidate) -> Callable[[], Any]:
    """A call without gradients."""
    import torch

    def run() -> None:
        with torch.no_grad():
            candidate.call()

    return run


def to_backward(candidate: Candidate) -> Callable[[], Any]:
    """A call with the gradients by every real input; DeriveError where no result has one."""
    import torch

    ones: list[Any] = []

    def run() -> None:
        for leaf in candidate.leaves:
            leaf.requires_grad_()
        try:
            made = [one for one in flatten_results(candidate.call()) if one.requires_grad]
            if not made:
                raise refuse("bench-gradients", "no result depends on a real input")
            if not ones:  # what comes from above has a tensor's layout, as within a network
                ones.extend(map(torch.ones_like, made))
            torch.autograd.grad(made, candidate.leaves, ones, allow_unused=True)
        finally:
            for leaf in candidate.leaves:
                leaf.requires_grad_(False)

    return run
