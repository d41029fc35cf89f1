"""Keras 3 on torch: `LossScaleOptimizer` around a real optimizer, eagerly, without flushing small numbers to zero."""

import os

os.environ["KERAS_BACKEND"] = "torch"

from typing import Any

import keras
import numpy as np
import torch
from subject import Subject, maker, pairs, read_saved_state, settings, with_saved_state

FINITE, INFINITE = torch.zeros(2), torch.tensor([0.0, torch.inf])
NAMES = {"init_scale": "initial_scale", "growth_interval": "dynamic_growth_steps"}
WEIGHT = keras.Variable(np.zeros(2, "float32"))


def fresh(**values: Any) -> Any:
    inner = keras.optimizers.SGD(learning_rate=0.0)
    optimizer = maker(keras.optimizers.LossScaleOptimizer, inner, **NAMES)(**values)
    optimizer.build([WEIGHT])
    return optimizer


def step(optimizer: Any, finite: bool) -> None:
    optimizer.apply([FINITE if finite else INFINITE], [WEIGHT])


def save(optimizer: Any) -> tuple[np.ndarray, np.ndarray]:
    return optimizer.dynamic_scale.numpy().copy(), optimizer.step_counter.numpy().copy()


def restore(optimizer: Any, state: tuple[np.ndarray, np.ndarray]) -> None:
    optimizer.dynamic_scale.assign(state[0])
    optimizer.step_counter.assign(state[1])


SETTINGS = settings({}, *pairs((1024.0, 3), (2.0**126, 1), (2.0**-147, 2)))
FUNCTIONS = with_saved_state(fresh, step, save, restore)

SUBJECTS = (
    Subject("keras", "keras", "LossScaleOptimizer", *FUNCTIONS, read_saved_state, SETTINGS, how="torch backend, eagerly"),
)
