"""Exact checks of generated files."""

from derive import check
from derive.checker.judge import judge_fields
from derive.checker.load import load
from derive.checker.pick import pick_program
from derive.frontend.from_sympy import to_system


def assert_exact(path, formula, *, backward=False, beyond=""):
    """Assert that a generated file is proved or identical to its formula over random fields.

    `beyond` is the reason in the verdict where fields do not apply: then numbers have to agree. A
    file with a branch for narrower floats gets the grade "agrees" too; its float64 branch is then
    compared over fields.
    """
    verdict = check(f"{path}:{formula.name}", formula, backward=backward)
    assert verdict.same is True, str(verdict)
    if beyond:
        assert verdict.grade == "agrees", str(verdict)
        assert beyond in str(verdict)
    if beyond or verdict.grade in {"proved", "identical"}:
        return
    rounding = {
        "digits-formula",
        "digits-code",
    }  # torch's norm of a difference of equal numbers is up to 1e-16
    codes = {found.code for found in verdict.findings} - rounding
    assert codes == {"type-branch"}, str(verdict)
    choice = pick_program(load(f"{path}:{formula.name}", formula.name), to_system(formula), {}, {})
    found = judge_fields(choice.program, choice.samples, backward=backward)
    assert found.same is True, f"{found.difference}{found.reason}"
