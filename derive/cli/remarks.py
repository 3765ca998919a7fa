"""What is said beside a plan: the sizes that it is made for, and options that changed nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.plan.regimes import FAR, MOST_PRODUCTS
from derive.rewrite.options import LOSSY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.cli.options import Options
    from derive.compiler import Built

CHOOSE = "choose with --sizes"
SOURCES = {"given": "", "typical": " (typical)", "default": " (default)"}


def find_remarks(built: Built, options: Options) -> Iterator[str]:
    """A sentence for each option that changed nothing."""
    if options.fast_math and not any(entry.name in _LOSSY for entry in built.plan.log):
        yield "--fast-math: no rule that loses digits makes it faster here"
    if options.dispatch and len(built.plan.einsums) > MOST_PRODUCTS:
        yield f"--dispatch: orders of more than {MOST_PRODUCTS} products are not searched again"
    elif options.dispatch and not built.plan.regimes:
        yield (
            f"--dispatch: with a size up to {FAR} times smaller or larger "
            "no other order takes clearly fewer operations"
        )


_LOSSY = frozenset(rule.name for rule in LOSSY)


def say_machine(options: Options) -> str:
    """Whose constants the estimated times rest on."""
    from derive.cli.files import show_path

    if options.machine is None:
        return "times are by the built-in constants of a server core, not of this machine"
    return f"times are by the constants in {show_path(options.machine)}"


def say_sizes(built: Built, options: Options) -> str:
    """`at N=64 D=64 (default; choose with --sizes)`: the sizes, and who chose them."""
    groups: dict[str, list[str]] = {source: [] for source in SOURCES}
    for name, number in built.plan.sizes.items():
        groups[_find_source(name, built, options)].append(f"{name}={number}")
    filled = {source: words for source, words in groups.items() if words}
    if not filled:
        return ""
    parts = [f"{' '.join(words)}{SOURCES[source]}" for source, words in filled.items()]
    parts[-1] = parts[-1].replace(")", f"; {CHOOSE})")
    return f"at {', '.join(parts)}"


def _find_source(name: str, built: Built, options: Options) -> str:
    if name in options.sizes:
        return "given"
    return "typical" if name in built.formula.typical else "default"
