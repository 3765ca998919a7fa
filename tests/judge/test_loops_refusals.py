"""What the loops refuse, with the whole message."""

from __future__ import annotations

from typing import Any

import pytest

from derive.errors import DeriveError
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops

Arrays = dict[str, Any]


def refusal(text: str, values: Arrays) -> str:
    with pytest.raises(DeriveError) as caught:
        evaluate_loops(parse(text), values)
    return str(caught.value)


REFUSALS: dict[str, tuple[str, Arrays, str]] = {
    "outside above": (
        "x[N]; index i < N\ny[i] = x[i + 1]",
        {"x": [1.0, 2.0]},
        "reads-outside: x[2] lies outside of x: place 0 is 2, and its extent is 2\n"
        "  at i = 1\n"
        "  help: guard it with a condition, x[..] * [0 <= .. < 2]",
    ),
    "outside below, in a sum": (
        "A[N, M]; index i < N; index j < M\ny[i] = sum[j](A[i, j - 1])",
        {"A": [[1.0, 2.0], [3.0, 4.0]]},
        "reads-outside: A[0, -1] lies outside of A: place 1 is -1, and its extent is 2\n"
        "  at i = 0, j = 0\n"
        "  help: guard it with a condition, A[..] * [0 <= .. < 2]",
    ),
    "outside by a table": (
        "int t[N] < V; E[V]\ny[i] = E[t[i]]",
        {"t": [0, 7], "E": [1.0, 2.0]},
        "reads-outside: E[7] lies outside of E: place 0 is 7, and its extent is 2\n"
        "  at i = 1\n"
        "  help: guard it with a condition, E[..] * [0 <= .. < 2]",
    ),
    "missing": (
        "A[N, M]; x[M]\ny[i] = sum[j](A[i, j] * x[j])",
        {"x": [1.0]},
        "tensor-missing: tensor A is not given\n  its shape is [N, M]",
    ),
    "unknown": (
        "alpha[N]\ny[i] = alpha[i]",
        {"alpha": [1.0], "alfa": [1.0]},
        "argument-unknown: alfa is no name of the formula\n"
        "  the arguments are alpha, N\n"
        "  help: did you mean alpha?",
    ),
    "rank": (
        "A[N, M]\ny[i] = sum[j](A[i, j])",
        {"A": [1.0, 2.0]},
        "rank-differs: A has 2 indices, [N, M], and what was given has shape (2,)",
    ),
    "extent": (
        "A[N, M]; x[M]\ny[i] = sum[j](A[i, j] * x[j])",
        {"A": [[1.0, 2.0]], "x": [1.0, 2.0, 3.0]},
        "extent-differs: place 0 of x has extent M = 2, and 3 was given\n"
        "  M = 2, from place 1 of A",
    ),
    "extent not solvable": (
        "R[2*S - 1]; index i < S\ny[i] = R[i]",
        {"R": [1.0, 2.0]},
        "extent-differs: place 0 of R has extent 2*S - 1, and 2 was given\n"
        "  no size S makes that true",
    ),
    "size untold": (
        "x[N]; size W; index i < N\ny[i] = x[i] * W",
        {"x": [1.0]},
        "size-unknown: no shape tells the size W\n  help: pass it as a keyword, W=...",
    ),
    "scalar": (
        "x[N]; scalar tau\ny[i] = x[i] / tau",
        {"x": [1.0]},
        "scalar-missing: scalar tau is not given and has no default\n  help: pass tau=...",
    ),
    "ragged": (
        "A[N, M]\ny[i] = sum[j](A[i, j])",
        {"A": [[1.0], [1.0, 2.0]]},
        "tensor-ragged: the rows of A differ in length",
    ),
    "no truth value": (
        "x[N]; bool m[N]\ny[i] = x[i] * [m[i]]",
        {"x": [1.0], "m": [-1e9]},
        "tensor-not-boolean: m holds truth values, not -1000000000.0",
    ),
    "an integer given as a float": (
        "int t[N] < V; E[V]\ny[i] = E[t[i]]",
        {"t": [0.0], "E": [1.0]},
        "tensor-not-whole: t holds integers, not 0.0\n  help: give it as integers: t.long()",
    ),
    "an integer given as a truth value": (
        "int t[N] < V; E[V]\ny[i] = E[t[i]]",
        {"t": [False], "E": [1.0]},
        "tensor-not-whole: t holds integers, not False\n  help: give it as integers: t.long()",
    ),
    "no integer": (
        "int t[N] < V; E[V]\ny[i] = E[t[i]]",
        {"t": [0.5], "E": [1.0]},
        "tensor-not-whole: t holds integers, not 0.5\n  help: give it as integers: t.long()",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name: str) -> None:
    text, values, message = REFUSALS[name]
    assert refusal(text, values) == message
