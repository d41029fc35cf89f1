"""Tables of call orders: every pair of a state and a call is run on the class that the table describes."""

import copy
import os
from typing import ClassVar
from unittest.mock import patch

import numpy as np
import pytest
from frameworks.networks import linear
from frameworks.steps import GradientDescent

from ampscale import GradScaler, MFTrainOneStepCell, TrainOneStepWithLossScaleCell
from ampscale.core.replicas import SINGLE_REPLICA
from ampscale.frameworks import _calls
from ampscale.frameworks._calls import ACCUMULATING, OTHER_UNSCALED, READY, STEPPED, STEPPING, UNSCALED, UNSCALING

FILE = "loop.py"


class Loop:
    """Training loop whose n-th call is on line n of a file. A call that starts with "!" is interrupted by an OSError."""

    expressions: ClassVar = {}  # source of each call
    paths: ClassVar = {}  # calls that lead from a new object to each state

    def __init__(self):
        self.failing_call, self.line, self.update_line = None, 0, None

    def run(self, call):
        """Run one call on a line of its own. Return the message of a RuntimeError, or None."""
        self.line += 1
        self.failing_call = call[1:] if call.startswith("!") else None
        source = self.expressions[call.removeprefix("!")]
        try:
            eval(compile("\n" * (self.line - 1) + source, FILE, "eval"), {**vars(self), "loop": self})
        except RuntimeError as error:
            return str(error)
        except OSError:
            assert self.failing_call
        if call.startswith(("update", "minimize")):
            self.update_line = self.line
        elif call == "load_state_dict":
            self.update_line = None
        return None

    def check(self, *calls):
        """Raise an OSError if one of *calls* is to be interrupted."""
        if self.failing_call in calls:
            raise OSError("interrupted")

    def accumulates(self):
        """Return True between two micro-batches of a step."""
        return False


class Communicating(Loop):
    """Loop whose scaler has this object as its communicator, so that unscaling can be interrupted."""

    expressions: ClassVar = {
        "scale": "loop.backward()",
        "unscale_": "scaler.unscale_(optimizer)",
        "step": "scaler.step(optimizer)",
        "abandon(optimizer)": "scaler.abandon(optimizer)",
        "abandon()": "scaler.abandon()",
        "load_state_dict": "scaler.load_state_dict(saved)",
    }
    paths: ClassVar = {
        READY: ["scale"],
        UNSCALED: ["scale", "unscale_"],
        STEPPED: ["scale", "step"],
        UNSCALING: ["scale", "!unscale_"],
        STEPPING: ["scale", "!step"],
    }
    mean, check_same = SINGLE_REPLICA.mean, SINGLE_REPLICA.check_same

    def agree(self, *arguments):
        """Return the agreement of a single rank."""
        self.check("unscale_")
        return SINGLE_REPLICA.agree(*arguments)


class Torch(Communicating):
    """Loop of torch's scaler with one optimizer."""

    expressions: ClassVar = Communicating.expressions | {
        "update()": "scaler.update()",
        "update(new_scale)": "scaler.update(4.0)",
        "get_scale": "scaler.get_scale()",
        "copy": "deepcopy(scaler)",
    }
    paths: ClassVar = Communicating.paths | {_calls.UNPLACED: [], _calls.WRITING: ["scale", "step", "!update()"]}

    def __init__(self):
        super().__init__()
        import torch

        from ampscale.frameworks.torch import GradScaler as TorchGradScaler

        class Optimizer(torch.optim.SGD):
            def step(_):  # noqa: N805 - `self` is the loop
                self.check("step")
                super().step()

        self.parameter = torch.ones(1, requires_grad=True)
        self.optimizer = Optimizer([self.parameter], lr=0.5)
        self.scaler = TorchGradScaler("cpu", init_scale=8.0, communicator=self)
        self.saved, self.deepcopy = self.scaler.state_dict(), copy.deepcopy

    def run(self, call):
        """Run one call. Interrupt "!update()" when it writes the scale."""
        from ampscale.frameworks.torch import stored_scale

        def update_scale(*arguments, **options):
            self.check("update()")
            return written(*arguments, **options)

        written = stored_scale.update_scale
        with patch.object(stored_scale, "update_scale", update_scale):
            return super().run(call)

    def backward(self):
        """Compute new gradients."""
        scaled = self.scaler.scale(self.parameter * 3)
        self.optimizer.zero_grad()
        scaled.backward()

    def numbers(self):
        """Return parameter, gradient, scale and count."""
        gradient = None if self.parameter.grad is None else self.parameter.grad.item()
        return self.parameter.item(), gradient, self.scaler._state.scale.item(), self.scaler._state.good_steps.item()


class Paddle(Communicating):
    """Loop of Paddle's scaler with two optimizers."""

    dynamic = True
    expressions: ClassVar = Communicating.expressions | {
        "minimize": "scaler.minimize(optimizer)",
        "update": "scaler.update()",
        "unscale_ other": "scaler.unscale_(other)",
    }
    paths: ClassVar = Communicating.paths | {OTHER_UNSCALED: ["scale", "unscale_ other"]}

    def __init__(self):
        super().__init__()

        class Optimizer(GradientDescent):
            def step(_):  # noqa: N805 - `self` is the loop
                self.check("step")
                super().step()

        self.optimizer, self.other = Optimizer(np.float32([8])), Optimizer(np.float32([8]))
        settings = {"init_loss_scaling": 8.0, "use_dynamic_loss_scaling": self.dynamic}
        self.scaler = GradScaler(**settings, communicator=self)
        self.saved = self.scaler.state_dict()

    def backward(self):
        """Compute new gradients."""
        for optimizer in (self.optimizer, self.other):
            optimizer.parameters[0].grad = self.scaler.scale(np.float32([1]))

    def numbers(self):
        """Return parameters, gradients, scale and counts."""
        parameters = [optimizer.parameters[0] for optimizer in (self.optimizer, self.other)]
        return [(parameter.value.item(), parameter.grad.item()) for parameter in parameters], repr(self.scaler.state_dict())


class PaddleFixed(Paddle):
    """Loop of Paddle's scaler with a fixed scale."""

    dynamic = False


class Cell(Loop):
    """Loop of a cell with one micro-batch per step."""

    make = TrainOneStepWithLossScaleCell
    expressions: ClassVar = {
        "cell": "cell(x)",
        "construct": "cell.construct(x)",
        "state_dict": "cell.state_dict()",
        "set_sense_scale": "cell.set_sense_scale(sens)",
        "load_state_dict": "cell.load_state_dict(saved)",
    }
    paths: ClassVar = {READY: [], STEPPING: ["!cell"]}
    options: ClassVar = {}

    def __init__(self):
        super().__init__()
        self.cell = self.make(linear([1, 2]), lambda _: self.check("cell"), scale_sense=np.float32(8.0), **self.options)
        self.saved, self.x, self.sens = self.cell.state_dict(), np.float32([1, 2]), np.float32(8.0)

    def numbers(self):
        """Return the parameters and the scale."""
        return repr((self.cell.network.params, self.cell.scale_sense))


class MFCell(Cell):
    """Loop of a cell with two micro-batches per step."""

    make = MFTrainOneStepCell
    options: ClassVar = {"gradient_accumulation_steps": 2}
    paths: ClassVar = {READY: [], ACCUMULATING: ["cell"], STEPPING: ["cell", "!cell"]}

    def accumulates(self):
        """Return True after the first micro-batch."""
        return self.cell._calls == 1


LOOPS = dict(zip(_calls.TABLES, (Torch, Paddle, PaddleFixed, Cell, MFCell), strict=True))
PAIRS = [pytest.param(table, state, id=f"{table.name}-{state}") for table in LOOPS for state in table.states]


def at_state(table, state):
    """Return a new loop in *state*."""
    loop = LOOPS[table]()
    for call in loop.paths[state]:
        assert loop.run(call) is None
    loop.since = loop.line  # line of the call that led to the state
    return loop


def outcome(table, state, loop, call):
    """Run *call*, and compare the error with the table. Return the next state."""
    result = table.results[state][call]
    numbers = loop.numbers()  # a rejected call must not change them
    since = loop.since
    site = loop.update_line if state == READY else since
    message = loop.run(call)
    if not isinstance(result, _calls.Error):
        assert message is None, (state, call)
        loop.since = since if result == state else loop.line
        return result
    location = f" at {FILE}:{site}" if site else ""
    assert message == result.replace("{call}", call.partition("(")[0]).replace("{at}", location)
    assert loop.numbers() == numbers
    return state


@pytest.mark.clause(
    "TORCH-call-order", "TORCH-first-scale", "TORCH-update-needs-a-step", "TORCH-interrupted", "TORCH-copies", "TORCH-abandon"
)
@pytest.mark.clause(
    "PADDLE-call-order", "PADDLE-interrupted", "PADDLE-update-needs-a-step", "PADDLE-fixed-step", "PADDLE-abandon"
)
@pytest.mark.clause("PADDLE-several-optimizers", "MINDSPORE-cell-interrupted", "MINDFORMERS-accumulation")
@pytest.mark.parametrize(("table", "state"), PAIRS)
def test_every_call_has_the_result_in_the_table(table, state):
    """
    The state after a call is verified by running every call in it.

    A rejected call changes nothing, and its error names the line of the earlier call that led to the state.
    """
    if table is _calls.TORCH:
        pytest.importorskip("torch", reason="needs torch")
    for call in table.calls:
        for probe in table.calls:
            loop = at_state(table, state)
            next_state = outcome(table, state, loop, call)
            assert loop.accumulates() == (next_state == ACCUMULATING or (next_state == STEPPING and table is _calls.MF_CELL))
            if state == OTHER_UNSCALED and next_state in (UNSCALED, STEPPED):
                break  # the state of a loop in which both optimizers have progress is not a state of the table
            outcome(table, next_state, loop, probe)


def test_an_error_names_a_call_outside_of_the_package(tmp_path, monkeypatch):
    """Files in the working directory have relative paths. A caller in a file of ampscale.frameworks is skipped."""
    loop, code = Paddle(), "\n\nscaler.unscale_(\n  optimizer\n)"
    loop.backward()
    exec(compile(code, tmp_path / "train.py", "exec"), vars(loop))
    with pytest.raises(RuntimeError, match=rf"^unscale_\(\) was already called at {tmp_path}/train.py:3 since"):
        loop.scaler.unscale_(loop.optimizer)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match=r"^unscale_\(\) was already called at train.py:3 since .*: call unscale_\(\) once"):
        loop.scaler.unscale_(loop.optimizer)
    inside = os.path.join(os.path.dirname(_calls.__file__), "inside.py")
    namespace = {}
    exec(compile("def step(scaler, optimizer):\n  scaler.step(optimizer)", inside, "exec"), namespace)
    exec(compile("\n\n\n\nstep(scaler, optimizer)", "outside.py", "exec"), {**vars(loop), **namespace})
    with pytest.raises(RuntimeError, match=r"^step\(\) was already called at outside.py:5 since"):
        loop.scaler.step(loop.optimizer)


@pytest.mark.clause("PADDLE-abandon")
def test_abandoned_gradients_of_paddles_scaler_count_as_nothing():
    """The update ignores an abandoned overflow and abandoned finite gradients. New gradients can be applied afterwards."""
    scaler = GradScaler(init_loss_scaling=8.0, incr_every_n_steps=2, decr_every_n_nan_or_inf=1)
    overflowed, finite, stepped = (GradientDescent(np.float32([value])) for value in (np.inf, 8.0, 8.0))
    for optimizer in (overflowed, finite):
        scaler.unscale_(optimizer)
    scaler.step(stepped)
    scaler.abandon()
    scaler.update()
    assert (scaler.state_dict()["incr_count"], scaler.get_loss_scaling(), finite.steps, stepped.steps) == (1, 8.0, 0, 1)
    finite.parameters[0].grad = np.float32([16.0])
    assert scaler.step(finite)
    assert finite.gradients == [2.0]
