"""MindSpore's scalers as plain loops."""

import numpy as np
from presets.loop import Loop

f32 = np.float32


class DynamicLossScaler(Loop):
    """`mindspore.amp.DynamicLossScaler`, MindSpore 2.10.0, mindspore/amp.py: the count before the step decides on a growth."""

    settings = "scale_value scale_factor scale_window"

    def start(self):
        self.scale, self.counter = f32(self.scale_value), 0

    def _step(self, finite):
        if not finite:
            self.scale, self.counter = max(f32(1), self.scale / f32(self.scale_factor)), 0
            return self.scale
        grown = self.scale * f32(self.scale_factor)
        if self.counter == self.scale_window - 1 and np.isfinite(grown):
            self.scale = grown
        self.counter = (self.counter + 1) % self.scale_window
        return self.scale


class DynamicLossScaleUpdateCell(Loop):
    """`mindspore.nn.DynamicLossScaleUpdateCell`, MindSpore 2.10.0, mindspore/nn/wrap/loss_scale.py: can grow to infinity."""

    settings = "loss_scale_value scale_factor scale_window"

    def start(self):
        self.scale, self.cur_iter, self.last_overflow_iter = f32(self.loss_scale_value), 1, 0

    def _step(self, finite):
        due = self.cur_iter - self.last_overflow_iter >= self.scale_window
        if not finite:
            self.scale = max(self.scale * (f32(1) / f32(self.scale_factor)), f32(1))
        elif due:
            self.scale = self.scale * f32(self.scale_factor)
        if due or not finite:
            self.last_overflow_iter = self.cur_iter
        self.cur_iter += 1
        return self.scale


class DynamicLossScaleManager(Loop):
    """`mindspore.amp.DynamicLossScaleManager`, MindSpore 2.10.0, mindspore/train/loss_scale_manager.py: in float64."""

    settings = "init_loss_scale scale_factor scale_window"

    def start(self):
        self.loss_scale, self.cur_iter, self.last_overflow_iter = float(self.init_loss_scale), 1, 0

    def _step(self, finite):
        if not finite:
            self.loss_scale = float(max(self.loss_scale * (1 / self.scale_factor), 1))
            self.last_overflow_iter = self.cur_iter
        elif (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            self.loss_scale *= self.scale_factor
        self.cur_iter += 1
        return self.loss_scale
