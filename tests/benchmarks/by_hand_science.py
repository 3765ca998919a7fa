"""Proteins, electronic structure and mechanics as people write them: einsum, a term a line."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def triangle_multiplication(*, a: Tensor, b: Tensor, g: Tensor) -> Tensor:
    """The way of AlphaFold's supplement and its ports: one einsum, then the gate."""
    return g * torch.einsum("ikc,jkc->ijc", a, b)


def triangle_attention(*, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, gate: Tensor) -> Tensor:
    """OpenFold's way: heads first, the bias added in place, matmul."""
    queries, keys, values = (t.transpose(-2, -3) for t in (q, k, v))
    scores = torch.matmul(queries / math.sqrt(q.shape[-1]), keys.transpose(-1, -2))
    scores += bias.permute(2, 0, 1)
    found = torch.matmul(torch.softmax(scores, dim=-1), values)
    return found.transpose(-2, -3) * gate


def pair_bias_attention(
    *, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, bias: Tensor, mask: Tensor
) -> Tensor:
    """OpenFold's way: mask and bias added in place; masked again for rows of padding."""
    queries, keys, values = (t.transpose(-2, -3) for t in (q, k, v))
    kept = mask[:, None, None, :].to(q.dtype)
    scores = torch.matmul(queries / math.sqrt(q.shape[-1]), keys.transpose(-1, -2))
    scores += 1e9 * (kept - 1)
    scores += bias
    weights = torch.softmax(scores, dim=-1) * kept
    return torch.matmul(weights, values).transpose(-2, -3) * gate


def outer_product_mean(*, a: Tensor, b: Tensor, W: Tensor) -> Tensor:
    """OpenFold's way: all outer products, flattened, one linear layer."""
    outer = torch.einsum("sic,sje->ijce", a, b) / len(a)
    return outer.reshape(*outer.shape[:2], -1) @ W.reshape(-1, W.shape[-1])


def fock_matrix(*, h: Tensor, D: Tensor, eri: Tensor) -> Tensor:
    """Psi4NumPy's way: Coulomb and exchange, an einsum each."""
    coulomb = torch.einsum("pqrs,rs->pq", eri, D)
    exchange = torch.einsum("prqs,rs->pq", eri, D)
    return h + coulomb - exchange / 2


def mp2_energy(*, v: Tensor, e_o: Tensor, e_v: Tensor) -> Tensor:
    """Psi4NumPy's way: opposite and same spin, an einsum of three operands each."""
    gaps = e_o.view(-1, 1, 1, 1) - e_v.view(-1, 1, 1) + e_o.view(-1, 1) - e_v
    inverse = 1 / gaps
    opposite = torch.einsum("iajb,iajb,iajb->", v, v, inverse)
    same = torch.einsum("iajb,iajb,iajb->", v - v.swapaxes(1, 3), v, inverse)
    return opposite + same


def ccd_quadratic(*, t: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """The way of tutorials on coupled cluster: an einsum a term."""
    ladder = torch.einsum("abcd,ijcd->ijab", w, t)
    pairs = torch.einsum("klcd,ijcd,klab->ijab", v, t, t)
    holes = torch.einsum("klcd,ikab,jlcd->ijab", v, t, t)
    return v + ladder / 2 + pairs / 4 - holes / 2


def rotated_stiffness(*, C: Tensor, Q: Tensor) -> Tensor:
    """The accepted answer's way: one einsum with four rotations."""
    return torch.einsum("nip,njq,nkr,nls,npqrs->nijkl", Q, Q, Q, Q, C)
