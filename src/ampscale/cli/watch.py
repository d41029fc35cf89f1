"""`ampscale watch`: the current state of a run, while another process writes its file."""

import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from ..diagnostics.run_files import Run, RunReader, read_run
from ..diagnostics.verdicts import message_with_stall
from .commands import command, usage_errors
from .describe import counted, exact, fold, percent
from .extras import require
from .progress import progress
from .report_page.layers import Layer, complete_measurements, layers_of

if TYPE_CHECKING:
    from rich.console import Group

PERIOD = 0.5  # seconds between two refreshes
WIDTH, ROWS, SKIPS = 60, 10, 5  # maximum numbers of blocks in the line of scales, of gradients, and of listed skipped steps
BLOCKS = "▁▂▃▄▅▆▇█"


@command("ampscale watch run.jsonl", "ampscale watch run.jsonl --once", short_help="Follow a run in the terminal.")
@click.argument("run", metavar="RUN", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--once", is_flag=True, help="Print the current state and exit.")
def watch(run: Path, once: bool) -> None:
    """
    Show the scale, skipped steps, norm and lost values of a run, twice a second until Ctrl-C.

    RUN is a file that `ampscale.diagnostics.JSONLines` is writing. The command waits for a file that does not exist yet. If the
    file is replaced, the command reads the new file from its start.
    """
    require("rich")
    if not once and not sys.stdout.isatty():
        raise click.UsageError("stdout must be a terminal, unless --once is given, which prints the current state")
    with suppress(KeyboardInterrupt), usage_errors():
        if not once:
            _follow(run)
        elif run.exists():
            _print(run)
        else:
            raise ValueError(f"File {str(run)!r} does not exist")


def _print(path: Path) -> None:
    from .tables import trimmed_console

    with progress("Reading") as advance:
        content = read_run(path, advance)
    with trimmed_console() as console:
        console.print(_state(path, content))


def _follow(path: Path) -> None:
    from rich.live import Live
    from rich.text import Text

    waiting = Text(f"Waiting for {path}")
    with Live(waiting, auto_refresh=False) as live:
        for content in _contents(path):
            live.update(waiting if content is None else _state(path, content), refresh=True)
            time.sleep(PERIOD)


def _contents(path: Path) -> Iterator[Run | None]:
    """Yield the content of the file for each refresh, indefinitely; None while it does not exist or has no header."""
    reader = RunReader()
    file_id = None
    while True:
        if path.exists():
            status = path.stat()
            if (status.st_dev, status.st_ino) != file_id or status.st_size < reader.bytes:
                reader = RunReader()
            file_id = status.st_dev, status.st_ino
            reader.read(path)
        yield None if reader.header is None else reader.run()


def _state(path: Path, run: Run) -> "Group":
    """Return text about the run, and a table of the first gradients by `Layer.sort_key` at the last measured step."""
    from rich.console import Group
    from rich.text import Text

    from .tables import Column, number_columns, table

    text = Text("\n".join(fold(line, "  ") for line in [*_lines(path, run), *_verdicts(run)]))
    if not run.measurements:
        return Group(text)
    names, measurements = complete_measurements(run)
    title = Column(f"at step {run.steps[measurements[-1].position]:,}", overflow="fold")
    layers = sorted(layers_of(run, names, measurements[-1:]), key=Layer.sort_key)[:ROWS]
    return Group(text, table([title, *number_columns("lost", "subnormal", "largest", "finite")], map(_cells, layers)))


def _cells(layer: Layer) -> tuple[str, ...]:
    largest = "-" if layer.largest is None else f"< 2^{layer.largest}"
    return layer.name, percent(layer.lost), percent(layer.subnormal), largest, "no" if layer.nonfinite else "yes"


def _lines(path: Path, run: Run) -> Iterator[str]:
    steps = run.steps.size
    if not steps:
        yield f"{path.name}: no step yet"
        return
    skipped = int(np.count_nonzero(~run.applied))
    share = percent(skipped / steps)
    yield f"{path.name}: {counted(steps, 'step')}, the last is {run.steps[-1]:,}; {skipped:,} skipped ({share})"
    yield f"scale    {exact(float(run.next_scales[-1]))}"
    yield f"         {_blocks(run.scales)}"
    yield f"loss     {_loss(run)}"
    with_norm = np.flatnonzero(~np.isnan(run.norms))
    norm = f"{run.norms[with_norm[-1]]:.6g} at step {run.steps[with_norm[-1]]:,}" if with_norm.size else "unknown"
    yield f"norm     {norm}"


def _blocks(scales: np.ndarray) -> str:
    """Return a line of blocks. Each shows the base-2 logarithm of the largest scale in one of several equal parts of the run."""
    starts = np.unique(np.arange(WIDTH) * scales.size // WIDTH)
    levels = np.log2(np.clip(np.maximum.reduceat(scales, starts), 2.0**-149, 2.0**128))
    low, high = levels.min(), levels.max()
    heights = (levels - low) / (high - low) * (len(BLOCKS) - 1) if high > low else np.zeros(levels.size)
    return "".join(BLOCKS[round(height)] for height in np.nan_to_num(heights).tolist())


def _loss(run: Run) -> str:
    """Return the loss of the last step, or "unknown"."""
    loss = float(run.losses[-1])
    if not math.isnan(loss):
        return f"{loss:.6g}"
    record = run.others.get(run.steps.size - 1)  # `losses` also has NaN for an unknown loss
    return "unknown" if record is None or record.loss is None else "NaN"


def _verdicts(run: Run) -> Iterator[str]:
    """Yield the last skipped steps, and for each verdict the number of its steps and the last message."""
    skipped = run.steps[~run.applied][-SKIPS:].tolist()
    if skipped:
        yield f"skipped  last {', '.join(f'{step:,}' for step in skipped)}"
    counts = Counter(str(diagnosis.verdict) for diagnosis in run.diagnoses)
    for verdict, last in {str(diagnosis.verdict): diagnosis for diagnosis in run.diagnoses}.items():
        yield f"{verdict}: {counted(counts[verdict], 'step')}, the last is {last.step:,}: {message_with_stall(last)}"
