"""Code of a few lines against a formula, for tests that say both on one row."""

from derive import check, parse
from derive.frontend.system import to_system


def write(body, text):
    """A file with a function of the formula's inputs; a body of one expression is its value."""
    names = ", ".join(entry.name for entry in to_system(parse(text)).inputs)
    *lines, last = body.split("\n")
    is_value = not last.lstrip().startswith(("return", "raise"))
    lines = [*lines, f"return {last}" if is_value and last == last.lstrip() else last]
    rows = "".join(f"    {line}\n" for line in lines)
    return f"import math\nimport torch\nimport torch.nn.functional as F\ndef f({names}):\n{rows}"


def judge(body, text, **told):
    """The verdict on a function of the formula's inputs."""
    return check(write(body, text), parse(text), **told)


def find_codes(verdict):
    """The codes of the findings."""
    return {finding.code for finding in verdict.findings}
