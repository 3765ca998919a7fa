"""The sharded function of a generated file: its placements, the stages, the moves between them.

PLACEMENTS       where arguments and results are cut, by the dimension of the mesh
NAME_sharded     takes tensors to where they are cut, and runs the stages of a rank
_stage_1, ..     formulas of their own, each planned; the plain function where it is the only one
_Copy, _Add, ..  what ranks exchange, as functions that autograd knows
"""

import re
from collections.abc import Sequence

from derive.backend import arithmetic, to_checks
from derive.backend.lines import (
    INDENT,
    fit_assignment,
    fit_call,
    fit_signature,
    is_read,
    quote,
    read_helpers,
    wrap_text,
    write_function,
    write_returns,
)
from derive.backend.to_module import OUTER, More, order_inputs, sign, write_argument, write_body
from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.plan.plan import Plan
from derive.plan.shards import Sharding, Stage, Transfer, work

IMPORTS = (
    "import torch.distributed as dist",
    "from torch.distributed.device_mesh import DeviceMesh",
    "from torch.distributed.tensor import DTensor, Placement, Replicate, Shard",
)
WORDS = {*re.findall(r"\w+$", "\n".join(IMPORTS), re.MULTILINE), "placements", "PLACEMENTS"}
WORDS |= {"DTensor", "Placement", "Replicate", "FunctionCtx"}
CALLS = {  # helper functions of each kind of move
    "copy": "_Copy.apply({0}, {1})",
    "add": "_Add.apply({0}, {1})",
    "largest": '_reduce({0}, "MAX", {1})',
    "max": '_Extreme.apply({0}, "MAX", {1})',
    "min": '_Extreme.apply({0}, "MIN", {1})',
    "gather": "_Gather.apply({0}, {2}, {1})",
    "collect": "_Collect.apply({0}, {2}, {1})",
    "split": "_Split.apply({0}, {2}, {1})",
}
ALWAYS = ("placements", "_take", "_give", "_share")  # functions of every such file
MOVES = (  # helpers that the moves call, directly or through others
    *("_Copy", "_Add", "_Gather", "_Scatter", "_Collect", "_Split", "_Extreme"),
    *("_gather", "_reduce"),
)


def to_shards(sharding: Sharding, plans: Sequence[Plan | None], name: str) -> More:
    """The code behind the plain function, with a plan for each stage.

    A stage without a plan of its own is the plain function.
    """
    if name in WORDS:
        raise refuse(
            "formula-name",
            f"a formula cannot be named {name}, which the sharded file uses itself",
            help=f"call it {name}_",
        )
    body = _write_stages(sharding, plans, name)
    text = "\n".join(body)
    parts = [_write_placements(sharding, name), _write_sharded(sharding, name, body)]
    for number, (stage, plan) in enumerate(zip(sharding.stages, plans, strict=True), 1):
        if plan is not None and stage.system is not None:
            parts.append(_write_stage(plan, number))
    helpers = read_helpers()
    used = [word for word in MOVES if re.search(rf"\b{word}\b", text)]
    for each in used:  # each is written with the helpers it calls and the one it is the gradient of
        inside = re.findall(r"\w+", helpers[each])
        used += [word for word in MOVES if word in inside and word not in used]
    parts += [helpers[word] for word in (*ALWAYS, *MOVES) if word in {*ALWAYS, *used}]
    own = [line for line in IMPORTS if "dist" not in line.split() or "dist." in "".join(parts)]
    if any("FunctionCtx" in part for part in parts):
        own.append("from torch.autograd.function import FunctionCtx")
    return More(parts, own, [plan for plan in plans if plan is not None])


def _write_placements(sharding: Sharding, name: str) -> str:
    """The table of where arguments and results are cut."""
    lines = [f"# Where {name}_sharded has its arguments and results cut, by the mesh's dimension;"]
    lines += ["# along the dimensions that are not named they are whole.", "PLACEMENTS = {"]
    for tensor, places in sharding.places.items():
        cut = ", ".join(f'"{axis}": Shard({place})' for axis, place in places.items())
        lines.append(f'{INDENT}"{tensor}": {{{cut}}},')
    return "\n".join([*lines, "}", ""])


def say_transfers(transfers: Sequence[Transfer]) -> str:
    """`all-reduce z (tp) B*D*N/dp; ..`, in elements."""
    return "; ".join(
        f"{each.collective} {each.tensor} ({each.axis}) {each.elements}" for each in transfers
    )


def _write_sharded(sharding: Sharding, name: str, body: Sequence[str]) -> str:
    """The function over the ranks of a mesh."""
    system, mesh = sharding.system, sharding.mesh
    given = [write_argument(entry) for entry in order_inputs(system)]
    given += ["*", *to_checks.list_keywords(system), f"{mesh}: DeviceMesh"]
    returns = write_returns(len(system.results), "DTensor")
    head = fit_signature(f"{name}_sharded", given, returns)
    cuts = ", ".join(f"{index} over {axis}" for index, axis in sharding.cuts)
    sentences = [
        f"The same over the ranks of a mesh: {cuts} is cut.",
        "",
        "An argument that is no DTensor is the same whole tensor on every rank. An extent that is "
        "cut must be a multiple of the ranks, or a ValueError is raised.",
        "",
        "What each rank hands to collectives in a step, in elements:",
        f"Forward: {say_transfers(sharding.forward) or 'nothing'}.",
        f"Backward: {say_transfers(sharding.backward) or 'nothing'}.",
        *(f"Whole on every rank: {tensor}, as {why}." for tensor, why in sharding.whole),
    ]
    doc = [
        line for s in sentences for line in (wrap_text(s, later=INDENT, width=OUTER) if s else [""])
    ]
    arguments = [argument for argument, _ in to_checks.list_arguments(system)]
    tensors = [entry.name for entry in system.inputs if isinstance(entry, ir.Tensor)]
    lines = fit_call(to_checks.CHECK, "", arguments) if tensors else []
    shares = []
    for share, (extent, axis) in sharding.shares.items():
        written = to_text(extent).replace(" * ", "*")
        call = f'_share("{written}", {arithmetic.to_python(extent)}, {mesh}, "{axis}")'
        shares += fit_assignment(share, call) if is_read(share, body) else [call]
    lines += to_checks.write_sizes(system, [*shares, *body])
    lines += shares
    lines += [f'{tensor} = _take({tensor}, "{tensor}", {mesh})' for tensor in tensors]
    axes = dict.fromkeys(axis for _, axis in sharding.shares.values())
    lines += [f'{axis} = {mesh}.get_group("{axis}")' for axis in axes if is_read(axis, body)]
    results = [f'_give({tensor}, "{tensor}", {mesh})' for tensor in sharding.returned]
    lines += [*body, *fit_assignment("", ", ".join(results))]
    return write_function(head, quote(doc), lines)


def _write_stages(sharding: Sharding, plans: Sequence[Plan | None], name: str) -> list[str]:
    """The lines of moves and calls."""
    tensors = [entry.name for entry in sharding.system.inputs if isinstance(entry, ir.Tensor)]
    lines: list[str] = []
    for position, (share, axis) in sharding.positions.items():
        where = f", device={tensors[0]}.device" if tensors else ""
        value = f"torch.arange({share}{where}) + {axis}.rank() * {share}"
        lines += fit_assignment(position, value)
    for number, (stage, plan) in enumerate(zip(sharding.stages, plans, strict=True), 1):
        for move in stage.moves:
            lines += _write_move(move)
        if stage.system is not None:
            given = _order_given(stage)
            given += [f"{own}={outside}" for own, outside in stage.sizes]
            function = name if plan is None else f"_stage_{number}"
            lines += fit_call(function, ", ".join(stage.made), given)
    return lines


def _order_given(stage: Stage) -> list[str]:
    """The arguments in the order in which the function takes them."""
    assert stage.system is not None
    outside = {e.name: g for e, g in zip(stage.system.inputs, stage.given, strict=True)}
    return [outside[entry.name] for entry in order_inputs(stage.system)]


def _write_move(move: work.Move) -> list[str]:
    value = CALLS[move.kind].format(move.source.name, move.axis, move.place)
    if isinstance(move.source, ir.Scalar):
        value = f"{value} if torch.is_tensor({move.source.name}) else {move.source.name}"
    return fit_assignment(move.made.name, value)


def _write_stage(plan: Plan, number: int) -> str:
    """A formula that each rank computes alone."""
    body = write_body(plan)
    sizes = to_checks.write_sizes(plan.system, body)
    names = ", ".join(tensor.name for tensor in plan.system.results)
    doc = wrap_text(f'"""What a rank makes of its shares: {names}."""', width=OUTER)
    return write_function(sign(plan, f"_stage_{number}"), doc, sizes, body)
