"""The command line. What a command needs is imported when it runs, so that `ampscale --help` stays light."""

import json
import time
from pathlib import Path

from .. import __version__
from .needs import MISSING, need

try:
    import click
except ModuleNotFoundError:
    raise SystemExit(MISSING.format("click", "cli")) from None

from .compare import compare  # click comes first: what is missing is said
from .conform import conform
from .convert import convert
from .identify import identify
from .presets import presets
from .simulate import simulate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ampscale")
def main() -> None:
    """Loss scaling for mixed-precision training."""


@main.command()
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


@main.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def doctor(arguments: tuple[str, ...]) -> None:
    """Say which array libraries are here, what they can do, and which one is chosen."""
    from .doctor import main as examine

    raise SystemExit(examine(list(arguments)))


for command in (presets, simulate, compare, identify, convert, conform):
    main.add_command(command)
