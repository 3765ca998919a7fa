"""For the tests of other projects: code is pinned to its formula, `assert_computes`.

In a test of yours, `from derive.testing import assert_computes`, and then
`assert_computes(attend, "masked_attention")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.checker.verdict import Verdict
    from derive.notation.formula import Formula


def assert_computes(  # noqa: PLR0913, PLR0917 - those of `check`, and the grade
    function: Any,
    formula: Formula | str,
    bind: str | Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    backward: bool = False,
    seconds: float = 30,
    at_least: str = "agrees",
) -> Verdict:
    """Raise AssertionError with the whole report unless the code computes the formula.

    `at_least` is the grade that is asked for: "agrees", "identical" or "proved"; the other
    arguments are those of `derive.check`. The verdict is returned for further assertions.
    """
    from derive.checker import check
    from derive.checker.verdict import GRADES

    __tracebackhide__ = True  # pytest shows the caller's line
    same = GRADES[: GRADES.index("different")]  # the strongest first
    if at_least not in same:
        raise refuse(
            "grade-unknown", f"there is no grade {at_least}", help=f"ask for {', '.join(same)}"
        )
    verdict = check(function, formula, bind, sizes, backward, seconds)
    if not verdict.same:
        raise AssertionError(str(verdict))
    if same.index(verdict.grade) > same.index(at_least):
        raise AssertionError(f"{at_least} was asked for\n{verdict}")
    return verdict
