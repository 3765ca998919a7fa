"""The linter's rules: each example hurts or is fine, and judgements agree with the libraries."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from derive.frontend.from_einsum import Fault, read_einsum
from derive.linter.calls import find_fault
from derive.linter.lint import lint_bytes
from derive.linter.rule import PRELUDE, Severity
from derive.linter.rules import CALL_RULES, RULES, find_widest

TABLE = (
    Path(__file__)
    .parents[1]
    .joinpath("einsum_strings.txt")
    .read_text(encoding="utf-8")
    .splitlines()
)
STRINGS = [line for line in TABLE if line and not line.startswith("#")]


def lint_text(text):
    """The findings of a text behind the prelude."""
    found = lint_bytes("example.py", (PRELUDE + text + "\n").encode())
    return found.findings


def find_codes(text):
    return [finding.code for finding in lint_text(text)]


def find_grave(text):
    """The codes of findings that a person must look at."""
    return [f.code for f in lint_text(text) if f.severity is not Severity.INFO]


# Every rule carries its examples.

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
def test_the_example_that_hurts_is_found(rule):
    # a coding line counts only as the first of a file
    text = rule.hurts if rule.name == "unreadable-file" else PRELUDE + rule.hurts
    found = lint_bytes("example.py", text.encode()).findings
    assert rule.code in [finding.code for finding in found]
    assert {f.severity for f in found if f.code == rule.code} == {rule.severity}
    assert {f.name for f in found if f.code == rule.code} == {rule.name}


@each_rule
def test_the_example_that_is_fine_is_not_found(rule):
    assert rule.code not in find_codes(rule.fine)


@each_rule
def test_a_rule_says_why(rule):
    assert rule.title.endswith(".")
    assert len(rule.why) > 40
    assert rule.hurts != rule.fine


def test_codes_and_names_are_of_one_rule():
    for part in ("code", "name"):
        values = [getattr(rule, part) for rule in RULES]
        assert len(set(values)) == len(values)
    codes = [rule.code for rule in RULES]
    assert codes == sorted(codes)
    first = {Severity.ERROR: "DE0", Severity.WARNING: "DE1", Severity.INFO: "DE2"}
    assert all(rule.code.startswith(first[rule.severity]) for rule in CALL_RULES)


# What must be found, and what must not.

GRAVE = [
    # the string
    ('torch.einsum("ij->k", A)', ["DE002"]),
    ('torch.einsum("ij->iji", A)', ["DE003"]),
    ('torch.einsum("ij->ik->k", A)', ["DE001"]),
    ('torch.einsum("ij=>j", A)', ["DE001"]),
    ('torch.einsum("i1->i", A)', ["DE001"]),
    ('torch.einsum("ij->i,j", A)', ["DE001"]),
    ('torch.einsum("i..j->ij", A)', ["DE004"]),
    ('torch.einsum("...i...->i", A)', ["DE004"]),
    ('torch.einsum("ij->......", A)', ["DE004"]),
    ('torch.einsum("αβ->βα", A)', ["DE001"]),
    ('oe.contract("αβ->βα", A)', []),
    ('oe.contract("αβ->γ", A)', ["DE002"]),
    ('einsum(A, B, "i j, j k")', ["DE001"]),
    ('einsum(A, B, "i j, j k -> i l")', ["DE002"]),
    ('einsum(A, B, "i (j k), j -> i")', ["DE001"]),
    ('einsum(A, B, "i j, j k -> i i")', ["DE003"]),
    ('einsum(A, B, "batch i, batch j -> batch i j")', []),
    # the operands
    ('torch.einsum("ij,jk->ik", A, B, C)', ["DE005"]),
    ('torch.einsum("ij->ij", A, B)', ["DE005"]),
    ('torch.einsum("ij,jk->ik", *tensors)', []),
    ('torch.einsum("ij,jk->ik", tensors)', []),
    ('torch.einsum("ij,jk->ik", [A, B])', []),
    ('torch.einsum("ij,jk->ik", [A, B, C])', ["DE005"]),
    ('np.einsum("ij,jk->ik", A)', ["DE005"]),
    ('einsum(A, "i j, j k -> i k")', ["DE005"]),
    ('einsum("i j, j k -> i k", A, B)', ["DE001"]),
    ('einsum(A, B, pattern="i j, j k -> i k")', []),
    ('einsum("not told", pattern)', ["DE001"]),
    # indices
    ('torch.einsum("dd,bxcd->bxcd", W, x)', ["DE101"]),
    ('torch.einsum("bii->b", A)', []),
    ('torch.einsum("ii->i", A)', []),
    ('einsum(A, B, "i i, i j -> i j")', ["DE101"]),
    ('torch.einsum("bij,bk->bi", A, x)', ["DE102", "DE102"]),
    ('torch.einsum("bij->b", A)', []),
    ('torch.einsum("ij,kl->", A, B)', []),
    ('torch.einsum("bid,bjd->bij", q, q)', ["DE103"]),
    ('torch.einsum("bid,bjd->bij", self.q, self.q)', ["DE103"]),
    ('torch.einsum("bid,bjd->bij", q[0], q[1])', []),
    ('torch.einsum("bid,bjd->bij", f(q), f(q))', []),
    ('torch.einsum("bid,bid->bi", q, q)', []),
    ('torch.einsum("i,j->ij", x, x)', []),
    ('torch.einsum("lj,bj,li->bi", m, x, m)', []),
    ('torch.einsum("bnd,bne->bde", x, x)', []),
    ('torch.einsum("ij,jk->ik", A, A)', []),
    ('torch.einsum("bid,jd->bij", x, x)', ["DE103"]),
    ('np.einsum("ki,jk", A, B)', ["DE104"]),
    ('np.einsum("ij,j", A, x)', []),
    ('np.einsum("ii", A)', []),
    ('torch.einsum("...ij,jk->ik", A, B)', ["DE105"]),
    ('torch.einsum("...ij,...jk->ik", A, B)', []),
    ('torch.einsum("i...->i", A)', []),
    ('np.einsum("i...->i", A)', ["DE105"]),
    # cost
    ('np.einsum("ij,jk,kl->il", A, B, C)', ["DE107"]),
    ('np.einsum("ij,jk,kl->il", A, B, C, optimize=True)', []),
    ('np.einsum("ij,jk,kl->il", A, B, C, **options)', []),
    ('np.einsum("i,i,i->", A, B, C)', []),
    ('oe.contract("ij,jk,kl->il", A, B, C)', []),
    ('jnp.einsum("ij,jk,kl->il", A, B, C)', []),
    # patterns
    ('rearrange(x, "b (h d) -> b h d", h=8)', []),
    ('rearrange(x, "b (h d) -> b h d")', ["DE009"]),
    ('rearrange(x, "b (h d) -> b h d", **sizes)', []),
    ('rearrange(x, "b (h d) -> b h d", g=8)', ["DE009"]),
    ('rearrange(x, "b c -> b d")', ["DE008", ]),
    ('rearrange(x, "b c")', ["DE001"]),
    ('rearrange(x, "b (c -> b c")', ["DE001"]),
    ('rearrange(x, "b c ... -> b c")', ["DE008"]),
    ('rearrange(x, "b c... -> b c...")', ["DE004"]),
    ('reduce(x, "b c -> b", "mean")', []),
    ('reduce(x, "b c -> b d", "mean")', ["DE008"]),
    ('repeat(x, "b -> b n", n=2)', []),
    ('repeat(x, "b -> b n")', ["DE009"]),
    ('repeat(x, "b c -> b n", n=2)', ["DE008"]),
    ('repeat(x, "b -> b 2")', []),
]  # fmt: skip


@pytest.mark.parametrize(("call", "codes"), GRAVE, ids=[call for call, _ in GRAVE])
def test_calls(call, codes):
    assert find_grave(f"y = {call}") == codes


PLAIN = {
    'torch.einsum("bij,bjk->bik", A, B)': "A @ B",
    'torch.einsum("...ij,...jk->...ik", A, B)': "A @ B",
    'torch.einsum("...id,...jd->...ij", A, B + 1)': "A @ (B + 1).mT",
    'torch.einsum("ij->ji", A)': "A.T",
    'torch.einsum("ijk->kij", A)': "A.permute(2, 0, 1)",
    'np.einsum("ijk->kij", A)': "A.transpose(2, 0, 1)",
    'np.einsum("ii->", torch.x)': "np.trace(torch.x)",
    'torch.einsum("bij->bi", A)': "A.sum(2)",
    'torch.einsum("bij,bij->bij", A, B)': "A * B",
    'jnp.einsum("i,j->ij", A, B)': "jnp.outer(A, B)",
    # not plain: an ellipsis counts places, a product is stored before it is added up
    'torch.einsum("...ij->...i", A)': None,
    'torch.einsum("...ij->...ji", A)': None,
    'torch.einsum("bdn,dn->bd", A, B)': None,
    'torch.einsum("bd,qd->qb", A, B)': None,
    'torch.einsum("bihd,bjhd->bhij", A, B)': None,
    'oe.contract("ij,jk->ik", A, B)': None,
    'einsum(A, B, "i j, j k -> i k")': None,
}


@pytest.mark.parametrize("call", PLAIN)
def test_the_plain_call_is_told(call):
    found = [f.says for f in lint_text(f"y = {call}") if f.name == "plain-call"]
    assert found == ([f"the same as {PLAIN[call]}"] if PLAIN[call] else [])


@pytest.mark.parametrize("string", [s for s in STRINGS if s.count(",") < 2])
def test_the_plain_call_is_the_same(string):
    names = ("A", "B")[: string.count(",") + 1]
    found = lint_text(f'y = torch.einsum("{string}", {", ".join(names)})')
    plain = [f.says.removeprefix("the same as ") for f in found if f.name == "plain-call"]
    generator = torch.Generator().manual_seed(len(string))
    extents = {index: 2 + k for k, index in enumerate(dict.fromkeys(string.split("->")[0]))}
    tensors = {
        name: torch.randn([extents[c] for c in term], generator=generator, dtype=torch.float64)
        for name, term in zip(names, string.split("->")[0].split(","), strict=True)
    }
    expected = torch.einsum(string, *tensors.values())
    for text in plain:
        torch.testing.assert_close(eval(text, {"torch": torch}, tensors), expected)


# What torch and numpy take is what the linter takes.

PIECES = st.sampled_from(["i", "j", "k", "K", ",", "->", "...", " ", ".", "-", "1"])
TERMS = st.lists(st.sampled_from(["i", "j", "k", "ij", "...", " "]), max_size=4).map("".join)
OUTPUTS = TERMS.map(lambda output: f"->{output}") | st.just("")
WHOLE = st.tuples(st.lists(TERMS, min_size=1, max_size=3).map(",".join), OUTPUTS).map("".join)


def run(function, make, string):
    """Does the library take the string, all extents 1 and an ellipsis one index?"""
    terms = string.partition("->")[0].split(",")
    ranks = ["".join(t.split()).replace("...", "#") for t in terms]
    try:
        function(string, *(make((1,) * len(rank)) for rank in ranks))
    except (RuntimeError, ValueError):
        return False
    return True


@given(st.lists(PIECES, max_size=9).map("".join) | WHOLE)
def test_strings_are_judged_as_torch_does(string):
    assert isinstance(read_einsum(string), Fault) != run(torch.einsum, torch.ones, string)


@given(WHOLE)
def test_strings_are_judged_as_numpy_does(string):
    codes = find_codes(f"y = np.einsum({string!r}, *tensors)")
    is_judged_bad = bool({"DE001", "DE002", "DE003", "DE004", "DE105"} & set(codes))
    assert is_judged_bad != run(np.einsum, np.ones, string)


# (function, pattern, sizes, is it right); each was put to einops 0.8.2
PATTERNS = [
    ("rearrange", "b (h d) -> b h d", ["h"], True),
    ("rearrange", "b (h d) -> b h d", [], False),
    ("rearrange", "b h d -> b (h d)", [], True),
    ("rearrange", "b 1 -> b", [], True),
    ("rearrange", "b () -> b", [], True),
    ("rearrange", "b 2 -> b", [], False),
    ("rearrange", "... c -> c ...", [], True),
    ("rearrange", "b ... -> b", [], False),
    ("rearrange", "b c -> b (c ...)", [], False),
    ("rearrange", "(...) -> ...", [], False),
    ("rearrange", "b b -> b", [], False),
    ("rearrange", "(b (c d)) -> b c d", ["b", "c"], False),
    ("rearrange", "b) -> b", [], False),
    ("rearrange", "_b -> _b", [], False),
    ("rearrange", "b -> c -> b", [], False),
    ("reduce", "b (h 2) (w 2) -> b h w", [], True),
    ("reduce", "b h w ->", [], True),
    ("reduce", "b -> b 2", [], False),
    ("repeat", "b -> b 2", [], True),
    ("repeat", "b -> (b n)", ["n"], True),
    ("repeat", "b -> (b n)", [], False),
    ("repeat", "b ... -> b", [], False),
    ("repeat", "b 2 -> b 2", [], False),
]


@pytest.mark.parametrize(("function", "pattern", "sizes", "is_right"), PATTERNS)
def test_patterns(function, pattern, sizes, is_right):
    assert (find_fault(pattern, function, sizes, False) is None) == is_right


@pytest.mark.parametrize("pattern", ["...i -> i", "i.j -> i", "i ... ... -> i", "a_ -> a_"])
def test_words_that_are_none(pattern):
    assert isinstance(read_einsum(pattern, has_words=True), Fault)


@pytest.mark.parametrize(
    ("terms", "output", "widest"),
    [
        (["ij", "jk", "kl"], "il", 3),
        (["i", "i", "i"], "", 1),
        (["ij", "ij", "ij"], "i", 2),
        (["ijklm", "ijn", "ijn"], "", 5),
        (["i", "j", "k"], "ijk", 3),
    ],
)
def test_the_widest_step_of_the_best_order(terms, output, widest):
    assert find_widest([frozenset(term) for term in terms], frozenset(output)) == widest


def test_no_rule_reads_more_than_text():
    """The linter runs nothing of what it reads: no import, no eval."""
    folder = Path(__file__).parents[2] / "derive" / "linter"
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called not in {"eval", "exec", "__import__", "import_module", "compile"}, path
