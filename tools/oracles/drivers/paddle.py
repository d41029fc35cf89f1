"""
Paddle in the dynamic graph: `GradScaler` and `AmpScaler` with a real optimizer on the CPU.

On a CPU place, the constructors disable the scalers. Therefore the constructors receive a tracer that reports a GPU place;
everything after them runs Paddle's CPU kernels.
"""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import paddle
from paddle.amp import AmpScaler, GradScaler, grad_scaler
from subject import HYSTERESIS, ODD, PADDLE_NAMES, STATIC_SETTINGS, Fresh, Subject, maker, on_copies, settings, table

WEIGHT = paddle.create_parameter([2], "float32")
OPTIMIZER = paddle.optimizer.SGD(learning_rate=0.0, parameters=[WEIGHT])
LOSS = paddle.zeros([1])
GPU = SimpleNamespace(is_gpu_place=lambda: True)
with paddle.amp.auto_cast():  # enables float16 for the process, since a scaler disables itself without it
    pass


def made_on_gpu(kind: Any, **fixed: Any) -> Fresh:
    def fresh(**values: Any) -> Any:
        with mock.patch.object(grad_scaler, "_dygraph_tracer", return_value=SimpleNamespace(_expected_place=GPU)):
            return maker(kind, **PADDLE_NAMES)(**values, **fixed)

    return fresh


@on_copies
def minimize(scaler: Any, finite: bool) -> None:
    scaled = scaler.scale(LOSS)
    WEIGHT.grad = paddle.to_tensor([0.0, 0.0 if finite else float("inf")])
    scaler.minimize(OPTIMIZER, scaled)


@on_copies
def step_and_update(scaler: Any, finite: bool) -> None:
    scaler.scale(LOSS)
    WEIGHT.grad = paddle.to_tensor([0.0, 0.0 if finite else float("inf")])
    scaler.step(OPTIMIZER)
    scaler.update()


def read(scaler: Any) -> dict[str, float]:
    state = scaler.state_dict()
    return {"scale": state["scale"].item(), "good_steps": state["incr_count"], "bad_steps": state["decr_count"]}


def read_static(scaler: Any) -> dict[str, float]:
    return {"scale": scaler.state_dict()["scale"].item()}


SETTINGS = settings(
    {},
    *table(HYSTERESIS, (1024.0, 3, 2), (1024.0, 2, 1), (1024.0, 1, 3), (2.0**126, 1, 2), (2.0**-147, 2, 1)),
    *table(HYSTERESIS, (1000.0, 2, 2), (3e38, 2, 1), **ODD),
)
MINIMIZE = "stepped by minimize(); constructed with a GPU place"
STEP_AND_UPDATE = "stepped by step() and update(); constructed with a GPU place"
STATIC_NAME = "paddle.amp.GradScaler(use_dynamic_loss_scaling=False)"
GRAD_SCALER = ("paddle", "paddlepaddle", "paddle.amp.GradScaler", made_on_gpu(GradScaler))
AMP_SCALER = ("paddle_amp_scaler", "paddlepaddle", "paddle.amp.AmpScaler", made_on_gpu(AmpScaler))
STATIC = ("static", "paddlepaddle", STATIC_NAME, made_on_gpu(GradScaler, use_dynamic_loss_scaling=False))

SUBJECTS = (
    Subject(*GRAD_SCALER, minimize, read, SETTINGS, how=MINIMIZE),
    Subject(*GRAD_SCALER, step_and_update, read, SETTINGS, how=STEP_AND_UPDATE),
    Subject(*AMP_SCALER, minimize, read, SETTINGS, how=MINIMIZE),
    Subject(*STATIC, minimize, read_static, STATIC_SETTINGS, how=MINIMIZE),
)
