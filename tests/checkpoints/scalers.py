"""
The scaler of each format, running: a plain loop of what the published one does, what it saves, and how it loads that.

The loops and their names are the published scalers' own, and know nothing of the package.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from presets.loop import Loop, Stop
from presets.loops_deepspeed import DynamicLossScaler as DeepSpeed
from presets.loops_deepspeed import Fp16Optimizer, MegatronDynamicGradScaler
from presets.loops_jax import FlaxDynamicScale, JmpDynamicLossScale
from presets.loops_mindspore import DynamicLossScaler, DynamicLossScaleUpdateCell
from presets.loops_paddle import GradScaler as PaddleScaler
from presets.loops_tensorflow import KerasLossScaleOptimizer
from presets.loops_torch import GradScaler

from ampscale import LossScaleRule, checkpoints

f32 = np.float32


class Small(NamedTuple):
    """What a small scaler is made with, as far as it can be set."""

    interval: int
    hysteresis: int
    floor: float


@dataclass(frozen=True)
class Scaler:
    """
    A published scaler.

    Args:
        make: Its loop, for a `Small`.
        state: What it saves: the key of each entry, and the loop's attribute.
        constants: Likewise, of the settings that it saves.
        settings: Likewise, of those that it does not.
        fixed: What else it saves, which never changes.
        as_array: The keys that it saves as arrays, and their shapes.
    """

    make: Any
    state: dict[str, str]
    constants: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    as_array: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def save(self, loop):
        """The entries that the published scaler saves."""
        entries = {key: getattr(loop, name) for key, name in (self.state | self.constants).items()}
        dtypes = {key: np.int32 if isinstance(entries[key], int) else np.float32 for key in self.as_array}
        held = {key: np.full(shape, entries[key], dtypes[key]) for key, shape in self.as_array.items()}
        return (
            {key: value.item() if isinstance(value, np.generic) else value for key, value in entries.items()} | held | self.fixed
        )

    def settings_of(self, loop):
        """What it was constructed with, and does not save."""
        return {key: getattr(loop, name) for key, name in self.settings.items()}

    def load(self, mapping, settings):
        """A scaler constructed with *settings* that has loaded *mapping*."""
        loop = self.make(Small(1, 1, 1.0))
        for key, name in (self.state | self.constants | self.settings).items():
            value = {**mapping, **settings}[key]
            value = value.reshape(()).item() if isinstance(value, np.ndarray) else value
            setattr(loop, name, None if value is None else type(getattr(loop, name))(value))
        return loop


def same(*names):
    """Keys that are called as the loop's attributes."""
    return dict(zip(names, names, strict=True))


SCALERS = {
    "torch": Scaler(
        make=lambda small: GradScaler(8.0, 2.0, 0.5, small.interval),
        state={"scale": "_scale", "_growth_tracker": "_growth_tracker"},
        constants=same("growth_factor", "backoff_factor", "growth_interval"),
    ),
    "paddle": Scaler(
        make=lambda small: PaddleScaler(8.0, 2.0, 0.5, small.interval, small.hysteresis),
        state=same("scale", "incr_count", "decr_count"),
        constants=same("incr_ratio", "decr_ratio", "incr_every_n_steps", "decr_every_n_nan_or_inf"),
        fixed={"use_dynamic_loss_scaling": True},
        as_array={"scale": (1,)},
    ),
    "mindspore": Scaler(
        make=lambda small: DynamicLossScaler(8.0, 2, small.interval),
        state={"scale_value": "scale", "counter": "counter"},
        settings=same("scale_factor", "scale_window"),
        as_array={"scale_value": (), "counter": ()},
    ),
    "mindspore_update_cell": Scaler(
        make=lambda small: DynamicLossScaleUpdateCell(8.0, 2, small.interval),
        state={
            "scale_sense": "scale",
            "current_iterator_step": "cur_iter",
            "last_overflow_iterator_step": "last_overflow_iter",
        },
        settings=same("scale_factor", "scale_window"),
        as_array={"scale_sense": (), "current_iterator_step": (), "last_overflow_iterator_step": ()},
    ),
    "megatron": Scaler(
        make=lambda small: MegatronDynamicGradScaler(8.0, small.floor, 2.0, 0.5, small.interval, small.hysteresis),
        state={"scale": "_scale", "growth_tracker": "_growth_tracker", "hysteresis_tracker": "_hysteresis_tracker"},
        settings=same("growth_factor", "backoff_factor", "growth_interval", "hysteresis", "min_scale"),
        as_array={"scale": (1,)},
    ),
    "deepspeed": Scaler(
        make=lambda small: DeepSpeed(8.0, small.interval, small.hysteresis, small.floor, small.floor == 1.0, small.interval == 3),
        state=same("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis"),
        constants=same("scale_window", "min_scale", "delayed_shift", "consecutive_hysteresis", "raise_error_at_min_scale"),
        fixed={"scale_factor": 2.0, "dynamic": True},
    ),
    "deepspeed_fp16_optimizer": Scaler(
        make=lambda small: Fp16Optimizer(8.0, small.interval, small.floor),
        state=same("cur_scale", "cur_iter", "last_overflow_iter"),
        constants=same("scale_window"),
        settings=same("min_loss_scale"),
        fixed={"scale_factor": 2.0, "dynamic_loss_scale": True},
    ),
    "keras": Scaler(
        make=lambda small: KerasLossScaleOptimizer(8.0, small.interval),
        state=same("step_counter", "dynamic_scale"),
        settings=same("dynamic_growth_steps"),
        as_array={"step_counter": (), "dynamic_scale": ()},
    ),
    "flax": Scaler(
        make=lambda small: FlaxDynamicScale(2.0, 0.5, small.interval - 1, 8.0, small.floor),
        state=same("fin_steps", "scale"),
        settings=same("growth_factor", "backoff_factor", "growth_interval", "minimum_scale"),
        as_array={"fin_steps": (), "scale": ()},
    ),
    "jmp": Scaler(
        make=lambda small: JmpDynamicLossScale(8.0, small.interval, 2, small.floor),
        state={"loss_scale": "scale", "counter": "counter"},
        settings=same("period", "factor", "min_loss_scale"),
        as_array={"loss_scale": (), "counter": ()},
    ),
}


class Machine(Loop):
    """Our own scaler, whose format holds any rule."""

    def __init__(self, rule, state):
        self.rule, self.state = rule, state

    def _step(self, finite):
        if self.rule.would_raise(self.state, finite):
            raise Stop
        self.state = self.rule.update(self.state, finite)
        return self.state.scale


class Own:
    """What `ampscale` saves, run by the machine; it has the methods of `Scaler`."""

    def make(self, small):
        """A rule that no published scaler has."""
        rule = LossScaleRule(8.0, 2.0, 0.5, *small, 2.0**7, ("growth",), initial_good_steps=-1, delayed_update=small.floor == 2.0)
        return Machine(rule, rule.init(like=np.zeros(())))

    def save(self, loop):
        """The entries."""
        return checkpoints.save("ampscale", checkpoints.Checkpoint(loop.rule, loop.state)).mapping

    def settings_of(self, loop):
        """Nothing that is not in the entries."""
        return {}

    def load(self, mapping, settings):
        """A machine that goes on from the entries."""
        held = checkpoints.load("ampscale", mapping)
        return Machine(held.rule, held.state)


SCALERS["ampscale"] = Own()


def scale_of(loop):
    """The scale in force."""
    if isinstance(loop, Machine):
        return float(loop.state.scale)
    names = [name for name in ("_scale", "scale", "cur_scale", "dynamic_scale") if hasattr(loop, name)]
    return float(getattr(loop, names[0]))


def after(loop, finite):
    """The loop after a step; None where it raises, and after that."""
    try:
        return None if loop is None else loop.after(finite)[0]
    except Stop:
        return None


def reached(loop, steps):
    """Every loop that up to so many steps lead to, each state once."""
    found, layer = {}, [loop]
    for _ in range(steps + 1):
        fresh = {repr(sorted(each.__dict__.items())): each for each in layer if each is not None}
        layer = [each for key, each in fresh.items() if key not in found]
        found |= fresh
        layer = [after(each, finite) for each in layer for finite in (True, False)]
    return list(found.values())


def parting(one, other, steps):
    """The length of the shortest trace of at most so many steps after which the scales differ; None for none."""
    layer = [(one, other)]
    for length in range(steps + 1):
        if any((a is None) != (b is None) or (a is not None and scale_of(a) != scale_of(b)) for a, b in layer):
            return length
        layer = [(after(a, finite), after(b, finite)) for a, b in layer for finite in (True, False) if a is not None]
    return None
