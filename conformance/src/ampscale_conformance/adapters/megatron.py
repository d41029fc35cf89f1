"""Megatron-core: `DynamicGradScaler`, with its tensors on the CPU instead of `cuda`."""

from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of
from .base import StateDict, reject_factors_of_1


class Megatron(StateDict):
    """Scaler that only updates a scale; Megatron's optimizers scale, unscale and check."""

    info = ImplementationInfo(
        name="Megatron DynamicGradScaler",
        version=version_of("megatron-core"),
        url="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/optimizer/grad_scaler.py",
        capabilities=("resume", "rounding"),
        preset="megatron",
        arrays="torch",
    )

    def create(self, rule: Any) -> Any:
        """Create a scaler with the constants of a rule."""
        reject_factors_of_1(rule, "Megatron")
        return made_on_the_cpu(
            initial_scale=rule.init_scale,
            min_scale=rule.min_scale,
            growth_factor=rule.growth_factor,
            backoff_factor=rule.backoff_factor,
            growth_interval=rule.growth_interval,
            hysteresis=rule.hysteresis,
        )

    def update(self, scaler: Any, finite: bool) -> None:
        """Call `update`."""
        scaler.update(not finite)

    def read_scale(self, scaler: Any) -> float:
        """Read `scale`."""
        return scaler.scale.item()  # type: ignore[no-any-return]

    def load(self, rule: Any, saved: Any) -> Any:
        """Return a new scaler with this state dict; tensors that it moves to `cuda` stay on the CPU."""
        from unittest import mock

        import torch

        stay = mock.patch.object(torch.Tensor, "cuda", lambda tensor, _device: tensor)
        with stay, mock.patch.object(torch.cuda, "current_device", return_value=0):
            return super().load(rule, saved)


def made_on_the_cpu(**constants: Any) -> Any:
    """Return a scaler whose tensors are on the CPU."""
    from unittest import mock

    import torch
    from megatron.core.optimizer.grad_scaler import DynamicGradScaler

    tensor = torch.tensor

    def on_the_cpu(data: Any, **options: Any) -> Any:
        return tensor(data, **{**options, "device": "cpu"})

    with mock.patch.object(torch, "tensor", on_the_cpu):
        return DynamicGradScaler(**constants)


ADAPTER = Megatron()
