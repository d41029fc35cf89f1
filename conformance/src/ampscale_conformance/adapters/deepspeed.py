"""DeepSpeed: `DynamicLossScaler` of ZeRO, in a process group of one process, and its engine on ranks."""

import logging
import math
import tempfile
from collections.abc import Sequence
from typing import Any
from unittest import mock

from ..model.adapter import ImplementationInfo, Unsupported
from . import version_of
from .base import Library, torch, unavailable
from .ranks import on_ranks
from .torch_ranks import column

deepspeed: Any = Library("deepspeed")
loss_scaler: Any = Library("deepspeed.runtime.fp16.loss_scaler")


class DeepSpeed:
    """Scaler that only updates a scale; DeepSpeed's engine scales, unscales and checks, which is tested on ranks."""

    info = ImplementationInfo(
        name="DeepSpeed DynamicLossScaler",
        version=version_of("deepspeed"),
        url="https://deepspeed.readthedocs.io/en/latest/training.html#gradient-accumulation",
        level=5,
        capabilities=("resume", "rounding", "ranks", "sharded"),
        preset="deepspeed",
        arrays="torch",
    )
    scale = unscale = all_finite = add_optimizer = update_scale = create_cell = unavailable(
        "the engine scales, unscales and checks"
    )

    def create(self, rule: Any) -> Any:
        join_group(init_method=f"file://{tempfile.mkdtemp()}/meeting", rank=0, world_size=1)  # logging requires a group
        return loss_scaler.DynamicLossScaler(
            init_scale=rule.init_scale,
            scale_window=rule.growth_interval,
            min_scale=rule.min_scale,
            delayed_shift=rule.hysteresis,
            consecutive_hysteresis="finite" in rule.reset_bad_steps_on,
            raise_error_at_min_scale=rule.raise_at_min_scale,
        )

    def update(self, scaler: Any, finite: bool) -> None:
        scaler.update_scale(not finite)

    def read_scale(self, scaler: Any) -> float:
        return scaler.loss_scale  # type: ignore[no-any-return]

    def save(self, scaler: Any) -> Any:
        """Return the attributes of the scaler. A checkpoint contains them too, since it pickles the scaler."""
        return dict(vars(scaler))

    def load(self, rule: Any, saved: Any) -> Any:
        scaler = self.create(rule)
        vars(scaler).update(saved)
        return scaler

    def train_on_ranks(self, rule: Any, placements: Sequence[str], steps: Sequence[Any], optimizers: int) -> Any:
        """Train with the first stage of ZeRO, or with the third one if the array is sharded."""
        if [] in steps:  # a step without ranks saves the state and loads it
            raise Unsupported("an engine saves its state only to files")
        if optimizers > 1:
            raise Unsupported("an engine supports a single optimizer")
        if "reduced" in placements:
            raise Unsupported("ZeRO does not support replicated averaged gradients: each rank has its own shard")
        settings = {
            "enabled": True,
            "initial_scale_power": int(math.log2(rule.init_scale)),
            "loss_scale_window": rule.growth_interval,
            "hysteresis": rule.hysteresis,
            "consecutive_hysteresis": "finite" in rule.reset_bad_steps_on,
            "min_loss_scale": rule.min_scale,
        }
        return on_ranks(train_on_rank, len(steps[0]), settings, placements[0], steps)


def join_group(**arguments: Any) -> None:
    """Initialize a process group on the CPU, once. The patch prevents DeepSpeed from compiling a shared-memory extension."""
    if deepspeed.comm.is_initialized():
        return
    logging.disable()  # DeepSpeed logs each overflow
    with mock.patch("deepspeed.comm.torch.build_shm_op", return_value=None):
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False, **arguments)


def train_on_rank(rank: int, _size: int, settings: dict[str, Any], placement: str, steps: Sequence[Any]) -> list[Any]:
    """Train on one rank. The patch allows float16 also on a CPU without float16 instructions, which torch emulates."""
    join_group()
    is_sharded = placement == "sharded"
    first = [value for (value,) in steps[0]]
    count = 1 if None in first else 64  # elements of a part; ZeRO pads few elements, which can leave a rank without any
    size = count * (len(first) - first.count(None) if is_sharded else 1)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 3 if is_sharded else 1},
        "fp16": settings,
    }
    model = column(size)
    with mock.patch.object(type(deepspeed.accelerator.get_accelerator()), "is_fp16_supported", return_value=True):
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    results = []
    for step in steps:
        values = [value for (value,) in step if value is not None] if is_sharded else step[rank]
        data = torch.tensor(values).repeat_interleave(count).half()
        engine.backward((engine(torch.ones(1).half()) * data).sum())
        skipped = engine.skipped_steps
        engine.step()
        results.append([float(engine.optimizer.loss_scale), engine.skipped_steps == skipped])
    return results
