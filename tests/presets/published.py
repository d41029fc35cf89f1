"""
Published scalers under the names of their presets.

Their settings and defaults are copied by hand from the source code of the projects.
"""

from dataclasses import replace

import numpy as np
from presets import loops_deepspeed, loops_jax, loops_mindspore, loops_others, loops_paddle, loops_tensorflow, loops_torch
from presets.scaler import REQUIRED, Published

TOP32, BOTTOM32 = 2.0**126, 2.0**-147  # near the largest and smallest float32 numbers
TOP64, BOTTOM64 = 2.0**1022, 2.0**-1072
THREE_FIELDS = "init_scale growth_factor growth_interval"
FIVE_FIELDS = "init_scale growth_factor backoff_factor growth_interval hysteresis"
FACTORS = ((2.0, 0.5), (2.0, 0.8), (1.1, 0.7), (3.0, 0.3))
# Pairs for scalers whose backoff factor is the reciprocal of the growth factor, which is an int in MindSpore and jmp.
RECIPROCALS = ((2, 0.5), (3, 1 / 3), (10, 0.1), (1.1, 1 / 1.1))


def mindspore(loop):
    return Published(loop, (REQUIRED,) * 3, THREE_FIELDS, starts=(TOP32, 3.0, 3e38), factors=RECIPROCALS)


def paddle(loop, *defaults, starts):
    return Published(loop, defaults, FIVE_FIELDS, starts=starts, factors=FACTORS)


def fairseq(init_scale, scale_window):
    return Published(
        loops_others.FairseqDynamicLossScaler, (init_scale, 2.0, scale_window, None, 1e-4),
        f"{THREE_FIELDS} min_scale raise_at_or_below", fixed=(0.0,), starts=(TOP64, 3e-4, 0.0016),
        more=({"min_scale": 0.3, "init_scale": 1.0}, {"raise_at_or_below": 1.0}, {"raise_at_or_below": 5.0, "min_scale": 4.0}),
    )  # fmt: skip


def fairseq_tolerance():
    intolerant = fairseq(2**7, 2**14)
    tolerances = ({"overflow_tolerance": tolerance, "growth_interval": 4} for tolerance in (1 / 3, 0.25, 0.4, 0.6, 0.7, 1.0))
    return replace(
        intolerant, defaults=(*intolerant.defaults, REQUIRED), fields=f"{intolerant.fields} overflow_tolerance", fixed=(),
        more=(*intolerant.more, *tolerances, {"overflow_tolerance": 0.7, "growth_interval": 4, "raise_at_or_below": 70.0}),
    )  # fmt: skip


def deepspeed(consecutive):
    minimums = [{"min_scale": 10.0}, {"min_scale": 10.0, "hysteresis": 3, "raise_at_min_scale": False}]
    return Published(
        loops_deepspeed.DynamicLossScaler, (2**16, 1000, 2, 1, True),
        "init_scale growth_interval hysteresis min_scale raise_at_min_scale", fixed=(consecutive,),
        starts=(TOP64, 4.0, 3.0), more=(*minimums, {"hysteresis": 1, "min_scale": 16.0}),
    )  # fmt: skip


PUBLISHED = {
    "mindspore": mindspore(loops_mindspore.DynamicLossScaler),
    "mindspore_update_cell": mindspore(loops_mindspore.DynamicLossScaleUpdateCell),
    "mindspore_manager": Published(
        loops_mindspore.DynamicLossScaleManager, (2**24, 2, 2000), THREE_FIELDS, starts=(TOP32, TOP64, 3.0),
    ),
    "paddle_document": paddle(loops_paddle.GradScalerPage, 32768, 2, 0.5, 1000, 2, starts=(TOP32, BOTTOM32)),
    "paddle": paddle(loops_paddle.GradScaler, 65536, 2, 0.5, 2000, 1, starts=(TOP32, BOTTOM32)),
    "paddle_amp_scaler": paddle(loops_paddle.GradScaler, 32768, 2, 0.5, 1000, 1, starts=(TOP32, BOTTOM32)),
    "paddle_static": paddle(loops_paddle.UpdateLossScaling, 65536, 2, 0.5, 2000, 1, starts=(TOP32, 3.0)),
    "paddle_static_old": paddle(loops_paddle.UpdateLossScaling, 32768, 2, 0.8, 1000, 2, starts=(TOP32, 3.0)),
    "torch": Published(
        loops_torch.GradScaler, (65536.0, 2.0, 0.5, 2000), "init_scale growth_factor backoff_factor growth_interval",
        starts=(TOP32, BOTTOM32),
    ),
    "torch_sharded_cpu": Published(
        loops_torch.ShardedGradScaler, (65536.0, 0.5, 2.0, 2000), "init_scale backoff_factor growth_factor growth_interval",
        starts=(TOP32, BOTTOM32),
    ),
    "apex": Published(
        loops_others.ApexLossScaler, (2.0**16, 2000, None, 2.0**24), "init_scale growth_interval min_scale max_scale",
        starts=(2.0**22, 1e7, BOTTOM64),
        more=({"min_scale": 10.0}, {"min_scale": 10.0, "max_scale": 100.0}, {"init_scale": TOP64, "max_scale": 1.5e308}),
    ),
    "apex_hysteresis": Published(
        loops_torch.UpdateScaleHysteresis, (65536.0, 2.0, 0.5, 2000, 1), FIVE_FIELDS, starts=(TOP32, BOTTOM32)
    ),
    "apex_fp16_utils": Published(loops_others.ApexDynamicLossScaler, (2**32, 2.0, 1000), THREE_FIELDS, starts=(TOP64, 3.0)),
    "nemo": Published(loops_torch.NemoGradScaler, (65536.0, 2.0, 0.5, 2000, 1), FIVE_FIELDS, starts=(TOP32, BOTTOM32)),
    "deepspeed": deepspeed(consecutive=False),
    "deepspeed_consecutive": deepspeed(consecutive=True),
    "deepspeed_fp16_optimizer": Published(
        loops_deepspeed.Fp16Optimizer, (2**16, 1000, 1), "init_scale growth_interval min_scale", starts=(TOP64, 3.0),
        more=({"min_scale": 10.0}, {"min_scale": 0.25, "init_scale": 1.0}),
    ),
    "megatron": Published(
        loops_deepspeed.MegatronDynamicGradScaler, (2**32, 1.0, 2.0, 0.5, 1000, 2),
        "init_scale min_scale growth_factor backoff_factor growth_interval hysteresis",
        starts=(TOP32, 3.0), more=({"min_scale": 10.1},),
    ),
    "colossalai": Published(
        loops_deepspeed.ColossalDynamicGradScaler, (2**16, 2.0, 0.5, 1000, 1, 2**32, 2),
        "init_scale growth_factor backoff_factor growth_interval min_scale max_scale hysteresis",
        starts=(2.0**30, 3.0),
        more=({"min_scale": 10.1, "max_scale": 300.3}, {"init_scale": TOP32, "max_scale": 3.4e38}),
    ),
    "fairseq": fairseq(2**7, 2**14),
    "fairseq_tolerance": fairseq_tolerance(),
    "fairscale": fairseq(2.0**15, 2000),
    "fairseq2": Published(
        loops_torch.StandardFloat16LossScaler, (2.0**16, 2.0, 2000, 1e-4), f"{THREE_FIELDS} min_scale",
        starts=(TOP32, 0.003, 0.0016), more=({"min_scale": 10.1}, {"min_scale": 16.0}),
    ),
    "bmtrain": Published(
        loops_others.OptimManager, (REQUIRED, 2, 1024, 1, float("inf")), f"{THREE_FIELDS} min_scale max_scale",
        starts=(TOP64, 3.0, 2.0),
        more=(
            {"max_scale": 128.0}, {"min_scale": 20.0, "max_scale": 100.0}, {"min_scale": 60.0, "max_scale": 64.0},
            {"init_scale": 100.0, "growth_factor": 1.1, "max_scale": 150.0},
        ),
    ),
    "jmp": Published(
        loops_jax.JmpDynamicLossScale, (REQUIRED, 2000, 2, 1), "init_scale growth_interval growth_factor min_scale",
        starts=(TOP32, 3.0), more=({"min_scale": 10.1},),
    ),
    "jmp_jit": Published(
        loops_jax.JmpCompiled, (REQUIRED, 2000, 2), "init_scale growth_interval growth_factor", starts=(TOP32, 3.0),
        factors=RECIPROCALS,
    ),
    "mpx": Published(
        loops_jax.MpxDynamicLossScaling, (REQUIRED, REQUIRED, 2, 2000), "init_scale min_scale growth_factor growth_interval",
        starts=(2.0**14, 3.0, 50000.0), more=({"min_scale": 10.1},),
    ),
    "flax": Published(
        loops_jax.FlaxDynamicScale, (2.0, 0.5, 2000, 65536.0, float(np.finfo(np.float32).tiny)),
        "growth_factor backoff_factor growth_interval init_scale min_scale",
        starts=(TOP32, 2.0**-124),
        more=({"min_scale": 10.1}, {"min_scale": None, "init_scale": BOTTOM32}, {"init_scale": TOP32}),
    ),
    "keras": Published(
        loops_tensorflow.KerasLossScaleOptimizer, (2.0**15, 2000), "init_scale growth_interval", starts=(TOP32, BOTTOM32)
    ),
    "tf_keras": Published(
        loops_tensorflow.TfKerasLossScaleOptimizer, (2.0**15, 2000), "init_scale growth_interval", starts=(TOP32, 3.0)
    ),
    "tensorflow_v1": Published(
        loops_tensorflow.DynamicLossScale, (2**15, 2000, 2.0), "init_scale growth_interval growth_factor", starts=(TOP32, 3.0)
    ),
    "tensorflow_contrib": Published(
        loops_tensorflow.ExponentialUpdateLossScaleManager, (REQUIRED, REQUIRED, 2, 2, 0.8),
        "init_scale growth_interval hysteresis growth_factor backoff_factor", starts=(TOP32, 3.0), factors=FACTORS,
    ),
    "onnxruntime": Published(
        loops_others.OnnxDynamicLossScaler, (2.0**16, 2000, 1.0, 2.0**24), "init_scale growth_interval min_scale max_scale",
        starts=(2.0**22, 1e7, 3.0),
        more=({"min_scale": 10.1, "max_scale": 300.3}, {"init_scale": TOP64, "max_scale": 1.5e308}),
    ),
    "oneflow": Published(loops_others.DynamicLossScaleSchedule, (2.0**16, 2.0, 2000), THREE_FIELDS, starts=(TOP32, 3.0)),
    "mxnet": Published(
        loops_others.MxnetLossScaler, (2.0**16, 2.0**24, 2000), "init_scale max_scale growth_interval",
        starts=(2.0**22, 1e7, BOTTOM64), more=({"max_scale": 300.3}, {"init_scale": TOP64, "max_scale": 1.5e308}),
    ),
    "chainer": Published(
        loops_others.ChainerLossScaling, (1.0, 1000), "init_scale growth_interval", fixed=(65504,),
        starts=(1.0, 2.0**14, 50000.0), more=({"growth_interval": 1000}, {"growth_interval": 7, "init_scale": 1.0}),
    ),
    "static": Published(loops_others.Static, (REQUIRED,), "init_scale"),
}  # fmt: skip
