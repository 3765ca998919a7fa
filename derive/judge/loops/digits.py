"""Single entries of a formula with as many digits as they take, by the text of `entries`.

Numbers are mpmath's. Decimals are the doubles that code has for them, so that a comparison at a
decimal is decided as code decides it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from derive.errors import DeriveError
from derive.ir.functions import FUNCTIONS
from derive.judge.loops import numbers
from derive.judge.loops.entries import (
    Entries,
    StepsOverError,
    make_entry_namespace,
    open_entries,
    write_entries,
)
from derive.judge.loops.names import read_names
from derive.judge.loops.numbers import INF, NAN, Value
from derive.judge.loops.runtime import (
    OutsideError,
    compile_text,
    define_functions,
    make_moments,
    make_rows,
)
from derive.judge.loops.values import bind
from derive.notation.formula import check_formula

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.notation.formula import Formula

DIGITS = (300, 1500)  # the second where the first leaves the small part of a sum out
MOST_STEPS = 20_000  # of the loops, for one entry
_MOST_EXPONENT = 1e7  # beyond it an exponential counts as infinite or 0


def prepare_entry(formula: Formula, name: str) -> Callable[..., float | None]:
    """What gives an element of a result for inputs and a place, rounded once.

    It gives inf or nan where the formula does, and None where digits or steps run out; `most` says
    how often the digits may become more.
    """
    names = read_names(check_formula(formula))
    code = compile_text(write_entries(formula, names), exact=False)

    def compute(
        tensors: Mapping[str, Any], place: tuple[int, ...], arithmetic: _Digits
    ) -> float | None:
        values = bind(formula, names, tensors, False, arithmetic.open)
        namespace = make_entry_namespace(MOST_STEPS) | arithmetic.make_namespace()
        define_functions(namespace, exact=False)
        namespace |= {names.python[key]: arithmetic.convert(v) for key, v in values.items()}
        try:
            exec(code, namespace)  # our own text
            found = namespace[names.python[name]]
            return float(found[place if len(place) > 1 else place[0]] if place else found)
        except (OutsideError, StepsOverError, ArithmeticError, RecursionError):
            return None
        except (DeriveError, ValueError):
            return None

    def evaluate(
        tensors: Mapping[str, Any], place: tuple[int, ...], most: int = len(DIGITS)
    ) -> float | None:
        for digits in DIGITS[:most]:
            arithmetic = _Digits(digits)
            rounded = compute(tensors, place, arithmetic)
            if rounded is None or not arithmetic.strained:
                return rounded
            if rounded == compute(tensors, place, _Digits(digits, is_bounded=True)):
                return rounded  # however small it is, what is lost has no part in it
        return None

    return evaluate


class _Digits:
    """Arithmetic with so many digits; `strained` once a part was too small to be kept.

    When it `is_bounded`, such a part is only so small that it is kept.
    """

    def __init__(self, digits: int, is_bounded: bool = False) -> None:
        import mpmath

        self.context = mpmath.mp.clone()
        self.context.dps = digits
        self.is_bounded = is_bounded
        self.strained = False

    def convert(self, value: Any) -> Any:
        """A float as a number of many digits; all else is what it is."""
        return self.context.mpf(value) if isinstance(value, float) else value

    def open(
        self, shape: tuple[int, ...], elements: Sequence[Any], convert: Callable[[Any], Value]
    ) -> Entries:
        """A given tensor, its elements converted when they are read."""
        return open_entries(shape, elements, lambda element: self.convert(convert(element)))

    def make_namespace(self) -> dict[str, Any]:
        """What replaces the functions on floats."""
        mp, exp = self.context, self.exp

        def elementwise(name: str) -> Callable[..., Value]:
            return lambda *values: self._real(getattr(mp, name)(*values))

        names = [name for name, row in FUNCTIONS.items() if row.value == name]
        return {
            "divide_": self.divide,
            "power_": self.power,
            "sqrt": lambda value: self.power(value, 0.5),
            "exp": exp,
            "log": self.log,
            **{name: elementwise(name) for name in names},
            "floor": self._round(mp.floor),
            "ceiling": self._round(mp.ceil),
            "pi": mp.pi,
            **make_rows(exp, self.log, self.divide),
            **make_moments(self.divide),
        }

    def exp(self, value: Value) -> Value:
        """The exponential; strained where 1 beside it would be lost, or it beside 1."""
        if value != value:
            return NAN
        most = self.context.dps
        if 2.3 * most < abs(value) < INF:
            self.strained = True
            if self.is_bounded:
                value = most if value > 0 else -most
        if abs(value) > _MOST_EXPONENT:
            return INF if value > 0 else self.context.mpf(0)
        return self.context.exp(value)

    def log(self, value: Value) -> Value:
        """The natural logarithm; -inf at 0, nan below."""
        if value == 0:
            return -INF
        return self.context.log(value) if value > 0 else NAN

    def divide(self, over: Value, under: Value) -> Value:
        """`over / under`, as IEEE has it at 0; integers that divide stay integers."""
        if under == 0 or over != over or under != under:
            return numbers.divide(over, under)
        if isinstance(over, int) and isinstance(under, int) and over % under == 0:
            return over // under
        return self.context.mpf(over) / under

    def power(self, base: Value, exponent: Value) -> Value:
        """`base ** exponent` as torch.pow has it."""
        if base == 0 and exponent < 0:
            return self.divide(1, self.power(base, -exponent))
        return self._real(self.context.mpf(base) ** exponent)

    def _real(self, value: Value) -> Value:
        return NAN if isinstance(value, self.context.mpc) else value

    def _round(self, function: Callable[[Value], Value]) -> Callable[[Value], Value]:
        def rounded(value: Value) -> Value:
            return int(function(value)) if math.isfinite(value) else value

        return rounded
