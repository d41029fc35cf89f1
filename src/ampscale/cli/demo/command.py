"""The command `ampscale demo`."""

import json
import time
from pathlib import Path

import click

from ..commands import command
from ..extras import require

SEED = "Random seed for the data split, the weights and the batches."


@command(
    "ampscale demo",
    "ampscale demo --steps 50 --seed 1 --json",
    short_help="Train a float16 network in seven ways, and plot the scales.",
)
@click.option(
    "--out", default="demo", show_default=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the picture."
)
@click.option("--steps", default=300, show_default=True, type=click.IntRange(min=1), help="Number of training steps of each run.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help=SEED)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON and nothing else.")
def demo(out: Path, steps: int, seed: int, as_json: bool) -> None:
    """Train a float16 network on handwritten digits in seven ways, and plot the scale, the loss and the underflow."""
    require("autograd", "matplotlib", "rich", "sklearn", "threadpoolctl", extra="demo")
    from . import digits, picture, screen, training

    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    data = digits.load(seed)
    if as_json:
        records = training.train_all(data, steps, seed, after_step=lambda _: None)
    else:
        screen.print_setup(data)
        with screen.progress_bars(steps) as update:
            records = training.train_all(data, steps, seed, update)
    path = out / "demo.png"
    picture.draw(records, path)
    report = training.report(records, seed, path)
    if as_json:
        click.echo(json.dumps(report, indent=2, allow_nan=False))
    else:
        screen.print_results(report, time.monotonic() - started)
