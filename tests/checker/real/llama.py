"""Llama's attention with rotary positions and grouped heads, its norm and a whole layer."""

from __future__ import annotations

from typing import Any

import torch


def make_config() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=12,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=8,
        intermediate_size=10,
        attn_implementation="eager",
    )


class CausalAttention(torch.nn.Module):
    """The attention, or a layer of it, under the causal mask that the model makes."""

    def __init__(self, layer: bool = False) -> None:
        from transformers.models.llama import modeling_llama as llama

        super().__init__()
        made = llama.LlamaDecoderLayer if layer else llama.LlamaAttention
        self.inner = made(make_config(), layer_idx=0).double().eval()

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        from transformers.masking_utils import create_causal_mask

        mask = create_causal_mask(make_config(), x, None, None)
        return self.inner(x, position_embeddings=(cos, sin), attention_mask=mask)


def make_attention() -> Any:
    from transformers.models.llama.modeling_llama import LlamaAttention

    return LlamaAttention(make_config(), layer_idx=0).double().eval()


def make_norm() -> Any:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return LlamaRMSNorm(5, eps=1e-2).double().eval()


def make_mlp() -> Any:
    from transformers.models.llama.modeling_llama import LlamaMLP

    return LlamaMLP(make_config()).double().eval()
