"""
Rows of diagnosis. The baseline does the same without statistics, or without a report, so the ratio shows their cost.

A traced step is jitted by JAX, with SGD on the sum of the squares of all parameters. The baseline returns the next state and the
loss only, so that the compiler removes the rest of the report.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from gradients import Gradients
from measure import Contender
from shapes import HALF, SMALL, Shape, equal
from specs import Spec

import ampscale

ONE_LARGE = equal("1x10M", "1 x 10M", 1, 10_000_000)
ROWS = (("float32", SMALL), ("float32", ONE_LARGE), ("float32", HALF), ("float16", SMALL), ("bfloat16", SMALL))


def specs() -> Iterator[Spec]:
    """Yield the specifications of all rows."""
    for library in ("numpy", "torch"):
        for dtype, shape in ROWS:
            build = partial(contenders, library, dtype, shape)
            yield Spec(
                f"measure/{library}/{dtype}/{shape.name}", library, "unscale+check+measure", build, dtype, shape.description
            )
    for shape in (SMALL, HALF):
        build = partial(traced_steps, shape)
        yield Spec(f"report/jax/{shape.name}", "jax", "traced step with its report", build, "float32", shape.description)


def contenders(library: str, dtype: str, shape: Shape, quick: bool) -> Iterator[Contender]:
    """Yield unscaling in place with and without statistics. A few of the unscaled gradients are subnormal in float16."""
    gradients = Gradients(shape.shortened(quick), dtype)
    tree, scale = _arguments(library, gradients)
    run = partial(ampscale.unscale_check_and_measure, tree, scale, out=tree)
    yield Contender("ampscale", run, gradients.refill, "ours")
    baseline = partial(ampscale.unscale_and_check, tree, scale, out=tree)
    yield Contender("ampscale, without statistics", baseline, gradients.refill, "baseline")


def _arguments(library: str, gradients: Gradients) -> tuple[Any, Any]:
    if library == "numpy":
        return gradients.arrays, np.asarray(gradients.scale, np.float32)
    import torch

    return gradients.as_torch(), torch.tensor(gradients.scale)


def traced_steps(shape: Shape, quick: bool) -> Iterator[Contender]:
    """Yield jitted steps that return the report with and without statistics, and one that returns the loss alone."""
    yield Contender("ampscale", traced_step(shape, quick, lambda report: report), kind="ours")
    yield Contender("ampscale, measure=True", traced_step(shape, quick, lambda report: report, measure=True), kind="ours")
    yield Contender("ampscale, loss only", traced_step(shape, quick, lambda report: report.loss), kind="baseline")


def traced_step(shape: Shape, quick: bool, result_of: Callable[[Any], Any], **options: bool) -> Callable[[], Any]:
    """Return a function that runs one jitted step, and returns the next state with what *result_of* takes from the report."""
    import jax
    import jax.numpy as jnp
    from others.jax import ready

    arrays = shape.shortened(quick).arrays
    params = [jnp.full(dimensions, 0.5, jnp.float32) for dimensions in arrays]
    network = ampscale.Network(lambda params, factor: sum(jnp.sum(factor * param * param) for param in params), params)
    optimizer, rule = ampscale.optimizers.SGD(network, 1e-6), ampscale.LossScaleRule()

    def step(state: Any, factor: Any) -> Any:
        state, report = ampscale.train_step(network, optimizer, rule, state, factor, **options)
        return state, result_of(report)

    compiled = jax.jit(step)
    state = ampscale.init_train_state(params, optimizer, rule)
    return ready(lambda: compiled(state, jnp.float32(2.0)))
