"""Finite numbers that stand for -inf in a mask: the same code with -inf in their place.

Where a score is so far below the others that its exponential is 0 in float32, its weight is 0
however it came there: by -inf, by -1e9, by `finfo.min`. Which entries those are is seen in a run at
ordinary inputs; a run at other inputs can then have -inf in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_VANISHES = -104.0  # exp of less is 0 in float32, whose smallest number is 2**-149
_EXPONENTIALS = ("exp", "sigmoid")  # of the scores as they stand; those below compare them
_ROWS = ("softmax", "log_softmax", "logsumexp", "amax", "max")
_WITH_MASK = "scaled_dot_product_attention"  # which is given its mask beside the scores


@dataclass
class Masks:
    """The entries that vanish at ordinary inputs, call by call, and the largest of them."""

    places: list[Any] = field(default_factory=list)
    largest: float | None = None

    def find(self) -> Any:
        """A mode that notes the entries, for the run at ordinary inputs."""
        return _intercept(self._note)

    def put_infinity(self) -> Any:
        """A mode that puts -inf in these entries, for the run at other inputs."""
        places = iter(self.places)

        def put(scores: Any, is_relative: bool) -> Any:
            vanishes = next(places, None)
            if vanishes is None or vanishes.shape != find_values(scores).shape:
                return scores
            return scores.masked_fill(vanishes, float("-inf"))

        return _intercept(put)

    def _note(self, scores: Any, is_relative: bool) -> Any:
        values = find_values(scores)
        is_finite = values.isfinite()
        top = values[is_finite].max() if is_relative and bool(is_finite.any()) else 0.0
        vanishes = is_finite & (values - top < _VANISHES)
        self.places.append(vanishes)
        if bool(vanishes.any()):
            found = float(values[vanishes].max())
            self.largest = found if self.largest is None else max(found, self.largest)
        return scores


def _intercept(meet: Callable[[Any, bool], Any]) -> Any:
    """A mode that gives the scores of each softmax, or of what one is made of, to `meet` first."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Intercepting(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name, named = getattr(function, "__name__", ""), dict(kwargs or {})
            if name == _WITH_MASK:
                mask = named.get("attn_mask", args[3] if len(args) > 3 else None)
                if isinstance(mask, torch.Tensor) and mask.is_floating_point():
                    args, rest = args[:3], args[4:]
                    named |= dict(zip(("dropout_p", "is_causal"), rest, strict=False))
                    named["attn_mask"] = meet(mask, True)
            elif name in _EXPONENTIALS or name in _ROWS:
                scores, *rest = args or (named.pop("input"),)
                if isinstance(scores, torch.Tensor) and scores.is_floating_point():
                    scores = meet(scores, name in _ROWS)
                args = (scores, *rest)
            return function(*args, **named)

    return Intercepting()


def find_values(tensor: Any) -> Any:
    """The tensor with the batches and levels that torch.func holds back from code that runs."""
    import torch

    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor
