"""Paddle's scalers as plain loops."""

import numpy as np
from presets.loop import Loop

f32 = np.float32


class GradScaler(Loop):
    """`paddle.amp.GradScaler` and its base `AmpScaler` on dynamic graphs, Paddle 3.3.1, python/paddle/amp/grad_scaler.py."""

    settings = "init_loss_scaling incr_ratio decr_ratio incr_every_n_steps decr_every_n_nan_or_inf"

    def start(self):
        self.scale, self.incr_count, self.decr_count = f32(self.init_loss_scaling), 0, 0

    def _step(self, finite):
        if finite:
            self.decr_count = 0
            self.incr_count += 1
            if self.incr_count == self.incr_every_n_steps:
                self.scale, self.incr_count = self.scale * f32(self.incr_ratio), 0
        else:
            self.incr_count = 0
            self.decr_count += 1
            if self.decr_count == self.decr_every_n_nan_or_inf:
                self.scale, self.decr_count = self.scale * f32(self.decr_ratio), 0
        return self.scale


class GradScalerPage(Loop):
    """
    Scaler on the page of `paddle.amp.GradScaler`: growth after n finite steps in a row, backoff after n overflows in total.

    A change of the scale restarts both counts, as in the TensorFlow manager from which the parameters come.
    """

    settings = "init_loss_scaling incr_ratio decr_ratio incr_every_n_steps decr_every_n_nan_or_inf"

    def start(self):
        self.scale, self.in_a_row, self.added_up = f32(self.init_loss_scaling), 0, 0

    def _step(self, finite):
        self.in_a_row = self.in_a_row + 1 if finite else 0
        self.added_up += int(not finite)
        if self.in_a_row == self.incr_every_n_steps:
            self.scale, self.in_a_row, self.added_up = self.scale * f32(self.incr_ratio), 0, 0
        if self.added_up == self.decr_every_n_nan_or_inf:
            self.scale, self.in_a_row, self.added_up = self.scale * f32(self.decr_ratio), 0, 0
        return self.scale


class UpdateLossScaling(Loop):
    """Kernel of static graphs, Paddle 3.3.1, paddle/phi/kernels/impl/amp_kernel_impl.h."""

    settings = "init_loss_scaling incr_ratio decr_ratio incr_every_n_steps decr_every_n_nan_or_inf"

    def start(self):
        self.loss_scaling, self.good, self.bad = f32(self.init_loss_scaling), 0, 0

    def _step(self, finite):
        self.good, self.bad = (self.good + 1, 0) if finite else (0, self.bad + 1)
        if self.good == self.incr_every_n_steps:
            self.good, grown = 0, self.loss_scaling * f32(self.incr_ratio)
            self.loss_scaling = grown if np.isfinite(grown) else self.loss_scaling
        if self.bad == self.decr_every_n_nan_or_inf:
            self.bad, self.loss_scaling = 0, max(f32(1), self.loss_scaling * f32(self.decr_ratio))
        return self.loss_scaling
