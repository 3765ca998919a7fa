"""The questions that the check began with, each in code of our own with the same mistake."""

import tempfile
from functools import cache
from pathlib import Path

import pytest
from pairs.corpus import find_constants, read_pair

from derive import check

SEEDS = Path(__file__).resolve().parent / "seeds"
FOUR = find_constants(SEEDS / "s003.py", ("FORMULAS",))["FORMULAS"]


@cache
def judge(name):
    """The verdict on a seed, written to a file without its constants, and the seed."""
    pair = read_pair(SEEDS / f"{name}.py")
    with tempfile.TemporaryDirectory() as folder:
        code = pair.write(Path(folder))
        return check(code, pair.formula, bind=pair.bind, sizes=pair.sizes), pair


def test_the_partial_answer_lacks_a_sum():
    verdict, pair = judge("s000_partial")
    assert verdict.same is False, str(verdict)
    assert verdict.grade == "different"
    assert verdict.line == pair.line
    assert "index h SURVIVES" in verdict.edit
    assert "SUM over e" in verdict.edit


def test_the_blog_cannot_be_read():
    text = (SEEDS / "s001_broken.txt").read_text(encoding="utf-8")
    verdict = check(text, "masked_multi_head_attention")
    assert verdict.same is None
    assert verdict.grade == "unknown"
    assert verdict.line == 7
    assert "expected ':'" in str(verdict) and "line 7" in str(verdict)


def test_the_blog_goes_on_behind_what_it_lacks():
    verdict, pair = judge("s001_broken")
    assert verdict.same is False, str(verdict)
    assert f"line {pair.line}: self.value_width is set nowhere: self.head_width" in str(verdict)
    assert "say --bind mask=mask.unsqueeze(1)" in str(verdict)


@pytest.mark.parametrize("told", ["everything", "bindings", "the mask"])
def test_the_repaired_class_is_the_same(told, tmp_path):
    pair = read_pair(SEEDS / "s001_repaired.py")
    bind = {"mask": pair.bind["mask"]} if told == "the mask" else pair.bind
    sizes = pair.sizes if told == "everything" else {}
    verdict = check(pair.write(tmp_path), pair.formula, bind=bind, sizes=sizes)
    assert verdict.same is True, str(verdict)
    assert "the code is judged only where C = E" in [finding.says for finding in verdict.findings]
    assert all(each["D"] == each["H"] * each["C"] for each in verdict.sizes)
    if told != "everything":
        assert len({each["H"] for each in verdict.sizes}) == 3


def test_the_mask_of_the_repaired_class_is_asked_for(tmp_path):
    pair = read_pair(SEEDS / "s001_repaired.py")
    verdict = check(pair.write(tmp_path), pair.formula)
    assert verdict.same is False
    assert "say --bind mask=mask.unsqueeze(1)" in str(verdict)


def test_the_notebook_makes_its_keys_with_the_query_weight():
    verdict, pair = judge("s002_script")
    assert verdict.same is False, str(verdict)
    assert verdict.line == pair.line
    assert "use w_key, not w_query" in verdict.edit.lower()
    unused = [finding for finding in verdict.findings if finding.code == "unused"]
    assert any("w_output" in finding.says for finding in unused)


@pytest.mark.parametrize("name", FOUR)
def test_the_four_ways_are_the_same(name):
    verdict = check(f"{SEEDS / 's003.py'}:{name}", FOUR[name])
    assert verdict.same is True
    assert verdict.grade == "proved", str(verdict)


def test_the_answer_is_the_same():
    verdict, _ = judge("s000_answer")
    assert verdict.same is True
    assert verdict.grade == "proved", str(verdict)
