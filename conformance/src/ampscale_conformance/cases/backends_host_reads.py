"""Who looks at arrays on the host, while a step runs on them: counted for torch, and shown by tracing for JAX."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..model.adapter import Adapter, Unsupported


class Watched:
    """
    An adapter whose `step_on_arrays` is watched, and every read of it written to *reads*; everything else is the adapter's own.

    Raises:
        Unsupported: Nobody can watch arrays of its library.
    """

    def __init__(self, adapter: Adapter, reads: list[str]) -> None:
        library = adapter.info.arrays
        if library not in _WATCHES:
            raise Unsupported(_UNWATCHED.get(library, f"nobody watches the host reads of {library} yet"))
        self._adapter = adapter
        self.step_on_arrays = _WATCHES[library](adapter.step_on_arrays, reads)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


_UNWATCHED = {"numpy": "the arrays of NumPy lie in the host's memory, so that nobody can watch them being read"}


def _under_torch(step: Callable[[Any, Any], Any], reads: list[str]) -> Callable[[Any, Any], Any]:
    """Operations whose result or shape depends on values are tagged so; four methods that leave torch are no operations."""
    torch = import_module("torch")
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    methods = [getattr(torch.Tensor, name) for name in ("numpy", "tolist", "__array__", "__dlpack__")]

    class Operations(import_module("torch.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]  # torch is not imported here
        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if tags & set(operation.tags):
                reads.append(str(operation))
            return operation(*args, **(kwargs or {}))

    class Methods(import_module("torch.overrides").TorchFunctionMode):  # type: ignore[misc]  # likewise
        def __torch_function__(self, method: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if method in methods:
                reads.append(method.__name__)
            return method(*args, **(kwargs or {}))

    def watched(handle: Any, tree: Any) -> Any:
        with Operations(), Methods():
            return step(handle, tree)

    return watched


def _under_jax(step: Callable[[Any, Any], Any], reads: list[str]) -> Callable[[Any, Any], Any]:
    """Two steps are traced, the second from a state that is traced too: a traced array cannot be read."""
    jax = import_module("jax")
    names = ("ConcretizationTypeError", "TracerArrayConversionError", "TracerIntegerConversionError")
    read_errors = tuple(getattr(jax.errors, name) for name in names)

    def watched(handle: Any, tree: Any) -> Any:
        def twice(tree: Any) -> Any:
            after, unscaled = step(handle, tree)
            return step(after, unscaled)[1]

        try:
            jax.make_jaxpr(twice)(tree)
        except read_errors as error:
            reads.append(str(error).partition("\n")[0])
        return step(handle, tree)

    return watched


_WATCHES = {"torch": _under_torch, "jax": _under_jax}
