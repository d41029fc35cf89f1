"""
A training loop in torch with a loss scaler, a schedule, an average and a checkpoint: `python examples/torch_loop.py`.

Each step accumulates the gradients of two batches and clips them. A skipped step changes neither the learning-rate schedule nor
the average of the weights, and a resumed run ends with the same state as an uninterrupted one. The first scale is too large on
purpose. Requires ampscale[torch].
"""

import io

import torch
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ampscale.torch import GradScaler  # instead of: from torch.amp import GradScaler

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, BATCHES = 12, 2  # optimizer steps, and batches of each step
DATA = torch.randn(STEPS, BATCHES, 16, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)


def create():
    """Return the parts of a new run, whose state dicts make a checkpoint."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return {
        "model": model,
        "optimizer": optimizer,
        "schedule": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS),
        "average": AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)),
        "scaler": GradScaler(DEVICE, init_scale=2.0**17, growth_interval=4),
    }


def train(run, start, stop):
    """Run the steps from *start* to *stop*, and print each."""
    model, optimizer, schedule, average, scaler = run.values()
    for step in range(start, stop):
        for inputs in DATA[step]:
            with torch.autocast(DEVICE, dtype=torch.float16):
                outputs = model(inputs)
            loss = mse_loss(outputs.float(), inputs.sum(1, keepdim=True))
            scaler.scale(loss / BATCHES).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        is_applied = scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if is_applied:
            schedule.step()
            average.update_parameters(model)
        outcome, rate = "applied" if is_applied else "skipped", schedule.get_last_lr()[0]
        print(f"step {step:2}  loss {loss:.4f}  {outcome}, next scale {scaler.get_scale():.0f}, learning rate {rate:.5f}")


def main():
    """Train with a checkpoint after half of the steps, resume from it, and compare the final states of the two runs."""
    run, file = create(), io.BytesIO()
    train(run, 0, STEPS // 2)
    torch.save({"step": STEPS // 2, **state_of(run)}, file)
    train(run, STEPS // 2, STEPS)

    resumed, saved = create(), torch.load(io.BytesIO(file.getvalue()))
    for name, part in resumed.items():
        part.load_state_dict(saved[name])
    train(resumed, saved["step"], STEPS)
    torch.testing.assert_close(state_of(resumed), state_of(run), rtol=0, atol=0)
    print("The resumed run has ended with the same state.")


def state_of(run):
    """Return the state dict of each part."""
    return {name: part.state_dict() for name, part in run.items()}


if __name__ == "__main__":
    main()
