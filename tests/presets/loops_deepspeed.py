"""Scalers of DeepSpeed, Megatron and ColossalAI as plain loops."""

import numpy as np
from presets.loop import Loop, ScalerError

f32 = np.float32


class DynamicLossScaler(Loop):
    """DeepSpeed 0.19.8, deepspeed/runtime/fp16/loss_scaler.py: windows at the start and after overflows are one step longer."""

    settings = "init_scale scale_window delayed_shift min_scale raise_error_at_min_scale consecutive_hysteresis"

    def start(self):
        self.cur_scale, self.cur_hysteresis = float(self.init_scale), self.delayed_shift
        self.cur_iter, self.last_overflow_iter = 0, -1

    def _step(self, finite):
        if finite:
            stable = self.cur_iter - self.last_overflow_iter - 1
            grows = stable > 0 and stable % self.scale_window == 0
            if grows:
                self.cur_scale *= 2.0
            if grows or self.consecutive_hysteresis:
                self.cur_hysteresis = self.delayed_shift
        else:
            self._overflow()
            self.last_overflow_iter = self.cur_iter
        self.cur_iter += 1
        return self.cur_scale

    def _overflow(self):
        if self.cur_hysteresis > 1:
            self.cur_hysteresis -= 1
        elif self.cur_scale == self.min_scale and self.raise_error_at_min_scale:
            raise ScalerError
        else:
            self.cur_scale = max(self.cur_scale / 2.0, self.min_scale)


class Fp16Optimizer(Loop):
    """DeepSpeed 0.19.8, `_update_scale` of deepspeed/runtime/fp16/fused_optimizer.py and unfused_optimizer.py."""

    settings = "init_scale scale_window min_loss_scale"

    def start(self):
        self.cur_scale, self.cur_iter, self.last_overflow_iter = float(self.init_scale), 0, -1

    def _step(self, finite):
        if not finite:
            self.cur_scale, self.last_overflow_iter = max(self.cur_scale / 2.0, self.min_loss_scale), self.cur_iter
        stable_interval = self.cur_iter - self.last_overflow_iter - 1
        if stable_interval > 0 and stable_interval % self.scale_window == 0:
            self.cur_scale *= 2.0
        self.cur_iter += 1
        return self.cur_scale


class MegatronDynamicGradScaler(Loop):
    """Megatron-core 0.16.1, megatron/core/optimizer/grad_scaler.py: each overflow lowers a count that only growths reset."""

    settings = "initial_scale min_scale growth_factor backoff_factor growth_interval hysteresis"

    def start(self):
        self._scale, self._growth_tracker, self._hysteresis_tracker = f32(self.initial_scale), 0, self.hysteresis

    def _step(self, finite):
        if finite:
            self._growth_tracker += 1
            if self._growth_tracker == self.growth_interval:
                self._growth_tracker, self._hysteresis_tracker = 0, self.hysteresis
                self._scale = self._scale * f32(self.growth_factor)
        else:
            self._growth_tracker, self._hysteresis_tracker = 0, self._hysteresis_tracker - 1
            if self._hysteresis_tracker <= 0:
                self._scale = max(self._scale * f32(self.backoff_factor), f32(self.min_scale))
        return self._scale


class ColossalDynamicGradScaler(Loop):
    """ColossalAI 0.5.0, colossalai/amp/naive_amp/grad_scaler/dynamic_grad_scaler.py: only growths reset the overflow count."""

    settings = "initial_scale growth_factor backoff_factor growth_interval min_scale max_scale hysteresis"

    def start(self):
        self._scale, self._growth_step, self._hysteresis_step = f32(self.initial_scale), 0, 0

    def _step(self, finite):
        self._growth_step = self._growth_step + 1 if finite else 0
        self._hysteresis_step += int(not finite)
        if self._growth_step == self.growth_interval:
            self._growth_step = self._hysteresis_step = 0
            self._scale = min(self._scale * f32(self.growth_factor), f32(self.max_scale))
        if not finite and self._hysteresis_step >= self.hysteresis:
            self._scale = max(self._scale * f32(self.backoff_factor), f32(self.min_scale))
        return self._scale
