"""
Lightning's Trainer with ampscale's scaler instead of torch's: `python examples/lightning_scaler.py`.

The first scale is too large on purpose: the first steps overflow and are skipped. Requires `pip install lightning`.
"""

import lightning
import torch
from lightning.pytorch.plugins.precision import MixedPrecision

from ampscale.torch import GradScaler


class Regression(lightning.LightningModule):
    """A linear layer, which the trainer runs in float16."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        """Return the mean squared error: float32, shape ()."""
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs).float(), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer of all parameters."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


class PrintSteps(lightning.Callback):
    """Prints the scale after each step, and whether the step was skipped."""

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        """Compare the scale with the scale before: it falls only if the step was skipped."""
        scale = trainer.precision_plugin.scaler.get_scale()
        print(f"step {trainer.global_step:2}  {'skipped' if scale < self.scale else 'applied'}, next scale {scale:.0f}")
        self.scale = scale

    def on_train_start(self, trainer: lightning.Trainer, *_: object) -> None:
        """Store the first scale."""
        self.scale = trainer.precision_plugin.scaler.get_scale()


def main(scaler: GradScaler) -> lightning.Trainer:
    """Train for 16 steps with *scaler*, and return the trainer."""
    torch.manual_seed(0)
    inputs = torch.randn(64, 8)
    batches = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    trainer = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        plugins=MixedPrecision("16-mixed", device="cpu", scaler=scaler),
        gradient_clip_val=1.0,
        callbacks=[PrintSteps()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), torch.utils.data.DataLoader(batches, batch_size=16))
    return trainer


if __name__ == "__main__":
    main(GradScaler("cpu", init_scale=2.0**24, growth_interval=4))
