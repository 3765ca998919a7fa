"""Modules of torch and transformers, each with our formula of its computation.

real_modules.txt has entries for each module: the expression that makes it (`make`; longer ones are
defined here), the tensors of the formula for its arguments and parameters (`bind`), small sizes
(`sizes`; the module is made for all but the `free` ones), and mistakes that a reader could make in
the formula (`not: right part -> wrong part`): the module must differ from each of them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from judged import read_binds
from texts import read_sections
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True)
class Real:
    """A module or function, the formula that it should compute, and mistakes in that formula."""

    name: str
    make: Callable[[], Any]
    text: str
    bind: str
    sizes: Mapping[str, int]
    mistakes: tuple[tuple[str, str], ...]  # a right part of the formula's text, and a wrong one
    empty_row: str
    free: str  # sizes that the module is not made for
    single: bool  # whether the module computes in float32

    def __str__(self) -> str:
        return self.name

    @property
    def fixed(self) -> dict[str, int]:
        """The sizes that the module is made for."""
        return {name: size for name, size in self.sizes.items() if name not in self.free.split()}

    def plant(self, mistake: tuple[str, str]) -> str:
        """The formula's text with a mistake in it."""
        right, wrong = mistake
        assert self.text.count(right) == 1, f"{self.name}: {right!r} is not there once"
        return self.text.replace(right, wrong)


def load_reals() -> tuple[Real, ...]:
    """Load all modules; making one without its library installed raises an ImportError."""
    words = {"nn": nn, "DOUBLE": torch.float64, **globals()}
    found = []
    for section in read_sections(Path(__file__).with_suffix(".txt")):
        entries = section.entries
        made = Real(
            section.title,
            partial(eval, entries["make"], words),
            section.text,
            entries["bind"],
            {name: int(size) for name, size in read_binds(entries["sizes"])},
            tuple(re.findall("^(.*) ->(?: (.*))?$", entries["not"], re.MULTILINE)),
            entries.get("empty row", "nan"),
            entries.get("free", "B S"),
            "single" in entries,
        )
        found.append(made)
    return tuple(found)


def call(code: Any, bind: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The tensors that the code returns for the formula's tensors and sizes in `values`."""
    names = {**values, "cat": torch.cat}
    given = {name: eval(source, {}, names) for name, source in read_binds(bind)}
    if not isinstance(code, torch.nn.Module):
        return flatten(code(**given))
    owned = dict(code.named_parameters())
    parameters = {name: value for name, value in given.items() if name in owned}
    assert set(parameters) == set(owned), f"not bound: {sorted(set(owned) - set(parameters))}"
    arguments = {name: value for name, value in given.items() if name not in owned}
    return flatten(torch.func.functional_call(code, parameters, (), arguments))


def flatten(result: Any) -> tuple[Any, ...]:
    """The tensors and numbers of a result, in order."""
    if isinstance(result, (tuple, list)):
        return tuple(each for part in result for each in flatten(part))
    return (result,)


class MaskedBert(nn.Module):
    """BERT's layer under the mask that the model makes: the least float at padded keys."""

    def __init__(self) -> None:
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertLayer

        super().__init__()
        self.config = BertConfig(
            hidden_size=12, num_attention_heads=3, intermediate_size=7, attn_implementation="eager"
        )
        self.inner = BertLayer(self.config).double().eval()

    def forward(self, x: Any, keep: Any) -> Any:
        from transformers.masking_utils import create_bidirectional_mask

        return self.inner(x, create_bidirectional_mask(self.config, x, keep))


class CausalGPT2(nn.Module):
    """GPT-2's attention under the causal mask that the model makes: the least float ahead."""

    def __init__(self) -> None:
        from transformers import GPT2Config
        from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

        super().__init__()
        self.config = GPT2Config(n_embd=12, n_head=3, n_inner=7, attn_implementation="eager")
        self.inner = GPT2Attention(self.config).double().eval()

    def forward(self, x: Any) -> Any:
        from transformers.masking_utils import create_causal_mask

        return self.inner(x, attention_mask=create_causal_mask(self.config, x, None, None))


class CausalLlama(nn.Module):
    """Llama's attention under the causal mask that the model makes."""

    def __init__(self) -> None:
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaAttention

        super().__init__()
        heads = dict(num_attention_heads=6, num_key_value_heads=3, head_dim=8)
        self.config = LlamaConfig(hidden_size=12, **heads, attn_implementation="eager")
        self.inner = LlamaAttention(self.config, layer_idx=0).double().eval()

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        from transformers.masking_utils import create_causal_mask

        mask = create_causal_mask(self.config, x, None, None)
        return self.inner(x, position_embeddings=(cos, sin), attention_mask=mask)


def make_swin() -> Any:
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinAttention

    config = SwinConfig(attn_implementation="eager")
    return SwinAttention(config, 12, 3, window_size=2).double().eval()


def make_t5_norm() -> Any:
    from transformers.models.t5.modeling_t5 import T5LayerNorm

    return T5LayerNorm(5).double().eval()


def make_attention(**options: Any) -> Any:
    return nn.MultiheadAttention(
        12, 3, dtype=torch.float64, **{"batch_first": True, **options}
    ).eval()


def attend_causal(query: Any, key: Any, value: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, is_causal=True)


def attend_grouped(query: Any, key: Any, value: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, enable_gqa=True)
