"""What inductor makes of code: the graph after its own passes, run as it stands.

torch.compile traces the code, joins, fuses and exchanges operations, and prints kernels last. Here
it ends before those: the graph runs operation by operation, so that it can be given residues as
well as floats. Where it gives something else than the code, the graphs between its passes say
which of them did it.
"""

from __future__ import annotations

import os
import threading
import warnings
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

from derive.checker.runs.processes import NO_COMPILER, CannotRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The hooks of inductor's configuration, in order, and what has been done before each.
STAGES = {
    "joint_custom_pre_pass": "the tracing and its passes before the gradients",
    "joint_custom_post_pass": "its joint graph passes, which fuse attention",
    "post_grad_custom_pre_pass": "its choice of what is computed again",
    "post_grad_custom_post_pass": "its passes after the gradients",
}
NEAR = 1e-6  # of the largest element: rounding in double precision


def call_compiled(
    function: Callable[..., Any], args: Any, named: Any, guilty: list[str] | None = None
) -> Any:
    """What the graph of a call gives; CannotRunError for code that makes no graph of its own.

    To `guilty` is added what of inductor's work the result departs in from that of the code.
    """
    import torch
    from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

    leaves, spec = tree_flatten((args, named))
    plain = [_stand_in(each) for each in leaves]
    graph = _Graph(plain)
    failed: list[Exception] = []

    def work() -> None:  # the modes of torch in which code is judged belong to this thread alone
        try:
            own, own_named = tree_unflatten(plain, spec)
            graph.compile(function, own, own_named)
            if guilty is not None and (found := graph.find_guilty(function, own, own_named)):
                guilty.append(found)
        except Exception as error:  # of the compiler
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        error = getattr(failed[0], "inner_exception", failed[0])
        said = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
        raise CannotRunError(f"torch.compile makes no single graph of it: {said}")
    given = [each for each in leaves if isinstance(each, torch.Tensor)]
    if graph.module is None:
        raise CannotRunError("torch.compile makes no graph of it")
    if all(type(each) in {torch.Tensor, torch.nn.Parameter} for each in given):
        return graph.found
    stands = [each for each in plain if isinstance(each, torch.Tensor)]
    pairs = list(zip(stands, given, strict=True))
    made = graph.module(*(_exchange(each, pairs) for each in graph.inputs))
    pairs += zip(graph.outputs, made, strict=True)

    def find(each: Any) -> Any:
        if isinstance(each, torch.Tensor) and not any(one is each for one, _ in pairs):
            raise CannotRunError("torch.compile returns a view that is not in its graph")
        return _exchange(each, pairs)

    return tree_map(find, graph.found)


def _exchange(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """What stands beside a tensor itself, not beside an equal one."""
    return next((other for one, other in pairs if one is value), value)


def _stand_in(value: Any) -> Any:
    """A plain tensor for one of whatever kind."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    if type(value) is torch.Tensor or type(value) is torch.nn.Parameter:
        return value.detach().clone()
    generator = torch.Generator().manual_seed(value.dim())
    return torch.randn(tuple(value.shape), generator=generator, dtype=torch.float64)


@contextmanager
def _enable_compiler() -> Iterator[None]:
    """The compiler is on in here; elsewhere code that asks for it runs as it stands."""
    import torch

    before = os.environ.pop(NO_COMPILER, None)
    try:
        with torch._dynamo.config.patch(disable=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is not None:
            os.environ[NO_COMPILER] = before


@cache
def _load_patterns() -> None:
    """Inductor traces its patterns at the first graph, in the default type of that moment."""
    import torch

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        one = [torch.ones(2)]
        graph = _Graph(one)
        with _enable_compiler():
            torch.compile(torch.neg, backend=graph._make)(*one)
    finally:
        torch.set_default_dtype(default)


class _Graph:
    """The graph of one call, what it was called with, and what it gave."""

    def __init__(self, plain: list[Any]) -> None:
        self.plain = plain
        self.module: Any = None
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.found: Any = None
        self.stages: dict[str, Any] = {}

    def compile(self, function: Callable[..., Any], args: Any, named: Any) -> None:
        import torch
        from torch._inductor import config

        with _enable_compiler():
            import torch._inductor.compile_fx  # warns of itself
        _load_patterns()
        hooks: dict[str, Any] = {name: self._keep(name) for name in STAGES}
        torch._dynamo.reset()
        with config.patch(hooks), _enable_compiler(), torch.no_grad():
            compiled = torch.compile(function, backend=self._make, fullgraph=True, dynamic=False)
            self.found = compiled(*args, **named)

    def find_guilty(self, function: Callable[..., Any], args: Any, named: Any) -> str:
        """After which passes the graph gives what it gives in the end, if the code does not."""
        import torch
        from torch.utils._pytree import tree_leaves

        def is_near(one: Any, other: Any) -> bool:
            pairs = zip(one, other, strict=True)
            return all(torch.allclose(a, b, NEAR, NEAR, equal_nan=True) for a, b in pairs)

        with torch.no_grad():
            wanted = [e for e in tree_leaves(function(*args, **named)) if torch.is_tensor(e)]
            if is_near(wanted, [e for e in tree_leaves(self.found) if torch.is_tensor(e)]):
                return ""
            for stage, says in STAGES.items():
                with suppress(Exception):  # a graph that does not run by itself
                    if is_near(self.stages[stage](*self.inputs), self.outputs):
                        return says
        return "the work of inductor"

    def _keep(self, stage: str) -> Callable[[Any], None]:
        def keep(graph: Any) -> None:
            with suppress(Exception):  # a graph that cannot be copied is not told of
                self.stages[stage] = deepcopy(graph.owning_module)

        return keep

    def _make(self, module: Any, inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(module, inputs, inner_compile=self._end)

    def _end(self, module: Any, inputs: Any, **how: Any) -> Any:
        """What would print kernels: the last passes, and the graph itself."""
        from torch._guards import detect_fake_mode
        from torch._inductor.compile_fx import _recursive_post_grad_passes
        from torch._inductor.virtualized import V

        with V.set_fake_mode(detect_fake_mode(inputs)):
            _recursive_post_grad_passes(module, is_inference=True)
        module.recompile()
        self.module = module

        def run(given: list[Any]) -> Any:
            self.inputs = list(given)
            given.clear()
            self.outputs = list(module(*self.inputs))
            return self.outputs

        run._boxed_call = True  # type: ignore[attr-defined]
        return run
