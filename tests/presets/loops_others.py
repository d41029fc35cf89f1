"""Scalers of ONNX Runtime, OneFlow, MXNet, BMTrain, Chainer, Apex and fairseq as plain loops, and the constant scale."""

import numpy as np
from presets.loop import Loop, ScalerError

f32 = np.float32
FLT_MAX = float(np.finfo(np.float32).max)


class OnnxDynamicLossScaler(Loop):
    """ONNX Runtime training 1.19.2, orttraining/orttraining/python/training/amp/loss_scaler.py."""

    settings = "loss_scale up_scale_window min_loss_scale max_loss_scale"

    def start(self):
        self.loss_scale, self._stable_steps_count = float(self.loss_scale), 0

    def _step(self, finite):
        self._stable_steps_count = self._stable_steps_count + 1 if finite else 0
        if not finite:
            self.loss_scale = max(self.min_loss_scale, self.loss_scale / 2)
        elif self._stable_steps_count >= self.up_scale_window:
            self.loss_scale, self._stable_steps_count = min(self.max_loss_scale, self.loss_scale * 2), 0
        return self.loss_scale


class DynamicLossScaleSchedule(Loop):
    """
    OneFlow's kernel, commit 30391303, oneflow/user/kernels/dynamic_loss_scale_schedule_kernel.cu.

    Products and quotients are computed in float64, but the multiplier is an attribute of float32.
    """

    settings = "init_scale growth_factor growth_interval"

    def start(self):
        self.loss_scale, self.good_step_counter = f32(self.init_scale), 0

    def _step(self, finite):
        loss_scale, multiplier = float(self.loss_scale), float(f32(self.growth_factor))
        self.good_step_counter = self.good_step_counter + 1 if finite else 0
        if not finite:
            self.loss_scale = f32(max(loss_scale / multiplier, 1.0))
        elif self.good_step_counter >= self.growth_interval:
            self.loss_scale, self.good_step_counter = f32(min(loss_scale * multiplier, FLT_MAX)), 0
        return self.loss_scale


class MxnetLossScaler(Loop):
    """MXNet b84609d, python/mxnet/amp/loss_scaler.py: each check applies the scale that the previous check computed."""

    settings = "_loss_scale _max_loss_scale _scale_seq_len"

    def start(self):
        self._next_loss_scale, self._unskipped = float(self._loss_scale), 0

    def _step(self, finite):
        self._loss_scale = self._next_loss_scale
        if finite:
            self._unskipped += 1
        else:
            self._next_loss_scale, self._unskipped = self._loss_scale / 2.0, 0
        if self._unskipped == self._scale_seq_len:
            self._next_loss_scale, self._unskipped = min(self._max_loss_scale, self._loss_scale * 2.0), 0
        return self._loss_scale


class OptimManager(Loop):
    """BMTrain 30e6469, bmtrain/optim/optim_manager.py: bounds block changes; only a change restarts the count."""

    settings = "loss_scale loss_scale_factor loss_scale_steps min_loss_scale max_loss_scale"

    def start(self):
        self.loss_scale, self.steps_since_last_scale = float(self.loss_scale), 0

    def _step(self, finite):
        if not finite:
            if self.loss_scale > self.min_loss_scale:
                self._justify_scale(self.loss_scale / self.loss_scale_factor)
            return self.loss_scale
        self.steps_since_last_scale += 1
        if self.steps_since_last_scale >= self.loss_scale_steps and self.loss_scale < self.max_loss_scale:
            self._justify_scale(self.loss_scale * self.loss_scale_factor)
        return self.loss_scale

    def _justify_scale(self, scale):
        self.loss_scale, self.steps_since_last_scale = scale, 0


class ChainerLossScaling(Loop):
    """Chainer a8e15cbe, `loss_scaling` of chainer/optimizer.py: an initial phase of doubling ends with the first overflow."""

    settings = "_loss_scale interval _loss_scale_max"

    def start(self):
        self.multiplier, self.isnan_ever = 2.0 ** (1.0 / self.interval), False

    def _step(self, finite):
        self.isnan_ever = self.isnan_ever or not finite
        initial_phase = not self.isnan_ever
        multiplier = 2.0 if initial_phase else self.multiplier if finite else 0.5
        self._loss_scale = float(max(1, min(self._loss_scale_max, self._loss_scale * multiplier)))
        return self._loss_scale


class Static(Loop):
    """Constant scale: `StaticLossScale`, `ConstantGradScaler`, `FixedLossScale` and similar classes."""

    settings = "loss_scale"

    def _step(self, finite):
        return f32(self.loss_scale)


class ApexLossScaler(Loop):
    """`apex.amp`, before its removal on 2025-05-08, apex/amp/scaler.py: the factor is always 2."""

    settings = "init_scale scale_window min_loss_scale max_loss_scale"

    def start(self):
        self._loss_scale, self._unskipped = min(self.max_loss_scale, float(self.init_scale)), 0

    def _step(self, finite):
        if finite:
            self._unskipped += 1
        else:
            self._loss_scale, self._unskipped = self._loss_scale / 2.0, 0
            if self.min_loss_scale:
                self._loss_scale = max(self.min_loss_scale, self._loss_scale)
        if self._unskipped == self.scale_window:
            self._loss_scale, self._unskipped = min(self.max_loss_scale, self._loss_scale * 2.0), 0
        return self._loss_scale


class ApexDynamicLossScaler(Loop):
    """`apex.fp16_utils`, before its removal on 2025-05-08, apex/fp16_utils/loss_scaler.py: counts no finite steps."""

    settings = "init_scale scale_factor scale_window"

    def start(self):
        self.cur_scale, self.cur_iter, self.last_overflow_iter = float(self.init_scale), 0, -1

    def _step(self, finite):
        if not finite:
            self.cur_scale = max(self.cur_scale / self.scale_factor, 1)
            self.last_overflow_iter = self.cur_iter
        elif (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            self.cur_scale *= self.scale_factor
        self.cur_iter += 1
        return self.cur_scale


class FairseqDynamicLossScaler(Loop):
    """
    fairseq 0.12.2, fairseq/optim/dynamic_loss_scaler.py; fairscale 146f1602, fairscale/experimental/optim/dynamic_loss_scaler.py.

    One step is that of fairseq: `check_overflow`, and after a finite step `update`. If fairscale's `update` is called after every
    step, like torch's `update`, an overflow counts as two steps, and the next growth is one finite step early.
    """

    settings = "init_scale scale_factor scale_window threshold min_loss_scale tolerance"

    def start(self):
        self.loss_scale, self._iter = float(self.init_scale), 0
        self._last_overflow_iter = self._last_rescale_iter = -1
        self._overflows_since_rescale = 0

    def _step(self, finite):
        if not finite:
            self._overflow()
        elif (self._iter - self._last_overflow_iter) % self.scale_window == 0:
            self.loss_scale *= self.scale_factor
            self._last_rescale_iter = self._iter
        self._iter += 1
        return self.loss_scale

    def _overflow(self):
        self._last_overflow_iter = self._iter
        self._overflows_since_rescale += 1
        pct = self._overflows_since_rescale / float(self._iter - self._last_rescale_iter)
        lowered = self.loss_scale
        if pct >= self.tolerance:
            lowered = max(self.loss_scale / self.scale_factor, self.threshold or 0.0)
            self._last_rescale_iter, self._overflows_since_rescale = self._iter, 0
        if lowered <= self.min_loss_scale:
            raise ScalerError
        self.loss_scale = lowered
