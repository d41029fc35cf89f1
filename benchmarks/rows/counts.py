"""
Rows of counts: the number of operations that a step launches, and the number of its device-to-host reads.

The step is the scaler's part: scale the loss, unscale and check 100 gradients of 1,000 values, and update the scale.

torch    operators that reach the dispatcher; a foreach function counts as one. Reads are calls of `_local_scalar_dense`, which
         `bool`, `float` and `item` use.
JAX      programs that are executed, counted by JAX's profiler. Reads are accesses to an array's value from Python.
NumPy    calls of NumPy's functions and of arrays' methods from ampscale's modules. Operators between arrays, views and
         assignments are not counted. NumPy's arrays are on the host, so there are no reads.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import array_api_compat.numpy
import numpy as np
from gradients import SCALE, Gradients
from measure import Absent, Cell
from shapes import SMALL
from specs import Spec

import ampscale
from ampscale import LossScaleRule

Tally = tuple[int, int]  # launches, host reads


def specs() -> Iterator[Spec]:
    """Yield the rows of launches and of reads for each library."""
    libraries = {"numpy": ("step", numpy_steps), "torch": ("step", torch_steps), "jax": ("jax", jax_steps)}
    for library, (section, steps) in libraries.items():
        for index, (name, label) in enumerate((("launches", "launches of a step"), ("host-reads", "host reads of a step"))):
            build = partial(cells, steps, index)
            yield Spec(f"{name}/{library}", section, f"{label}, {library}", build, "float32", SMALL.description, "count")


def cells(steps: Callable[[bool], Iterator[tuple[str, str, Tally] | Absent]], index: int, quick: bool) -> Iterator[Cell]:
    """Yield for each step the item *index* of its tally: launches or host reads."""
    for step in steps(quick):
        if isinstance(step, Absent):
            yield {"name": step.name, "absent": step.why}
        else:
            name, kind, tally = step
            yield {"name": name, "kind": kind, "value": tally[index]}


def functional(tree: Any, loss: Any, state: Any, in_place: bool) -> Callable[[], Any]:
    """Return a step that calls ampscale's functions and `LossScaleRule.update`."""
    rule = LossScaleRule()
    out = {"out": tree} if in_place else {}

    def step() -> Any:
        scaled = ampscale.scale(loss, state.scale)
        unscaled, finite = ampscale.unscale_and_check(tree, state.scale, **out)
        return scaled, unscaled, rule.update(state, finite)

    return step


def numpy_steps(quick: bool) -> Iterator[tuple[str, str, Tally] | Absent]:
    """Yield the counts of ampscale's functions on NumPy arrays, in place."""
    gradients = Gradients(SMALL.shortened(quick), "float32")
    step = functional(gradients.arrays, np.ones((), np.float32), LossScaleRule().init(), in_place=True)
    step()
    yield "ampscale", "ours", (numpy_calls(step), 0)


def numpy_calls(step: Callable[[], object]) -> int:
    """Return the number of calls of NumPy from ampscale's modules during *step*."""
    calls: list[str] = []  # names of the called functions

    def profile(_: Any, event: str, called: Any) -> None:
        if event == "c_call" and isinstance(getattr(called, "__self__", None), np.ndarray):
            calls.append(called.__name__)

    with mock.patch.dict(vars(array_api_compat.numpy), _counted(vars(array_api_compat.numpy), calls)):
        ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == "ampscale"]
        patches = [mock.patch.dict(vars(module), _counted(vars(module), calls)) for module in ours]
        for patch in patches:
            patch.start()
        sys.setprofile(profile)
        try:
            step()
        finally:
            sys.setprofile(None)
            for patch in reversed(patches):
                patch.stop()
    return len(calls)


def _counted(names: dict[str, Any], calls: list[str]) -> dict[str, Any]:
    """Return the entries of *names* that are NumPy or its functions, each in a wrapper that adds the calls to *calls*."""
    return {name: _Counted(value, calls) for name, value in names.items() if value is np or _is_function(value)}


def _is_function(value: Any) -> bool:
    """Return True for a function of NumPy: a ufunc, one that other array types can override, or a built-in one."""
    return isinstance(value, np.ufunc) or type(value).__name__ == "_ArrayFunctionDispatcher" or type(value) is type(np.frombuffer)


class _Counted:
    """Wrapper of NumPy or of one of its functions, which adds its calls and those of its attributes to *calls*."""

    def __init__(self, wrapped: Any, calls: list[str]) -> None:
        self._wrapped, self._calls = wrapped, calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls.append(self._wrapped.__name__)
        return self._wrapped(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        return _Counted(value, self._calls) if _is_function(value) else value


def torch_steps(quick: bool) -> Iterator[tuple[str, str, Tally] | Absent]:
    """Yield the counts of ampscale's functions on tensors, and of each scaler with an optimizer that does nothing."""
    import torch

    from rows.steps import scaler_step, scalers

    gradients = Gradients(SMALL.shortened(quick), "float32")
    tensors = gradients.as_torch()
    state = LossScaleRule().init(like=torch.ones(()))
    yield "ampscale, functions", "ours", torch_tally(functional(tensors, torch.ones(()), state, in_place=True))
    for name, kind, make in scalers():
        gradients.refill()
        yield f"{name}, GradScaler", kind, torch_tally(scaler_step(make, tensors))


def torch_tally(step: Callable[[], object]) -> Tally:
    """Return the number of operators that the second call of *step* dispatches, and the number of its host reads."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    names: list[str] = []

    class Recording(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    step()
    with Recording():
        step()
    reads = names.count(torch.ops.aten._local_scalar_dense.__name__)
    return len(names) - reads, reads


def jax_steps(quick: bool) -> Iterator[tuple[str, str, Tally] | Absent]:
    """Yield the counts of ampscale's functions, eager and in one jitted function, and of jitted steps with jmp and flax."""
    import jax
    import jax.numpy as jnp
    from others import jax as others_jax
    from ours import UNSCALE

    gradients = Gradients(SMALL.shortened(quick), "float32")
    tree = [jnp.array(array) for array in gradients.arrays]
    loss, scale = jnp.ones(()), jnp.asarray(SCALE, jnp.float32)
    state = LossScaleRule().init(like=loss)
    yield "ampscale, functions", "ours", jax_tally(functional(tree, loss, state, in_place=False))
    jitted = jax.jit(lambda tree, loss, state: functional(tree, loss, state, in_place=False)())
    yield "ampscale, jitted", "ours", jax_tally(lambda: jitted(tree, loss, state))
    if others_jax.jmp is None:
        yield from (Absent(name, others_jax.NOT_INSTALLED) for name in ("jmp, jitted", "flax, jitted"))
        return

    def jmp_step(tree: Any, loss: Any, scale: Any) -> Any:
        scaler = others_jax.jmp.DynamicLossScale(scale)
        unscaled = scaler.unscale(tree)
        return scaler.scale(loss), unscaled, scaler.adjust(others_jax.jmp.all_finite(unscaled))

    jmp_jitted = jax.jit(jmp_step)
    yield "jmp, jitted", "other", jax_tally(lambda: jmp_jitted(tree, loss, scale))
    flax_jitted = jax.jit(others_jax._flax(UNSCALE))
    yield "flax, jitted", "other", jax_tally(lambda: flax_jitted(tree, scale))


def jax_tally(step: Callable[[], object]) -> Tally:
    """Return the number of programs that the second call of *step* executes, and the number of array values that it reads."""
    import jax

    jax.block_until_ready(step())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(step())
        (path,) = Path(folder).rglob("*.xplane.pb")
        profile = jax.profiler.ProfileData.from_file(str(path))
        names = [event.name for plane in profile.planes for line in plane.lines for event in line.events]
    return sum("::ExecuteHelper" in name for name in names), sum(name.endswith(" _value") for name in names)
