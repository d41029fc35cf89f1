"""Apex' older scalers as plain loops, in Python's own float64."""

from presets.loop import Loop


class LossScaler(Loop):
    """`apex.amp`, before its removal of 2025-05-08, apex/amp/scaler.py: by 2 whatever it is told."""

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


class DynamicLossScaler(Loop):
    """`apex.fp16_utils`, before its removal of 2025-05-08, apex/fp16_utils/loss_scaler.py: a modulus of iterations."""

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
