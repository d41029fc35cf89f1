"""Scaler of torch, and scalers that are built on it, as plain loops."""

from math import isclose, isfinite

import numpy as np
from presets.loop import Loop, ScalerError

f32 = np.float32


class GradScaler(Loop):
    """`torch.amp.GradScaler`, torch 2.13.0, aten/src/ATen/native/cuda/AmpKernels.cu: multiplies in float64, rounds once."""

    settings = "init_scale growth_factor backoff_factor growth_interval"

    def start(self):
        self._scale, self._growth_tracker = f32(self.init_scale), 0

    def _step(self, finite):
        if not finite:
            self._scale, self._growth_tracker = f32(float(self._scale) * self.backoff_factor), 0
            return self._scale
        successful = self._growth_tracker + 1
        if successful == self.growth_interval:
            new_scale = f32(float(self._scale) * self.growth_factor)
            if isfinite(new_scale):
                self._scale = new_scale
            successful = 0
        self._growth_tracker = successful
        return self._scale


class ShardedGradScaler(GradScaler):
    """Subclass for sharded models on CPU, torch 2.13.0, torch/distributed/fsdp/sharded_grad_scaler.py: multiplies in float32."""

    settings = "init_scale backoff_factor growth_factor growth_interval"

    def _step(self, finite):
        if finite:
            self._growth_tracker += 1
            if self._growth_tracker == self.growth_interval:
                self._scale *= f32(self.growth_factor)
                self._growth_tracker = 0
        else:
            self._scale *= f32(self.backoff_factor)
            self._growth_tracker = 0
        return self._scale


class UpdateScaleHysteresis(Loop):
    """Apex's kernel `update_scale_hysteresis`, main of 2026-07-08, csrc/update_scale_hysteresis.cu."""

    settings = "init_scale growth_factor backoff_factor growth_interval hysteresis"

    def start(self):
        self.current_scale = f32(self.init_scale)
        self.growth_tracker, self.hysteresis_tracker = 0, self.hysteresis

    def _step(self, finite):
        if finite:
            self.hysteresis_tracker = self.hysteresis
            self.growth_tracker += 1
            if self.growth_tracker == self.growth_interval:
                self.growth_tracker, new_scale = 0, f32(float(self.current_scale) * self.growth_factor)
                self.current_scale = new_scale if isfinite(new_scale) else self.current_scale
        else:
            self.growth_tracker = 0
            self.hysteresis_tracker -= 1
            if self.hysteresis_tracker <= 0:
                self.current_scale = f32(float(self.current_scale) * self.backoff_factor)
        return self.current_scale


class NemoGradScaler(GradScaler):
    """NeMo's subclass of torch's scaler, commit 8cfedd72, nemo/collections/nlp/parts/nlp_overrides.py: adds hysteresis."""

    settings = "init_scale growth_factor backoff_factor growth_interval hysteresis"

    def start(self):
        super().start()
        self._hysteresis_tracker = self.hysteresis

    def _step(self, finite):
        self._hysteresis_tracker = self.hysteresis if finite else self._hysteresis_tracker - 1
        if not finite and self._hysteresis_tracker > 0:
            self._growth_tracker = 0
            return self._scale
        return super()._step(finite)


class StandardFloat16LossScaler(GradScaler):
    """fairseq2's scaler, commit 027bdebc, src/fairseq2/optim/fp16_loss_scaler.py: torch's rule with a minimum."""

    settings = "init_scale scale_factor scale_window min_scale"

    def start(self):
        self.growth_factor, self.backoff_factor = self.scale_factor, 1 / self.scale_factor
        self.growth_interval = self.scale_window
        super().start()

    def _step(self, finite):
        old_scale = float(self._scale)
        new_scale = float(super()._step(finite))
        if new_scale < min(old_scale, self.min_scale) and not isclose(new_scale, old_scale, rel_tol=1.3e-6, abs_tol=1e-5):
            raise ScalerError
        return self._scale
