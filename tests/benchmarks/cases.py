"""At which sizes each formula is timed: those of a model, as far as one thread bears them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WEIGHT = 0.05  # the scale of weights when training starts, so that logits are of order 1


@dataclass(frozen=True)
class Case:
    """A formula, its sizes, and the inputs that are drawn small."""

    name: str
    sizes: Mapping[str, int]
    small: tuple[str, ...] = field(default=())

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


def find_cases(names: tuple[str, ...] = ()) -> tuple[Case, ...]:
    """The cases of these formulas, all without names; KeyError names what has none."""
    for name in names:
        if all(case.name != name for case in CASES):
            raise KeyError(name)
    return tuple(case for case in CASES if not names or case.name in names)
