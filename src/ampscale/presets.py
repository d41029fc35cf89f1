"""
Published loss scalers, each defined as the constants of a `LossScaleRule`.

The parameters of a preset are the settings of its scaler, under the names of the rule's fields and with the scaler's own
defaults; if the scaler has no default, the docstring names the source of the value. The rules are as published, including
defects. If a class in `ampscale.frameworks` fixes a defect, the docstring of the class and spec/deviations.md state it.

Spec: PRESETS-*.

>>> from ampscale import presets
>>> presets.torch(init_scale=2.0**10)
LossScaleRule(init_scale=1024.0, float64_factor=True)
>>> presets.PRESETS["torch"].class_name
'torch.amp.GradScaler'
"""

import inspect
import math
from collections.abc import Callable
from ctypes import c_float
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .core.dtypes import FLOATS
from .core.rule import LossScaleRule
from .core.validation import check_count, check_number, check_positive

TINY, LARGEST = FLOATS["float32"].smallest_normal, FLOATS["float32"].largest
Rule = TypeVar("Rule", bound=Callable[..., LossScaleRule])


@dataclass(frozen=True)
class Preset:
    """
    Published loss scaler.

    Args:
        name: Name of the preset, and of its function in this module.
        project: Project that publishes the scaler.
        version: Version of the project that the preset was compared with.
        class_name: Name of the scaler in the project.
        source_file: File in which the project implements the rule.
        rule: Function from the scaler's settings to a `LossScaleRule`.
    """

    name: str
    project: str
    version: str
    class_name: str
    source_file: str
    rule: Callable[..., LossScaleRule]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the settings of this scaler."""
        return tuple(inspect.signature(self.rule).parameters)

    @property
    def summary(self) -> str:
        """Return one sentence that describes the rule."""
        return (inspect.getdoc(self.rule) or "").partition("\n")[0]


PRESETS: dict[str, Preset] = {}  # presets by name, in the order of this module


def published(project: str, version: str, class_name: str, source_file: str) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a function in `PRESETS` under the name of that function."""

    def register(rule: Rule) -> Rule:
        PRESETS[rule.__name__] = Preset(rule.__name__, project, version, class_name, source_file, rule)
        return rule

    return register


# MindSpore


@published("MindSpore", "2.10.0", "mindspore.amp.DynamicLossScaler", "mindspore/amp.py")
def mindspore(init_scale: float = 2.0**24, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """
    Backs off by dividing by the growth factor, never below 1, and skips a growth that would make the scale infinite.

    The class has no defaults; those of the preset come from `DynamicLossScaleManager`.
    """
    return _dividing(init_scale, growth_factor, growth_interval, min_scale=1.0)


@published("MindSpore", "2.10.0", "mindspore.nn.DynamicLossScaleUpdateCell", "mindspore/nn/wrap/loss_scale.py")
def mindspore_update_cell(init_scale: float = 2.0**24, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """
    Backs off by multiplying by the float32 reciprocal of the growth factor, never below 1; the scale can grow to infinity.

    The class has no defaults; those of the preset come from `DynamicLossScaleManager`.
    """
    return LossScaleRule(
        init_scale,
        growth_factor,
        _inverse(growth_factor, rounded=True),
        growth_interval,
        min_scale=1.0,
        skip_infinite_growth=False,
    )


@published("MindSpore", "2.10.0", "mindspore.amp.DynamicLossScaleManager", "mindspore/train/loss_scale_manager.py")
def mindspore_manager(init_scale: float = 2.0**24, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """
    Follows the rule of `mindspore_update_cell` in float64 on the host.

    The class also raises an error at the 1001st overflow in a row, which is not part of the rule; see
    `ampscale.DynamicLossScaleManager`.

    >>> mindspore_manager(init_scale=2.0**10).dtype
    'float64'
    """
    return _on_the_host(init_scale, growth_factor, growth_interval, min_scale=1.0, divide_on_backoff=False)


@published("MindSpore", "2.10.0", "mindspore.amp.StaticLossScaler", "mindspore/amp.py")
def static(init_scale: float = 128.0) -> LossScaleRule:
    """
    Never changes the scale, like jmp's StaticLossScale, Megatron's ConstantGradScaler and TensorFlow's FixedLossScale.

    None of these classes has a default; that of the preset comes from MindSpore's FixedLossScaleManager.
    """
    return LossScaleRule(init_scale, growth_factor=1.0, backoff_factor=1.0)


# Paddle


@published("Paddle", "2.2", "paddle.amp.GradScaler as documented", "parameters on its documentation page")
def paddle_document(
    init_scale: float = 32768.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 1000,
    hysteresis: int = 2,
) -> LossScaleRule:
    """
    Backs off at the `hysteresis`-th overflow since the last growth or backoff, consecutive or not; the scale has no bounds.

    >>> rule = paddle_document(hysteresis=2)
    >>> state = rule.init(like=0.0)
    >>> for finite in [False, True, False]:  # with presets.paddle(), the finite step would reset the count
    ...     state = rule.update(state, finite)
    ...     print(state.scale, state.bad_steps)
    32768.0 1
    32768.0 1
    16384.0 0
    """
    consecutive = paddle(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis)
    return replace(consecutive, reset_bad_steps_on=("growth", "backoff"))


@published("Paddle", "3.3.1", "paddle.amp.GradScaler", "python/paddle/amp/grad_scaler.py")
def paddle(
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """Backs off at the `hysteresis`-th overflow in a row; the scale has no bounds and can reach zero and infinity."""
    return LossScaleRule(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis, skip_infinite_growth=False)


@published("Paddle", "3.3.1", "paddle.amp.AmpScaler", "python/paddle/amp/grad_scaler.py")
def paddle_amp_scaler(
    init_scale: float = 32768.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 1000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """
    Follows the rule of `paddle`, with older defaults for the initial scale and the interval.

    The class is the base class of `paddle.amp.GradScaler`.
    """
    return paddle(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis)


@published("Paddle", "3.3.1", "paddle.static.amp.decorate", "paddle/phi/kernels/impl/amp_kernel_impl.h")
def paddle_static(
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """Follows the rule of `paddle` in static graphs, but keeps the scale at 1 or above and skips a growth to infinity."""
    return LossScaleRule(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis, min_scale=1.0)


@published("Paddle", "3.3.1", "paddle.static.amp.decorate, old form", "python/paddle/static/amp/decorator.py")
def paddle_static_old(
    init_scale: float = 32768.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.8,
    growth_interval: int = 1000,
    hysteresis: int = 2,
) -> LossScaleRule:
    """Follows the rule of `paddle_static`, with the defaults of fleet and of the old `decorate`; a backoff multiplies by 0.8."""
    return paddle_static(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis)


# PyTorch, and projects built on it


@published("PyTorch", "2.13.0", "torch.amp.GradScaler", "torch/amp/grad_scaler.py")
def torch(
    init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000
) -> LossScaleRule:
    """
    Applies the factors in float64 and rounds once; skips a growth that would make the scale infinite, and has no bounds.

    >>> rule = torch(growth_factor=1.1, growth_interval=1)
    >>> rule.update(rule.init(like=0.0), True).scale
    72089.6015625
    """
    return LossScaleRule(init_scale, growth_factor, backoff_factor, growth_interval, float64_factor=True)


@published("PyTorch", "2.13.0", "ShardedGradScaler, its scale on the CPU", "torch/distributed/fsdp/sharded_grad_scaler.py")
def torch_sharded_cpu(
    init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000
) -> LossScaleRule:
    """Follows the rule of `torch` with factors rounded to float32; the scale can grow to infinity."""
    return LossScaleRule(init_scale, growth_factor, backoff_factor, growth_interval, skip_infinite_growth=False)


@published("Apex", "before 2025-05-08", "apex.amp's LossScaler", "apex/amp/scaler.py")
def apex(
    init_scale: float = 2.0**16, growth_interval: int = 2000, min_scale: float | None = None, max_scale: float = 2.0**24
) -> LossScaleRule:
    """Halves and doubles the scale in float64 on the host, but never above `max_scale`."""
    return _on_the_host(init_scale, 2.0, growth_interval, min_scale=min_scale, max_scale=max_scale)


@published("Apex", "2026-07-08", "update_scale_hysteresis", "csrc/update_scale_hysteresis.cu")
def apex_hysteresis(
    init_scale: float = 2.0**16,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """
    Follows the rule of `torch`, but backs off at the `hysteresis`-th overflow in a row and at every further one.

    The kernel counts down from `hysteresis` and resets its count at every finite step.
    """
    without_hysteresis = torch(init_scale, growth_factor, backoff_factor, growth_interval)
    return replace(without_hysteresis, hysteresis=hysteresis, reset_bad_steps_on=("finite",))


@published("Apex", "before 2025-05-08", "apex.fp16_utils' DynamicLossScaler", "apex/fp16_utils/loss_scaler.py")
def apex_fp16_utils(init_scale: float = 2.0**32, growth_factor: float = 2.0, growth_interval: int = 1000) -> LossScaleRule:
    """
    Backs off by dividing by the growth factor in float64 on the host, never below 1.

    The FP16_Optimizer of apex.contrib has the same rule with an initial scale of 2**16.
    """
    return _on_the_host(init_scale, growth_factor, growth_interval, min_scale=1.0)


@published("NeMo", "2.5.0", "GradScaler", "nemo/collections/nlp/parts/nlp_overrides.py")
def nemo(
    init_scale: float = 2.0**16,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """
    Follows the rule of `apex_hysteresis`.

    A checkpoint of the class does not contain the overflow count.
    """
    return apex_hysteresis(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis)


@published("DeepSpeed", "0.19.8", "DynamicLossScaler", "deepspeed/runtime/fp16/loss_scaler.py")
def deepspeed(
    init_scale: float = 2.0**16,
    growth_interval: int = 1000,
    hysteresis: int = 2,
    min_scale: float = 1.0,
    raise_at_min_scale: bool = True,
) -> LossScaleRule:
    """
    Backs off at the `hysteresis`-th overflow since the last growth and at every further one; raises an error at `min_scale`.

    This is the scaler of ZeRO. The first growth, and the first after each overflow, takes one finite step more than
    `growth_interval`. DeepSpeed's documentation calls resetting the overflow count "refilling the hysteresis".

    >>> rule = deepspeed(init_scale=2.0, hysteresis=1)
    >>> state = rule.update(rule.init(like=0.0), False)
    >>> state.scale, rule.would_raise(state, False)
    (1.0, True)
    """
    constants = {"hysteresis": hysteresis, "min_scale": min_scale, "raise_at_min_scale": raise_at_min_scale}
    return _on_the_host(init_scale, 2.0, growth_interval, reset_bad_steps_on=("growth",), initial_good_steps=-1, **constants)


@published("DeepSpeed", "0.19.8", "DynamicLossScaler, consecutive_hysteresis", "deepspeed/runtime/fp16/loss_scaler.py")
def deepspeed_consecutive(
    init_scale: float = 2.0**16,
    growth_interval: int = 1000,
    hysteresis: int = 2,
    min_scale: float = 1.0,
    raise_at_min_scale: bool = True,
) -> LossScaleRule:
    """Follows the rule of `deepspeed`, but every finite step resets the overflow count (consecutive_hysteresis=True)."""
    return replace(
        deepspeed(init_scale, growth_interval, hysteresis, min_scale, raise_at_min_scale), reset_bad_steps_on=("finite",)
    )


@published("DeepSpeed", "0.19.8", "FP16_Optimizer", "deepspeed/runtime/fp16/fused_optimizer.py")
def deepspeed_fp16_optimizer(init_scale: float = 2.0**16, growth_interval: int = 1000, min_scale: float = 1.0) -> LossScaleRule:
    """
    Follows the rule of `deepspeed`, but every overflow backs off, and no overflow raises an error.

    FP16_UnfusedOptimizer has the same rule with a lower bound of 0.25.
    """
    return _on_the_host(init_scale, 2.0, growth_interval, min_scale=min_scale, initial_good_steps=-1)


@published("Megatron-core", "0.16.1", "DynamicGradScaler", "megatron/core/optimizer/grad_scaler.py")
def megatron(
    init_scale: float = 2.0**32,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 1000,
    hysteresis: int = 2,
    min_scale: float = 1.0,
) -> LossScaleRule:
    """
    Backs off at the `hysteresis`-th overflow since the last growth and at every further one, but never below `min_scale`.

    Megatron's docstring speaks of NaNs in a row, but a finite step does not reset the overflow count. The scale can
    grow to infinity.

    >>> rule = megatron(init_scale=2.0**16)
    >>> state = rule.init(like=0.0)
    >>> for finite in [False, True, False, False]:
    ...     state = rule.update(state, finite)
    ...     print(state.scale, state.bad_steps)
    65536.0 1
    65536.0 1
    32768.0 2
    16384.0 2
    """
    return LossScaleRule(
        init_scale,
        growth_factor,
        backoff_factor,
        growth_interval,
        hysteresis,
        min_scale,
        reset_bad_steps_on=("growth",),
        skip_infinite_growth=False,
    )


@published("ColossalAI", "0.5.0", "DynamicGradScaler", "colossalai/amp/naive_amp/grad_scaler/dynamic_grad_scaler.py")
def colossalai(
    init_scale: float = 2.0**16,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 1000,
    hysteresis: int = 2,
    min_scale: float = 1.0,
    max_scale: float = 2.0**32,
) -> LossScaleRule:
    """
    Follows the rule of `megatron`, but never grows above `max_scale`.

    A checkpoint of the class contains neither `good_steps` nor `bad_steps`.
    """
    unbounded = megatron(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis, min_scale)
    return replace(unbounded, max_scale=max_scale)


@published("fairseq", "0.12.2", "DynamicLossScaler", "fairseq/optim/dynamic_loss_scaler.py")
def fairseq(
    init_scale: float = 2.0**7,
    growth_factor: float = 2.0,
    growth_interval: int = 2**14,
    min_scale: float | None = None,
    raise_at_or_below: float = 1e-4,
) -> LossScaleRule:
    """
    Backs off by dividing by the growth factor in float64 on the host; raises an error at a scale of `raise_at_or_below` or less.

    The defaults are those of fairseq's configuration for one worker; fairseq divides the interval by the number of workers
    and by update_freq.
    """
    return _on_the_host(init_scale, growth_factor, growth_interval, min_scale=min_scale, raise_at_or_below=raise_at_or_below)


@published("fairseq", "0.12.2", "DynamicLossScaler, tolerance above 0", "fairseq/optim/dynamic_loss_scaler.py")
def fairseq_tolerance(
    init_scale: float = 2.0**7,
    growth_factor: float = 2.0,
    growth_interval: int = 2**14,
    overflow_tolerance: float = 0.25,
    min_scale: float | None = None,
    raise_at_or_below: float = 1e-4,
) -> LossScaleRule:
    """
    Follows the rule of `fairseq`, but backs off if the share of overflows since the last growth or backoff reaches a tolerance.

    The tolerance is 0 in fairseq unless the user sets it; 0.25 is an example.
    """
    check_positive(overflow_tolerance, "overflow_tolerance")
    fairseq_rule = fairseq(init_scale, growth_factor, growth_interval, min_scale, raise_at_or_below)
    return replace(fairseq_rule, overflow_tolerance=overflow_tolerance, reset_bad_steps_on=("backoff",))


@published("fairscale", "0.4.13", "DynamicLossScaler", "fairscale/experimental/optim/dynamic_loss_scaler.py")
def fairscale(
    init_scale: float = 2.0**15,
    growth_factor: float = 2.0,
    growth_interval: int = 2000,
    min_scale: float | None = None,
    raise_at_or_below: float = 1e-4,
) -> LossScaleRule:
    """
    Follows the rule of `fairseq` with the defaults of the class, if `update` is called after finite steps only.

    fairseq calls `update` this way. If `update` is called after every step, as for torch, the class counts an overflow twice, and
    the next growth is one step early.
    """
    return fairseq(init_scale, growth_factor, growth_interval, min_scale, raise_at_or_below)


@published("fairseq2", "0.8.1", "StandardFloat16LossScaler", "src/fairseq2/optim/fp16_loss_scaler.py")
def fairseq2(
    init_scale: float = 2.0**16, growth_factor: float = 2.0, growth_interval: int = 2000, min_scale: float = 1e-4
) -> LossScaleRule:
    """
    Follows the rule of `torch`, but raises an error if an overflow would leave the scale below `min_scale`.

    The class raises no error if the scale changes by at most 1e-5, which is not part of the rule.
    """
    check_number(min_scale, "min_scale", "a number in the range of normal float32 numbers", TINY, LARGEST)
    below = math.nextafter(min_scale, 0.0)
    spacing = math.ldexp(1.0, max(math.frexp(below)[1] - 24, -149))  # distance between float32 numbers
    largest_below = below // spacing * spacing  # the largest float32 below min_scale
    return LossScaleRule(
        init_scale, growth_factor, _inverse(growth_factor), growth_interval, float64_factor=True, raise_at_or_below=largest_below
    )


@published("BMTrain", "1.0.1", "OptimManager", "bmtrain/optim/optim_manager.py")
def bmtrain(
    init_scale: float = 2.0**20,
    growth_factor: float = 2.0,
    growth_interval: int = 1024,
    min_scale: float = 1.0,
    max_scale: float | None = None,
) -> LossScaleRule:
    """
    Blocks a growth at or above `max_scale` and a backoff at or below `min_scale`, but does not clamp the scale at the bounds.

    The class has no default for the initial scale; that of the preset comes from the examples of the project.
    """
    return _on_the_host(
        init_scale, growth_factor, growth_interval, min_scale=min_scale, max_scale=max_scale, block_at_bounds=True
    )


# JAX


@published("jmp", "0.0.4", "DynamicLossScale", "jmp/_src/loss_scale.py")
def jmp(
    init_scale: float = 2.0**15, growth_factor: float = 2.0, growth_interval: int = 2000, min_scale: float = 1.0
) -> LossScaleRule:
    """
    Backs off by dividing by the growth factor, never below `min_scale`; skips a growth that would make the scale infinite.

    The class has no default for the initial scale; that of the preset comes from the examples of the project.
    """
    return _dividing(init_scale, growth_factor, growth_interval, min_scale=min_scale)


@published("jmp", "0.0.4", "DynamicLossScale under jax.jit", "jmp/_src/loss_scale.py")
def jmp_jit(init_scale: float = 2.0**15, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """
    Follows the rule of `jmp` under jax.jit: backs off by multiplying by the float32 reciprocal, never below 1.

    Under jax.jit, the class replaces any other lower bound by 1.
    """
    return LossScaleRule(init_scale, growth_factor, _inverse(growth_factor, rounded=True), growth_interval, min_scale=1.0)


@published("mpx", "0.1.8", "DynamicLossScaling", "mpx/_loss_scaling.py")
def mpx(
    init_scale: float = 2.0**15, growth_factor: float = 2.0, growth_interval: int = 2000, min_scale: float = 1.0
) -> LossScaleRule:
    """
    Follows the rule of `jmp`, but never grows above 65504, the largest float16, since mpx multiplies in float16.

    The class has no default for the initial scale; that of the preset is the one of `jmp`.
    """
    return _dividing(init_scale, growth_factor, growth_interval, min_scale=min_scale, max_scale=65504.0)


@published("flax", "0.12.8", "DynamicScale", "flax/training/dynamic_scale.py")
def flax(
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    min_scale: float | None = TINY,
) -> LossScaleRule:
    """
    Grows after `growth_interval + 1` finite steps, up to the largest float32.

    >>> flax(growth_interval=2).growth_interval
    3
    """
    check_count(growth_interval, "growth_interval", low=0)
    return LossScaleRule(
        init_scale,
        growth_factor,
        backoff_factor,
        growth_interval + 1,
        min_scale=min_scale,
        max_scale=LARGEST,
        skip_infinite_growth=False,
    )


# Keras and TensorFlow


@published("Keras", "3.15.1", "LossScaleOptimizer", "keras/src/optimizers/loss_scale_optimizer.py")
def keras(init_scale: float = 2.0**15, growth_interval: int = 2000) -> LossScaleRule:
    """Halves and doubles the scale without bounds: it can reach infinity, and then stays there."""
    return LossScaleRule(init_scale, growth_interval=growth_interval, skip_infinite_growth=False)


@published("tf_keras", "2.21.0", "LossScaleOptimizer", "tf_keras/src/mixed_precision/loss_scale_optimizer.py")
def tf_keras(init_scale: float = 2.0**15, growth_interval: int = 2000) -> LossScaleRule:
    """Halves and doubles the scale, never below 1, and skips a growth that would make it infinite."""
    return tensorflow_v1(init_scale, growth_interval=growth_interval)


@published("TensorFlow", "2.21.0", "DynamicLossScale", "tensorflow/python/training/experimental/loss_scale.py")
def tensorflow_v1(init_scale: float = 2.0**15, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """Follows the rule of `tf_keras`, with a configurable growth factor. A backoff divides the scale by the growth factor."""
    return _dividing(init_scale, growth_factor, growth_interval, min_scale=1.0)


@published(
    "TensorFlow",
    "1.15.5",
    "contrib's ExponentialUpdateLossScaleManager",
    "tensorflow/contrib/mixed_precision/python/loss_scale_manager.py",
)
def tensorflow_contrib(
    init_scale: float = 2.0**15,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.8,
    growth_interval: int = 2000,
    hysteresis: int = 2,
) -> LossScaleRule:
    """
    Backs off at the `hysteresis`-th overflow since the last growth or backoff, never below 1; skips infinite growth.

    Paddle's parameters come from this class. The class has no defaults for the initial scale and the interval; those of the
    preset come from later versions of TensorFlow.
    """
    return LossScaleRule(
        init_scale,
        growth_factor,
        backoff_factor,
        growth_interval,
        hysteresis,
        min_scale=1.0,
        reset_bad_steps_on=("growth", "backoff"),
    )


# Others


@published("ONNX Runtime", "1.19.2", "DynamicLossScaler", "orttraining/orttraining/python/training/amp/loss_scaler.py")
def onnxruntime(
    init_scale: float = 2.0**16, growth_interval: int = 2000, min_scale: float = 1.0, max_scale: float = 2.0**24
) -> LossScaleRule:
    """Halves and doubles the scale in float64 on the host, between `min_scale` and `max_scale`."""
    return apex(init_scale, growth_interval, min_scale, max_scale)


@published("OneFlow", "30391303", "DynamicLossScaler", "oneflow/user/kernels/dynamic_loss_scale_schedule_kernel.cu")
def oneflow(init_scale: float = 2.0**16, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """Multiplies and divides the scale by the growth factor in float32, and keeps it between 1 and the largest float32."""
    return _dividing(init_scale, growth_factor, growth_interval, min_scale=1.0, max_scale=LARGEST, skip_infinite_growth=False)


@published("MXNet", "1.9.1", "LossScaler", "mxnet/contrib/amp/loss_scaler.py")
def mxnet(init_scale: float = 2.0**16, growth_interval: int = 2000, max_scale: float = 2.0**24) -> LossScaleRule:
    """Halves and doubles the scale in float64 on the host, never above `max_scale`; every change is delayed by one step."""
    return _on_the_host(init_scale, 2.0, growth_interval, max_scale=max_scale, delayed_update=True)


@published("Chainer", "7.8.1", "Optimizer.loss_scaling", "chainer/optimizer.py")
def chainer(init_scale: float = 1.0, growth_interval: int = 1000) -> LossScaleRule:
    """
    Doubles the scale at every step until the first overflow, then raises it slightly at every finite step.

    After the first overflow, `growth_interval` finite steps double the scale. The scale stays between 1 and 65504.
    """
    check_count(growth_interval, "growth_interval")
    return LossScaleRule(
        init_scale,
        growth_factor=2.0 ** (1 / growth_interval),
        growth_interval=1,
        min_scale=1.0,
        max_scale=65504.0,
        reset_bad_steps_on=(),
        skip_infinite_growth=False,
        dtype="float64",
        warmup_growth_factor=2.0,
    )


def _inverse(growth_factor: float, *, rounded: bool = False) -> float:
    """Return the reciprocal of *growth_factor*, after rounding the factor to float32 if *rounded* is True."""
    check_number(growth_factor, "growth_factor", "a number from 1 to 2**126", 1, 1 / TINY)  # the inverse is a normal float32
    return 1 / (c_float(growth_factor).value if rounded else growth_factor)


def _dividing(init_scale: float, growth_factor: float, growth_interval: int, **constants: Any) -> LossScaleRule:
    """Return the rule of a scaler with a single factor: a backoff divides the scale by it."""
    constants = {"divide_on_backoff": True, **constants}
    return LossScaleRule(init_scale, growth_factor, _inverse(growth_factor), growth_interval, **constants)


def _on_the_host(init_scale: float, growth_factor: float, growth_interval: int, **constants: Any) -> LossScaleRule:
    """Return the rule of a scaler whose scale is a Python float: a backoff divides it, and it can grow to infinity."""
    constants = {"skip_infinite_growth": False, "dtype": "float64", **constants}
    return _dividing(init_scale, growth_factor, growth_interval, **constants)


__all__ = ["PRESETS", "Preset", *PRESETS]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
