"""
Published scalers of all formats: a loop that runs the scaler, and functions that save and load its entries.

The loops use the names of the published scalers and do not use ampscale.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from presets.loop import Loop, ScalerError
from presets.loops_deepspeed import DynamicLossScaler as DeepSpeed
from presets.loops_deepspeed import Fp16Optimizer, MegatronDynamicGradScaler
from presets.loops_jax import FlaxDynamicScale, JmpDynamicLossScale
from presets.loops_mindspore import DynamicLossScaler, DynamicLossScaleUpdateCell
from presets.loops_paddle import GradScaler as PaddleScaler
from presets.loops_tensorflow import KerasLossScaleOptimizer
from presets.loops_torch import GradScaler

from ampscale import LossScaleRule, checkpoints


class Small(NamedTuple):
    """Settings of a small scaler. Each scaler uses those that it supports."""

    interval: int
    hysteresis: int
    min_scale: float


@dataclass(frozen=True)
class Scaler:
    """
    Published scaler.

    Args:
        make: Function from `Small` to a loop.
        state: Dict from the key of each entry that holds state to the name of the loop's attribute.
        constants: Dict like *state*, for the constructor arguments that the scaler saves.
        settings: Dict like *state*, for the constructor arguments that the scaler does not save.
        fixed: Entries that never change.
        as_array: Dict from the key of each entry that the scaler saves as an array to the shape of this array.
    """

    make: Any
    state: dict[str, str]
    constants: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    as_array: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def save(self, loop):
        """Return the entries that the published scaler saves."""
        entries = {key: getattr(loop, name) for key, name in (self.state | self.constants).items()}
        for key, value in entries.items():
            if key in self.as_array:
                entries[key] = np.full(self.as_array[key], value, np.int32 if isinstance(value, int) else np.float32)
            elif isinstance(value, np.generic):
                entries[key] = value.item()
        return entries | self.fixed

    def settings_of(self, loop):
        """Return the constructor arguments that the scaler does not save."""
        return {key: getattr(loop, name) for key, name in self.settings.items()}

    def load(self, mapping, settings):
        """Return a loop with the entries in *mapping* and the constructor arguments in *settings*."""
        loop = self.make(Small(1, 1, 1.0))
        for key, name in (self.state | self.constants | self.settings).items():
            value = {**mapping, **settings}[key]
            value = value.reshape(()).item() if isinstance(value, np.ndarray) else value
            setattr(loop, name, None if value is None else type(getattr(loop, name))(value))
        return loop


def same_names(*names):
    """Return a dict of keys that equal the names of the loop's attributes."""
    return dict(zip(names, names, strict=True))


SCALERS = {
    "torch": Scaler(
        make=lambda small: GradScaler(8.0, 2.0, 0.5, small.interval),
        state={"scale": "_scale", "_growth_tracker": "_growth_tracker"},
        constants=same_names("growth_factor", "backoff_factor", "growth_interval"),
    ),
    "paddle": Scaler(
        make=lambda small: PaddleScaler(8.0, 2.0, 0.5, small.interval, small.hysteresis),
        state=same_names("scale", "incr_count", "decr_count"),
        constants=same_names("incr_ratio", "decr_ratio", "incr_every_n_steps", "decr_every_n_nan_or_inf"),
        fixed={"use_dynamic_loss_scaling": True},
        as_array={"scale": (1,)},
    ),
    "mindspore": Scaler(
        make=lambda small: DynamicLossScaler(8.0, 2, small.interval),
        state={"scale_value": "scale", "counter": "counter"},
        settings=same_names("scale_factor", "scale_window"),
        as_array={"scale_value": (), "counter": ()},
    ),
    "mindspore_update_cell": Scaler(
        make=lambda small: DynamicLossScaleUpdateCell(8.0, 2, small.interval),
        state={"scale_sense": "scale", "current_iterator_step": "cur_iter", "last_overflow_iterator_step": "last_overflow_iter"},
        settings=same_names("scale_factor", "scale_window"),
        as_array={"scale_sense": (), "current_iterator_step": (), "last_overflow_iterator_step": ()},
    ),
    "megatron": Scaler(
        make=lambda small: MegatronDynamicGradScaler(8.0, small.min_scale, 2.0, 0.5, small.interval, small.hysteresis),
        state={"scale": "_scale", "growth_tracker": "_growth_tracker", "hysteresis_tracker": "_hysteresis_tracker"},
        settings=same_names("growth_factor", "backoff_factor", "growth_interval", "hysteresis", "min_scale"),
        as_array={"scale": (1,)},
    ),
    "deepspeed": Scaler(
        make=lambda small: DeepSpeed(
            8.0, small.interval, small.hysteresis, small.min_scale, small.min_scale == 1.0, small.interval == 3
        ),
        state=same_names("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis"),
        constants=same_names("scale_window", "min_scale", "delayed_shift", "consecutive_hysteresis", "raise_error_at_min_scale"),
        fixed={"scale_factor": 2.0, "dynamic": True},
    ),
    "deepspeed_fp16_optimizer": Scaler(
        make=lambda small: Fp16Optimizer(8.0, small.interval, small.min_scale),
        state=same_names("cur_scale", "cur_iter", "last_overflow_iter"),
        constants=same_names("scale_window"),
        settings=same_names("min_loss_scale"),
        fixed={"scale_factor": 2.0, "dynamic_loss_scale": True},
    ),
    "keras": Scaler(
        make=lambda small: KerasLossScaleOptimizer(8.0, small.interval),
        state=same_names("step_counter", "dynamic_scale"),
        settings=same_names("dynamic_growth_steps"),
        as_array={"step_counter": (), "dynamic_scale": ()},
    ),
    "flax": Scaler(
        make=lambda small: FlaxDynamicScale(2.0, 0.5, small.interval - 1, 8.0, small.min_scale),
        state=same_names("fin_steps", "scale"),
        settings=same_names("growth_factor", "backoff_factor", "growth_interval", "minimum_scale"),
        as_array={"fin_steps": (), "scale": ()},
    ),
    "jmp": Scaler(
        make=lambda small: JmpDynamicLossScale(8.0, small.interval, 2, small.min_scale),
        state={"loss_scale": "scale", "counter": "counter"},
        settings=same_names("period", "factor", "min_loss_scale"),
        as_array={"loss_scale": (), "counter": ()},
    ),
}


class RuleLoop(Loop):
    """Loop that runs a `LossScaleRule`."""

    def __init__(self, rule, state):
        self.rule, self.state = rule, state

    def _step(self, finite):
        if self.rule.would_raise(self.state, finite):
            raise ScalerError
        self.state = self.rule.update(self.state, finite)
        return self.state.scale


class AmpscaleScaler:
    """Scaler of the format "ampscale", with the methods of `Scaler`."""

    def make(self, small):
        """Return a loop with a rule that no published scaler has."""
        rule = LossScaleRule(
            8.0, 2.0, 0.5, *small, 2.0**7, ("growth",), initial_good_steps=-1, delayed_update=small.min_scale == 2.0
        )
        return RuleLoop(rule, rule.init(like=np.zeros(())))

    def save(self, loop):
        """Return the entries of the rule and the state of *loop*."""
        return checkpoints.save("ampscale", checkpoints.Checkpoint(loop.rule, loop.state)).mapping

    def settings_of(self, loop):
        """Return no settings, since the entries contain the rule."""
        return {}

    def load(self, mapping, settings):
        """Return a loop that continues from the entries."""
        checkpoint = checkpoints.load("ampscale", mapping)
        return RuleLoop(checkpoint.rule, checkpoint.state)


SCALERS["ampscale"] = AmpscaleScaler()


def scale_of(loop):
    """Return the current scale."""
    if isinstance(loop, RuleLoop):
        return float(loop.state.scale)
    names = [name for name in ("_scale", "scale", "cur_scale", "dynamic_scale") if hasattr(loop, name)]
    return float(getattr(loop, names[0]))


def after(loop, finite):
    """Return the loop after a step; None from the step on in which it raises an error."""
    try:
        return None if loop is None else loop.after(finite)[0]
    except ScalerError:
        return None


def reached(loop, steps):
    """Return one loop for each state that *loop* can reach within *steps* steps."""
    visited, layer = {}, [loop]
    for _ in range(steps + 1):
        loops = {repr(sorted(loop.__dict__.items())): loop for loop in layer if loop is not None}
        layer = [loop for key, loop in loops.items() if key not in visited]
        visited |= loops
        layer = [after(loop, finite) for loop in layer for finite in (True, False)]
    return list(visited.values())


def first_difference(source, target, steps):
    """Return the length of the shortest trace, at most *steps*, after which scales or errors differ; None if there is none."""
    pairs = [(source, target)]
    for length in range(steps + 1):
        if any(differ(left, right) for left, right in pairs):
            return length
        pairs = [
            (after(left, finite), after(right, finite)) for left, right in pairs for finite in (True, False) if left is not None
        ]
    return None


def differ(left, right):
    """Return True if the scales of two loops differ, or if only one loop has raised an error and is None."""
    if left is None or right is None:
        return left is not right
    return scale_of(left) != scale_of(right)
