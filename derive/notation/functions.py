"""Reductions over an index and the elementwise functions that SymPy lacks, as SymPy functions.

A reduction is written `softmax(e, j)`, `mean(e, i, j)`, and with a condition last,
`mean(e, j, m[b, j])`: entries where the condition fails are left out.
"""

from __future__ import annotations

from typing import Any

from sympy import And, Function, Idx, Symbol


class Reduction(Function):  # type: ignore[misc]
    """A function of an expression over one or more of its indices, with an optional condition."""

    is_commutative = (
        True  # SymPy would ask the condition, get no answer, and go on to ask for zeros
    )

    @property
    def body(self) -> Any:
        """The expression that is reduced."""
        return self.args[0]

    @property
    def bound(self) -> tuple[Any, ...]:
        """The indices it runs over."""
        return tuple(a for a in self.args[1:] if isinstance(a, (Idx, Symbol)))

    @property
    def condition(self) -> Any:
        """Which entries take part, all conditions together; `true` where none was given."""
        rest = [a for a in self.args[1:] if not isinstance(a, (Idx, Symbol))]
        return And(*rest)


class softmax(Reduction):  # noqa: N801 - functions are written in lower case
    """`softmax(e, j)` = exp(e) / Sum(exp(e), j); keeps j. A row with nothing left in it is nan."""


class log_softmax(Reduction):  # noqa: N801
    """`log_softmax(e, j)` = e - log(Sum(exp(e), j)); keeps j."""


class cumsum(Reduction):  # noqa: N801
    """`cumsum(e, j)`: the sum of the entries up to and with j; keeps j."""


class logsumexp(Reduction):  # noqa: N801
    """`logsumexp(e, j)` = log(Sum(exp(e), j))."""


class mean(Reduction):  # noqa: N801
    """`mean(e, j)`: the sum over j, over the number of entries."""


class var(Reduction):  # noqa: N801
    """`var(e, j)`: the mean square deviation from the mean (divides by the number of entries)."""


class sample_var(Reduction):  # noqa: N801
    """`sample_var(e, j)`: the variance that divides by one less than the number of entries."""


class amax(Reduction):  # noqa: N801
    """`amax(e, j)`: the largest entry; -oo where there is none."""


class amin(Reduction):  # noqa: N801
    """`amin(e, j)`: the smallest entry; oo where there is none."""


class argmax(Reduction):  # noqa: N801
    """`argmax(e, j)`: the place of the largest entry, the first of several."""


REDUCTIONS: dict[str, type[Reduction]] = {
    "mean": mean,
    "var": var,
    "sample_var": sample_var,
    "max": amax,
    "min": amin,
    "logsumexp": logsumexp,
    "argmax": argmax,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "cumsum": cumsum,
}


class sigmoid(Function):  # type: ignore[misc] # noqa: N801
    """1 / (1 + exp(-x))."""


class relu(Function):  # type: ignore[misc] # noqa: N801
    """max(x, 0)."""


class leaky_relu(Function):  # type: ignore[misc] # noqa: N801
    """x where x > 0, else slope * x: `leaky_relu(x, slope)`, or 1/100 in `leaky_relu(x)`."""


class elu(Function):  # type: ignore[misc] # noqa: N801
    """x where x > 0, else exp(x) - 1."""


class gelu(Function):  # type: ignore[misc] # noqa: N801
    """x * (1 + erf(x / sqrt(2))) / 2."""


class silu(Function):  # type: ignore[misc] # noqa: N801
    """x * sigmoid(x)."""


class softplus(Function):  # type: ignore[misc] # noqa: N801
    """log(1 + exp(x))."""


class clip(Function):  # type: ignore[misc] # noqa: N801
    """`clip(x, low, high)`: x kept between two bounds."""


FUNCTIONS: dict[str, type[Function]] = {
    "sigmoid": sigmoid,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "gelu": gelu,
    "silu": silu,
    "softplus": softplus,
    "clip": clip,
}
