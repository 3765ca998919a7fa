"""BERT's attention, its output and a whole layer, from transformers."""

from __future__ import annotations

from typing import Any

import torch


def make_config() -> Any:
    from transformers import BertConfig

    return BertConfig(
        hidden_size=12, num_attention_heads=3, intermediate_size=7, attn_implementation="eager"
    )


def make_attention() -> torch.nn.Module:
    from transformers.models.bert.modeling_bert import BertSelfAttention

    return BertSelfAttention(make_config()).double().eval()


def make_output() -> torch.nn.Module:
    from transformers.models.bert.modeling_bert import BertSelfOutput

    return BertSelfOutput(make_config()).double().eval()


def make_layer() -> torch.nn.Module:
    from transformers.models.bert.modeling_bert import BertLayer

    return BertLayer(make_config()).double().eval()


class MaskedLayer(torch.nn.Module):
    """The layer under the mask that the model makes: the least float at padded keys."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_layer()

    def forward(self, x: Any, keep: Any) -> Any:
        from transformers.masking_utils import create_bidirectional_mask

        mask = create_bidirectional_mask(make_config(), x, keep)
        return self.inner(x, mask)
