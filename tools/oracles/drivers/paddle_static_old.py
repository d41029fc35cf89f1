"""Older form of Paddle's `decorate`, which has other defaults, in static graphs of the older intermediate representation."""

import os

os.environ["FLAGS_enable_pir_api"] = "0"  # noqa: SIM112 - Paddle's own spelling

from typing import Any

import paddle
from drivers.paddle_static import Program, program_step, restore, save, start_program
from subject import HYSTERESIS, PADDLE_NAMES, Subject, maker, read_saved_state, settings, table, with_saved_state


def fresh(**values: Any) -> Program:
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        slope = paddle.static.data("slope", [2], "float32")
        loss = paddle.mean(paddle.create_parameter([2], "float32") * slope)
        # The parameter use_pure_fp16 selects the older form of `decorate`, and only this form has it.
        plain = paddle.optimizer.SGD(learning_rate=0.0)
        optimizer = maker(paddle.static.amp.decorate, plain, **PADDLE_NAMES)(use_pure_fp16=False, **values)
        optimizer.minimize(loss, startup)
    return start_program(main, startup, optimizer)


SETTINGS = settings(
    {}, {"init_scale": 1024.0, "growth_interval": 3}, *table(HYSTERESIS, (1000.0, 2, 2), (2.0**126, 1, 1), (4.0, 2, 1))
)
HOW = "a program of the older form, FLAGS_enable_pir_api=0"
DECORATE = ("paddle_static_old", "paddlepaddle", "paddle.static.amp.decorate, older form")
FUNCTIONS = with_saved_state(fresh, program_step, save, restore)

SUBJECTS = (Subject(*DECORATE, *FUNCTIONS, read_saved_state, SETTINGS, how=HOW),)
