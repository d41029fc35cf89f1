"""
A loop with Paddle's GradScaler, on torch: `python examples/paddle_style.py`.

Each step adds the gradients of two micro-batches. The first scale is too large on purpose: the first steps overflow and are
skipped. `step` returns whether the optimizer stepped, and the schedule and the moving average advance only if it did.
Requires ampscale[torch].
"""

import io

import torch

import ampscale

MICRO_BATCHES = 2


class Run:
    """Everything that a run needs to continue."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.95)
        self.average = torch.optim.swa_utils.AveragedModel(
            self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95)
        )
        self.scaler = ampscale.GradScaler(init_loss_scaling=2.0**24, incr_every_n_steps=8, decr_every_n_nan_or_inf=1)

    def state_dict(self):
        """Return the state of each part. The scale is a number, since `torch.load` rejects NumPy arrays by default."""
        state = {name: part.state_dict() for name, part in vars(self).items()}
        state["scaler"]["scale"] = self.scaler.get_loss_scaling()
        return state

    def load_state_dict(self, state):
        """Restore the state of each part."""
        for name, part in vars(self).items():
            part.load_state_dict(state[name])

    def step(self, x, y, minimize=False):
        """Run one step, and return whether it was applied."""
        for inputs, targets in zip(x.chunk(MICRO_BATCHES), y.chunk(MICRO_BATCHES), strict=True):
            with torch.autocast("cpu", dtype=torch.float16):
                outputs = self.model(inputs)[:, 0]
            loss = torch.nn.functional.mse_loss(outputs.float(), targets) / MICRO_BATCHES
            scaled = self.scaler.scale(loss)
            scaled.backward()  # adds to the scaled gradients: an overflow in any micro-batch skips the step
        self.scaler.unscale_(self.optimizer)  # once per step, before clipping
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        if minimize:  # step and update in one call
            applied = self.scaler.minimize(self.optimizer, scaled) != (None, None)
        else:
            applied = self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()
        if applied:
            self.schedule.step()
            self.average.update_parameters(self.model)
        return applied


def main():
    """Train for 48 steps, with a checkpoint after step 20, and compare with a run that is resumed from it."""
    x = torch.randn(48, 64, 2, generator=torch.Generator().manual_seed(1))
    batches = list(zip(x, x[..., 0] * x[..., 1], strict=True))

    run, applied, checkpoint = Run(seed=0), 0, io.BytesIO()
    for index, batch in enumerate(batches):
        if index == 20:
            torch.save(run.state_dict(), checkpoint)
        applied += run.step(*batch)

    checkpoint.seek(0)
    resumed = Run(seed=2)
    resumed.load_state_dict(torch.load(checkpoint, weights_only=True))
    for batch in batches[20:]:
        resumed.step(*batch, minimize=True)
    torch.testing.assert_close(resumed.state_dict(), run.state_dict(), rtol=0, atol=0)

    assert run.schedule.last_epoch == run.average.n_averaged == applied
    print(f"{applied} applied, {len(batches) - applied} skipped, resumed bit for bit")


if __name__ == "__main__":
    main()
