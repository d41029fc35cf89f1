"""mpx (Mixed Precision for JAX): `DynamicLossScaling`, eagerly and under `jax.jit`."""

import jax.numpy as jnp
import mpx
from drivers.adjusted import compiled_step, step
from subject import Subject, pairs, read_attributes, settings, table


def fresh(init_scale: float, growth_interval: int, growth_factor: int = 2, min_scale: float = 1.0) -> mpx.DynamicLossScaling:
    return mpx.DynamicLossScaling(jnp.float32(init_scale), jnp.float32(min_scale), growth_factor, growth_interval)


READ = read_attributes(scale="loss_scaling", good_steps="counter")
SETTINGS = settings(
    *pairs((1024.0, 3), (32768.0, 1)),
    *table("init_scale growth_interval min_scale", (4.0, 2, 1.0), (64.0, 1, 10.0)),
    {"init_scale": 7000.0, "growth_interval": 2, "growth_factor": 3},
)
MPX = ("mpx", "mixed-precision-for-JAX", "mpx.DynamicLossScaling", fresh)

SUBJECTS = (
    Subject(*MPX, step, READ, SETTINGS, how="eagerly"),
    Subject(*MPX, compiled_step, READ, SETTINGS, how="under jax.jit"),
)
