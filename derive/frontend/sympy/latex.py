"""A formula as LaTeX: sums over their index, indices without their ranges, factors as written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sympy import Idx
from sympy.printing.latex import LatexPrinter

from derive.ir.functions import ROWS
from derive.notation.functions import REDUCTIONS

if TYPE_CHECKING:
    from derive.notation.formula import Formula

_NAMES = {row.sympy: row.latex for row in ROWS.values() if row.sympy}


class _Printer(LatexPrinter):  # type: ignore[misc]
    """SymPy's printer, for index notation."""

    def __init__(self) -> None:
        super().__init__({"order": "none"})

    def _print_Idx(self, index: Idx) -> str:  # noqa: N802 - SymPy's
        return str(self._print(index.label))

    def _print_Indexed(self, access: Any) -> str:  # noqa: N802 - SymPy's
        base = self._print(access.base.label)
        places = ",".join(self._print(place) for place in access.indices)
        return f"{{{base}}}_{{{places}}}" if "_" in base else f"{base}_{{{places}}}"

    def _print_Sum(self, total: Any) -> str:  # noqa: N802 - SymPy's
        return self._print_over(r"\sum", total.function, total.limits)

    def _print_Product(self, total: Any) -> str:  # noqa: N802 - SymPy's
        return self._print_over(r"\prod", total.function, total.limits)

    def _print_over(self, sign: str, body: Any, limits: Any) -> str:
        whole = all(_is_whole(limit) for limit in limits)
        if whole:
            under = ",".join(self._print(limit[0]) for limit in limits)
            return f"{sign}_{{{under}}} {self.parenthesize(body, 45)}"
        signs = [
            f"{sign}_{{{self._print(index)}={self._print(low)}}}^{{{self._print(high)}}}"
            for index, low, high in reversed(limits)
        ]
        return f"{' '.join(signs)} {self.parenthesize(body, 45)}"

    def print_reduction(self, reduction: Any) -> str:
        """softmax, mean, max and their like, over the indices below."""
        body, *indices = reduction.args
        name = type(reduction).__name__
        shown = _NAMES.get(name, rf"\operatorname{{{name.replace('_', ' ')}}}")
        under = ",\\ ".join(self._print(index) for index in indices)
        return rf"{shown}_{{{under}}} \left( {self._print(body)} \right)"


for _class in REDUCTIONS.values():  # SymPy finds a function's method by its own name alone
    setattr(_Printer, f"_print_{_class.__name__}", _Printer.print_reduction)


def _is_whole(limit: Any) -> bool:
    """Does an index run over its whole range?"""
    index, *bounds = limit
    if not isinstance(index, Idx) or index.lower is None:
        return not bounds
    return tuple(bounds) in {(), (index.lower, index.upper)}


def to_latex(formula: Formula) -> tuple[str, ...]:
    """The equations as LaTeX, one each, for an `align` or a `$$` of their own."""
    return tuple(str(_Printer().doprint(equation)) for equation in formula.equations)
