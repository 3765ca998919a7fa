"""The door of torch: the library, loaded when it is first used, and each of its internals we use.

Torch promises its documented names alone. All else that derive reads of it is a row of INTERNALS,
with what derive expects of it; tests/test_libraries.py tries each row with the torch at hand.
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
        """A library by its name; its functions are read of it at the time that they are used."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            found = getattr(sys.modules.get(self._name) or import_module(self._name), name)
            if isinstance(found, type) or not callable(found):  # not patched by others
                self.__dict__[name] = found
            return found

    torch = _Library("torch")


NUMPY = "torch._numpy"  # torch's own NumPy, which code for NumPy is given
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
    """The internals by our names, each read of the torch at hand when it is first used."""

    def __getattr__(self, name: str) -> Any:
        """One of them; RuntimeError where this torch lacks it."""
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
    """Floats for which no type is asked are of this type in here."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_mode(act: Callable[[Any, Any, Any], Any], *, of_operations: bool = False) -> Any:
    """A mode of torch in which `act`, of a function and its arguments, makes each call.

    With `of_operations` the calls are those of the operations that functions are made of.
    """
    from torch.overrides import TorchFunctionMode

    def meet(_: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return act(function, args, dict(kwargs or {}))

    base = internals.DispatchMode if of_operations else TorchFunctionMode
    place = "__torch_dispatch__" if of_operations else "__torch_function__"
    # To be skipped by the compiler loads all of it, which takes longer than a check.
    own = {place: meet, "_should_skip_dynamo": classmethod(lambda _: False)}
    return type("Mode", (base,), own)()


# Modules whose functions have bodies in Python, and the questions by which these hand over a call.
BODIES = ("torch.nn.functional", "torch.functional", "torch._tensor")
_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


@contextmanager
def open_functional() -> Iterator[None]:
    """In here functions with bodies in Python run, and function modes see the calls in them."""
    from unittest.mock import patch

    with ExitStack() as stack:
        for home, name in product(map(import_module, BODIES), _QUESTIONS):
            if hasattr(home, name):
                stack.enter_context(patch.object(home, name, lambda *_: False))
        yield


@contextmanager
def enable_autograd() -> Iterator[None]:
    """Autograd is on in here, within an operation too, where dispatch has passed it already."""
    keys = internals.keys
    excluded = keys._dispatch_tls_local_exclude_set()
    for key in (keys.DispatchKey.AutogradFunctionality, keys.DispatchKey.ADInplaceOrView):
        excluded = excluded.remove(key)
    included = keys._dispatch_tls_local_include_set()
    with keys._ForceDispatchKeyGuard(included, excluded), torch.enable_grad():
        yield


def find_uncompiled(code: Any) -> Any:
    """The function or module that torch.compile was given, and all else as it is."""
    return getattr(code, "_orig_mod", getattr(code, "_torchdynamo_orig_callable", code))
