"""Rows of the verbs: each on each library, dtype and shape, and some more."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import ours
from gradients import SCALE, Gradients, floors
from measure import Absent, Contender
from ours import CLIP, FINITE, GLOBAL, NORM, UNSCALE, VERBS, WRITING
from shapes import FEWER, GPT2, LARGE, MANY, ONE_HUGE, RESNET, SHAPES, SMALL, TINY, Shape
from specs import Spec

Contenders = Iterable[Contender | Absent]
DTYPES = ("float32", "float16", "bfloat16")
ODD_SCALE = 49.0  # no power of two, so that no reciprocal is exact
# JAX compiles a program for each contender, verb, dtype and list of shapes, which takes far longer than to run it.
SOME = (LARGE, SMALL, TINY, RESNET)
JAX_SHAPES = {
    "float32": {UNSCALE: (*SHAPES, FEWER), NORM: SHAPES, CLIP: SOME, FINITE: SOME, GLOBAL: SOME},
    "float16": {UNSCALE: SHAPES, NORM: (LARGE,)},
    "bfloat16": {UNSCALE: SHAPES, NORM: (LARGE,)},
}
TWO_THREADS = {"float32": (LARGE, ONE_HUGE, RESNET), "float16": (LARGE,)}


def specs() -> Iterator[Spec]:
    """All of them."""
    for backend in ("numpy", "torch"):
        for verb in VERBS:
            for dtype in DTYPES:
                yield from (_spec(backend, verb, dtype, shape) for shape in SHAPES if shape not in left_out(verb, dtype))
        yield from (_spec(backend, UNSCALE, dtype, LARGE, ODD_SCALE) for dtype in DTYPES)
    for dtype, verbs in JAX_SHAPES.items():
        yield from (_spec("jax", verb, dtype, shape) for verb, shapes in verbs.items() for shape in shapes)
    yield _spec("jax", UNSCALE, "float32", LARGE, ODD_SCALE)
    yield from (_spec("paddle", UNSCALE, "float32", shape) for shape in (LARGE, SMALL, RESNET))
    for verb in (UNSCALE, NORM):
        for dtype, shapes in TWO_THREADS.items():
            yield from (_spec("two-threads", verb, dtype, shape) for shape in shapes)


def left_out(verb: str, dtype: str) -> tuple[Shape, ...]:
    """
    What takes long and tells nothing new: 16 bits in one huge array and in GPT-2, where it is more than to unscale.

    NumPy as people write it needs seconds for each of these rows. 100 x 1M has all of them.
    """
    return () if dtype == "float32" or verb == UNSCALE else (ONE_HUGE, GPT2)


def _spec(section: str, verb: str, dtype: str, shape: Shape, scale: float = SCALE) -> Spec:
    odd = "" if scale == SCALE else f"/scale{scale:g}"
    what = verb if scale == SCALE else f"{verb}, scale {scale:g}"
    build = partial(contenders, section, verb, dtype, shape, scale)
    notes = {"scale": scale if verb in WRITING else 1.0, "threads": 2 if section == "two-threads" else 1}
    return Spec(f"{section}/{verb}/{dtype}/{shape.name}{odd}", section, what, build, dtype, shape.words, notes=notes)


def contenders(section: str, verb: str, dtype: str, shape: Shape, scale: float, quick: bool) -> Contenders:
    gradients = Gradients(shape.quick() if quick else shape, dtype, scale if verb in WRITING else 1.0)
    yield from _sides(section)(verb, gradients)
    if section != "two-threads":
        found = floors(gradients, verb in WRITING)
        yield from (Contender(name, run, kind="floor") for name, run in found.items())


def _sides(section: str) -> Any:
    return {"numpy": _numpy, "torch": _torch, "jax": _jax, "paddle": _paddle, "two-threads": _two_threads}[section]


def _ours(verb: str, gradients: Gradients, tree: Any, scale: Any, name: str = "ampscale") -> Contender:
    return Contender(
        name, ours.call(verb, tree, scale, gradients.max_norm), gradients.refill if verb in WRITING else None, "ours"
    )


def _numpy(verb: str, gradients: Gradients) -> Contenders:
    from rivals import numpy as rivals_numpy

    arrays, scale = gradients.arrays, gradients.scale
    refill = gradients.refill if verb in WRITING else None
    yield _ours(verb, gradients, arrays, np.asarray(scale, np.float32))
    if verb == NORM and gradients.shape.name == MANY.name:
        yield _in_one_array(gradients)
    yield Contender(
        "naive", rivals_numpy.naive(verb, arrays, scale, gradients.max_norm), refill
    )  # after others that have written
    yield Contender("careful", rivals_numpy.careful(verb, arrays, scale, gradients.max_norm), refill)
    yield from _torch_rivals(verb, gradients)


def _in_one_array(gradients: Gradients) -> Contender:
    """As many values in one array: what the number of arrays costs."""
    one = Gradients(Shape("one", "one", ((gradients.shape.values,),)), gradients.dtype.name, gradients.scale)
    call = ours.call(NORM, one.arrays, np.asarray(one.scale, np.float32), one.max_norm)
    return Contender("ampscale, one array", call, one.refill, "ours")


def _torch_rivals(verb: str, gradients: Gradients) -> Contenders:
    try:
        from rivals import torch as rivals_torch
    except ModuleNotFoundError:
        return [Absent("torch", "not installed")]
    return rivals_torch.contenders(verb, gradients.as_torch(), gradients.scale, gradients.max_norm, gradients.refill)


def _torch(verb: str, gradients: Gradients) -> Contenders:
    import torch
    from rivals import torch as rivals_torch

    from ampscale.frameworks.torch import GradScaler

    tensors = gradients.as_torch()
    yield _ours(verb, gradients, tensors, torch.tensor(gradients.scale))
    if verb == UNSCALE and tensors[0].dtype != torch.float16:
        scaler, optimizer = rivals_torch.scaler_of(GradScaler, gradients.scale), rivals_torch.holding(tensors)
        yield Contender("ampscale, GradScaler", lambda: scaler.unscale_(optimizer), _resetting(scaler, gradients), "ours")
    yield from rivals_torch.contenders(verb, tensors, gradients.scale, gradients.max_norm, gradients.refill)


def _resetting(scaler: Any, gradients: Gradients) -> Any:
    """Puts the gradients back, and the scaler to where it was before it had unscaled anything."""
    fresh = {name: value for name, value in vars(scaler).items() if isinstance(value, dict)}

    def reset() -> None:
        gradients.refill()
        vars(scaler).update({name: type(value)() for name, value in fresh.items()})

    return reset


def _jax(verb: str, gradients: Gradients) -> Contenders:
    import jax.numpy as jnp
    from rivals import jax as rivals_jax

    tree = [jnp.array(array) for array in gradients.arrays]
    return rivals_jax.contenders(verb, tree, jnp.asarray(gradients.scale, jnp.float32), gradients.max_norm)


def _paddle(verb: str, gradients: Gradients) -> Contenders:
    yield _ours(verb, gradients, gradients.arrays, np.asarray(gradients.scale, np.float32))
    try:
        from rivals import paddle as rivals_paddle
    except ModuleNotFoundError:
        yield Absent("paddle kernel", "not installed")
        return
    run, refill = rivals_paddle.kernel(gradients.arrays, gradients.scale)
    yield Contender("paddle kernel", run, refill)


def _two_threads(verb: str, gradients: Gradients) -> Contenders:
    """In a process that has two cores; torch, which has a pool of its own, gives the floor too."""
    import torch
    from rivals import torch as rivals_torch

    tensors, one = gradients.as_torch(), torch.ones(())
    words = [torch.from_numpy(array) for array in gradients.as_float32()]
    yield _ours(verb, gradients, gradients.arrays, np.asarray(gradients.scale, np.float32))
    yield _ours(verb, gradients, tensors, torch.tensor(gradients.scale), "ampscale, torch")
    yield from rivals_torch.contenders(verb, tensors, gradients.scale, gradients.max_norm, gradients.refill)
    yield Contender("multiply by torch", lambda: [word.mul_(one) for word in words], kind="floor")
