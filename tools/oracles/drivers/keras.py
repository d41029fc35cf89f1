"""Keras 3: `LossScaleOptimizer` around a real optimizer, compiled by JAX with `stateless_apply`."""

import os

os.environ["KERAS_BACKEND"] = "jax"

from typing import Any

import jax
import jax.numpy as jnp
import keras
from subject import FLUSHED, Subject, maker, pairs, settings

FINITE, INFINITE = jnp.zeros(2), jnp.asarray([0.0, jnp.inf])
NAMES = {"init_scale": "initial_scale", "growth_interval": "dynamic_growth_steps"}
State = tuple[Any, list[Any], Any]  # the optimizer, its variables, and the compiled step that updates them


def fresh(**values: Any) -> State:
    weight = keras.Variable(jnp.zeros(2))
    inner = keras.optimizers.SGD(learning_rate=0.0)
    optimizer = maker(keras.optimizers.LossScaleOptimizer, inner, **NAMES)(**values)
    optimizer.build([weight])

    @jax.jit
    def apply(variables: list[Any], gradients: list[Any]) -> list[Any]:
        return optimizer.stateless_apply(variables, gradients, [weight.value])[1]

    return optimizer, [variable.value for variable in optimizer.variables], apply


def step(before: State, finite: bool) -> State:
    optimizer, variables, apply = before
    return optimizer, apply(variables, [FINITE if finite else INFINITE]), apply


def read(state: State) -> dict[str, Any]:
    values = {variable.name: value for variable, value in zip(state[0].variables, state[1], strict=True)}
    return {"scale": values["dynamic_scale"], "good_steps": values["step_counter"]}


SETTINGS = settings({}, *pairs((1024.0, 3), (32768.0, 1), (2.0**126, 1), (1000.1, 2)))
SETTINGS += settings(*pairs((2.0**-123, 2)), reason=FLUSHED)

SUBJECTS = (Subject("keras", "keras", "LossScaleOptimizer", fresh, step, read, SETTINGS, how="JAX backend, under jax.jit"),)
