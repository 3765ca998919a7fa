"""What is known about a plan, as tables and as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.backend import to_data
from derive.cli.options import Options, to_word
from derive.cli.tables import print_line, print_pairs, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    pass
    from derive.compiler import Built
    from derive.plan.plan import Plan

SOURCES = {"given": "", "typical": " (typical)", "default": " (default)"}


def print_roles(data: Sequence[to_data.Data]) -> None:
    """A row for each index."""
    if data:
        print_table(
            to_data.ROLE_HEADS,
            to_data.to_role_rows(data),
            numbers="number",
            prose=to_data.ROLE_HEADS[3:],
        )


def print_steps(data: to_data.Data) -> None:
    """The steps in order: einsum strings, shape, operations at the plan's sizes."""
    print_table(
        to_data.STEP_HEADS, to_data.to_step_rows(data), "flops", prose=to_data.STEP_HEADS[-1:]
    )


def print_costs(data: to_data.Data, plan: Plan) -> None:
    """Operations and memory over sizes, and as numbers; what is done block by block."""
    if data["sizes"]:
        print_line(f"at {say_at(data['sizes'])}:")
    print_pairs(to_data.to_cost_pairs(data, plan))


def say_at(sizes: Mapping[str, int]) -> str:
    """`N=64 D=64`."""
    return to_word(sizes).replace(",", " ")


def find_remarks(built: Built, options: Options) -> Iterator[str]:
    """A sentence for each option that changed nothing."""
    from derive.plan.search import FAR, MOST_PRODUCTS
    from derive.rewrite.options import LOSSY

    lossy = {rule.name for rule in LOSSY}
    if options.fast_math and not any(entry.name in lossy for entry in built.plan.log):
        yield "--fast-math: no rule that loses digits makes it faster here"
    if options.dispatch and len(built.plan.einsums) > MOST_PRODUCTS:
        yield f"--dispatch: orders of more than {MOST_PRODUCTS} products are not searched again"
    elif options.dispatch and not built.plan.regimes:
        yield (
            f"--dispatch: with a size up to {FAR} times smaller or larger "
            "no other order takes clearly fewer operations"
        )


def say_sizes(built: Built, options: Options) -> str:
    """`at N=64 D=64 (default; choose with --sizes)`: the sizes, and who chose them."""
    groups: dict[str, dict[str, int]] = {source: {} for source in SOURCES}
    for name, number in built.plan.sizes.items():
        source = "typical" if name in built.formula.typical else "default"
        groups["given" if name in options.sizes else source][name] = number
    parts = [f"{say_at(sizes)}{SOURCES[source]}" for source, sizes in groups.items() if sizes]
    if not parts:
        return ""
    parts[-1] = parts[-1].replace(")", "; choose with --sizes)")
    return f"at {', '.join(parts)}"
