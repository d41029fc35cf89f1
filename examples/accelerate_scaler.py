"""
Hugging Face's accelerate with ampscale's scaler instead of torch's: `python examples/accelerate_scaler.py`.

accelerate has float16 on accelerators only, so this script calls autocast itself and runs on a CPU. The first scale is too
large on purpose: the first steps overflow and are skipped. Requires `pip install accelerate`.
"""

import torch
from accelerate import Accelerator

from ampscale.torch import GradScaler


def main(scaler: GradScaler) -> None:
    """Train for 16 steps with *scaler*, and print each."""
    torch.manual_seed(0)
    inputs = torch.randn(16, 8)
    targets = inputs.sum(1, keepdim=True)
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = scaler  # before prepare(), which hands it to the optimizer

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    for _ in range(16):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = model(inputs)
        accelerator.backward(torch.nn.functional.mse_loss(outputs.float(), targets))
        optimizer.step()
        schedule.step()  # does nothing if the step was skipped
        done = "skipped" if optimizer.step_was_skipped else "applied"
        print(f"{done}, next scale {scaler.get_scale():.0f}, learning rate {schedule.get_last_lr()[0]:.4f}")


if __name__ == "__main__":
    main(GradScaler("cpu", init_scale=2.0**24, growth_interval=4))
