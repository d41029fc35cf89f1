"""
Hugging Face's Trainer with ampscale's scaler: `python examples/transformers_trainer.py`.

The trainer accumulates, unscales before it clips, does not advance the schedule on a skipped step, and saves the scaler. A
callback updates the average of the weights. The first scale is too large on purpose.

Requires `pip install "transformers[torch]"`.
"""

import tempfile

import torch
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import Trainer, TrainerCallback, TrainingArguments

from ampscale.torch import GradScaler

STEPS, BATCHES, SIZE = 12, 2, 16  # optimizer steps, batches of each step, and samples of each batch
DATA = torch.randn(STEPS * BATCHES * SIZE, 8, generator=torch.Generator().manual_seed(0))


class Regression(torch.nn.Module):
    """Network and the average of its weights, which are both part of the module and so of its checkpoints."""

    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.average = AveragedModel(self.network, multi_avg_fn=get_ema_multi_avg_fn(0.9)).requires_grad_(False)

    def forward(self, inputs):
        """Return the loss: float32, shape ()."""
        return {"loss": mse_loss(self.network(inputs).float(), inputs.sum(1, keepdim=True))}


class UpdateAverage(TrainerCallback):
    """Callback that updates the average of the weights, and prints each step of the optimizer."""

    def __init__(self, accelerator):
        self.accelerator = accelerator

    def on_step_end(self, args, state, control, model, lr_scheduler, **_):
        """Update the average of the weights unless the step was skipped, and print the step."""
        is_applied = not self.accelerator.optimizer_step_was_skipped
        if is_applied:
            model.average.update_parameters(model.network)
        outcome, rate = "applied" if is_applied else "skipped", lr_scheduler.get_last_lr()[0]
        scale = self.accelerator.scaler.get_scale()
        print(f"step {state.global_step - 1:2}  {outcome}, next scale {scale:.0f}, learning rate {rate:.5f}")


def train(folder, checkpoint=None):
    """Train, from *checkpoint* if one is given, and return the state dicts of all parts."""
    arguments = TrainingArguments(
        folder,
        fp16=True,
        max_steps=STEPS,
        save_steps=STEPS // 2,
        per_device_train_batch_size=SIZE,
        gradient_accumulation_steps=BATCHES,
        max_grad_norm=1.0,
        learning_rate=0.01,
        lr_scheduler_type="cosine",
        optim="adamw_torch",  # with the default, which is fused, accelerate reports no step as skipped
        train_sampling_strategy="sequential",
        report_to="none",
        disable_tqdm=True,
    )
    torch.manual_seed(0)
    model = Regression()
    trainer = Trainer(model, arguments, train_dataset=[{"inputs": row} for row in DATA])
    accelerator = trainer.accelerator
    accelerator.scaler = GradScaler(accelerator.device, init_scale=2.0**17, growth_interval=4)  # before train()
    accelerator.native_amp = True  # only needed on a CPU, where accelerate ignores fp16=True
    trainer.add_callback(UpdateAverage(accelerator))
    trainer.train(resume_from_checkpoint=checkpoint)
    return [part.state_dict() for part in (model, trainer.optimizer, trainer.lr_scheduler, accelerator.scaler)]


def main():
    """Train with a checkpoint after half of the steps, resume from it, and compare the final states of the two runs."""
    with tempfile.TemporaryDirectory() as folder:
        whole = train(f"{folder}/whole")
        resumed = train(f"{folder}/resumed", checkpoint=f"{folder}/whole/checkpoint-{STEPS // 2}")
    torch.testing.assert_close(resumed, whole, rtol=0, atol=0)
    print("The resumed run has ended with the same state.")


if __name__ == "__main__":
    main()
