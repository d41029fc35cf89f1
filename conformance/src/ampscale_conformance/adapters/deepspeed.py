"""DeepSpeed: `DynamicLossScaler` of ZeRO, in a process group of one."""

from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of


class DeepSpeed:
    """It moves a scale; the optimizers around it scale, unscale and check. A checkpoint holds the object itself."""

    info = ImplementationInfo(
        name="DeepSpeed DynamicLossScaler",
        version=version_of("deepspeed"),
        url="https://deepspeed.readthedocs.io/en/latest/training.html#gradient-accumulation",
        capabilities=("resume", "rounding"),
        preset="deepspeed",
        arrays="torch",
    )

    def create(self, rule: Any) -> Any:
        """With a rule's constants."""
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
        """Its own word for it."""
        scaler.update_scale(not finite)

    def read_scale(self, scaler: Any) -> float:
        """Its own."""
        return scaler.loss_scale  # type: ignore[no-any-return]

    def save(self, scaler: Any) -> Any:
        """Its attributes, which are all that its checkpoints, pickles of the object, hold of it."""
        return dict(vars(scaler))

    def load(self, rule: Any, saved: Any) -> Any:
        """A scaler with these attributes."""
        scaler = self.create(rule)
        vars(scaler).update(saved)
        return scaler


def join_a_group_of_one() -> None:
    """
    A process group of this process alone, once: the scaler asks for its rank when it logs.

    For a group on CPUs DeepSpeed first compiles a way to share memory with others, of whom there is none.
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
