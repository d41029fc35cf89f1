"""fairseq's scaler as a plain loop; fairscale's copy is the same."""

from presets.loop import Loop, Stop


class DynamicLossScaler(Loop):
    """
    fairseq 0.12.2, fairseq/optim/dynamic_loss_scaler.py; fairscale 146f1602, fairscale/experimental/optim/dynamic_loss_scaler.py.

    One step is fairseq's: `check_overflow`, and `update` if it was finite. Where fairscale's is called as torch's is, with
    `update` after every step, an overflow counts for two steps, and the next growth comes one finite step early.
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
            raise Stop
        self.loss_scale = lowered
