"""`python -m tests.benchmarks [NAME ...]`: the generated functions against code by hand.

Runs use one thread and float32. Each time is the least median of interleaved runs; rows are sorted
by gain, the least first. `--corpus` times the formulas of `corpus.txt`. `--backward` also times
gradients: by autograd through the usual file, and by the file of `derive build --backward`. At the
end are the failures of the corpus.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from derive.bench.timing import say_failure
from tests.benchmarks.cases import find_cases, load_cases
from tests.benchmarks.run import RUNS, Row, measure
from tests.benchmarks.tables import TRAINED, USUAL, to_markdown, to_table

WIDTH = 150  # columns of the table without a terminal


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the selected cases; rewrite the output files after each row."""
    asked = _read_arguments(arguments)
    cases = find_cases(tuple(asked.names), corpus=asked.corpus)
    torch.set_num_threads(1)
    console, progress = Console(width=WIDTH), Console(stderr=True)
    columns = TRAINED if asked.backward else USUAL
    rows: list[Row] = []
    failures: list[str] = []
    for number, case in enumerate(cases, 1):
        progress.print(f"{number}/{len(cases)} {case.name} {case.title}")
        try:
            rows.append(measure(case, asked.runs, backward=asked.backward))
        except Exception as error:  # the timed code may raise anything
            if not asked.corpus:
                raise
            failures.append(f"{case.name}: {say_failure(error)}")
            progress.print(failures[-1], markup=False)
            continue
        rows.sort(key=lambda row: row.forward.ratio)
        if asked.json:
            data = {"rows": [row.to_data() for row in rows]}
            asked.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        if asked.markdown:
            asked.markdown.write_text(to_markdown(rows, columns), encoding="utf-8")
    if rows:
        console.print(to_table(rows, columns))
    for failure in failures:
        console.print(failure, markup=False, soft_wrap=True)


def _read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help="formulas; all without")
    parser.add_argument("--corpus", action="store_true", help="formulas beyond the library")
    parser.add_argument("--backward", action="store_true", help="time the gradients too")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="measurements of each function in a round"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    asked = parser.parse_args(arguments)
    cases = load_cases(corpus=asked.corpus)
    names = tuple(dict.fromkeys(case.name for case in cases))
    for name in asked.names:
        if name not in names:
            parser.error(f"{name} has no case; there are {', '.join(names)}")
    return asked


if __name__ == "__main__":
    main()
