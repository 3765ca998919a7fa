"""Wrong code beside its formula, and what an explanation must say of it; and right code."""

from dataclasses import dataclass
from pathlib import Path

RELATIVE = """
X[B, S, H, D]; W_Q, W_K, W_V[H, D, D]; A_K, A_V[S, S, H, D]
q[b,i,h,e] = sum[d](X[b,i,h,d] * W_Q[h,d,e])
k[b,j,h,e] = sum[d](X[b,j,h,d] * W_K[h,d,e])
v[b,j,h,e] = sum[d](X[b,j,h,d] * W_V[h,d,e])
alpha[b,i,j,h] = softmax[j](sum[e](q[b,i,h,e] * (k[b,j,h,e] + A_K[i,j,h,e])) / sqrt(D))
z[b,i,h,e] = sum[j](alpha[b,i,j,h] * (v[b,j,h,e] + A_V[i,j,h,e]))
"""
RELATIVE_CODE = """q = torch.einsum('bihd,hde->bihe', X, W_Q)
k = torch.einsum('bjhd,hde->bjhe', X, W_K)
v = torch.einsum('bjhd,hde->bjhe', X, W_V)
scores = torch.einsum('bihe,bjhe->bhij', q, k) + torch.einsum('bihe,ijhe->bhij', q, A_K)
alpha = (scores / math.sqrt(D)).softmax(-1)
z = torch.einsum('bhij,bjhe->bihe', alpha, v)
return z + torch.einsum('bhij,ijhe->bihe', alpha, A_V)"""

HEADS = """
x[B, S, E]; W_q, W_k, W_v[E, H*D]; W_o[H*D, E]
size H
index h < H
index d < D
q[b,h,i,d] = sum[e](x[b,i,e] * W_q[e,h*D + d])
k[b,h,j,d] = sum[e](x[b,j,e] * W_k[e,h*D + d])
v[b,h,j,d] = sum[e](x[b,j,e] * W_v[e,h*D + d])
p[b,h,i,j] = softmax[j, j <= i](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
merged[b,i,h*D + d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
y[b,i,e] = sum[c](merged[b,i,c] * W_o[c,e])
"""
HEADS_CODE = """split = lambda t: t.view(B, S, H, -1).transpose(1, 2)
q, k, v = split(x @ W_q), split(x @ W_k), split(x @ W_v)
scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
keep = torch.ones(S, S, dtype=torch.bool).tril()
p = scores.masked_fill(~keep, float('-inf')).softmax(-1)
out = (p @ v).transpose(1, 2).reshape(B, S, -1)
return out @ W_o"""

MASKED = """
q[B, N, D]; k[B, M, D]; v[B, M, E]; bool mask[B, N, M]
p[b,i,j] = softmax[j, mask[b,i,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
z[b,i,e] = sum[j](p[b,i,j] * v[b,j,e])
return z, p
"""
MASKED_CODE = """e = q @ k.mT / D ** 0.5
e = e.masked_fill(~mask, float('-inf'))
p = e.softmax(-1)
return p @ v, p"""

NORM = """
x[B, T, D]; g, c[D]; scalar eps = 0.1
m[b,t] = mean[d](x[b,t,d])
s[b,t] = mean[d]((x[b,t,d] - m[b,t])**2)
y[b,t,d] = (x[b,t,d] - m[b,t]) / sqrt(s[b,t] + eps) * g[d] + c[d]
"""
NORM_CODE = """m = x.mean(-1, keepdim=True)
s = ((x - m) ** 2).mean(-1, keepdim=True)
y = (x - m) / (s + eps).sqrt()
return y * g + c"""

GROUPED = """
q[B, K*G, N, D]; k, v[B, K, N, D]; size G = 2
index h < K*G
p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h // G,j,d]) / sqrt(D))
z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h // G,j,d])
"""
GROUPED_CODE = """k = k.repeat_interleave(G, 1)
v = v.repeat_interleave(G, 1)
p = (q @ k.mT * D ** -0.5).softmax(-1)
return p @ v"""

GATED = """
x[N, D]; W_g, W_u[D, M]; W_d[M, D]
g[n,m] = sum[d](x[n,d] * W_g[d,m])
u[n,m] = sum[d](x[n,d] * W_u[d,m])
y[n,e] = sum[m](silu(g[n,m]) * u[n,m] * W_d[m,e]) + x[n,e]
"""
GATED_CODE = """g = x @ W_g
u = x @ W_u
h = F.silu(g) * u
return h @ W_d + x"""

RELATION = """
x[B, N, D]; r[2*N - 1, D]; index i, j < N
s[b,i,j] = sum[d](x[b,i,d] * r[j - i + N - 1,d])
"""
RELATION_CODE = """at = torch.arange(N)
place = at[None, :] - at[:, None] + N - 1
return torch.einsum('bid,ijd->bij', x, r[place])"""

LOGARITHM = """
x[N, C]
l[n,c] = log_softmax[c](x[n,c])
"""
LOGARITHM_CODE = "return x.log_softmax(-1)"

BATCHED = """
a[B, N, M]; b[B, M, K]; c[B, N, K]
y[s,i,k] = sum[j](a[s,i,j] * b[s,j,k]) + 2 * c[s,i,k]
"""
BATCHED_CODE = """y = torch.einsum('sij,sjk->sik', a, b)
return torch.add(y, c, alpha=2)"""

EXCHANGED = MASKED.replace("E]", "M]")  # both results have one shape
EXCHANGED_CODE = MASKED_CODE

REPEATED = GROUPED
REPEATED_CODE = GROUPED_CODE.replace("v.repeat_interleave(G, 1)", "v.repeat(1, G, 1, 1)")

RIGHT = {
    "relative attention": (RELATIVE, RELATIVE_CODE),
    "heads": (HEADS, HEADS_CODE),
    "masked": (MASKED, MASKED_CODE),
    "norm": (NORM, NORM_CODE),
    "grouped": (GROUPED, GROUPED_CODE),
    "gated": (GATED, GATED_CODE),
    "relation": (RELATION, RELATION_CODE),
    "logarithm": (LOGARITHM, LOGARITHM_CODE),
    "batched": (BATCHED, BATCHED_CODE),
}


@dataclass(frozen=True)
class Wrong:
    """Wrong code and what has to be said of it."""

    name: str
    formula: str
    code: str
    words: str
    part: str  # of the line at fault


def read_wrong():
    """The wrong codes of explain_wrong.txt."""
    rows = Path(__file__).with_name("explain_wrong.txt").read_text(encoding="utf-8").splitlines()
    return [_read(row) for row in rows if not row.startswith("#")]


def _read(row):
    name, which, old, new, words, part = (each.strip() for each in f"{row} ".split("| "))
    formula, code = globals()[which], globals()[f"{which}_CODE"]
    assert old in code, f"{name}: the code has no {old}"
    return Wrong(name, formula, code.replace(old, new), words, part)
