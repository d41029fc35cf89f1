"""Scalers for JAX as plain loops."""

import numpy as np
from presets.loop import Loop

f32 = np.float32
FLOAT32 = np.finfo(np.float32)


class JmpDynamicLossScale(Loop):
    """`jmp.DynamicLossScale`, jmp 0.0.4, jmp/_src/loss_scale.py: grows if the count, before it is updated, is `period - 1`."""

    settings = "loss_scale period factor min_loss_scale"

    def start(self):
        self.scale, self.counter = f32(self.loss_scale), 0

    def _step(self, finite):
        if finite and self.counter == self.period - 1:
            grown = self.scale * f32(self.factor)
            self.scale = grown if np.isfinite(grown) else self.scale
        if not finite:
            self.scale = max(f32(self.min_loss_scale), self._divided())
        self.counter = (self.counter + 1) % self.period * finite
        return self.scale

    def _divided(self):
        return self.scale / f32(self.factor)


class JmpCompiled(JmpDynamicLossScale):
    """`jmp.DynamicLossScale` inside `jax.jit`: multiplies by the reciprocal; rebuilding the pytree resets the minimum to 1."""

    settings = "loss_scale period factor"

    def start(self):
        self.min_loss_scale = 1.0
        super().start()

    def _divided(self):
        return self.scale * f32(1 / f32(self.factor))


class MpxDynamicLossScaling(Loop):
    """`mpx.DynamicLossScaling`, commit 8b5262c, mpx/_loss_scaling.py: jmp's rule, clipped to [minimum, 65504] at every step."""

    settings = "loss_scaling min_loss_scaling factor period"

    def start(self):
        self.scale, self.counter = f32(self.loss_scaling), 0

    def _step(self, finite):
        low, high, factor = f32(self.min_loss_scaling), f32((2 - 2**-10) * 2**15), f32(self.factor)
        scale = self.scale if finite else max(low, self.scale / factor)
        if finite and self.counter == self.period - 1 and np.isfinite(self.scale * factor):
            scale = self.scale * factor
        self.scale = min(max(scale, low), high)
        self.counter = (self.counter + 1) % self.period * finite
        return self.scale


class FlaxDynamicScale(Loop):
    """`flax.training.dynamic_scale.DynamicScale`, flax 0.12.8: a growth takes one finite step more than the interval."""

    settings = "growth_factor backoff_factor growth_interval scale minimum_scale"

    def start(self):
        self.scale, self.fin_steps = f32(self.scale), 0

    def _step(self, finite):
        grow = self.fin_steps == self.growth_interval
        if finite and grow:
            self.scale = min(self.scale * f32(self.growth_factor), FLOAT32.max)
        if not finite:
            self.scale = self.scale * f32(self.backoff_factor)
            self.scale = self.scale if self.minimum_scale is None else max(self.scale, f32(self.minimum_scale))
        self.fin_steps = 0 if grow or not finite else self.fin_steps + 1
        return self.scale
