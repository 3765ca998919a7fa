"""T5's attention with learned relative positions, its norm and its feed-forward layer."""

from __future__ import annotations

from typing import Any

import torch


def make_config() -> Any:
    from transformers import T5Config

    return T5Config(
        d_model=5,
        d_kv=4,
        num_heads=3,
        d_ff=7,
        relative_attention_num_buckets=32,
        attn_implementation="eager",
    )


def make_attention() -> Any:
    from transformers.models.t5.modeling_t5 import T5Attention

    return T5Attention(make_config(), has_relative_attention_bias=True).double().eval()


class GivenBuckets(torch.nn.Module):
    """The attention with the bucket of each pair of positions given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_attention()

    def forward(self, x: Any, mask: Any, bucket: Any) -> Any:
        self.inner._relative_position_bucket = lambda *_, **__: bucket
        z, _, alpha = self.inner(x, mask=mask)
        return z, alpha


def make_norm() -> Any:
    from transformers.models.t5.modeling_t5 import T5LayerNorm

    return T5LayerNorm(5).double().eval()


def make_layer() -> Any:
    from transformers.models.t5.modeling_t5 import T5LayerFF

    return T5LayerFF(make_config()).double().eval()
