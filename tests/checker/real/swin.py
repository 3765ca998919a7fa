"""Swin's attention within windows, with a table of biases for relative positions in two ways."""

from __future__ import annotations

from typing import Any


def make_attention() -> Any:
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinAttention

    config = SwinConfig(attn_implementation="eager")
    return SwinAttention(config, 12, 3, window_size=2).double().eval()


def make_layer() -> Any:
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinLayer

    config = SwinConfig(attn_implementation="eager", window_size=3, mlp_ratio=0.5)
    return SwinLayer(config, 30, (12, 6), 5, shift_size=1).double().eval()
