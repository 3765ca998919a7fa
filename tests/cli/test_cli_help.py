"""`derive help`: a page for each topic, taken from the docstring of its package."""

from typing import Any

import pytest
from house import ROOT

from derive.cli.help import PAGES


@pytest.mark.parametrize("topic", PAGES)
def test_a_page_is_printed_and_the_readme_names_it(run: Any, topic: str) -> None:
    answer = run("help", topic)
    assert answer.code == 0 and len(answer.out.splitlines()) > 6
    assert f"`derive help {topic}`" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_without_a_topic_all_pages_are_listed(run: Any) -> None:
    lines = run("help").out.splitlines()
    assert [line.split()[2] for line in lines] == [*PAGES]


def test_the_page_on_the_notation_lists_the_functions(run: Any) -> None:
    assert " gelu " in run("help", "notation").out


def test_an_unknown_topic_is_refused_with_the_nearest(run: Any) -> None:
    answer = run("help", "chek")
    assert answer.code == 2 and "did you mean check?" in answer.err
