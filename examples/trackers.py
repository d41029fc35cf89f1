"""
Loss scale, skipped steps and diagnoses in TensorBoard, and in Weights & Biases without a connection.

    pip install "ampscale[torch]" tensorboard wandb
    python examples/trackers.py

The script reads the logs of both trackers, and asserts that they have every step.
"""

import tempfile

import torch
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from ampscale.diagnostics import Monitor, TensorBoard, WeightsAndBiases
from ampscale.torch import GradScaler

STEPS = 20


def train(monitor: Monitor, model: torch.nn.Module) -> list[bool]:
    """Train with a scale that is too large at first, and return for each step whether it was applied."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler, applied = GradScaler("cpu", init_scale=2.0**24, monitor=monitor), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(16, 8)).float().square().mean()
        scaler.scale(loss).backward()
        applied.append(scaler.step(optimizer))
        scaler.update()
    return applied


def main() -> None:
    """Train with TensorBoard and Weights & Biases, and check what they have stored."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(silent=True))
        sinks = [TensorBoard(writer), WeightsAndBiases(run)]
        with Monitor(model.named_parameters(), measure_every=5, sinks=sinks) as monitor:
            applied = train(monitor, model)
        events = EventAccumulator(folder).Reload()
        assert [event.value == 0 for event in events.Scalars("ampscale/skipped")] == applied
        assert "ampscale/subnormal/0.weight" in events.Tags()["scalars"]
        assert len(events.Tensors("ampscale/diagnosis/text_summary")) == applied.count(False)
        assert (run.summary["ampscale/step"], run.summary["ampscale/skipped"]) == (STEPS - 1, float(not applied[-1]))
        run.finish()
    print(f"Both trackers have {applied.count(True)} applied and {applied.count(False)} skipped steps.")


if __name__ == "__main__":
    main()
