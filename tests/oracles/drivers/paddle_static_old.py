"""Paddle in static graphs of the older intermediate form, and `decorate` in its older form, which has other defaults."""

import os

os.environ["FLAGS_enable_pir_api"] = "0"  # noqa: SIM112 - so Paddle spells it

from typing import Any

import paddle
from oracles.drivers.paddle_static import PAGE, Program, program_step, read, started
from subject import Subject, each, renamed


def fresh(**values: Any) -> Program:
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        slope = paddle.static.data("slope", [2], "float32")
        loss = paddle.mean(paddle.create_parameter([2], "float32") * slope)
        # use_pure_fp16 is a parameter of the older form alone, by which the two are told apart.
        plain = paddle.optimizer.SGD(learning_rate=0.0)
        optimizer = paddle.static.amp.decorate(plain, use_pure_fp16=False, **renamed(values, **PAGE))
        optimizer.minimize(loss, startup)
    return started(main, startup, optimizer)


SETTINGS = each(
    {},
    {"init_scale": 1024.0, "growth_interval": 3},
    {"init_scale": 1000.0, "growth_interval": 2, "hysteresis": 2},
    {"init_scale": 2.0**126, "growth_interval": 1, "hysteresis": 1},
    {"init_scale": 4.0, "growth_interval": 2, "hysteresis": 1},
)

SUBJECTS = (
    Subject(
        "paddle_static_old",
        "paddlepaddle",
        "paddle.static.amp.decorate, older form",
        fresh,
        program_step,
        read,
        SETTINGS,
        how="a program of the older form, FLAGS_enable_pir_api=0",
    ),
)
