"""
Training with Hugging Face's accelerate and ampscale's scaler: `python examples/accelerate_loop.py`.

accelerate accumulates, unscales before it clips, does not advance the schedule on a skipped step, and saves the scaler. The loop
updates the average of the weights. The first scale is too large on purpose. Requires `pip install accelerate`.
"""

import tempfile
from itertools import islice

import torch
from accelerate import Accelerator
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ampscale.torch import GradScaler

STEPS, BATCHES, SIZE = 12, 2, 16  # optimizer steps, batches of each step, and samples of each batch
DATA = torch.randn(STEPS * BATCHES * SIZE, 8, generator=torch.Generator().manual_seed(0))


def create():
    """Return an Accelerator, and the parts of a new run, which it has prepared where necessary."""
    accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=BATCHES)
    accelerator.scaler = GradScaler(accelerator.device, init_scale=2.0**17, growth_interval=4)  # before prepare()
    accelerator.native_amp = True  # only needed on a CPU, where accelerate ignores "fp16"

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    average = AveragedModel(model, accelerator.device, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    accelerator.register_for_checkpointing(average)
    loader = torch.utils.data.DataLoader(DATA, batch_size=SIZE)
    return accelerator, average, *accelerator.prepare(model, optimizer, schedule, loader)


def train(run, start, stop):
    """Run the steps from *start* to *stop*, and print each."""
    accelerator, average, model, optimizer, schedule, loader = run
    batches = islice(accelerator.skip_first_batches(loader, start * BATCHES), (stop - start) * BATCHES)
    for index, inputs in enumerate(batches, start * BATCHES):
        with accelerator.accumulate(model):
            loss = mse_loss(model(inputs), inputs.sum(1, keepdim=True))
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            if not optimizer.step_was_skipped:
                average.update_parameters(model)
            outcome = "skipped" if optimizer.step_was_skipped else "applied"
            rate = schedule.get_last_lr()[0]
            scale = accelerator.scaler.get_scale()
            print(f"step {index // BATCHES:2}  loss {loss:.4f}  {outcome}, next scale {scale:.0f}, learning rate {rate:.5f}")


def main():
    """Train with a checkpoint after half of the steps, resume from it, and compare the final states of the two runs."""
    run, resumed = create(), create()
    with tempfile.TemporaryDirectory() as folder:
        train(run, 0, STEPS // 2)
        run[0].save_state(folder)
        train(run, STEPS // 2, STEPS)
        resumed[0].load_state(folder)
        train(resumed, STEPS // 2, STEPS)
    torch.testing.assert_close(states_of(resumed), states_of(run), rtol=0, atol=0)
    print("The resumed run has ended with the same state.")


def states_of(run):
    """Return the state dicts of the scaler, average, model, optimizer and schedule."""
    accelerator, *parts, _ = run
    return [part.state_dict() for part in (accelerator.scaler, *parts)]


if __name__ == "__main__":
    main()
