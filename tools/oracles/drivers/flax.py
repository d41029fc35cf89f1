"""Flax: `DynamicScale`, whose `value_and_grad` updates the scale; compiled, as in its documentation, and eagerly."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax.training.dynamic_scale import DynamicScale
from subject import FLUSHED, ODD, Step, Subject, maker, pairs, read_attributes, settings, table

FRESH = maker(DynamicScale, init_scale="scale", min_scale="minimum_scale")
READ = read_attributes(scale="scale", good_steps="fin_steps")


def adjusted(scale: DynamicScale, slope: jax.Array) -> DynamicScale:
    """Return the next scale for a loss whose gradient is *slope*."""
    return scale.value_and_grad(lambda weight: weight * slope)(jnp.zeros(())).dynamic_scale


def steps_with(adjust: Callable[..., DynamicScale]) -> Step:
    slopes = {True: jnp.zeros(()), False: jnp.full((), jnp.inf)}
    return lambda scale, finite: adjust(scale, slopes[finite])


SETTINGS = settings(
    {},
    *pairs((1024.0, 3), (65536.0, 1), (2.0**126, 1)),
    {"init_scale": 4.0, "growth_interval": 2, "min_scale": 1.0},
    *pairs((2.0**-124, 2)),
    *table("init_scale growth_interval", (1000.0, 2), (3e38, 1), **ODD),
) + settings({"init_scale": 2.0**-123, "growth_interval": 2, "min_scale": 2.0**-149}, reason=FLUSHED)
EAGER = settings(*pairs((1024.0, 2), (2.0**126, 1)))

SUBJECTS = (
    Subject("flax", "flax", "DynamicScale", FRESH, steps_with(jax.jit(adjusted)), READ, SETTINGS, how="under jax.jit"),
    Subject("flax", "flax", "DynamicScale", FRESH, steps_with(adjusted), READ, EAGER, how="eagerly"),
)
