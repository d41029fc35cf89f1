"""Static graphs of Paddle: the kernel `update_loss_scaling` alone, and complete programs that an executor runs."""

from typing import Any, NamedTuple

import numpy as np
import paddle
from subject import HYSTERESIS, ODD, PADDLE_NAMES, Subject, maker, read_saved_state, settings, table, with_saved_state

State = tuple[np.ndarray, ...]
PLACE = paddle.CPUPlace()
FINITE, INFINITE = np.zeros(2, "float32"), np.array([0.0, np.inf], "float32")
with paddle.amp.auto_cast():  # enables float16 for the process, since a scaler disables itself without it
    pass


class Program(NamedTuple):
    """Program with its executor, its scope, and the variables of the scaler's state."""

    main: Any
    executor: Any
    scope: Any
    tensors: tuple[Any, ...]


def fresh_program(**values: Any) -> Program:
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        slope = paddle.static.data("slope", [2], "float32")
        loss = paddle.sum(paddle.create_parameter([2], "float32") * slope)
        plain = paddle.optimizer.SGD(learning_rate=0.0)
        optimizer = maker(paddle.static.amp.decorate, plain, **PADDLE_NAMES)(level="O1", **values)
        scaler = maker(paddle.amp.GradScaler, **PADDLE_NAMES)(**values)
        scaler.minimize(optimizer, scaler.scale(loss), startup)
    return start_program(main, startup, optimizer)


def start_program(main: Any, startup: Any, optimizer: Any) -> Program:
    executor, scope = paddle.static.Executor(PLACE), paddle.static.Scope()
    with paddle.static.scope_guard(scope):
        executor.run(startup)
    named = (optimizer._loss_scaling, optimizer._num_good_steps, optimizer._num_bad_steps)
    tensors = tuple(scope.find_var(variable.name).get_tensor() for variable in named)
    paddle.disable_static()
    return Program(main, executor, scope, tensors)


def program_step(program: Program, finite: bool) -> None:
    paddle.enable_static()
    with paddle.static.scope_guard(program.scope):
        program.executor.run(program.main, feed={"slope": FINITE if finite else INFINITE}, fetch_list=[])
    paddle.disable_static()


def save(program: Program) -> State:
    return tuple(np.array(tensor) for tensor in program.tensors)


def restore(program: Program, state: State) -> None:
    for tensor, value in zip(program.tensors, state, strict=True):
        tensor.set(value, PLACE)


def fresh_kernel(
    init_scale: float, growth_interval: int, hysteresis: int, growth_factor: float = 2.0, backoff_factor: float = 0.5
) -> tuple[tuple[float, ...], State]:
    """Return the kernel's constants and its state."""
    state = (np.array([init_scale], "float32"), np.zeros(1, "int32"), np.zeros(1, "int32"))
    return (growth_interval, hysteresis, growth_factor, backoff_factor), state


def kernel_step(before: tuple[tuple[float, ...], State], finite: bool) -> tuple[tuple[float, ...], State]:
    state = [paddle.to_tensor(value) for value in before[1]]
    gradient, overflow = paddle.zeros([2]), paddle.to_tensor([not finite])
    paddle._C_ops.update_loss_scaling_([gradient], overflow, *state, *before[0], False)
    return before[0], tuple(tensor.numpy() for tensor in state)


SETTINGS = settings(
    *table(HYSTERESIS, (1024.0, 3, 2), (1024.0, 2, 1), (4.0, 1, 1), (2.0**126, 1, 2)),
    *table(HYSTERESIS, (1000.0, 2, 2), (3e38, 2, 1), **ODD),
)
DECORATE = ("paddle_static", "paddlepaddle", "paddle.static.amp.decorate")
PROGRAM = with_saved_state(fresh_program, program_step, save, restore)
KERNEL = ("paddle_static", "paddlepaddle", "kernel update_loss_scaling")

SUBJECTS = (
    Subject(*DECORATE, *PROGRAM, read_saved_state, settings({}) + SETTINGS, how="a PIR program with amp.GradScaler"),
    Subject(*KERNEL, fresh_kernel, kernel_step, read_saved_state, SETTINGS),
)
