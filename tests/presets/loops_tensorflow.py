"""Scalers of Keras and TensorFlow as plain loops."""

import numpy as np
from presets.loop import Loop

f32 = np.float32


class KerasLossScaleOptimizer(Loop):
    """`keras.optimizers.LossScaleOptimizer`, Keras 3.15.1, keras/src/optimizers/loss_scale_optimizer.py: no bounds."""

    settings = "initial_scale dynamic_growth_steps"

    def start(self):
        self.dynamic_scale, self.step_counter = f32(self.initial_scale), 0

    def _step(self, finite):
        if not finite:
            self.dynamic_scale, self.step_counter = self.dynamic_scale / f32(2), 0
        elif self.step_counter == self.dynamic_growth_steps - 1:
            self.dynamic_scale, self.step_counter = self.dynamic_scale * f32(2), 0
        else:
            self.step_counter += 1
        return self.dynamic_scale


class DynamicLossScale(Loop):
    """`tf.compat.v1.mixed_precision.DynamicLossScale`, TensorFlow 2.21.0, python/training/experimental/loss_scale.py."""

    settings = "initial_loss_scale increment_period multiplier"

    def start(self):
        self.current_loss_scale, self.good_steps = f32(self.initial_loss_scale), 0

    def _step(self, finite):
        if not finite:
            self.current_loss_scale = max(self.current_loss_scale / f32(self.multiplier), f32(1))
            self.good_steps = 0
        elif self.good_steps + 1 >= self.increment_period:
            grown = self.current_loss_scale * f32(self.multiplier)
            self.current_loss_scale = grown if np.isfinite(grown) else self.current_loss_scale
            self.good_steps = 0
        else:
            self.good_steps += 1
        return self.current_loss_scale


class TfKerasLossScaleOptimizer(DynamicLossScale):
    """`tf_keras.mixed_precision.LossScaleOptimizer`, tf_keras 2.21.0, mixed_precision/loss_scale_optimizer.py: factor 2."""

    settings = "initial_scale dynamic_growth_steps"

    def start(self):
        self.initial_loss_scale, self.increment_period, self.multiplier = self.initial_scale, self.dynamic_growth_steps, 2.0
        super().start()


class ExponentialUpdateLossScaleManager(Loop):
    """TensorFlow 1.15.5, contrib/mixed_precision/python/loss_scale_manager.py: finite steps do not reset the overflow count."""

    settings = "init_loss_scale incr_every_n_steps decr_every_n_nan_or_inf incr_ratio decr_ratio"

    def start(self):
        self.loss_scale, self.good_steps, self.bad_steps = f32(self.init_loss_scale), 0, 0

    def _step(self, finite):
        if finite and self.good_steps + 1 >= self.incr_every_n_steps:
            grown = self.loss_scale * f32(self.incr_ratio)
            self.loss_scale = grown if np.isfinite(grown) else self.loss_scale
            self.good_steps = self.bad_steps = 0
        elif finite:
            self.good_steps += 1
        elif self.bad_steps + 1 >= self.decr_every_n_nan_or_inf:
            self.loss_scale = max(f32(1), self.loss_scale * f32(self.decr_ratio))
            self.good_steps = self.bad_steps = 0
        else:
            self.bad_steps, self.good_steps = self.bad_steps + 1, 0
        return self.loss_scale
