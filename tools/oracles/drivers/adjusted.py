"""Steps of the drivers of jmp and mpx, whose scales have a method `adjust`, eagerly and compiled."""

from typing import Any

import jax
import jax.numpy as jnp

FLAGS = {True: jnp.asarray(True), False: jnp.asarray(False)}


def step(scale: Any, finite: bool) -> Any:
    return scale.adjust(FLAGS[finite])


compiled_adjust = jax.jit(lambda scale, finite: scale.adjust(finite))


def compiled_step(scale: Any, finite: bool) -> Any:
    return compiled_adjust(scale, FLAGS[finite])
