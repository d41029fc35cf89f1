"""TensorFlow: tf_keras' `LossScaleOptimizer` around a real optimizer, and v1's `DynamicLossScale`, eagerly and compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras
from subject import Fresh, Step, Subject, maker, pairs, read_saved_state, settings, table, with_saved_state

FINITE, INFINITE = tf.zeros([2]), tf.constant([0.0, np.inf])


class Scaler(NamedTuple):
    """Function of a step, and the variables of the scaler's state."""

    step: Callable[[Any], Any]
    variables: tuple[Any, ...]


def fresh_keras(**values: Any) -> Scaler:
    weight, inner = tf.Variable(tf.zeros([2])), tf_keras.optimizers.SGD(0.0)
    names = {"init_scale": "initial_scale", "growth_interval": "dynamic_growth_steps"}
    optimizer = maker(tf_keras.mixed_precision.LossScaleOptimizer, inner, **names)(**values)
    optimizer.build([weight])
    apply = tf.function(lambda gradient: optimizer.apply_gradients([(gradient, weight)]))
    return Scaler(apply, (optimizer._loss_scale.current_loss_scale, optimizer._loss_scale.counter))


def fresh_v1(**values: Any) -> Scaler:
    names = {"init_scale": "initial_loss_scale", "growth_factor": "multiplier", "growth_interval": "increment_period"}
    scale = maker(tf.compat.v1.mixed_precision.DynamicLossScale, **names)(**values)
    return Scaler(lambda gradient: scale.update([gradient]), (scale._current_loss_scale, scale._num_good_steps))


def fresh_v1_compiled(**values: Any) -> Scaler:
    eager = fresh_v1(**values)
    return eager._replace(step=tf.function(lambda gradient: eager.step(gradient)[1]))


def functions_of(fresh: Fresh) -> tuple[Fresh, Step]:
    """Return a constructor and a step that saves and restores the variables of a scaler."""

    def step(scaler: Scaler, finite: bool) -> None:
        scaler.step(FINITE if finite else INFINITE)

    def save(scaler: Scaler) -> tuple[np.ndarray, ...]:
        return tuple(variable.numpy() for variable in scaler.variables)

    def restore(scaler: Scaler, state: tuple[np.ndarray, ...]) -> None:
        for variable, value in zip(scaler.variables, state, strict=True):
            variable.assign(value)

    return with_saved_state(fresh, step, save, restore)


DOUBLING = settings({}, *pairs((1024.0, 3), (32768.0, 1), (2.0**126, 1), (4.0, 2)))
OTHER_FACTORS = table("init_scale growth_interval growth_factor", (7000.0, 2, 3), (7000.0, 2, 1.1), (3e38, 1, 3))
DIVIDES = settings(*OTHER_FACTORS, reason="compiled, its division is a multiplication by the rounded reciprocal")
KERAS = ("tf_keras", "tf_keras", "mixed_precision.LossScaleOptimizer")
V1 = ("tensorflow_v1", "tensorflow", "compat.v1.mixed_precision.DynamicLossScale")

SUBJECTS = (
    Subject(*KERAS, *functions_of(fresh_keras), read_saved_state, DOUBLING, how="under tf.function"),
    Subject(*V1, *functions_of(fresh_v1), read_saved_state, DOUBLING + settings(*OTHER_FACTORS), how="eagerly"),
    Subject(*V1, *functions_of(fresh_v1_compiled), read_saved_state, DOUBLING + DIVIDES, how="under tf.function"),
)
