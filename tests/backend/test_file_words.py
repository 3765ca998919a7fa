"""Names that generated files use themselves are refused, with a suggested other name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from house import ROOT
from texts import read_lists

from derive import DeriveError, build, parse
from derive.notation.formula import FILE_WORDS, FUNCTION_WORDS

WAVES = "x[N]; index k < N; z[k] = sum[n](x[n] * cos(2 * pi * k * n / N))"
SHIFTS = "x[B, C, L + 8]; y[B, C, L]; index k < 9; z[b,k,t] = sum[c](y[b,c,t] * x[b,c,t + k])"
HELPERS = ("_check_shapes", "_x", "__init__", "__class__")
NAMED = {
    "an argument": "{0}[M, N]; y[i] = exp(sum[k]({0}[i,k]))",
    "a scalar": "x[M]; scalar {0}; y[i] = x[i] / {0}",
    "a size": "x[M*{0}]; size {0}; y[i] = x[i] / {0}",
    "a step": "x[M, N]; {0}[i] = sum[k](x[i,k]); y[i,j] = {0}[i] * exp({0}[j])",
}


def find_read(source: str) -> Iterator[str]:
    """Global names that the functions of a file read."""
    for function in ast.parse(source).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        own |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
        yield from (node.id for node in names if node.id not in own)


def test_the_words_are_those_that_the_files_read() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "generated").glob("*.py")]
    sources.append(build("int t[N] < 7\ny[n] = t[n] + 1").source)
    sources.append(build("size T; index t < T; h[0] = 2; h[t] = sin(h[t - 1])").source)
    sources.append(build(parse(WAVES), {"N": 4096}).source)
    sources.append(build(parse(SHIFTS), {"B": 8, "C": 32, "L": 1024}).source)
    cells = read_lists(ROOT / "tests/plan/cells.txt")
    sources += [build(texts[0]).source for call, texts in cells.items() if call.startswith("_")]
    read = {name for source in sources for name in find_read(source)}
    assert {name for name in read if not name.startswith("_")} == set(FILE_WORDS)


@pytest.mark.parametrize("path", sorted((ROOT / "generated").glob("*.py")), ids=lambda p: p.stem)
def test_every_value_that_a_file_names_is_read(path: Path) -> None:
    for function in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(function, ast.FunctionDef):
            names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
            read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
            lines = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
            targets = [target for line in lines for target in line.targets]
            assert {each.id for each in targets if isinstance(each, ast.Name)} <= read


@pytest.mark.parametrize("name", [*FILE_WORDS, *HELPERS])
def test_no_formula_is_named_so(name: str) -> None:
    text = "x[M, N]; y[i] = sum[k](x[i,k])"
    with pytest.raises(DeriveError, match="formula-name"):
        parse(text, name=name)
    with pytest.raises(DeriveError, match="formula-name"):
        build(parse(text), name=name)


@pytest.mark.parametrize("name", [*FUNCTION_WORDS, *HELPERS])
@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED.keys())
def test_nothing_of_a_formula_is_named_so(text: str, name: str) -> None:
    with pytest.raises(DeriveError, match="name-form"):
        build(parse(text.format(name)))


@pytest.mark.parametrize("name", ["Tensor", "float", "len", "match", "print", "_", "torch_"])
@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED.keys())
def test_other_names_of_python_are_free(text: str, name: str) -> None:
    built = build(parse(text.format(name)))
    built.judge()
    with pytest.raises(ValueError, match="place"):
        built.function(
            *(torch.ones(()) for _ in built.system.inputs),
            **{s.name: 2 for s in built.system.sizes},
        )


def test_a_step_is_not_named_like_a_later_equation() -> None:
    text = "q[I, L]; k[L, J]; q_k[i,j] = exp(sum[l](q[i,l] * k[l,j])); z[i] = sum[j](q_k[i,j]**2)"
    build(parse(text)).judge()
