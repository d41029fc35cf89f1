"""What the demo shows in a terminal: what it is about, how it goes, and what came out."""

from pathlib import Path
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table

from ..describe import power
from .digits import BATCH, CREDIT, GAIN, Digits
from .loops import RUNS
from .training import MEASURED_EVERY, Record

console = Console(highlight=False)


def opening(data: Digits) -> None:
    """What is going to happen, and why float16 fails at it."""
    learned, tested = (len(images) for images, _ in data)
    console.print(f"Data: {CREDIT}. {learned:,} images to learn from, {tested:,} to be tested on.\n")
    console.print(
        f"The network has six layers and is scaled badly on purpose. Its hidden weights are {GAIN:.0f} times too large; a "
        f"normalisation behind each product hides that from the forward pass, but makes the gradients of hidden values "
        f"{GAIN:.0f} times smaller. The loss is a mean over {BATCH} images of ten answers, so most of them are about 1e-8, "
        f"and the smallest positive float16 is 6e-8: without scaling, little more than the last layer learns.\n"
    )
    console.print(
        "All seven runs start from the same weights and see the same images. Weights are kept in float32 and rounded to "
        "float16 in each step; products are summed in float32, as tensor cores do it.\n"
    )


class Progress:
    """One bar a run: the step, the loss, the scale and the overflows so far."""

    def __init__(self, steps: int) -> None:
        text = (TextColumn(f"{{task.fields[{name}]}}", justify="right") for name in ("loss", "scale", "overflows"))
        self._bars = Bars(TextColumn("{task.description}"), BarColumn(12), MofNCompleteColumn(), *text, console=console)
        self._tasks: dict[str, TaskID] = {
            run.name: self._bars.add_task(run.name, start=False, total=steps, loss="", scale="", overflows="") for run in RUNS
        }

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def stepped(self, record: Record) -> None:
        """*record* has one step more."""
        task, step = self._tasks[record.run.name], record.steps[-1]
        self._bars.start_task(task)
        loss, scale, overflows = f"loss {step.loss:.3f}", f"scale {power(step.scale)}", f"{record.overflow_steps} overflows"
        self._bars.update(task, advance=1, loss=loss, scale=scale, overflows=overflows)


def closing(records: list[Record], picture: Path, seconds: float) -> None:
    """The table, how far float16 is from float32, and where the picture is."""
    console.print(table(records))
    console.print(
        f"Underflow: of the gradient values that a float32 backward pass finds different from zero, the share that the run's "
        f"own dtype and scale make zero, for the same weights and images; the mean over every {MEASURED_EVERY}th step.\n"
    )
    exact, plain, *scaled = (100 * record.accuracy for record in records)
    console.print(
        f"Without scaling, float16 ends {exact - plain:.1f} points of accuracy below float32. "
        f"Scaled, it ends within {max(abs(exact - each) for each in scaled):.1f} points."
    )
    console.print(f"{picture}, after {seconds:.0f} s", soft_wrap=True)


def table(records: list[Record]) -> Table:
    """One row a run."""
    made = Table(box=box.SIMPLE_HEAD, padding=0)
    made.add_column("", no_wrap=True)
    for title in ("test\naccuracy", "under-\nflow", "overflow\nsteps", "applied\nsteps", "first\nscale", "last\nscale"):
        made.add_column(title, justify="right")
    for record in records:
        made.add_row(
            record.run.name,
            f"{record.accuracy:.1%}",
            f"{record.underflow_share:.2%}",
            str(record.overflow_steps),
            str(record.applied_steps),
            power(record.steps[0].scale),
            power(record.steps[-1].scale),
        )
    return made
