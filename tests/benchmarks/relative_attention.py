"""Relative attention: the generated function against the broadcast-multiply-sum form.

    python -m tests.benchmarks.relative_attention

One thread, float32; medians over interleaved runs of one process, so that the ratio means something
on a machine that is busy with other things. The hand-written form is what the formula says when it
is typed in literally: it builds two tensors over b, i, j, h and d.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor

from generated.relative_attention import relative_attention

SIZES = ((8, 256, 8, 64), (10, 20, 30, 40))
RUNS = 5


def broadcast_attention(  # noqa: PLR0917 - the formula's own arguments
    X: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, A_K: Tensor, A_V: Tensor
) -> Tensor:
    """The formula with every product broadcast, multiplied and summed."""
    q = torch.einsum("bihd,hde->bihe", X, W_Q)
    k = torch.einsum("bjhd,hde->bjhe", X, W_K)
    v = torch.einsum("bjhd,hde->bjhe", X, W_V)
    logits = (q[:, :, None] * (k[:, None] + A_K)).sum(-1) * X.shape[-1] ** -0.5
    alpha = torch.softmax(logits, dim=2)
    return (alpha[..., None] * (v[:, None] + A_V)).sum(2)


def draw(B: int, S: int, H: int, D: int) -> list[Tensor]:
    """Inputs of the formula's shapes, with logits of about 1."""
    shapes = [(B, S, H, D), *[(H, D, D)] * 3, *[(S, S, H, D)] * 2]
    return [torch.randn(shape) * (1 if k == 0 else D**-0.5) for k, shape in enumerate(shapes)]


def measure(arguments: list[Tensor]) -> tuple[float, float]:
    """Median seconds of (by hand, generated), the runs interleaved."""
    seconds: dict[str, list[float]] = {"hand": [], "generated": []}
    for _ in range(RUNS):
        for name, function in (("hand", broadcast_attention), ("generated", relative_attention)):
            start = time.perf_counter()
            function(*arguments)
            seconds[name].append(time.perf_counter() - start)
    return statistics.median(seconds["hand"]), statistics.median(seconds["generated"])


def main() -> None:
    """Print one line for each choice of sizes."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for sizes in SIZES:
        arguments = draw(*sizes)
        torch.testing.assert_close(
            relative_attention(*arguments), broadcast_attention(*arguments), rtol=1e-4, atol=1e-5
        )
        hand, generated = measure(arguments)
        shown = " ".join(f"{n}={s}" for n, s in zip("BSHD", sizes, strict=True))
        print(
            f"{shown}: by hand {hand * 1e3:.1f} ms, generated {generated * 1e3:.1f} ms, "
            f"ratio {hand / generated:.1f}"
        )


if __name__ == "__main__":
    main()
