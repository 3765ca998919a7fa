"""Torch, loaded when it is first used, and those of its internals that derive uses.

Torch guarantees only its documented names. Every other name is a row of INTERNALS, with the
behaviour that derive expects; tests/test_libraries.py tests each row with the installed torch.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch  # noqa: PLC0414 - whoever reads it here gets its types
else:

    class _Library:
        """A stand-in for a library, imported at first use; functions are looked up at each use."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            found = getattr(sys.modules.get(self._name) or import_module(self._name), name)
            if isinstance(found, type) or not callable(found):  # not patched by others
                self.__dict__[name] = found
            return found

    torch = _Library("torch")


NUMPY = "torch._numpy"  # torch's own NumPy, under which code for NumPy runs
# our name: module, attribute, and the behaviour that derive expects
INTERNALS = {
    # Modes and classes of tensors.
    "DisableTorchFunction": ("torch._C:DisableTorchFunction", "turns function modes off"),
    "no_torch_function": ("torch._C:_disabled_torch_function_impl", "a class without functions"),
    "DispatchMode": ("torch.utils._python_dispatch:TorchDispatchMode", "sees operations"),
    "no_dispatch": ("torch.utils._mode_utils:no_dispatch", "turns classes of tensors off"),
    "make_wrapper": ("torch:Tensor._make_wrapper_subclass", "a tensor without memory"),
    "is_wrapped": ("torch._C:_functorch.is_functorch_wrapped_tensor", "whether vmap holds it"),
    "unwrap": ("torch._C:_functorch.get_unwrapped", "the tensor that vmap or grad holds"),
    "NormBase": ("torch.nn.modules.batchnorm:_NormBase", "norms with running values"),
    # Operations and their parts.
    "safe_softmax": ("torch:_safe_softmax", "rows of -inf alone give zeros"),
    "decompositions": ("torch._decomp:decomposition_table", "operations as simpler operations"),
    "keys": ("torch._C", "sets of dispatch keys, and a guard that exchanges them"),
    "pytree": ("torch.utils._pytree", "nested containers as flat lists"),
    "numpy": (NUMPY, "NumPy's functions over tensors, and its ndarray"),
    # The compiler.
    "inductor": ("torch._inductor:config", "the number of its processes"),
}


class _Internals:
    """The internals by our names, each looked up in the installed torch at its first use."""

    def __getattr__(self, name: str) -> Any:
        """The internal of this name; RuntimeError if the installed torch lacks it."""
        return _find_internal(*INTERNALS[name])


@lru_cache(maxsize=64)
def _find_internal(place: str, expects: str) -> Any:
    """The object at a dotted place of the installed torch."""
    module, _, path = place.partition(":")
    try:
        found = import_module(module)
        for part in path.split(".") if path else ():
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        says = f"torch {torch.__version__} lacks {place}, which derive needs: {expects}"
        raise RuntimeError(says) from error
    return found


internals = _Internals()


@contextmanager
def by_default(dtype: Any) -> Iterator[None]:
    """Set torch's default float type within the context."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_mode(act: Callable[[Any, Any, Any], Any], *, of_operations: bool = False) -> Any:
    """A mode of torch in which `act(function, args, kwargs)` makes each call.

    With `of_operations` it makes the calls of the operations below the functions instead.
    """
    from torch.overrides import TorchFunctionMode

    def meet(_: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return act(function, args, dict(kwargs or {}))

    base = internals.DispatchMode if of_operations else TorchFunctionMode
    place = "__torch_dispatch__" if of_operations else "__torch_function__"
    # Having the compiler skip the mode would load it, which takes longer than a check.
    own = {place: meet, "_should_skip_dynamo": classmethod(lambda _: False)}
    return type("Mode", (base,), own)()


# Modules whose functions have bodies in Python, and the checks by which these call a mode instead.
BODIES = ("torch.nn.functional", "torch.functional", "torch._tensor")
_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


@contextmanager
def open_functional() -> Iterator[None]:
    """Run Python bodies of torch functions within the context: modes see the calls inside."""
    from unittest.mock import patch

    with ExitStack() as stack:
        for home, name in product(map(import_module, BODIES), _QUESTIONS):
            if hasattr(home, name):
                stack.enter_context(patch.object(home, name, lambda *_: False))
        yield


@contextmanager
def enable_autograd() -> Iterator[None]:
    """Turn autograd on within the context, even inside an operation, which runs below autograd."""
    keys = internals.keys
    excluded = keys._dispatch_tls_local_exclude_set()
    for key in (keys.DispatchKey.AutogradFunctionality, keys.DispatchKey.ADInplaceOrView):
        excluded = excluded.remove(key)
    included = keys._dispatch_tls_local_include_set()
    with keys._ForceDispatchKeyGuard(included, excluded), torch.enable_grad():
        yield


def find_uncompiled(code: Any) -> Any:
    """The function or module inside a wrapper of torch.compile; anything else unchanged."""
    return getattr(code, "_orig_mod", getattr(code, "_torchdynamo_orig_callable", code))
