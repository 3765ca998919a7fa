"""The judge of a sharded function: all ranks in one process, a thread each, against one call.

The file's text is executed as it is; only the collectives and the passage from DTensors to shares
stand in for torch's own. The results, put together, are compared with those of the plain function,
and so are the gradients. What is handed to the collectives is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from threading import Barrier, BrokenBarrierError, Lock, Thread
from typing import TYPE_CHECKING, Any

from derive.ir.nodes import Size
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import walk
from derive.judge.compare import (
    Judgement,
    compare_values,
    copy_values,
    load_function,
    raise_unless_agrees,
)
from derive.judge.samples import choose_sizes, draw_inputs, is_possible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.ir.nodes import Expr, System

PATIENCE = 60.0  # seconds that a rank waits for the others, which may have failed
WORLDS = (2, 3)  # ranks of each dimension


@dataclass(frozen=True, slots=True)
class Shares:
    """What the judge has to know of a sharded function: its extents that are cut, and over what."""

    extents: tuple[tuple[Expr, str], ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """The dimensions of the mesh."""
        return tuple(dict.fromkeys(axis for _, axis in self.extents))


@dataclass
class Record:
    """What one rank has handed to the collectives: (collective, elements), in order."""

    sent: list[tuple[str, int]] = field(default_factory=list)


class _World:
    """The ranks of a mesh, and what they exchange."""

    def __init__(self, axes: Mapping[str, int]) -> None:
        self.axes = dict(axes)
        self.places = list(product(*(range(ranks) for ranks in axes.values())))
        self.barriers: dict[tuple[object, ...], Barrier] = {}
        self.boards: dict[tuple[object, ...], dict[int, Any]] = {}
        self.lock = Lock()

    def find(self, key: tuple[object, ...], ranks: int) -> tuple[Barrier, dict[int, Any]]:
        """The meeting point of a group, and its board."""
        with self.lock:
            barrier = self.barriers.setdefault(key, Barrier(ranks, timeout=PATIENCE))
            return barrier, self.boards.setdefault(key, {})

    def stop(self) -> None:
        """Let nobody wait for a rank that has failed."""
        with self.lock:
            for barrier in self.barriers.values():
                barrier.abort()


@dataclass(frozen=True)
class _Group:
    """The ranks that differ in one dimension, as one of them sees them."""

    world: _World
    axis: str
    place: tuple[int, ...]
    record: Record

    def rank(self) -> int:
        """The position in the dimension."""
        return self.place[list(self.world.axes).index(self.axis)]

    def size(self) -> int:
        """The number of ranks in the dimension."""
        return self.world.axes[self.axis]

    def exchange(self, word: str, tensor: Any) -> list[Any]:
        """What every rank of the group has handed in, in order."""
        number = list(self.world.axes).index(self.axis)
        others = tuple(p for k, p in enumerate(self.place) if k != number)
        barrier, board = self.world.find((self.axis, others), self.size())
        self.record.sent.append((word, tensor.numel()))
        board[self.rank()] = (word, tensor.detach().clone())
        barrier.wait()
        found = [board[rank] for rank in range(self.size())]
        barrier.wait()
        words, tensors = zip(*found, strict=True)
        if len({*words}) > 1 or len({(each.shape, each.dtype) for each in tensors}) > 1:
            raise RuntimeError(f"the ranks of {self.axis} do not do the same: {found}")
        return list(tensors)


class _Collectives:
    """torch's functional collectives, among threads."""

    @staticmethod
    def wait_tensor(tensor: Any) -> Any:
        return tensor

    @staticmethod
    def all_reduce(tensor: Any, word: str, group: _Group) -> Any:
        import torch

        stacked = torch.stack(group.exchange("all-reduce", tensor))
        if word == "sum":
            return stacked.sum(0)
        return stacked.amax(0) if word == "max" else stacked.amin(0)

    @staticmethod
    def all_gather_tensor(tensor: Any, dim: int, group: _Group) -> Any:
        import torch

        return torch.cat(group.exchange("all-gather", tensor), dim)

    @staticmethod
    def reduce_scatter_tensor(tensor: Any, word: str, dim: int, group: _Group) -> Any:
        import torch

        added = torch.stack(group.exchange("reduce-scatter", tensor)).sum(0)
        return added.chunk(group.size(), dim)[group.rank()]


@dataclass(frozen=True)
class _Mesh:
    """A mesh as one rank sees it."""

    world: _World
    place: tuple[int, ...]
    record: Record

    @property
    def mesh_dim_names(self) -> tuple[str, ...]:
        return tuple(self.world.axes)

    def size(self, number: int) -> int:
        return list(self.world.axes.values())[number]

    def get_group(self, axis: str) -> _Group:
        return _Group(self.world, axis, self.place, self.record)


def judge_ranks(
    source: str, name: str, system: System, shares: Shares, count: int = 2
) -> Judgement:
    """The judgement of a file's sharded function; DeriveError where it does not agree."""
    judged: list[Mapping[str, int]] = []
    worst = 0.0
    for number, sizes in enumerate(choose_sizes(system, count=count)):
        ranks = WORLDS[number % len(WORLDS)]
        fitting = fit_sizes(system, sizes, shares, ranks)
        if fitting is None:
            continue
        judged.append(fitting)
        off, where, _ = run_ranks(source, name, system, shares, fitting, ranks, number)
        worst = max(worst, off)
        if where:
            at = ", ".join(f"{size}={extent}" for size, extent in fitting.items())
            judgement = Judgement(False, tuple(judged), worst, f"{where}, at {at}")
            raise_unless_agrees(judgement, f"{name}_sharded over {ranks} ranks")
    return Judgement(True, tuple(judged), worst)


def fit_sizes(
    system: System, sizes: Mapping[str, int], shares: Shares, ranks: int
) -> dict[str, int] | None:
    """Sizes near these at which every extent that is cut is a multiple; None where none is met."""
    found = dict(sizes)
    whole = [extent for extent, _ in shares.extents if isinstance(extent, Size)]
    for extent in dict.fromkeys(whole):
        assert isinstance(extent, Size)
        found[extent.name] *= ranks
    free = dict.fromkeys(
        part.name
        for extent, _ in shares.extents
        for part in walk(extent)
        if isinstance(part, Size) and extent not in whole and part not in whole
    )
    for more in product(range(ranks + 1), repeat=min(len(free), 4)):
        tried = found | {n: found[n] + k for n, k in zip(free, more, strict=False)}
        if all(evaluate_extent(e, tried) % ranks == 0 for e, _ in shares.extents):
            if is_possible(system, tried):
                return tried
    return None


def run_ranks(  # noqa: PLR0913, PLR0917 - where, what, and how many
    source: str,
    name: str,
    system: System,
    shares: Shares,
    sizes: Mapping[str, int],
    ranks: int,
    seed: int,
) -> tuple[float, str, tuple[Record, Record]]:
    """How far off the ranks are, the first difference, and what rank 0 sent forward and backward."""
    inputs = draw_inputs(system, sizes, seed)
    plain = load_function(source, name)
    seeds: list[Any] = []
    wanted, pulled = _call(plain, inputs, seeds)
    world = _World(dict.fromkeys(shares.axes, ranks))
    module: dict[str, Any] = {"__name__": f"derive_ranks_{name}"}
    exec(compile(source, f"<{name}.py>", "exec"), module)  # our own generated text
    table = module["PLACEMENTS"]
    module["collectives"] = _Collectives

    def share(tensor: Any, key: str, mesh: _Mesh) -> Any:
        for axis, placement in table[key].items():
            rank = mesh.get_group(axis).rank()
            tensor = tensor.chunk(world.axes[axis], placement.dim)[rank]
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    results = [tensor.name for tensor in system.results]
    leaves: dict[tuple[int, ...], dict[str, Any]] = {place: {} for place in world.places}
    records = {place: (Record(), Record()) for place in world.places}
    found: dict[tuple[int, ...], list[Any]] = {}
    failed: list[BaseException] = []

    def take(tensor: Any, key: str, mesh: _Mesh) -> Any:
        leaves[mesh.place][key] = share(tensor, key, mesh)
        return leaves[mesh.place][key]

    module["_take"] = take
    module["_give"] = lambda tensor, _, __: tensor

    def work(place: tuple[int, ...]) -> None:
        try:
            mesh = _Mesh(world, place, records[place][0])
            given = copy_values(inputs)
            for value in given.values():
                if hasattr(value, "is_floating_point") and value.is_floating_point():
                    value.requires_grad_()
            made = module[f"{name}_sharded"](**given, mesh=mesh)
            made = list(made) if isinstance(made, tuple) else [made]
            found[place] = [each.detach() for each in made]
            ahead = len(records[place][0].sent)
            pairs = [
                (each, share(seed, key, mesh))
                for each, seed, key in zip(made, seeds, results, strict=True)
                if each.requires_grad
            ]
            own = [leaf for leaf in leaves[place].values() if leaf.requires_grad]
            if pairs and own:
                import torch

                ends, starts = zip(*pairs, strict=True)
                gradients = torch.autograd.grad(ends, own, starts, allow_unused=True)
                for leaf, gradient in zip(own, gradients, strict=True):
                    leaf.grad = gradient
            records[place][1].sent += records[place][0].sent[ahead:]
            del records[place][0].sent[ahead:]
        except BaseException as error:
            failed.append(error)
            world.stop()

    threads = [Thread(target=work, args=(place,), daemon=True) for place in world.places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = world.places[0]
    real = [error for error in failed if not isinstance(error, BrokenBarrierError)]
    if failed:
        error = (real or failed)[0]
        return float("inf"), f"a rank raises {type(error).__name__}: {error}", records[first]

    def join(key: str, shares_of: Mapping[tuple[int, ...], Any]) -> tuple[Any, str]:
        return _join(table[key], world, shares_of, key)

    worst = 0.0
    for number, (key, value) in enumerate(zip(results, wanted, strict=True)):
        whole, said = join(key, {place: made[number] for place, made in found.items()})
        off, where = (0.0, said) if said else compare_values(key, whole, value)
        worst = max(worst, off)
        if where:
            return worst, where, records[first]
    for key, value in pulled.items():
        own_shares = {p: leaves[p][key].grad for p in world.places}
        if value is None and all(each is None for each in own_shares.values()):
            continue
        zeros = {p: leaves[p][key].new_zeros(leaves[p][key].shape) for p in world.places}
        filled = {p: zeros[p] if g is None else g for p, g in own_shares.items()}
        whole, said = join(key, filled)
        value = whole.new_zeros(whole.shape) if value is None else value  # noqa: PLW2901
        off, where = (0.0, said) if said else compare_values(f"the gradient of {key}", whole, value)
        worst = max(worst, off)
        if where:
            return worst, where, records[first]
    return worst, "", records[first]


def _call(
    function: Callable[..., Any], inputs: Mapping[str, Any], seeds: list[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The results of one call, and its gradients; the seeds that were drawn go into the list."""
    import torch

    given = copy_values(inputs)
    leaves = {}
    for key, value in given.items():
        if hasattr(value, "is_floating_point") and value.is_floating_point():
            leaves[key] = value.requires_grad_()
    made = function(**given)
    made = list(made) if isinstance(made, tuple) else [made]
    generator = torch.Generator().manual_seed(1)
    pairs = []
    for each in made:
        dtype = each.dtype if each.is_floating_point() else torch.float64
        seeds.append(torch.randn(each.shape, dtype=dtype, generator=generator))
        pairs += [(each, seeds[-1])] * each.requires_grad
    gradients: Sequence[Any] = [None] * len(leaves)
    if pairs and leaves:
        ends, starts = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(ends, list(leaves.values()), starts, allow_unused=True)
    return [each.detach() for each in made], dict(zip(leaves, gradients, strict=True))


def _join(
    cut: Mapping[str, Any], world: _World, shares: Mapping[tuple[int, ...], Any], key: str
) -> tuple[Any, str]:
    """The whole tensor of its shares; in words where ranks that should have the same do not."""
    import torch

    axes = list(world.axes)
    parts = dict(shares)
    for number in reversed(range(len(axes))):
        axis = axes[number]
        joined: dict[tuple[int, ...], Any] = {}
        for place in {place[:number] for place in parts}:
            row = [parts[*place, rank] for rank in range(world.axes[axis])]
            if axis in cut:
                joined[place] = torch.cat(row, cut[axis].dim)
                continue
            off = max((compare_values(key, each, row[0])[0] for each in row), default=0.0)
            if off > 1e-9:
                return row[0], f"the ranks of {axis} have not the same {key}"
            joined[place] = row[0]
        parts = joined
    return parts[()], ""

