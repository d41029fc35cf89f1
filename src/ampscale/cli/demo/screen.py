"""Terminal output of the demo: introduction, progress bars, and a table of the results."""

from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table

from ..describe import power
from ..tables import table
from .digits import BATCH, CREDIT, GAIN, Digits
from .loops import RUNS
from .training import MEASURED_EVERY, Record

console = Console(highlight=False)


def opening(data: Digits) -> None:
    """Print the setup of the demo, and explain why float16 fails without scaling."""
    learned, tested = (len(images) for images, _ in data)
    console.print(f"Data: {CREDIT}. {learned:,} training images, {tested:,} test images.\n")
    console.print(
        f"The network has six layers and is scaled badly on purpose: its hidden weights are {GAIN:.0f} times too large. A "
        f"normalization after each product hides this in the forward pass, but divides the gradients of hidden values by "
        f"{GAIN:.0f}. The loss is a mean over {BATCH} images with ten outputs each, so that most of these gradients are about "
        f"1e-8, while the smallest positive float16 is 6e-8: without scaling, little more than the last layer is trained.\n"
    )
    console.print(
        "All seven runs have the same initial weights and the same batches. Weights are stored in float32 and rounded to "
        "float16 in each step; products are accumulated in float32, as on tensor cores.\n"
    )


class Progress:
    """Progress bar for each run, with the step, the loss, the scale and the number of overflows."""

    def __init__(self, steps: int) -> None:
        text = (TextColumn(f"{{task.fields[{name}]}}", justify="right") for name in ("loss", "scale", "overflows"))
        self._bars = Bars(TextColumn("{task.description}"), BarColumn(12), MofNCompleteColumn(), *text, console=console)
        self._tasks = {
            run.name: self._bars.add_task(run.name, start=False, total=steps, loss="", scale="", overflows="") for run in RUNS
        }

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def update(self, record: Record) -> None:
        """Advance the bar of a run to its last step."""
        task, step = self._tasks[record.run.name], record.steps[-1]
        self._bars.start_task(task)
        loss, scale, overflows = f"loss {step.loss:.3f}", f"scale {power(step.scale)}", f"{record.overflow_steps} overflows"
        self._bars.update(task, advance=1, loss=loss, scale=scale, overflows=overflows)


def closing(records: list[Record], picture: Path, seconds: float) -> None:
    """Print the table, the differences in accuracy between float16 and float32, and the path of the picture."""
    console.print(results(records))
    console.print(
        f"Underflow: share of the gradient values that are nonzero in a float32 backward pass but zero in the dtype and with "
        f"the scale of the run, for the same weights and images; mean over every {MEASURED_EVERY}th step.\n"
    )
    exact, plain, *scaled = (100 * record.accuracy for record in records)
    console.print(
        f"Without scaling, the accuracy of float16 is {exact - plain:.1f} points below that of float32. "
        f"With scaling, it differs by at most {max(abs(exact - accuracy) for accuracy in scaled):.1f} points."
    )
    console.print(f"{picture}, after {seconds:.0f} s", soft_wrap=True)


def results(records: list[Record]) -> Table:
    """Return a table with a row for each run."""
    titles = ("test\naccuracy", "under-\nflow", "overflow\nsteps", "applied\nsteps", "first\nscale", "last\nscale")
    columns = [Column("", no_wrap=True), *(Column(title, justify="right") for title in titles)]
    return table(columns, map(_cells, records))


def _cells(record: Record) -> tuple[str, ...]:
    shares = f"{record.accuracy:.1%}", f"{record.underflow_share:.2%}"
    counts = str(record.overflow_steps), str(record.applied_steps)
    return record.run.name, *shares, *counts, power(record.steps[0].scale), power(record.steps[-1].scale)
