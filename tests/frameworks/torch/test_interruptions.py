"""Calls of torch's `GradScaler`, and of a cell on torch, interrupted at every point: none leads to a wrong result."""

import pytest
import torch
from interruptions import World, at_every_point, check_every_interruption

from ampscale.frameworks._calls import WRITING
from ampscale.frameworks.mindspore import DynamicLossScaleUpdateCell, TrainOneStepWithLossScaleCell
from ampscale.frameworks.torch import GradScaler

RATE, GRADIENT = 0.5, [2.0, 4.0]


@pytest.fixture(autouse=True)
def _grad_mode():
    """Restore autograd's mode: Python does not run __exit__ if tracing raises an error at the line that leaves a `with` block."""
    was_enabled = torch.is_grad_enabled()
    yield
    torch.set_grad_enabled(was_enabled)


class Loop(World):
    """Hand-written loop after its first step, with gradients for the second."""

    def __init__(self, *, growth_interval=1, calls=(), **settings):
        self.parameter = torch.tensor([3.0, 5.0], requires_grad=True)
        self.optimizer = torch.optim.SGD([self.parameter], lr=RATE, **settings)
        self.scaler = GradScaler("cpu", init_scale=8.0, growth_interval=growth_interval)
        self.step()
        self.backward()
        for call in calls:
            call(self)

    def backward(self):
        """Compute new scaled gradients."""
        self.optimizer.zero_grad()
        with torch.enable_grad():
            self.scaler.scale((self.parameter * torch.tensor(GRADIENT)).sum()).backward()

    def state(self):
        """Return parameter, gradient, the scaler's state dict, and the stage of each optimizer."""
        saved = None if self.scaler._call_state == WRITING else self.scaler.state_dict()
        stages = [progress.stage for progress in self.scaler._progress.values()]
        return self.parameter.tolist(), self.parameter.grad.tolist(), saved, stages

    def step(self):
        """Run one iteration."""
        self.backward()
        old_parameter = self.parameter.detach().clone()
        assert self.scaler.step(self.optimizer)
        self.scaler.update()
        assert torch.equal(self.parameter, old_parameter - RATE * torch.tensor(GRADIENT))

    def recover(self):
        """Follow the advice of the error messages."""
        try:
            self.scaler.update()
        except RuntimeError as error:
            if "neither has been called" not in str(error):
                assert "load a state dict that was saved before" in str(error)  # noqa: PT017
                self.scaler.load_state_dict(GradScaler("cpu", init_scale=4.0).state_dict())


UNSCALE, STEP, UPDATE = (
    lambda loop: loop.scaler.unscale_(loop.optimizer),
    lambda loop: loop.scaler.step(loop.optimizer),
    lambda loop: loop.scaler.update(),
)


def overflow(loop):
    """Run a skipped step from the lowest scale."""
    loop.scaler.update(2.0**-126)
    loop.parameter.grad.fill_(float("inf"))
    STEP(loop)


LOADED = {"scale": 2.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3, "_growth_tracker": 1}
CALLS = {
    "unscale_": (Loop, UNSCALE, lambda loop: (STEP(loop), UPDATE(loop))),
    "step": (Loop, STEP, UPDATE),
    "step of a fused optimizer": (lambda: Loop(fused=True), STEP, UPDATE),
    "step after unscale_": (lambda: Loop(calls=[UNSCALE]), STEP, UPDATE),
    "update": (lambda: Loop(calls=[STEP]), UPDATE),
    "update that backs off to the lower bound": (  # a higher scale follows, so that scaled gradients are normal numbers
        lambda: Loop(calls=[overflow]),
        UPDATE,
        lambda loop: loop.scaler.update(8.0),
    ),
    "update past the interval": (
        lambda: Loop(growth_interval=9, calls=[STEP, lambda loop: loop.scaler.set_growth_interval(1)]),
        UPDATE,
    ),
    "update to a scale": (lambda: Loop(calls=[STEP]), lambda loop: loop.scaler.update(4.0)),
    "abandon": (lambda: Loop(calls=[UNSCALE]), lambda loop: loop.scaler.abandon(loop.optimizer)),
    "load_state_dict": (Loop, lambda loop: loop.scaler.load_state_dict(LOADED)),
    "set_growth_factor": (Loop, lambda loop: loop.scaler.set_growth_factor(3.0)),
}


@pytest.mark.clause("TORCH-interrupted")
@pytest.mark.parametrize("name", CALLS)
@at_every_point
def test_an_interrupted_call_of_torchs_scaler_leads_to_no_wrong_result(name, events):
    """Parameter, gradient, state dict, and the stage of the optimizer are checked."""
    assert check_every_interruption(events, *CALLS[name]).total() > 5


class Product(torch.nn.Module):
    """Network whose loss is a sum of products, so the gradient equals the input."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([3.0, 5.0]))

    def forward(self, x):
        """Return the loss."""
        return (self.weight * x).sum()


class Cell(World):
    """Cell with a torch optimizer, after its first step."""

    def __init__(self):
        self.cell = self.create()
        self.step()
        self.saved = self.cell.network.module.weight.detach().clone(), self.cell.state_dict()

    def create(self):
        """Return a cell over new weights."""
        module = Product()
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        return TrainOneStepWithLossScaleCell(module, optimizer, DynamicLossScaleUpdateCell(8, 2, 1))

    def state(self):
        """Return parameters, scale and counters."""
        saved = None if self.cell._interrupted else self.cell.state_dict()
        return self.cell.network.module.weight.tolist(), repr(saved)

    def step(self):
        """Run one step."""
        old_weight = self.cell.network.module.weight.detach().clone()
        self.cell(torch.tensor(GRADIENT))
        assert torch.equal(self.cell.network.module.weight, old_weight - RATE * torch.tensor(GRADIENT))

    def recover(self):
        """Restore the weights and the state dict."""
        self.cell = self.create()
        self.cell.network.module.load_state_dict({"weight": self.saved[0]})
        self.cell.load_state_dict(self.saved[1])


@pytest.mark.clause("MINDSPORE-cell-interrupted")
@pytest.mark.slow
@at_every_point
def test_an_interrupted_step_of_a_cell_on_torch_leads_to_no_wrong_result(events):
    """An optimizer of torch writes in place, so the cell may reject further steps."""
    counts = check_every_interruption(events, Cell, lambda world: world.cell(torch.tensor(GRADIENT)))
    assert counts["rejected"] > 5
