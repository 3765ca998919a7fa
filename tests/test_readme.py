"""The code blocks of README.md run and print the output that they show.

```python    runs, all blocks in one namespace, in order; a ```text block after it is its
             output; one that starts with `# NAME.py` is a file for the console blocks
```console   `$ command` and the whole of what it prints
```py        lines of generated/relative_attention.py
```sh        the two commands: what CI runs
"""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from house import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
FILES = [text for kind, text in BLOCKS if kind == "python" and re.match(r"# \w+\.py\n", text)]
CONSOLE = [text for kind, text in BLOCKS if kind == "console"]


def test_every_kind_of_block_is_known() -> None:
    assert {kind for kind, _ in BLOCKS} == {"python", "text", "console", "py", "sh"}


def test_python_blocks_run_and_print_what_they_show() -> None:
    namespace: dict[str, object] = {}
    for (kind, text), (next_kind, shown) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
        if kind != "python" or text in FILES:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, "README.md", "exec"), namespace)
        assert printed.getvalue() == (shown if next_kind == "text" else "")


@pytest.mark.parametrize("block", CONSOLE, ids=[text.splitlines()[0] for text in CONSOLE])
def test_console_blocks_print_what_they_show(run: Any, block: str, tmp_path: Path) -> None:
    command, _, shown = block.partition("\n")
    prompt, program, *arguments = shlex.split(command)
    assert (prompt, program) == ("$", "derive")
    for text in FILES:
        name = text.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(text, encoding="utf-8")
    answer = run(*arguments)
    assert (answer.out + answer.err).rstrip() == shown.rstrip()


def test_excerpt_is_of_the_generated_file() -> None:
    (excerpt,) = [text for kind, text in BLOCKS if kind == "py"]
    lines = (ROOT / "generated" / "relative_attention.py").read_text(encoding="utf-8").splitlines()
    file = [line.strip() for line in lines]
    assert all(line.strip() in [*file, "..."] for line in excerpt.splitlines())


def test_the_two_commands_are_what_ci_runs() -> None:
    (commands,) = [text for kind, text in BLOCKS if kind == "sh"]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in re.findall(r"^([^#\n]*)", commands, re.MULTILINE):
        for part in filter(None, map(str.strip, command.split("&&"))):
            assert part in ci
