"""The command `ampscale demo`."""

import json
import time
from pathlib import Path

import click

from ..extras import need


@click.command()
@click.option(
    "--out", default="demo", show_default=True, type=click.Path(file_okay=False, path_type=Path), help="Where the picture goes."
)
@click.option("--steps", default=300, show_default=True, type=click.IntRange(min=1), help="How long each run trains.")
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the split, the weights and the batches."
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, and nothing else.")
def demo(out: Path, steps: int, seed: int, as_json: bool) -> None:
    """Train a float16 network on handwritten digits, seven ways, and draw what happened."""
    need("autograd", "matplotlib", "rich", "sklearn", "threadpoolctl", extra="demo")
    from . import digits, picture, screen, training

    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    data = digits.load(seed)
    if as_json:
        records = training.train_all(data, steps, seed, stepped=lambda _: None)
    else:
        screen.opening(data)
        with screen.Progress(steps) as progress:
            records = training.train_all(data, steps, seed, progress.stepped)
    drawn = picture.draw(records, out / "demo.png")
    if as_json:
        click.echo(json.dumps(training.report(records, seed, drawn), indent=2, allow_nan=False))
    else:
        screen.closing(records, drawn, time.monotonic() - started)
