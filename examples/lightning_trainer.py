"""
Lightning's Trainer with ampscale's scaler: `python examples/lightning_trainer.py`.

The trainer accumulates, unscales before it clips and saves the scaler, but advances a schedule on skipped steps too. Two methods
of the module prevent that. The first scale is too large on purpose. Requires `pip install lightning`.
"""

import tempfile

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ampscale.torch import GradScaler

STEPS, BATCHES = 12, 2  # optimizer steps in two epochs, and batches of each step
DATA = torch.randn(2, STEPS * BATCHES // 2, 16, 8, generator=torch.Generator().manual_seed(0))


class Regression(lightning.LightningModule):
    """Network and the average of its weights, which are both part of the module and so of its checkpoints."""

    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.average = AveragedModel(self.network, multi_avg_fn=get_ema_multi_avg_fn(0.9)).requires_grad_(False)

    def train_dataloader(self):
        """Return the batches of the current epoch. With a plain DataLoader, a run can be resumed only at the end of an epoch."""
        return torch.utils.data.DataLoader(DATA[self.current_epoch], batch_size=None)

    def configure_optimizers(self):
        """Return the optimizer, and a schedule for its steps."""
        optimizer = torch.optim.AdamW(self.network.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def training_step(self, inputs):
        """Return the loss: float32, shape ()."""
        return mse_loss(self.network(inputs).float(), inputs.sum(1, keepdim=True))

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        """Take a step, and update the average unless the scaler skipped it."""
        self.is_applied = optimizer.step(closure=optimizer_closure)  # returns what `GradScaler.step` returns
        if self.is_applied:
            self.average.update_parameters(self.network)

    def lr_scheduler_step(self, scheduler, metric):
        """Advance the schedule unless the step was skipped."""
        if self.is_applied:
            scheduler.step()


class PrintSteps(lightning.Callback):
    """Callback that prints each step of the optimizer."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        """Print the loss of the last batch, the next scale and the next learning rate."""
        if batch_idx % BATCHES == BATCHES - 1:
            step, loss = trainer.global_step - 1, outputs["loss"] * BATCHES
            outcome = "applied" if module.is_applied else "skipped"
            scale, rate = trainer.precision_plugin.scaler.get_scale(), module.lr_schedulers().get_last_lr()[0]
            print(f"step {step:2}  loss {loss:.4f}  {outcome}, next scale {scale:.0f}, learning rate {rate:.5f}")


def train(folder, checkpoint=None):
    """Train two epochs, or the epochs after *checkpoint*, and return the content of the last checkpoint."""
    torch.manual_seed(0)
    scaler = GradScaler("cpu", init_scale=2.0**17, growth_interval=4)
    trainer = lightning.Trainer(
        accelerator="cpu",
        plugins=MixedPrecision("16-mixed", device="cpu", scaler=scaler),
        max_epochs=len(DATA),
        reload_dataloaders_every_n_epochs=1,
        accumulate_grad_batches=BATCHES,
        gradient_clip_val=1.0,
        callbacks=[PrintSteps(), ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), ckpt_path=checkpoint, weights_only=True)
    return torch.load(f"{folder}/epoch=1.ckpt")


def main():
    """Train, resume from the checkpoint of the first epoch, and compare the final states of the two runs."""
    with tempfile.TemporaryDirectory() as folder:
        whole = train(f"{folder}/whole")
        resumed = train(f"{folder}/resumed", checkpoint=f"{folder}/whole/epoch=0.ckpt")
    for name in ("state_dict", "optimizer_states", "lr_schedulers", "MixedPrecision"):
        torch.testing.assert_close(resumed[name], whole[name], rtol=0, atol=0)
    print("The resumed run has ended with the same state.")


if __name__ == "__main__":
    main()
