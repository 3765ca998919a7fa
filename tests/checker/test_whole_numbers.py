"""Numbers are judged beyond what their types hold."""

import pytest

from derive import check

PREFIX = "x[N]; index i < N; y[i] = sum[j, j<=i](x[j])"
QUOTIENT = "x[N]; index i < N; index j < N; y[i] = x[i]/prod[j, j<=i](j+1)"
COUNT = "bool m[N, D]; y[n] = sum[d]([m[n,d]])"


def add_up_in(dtype):
    return (
        f"i = torch.arange(x.shape[0], dtype=torch.{dtype})\n"
        "    return (i[None] <= i[:, None]).to(x.dtype) @ x"
    )


LONG = {
    "positions in bfloat16": (PREFIX, add_up_in("bfloat16")),
    "positions in float16": (PREFIX, add_up_in("float16")),
    "factorials in int64": (QUOTIENT, "return x / torch.arange(1, len(x) + 1).cumprod(0)"),
    "powers in int64": (
        "x[N]; y = sum[i](x[i]*2**i)",
        "return (x * 2 ** torch.arange(len(x))).sum()",
    ),
    "powers of positions": (
        "x[N]; index i < N; y[i] = x[i]*i**4",
        "return x * torch.arange(len(x), dtype=torch.int32) ** 4",
    ),
    "counts in int16": (COUNT, "return x.short().sum(-1, dtype=torch.int16)"),
    "integers in float32": (
        "int t, s[N]; y[n] = where(t[n] == s[n], 1, 0)",
        "return (x.float() == s.float()).double()",
    ),
    "whole numbers out of real ones": (
        "x[N]; y[n] = floor(x[n])",
        "return x.floor().int().to(x.dtype)",
    ),
    "halves": ("x[N]; y[n] = floor(10*x[n] + 0.5)/10", "return (10 * x).round() / 10"),
}
HELD = {
    "positions": (PREFIX, add_up_in("int64")),
    "positions in float32": (PREFIX, add_up_in("float32")),
    "signs": ("x[N]; index i < N; y[i] = x[i]*(-1)**i", "return x * (-1) ** torch.arange(len(x))"),
    "counts": (COUNT, "return x.int().sum(-1)"),
    "half up": ("x[N]; y[n] = floor(x[n] + 0.5)", "return (x + 0.5).floor()"),
}


@pytest.mark.parametrize("name", [*LONG, *HELD])
def test_numbers_are_judged_beyond_what_their_types_hold(name):
    text, body = {**LONG, **HELD}[name]
    arguments = "x, s" if "t, s" in text else "x"
    code = f"import torch\ndef f({arguments}):\n    {body}\n"
    binds = {"x": "t"} if "t, s" in text else {"x": "m"} if text == COUNT else None
    verdict = check(code, text, binds)
    assert verdict.grade == ("proved" if name in HELD else "different"), str(verdict)


@pytest.mark.parametrize(("factor", "finding"), [("0.5", "unstable"), ("1.0", "")])
def test_factors_that_leave_the_range_at_a_long_size_are_named(factor, finding):
    text = f"x[N]; index i < N; y[i] = sum[j, j<=i](x[j]*{factor}**(i-j))"
    code = (
        "import torch\ndef f(x):\n"
        f"    c = {factor} ** torch.arange(len(x), dtype=x.dtype)\n"
        "    return c * torch.cumsum(x / c, 0)\n"
    )
    verdict = check(code, text)
    assert verdict.same
    assert [each.code for each in verdict.findings] == [finding] * bool(finding)
