"""One rank of a group over gloo: runs generated files, which need torch alone.

    python rank_worker.py FOLDER RANK RANKS

`FOLDER/cases.json` names the cases; what came of them goes to `FOLDER/RANK.json`.
"""

import importlib.util
import json
import os
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 15  # seconds after which a collective gives up
WORDS = {
    "c10d::allreduce_": "all-reduce",
    "c10d::allgather_": "all-gather",
    "c10d::reduce_scatter_": "reduce-scatter",
}


class Counter(TorchDispatchMode):
    """The collectives in a block, with the elements that this rank hands to each."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented
        if func.namespace in {"c10d", "_c10d_functional"}:
            word = WORDS[func._schema.name]
            tensors = args[0] if word == "all-reduce" else args[1]
            tensors = tensors[0] if isinstance(tensors[0], list) else tensors
            self.sent.append([word, sum(tensor.numel() for tensor in tensors)])
        return func(*args, **(kwargs or {}))


def load(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def cut_shard(tensor, places, mesh):
    """Return a rank's shard of a whole tensor."""
    for number, place in enumerate(places):
        if isinstance(place, Shard):
            rank = mesh.get_local_rank(number)
            tensor = tensor.chunk(mesh.size(number), place.dim)[rank]
    return tensor.contiguous()


def as_tuple(made):
    return made if isinstance(made, tuple) else (made,)


def find_error(found, wanted):
    found, wanted = found.detach(), wanted.detach()
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-3))


def run_case(case, folder):
    """Return the errors of results and gradients, and the transfers."""
    module = load(folder / case["file"])
    mesh = init_device_mesh("cpu", tuple(case["mesh"].values()), mesh_dim_names=tuple(case["mesh"]))
    inputs = torch.load(folder / case["inputs"])
    leaves = {n: v.clone().requires_grad_() for n, v in inputs.items() if torch.is_tensor(v)}
    wanted = as_tuple(getattr(module, case["name"])(**{**inputs, **leaves}))
    generator = torch.Generator().manual_seed(1)
    seeds = [torch.randn(e.shape, dtype=e.dtype, generator=generator) for e in wanted]
    torch.autograd.backward(wanted, seeds)
    given = dict(inputs)
    for name in leaves:
        places = module.placements(name, mesh)
        local = cut_shard(inputs[name], places, mesh)
        given[name] = DTensor.from_local(local, mesh, places, run_check=False).requires_grad_()
    function = getattr(module, f"{case['name']}_sharded")
    with Counter() as forward:
        made = as_tuple(function(**given, mesh=mesh))
    pairs = []
    for result, seed in zip(made, seeds, strict=True):
        places = result.placements
        pairs.append(
            DTensor.from_local(cut_shard(seed, places, mesh), mesh, places, run_check=False)
        )
    with Counter() as backward:
        torch.autograd.backward(made, pairs)
    errors = [find_error(m.full_tensor(), w) for m, w in zip(made, wanted, strict=True)]
    errors += [find_error(given[n].grad.full_tensor(), leaf.grad) for n, leaf in leaves.items()]
    whole = {n: v.clone().requires_grad_() for n, v in inputs.items() if torch.is_tensor(v)}
    again = as_tuple(function(**{**inputs, **whole}, mesh=mesh))  # no DTensors, but whole tensors
    torch.autograd.backward(again, pairs)
    errors += [find_error(m.full_tensor(), w) for m, w in zip(again, wanted, strict=True)]
    errors += [find_error(whole[n].grad, leaf.grad) for n, leaf in leaves.items()]
    return {
        "case": case["id"],
        "error": max(errors),
        "dtypes": sorted({str(each.dtype) for each in made}),
        "forward": sorted(forward.sent),
        "backward": sorted(backward.sent),
    }


def open_case(case, folder):
    """The sharded function of a case, called with its inputs over a mesh of one dimension."""
    module = load(folder / case["file"])
    mesh = init_device_mesh("cpu", tuple(case["mesh"].values()), mesh_dim_names=tuple(case["mesh"]))
    inputs = torch.load(folder / case["inputs"])
    return partial(getattr(module, f"{case['name']}_sharded"), **inputs, mesh=mesh)


def run_uneven(case, folder):
    """Return the error for ranks without equal shards."""
    try:
        open_case(case, folder)()
    except ValueError as error:
        return str(error)
    return "nothing"


def run_alone(case, folder):
    """Return the error and the seconds it took after the other ranks have exited."""
    call = open_case(case, folder)
    dist.barrier()
    if dist.get_rank():
        os._exit(3)
    start = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        return [str(error), time.monotonic() - start]
    return ["nothing", time.monotonic() - start]


def main(folder, rank, ranks):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=PATIENCE),
    )
    plan = json.loads((folder / "cases.json").read_text())
    found = {"cases": [run_case(case, folder) for case in plan["cases"]]}
    found["uneven"] = run_uneven(plan["uneven"], folder)
    found["alone"] = run_alone(plan["alone"], folder)
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    os._exit(0)  # a group whose other ranks are gone has nothing to say at its end
