"""Calls of the documented classes on NumPy, interrupted at every point: none leads to a wrong result."""

from operator import methodcaller

import numpy as np
import pytest
from frameworks.networks import bits, frozen, linear
from interruptions import World, at_every_point, check_every_interruption

from ampscale import optimizers
from ampscale.frameworks.mindformers import MFTrainOneStepCell
from ampscale.frameworks.mindspore import (
    DynamicLossScaleManager,
    DynamicLossScaler,
    DynamicLossScaleUpdateCell,
    TrainOneStepWithLossScaleCell,
)
from ampscale.frameworks.paddle import GradScaler

RATE, GRADIENT = 0.5, np.float32([2, 4])


def rate_of(count):
    """Return the same learning rate for each step."""
    return np.full_like(count, RATE, dtype=np.float32)


class Loop(World):
    """Hand-written loop after its first step, with gradients for the second."""

    def __init__(self, **settings):
        self.network = linear([3, 5])
        self.optimizer = optimizers.Momentum(self.network, rate_of, momentum=0.0)
        self.scaler = GradScaler(init_loss_scaling=8.0, incr_every_n_steps=1, **settings)
        self.step()
        self.backward()
        self.saved = self.network.params, self.optimizer.state

    def backward(self):
        """Compute new scaled gradients."""
        for parameter in self.optimizer.parameters:
            parameter.grad = GRADIENT * np.float32(self.scaler.get_loss_scaling())

    def state(self):
        """Return parameters, gradients, the states of optimizer and scaler, and the stage of each optimizer."""
        gradients = [parameter.grad for parameter in self.optimizer.parameters]
        stages = [progress.stage for progress in self.scaler._progress.values()]
        scales = self.scaler.state_dict(), self.scaler.get_init_loss_scaling()
        return frozen((self.network.params, gradients, self.optimizer.state.count, scales, stages))

    def step(self):
        """Run one iteration."""
        self.backward()
        params = self.network.params
        assert self.scaler.step(self.optimizer)
        self.scaler.update()
        assert bits(self.network.params) == bits([params[0] - np.float32(RATE) * GRADIENT])

    def recover(self):
        """Follow the advice of the error messages of scaler and optimizer."""
        self.scaler.update()
        self.network.params, self.optimizer.state = self.saved


UNSCALE, STEP, UPDATE = (
    lambda loop: loop.scaler.unscale_(loop.optimizer),
    lambda loop: loop.scaler.step(loop.optimizer),
    lambda loop: loop.scaler.update(),
)
LOADED = {"scale": 2.0, "incr_ratio": 4.0, "decr_ratio": 0.25, "incr_every_n_steps": 3, "decr_every_n_nan_or_inf": 4}
LOADED |= {"incr_count": 1, "decr_count": 1, "use_dynamic_loss_scaling": True}


def loop_after(call):
    """Return a loop after *call* in its second step."""
    loop = Loop()
    call(loop)
    return loop


PADDLE = {
    "unscale_": (Loop, UNSCALE, lambda loop: (STEP(loop), UPDATE(loop))),
    "step": (Loop, STEP, UPDATE),
    "step of a fixed scale": (lambda: Loop(use_dynamic_loss_scaling=False), STEP, UPDATE),
    "minimize": (Loop, lambda loop: loop.scaler.minimize(loop.optimizer, None)),
    "update": (lambda: loop_after(STEP), UPDATE),
    "abandon": (lambda: loop_after(UNSCALE), lambda loop: loop.scaler.abandon(loop.optimizer)),
    "load_state_dict": (Loop, lambda loop: loop.scaler.load_state_dict(LOADED)),
    "set_init_loss_scaling": (Loop, lambda loop: loop.scaler.set_init_loss_scaling(4.0)),
    "set_incr_ratio": (Loop, lambda loop: loop.scaler.set_incr_ratio(4.0)),
}


@pytest.mark.clause("PADDLE-interrupted")
@pytest.mark.parametrize("name", PADDLE)
@at_every_point
def test_an_interrupted_call_of_paddles_scaler_leads_to_no_wrong_result(name, events):
    """Parameters, gradients, the states of optimizer and scaler, and the stage of the optimizer are checked."""
    assert check_every_interruption(events, *PADDLE[name]).total() > 5


class Cell(World):
    """Cell after its first step and *done* micro-batches of the second. A step takes *calls* micro-batches."""

    def __init__(self, cell=TrainOneStepWithLossScaleCell, *, wrap=lambda optimizer: optimizer, calls=1, done=0, **settings):
        self.network = linear([3, 5])
        self.optimizer = optimizers.Momentum(self.network, rate_of, momentum=0.0)
        self.cell = cell(self.network, wrap(self.optimizer), scale_sense=DynamicLossScaleUpdateCell(8, 2, 1), **settings)
        self.calls = calls
        self.step()
        for _ in range(done):
            self.cell(GRADIENT)
        self.saved = self.network.params, self.optimizer.state, self.cell.state_dict()

    def state(self):
        """Return parameters, scale, counters, accumulated gradients and moving average."""
        saved = self.cell.state_dict() if not self.cell._interrupted else None
        return frozen((self.cell.network.params, saved, self.cell.last_step))

    def step(self):
        """Run the remaining micro-batches of a step."""
        params = self.cell.network.params
        for _ in range(self.calls - getattr(self.cell, "_calls", 0)):
            self.cell(GRADIENT)
        assert bits(self.cell.network.params) == bits([params[0] - np.float32(RATE) * GRADIENT])

    def recover(self):
        """Follow the advice of the error message: restore network, optimizer and state dict."""
        with pytest.raises(RuntimeError, match="load a state dict that the cell returned before that step"):
            self.cell.state_dict()
        self.network.params, self.optimizer.state, saved = self.saved
        self.cell.load_state_dict(saved)


MF = {"calls": 3, "gradient_accumulation_steps": 3, "use_clip_grad": True, "max_grad_norm": 100.0, "ema_decay": 0.5}


def accumulating(done):
    """Return a MindFormers cell with all options, after *done* micro-batches of a step."""
    return Cell(MFTrainOneStepCell, done=done, local_norm=True, **MF)


def loading(**settings):
    """Return a call that loads the state of another cell, which is two steps ahead."""
    other = Cell(**settings)
    other.step()
    other.step()
    saved = other.cell.state_dict()
    return lambda world: world.cell.load_state_dict(saved)


CELLS = {
    "a step": (Cell, lambda world: world.cell(GRADIENT)),
    "a callable optimizer": (lambda: Cell(wrap=lambda optimizer: optimizer.__call__), lambda world: world.cell(GRADIENT)),
    "construct": (Cell, lambda world: world.cell.construct(GRADIENT)),
    "an overflow": (Cell, lambda world: world.cell(np.float32([np.inf, 1]))),
    "a micro-batch": (lambda: accumulating(1), lambda world: world.cell(GRADIENT)),
    "the last micro-batch": (lambda: accumulating(2), lambda world: world.cell(GRADIENT)),
    "load_state_dict": (Cell, loading()),
    "load_state_dict of micro-batches": (lambda: accumulating(1), loading(cell=MFTrainOneStepCell, **MF)),
    "set_sense_scale": (Cell, lambda world: world.cell.set_sense_scale(np.float32(4))),
}
SLOW = ["a callable optimizer", "construct", "an overflow", "the last micro-batch"]


@pytest.mark.clause("MINDSPORE-cell-interrupted")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CELLS])
@at_every_point
def test_an_interrupted_call_of_a_cell_leads_to_no_wrong_result(name, events):
    """Parameters, the state dict of the cell, and the report of its last step are checked."""
    assert check_every_interruption(events, *CELLS[name]).total() > 5


class Growing(World):
    """MindSpore scaler whose scale grows from 8 at every finite step, after the first growth."""

    def __init__(self, scaler, grow, read):
        self.scaler, self.grow, self.read = scaler, grow, read
        self.step()

    def state(self):
        """Return scale and counters."""
        return repr(self.read(self.scaler))

    def step(self):
        """Run a growth."""
        old_state = self.state()
        self.grow(self.scaler)
        assert self.state() != old_state

    def recover(self):
        """Fail: no interruption of these calls may require a recovery."""
        raise AssertionError("an interruption required a recovery")


class CellWithScale:
    """Update cell together with the scale that it is called with."""

    def __init__(self):
        self.cell, self.scale = DynamicLossScaleUpdateCell(8, 2, 1), np.full((), 8, np.float32)

    def grow(self):
        """Write the next scale in place."""
        self.cell(self.scale, False)

    def state(self):
        """Return scale and counters."""
        return self.scale.item(), self.cell.state_dict()


def scaler_world():
    """Return a world with a scaler whose scale grows in every step."""
    return Growing(DynamicLossScaler(8, 2, 1), methodcaller("adjust", True), methodcaller("state_dict"))


SCALERS = {
    "adjust": (scaler_world, lambda world: world.scaler.adjust(False)),
    "load_state_dict": (
        scaler_world,
        lambda world: world.scaler.load_state_dict({"scale_value": 4.0, "counter": 1, "scale_factor": 4, "scale_window": 3}),
    ),
    "scale_value": (scaler_world, lambda world: setattr(world.scaler, "scale_value", 4.0)),
    "update_loss_scale": (
        lambda: Growing(
            DynamicLossScaleManager(8, 2, 1), methodcaller("update_loss_scale", False), methodcaller("get_loss_scale")
        ),
        lambda world: world.scaler.update_loss_scale(True),
    ),
    "update cell": (lambda: Growing(CellWithScale(), CellWithScale.grow, CellWithScale.state), lambda world: world.scaler.grow()),
}


@pytest.mark.clause("MINDSPORE-cell-interrupted")
@pytest.mark.parametrize("name", SCALERS)
@at_every_point
def test_an_interrupted_call_of_mindspores_scalers_changes_all_or_nothing(name, events):
    """The state equals the state before the call or the state after it."""
    assert check_every_interruption(events, *SCALERS[name]).total() > 5
