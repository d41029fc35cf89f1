"""Detection of host reads during a step on arrays: counted on torch, and found by jit tracing on JAX."""

import re
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..model.adapter import Adapter, Unsupported


class Observed:
    """
    Adapter whose `step_on_arrays` appends each host read to *reads*; all other methods are unchanged.

    Raises:
        Unsupported: Host reads of this array library cannot be observed.
    """

    def __init__(self, adapter: Adapter, reads: list[str]) -> None:
        library = adapter.info.arrays
        if library == "numpy":
            raise Unsupported("NumPy arrays are in host memory, so host reads cannot be observed")
        if library not in _OBSERVERS:
            raise Unsupported(f"host reads of {library} cannot be observed yet")
        self._adapter = adapter
        step = getattr(adapter, "step_on_arrays", None)
        if callable(step) and find_spec(library):  # otherwise, the calls of the case report what is missing
            self.step_on_arrays = _OBSERVERS[library](step, reads)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


def _under_torch(step: Callable[[Any, Any], Any], reads: list[str]) -> Callable[[Any, Any], Any]:
    """
    Return a step that appends host reads to *reads*.

    These are operations that torch tags as data-dependent, and five methods that it does not dispatch.
    """
    torch = import_module("torch")
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    methods = [getattr(torch.Tensor, name) for name in ("numpy", "tolist", "cpu", "__array__", "__dlpack__")]

    class Operations(import_module("torch.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]  # torch is not imported here
        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if tags & set(operation.tags):
                reads.append(str(operation))
            return operation(*args, **(kwargs or {}))

    class Methods(import_module("torch.overrides").TorchFunctionMode):  # type: ignore[misc]  # torch is not imported here
        def __torch_function__(self, method: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if method in methods:
                reads.append(method.__name__)
            return method(*args, **(kwargs or {}))

    def observed(handle: Any, tree: Any) -> Any:
        with Operations(), Methods():
            return step(handle, tree)

    return observed


def _under_jax(step: Callable[[Any, Any], Any], reads: list[str]) -> Callable[[Any, Any], Any]:
    """
    Return a step that first traces two steps, the second with a traced state, and appends host reads to *reads*.

    While tracing, a host read raises an error, or is a callback.
    """
    jax = import_module("jax")
    names = ("ConcretizationTypeError", "TracerArrayConversionError", "TracerIntegerConversionError")
    read_errors = tuple(getattr(jax.errors, name) for name in names)

    def observed(handle: Any, tree: Any) -> Any:
        def twice(start: Any, tree: Any) -> Any:
            next_handle, unscaled = step(start, tree)
            return step(next_handle, unscaled)[1]

        try:
            jaxpr = jax.make_jaxpr(partial(twice, deepcopy(handle)))(tree)  # a handle that changes in place keeps traced arrays
            reads.extend(re.findall(r"(\w*callback|debug_print)\[", str(jaxpr)))
        except read_errors as error:
            reads.append(str(error).partition("\n")[0])
        return step(handle, tree)

    return observed


_OBSERVERS = {"torch": _under_torch, "jax": _under_jax}
