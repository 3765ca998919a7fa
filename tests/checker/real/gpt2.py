"""GPT-2's attention, whose weights lie as [in, out], and a whole block, from transformers."""

from __future__ import annotations

from typing import Any

import torch


def make_config() -> Any:
    from transformers import GPT2Config

    return GPT2Config(n_embd=12, n_head=3, n_inner=7, attn_implementation="eager")


class CausalAttention(torch.nn.Module):
    """The attention under the causal mask that the model makes: the least float ahead."""

    def __init__(self, block: bool = False) -> None:
        from transformers.models.gpt2 import modeling_gpt2 as gpt2

        super().__init__()
        made = gpt2.GPT2Block(make_config()) if block else gpt2.GPT2Attention(make_config())
        self.inner = made.double().eval()

    def forward(self, x: Any) -> Any:
        from transformers.masking_utils import create_causal_mask

        mask = create_causal_mask(make_config(), x, None, None)
        return self.inner(x, attention_mask=mask)
