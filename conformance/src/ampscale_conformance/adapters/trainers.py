"""Lightning Fabric and accelerate: the training loops that they build around torch's `GradScaler`, on the CPU."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from . import version_of
from .base import Library, StepCell, linear_loss, outputs, torch
from .torch import Torch

fabric: Any = Library("lightning.fabric")
precision: Any = Library("lightning.fabric.plugins.precision")
accelerate: Any = Library("accelerate")


class Trainer(StepCell, Torch):
    """Loop of a framework around torch's scaler. At level 0, a scaler is a cell whose only gradient is finite or not."""

    wrapped: Callable[..., dict[str, Any]]  # returns the framework's objects for a scaler, model, optimizer and schedule
    backward: Callable[..., Any]  # runs the backward pass from the scaled loss, and clips; returns the norm before clipping

    def create(self, rule: Any) -> Any:
        return self.create_cell(rule, [torch.zeros(1)])

    def update(self, cell: Any, finite: bool) -> None:
        self.train_step(cell, [torch.zeros(1) if finite else torch.full((1,), torch.inf)])

    def read_scale(self, cell: Any) -> float:
        return float(cell["scaler"].get_scale())

    def save(self, cell: Any) -> Any:
        return cell["scaler"].state_dict()

    def load(self, rule: Any, saved: Any) -> Any:
        cell = self.create(rule)
        cell["scaler"].load_state_dict(saved)
        return cell

    def create_cell(
        self, rule: Any, parameters: Sequence[Any], learning_rate: Any = 1.0, max_norm: float = math.inf, momentum: float = 0.0
    ) -> Any:
        """Return the objects of a loop: the framework's model and optimizer, and a list to which an applied step appends."""
        scaler = super().create(rule)
        model = linear(parameters)
        optimizer = self.sgd(list(model.parameters()), 1.0, momentum)
        steps = list[bool]()
        optimizer.register_step_post_hook(lambda *_: steps.append(True))
        rates = learning_rate if isinstance(learning_rate, list) else [learning_rate]
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rates[min(step, len(rates) - 1)])
        wrapped = self.wrapped(scaler, model, optimizer, schedule)
        return {**wrapped, "linear": model, "scaler": scaler, "steps": steps, "max_norm": max_norm}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        cell["steps"].clear()
        cell["linear"].data = data
        scale, rate = self.read_scale(cell), cell["schedule"].get_last_lr()[0]
        cell["optimizer"].zero_grad()
        loss = cell["model"]()
        norm = self.backward(cell, loss, cell["max_norm"])
        cell["optimizer"].step()
        cell["schedule"].step()
        parameters = [weight.detach().clone() for weight in cell["linear"].weights]
        others = {"learning_rate": rate, "global_norm": float(norm)}
        return outputs(parameters, bool(cell["steps"]), scale, self.read_scale(cell), loss.item(), **others)


def linear(values: Sequence[Any]) -> Any:
    """Return a network with these parameters, whose gradients are its attribute `data`."""

    class Linear(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList(value.clone() for value in values)
            self.data: Sequence[Any] = ()  # no argument, since some frameworks convert arguments to float16

        def forward(self) -> Any:
            return linear_loss(self.weights, self.data)

    return Linear()


class Lightning(Trainer):
    """Fabric with its plug-in for mixed precision. Fabric leaves schedules to the loop, so `schedule` is not claimed."""

    info = replace(
        Torch.info,
        name="Lightning Fabric with torch GradScaler",
        version=version_of("lightning"),
        url="https://lightning.ai/docs/fabric/stable/fundamentals/precision.html",
        level=3,
        capabilities=("resume", "rounding", "loss", "norm", "clip", "momentum"),
    )

    def wrapped(self, scaler: Any, model: Any, optimizer: Any, schedule: Any) -> dict[str, Any]:
        plugin = precision.MixedPrecision("16-mixed", device="cpu", scaler=scaler)
        trainer = fabric.Fabric(accelerator="cpu", devices=1, plugins=plugin)
        model, wrapped = trainer.setup(model, optimizer)
        return {"fabric": trainer, "model": model, "optimizer": wrapped, "schedule": schedule}

    def backward(self, cell: Any, loss: Any, max_norm: float) -> Any:
        trainer, model, optimizer = cell["fabric"], cell["model"], cell["optimizer"]
        trainer.backward(loss)
        return trainer.clip_gradients(model, optimizer, max_norm=max_norm, error_if_nonfinite=False)  # unscales first


class Accelerate(Trainer):
    """accelerate. Its float16 mode is set last, since a CPU disables it; without the mode, scaled gradients would be clipped."""

    info = replace(
        Lightning.info,
        name="accelerate with torch GradScaler",
        version=version_of("accelerate"),
        url="https://huggingface.co/docs/accelerate",
        capabilities=("resume", "rounding", "loss", "norm", "clip", "momentum", "schedule"),
    )

    def wrapped(self, scaler: Any, model: Any, optimizer: Any, schedule: Any) -> dict[str, Any]:
        accelerator = accelerate.Accelerator(cpu=True)
        accelerator.scaler = scaler
        model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
        accelerator.native_amp, accelerator.state._mixed_precision = True, "fp16"
        return {"accelerator": accelerator, "model": model, "optimizer": optimizer, "schedule": schedule}

    def backward(self, cell: Any, loss: Any, max_norm: float) -> Any:
        cell["accelerator"].backward(loss)
        return cell["accelerator"].clip_grad_norm_(cell["linear"].parameters(), max_norm)  # unscales first
