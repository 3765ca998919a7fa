"""Check short code against a formula, both from one row of a table; a multi-head attention."""

import math
from collections.abc import Iterator

import torch
from torch import nn

from derive import check, parse
from derive.frontend.from_sympy import to_system


def write_source(body, text):
    """Return the source of a function of the formula's inputs; it returns a final expression."""
    names = ", ".join(entry.name for entry in to_system(parse(text)).inputs)
    *lines, last = body.split("\n")
    is_value = not last.lstrip().startswith(("return", "raise"))
    lines = [*lines, f"return {last}" if is_value and last == last.lstrip() else last]
    rows = "".join(f"    {line}\n" for line in lines)
    return f"import math\nimport torch\nimport torch.nn.functional as F\ndef f({names}):\n{rows}"


def judge(body, text, **options):
    """Return the verdict on a function of the formula's inputs."""
    return check(write_source(body, text), parse(text), **options)


def read_binds(bind: str) -> Iterator[tuple[str, str]]:
    """Yield the names and sources of `query=Q, key=cat((K, L))`."""
    depth, start = 0, 0
    for place, sign in enumerate(bind + ","):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            name, _, source = bind[start:place].partition("=")
            if name.strip():
                yield name.strip(), source.strip()
            start = place + 1


def find_codes(verdict):
    """The codes of the findings."""
    return {finding.code for finding in verdict.findings}


HEADS = """
x[B, S, E]; W_q, W_k, W_v[E, H*D]; W_o[H*D, E]
size H
index h < H
index d < D
q[b,h,i,d] = sum[e](x[b,i,e] * W_q[e,h*D + d])
k[b,h,j,d] = sum[e](x[b,j,e] * W_k[e,h*D + d])
v[b,h,j,d] = sum[e](x[b,j,e] * W_v[e,h*D + d])
p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
y[b,i,e] = sum[h, d](sum[j](p[b,h,i,j] * v[b,h,j,d]) * W_o[h*D + d,e])
"""


class Heads(nn.Module):
    """An attention of several heads, as people write it."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def split_heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = (
            self.split_heads(self.q_proj(x)),
            self.split_heads(self.k_proj(x)),
            self.split_heads(self.v_proj(x)),
        )
        p = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        return self.out_proj((p @ v).transpose(1, 2).reshape(x.shape))


class ScrambledHeads(Heads):
    """Heads with the axes of heads and positions exchanged."""

    def split_heads(self, t):
        return t.view(t.shape[0], self.heads, t.shape[1], -1)
