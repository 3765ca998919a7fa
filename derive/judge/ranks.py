"""The judge of a sharded function: all ranks in one process, a thread each, against one call.

The file's text is executed unchanged; only the collectives and the conversion between DTensors and
shares are replaced. The joined results and gradients are compared with those of the plain function.
The tensors passed to the collectives are recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import product
from math import inf
from threading import Barrier, BrokenBarrierError, Lock, Thread
from typing import Any, TypeAlias
from warnings import catch_warnings, simplefilter

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.walk import walk
from derive.judge.compare import (
    Judgement,
    compare_values,
    copy_values,
    load_function,
    raise_unless_agrees,
    rename_arguments,
    to_tuple,
    write_sizes,
)
from derive.judge.samples import choose_sizes, draw_inputs, is_possible
from derive.libraries import by_default, torch

PATIENCE = 60.0  # seconds that a rank waits for the others, which may have failed
RANK_COUNTS = (2, 3)  # ranks in each dimension


# The sharded extents, each with its mesh dimension.
Shares: TypeAlias = "Sequence[tuple[ir.Expr, str]]"


class _SharedState:
    """The state that the ranks of a mesh share: barriers and exchanged tensors."""

    def __init__(self, axes: Mapping[str, int]) -> None:
        self.axes = dict(axes)
        self.places = list(product(*(range(ranks) for ranks in axes.values())))
        self.barriers: dict[tuple[object, ...], Barrier] = {}
        self.boards: dict[tuple[object, ...], dict[int, Any]] = {}
        self.lock = Lock()

    def stop(self) -> None:
        """Abort all barriers, so that no rank waits for one that has failed."""
        with self.lock:
            for barrier in self.barriers.values():
                barrier.abort()


@dataclass(frozen=True)
class _Mesh:
    """A mesh as one rank sees it."""

    state: _SharedState
    place: tuple[int, ...]
    # The calls of collectives by this rank: (collective, elements), in order.
    sent: list[tuple[str, int]] = field(default_factory=list)

    @property
    def mesh_dim_names(self) -> tuple[str, ...]:
        return tuple(self.state.axes)

    def size(self, number: int) -> int:
        return list(self.state.axes.values())[number]

    def get_group(self, axis: str) -> _Group:
        return _Group(self, self.mesh_dim_names.index(axis))


@dataclass(frozen=True)
class _Group:
    """The ranks that differ in one dimension, as one of them sees them."""

    mesh: _Mesh
    number: int

    def rank(self) -> int:
        """The position in the dimension."""
        return self.mesh.place[self.number]

    def size(self) -> int:
        """The number of ranks in the dimension."""
        return self.mesh.size(self.number)

    def exchange(self, word: str, tensor: Any) -> list[Any]:
        """The tensors of every rank of the group, in order of rank."""
        state, place = self.mesh.state, self.mesh.place
        key = (self.number, place[: self.number], place[self.number + 1 :])
        with state.lock:
            barrier = state.barriers.setdefault(key, Barrier(self.size(), timeout=PATIENCE))
            board = state.boards.setdefault(key, {})
        self.mesh.sent.append((word, tensor.numel()))
        board[self.rank()] = (word, tensor.detach().clone())
        barrier.wait()
        found = [board[rank] for rank in range(self.size())]
        barrier.wait()
        words, tensors = zip(*found, strict=True)
        if len({*words}) > 1 or len({(each.shape, each.dtype) for each in tensors}) > 1:
            axis = self.mesh.mesh_dim_names[self.number]
            raise RuntimeError(f"the ranks of {axis} do not do the same: {found}")
        return list(tensors)


class _Dist:
    """The functions of torch.distributed that a file calls, for threads."""

    class ReduceOp:
        """The operations, as names of the equivalent tensor methods."""

        SUM, MAX, MIN = "sum", "amax", "amin"

    ProcessGroup = _Group

    @staticmethod
    def all_reduce(tensor: Any, operation: str, group: _Group) -> None:
        """Overwrite every rank's tensor by the reduction over all ranks."""
        tensor.copy_(getattr(torch.stack(group.exchange("all-reduce", tensor)), operation)(0))

    @staticmethod
    def all_gather(shares: Sequence[Any], tensor: Any, group: _Group) -> None:
        """Copy the tensors of all ranks to every rank."""
        for share, found in zip(shares, group.exchange("all-gather", tensor), strict=True):
            share.copy_(found)

    @staticmethod
    def reduce_scatter(made: Any, shares: Sequence[Any], group: _Group) -> None:
        """Copy to every rank its share of the sum."""
        stacked = torch.stack(group.exchange("reduce-scatter", torch.stack(list(shares))))
        made.copy_(stacked.sum(0)[group.rank()])


def judge_ranks(source: str, name: str, system: ir.System, shares: Shares) -> Judgement:
    """The judgement of a file's sharded function, if any; DeriveError where it does not agree."""
    judged: list[Mapping[str, int]] = []
    worst = 0.0
    for axes, sizes, inputs in draw_meshes(system, shares) if shares else ():
        judged.append(sizes)
        if len(judged) > 1:  # pass numbers as tensors too, and differentiate them
            numbers = [e.name for e in system.inputs if isinstance(e, ir.ScalarInput)]
            given = {key: torch.tensor(inputs[key], dtype=torch.float64) for key in numbers}
            inputs = {**inputs, **given}  # noqa: PLW2901
        off, where, _ = run_ranks(source, name, system, axes, inputs)
        worst = max(worst, off)
        if where:
            where = f"{where}, at {write_sizes({**sizes, **axes})}"
            judgement = Judgement(False, tuple(judged), worst, where)
            raise_unless_agrees(judgement, f"{name}_sharded")
    return Judgement(True, tuple(judged), worst)


def draw_meshes(
    system: ir.System, shares: Shares, count: int = 2
) -> Iterator[tuple[dict[str, int], dict[str, int], dict[str, Any]]]:
    """Yield the ranks of each dimension, sizes that they divide evenly, and inputs."""
    constants = [Polynomial.of(extent).constant for extent, _ in shares]
    numbers = [int(number) for number in constants if number is not None]
    for number, sizes in enumerate(choose_sizes(system, count=count)):
        for ranks in (*RANK_COUNTS[number % 2 :], *RANK_COUNTS[: number % 2], *numbers, 1):
            found = fit_sizes(system, sizes, shares, ranks)
            if found is not None:
                axes = {axis: ranks for _, axis in shares}
                yield axes, found, draw_inputs(system, found, number)
                break


def fit_sizes(
    system: ir.System, sizes: Mapping[str, int], shares: Shares, ranks: int
) -> dict[str, int] | None:
    """Nearby sizes at which `ranks` divides every sharded extent; None where none is found."""
    found = dict(sizes)
    whole = [extent for extent, _ in shares if isinstance(extent, ir.Size)]
    for extent in dict.fromkeys(whole):
        assert isinstance(extent, ir.Size)
        found[extent.name] *= ranks
    free = dict.fromkeys(
        part.name
        for extent, _ in shares
        for part in walk(extent)
        if isinstance(part, ir.Size) and extent not in whole and part not in whole
    )
    for more in product(range(ranks + 1), repeat=min(len(free), 4)):
        tried = found | {n: found[n] + k for n, k in zip(free, more, strict=False)}
        is_fitting = all(evaluate_extent(e, tried) % ranks == 0 for e, _ in shares)
        if is_fitting and is_possible(system, tried):
            return tried
    return None


@dataclass
class _Run:
    """One call of a sharded function on all ranks, with its results and gradients."""

    name: str
    results: tuple[str, ...]
    module: dict[str, Any]
    inputs: Mapping[str, Any]
    seeds: Sequence[Any]  # the gradients of the results
    meshes: dict[tuple[int, ...], _Mesh]
    leaves: dict[tuple[int, ...], dict[str, Any]] = field(default_factory=dict)
    found: dict[tuple[int, ...], list[Any]] = field(default_factory=dict)
    ahead: dict[tuple[int, ...], int] = field(default_factory=dict)  # calls before the backward
    failed: list[Exception] = field(default_factory=list)

    def take_leaf(self, tensor: Any, key: str, mesh: _Mesh) -> Any:
        """A rank's share of an argument, as a leaf for autograd."""
        own = self.take_share(tensor, key, mesh).detach().clone()
        self.leaves[mesh.place][key] = own.requires_grad_(tensor.requires_grad)
        return own

    def take_share(self, tensor: Any, key: str, mesh: _Mesh) -> Any:
        """A rank's share of a whole tensor, according to the file's PLACEMENTS."""
        for axis, placement in self.module["PLACEMENTS"][key].items():
            group = mesh.get_group(axis)
            tensor = tensor.chunk(group.size(), placement.dim)[group.rank()]
        return tensor

    def work(self, mesh: _Mesh) -> None:
        """Run the function and its backward on one rank."""
        try:
            given, leaves = _ask_gradients(self.inputs)
            self.leaves[mesh.place] = leaves
            function = self.module[f"{self.name}_sharded"]
            *_, keyword = signature(function).parameters
            made = to_tuple(function(**rename_arguments(function, given), **{keyword: mesh}))
            self.found[mesh.place] = [each.detach() for each in made]
            self.ahead[mesh.place] = len(mesh.sent)
            pairs = zip(self.seeds, self.results, strict=True)
            seeds = [self.take_share(seed, key, mesh) for seed, key in pairs]
            own = [leaf for leaf in self.leaves[mesh.place].values() if leaf.requires_grad]
            for leaf, gradient in zip(own, _find_gradients(made, own, seeds), strict=True):
                leaf.grad = gradient
        except Exception as error:  # any error is the judgement
            self.failed.append(error)
            mesh.state.stop()

    def compare(self, wanted: Sequence[Any], pulled: Mapping[str, Any]) -> tuple[float, str]:
        """The worst error of the ranks against one call, and the first difference described."""
        if self.failed:
            real = [error for error in self.failed if not isinstance(error, BrokenBarrierError)]
            error = (real or self.failed)[0]
            return inf, f"a rank raises {type(error).__name__}: {error}"
        pairs = [
            (key, key, {place: made[number] for place, made in self.found.items()}, value)
            for number, (key, value) in enumerate(zip(self.results, wanted, strict=True))
        ]
        for key, value in pulled.items():
            leaves = {place: leaves[key] for place, leaves in self.leaves.items()}
            shares = {
                p: e.new_zeros(e.shape) if e.grad is None else e.grad for p, e in leaves.items()
            }
            pairs.append((key, f"the gradient of {key}", shares, value))
        worst = 0.0
        for key, words, shares, value in pairs:
            whole, difference = self.join_shares(shares, key, words)
            value = whole.new_zeros(whole.shape) if value is None else value  # noqa: PLW2901
            off, where = (inf, difference) if difference else compare_values(words, whole, value)
            worst = max(worst, off)
            if where:
                return worst, where
        return worst, ""

    def join_shares(
        self, shares: Mapping[tuple[int, ...], Any], key: str, words: str
    ) -> tuple[Any, str]:
        """The whole tensor, and a complaint where replicas of one share differ."""
        cut, parts = self.module["PLACEMENTS"].get(key, {}), dict(shares)
        axes = next(iter(self.meshes.values())).state.axes
        for number, (axis, ranks) in reversed(list(enumerate(axes.items()))):
            joined: dict[tuple[int, ...], Any] = {}
            for place in dict.fromkeys(place[:number] for place in parts):
                row = [parts[*place, rank] for rank in range(ranks)]
                is_cut = axis in cut
                joined[place] = torch.cat(row, cut[axis].dim) if is_cut else row[0]
                if not is_cut and any(compare_values(words, each, row[0])[1] for each in row):
                    return row[0], f"the ranks of {axis} have not the same {words}"
            parts = joined
        return parts[()], ""


def run_ranks(
    source: str, name: str, system: ir.System, axes: Mapping[str, int], inputs: Mapping[str, Any]
) -> tuple[float, str, tuple[list[tuple[str, int]], list[tuple[str, int]]]]:
    """The worst error, the first difference, and the calls of rank 0 in forward and backward."""
    with by_default(torch.float64), catch_warnings():
        simplefilter("ignore")  # a variance of one entry is nan, and torch warns
        given, leaves = _ask_gradients(inputs)
        function = load_function(source, name)
        made = to_tuple(function(**rename_arguments(function, given)))
        generator = torch.Generator().manual_seed(1)
        seeds = [torch.randn(e.shape, dtype=torch.float64, generator=generator) for e in made]
        pulled = dict(zip(leaves, _find_gradients(made, list(leaves.values()), seeds), strict=True))
        if not all(bool(each.isfinite().all()) for each in made):
            pulled = {}  # gradients of values that are not finite prove nothing
        state = _SharedState(axes)
        meshes = {place: _Mesh(state, place) for place in state.places}
        module: dict[str, Any] = {"__name__": f"derive_ranks_{name}"}
        exec(compile(source, f"<{name}.py>", "exec"), module)  # our own generated text
        run = _Run(name, tuple(t.name for t in system.results), module, inputs, seeds, meshes)
        module |= {"dist": _Dist, "_take": run.take_leaf, "_give": lambda tensor, *_: tensor}
        threads = [Thread(target=run.work, args=(m,), daemon=True) for m in meshes.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    off, where = run.compare([each.detach() for each in made], pulled)
    first = state.places[0]
    sent, ahead = meshes[first].sent, run.ahead.get(first, 0)
    return off, where, (sent[:ahead], sent[ahead:])


def _ask_gradients(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Copies of the inputs, and those of them that require gradients."""
    given = copy_values(inputs, slopes=True)
    return given, {k: v for k, v in given.items() if getattr(v, "requires_grad", False)}


def _find_gradients(
    made: Sequence[Any], leaves: Sequence[Any], seeds: Sequence[Any]
) -> Sequence[Any]:
    """The gradients of the leaves, None where none reaches them."""
    pairs = [(e, seed) for e, seed in zip(made, seeds, strict=True) if e.requires_grad]
    if not pairs or not leaves:
        return [None] * len(leaves)
    ends, starts = zip(*pairs, strict=True)
    found: Sequence[Any] = torch.autograd.grad(ends, leaves, starts, allow_unused=True)
    return found
