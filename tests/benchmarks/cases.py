"""At which sizes each formula is timed: those of a model, as far as one thread bears them.

The library's formulas are listed here. A file of `corpus/*.md` holds others, of one subject, and
under the name of each a sentence with its source, its entries, the formula and the code by hand:

    ## its_name

    What it is (Author year).

        sizes: N=512, D=64                  at which a good implementation takes 1 to 100 ms
        small: W, V                         inputs drawn as weights are; may be missing
        empty row: zeros                    what the formula says of rows with nothing left

with the formula between ```formula marks and, between ```python marks, one function that takes its
arguments by name and finds `torch`, `math` and, as `F`, `torch.nn.functional`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from derive import Formula, parse
from derive.formulas import find_formula
from tests.benchmarks.by_hand import load_by_hand

CORPUS = Path(__file__).resolve().parent / "corpus"
CASE = re.compile(
    r"^## (?P<name>\w+)\n\n(?P<story>\S.*?)\n\n(?P<entries>(?:    [a-z ]+: [^\n]+\n)+)\n"
    r"```formula\n(?P<formula>.*?)```\n\n```python\n(?P<code>.*?)```$",
    re.DOTALL | re.MULTILINE,
)
WEIGHT = 0.05  # the scale of weights when training starts, so that logits are of order 1


@dataclass(frozen=True)
class Case:
    """A formula, its sizes, and the inputs that are drawn small; of the corpus also its texts."""

    name: str
    sizes: Mapping[str, int]
    small: tuple[str, ...] = field(default=())
    text: str = ""
    code: str = ""
    empty_row: str = "nan"

    @property
    def formula(self) -> Formula:
        """The formula, of the corpus or of the library."""
        if not self.text:
            return find_formula(self.name)
        return parse(self.text, name=self.name, empty_row=self.empty_row)

    @property
    def by_hand(self) -> Callable[..., Any]:
        """The function by hand, of the corpus or of the library."""
        if not self.code:
            return load_by_hand()[self.name]
        names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "math": math}
        exec(compile(self.code, self.name, "exec"), names)
        return names[self.name]

    @property
    def title(self) -> str:
        """The sizes on one line."""
        return " ".join(f"{size}={number}" for size, number in self.sizes.items())


_HEADS = ("W_q", "W_k", "W_v", "W_O")

CASES = (
    # attention
    Case("relative_attention", dict(B=8, S=256, H=8, D=64), ("W_Q", "W_K", "W_V")),
    Case("relative_attention", dict(B=10, S=20, H=30, D=40), ("W_Q", "W_K", "W_V")),
    Case("self_attention", dict(N=512, D=512, C=64, E=64), ("W_Q", "W_K", "W_V")),
    Case("masked_attention", dict(B=4, H=8, N=512, M=512, C=64, E=64)),
    Case("multi_head_attention", dict(B=4, N=512, M=512, D=512, H=8, C=64, E=64), _HEADS),
    Case("masked_multi_head_attention", dict(B=4, N=512, M=512, D=512, H=8, C=64, E=64), _HEADS),
    Case("token_attention", dict(B=4, S=512, E=512, H=8, D=64), ("W_q", "W_k", "W_v", "W_o")),
    Case("causal_attention", dict(B=4, H=8, N=512, D=64)),
    Case("head_projection", dict(B=4, S=512, T=512, N=8, D=64), ("w",)),
    Case("head_projection_merged", dict(B=4, S=512, T=512, N=8, D=64), ("w",)),
    Case("linear_attention", dict(B=4, H=8, N=2048, D=64, E=64)),
    Case(
        "talking_heads_attention",
        dict(B=2, N=512, M=512, H=8, L=8, G=8, D=64, E=64),
        ("P_l", "P_w"),
    ),
    Case("luong_dot_attention", dict(B=32, T=32, S=64, D=512), ("s",)),
    Case("luong_attention", dict(B=32, T=32, S=64, D=512, E=512), ("s", "W_a")),
    Case("luong_concat_attention", dict(B=16, T=32, S=64, D=512, E=512, A=512), ("W_s", "W_h")),
    Case("bahdanau_attention", dict(B=32, T=64, D=512, E=1024, A=512), ("W_a", "U_a")),
    Case("relative_key_attention", dict(B=8, H=8, N=256, M=256, D=64)),
    Case("transformer_xl_attention", dict(B=8, H=8, S=256, D=64)),
    Case("causal_linear_attention", dict(B=4, H=8, N=2048, D=16, E=16)),
    # layers and norms
    Case("linear", dict(B=512, I=512, O=512), ("W",)),
    Case("bilinear", dict(B=512, I=64, J=64, O=64), ("W",)),
    Case("biaffine", dict(B=16, N=64, D=256, R=40), ("U", "W_dep", "W_head")),
    Case("swiglu", dict(B=4, S=512, D=512, F=1376), ("W", "V", "W_2")),
    Case("soft_mixture", dict(B=256, D=256, E=8, O=256), ("W_g", "W_e")),
    Case("lora", dict(N=512, I=1024, O=1024, R=8), ("W_0", "A", "B")),
    Case("tucker", dict(B=128, I=512, J=512, O=512, P=64, Q=64, R=64), ("G", "U", "V", "W")),
    Case("cp_bilinear", dict(B=128, I=512, J=512, O=512, R=256), ("U", "V", "W")),
    Case("matrix_chain", dict(K=1000, L=10, M=1000, N=2, P=1000, Q=500)),
    Case("hypernetwork_linear", dict(B=128, I=256, K=16, O=256), ("W", "b")),
    Case("layer_norm", dict(B=8, S=512, D=512)),
    Case("rms_norm", dict(B=8, S=512, D=512)),
    Case("batched_covariance", dict(B=16, N=1024, D=64)),
    # distances, losses, graphs
    Case("squared_distances", dict(N=1024, M=1024, D=64)),
    Case("gaussian_kernel", dict(N=1024, M=1024, D=64), ("x", "y")),
    Case("cosine_matrix", dict(N=1024, M=1024, D=128)),
    Case("mahalanobis", dict(N=4096, D=128), ("P",)),
    Case("infonce", dict(N=512, D=128), ("q", "k")),
    Case("kl_of_logits", dict(B=256, C=1000)),
    Case("mean_squared_error", dict(B=256, C=1000)),
    Case("graph_convolution", dict(N=2048, F=256, G=64), ("W",)),
    Case("graph_attention", dict(N=2048, F=256, G=64), ("W",)),
    Case("dirichlet_energy", dict(N=1024, F=64)),
    # science
    Case("triangle_multiplication", dict(N=256, C=128)),
    Case("triangle_attention", dict(N=128, H=4, C=32)),
    Case("pair_bias_attention", dict(S=64, N=256, H=8, C=32)),
    Case("outer_product_mean", dict(S=128, N=128, C=32, E=32, Z=128), ("W",)),
    Case("fock_matrix", dict(N=48)),
    Case("mp2_energy", dict(O=16, V=64)),
    Case("ccd_quadratic", dict(O=12, V=32), ("t",)),
    Case("rotated_stiffness", dict(N=4096)),
)


@cache
def load_corpus() -> tuple[Case, ...]:
    """The cases of the corpus, file by file in the order in which they stand there."""
    return tuple(case for path in sorted(CORPUS.glob("*.md")) for case in _read(path))


def _read(path: Path) -> Iterator[Case]:
    text = path.read_text(encoding="utf-8")
    found = list(CASE.finditer(text))
    told = [case["name"] for case in found]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == told, f"{path.name}: read were {told}"
    for case in found:
        entries = dict(re.findall(r"    ([a-z ]+): (.+)\n", case["entries"]))
        sizes = {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", entries["sizes"])}
        small = tuple(re.findall(r"\w+", entries.get("small", "")))
        empty_row = entries.get("empty row", "nan")
        yield Case(case["name"], sizes, small, case["formula"], case["code"], empty_row)


def find_cases(names: tuple[str, ...] = (), *, corpus: bool = False) -> tuple[Case, ...]:
    """The cases of these formulas, all without names; KeyError names what has none."""
    cases = load_corpus() if corpus else CASES
    for name in names:
        if all(case.name != name for case in cases):
            raise KeyError(name)
    return tuple(case for case in cases if not names or case.name in names)
