"""Functions with cells against their formulas: proved, or identical over random fields."""

import pytest
from cell_runs import BIASED, CDIST, FOUND, MASKED, PLAIN, make
from exactness import assert_exact

from derive import parse

FIRST = [texts[0] for texts in FOUND.values()]
REST = [text for texts in FOUND.values() for text in texts[1:]]
ATTENTIONS = [(PLAIN[4], "nan"), (MASKED[5], "zeros")]
BEYOND = {  # calls, and the reason why they cannot be proved
    "scatter_reduce(": "amax is not modelled over fields",
    "floor(": "a number out of the data is not modelled over fields",
}
MORE = [(text, "nan") for text in PLAIN] + [(text, "zeros") for text in (*BIASED, *MASKED)]


def assert_computed(folder, text, empty_row="nan", *, backward=False):
    """The file that is built of a formula computes it."""
    path = folder / "formula.py"
    source = make(text, empty_row=empty_row).source
    path.write_text(source, encoding="utf-8")
    beyond = next((says for call, says in BEYOND.items() if call in source), "")
    assert_exact(path, parse(text, empty_row=empty_row), backward=backward, beyond=beyond)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("text", FIRST)
def test_a_function_with_a_cell_computes_its_formula(tmp_path, text):
    assert_computed(tmp_path, text)


def test_so_do_the_gradients_of_distances(tmp_path):
    assert_computed(tmp_path, FOUND[CDIST][1], backward=True)


@pytest.mark.parametrize(("text", "empty_row"), ATTENTIONS)
def test_an_attention_computes_its_formula(tmp_path, text, empty_row):
    assert_computed(tmp_path, text, empty_row)


@pytest.mark.slow
@pytest.mark.parametrize("text", REST)
def test_every_spelling_computes_its_formula(tmp_path, text):
    assert_computed(tmp_path, text)
    if text in REST[::3]:  # the slopes of all are compared with those of the operations
        # A mean of an empty segment, which is nan, has finite slopes to the entries of others.
        empty_row = "zeros" if text in FOUND["_average_segments("] else "nan"
        assert_computed(tmp_path, text, empty_row, backward=True)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "empty_row"), MORE[::2])
def test_every_second_attention_computes_its_formula(tmp_path, text, empty_row):
    assert_computed(tmp_path, text, empty_row)
