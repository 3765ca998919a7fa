"""What is known about a plan: as data, which --json prints, and the same data as tables.

What each index does in which equation:

    free        the left side has it; `alpha (softmax)` where something is taken along it
    summed      the right side adds up over it; `y (max)` where it is reduced otherwise
    shared      several tensors on the right are read by it
    broadcast   a term of a sum, or the whole right side, is repeated along it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.analysis.extents import find_broadcast, find_left
from derive.cli.options import show_path, to_option
from derive.cli.tables import print_line, print_pairs, print_table, to_short
from derive.ir.nodes import Add, Along, Equation, Index, Reduce
from derive.ir.polynomial import evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import as_written, find_accesses, find_all_indices, find_free, walk
from derive.plan.cost import find_kept
from derive.plan.machine import WIDTH, to_bytes
from derive.plan.meaning import to_step_equation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from derive.cli.options import Options
    from derive.compiler import Built
    from derive.ir.nodes import Expr, System
    from derive.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Roles:
    """One index, and the names of the equations in which it has each role."""

    index: Index
    free: tuple[str, ...]
    summed: tuple[str, ...]
    shared: tuple[str, ...]
    broadcast: tuple[str, ...]


def find_roles(system: System) -> tuple[Roles, ...]:
    """The roles of every index that the user wrote, in order of appearance."""
    system = as_written(system)
    return tuple(
        Roles(
            index,
            _collect(_find_along(index, e) for e in system.equations if index in find_left(e)),
            _collect(name for e in system.equations for name in _find_reduced(index, e)),
            _collect(_name(e) for e in system.equations if _is_shared(index, e)),
            _collect(_name(e) for e in system.equations if _is_broadcast(index, e)),
        )
        for index in find_all_indices(system)
    )


def _collect(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _name(equation: Equation) -> str:
    return equation.target.tensor.name


def _find_along(index: Index, equation: Equation) -> str:
    """The equation's name, and what it takes along the index."""
    kinds = _collect(
        here.kind
        for here in walk(equation.value)
        if isinstance(here, Along) and here.index is index
    )
    return f"{_name(equation)} ({', '.join(kinds)})" if kinds else _name(equation)


def _find_reduced(index: Index, equation: Equation) -> Iterator[str]:
    for here in walk(equation.value):
        if isinstance(here, Reduce) and index in here.bound:
            yield _name(equation) + ("" if here.kind == "sum" else f" ({here.kind})")


def _is_shared(index: Index, equation: Equation) -> bool:
    """Do two tensors, or two places of one, read by the index?"""
    reading = [access for access in find_accesses(equation.value) if index in find_free(access)]
    return len(reading) > 1


def _is_broadcast(index: Index, equation: Equation) -> bool:
    """Does the right side lack an index of the left, or a term one of the others?"""
    if index in find_broadcast(equation):
        return True
    for here in walk(equation.value):
        if isinstance(here, Add):
            terms = [find_free(term) for term in here.terms if find_accesses(term)]
            if any(index in free for free in terms) and any(index not in f for f in terms):
                return True
    return False


Data = dict[str, Any]
SOURCES = {"given": "", "typical": " (typical)", "default": " (default)"}


def to_roles_data(system: System, sizes: Mapping[str, int]) -> list[Data]:
    """The indices: how far each runs, and in which equations it does what."""
    return [
        {
            "index": roles.index.name,
            "extent": to_text(roles.index.extent),
            "number": evaluate_extent(roles.index.extent, sizes),
            "free": list(roles.free),
            "summed": list(roles.summed),
            "shared": list(roles.shared),
            "broadcast": list(roles.broadcast),
        }
        for roles in find_roles(system)
    ]


def to_plan_data(plan: Plan) -> Data:
    """The steps in order, what each costs, and all of them together."""
    return {
        "sizes": dict(plan.sizes),
        "steps": [
            {
                "name": step.name,
                "einsums": list(plan.find_einsums(step)),
                "shape": [to_compact(index.extent) for index in step.axes],
                "flops": plan.at_sizes(plan.count_flops(step)),
                "elements": plan.at_sizes(find_kept(step.op)),
                "equation": to_text(to_step_equation(step)),
            }
            for step in plan.steps
        ],
        "einsums": list(plan.einsums),
        "flops": to_compact(plan.flops.to_expr()),
        "flops_at_sizes": plan.at_sizes(plan.flops),
        "peak_elements": to_compact(plan.peak_elements.to_expr()),
        "peak_elements_at_sizes": plan.at_sizes(plan.peak_elements),
        "notes": list(plan.notes),
    }


def print_roles(data: Sequence[Data]) -> None:
    """A row for each index."""
    heads = ("index", "extent", "number", "free in", "summed in", "shared in", "broadcast in")
    rows = [
        (
            *(str(each[head]) for head in heads[:3]),
            *(", ".join(each[h.split()[0]]) for h in heads[3:]),
        )
        for each in data
    ]
    if rows:
        print_table(heads, rows, numbers="number", prose=heads[3:])


def print_steps(data: Data) -> None:
    """The steps in order: einsum strings, shape, operations at the plan's sizes."""
    heads = ("step", "einsum", "shape", "flops", "what it computes")
    rows = [
        (
            step["name"],
            "\n".join(step["einsums"]),
            f"[{', '.join(step['shape'])}]",
            to_short(step["flops"]),
            step["equation"],
        )
        for step in data["steps"]
    ]
    print_table(heads, rows, "flops", prose=heads[-1:])


def print_costs(data: Data, plan: Plan) -> None:
    """Operations and memory over sizes, and as numbers; what is done block by block."""
    if data["sizes"]:
        print_line(f"at {say_at(data['sizes'])}:")
    pairs = []
    for label in ("flops", "peak elements"):
        key = label.replace(" ", "_")
        text, number = data[key], data[f"{key}_at_sizes"]
        pairs.append((label, text if text == str(number) else f"{text} = {number:,}"))
    memory = to_bytes(data["peak_elements_at_sizes"] * WIDTH)
    pairs.append(("in float32", f"{memory} alive at once"))
    for tile in plan.tiles:
        length = plan.complete(plan.sizes)[tile.block]
        steps = ", ".join(step.name for step in plan.steps[tile.first : tile.last + 1])
        pairs.append((tile.block, f"{length} of {tile.index.name} at a time: {steps}"))
    print_pairs(pairs)


def to_compact(expr: Expr) -> str:
    """An expression over sizes without blanks around its products."""
    return to_text(expr).replace(" * ", "*").replace(" / ", "/")


def say_at(sizes: Mapping[str, int]) -> str:
    """`N=64 D=64`."""
    return to_option(sizes).replace(",", " ")


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


def say_machine(options: Options) -> str:
    """Whose constants the estimated times rest on."""
    if options.machine is None:
        return "times are by the built-in constants of a server core, not of this machine"
    return f"times are by the constants in {show_path(options.machine)}"


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
