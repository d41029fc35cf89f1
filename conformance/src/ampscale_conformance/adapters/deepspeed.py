"""DeepSpeed: `DynamicLossScaler` of ZeRO, in a process group of one process."""

from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of


class DeepSpeed:
    """Scaler that only updates a scale; DeepSpeed's optimizers scale, unscale and check. Checkpoints pickle the object."""

    info = ImplementationInfo(
        name="DeepSpeed DynamicLossScaler",
        version=version_of("deepspeed"),
        url="https://deepspeed.readthedocs.io/en/latest/training.html#gradient-accumulation",
        capabilities=("resume", "rounding"),
        preset="deepspeed",
        arrays="torch",
    )

    def create(self, rule: Any) -> Any:
        """Create a scaler with the constants of a rule."""
        from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

        join_a_group_of_one()
        return DynamicLossScaler(
            init_scale=rule.init_scale,
            scale_window=rule.growth_interval,
            min_scale=rule.min_scale,
            delayed_shift=rule.hysteresis,
            consecutive_hysteresis="finite" in rule.reset_bad_steps_on,
            raise_error_at_min_scale=rule.raise_at_min_scale,
        )

    def update(self, scaler: Any, finite: bool) -> None:
        """Call `update_scale`."""
        scaler.update_scale(not finite)

    def read_scale(self, scaler: Any) -> float:
        """Read `loss_scale`."""
        return scaler.loss_scale  # type: ignore[no-any-return]

    def save(self, scaler: Any) -> Any:
        """Return its attributes, which are what a checkpoint, a pickle of the object, contains."""
        return dict(vars(scaler))

    def load(self, rule: Any, saved: Any) -> Any:
        """Return a scaler with these attributes."""
        scaler = self.create(rule)
        vars(scaler).update(saved)
        return scaler


def join_a_group_of_one() -> None:
    """
    Initialize a process group of this process alone, once: the scaler requires a rank to log.

    For a group on CPUs, DeepSpeed would first compile a shared-memory extension, which one process does not need.
    """
    import logging
    import os
    import tempfile
    from unittest import mock

    import deepspeed

    if deepspeed.comm.is_initialized():
        return
    logging.disable()
    place = {"init_method": f"file://{os.path.join(tempfile.mkdtemp(), 'meeting')}", "rank": 0, "world_size": 1}
    with mock.patch("deepspeed.comm.torch.build_shm_op", return_value=None):
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False, **place)


ADAPTER = DeepSpeed()
