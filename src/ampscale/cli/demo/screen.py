"""Terminal output of the demo: introduction, progress bars, and a table of the results."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ..describe import power
from ..tables import Column, table
from .digits import BATCH, CREDIT, GAIN, Digits
from .loops import RUNS
from .training import MEASURED_EVERY, Record

console = Console(highlight=False)


def print_setup(data: Digits) -> None:
    """Print the setup of the demo, and explain why float16 fails without scaling."""
    training, test = (len(images) for images, _ in data)
    console.print(f"Data: {CREDIT}. {training:,} training images, {test:,} test images.\n")
    console.print(
        f"The network has six layers and is scaled badly on purpose: its hidden weights are {GAIN:.0f} times too large. A "
        f"normalization after each product hides this in the forward pass, but divides the gradients of hidden values by "
        f"{GAIN:.0f}. The loss is a mean over {BATCH} images with ten outputs each, so most of these gradients are about "
        f"1e-8, while the smallest positive float16 is 6e-8: without scaling, little more than the last layer is trained.\n"
    )
    console.print(
        "All seven runs have the same initial weights and the same batches. Weights are stored in float32 and rounded to "
        "float16 in each step; products are accumulated in float32, as on tensor cores.\n"
    )


@contextmanager
def progress_bars(steps: int) -> Iterator[Callable[[Record], None]]:
    """Show a bar for each run. Yield a function that updates the bar of a run after a step: its loss, scale and overflows."""
    columns = (TextColumn(f"{{task.fields[{name}]}}", justify="right") for name in ("loss", "scale", "overflows"))
    with Progress(TextColumn("{task.description}"), BarColumn(12), MofNCompleteColumn(), *columns, console=console) as bars:
        tasks = {run.name: bars.add_task(run.name, start=False, total=steps, loss="", scale="", overflows="") for run in RUNS}

        def update(record: Record) -> None:
            task = tasks[record.run.name]
            step = record.steps[-1]
            bars.start_task(task)
            scale = f"scale {power(step.scale)}"
            overflows = f"{record.overflow_steps} overflows"
            bars.update(task, advance=1, loss=f"loss {step.loss:.3f}", scale=scale, overflows=overflows)

        yield update


def print_results(report: Mapping[str, Any], seconds: float) -> None:
    """Print the result of `training.report`: a table of the runs, the differences in accuracy, and the path of the picture."""
    titles = ("test\naccuracy", "under-\nflow", "overflow\nsteps", "applied\nsteps", "first\nscale", "last\nscale")
    columns = [Column("", no_wrap=True), *(Column(title, justify="right") for title in titles)]
    console.print(table(columns, map(_cells, report["runs"])))
    console.print(
        f"Underflow: share of the gradient values that are nonzero in a float32 backward pass but zero in the dtype and with "
        f"the scale of the run, for the same weights and images; mean over every {MEASURED_EVERY}th step.\n"
    )
    exact, plain, *scaled = (100 * run["test_accuracy"] for run in report["runs"])
    console.print(
        f"Without scaling, the accuracy of float16 is {exact - plain:.1f} points below that of float32. "
        f"With scaling, it differs by at most {max(abs(exact - accuracy) for accuracy in scaled):.1f} points."
    )
    console.print(f"{report['picture']}, after {seconds:.0f} s", soft_wrap=True)


def _cells(run: Mapping[str, Any]) -> tuple[str, ...]:
    shares = f"{run['test_accuracy']:.1%}", f"{run['underflow_share']:.2%}"
    counts = str(run["overflow_steps"]), str(run["applied_steps"])
    return run["name"], *shares, *counts, power(run["first_scale"]), power(run["last_scale"])
