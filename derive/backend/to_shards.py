"""The sharded function of a generated file: its placements, the stages, the moves between them.

PLACEMENTS       where arguments and results are cut, by the dimension of the mesh
NAME_sharded     takes tensors to where they are cut, and runs the stages of a rank
_stage_1, ..     formulas of their own, each planned; the plain function where it is the only one
_Copy, _Add, ..  what ranks exchange, as functions that autograd knows
"""

import re
from collections.abc import Sequence

from derive.backend import to_checks, to_data, to_torch
from derive.backend.lines import (
    INDENT,
    fit_assignment,
    fit_call,
    fit_signature,
    is_read,
    quote,
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
CALLS = {  # of each kind of move
    "copy": "_Copy.apply({0}, {1})",
    "add": "_Add.apply({0}, {1})",
    "largest": '_reduce({0}, "MAX", {1})',
    "max": '_Extreme.apply({0}, "MAX", {1})',
    "min": '_Extreme.apply({0}, "MIN", {1})',
    "gather": "_Gather.apply({0}, {2}, {1})",
    "collect": "_Collect.apply({0}, {2}, {1})",
    "split": "_Split.apply({0}, {2}, {1})",
}
PLACES = '''def placements(name: str, mesh: DeviceMesh) -> tuple[Placement, ...]:
    """Where an argument or a result is cut, for each dimension of the mesh."""
    return tuple(PLACEMENTS[name].get(axis, Replicate()) for axis in mesh.mesh_dim_names or ())


def _take(tensor: Tensor, name: str, mesh: DeviceMesh) -> Tensor:
    """A rank's share of an argument; a tensor that is no DTensor is whole on every rank."""
    places = placements(name, mesh)
    if not isinstance(tensor, DTensor):
        whole = [Replicate()] * mesh.ndim
        tensor = DTensor.from_local(tensor, mesh, whole, run_check=False)
    return tensor.redistribute(mesh, places).to_local(grad_placements=places)


def _give(tensor: Tensor, name: str, mesh: DeviceMesh) -> DTensor:
    """A result, of which each rank has its share."""
    return DTensor.from_local(tensor, mesh, placements(name, mesh), run_check=False)
'''
SHARE = '''def _share(name: str, extent: int, mesh: DeviceMesh, axis: str) -> int:
    """The positions of a rank; ValueError where the ranks have no equal shares."""
    names = mesh.mesh_dim_names or ()
    if axis not in names:
        raise ValueError(f"the mesh has no dimension {axis}, its dimensions are {names}")
    ranks = mesh.size(names.index(axis))
    if extent % ranks:
        raise ValueError(f"{name}={extent} is no multiple of the {ranks} ranks of {axis}")
    return extent // ranks
'''
_MOVE = '''class {name}(torch.autograd.Function):
    """{says}"""

    @staticmethod
    def forward(ctx: FunctionCtx, tensor: Tensor, {given}group: dist.ProcessGroup) -> Tensor:
        {kept} = {values}
        {body}

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, {nones}]:
        return {back}.apply(gradient, {passed}), {nones}
'''


def _write_move_class(name: str, says: str, body: str, back: str) -> str:
    """What ranks exchange, and `back`, which its gradient is given to."""
    names = ["dim", "group"] if "dim" in body or "dim" in says else ["group"]
    passed = ", ".join(f"ctx.{each}" for each in names)
    return _MOVE.format(
        name=name,
        says=says,
        given="dim: int, " * (len(names) > 1),
        kept=passed,
        values=", ".join(names),
        body=body,
        nones=", ".join(["None"] * len(names)),
        back=back,
        passed=passed,
    )


_SCATTER = """\
shares = [share.contiguous() for share in tensor.chunk(group.size(), dim)]
        added = torch.empty_like(shares[0])
        dist.reduce_scatter(added, shares, group=group)
        return added"""
_SPLIT = """\
length = tensor.shape[dim] // group.size()
        return tensor.narrow(dim, group.rank() * length, length)"""
_MOVES = (  # the name, what it is, what it makes of a tensor, what its gradient is given to
    (
        "_Copy",
        "The same tensor for work that differs by rank; its gradients are added up.",
        "return tensor.view_as(tensor)",
        "_Add",
    ),
    (
        "_Add",
        "The sum of all ranks' tensors; every rank has the same gradient of it.",
        'return _reduce(tensor, "SUM", group)',
        "_Copy",
    ),
    (
        "_Gather",
        "The shares of all ranks, for work that differs by rank.",
        "return _gather(tensor, dim, group)",
        "_Scatter",
    ),
    (
        "_Scatter",
        "The sum of all ranks' tensors, of which each rank gets its share.",
        _SCATTER,
        "_Gather",
    ),
    (
        "_Collect",
        "The shares of all ranks, for work that is the same on every rank.",
        "return _gather(tensor, dim, group)",
        "_Split",
    ),
    ("_Split", "A rank's share of a tensor that is the same on every rank.", _SPLIT, "_Collect"),
)
FUNCTIONS = {name: _write_move_class(name, *rest) for name, *rest in _MOVES} | {
    "_Extreme": '''class _Extreme(torch.autograd.Function):
    """The largest or the smallest of all ranks' numbers; ranks that have it share the gradient."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, tensor: Tensor, operation: str, group: dist.ProcessGroup
    ) -> Tensor:
        ctx.group = group
        found = _reduce(tensor, operation, group)
        ctx.save_for_backward(tensor == found)
        return found

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (is_it,) = ctx.saved_tensors
        share = is_it / _reduce(is_it.to(gradient.dtype), "SUM", ctx.group)
        return _Copy.apply(gradient, ctx.group) * share, None, None
''',
    "_gather": '''def _gather(tensor: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """The shares of all ranks, one behind the other."""
    tensor = tensor.contiguous()
    shares = [torch.empty_like(tensor) for _ in range(group.size())]
    dist.all_gather(shares, tensor, group=group)
    return torch.cat(shares, dim)
''',
    "_reduce": '''\
def _reduce(tensor: Tensor, operation: str, group: dist.ProcessGroup) -> Tensor:
    """The sum, or the largest or smallest, of all ranks' tensors; it has no gradient."""
    made = tensor.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(made, getattr(dist.ReduceOp, operation), group)
    return made
''',
}


def to_shards(sharding: Sharding, plans: Sequence[Plan | None], name: str) -> More:
    """What stands behind the plain function; there is a plan for each stage.

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
    parts += [PLACES, SHARE]
    used = {word for word in FUNCTIONS if re.search(rf"\b{word}\b", text)}
    while True:  # each is written with those that it is the gradient of
        more = used | {
            word for word in FUNCTIONS for own in used if re.search(rf"\b{word}\b", FUNCTIONS[own])
        }
        if more == used:
            break
        used = more
    parts += [function for word, function in FUNCTIONS.items() if word in used]
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
    """`all-reduce z (tp): B*D*N/dp; ..`, in elements."""
    return "; ".join(
        f"{each.collective} {each.tensor} ({each.axis}) "
        f"{to_data.to_compact(each.elements.to_expr())}"
        for each in transfers
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
        call = f'_share("{written}", {to_torch.to_python(extent)}, {mesh}, "{axis}")'
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
