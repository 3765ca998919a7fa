"""What exact judges say of files that derive writes."""

from derive import check
from derive.checker.judge import judge_fields
from derive.checker.load import load
from derive.checker.pick import pick_program
from derive.frontend.from_sympy import to_system


def assert_exact(path, formula, *, backward=False, beyond=""):
    """The file is proved, or identical over random fields, or `beyond` them, as the verdict says.

    Where it goes another way for shorter floats its grade says no more than that numbers agree; the
    way that float64 takes is identical none the less.
    """
    verdict = check(f"{path}:{formula.name}", formula, backward=backward)
    assert verdict.same is True, str(verdict)
    if beyond:
        assert verdict.grade == "agrees", str(verdict)
        assert beyond in str(verdict)
    if beyond or verdict.grade in {"proved", "identical"}:
        return
    rounding = {"digits-formula", "digits-code"}  # of equal numbers torch's norms leave 1e-16
    codes = {found.code for found in verdict.findings} - rounding
    assert codes == {"type-branch"}, str(verdict)
    choice = pick_program(load(f"{path}:{formula.name}", formula.name), to_system(formula), {}, {})
    found = judge_fields(choice.program, choice.samples, backward=backward)
    assert found.same is True, f"{found.difference}{found.reason}"
