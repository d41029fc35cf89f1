"""Rows of ampscale's functions, for each library, dtype and shape."""

import platform
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import ours
from gradients import SCALE, Gradients, baselines
from measure import Absent, Contender
from ours import CLIP, FINITE, GLOBAL, NORM, ONLY_CLIP, OPERATIONS, UNSCALE, UNSCALING, WRITING
from shapes import FEWER, GPT2, HALF, LARGE, MANY, ONE_HUGE, QUARTER, RESNET, SHAPES, SMALL, TINY, Shape
from specs import Spec

from ampscale.backends.cpu import fused

Contenders = Iterable[Contender | Absent]
DTYPES = ("float32", "float16", "bfloat16")
ODD_SCALE = 49.0  # not a power of two, so its reciprocal is not exact
# JAX compiles a program for each contender, operation, dtype and list of shapes, which takes far longer than running it.
SOME = (LARGE, SMALL, TINY, RESNET)
JAX_SHAPES = {
    "float32": {UNSCALE: (*SHAPES, FEWER), NORM: SHAPES, CLIP: SOME, FINITE: SOME, GLOBAL: SOME},
    "float16": {UNSCALE: SHAPES, NORM: (LARGE,)},
    "bfloat16": {UNSCALE: SHAPES, NORM: (LARGE,)},
}
TWO_THREADS = {"float32": (LARGE, ONE_HUGE, RESNET), "float16": (LARGE,)}


def specs() -> Iterator[Spec]:
    """Yield the specifications of all rows."""
    for backend in ("numpy", "torch"):
        for operation in OPERATIONS:
            for dtype in DTYPES:
                yield from (_spec(backend, operation, dtype, shape) for shape in SHAPES if shape not in omitted(operation, dtype))
        yield from (_spec(backend, UNSCALE, dtype, LARGE, ODD_SCALE) for dtype in DTYPES)
        yield _spec(backend, NORM, "float32", LARGE, ODD_SCALE)
        yield _spec(backend, ONLY_CLIP, "float32", LARGE)
    yield from (_spec("numpy", operation, "float32", HALF) for operation in (UNSCALE, NORM))
    yield from (_spec("numpy", NORM, dtype, QUARTER) for dtype in ("float64", "complex64"))
    yield from (_spec("avx2", operation, dtype, LARGE) for operation in (UNSCALE, NORM) for dtype in DTYPES)
    for dtype, functions in JAX_SHAPES.items():
        yield from (_spec("jax", operation, dtype, shape) for operation, shapes in functions.items() for shape in shapes)
    yield _spec("jax", UNSCALE, "float32", LARGE, ODD_SCALE)
    yield from (_spec("paddle", UNSCALE, "float32", shape) for shape in (LARGE, SMALL, RESNET))
    for operation in (UNSCALE, NORM):
        for dtype, shapes in TWO_THREADS.items():
            yield from (_spec("two-threads", operation, dtype, shape) for shape in shapes)


def omitted(operation: str, dtype: str) -> tuple[Shape, ...]:
    """Return the shapes that are not measured, since naive NumPy would take seconds for them."""
    return () if dtype == "float32" or operation == UNSCALE else (ONE_HUGE, GPT2)


def _spec(section: str, operation: str, dtype: str, shape: Shape, scale: float = SCALE) -> Spec:
    name, label = f"{section}/{operation}/{dtype}/{shape.name}", operation
    if scale != SCALE:
        name += f"/scale{scale:g}"
        label += f", scale {scale:g}"
    build = partial(contenders, section, operation, dtype, shape, scale)
    notes = {"scale": scale if operation in UNSCALING else 1.0, "threads": 2 if section == "two-threads" else 1}
    return Spec(name, section, label, build, dtype, shape.description, notes=notes)


def contenders(section: str, operation: str, dtype: str, shape: Shape, scale: float, quick: bool) -> Contenders:
    """Yield the contenders of a row: ampscale, other implementations, and the baselines."""
    gradients = Gradients(shape.shortened(quick), dtype, scale if operation in UNSCALING else 1.0)
    yield from _IMPLEMENTATIONS[section](operation, gradients)
    if section != "two-threads":
        runs = baselines(gradients, operation in WRITING)
        yield from (Contender(name, run, kind="baseline") for name, run in runs.items())


def _ours(operation: str, gradients: Gradients, tree: Any, scale: Any, name: str = "ampscale") -> Contender:
    refill = gradients.refill if operation in WRITING else None
    return Contender(name, ours.call(operation, tree, scale, gradients.max_norm), refill, "ours")


def _numpy(operation: str, gradients: Gradients) -> Contenders:
    from others import numpy as others_numpy

    arrays, scale = gradients.arrays, gradients.scale
    refill = gradients.refill if operation in WRITING else None
    compiled = _ours(operation, gradients, arrays, np.asarray(scale, np.float32))
    yield compiled
    if operation in (UNSCALE, NORM):
        yield Contender("ampscale, without numba", without_numba(compiled.run), refill, "ours")
    if gradients.dtype.name not in DTYPES:
        return
    if operation == NORM and gradients.shape.name == MANY.name:
        yield _in_one_array(gradients)
    if operation != ONLY_CLIP:
        yield Contender("naive", others_numpy.naive(operation, arrays, scale, gradients.max_norm), refill)
        yield Contender("careful", others_numpy.careful(operation, arrays, scale, gradients.max_norm), refill)
    yield from _torch_others(operation, gradients)


def without_numba(run: Callable[[], object]) -> Callable[[], object]:
    """Return a function that calls *run* without the compiled kernels, as if numba were not installed."""
    original = fused.kernel_choice_host
    disabled = fused.KernelChoice(None, "numba is disabled")

    def uncompiled() -> object:
        fused.kernel_choice_host = lambda: disabled
        try:
            return run()
        finally:
            fused.kernel_choice_host = original

    return uncompiled


def _avx2(operation: str, gradients: Gradients) -> Contenders:
    """Yield contenders for a process in which numba uses no instructions beyond AVX2."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return [Absent("ampscale", "the processor has no AVX2")]
    contender = _ours(operation, gradients, gradients.arrays, np.asarray(gradients.scale, np.float32))
    return [contender, *_torch_others(operation, gradients)]


def _in_one_array(gradients: Gradients) -> Contender:
    """Return a contender with all values in one array. Its difference from "ampscale" is the cost of many arrays."""
    joined = Gradients(Shape("one", "one", ((gradients.shape.values,),)), gradients.dtype.name, gradients.scale)
    call = ours.call(NORM, joined.arrays, np.asarray(joined.scale, np.float32), joined.max_norm)
    return Contender("ampscale, one array", call, joined.refill, "ours")


def _torch_others(operation: str, gradients: Gradients) -> Contenders:
    try:
        from others import torch as others_torch
    except ModuleNotFoundError:
        return [Absent("torch", "not installed")]
    return others_torch.contenders(operation, gradients.as_torch(), gradients.scale, gradients.max_norm, gradients.refill)


def _torch(operation: str, gradients: Gradients) -> Contenders:
    import torch
    from others import torch as others_torch

    from ampscale.frameworks.torch import GradScaler

    tensors = gradients.as_torch()
    yield _ours(operation, gradients, tensors, torch.tensor(gradients.scale))
    if operation == UNSCALE and tensors[0].dtype != torch.float16:
        scaler, optimizer = others_torch.scaler_of(GradScaler, gradients.scale), others_torch.optimizer_with(tensors)
        yield Contender("ampscale, GradScaler", lambda: scaler.unscale_(optimizer), _resetting(scaler, gradients), "ours")
    yield from others_torch.contenders(operation, tensors, gradients.scale, gradients.max_norm, gradients.refill)


def _resetting(scaler: Any, gradients: Gradients) -> Callable[[], None]:
    """Return a function that restores the gradients, and clears the scaler's dicts, so that `unscale_` can be called again."""
    dicts = {name: value for name, value in vars(scaler).items() if isinstance(value, dict)}

    def reset() -> None:
        gradients.refill()
        vars(scaler).update({name: type(value)() for name, value in dicts.items()})

    return reset


def _jax(operation: str, gradients: Gradients) -> Contenders:
    import jax.numpy as jnp
    from others import jax as others_jax

    tree = [jnp.array(array) for array in gradients.arrays]
    return others_jax.contenders(operation, tree, jnp.asarray(gradients.scale, jnp.float32), gradients.max_norm)


def _paddle(operation: str, gradients: Gradients) -> Contenders:
    yield _ours(operation, gradients, gradients.arrays, np.asarray(gradients.scale, np.float32))
    try:
        from others import paddle as others_paddle
    except ModuleNotFoundError:
        yield Absent("paddle kernel", "not installed")
        return
    run, refill = others_paddle.kernel(gradients.arrays, gradients.scale)
    yield Contender("paddle kernel", run, refill)


def _two_threads(operation: str, gradients: Gradients) -> Contenders:
    """Yield contenders for a process with two cores. The baseline uses torch, since NumPy multiplies in one thread."""
    import torch
    from others import torch as others_torch

    tensors = gradients.as_torch()
    one = torch.ones(())
    flat = [torch.from_numpy(array) for array in gradients.flat()]
    yield _ours(operation, gradients, gradients.arrays, np.asarray(gradients.scale, np.float32))
    yield _ours(operation, gradients, tensors, torch.tensor(gradients.scale), "ampscale, torch")
    yield from others_torch.contenders(operation, tensors, gradients.scale, gradients.max_norm, gradients.refill)
    yield Contender("multiply by torch", lambda: [tensor.mul_(one) for tensor in flat], kind="baseline")


_IMPLEMENTATIONS = {
    "numpy": _numpy, "avx2": _avx2, "torch": _torch, "jax": _jax, "paddle": _paddle, "two-threads": _two_threads,
}  # fmt: skip
