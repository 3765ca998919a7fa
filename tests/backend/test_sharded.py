"""Sharded functions over gloo, in processes on this machine, against one call in one process."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

import derive
from derive.judge.samples import draw_inputs

SIZES = {
    "multi_head_attention": dict(B=4, N=8, M=12, D=5, H=4, C=3, E=2),
    "relative_attention": dict(B=4, S=8, H=4, D=3),
    "mp2_energy": dict(O=4, V=8),
}
LINE = {
    # cut over the one dimension of a mesh
    "multi_head_attention": ("b=x", "h=x", "m=x", "n=x,m=x"),
    "relative_attention": ("b=x", "h=x", "j=x", "i=x,j=x"),
    "mp2_energy": ("i=x",),
}
GRID = {
    # over two dimensions
    "multi_head_attention": ("b=x,h=y",),
    "relative_attention": ("b=x,j=y",),
    "mp2_energy": ("i=x,a=y",),
}
WORLDS = {2: [(LINE, dict(x=2))], 4: [(LINE, dict(x=4)), (GRID, dict(x=2, y=2))]}
SECONDS = 120  # for all that a group does


@cache
def build(name, cuts):
    return derive.build(name, shard=dict(part.split("=") for part in cuts.split(",")))


def write_case(folder, name, cuts, mesh, sizes):
    """Write the files of a case; return the case and the expected transfers."""
    built = build(name, cuts)
    label = f"{name}_{cuts}_{len(mesh)}_{max(mesh.values())}".replace("=", "_").replace(",", "_")
    (folder / f"{label}.py").write_text(built.source)
    inputs = draw_inputs(built.system, sizes, 1)
    torch.save(inputs, folder / f"{label}_{sizes == SIZES[name]}.pt")
    numbers = {**sizes, **mesh}

    def list_transfers(transfers):
        return sorted([t.collective, built.plan.at_sizes(t.elements, numbers)] for t in transfers)

    case = {"id": label, "name": name, "file": f"{label}.py", "mesh": mesh}
    case["inputs"] = f"{label}_{sizes == SIZES[name]}.pt"
    expected = {"forward": list_transfers(built.sharding.forward)}
    expected["backward"] = list_transfers(built.sharding.backward)
    return case, expected


@pytest.fixture(scope="module", params=sorted(WORLDS))
def group(request, tmp_path_factory):
    """Return the ranks of a group, their reports, and the expected ones for all cases."""
    ranks = request.param
    folder = tmp_path_factory.mktemp(f"ranks{ranks}")
    written = [
        write_case(folder, name, cuts, mesh, SIZES[name])
        for table, mesh in WORLDS[ranks]
        for name, each in table.items()
        for cuts in each
    ]
    plan = {"cases": [case for case, _ in written]}
    uneven = dict(SIZES["relative_attention"], S=3 * ranks - 1)
    plan["uneven"] = write_case(folder, "relative_attention", "j=x", dict(x=ranks), uneven)[0]
    sizes = SIZES["relative_attention"]
    plan["alone"] = write_case(folder, "relative_attention", "j=x", dict(x=ranks), sizes)[0]
    (folder / "cases.json").write_text(json.dumps(plan))
    worker = Path(__file__).with_name("rank_worker.py")
    words = [sys.executable, "-I", str(worker), str(folder)]  # derive is not to be found there
    processes = [
        subprocess.Popen([*words, str(k), str(ranks)], stderr=subprocess.PIPE, text=True)
        for k in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert (folder / "0.json").exists(), said
    return ranks, json.loads((folder / "0.json").read_text()), [e for _, e in written]


@pytest.mark.slow
def test_ranks_compute_what_one_process_computes(group):
    _, found, expected = group
    assert len(found["cases"]) == len(expected)
    for case in found["cases"]:
        assert case["error"] < 1e-12, case
        assert case["dtypes"] == ["torch.float64"], case


@pytest.mark.slow
def test_the_transfers_are_those_of_the_plan(group):
    _, found, expected = group
    for case, wanted in zip(found["cases"], expected, strict=True):
        assert {k: case[k] for k in wanted} == wanted, case["case"]


@pytest.mark.slow
def test_no_equal_shares_are_refused(group):
    ranks, found, _ = group
    assert found["uneven"] == f"S={3 * ranks - 1} is no multiple of the {ranks} ranks of x"


@pytest.mark.slow
def test_a_rank_that_dies_is_an_error_and_no_hang(group):
    _, found, _ = group
    said, seconds = found["alone"]
    assert said != "nothing"
    assert seconds < 30
