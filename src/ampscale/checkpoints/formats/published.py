"""
Formats of the published scalers: names and types of their entries, and functions that read and write their counts.

If a scaler stores two iteration numbers, only their difference matters; the smallest numbers with this difference are written.
"""

import numpy as np

from ... import presets
from ...core.rule import LossScaleRule
from .ampscale import AmpscaleFormat
from .entries import BACKOFF, FACTOR, GROWTH, POSITIVE_FLOAT32, POSITIVE_FLOAT64, SHARE, count, dynamic, flag, scale
from .format import Constant, Entries, Entry, Format

_LOADED = "call load_state_dict with the entries"


def _inverse(factor: float) -> float:
    return 1 / factor


def _whole(value: float) -> float:
    """Return *value* as an int if it is whole, since some scalers accept only ints."""
    return int(value) if value == int(value) else value


def _scale_array(*shape: int) -> Entry:
    return Entry(scale(), lambda state, _rule: np.full(shape, state.scale, np.float32))


SCALE = Entry(scale(), lambda state, _rule: state.scale)
SCALE_ARRAY = _scale_array()
SCALE_FLOAT64 = SCALE._replace(convert=scale("float64"))
GOOD_STEPS = Entry(count(), lambda state, _rule: state.good_steps)
GOOD_STEPS_ARRAY = Entry(count(), lambda state, _rule: np.asarray(state.good_steps, np.int32))
BAD_STEPS = Entry(count(), lambda state, _rule: state.bad_steps)
REMAINING = Entry(count(1), lambda state, rule: rule.hysteresis - state.bad_steps)  # counted overflows until the scale backs off
ITERATION = Entry(count(), lambda state, _rule: state.good_steps + 1)
LAST_OVERFLOW = Entry(count(-1), lambda _state, _rule: -1)
DYNAMIC = Entry(dynamic, lambda _state, _rule: True)
GROWTH_FACTOR = Constant("growth_factor", "growth_factor", FACTOR)
BACKOFF_FACTOR = Constant("backoff_factor", "backoff_factor", SHARE)
GROWTH_INTERVAL = Constant("growth_interval", "growth_interval", count(1))
SCALE_FACTOR = Constant("scale_factor", "growth_factor", FACTOR)
SCALE_WINDOW = Constant("scale_window", "growth_interval", count(1))

# torch.amp.GradScaler 2.13: state_dict()
TORCH = Format(
    "torch",
    scale="scale",
    state={"scale": SCALE, "_growth_tracker": GOOD_STEPS},
    read=lambda entries, _rule: (entries["_growth_tracker"], 0),
    taken=_LOADED,
    saved=(GROWTH_FACTOR, BACKOFF_FACTOR, GROWTH_INTERVAL),
)

# paddle.amp.GradScaler 3.3.1: state_dict()
PADDLE = Format(
    "paddle",
    scale="scale",
    state={"scale": _scale_array(1), "incr_count": GOOD_STEPS, "decr_count": BAD_STEPS, "use_dynamic_loss_scaling": DYNAMIC},
    read=lambda entries, _rule: (entries["incr_count"], entries["decr_count"]),
    taken=_LOADED,
    saved=(
        Constant("incr_ratio", "growth_factor", FACTOR),
        Constant("decr_ratio", "backoff_factor", SHARE),
        Constant("incr_every_n_steps", "growth_interval", count(1)),
        Constant("decr_every_n_nan_or_inf", "hysteresis", count(1)),
    ),
)

# mindspore.amp.DynamicLossScaler 2.10: its two Parameters, which a checkpoint stores beside others
MINDSPORE = Format(
    "mindspore",
    scale="scale_value",
    state={"scale_value": SCALE_ARRAY, "counter": GOOD_STEPS_ARRAY},
    read=lambda entries, _rule: (entries["counter"], 0),
    taken="set the two Parameters of the scaler: scaler.scale_value.set_data(...), scaler.counter.set_data(...)",
    unsaved=(Constant("scale_factor", "growth_factor", count(1), float, _whole), SCALE_WINDOW),
    reciprocal=_inverse,
    beside=("*",),
)

# mindspore.nn.TrainOneStepWithLossScaleCell 2.10 with a DynamicLossScaleUpdateCell: its Parameters, beside those of the network
MINDSPORE_UPDATE_CELL = Format(
    "mindspore_update_cell",
    scale="scale_sense",
    state={
        "scale_sense": SCALE_ARRAY,
        "current_iterator_step": Entry(count(1), lambda state, _rule: np.asarray(state.good_steps + 1, np.int32)),
        "last_overflow_iterator_step": Entry(count(), lambda _state, _rule: np.asarray(0, np.int32)),
    },
    read=lambda entries, _rule: (_since(entries, "current_iterator_step", "last_overflow_iterator_step"), 0),
    taken="call mindspore.load_param_into_net(cell, ...) with the entries as Parameters",
    unsaved=(SCALE_FACTOR, SCALE_WINDOW),
    reciprocal=lambda factor: presets.mindspore_update_cell(growth_factor=factor).backoff_factor,
    beside=("*",),
)

# Megatron-core's DynamicGradScaler 0.16: state_dict(); hysteresis_tracker counts down, also below zero
MEGATRON = Format(
    "megatron",
    scale="scale",
    state={
        "scale": _scale_array(1),
        "growth_tracker": GOOD_STEPS,
        "hysteresis_tracker": REMAINING._replace(convert=count(-(2**31))),
    },
    read=lambda entries, rule: (entries["growth_tracker"], min(rule.hysteresis - entries["hysteresis_tracker"], rule.hysteresis)),
    taken="make the scale a torch tensor, and call load_state_dict with the entries",
    unsaved=(
        Constant("growth_factor", "growth_factor", GROWTH),
        Constant("backoff_factor", "backoff_factor", BACKOFF),
        GROWTH_INTERVAL,
        Constant("hysteresis", "hysteresis", count(1)),
        Constant("min_scale", "min_scale", POSITIVE_FLOAT32),
    ),
)

# DeepSpeed's DynamicLossScaler 0.19 (ZeRO): vars(scaler), since a checkpoint stores the object; cur_hysteresis counts down to 1
DEEPSPEED = Format(
    "deepspeed",
    scale="cur_scale",
    state={
        "cur_scale": SCALE_FLOAT64,
        "cur_iter": ITERATION,
        "last_overflow_iter": LAST_OVERFLOW,
        "cur_hysteresis": REMAINING,
        "dynamic": DYNAMIC,
    },
    read=lambda entries, rule: (_good_steps(entries, rule), rule.hysteresis - entries["cur_hysteresis"]),
    taken="call vars(scaler).update with the entries",
    saved=(
        SCALE_FACTOR,
        SCALE_WINDOW,
        Constant("min_scale", "min_scale", POSITIVE_FLOAT64),
        Constant("delayed_shift", "hysteresis", count(1)),
        Constant(
            "consecutive_hysteresis",
            "reset_bad_steps_on",
            flag,
            lambda consecutive: ("finite",) if consecutive else ("growth",),
            lambda events: "finite" in events,
        ),
        Constant("raise_error_at_min_scale", "raise_at_min_scale", flag),
    ),
    reciprocal=_inverse,
    beside=("dtype",),
)

# DeepSpeed's FP16_Optimizer 0.19, fused or not: the entries of the scaler in state_dict()
DEEPSPEED_FP16_OPTIMIZER = Format(
    "deepspeed_fp16_optimizer",
    scale="cur_scale",
    state={"dynamic_loss_scale": DYNAMIC, "cur_scale": SCALE_FLOAT64, "cur_iter": ITERATION, "last_overflow_iter": LAST_OVERFLOW},
    read=lambda entries, rule: (_good_steps(entries, rule), 0),
    taken="put the entries into the optimizer's state dict, and call load_state_dict",
    saved=(SCALE_FACTOR, SCALE_WINDOW),
    unsaved=(Constant("min_loss_scale", "min_scale", POSITIVE_FLOAT64),),
    reciprocal=_inverse,
    beside=("optimizer_state_dict", "fp32_groups", "fp32_groups_flat", "clip_grad"),
)

# keras.optimizers.LossScaleOptimizer 3.15: its two variables
KERAS = Format(
    "keras",
    scale="dynamic_scale",
    state={"step_counter": GOOD_STEPS_ARRAY, "dynamic_scale": SCALE_ARRAY},
    read=lambda entries, _rule: (entries["step_counter"], 0),
    taken="assign the two variables of the built optimizer: step_counter.assign(...), dynamic_scale.assign(...)",
    unsaved=(Constant("dynamic_growth_steps", "growth_interval", count(1)),),
)

# flax.training.dynamic_scale.DynamicScale 0.12: its state dict; the scale grows one step later than growth_interval specifies
FLAX = Format(
    "flax",
    scale="scale",
    state={"fin_steps": GOOD_STEPS_ARRAY, "scale": SCALE_ARRAY},
    read=lambda entries, _rule: (entries["fin_steps"], 0),
    taken="call flax.serialization.from_state_dict(dynamic_scale, entries)",
    unsaved=(
        GROWTH_FACTOR,
        BACKOFF_FACTOR,
        GROWTH_INTERVAL._replace(convert=count(), decode=lambda interval: interval + 1, encode=lambda interval: interval - 1),
        Constant("minimum_scale", "min_scale", lambda value, key: None if value is None else POSITIVE_FLOAT32(value, key)),
    ),
)

# jmp.DynamicLossScale 0.0.4: its two leaves
JMP = Format(
    "jmp",
    scale="loss_scale",
    state={"loss_scale": SCALE_ARRAY, "counter": GOOD_STEPS_ARRAY},
    read=lambda entries, _rule: (entries["counter"], 0),
    taken="construct jmp.DynamicLossScale with the entries; under jax.jit it replaces min_loss_scale by 1",
    unsaved=(
        Constant("period", "growth_interval", count(1)),
        Constant("factor", "growth_factor", FACTOR, encode=_whole),
        Constant("min_loss_scale", "min_scale", POSITIVE_FLOAT32),
    ),
    reciprocal=_inverse,
)


def _good_steps(entries: Entries, rule: LossScaleRule) -> int:
    """Return DeepSpeed's count of good steps. The first window after an overflow is one step longer than the interval."""
    finite_steps = _since(entries, "cur_iter", "last_overflow_iter")
    return (finite_steps - 1) % rule.growth_interval if finite_steps else -1


def _since(entries: Entries, now: str, then: str) -> int:
    """Return the number of finite steps after the iteration *then* and before the iteration *now*."""
    if entries[then] >= entries[now]:
        raise ValueError(f"{then} must be less than {now}, which is {entries[now]}, got {entries[then]}")
    return int(entries[now] - entries[then] - 1)


PUBLISHED = (TORCH, PADDLE, MINDSPORE, MINDSPORE_UPDATE_CELL, MEGATRON, DEEPSPEED, DEEPSPEED_FP16_OPTIMIZER, KERAS, FLAX, JMP)
FORMATS: dict[str, Format | AmpscaleFormat] = {format.name: format for format in (AmpscaleFormat(), *PUBLISHED)}
