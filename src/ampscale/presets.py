"""
Published scalers as constants: what sets one apart from another is on this page, and nowhere else.

A function's parameters are what its scaler lets one set, under the field's names and with its own defaults; where it has no
default, the docstring says whose is taken. The rules are as published; where `ampscale.frameworks` mends a defect, it says
so there and in spec/deviations.md.

Spec: PRESETS-*.
"""

import inspect
import math
from collections.abc import Callable
from ctypes import c_float
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .core.dtypes import FLOATS
from .core.rule import LossScaleRule
from .core.validation import check_count, check_number

TINY, LARGEST = FLOATS["float32"].smallest_normal, FLOATS["float32"].largest
Rule = TypeVar("Rule", bound=Callable[..., LossScaleRule])


@dataclass(frozen=True)
class Preset:
    """A published scaler: whose it is, where its rule is written, and the function that says it as constants."""

    name: str
    project: str
    version: str
    class_name: str  # the scaler's own name
    source_file: str  # the file its rule is written in
    rule: Callable[..., LossScaleRule]

    @property
    def parameters(self) -> tuple[str, ...]:
        """What this scaler lets one set."""
        return tuple(inspect.signature(self.rule).parameters)

    @property
    def summary(self) -> str:
        """One sentence on its rule."""
        return (inspect.getdoc(self.rule) or "").partition("\n")[0]


PRESETS: dict[str, Preset] = {}  # in the order of this page


def published(project: str, version: str, class_name: str, source_file: str) -> Callable[[Rule], Rule]:
    """Enters a function into PRESETS under its name."""

    def entered(rule: Rule) -> Rule:
        PRESETS[rule.__name__] = Preset(rule.__name__, project, version, class_name, source_file, rule)
        return rule

    return entered


# MindSpore


@published("MindSpore", "2.10.0", "mindspore.amp.DynamicLossScaler", "mindspore/amp.py")
def mindspore(init_scale: float = 2.0**24, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """
    Divides by the factor, never below 1, and keeps the scale where a growth would not be finite.

    It has no defaults; these are the manager's.
    """
    return LossScaleRule(
        init_scale, growth_factor, _inverse(growth_factor), growth_interval, min_scale=1.0, divide_on_backoff=True
    )


@published("MindSpore", "2.10.0", "mindspore.nn.DynamicLossScaleUpdateCell", "mindspore/nn/wrap/loss_scale.py")
def mindspore_update_cell(init_scale: float = 2.0**24, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """
    Multiplies by the reciprocal of the factor, never below 1, and grows to infinity.

    It has no defaults; these are the manager's.
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
    The update cell's rule in the host's float64.

    It also raises at the 1001st overflow in a row, which is no matter of the scale: see `DynamicLossScaleManager`.
    """
    return LossScaleRule(
        init_scale,
        growth_factor,
        _inverse(growth_factor),
        growth_interval,
        min_scale=1.0,
        skip_infinite_growth=False,
        dtype="float64",
    )


@published("MindSpore", "2.10.0", "mindspore.amp.StaticLossScaler", "mindspore/amp.py")
def static(init_scale: float = 128.0) -> LossScaleRule:
    """
    A scale that never moves: jmp's StaticLossScale, Megatron's ConstantGradScaler, TensorFlow's FixedLossScale.

    They have no default; this is the one of MindSpore's FixedLossScaleManager.
    """
    return LossScaleRule(init_scale, growth_factor=1.0, backoff_factor=1.0)


# Paddle


@published("Paddle", "2.2", "paddle.amp.GradScaler, as its page says", "the page's parameters")
def paddle_document(
    init_scale: float = 32768.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 1000,
    hysteresis: int = 2,
) -> LossScaleRule:
    """Overflows accumulate over finite steps, until the scale backs off or grows; no bounds."""
    return LossScaleRule(
        init_scale,
        growth_factor,
        backoff_factor,
        growth_interval,
        hysteresis,
        reset_bad_steps_on=("growth", "backoff"),
        skip_infinite_growth=False,
    )


@published("Paddle", "3.3.1", "paddle.amp.GradScaler", "python/paddle/amp/grad_scaler.py")
def paddle(
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """A finite step forgets the overflows before it; neither bounds nor a guard."""
    return LossScaleRule(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis, skip_infinite_growth=False)


@published("Paddle", "3.3.1", "paddle.amp.AmpScaler", "python/paddle/amp/grad_scaler.py")
def paddle_amp_scaler(
    init_scale: float = 32768.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 1000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """The base class of GradScaler: its rule, with the older half of its defaults."""
    return paddle(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis)


@published("Paddle", "3.3.1", "paddle.static.amp.decorate", "paddle/phi/kernels/impl/amp_kernel_impl.h")
def paddle_static(
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """GradScaler's rule in static graphs, where it has a floor of 1 and a guard."""
    return LossScaleRule(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis, min_scale=1.0)


@published("Paddle", "3.3.1", "paddle.static.amp.decorate, old form", "python/paddle/static/amp/decorator.py")
def paddle_static_old(
    init_scale: float = 32768.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.8,
    growth_interval: int = 1000,
    hysteresis: int = 2,
) -> LossScaleRule:
    """The static rule with the defaults of its old form and of fleet, which shrink by a fifth."""
    return paddle_static(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis)


# PyTorch and what was built on it


@published("PyTorch", "2.13.0", "torch.amp.GradScaler", "torch/amp/grad_scaler.py")
def torch(
    init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000
) -> LossScaleRule:
    """Factors applied in float64 and rounded once; a growth that is not finite keeps the scale; no bounds."""
    return LossScaleRule(init_scale, growth_factor, backoff_factor, growth_interval, float64_factor=True)


@published("PyTorch", "2.13.0", "ShardedGradScaler, its scale on the CPU", "torch/distributed/fsdp/sharded_grad_scaler.py")
def torch_sharded_cpu(
    init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000
) -> LossScaleRule:
    """GradScaler's rule without the guard, and with factors rounded to float32."""
    return LossScaleRule(init_scale, growth_factor, backoff_factor, growth_interval, skip_infinite_growth=False)


@published("Apex", "last before 2025-05-08", "apex.amp's LossScaler", "apex/amp/scaler.py")
def apex(
    init_scale: float = 2.0**16, growth_interval: int = 2000, min_scale: float | None = None, max_scale: float = 2.0**24
) -> LossScaleRule:
    """Halves and doubles on the host, never above 2**24."""
    return _on_the_host(init_scale, 2.0, growth_interval, min_scale=min_scale, max_scale=max_scale)


@published("Apex", "2026-07-08", "update_scale_hysteresis", "csrc/update_scale_hysteresis.cu")
def apex_hysteresis(
    init_scale: float = 2.0**16,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """The rule of torch with patience: every finite step refills it, and once it is spent, each overflow backs off."""
    return LossScaleRule(
        init_scale,
        growth_factor,
        backoff_factor,
        growth_interval,
        hysteresis,
        reset_bad_steps_on=("finite",),
        float64_factor=True,
    )


@published("Apex", "last before 2025-05-08", "apex.fp16_utils' DynamicLossScaler", "apex/fp16_utils/loss_scaler.py")
def apex_fp16_utils(init_scale: float = 2.0**32, growth_factor: float = 2.0, growth_interval: int = 1000) -> LossScaleRule:
    """Divides on the host, never below 1; contrib's FP16_Optimizer is the same from 2**16."""
    return _on_the_host(init_scale, growth_factor, growth_interval, min_scale=1.0)


@published("NeMo", "2.5.0", "GradScaler", "nemo/collections/nlp/parts/nlp_overrides.py")
def nemo(
    init_scale: float = 2.0**16,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    hysteresis: int = 1,
) -> LossScaleRule:
    """The rule of Apex's hysteresis kernel; a checkpoint of it loses the count of overflows."""
    return apex_hysteresis(init_scale, growth_factor, backoff_factor, growth_interval, hysteresis)


@published("DeepSpeed", "0.19.8", "DynamicLossScaler", "deepspeed/runtime/fp16/loss_scaler.py")
def deepspeed(
    init_scale: float = 2.0**16,
    growth_interval: int = 1000,
    hysteresis: int = 2,
    min_scale: float = 1.0,
    raise_at_min_scale: bool = True,
) -> LossScaleRule:
    """ZeRO's: the first window is one step longer, a growth alone refills its patience, and at the floor it raises."""
    axes = {"hysteresis": hysteresis, "min_scale": min_scale, "raise_at_min_scale": raise_at_min_scale}
    return _on_the_host(init_scale, 2.0, growth_interval, reset_bad_steps_on=("growth",), initial_good_steps=-1, **axes)


@published("DeepSpeed", "0.19.8", "DynamicLossScaler, consecutive_hysteresis", "deepspeed/runtime/fp16/loss_scaler.py")
def deepspeed_consecutive(
    init_scale: float = 2.0**16,
    growth_interval: int = 1000,
    hysteresis: int = 2,
    min_scale: float = 1.0,
    raise_at_min_scale: bool = True,
) -> LossScaleRule:
    """ZeRO's with consecutive_hysteresis: every finite step refills its patience."""
    return replace(
        deepspeed(init_scale, growth_interval, hysteresis, min_scale, raise_at_min_scale), reset_bad_steps_on=("finite",)
    )


@published("DeepSpeed", "0.19.8", "FP16_Optimizer", "deepspeed/runtime/fp16/fused_optimizer.py")
def deepspeed_fp16_optimizer(init_scale: float = 2.0**16, growth_interval: int = 1000, min_scale: float = 1.0) -> LossScaleRule:
    """ZeRO's window without its patience and without raising; the unfused one's floor is 0.25."""
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
    """A growth alone refills its patience, though it is documented as overflows in a row; never below 1."""
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
    """Megatron's rule, never above 2**32; a checkpoint of it loses both counts."""
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
    Divides on the host, and raises where the scale would fall to 1e-4.

    The defaults are its configuration's for one worker: it divides the interval by workers and by update_freq.
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
    The rule of fairseq, backing off where overflows are a share of the steps since the scale last moved.

    Its tolerance is 0 unless it is set; 0.25 stands for any.
    """
    check_number(overflow_tolerance, "overflow_tolerance", "a number above 0", 0, above=True)
    counting = fairseq(init_scale, growth_factor, growth_interval, min_scale, raise_at_or_below)
    return replace(counting, overflow_tolerance=overflow_tolerance, reset_bad_steps_on=("backoff",))


@published("fairscale", "0.4.13", "DynamicLossScaler", "fairscale/experimental/optim/dynamic_loss_scaler.py")
def fairscale(
    init_scale: float = 2.0**15,
    growth_factor: float = 2.0,
    growth_interval: int = 2000,
    min_scale: float | None = None,
    raise_at_or_below: float = 1e-4,
) -> LossScaleRule:
    """
    The rule of fairseq with the defaults of its class, called as fairseq calls it: `update` after finite steps alone.

    Called after every step, as torch's is, it counts an overflow twice, and its next growth is one step early.
    """
    return fairseq(init_scale, growth_factor, growth_interval, min_scale, raise_at_or_below)


@published("fairseq2", "0.8.1", "StandardFloat16LossScaler", "src/fairseq2/optim/fp16_loss_scaler.py")
def fairseq2(
    init_scale: float = 2.0**16, growth_factor: float = 2.0, growth_interval: int = 2000, min_scale: float = 1e-4
) -> LossScaleRule:
    """The rule of torch, given up where an overflow would leave the scale under its minimum."""
    check_number(min_scale, "min_scale", "a positive number that float32 can hold", TINY, LARGEST)
    under = math.nextafter(min_scale, 0.0)
    mantissa, exponent = math.frexp(under)
    return LossScaleRule(
        init_scale,
        growth_factor,
        _inverse(growth_factor),
        growth_interval,
        float64_factor=True,
        raise_at_or_below=math.ldexp(math.floor(mantissa * 2**24), exponent - 24),  # the largest float32 under the minimum
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
    Its bounds are gates, where a move is made or not, so that the scale may land beyond them.

    It has no default for the first scale; its examples begin at 2**20.
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
    Divides by the factor, never below 1, and keeps the scale where a growth would not be finite.

    It has no default for the first scale; its examples begin at 2**15.
    """
    return LossScaleRule(
        init_scale, growth_factor, _inverse(growth_factor), growth_interval, min_scale=min_scale, divide_on_backoff=True
    )


@published("jmp", "0.0.4", "DynamicLossScale under jax.jit", "jmp/_src/loss_scale.py")
def jmp_jit(init_scale: float = 2.0**15, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """The rule of jmp once compiled: the reciprocal for a division, and whatever floor was set forgotten for 1."""
    return LossScaleRule(init_scale, growth_factor, _inverse(growth_factor, rounded=True), growth_interval, min_scale=1.0)


@published("mpx", "0.1.8", "DynamicLossScaling", "mpx/_loss_scaling.py")
def mpx(
    init_scale: float = 2.0**15, growth_factor: float = 2.0, growth_interval: int = 2000, min_scale: float = 1.0
) -> LossScaleRule:
    """
    The rule of jmp, never above the largest float16, in which it scales.

    It has no default for the first scale; this is the one taken for jmp.
    """
    return LossScaleRule(
        init_scale,
        growth_factor,
        _inverse(growth_factor),
        growth_interval,
        1,
        min_scale,
        max_scale=65504.0,
        divide_on_backoff=True,
    )


@published("flax", "0.12.8", "DynamicScale", "flax/training/dynamic_scale.py")
def flax(
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    min_scale: float | None = TINY,
) -> LossScaleRule:
    """Grows one step later than its interval says, and comes to rest at the largest float32."""
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
    """Halves and doubles, with neither bounds nor a guard: the scale can reach infinity, and stays there."""
    return LossScaleRule(init_scale, growth_interval=growth_interval, skip_infinite_growth=False)


@published("tf_keras", "2.21.0", "LossScaleOptimizer", "tf_keras/src/mixed_precision/loss_scale_optimizer.py")
def tf_keras(init_scale: float = 2.0**15, growth_interval: int = 2000) -> LossScaleRule:
    """Halves and doubles, never below 1, and keeps the scale where a growth would not be finite."""
    return tensorflow_v1(init_scale, growth_interval=growth_interval)


@published("TensorFlow", "2.21.0", "DynamicLossScale", "tensorflow/python/training/experimental/loss_scale.py")
def tensorflow_v1(init_scale: float = 2.0**15, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """The rule of tf_keras with a factor of one's own, by which it divides."""
    return LossScaleRule(
        init_scale, growth_factor, _inverse(growth_factor), growth_interval, min_scale=1.0, divide_on_backoff=True
    )


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
    The ancestor of Paddle's parameters: overflows do accumulate; never below 1, and guarded.

    It has no defaults for the first scale and the interval; these are TensorFlow's later ones.
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
    """Halves and doubles on the host, from 1 to 2**24."""
    return apex(init_scale, growth_interval, min_scale, max_scale)


@published("OneFlow", "30391303", "DynamicLossScaler", "oneflow/user/kernels/dynamic_loss_scale_schedule_kernel.cu")
def oneflow(init_scale: float = 2.0**16, growth_factor: float = 2.0, growth_interval: int = 2000) -> LossScaleRule:
    """Multiplies and divides by a float32 factor, from 1 to the largest float32."""
    return LossScaleRule(
        init_scale,
        growth_factor,
        _inverse(growth_factor),
        growth_interval,
        min_scale=1.0,
        max_scale=LARGEST,
        divide_on_backoff=True,
        skip_infinite_growth=False,
    )


@published("MXNet", "1.9.1", "LossScaler", "mxnet/contrib/amp/loss_scaler.py")
def mxnet(init_scale: float = 2.0**16, growth_interval: int = 2000, max_scale: float = 2.0**24) -> LossScaleRule:
    """Halves and doubles on the host, never above 2**24, each time one step late."""
    return _on_the_host(init_scale, 2.0, growth_interval, max_scale=max_scale, delayed_update=True)


@published("Chainer", "7.8.1", "Optimizer.loss_scaling", "chainer/optimizer.py")
def chainer(init_scale: float = 1.0, growth_interval: int = 1000) -> LossScaleRule:
    """Doubles at every step until the first overflow ever, then grows a little at each finite one; from 1 to 65504."""
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
    """What a scaler with one factor backs off by; *rounded*: of the factor as float32 has it."""
    check_number(growth_factor, "growth_factor", "a number of at least 1 that float32 can hold", 1, LARGEST)
    return 1 / (c_float(growth_factor).value if rounded else growth_factor)


def _on_the_host(init_scale: float, growth_factor: float, growth_interval: int, **axes: Any) -> LossScaleRule:
    """A scale that is a Python float: divided by its factor, and never guarded."""
    axes = {"divide_on_backoff": True, "skip_infinite_growth": False, "dtype": "float64", **axes}
    return LossScaleRule(init_scale, growth_factor, _inverse(growth_factor), growth_interval, **axes)
