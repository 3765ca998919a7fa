"""What the loops refuse, with the whole message."""

import re
from ast import literal_eval
from pathlib import Path

import pytest
from texts import read_parts

from derive.errors import DeriveError
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops

REFUSALS = read_parts(Path(__file__).with_name("refusals.txt"))


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name):
    text, given, message = re.split(r"\ngiven (.*)\n", REFUSALS[name][0])
    with pytest.raises(DeriveError) as caught:
        evaluate_loops(parse(text), literal_eval(given))
    assert str(caught.value) == message
