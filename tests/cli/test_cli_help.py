"""`derive help`: a page for each topic, taken from the docstring of its package."""

import re
from textwrap import dedent
from typing import Any

import pytest
from house import ROOT

from derive import from_latex, parse
from derive.cli.help import PAGES, read_page
from derive.frontend.from_sympy import to_system

OPTION = re.compile(r"--[a-z-]+")
STATED = "a, r, x[T]; c[N, M]; scalar h0, g"  # arguments of the recurrences


@pytest.mark.parametrize("topic", PAGES)
def test_a_page_is_printed_and_the_readme_names_it(run: Any, topic: str) -> None:
    answer = run("help", topic)
    assert answer.code == 0 and len(answer.out.splitlines()) > 6
    assert f"`derive help {topic}`" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("topic", ["check", "plan", "lint", "bench"])
def test_a_verb_has_the_options_on_its_page(run: Any, topic: str) -> None:
    page = read_page(topic)
    parts = re.findall(r"^Options of (.*)\n((?: {4}.*\n)+)", page, re.MULTILINE)
    for verbs, part in parts or [(topic, page)]:
        for verb in re.split(", | and ", verbs):
            assert {*OPTION.findall(part)} <= {*OPTION.findall(run(verb, "--help").out)}


def test_the_examples_on_a_page_are_read() -> None:
    for example in read_page("latex").split("\n\n")[1:3]:
        assert to_system(from_latex(re.sub(" {4,}.*", "", dedent(example))))
    page = read_page("notation")
    recurrences = re.findall(r"^ {4}(\w+\[.*\] = \S+; .*\])$", page, re.MULTILINE)
    for example in (page.split("\n\n")[1], *(f"{STATED}; {each}" for each in recurrences)):
        assert to_system(parse(dedent(example)))


def test_without_a_topic_all_pages_are_listed(run: Any) -> None:
    lines = run("help").out.splitlines()
    assert [line.split()[2] for line in lines] == [*PAGES]


def test_the_page_on_the_notation_lists_the_functions(run: Any) -> None:
    assert " gelu " in run("help", "notation").out


def test_an_unknown_topic_is_refused_with_the_nearest(run: Any) -> None:
    answer = run("help", "chek")
    assert answer.code == 2 and "did you mean check?" in answer.err
