"""Attention as torch has it: nn.MultiheadAttention, the functional form, a transformer's layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


def make_attention(**options: Any) -> nn.Module:
    return nn.MultiheadAttention(
        12, 3, dtype=torch.float64, **{"batch_first": True, **options}
    ).eval()


class CausalAttention(nn.Module):
    """The attention with torch's own causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_attention()

    def forward(self, x: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64)
        return self.inner(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


def attend(query: Any, key: Any, value: Any) -> Any:
    return scaled_dot_product_attention(query, key, value)


def attend_scaled(query: Any, key: Any, value: Any, scale: float) -> Any:
    return scaled_dot_product_attention(query, key, value, scale=scale)


def attend_causal(query: Any, key: Any, value: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, is_causal=True)


def attend_masked(query: Any, key: Any, value: Any, mask: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None])


def attend_biased(query: Any, key: Any, value: Any, bias: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=0.0)


def attend_grouped(query: Any, key: Any, value: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, enable_gqa=True)


def make_layer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(
        12, 3, 7, dtype=torch.float64, batch_first=True, **options
    ).eval()
