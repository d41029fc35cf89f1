"""`ExponentialUpdateLossScaleManager` of TensorFlow 1, in a session of TensorFlow 2, which still supports sessions."""

import abc
from types import SimpleNamespace
from typing import Any, NamedTuple

import tensorflow as tf
from environments.published import extract
from subject import HYSTERESIS, ODD, PADDLE_NAMES, Subject, maker, read_saved_state, settings, table, with_saved_state

V1 = tf.compat.v1
V1.disable_v2_behavior()
CONTRIB = extract(
    "tensorflow",
    "tensorflow_core/contrib/mixed_precision/python/loss_scale_manager.py",
    "LossScaleManager",
    "ExponentialUpdateLossScaleManager",
    abc=abc,
    control_flow_ops=SimpleNamespace(cond=V1.cond, group=V1.group),
    dtypes=tf.dtypes,
    gen_math_ops=SimpleNamespace(is_finite=V1.is_finite, maximum=V1.maximum),
    ops=tf,
    six=SimpleNamespace(add_metaclass=lambda _: lambda kind: kind),
    state_ops=SimpleNamespace(assign=V1.assign, assign_add=V1.assign_add),
    variable_scope=SimpleNamespace(variable=V1.Variable),
)


class Scaler(NamedTuple):
    """Session with the update operation, its placeholder, and the variables of the scale and of the two counts."""

    session: Any
    update: Any
    finite: Any
    variables: tuple[Any, ...]


def fresh(**values: Any) -> Scaler:
    with tf.Graph().as_default():
        manager = maker(CONTRIB.ExponentialUpdateLossScaleManager, **PADDLE_NAMES | {"init_scale": "init_loss_scale"})(**values)
        finite = V1.placeholder(tf.bool, [])
        update = manager.update_loss_scale(finite)
        session = V1.Session()
        session.run(V1.global_variables_initializer())
    return Scaler(session, update, finite, (manager.get_loss_scale(), manager._num_good_steps, manager._num_bad_steps))


def step(scaler: Scaler, finite: bool) -> None:
    scaler.session.run(scaler.update, {scaler.finite: finite})


def save(scaler: Scaler) -> tuple[Any, ...]:
    return tuple(scaler.session.run(scaler.variables))


def restore(scaler: Scaler, state: tuple[Any, ...]) -> None:
    for variable, value in zip(scaler.variables, state, strict=True):
        variable.load(value, scaler.session)


SETTINGS = settings(
    {"init_scale": 1024.0, "growth_interval": 3},
    *table(HYSTERESIS, (1024.0, 1, 1), (1024.0, 2, 3), backoff_factor=0.5),
    *table(HYSTERESIS, (1.5, 2, 1), (2.0**126, 1, 2)),
    *table(HYSTERESIS, (1000.0, 2, 2), (3e38, 2, 1), **ODD),
)
MANAGER = ("tensorflow_contrib", "tensorflow", "contrib ExponentialUpdateLossScaleManager")
HOW = "the classes alone, extracted from their file, in a session of TensorFlow 2.21.0"
FUNCTIONS = with_saved_state(fresh, step, save, restore)

SUBJECTS = (Subject(*MANAGER, *FUNCTIONS, read_saved_state, SETTINGS, how=HOW, unpacked=True),)
