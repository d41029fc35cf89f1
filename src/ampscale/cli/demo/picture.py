"""Plot of the scale, the loss and the underflow over the steps."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ..scale_plot import save
from .training import Record

COLORS = ("#999999", "#d55e00", "#56b4e9", "#0072b2", "#009e73", "#cc79a7", "#e69f00")  # palette of Okabe and Ito
WIDTHS = (4.5, 2.2, 1.6, 1.6, 1.6, 1.6, 1.6)


def draw(records: list[Record], path: Path) -> None:
    """Write the picture, 1,600 pixels wide, to *path*."""
    with rc_context({"axes.titlelocation": "left", "axes.titlesize": 10, "axes.xmargin": 0.01}):
        figure = Figure(figsize=(8, 7.5), layout="constrained", facecolor="white")
        scale, loss, underflow = figure.subplots(3, sharex=True, height_ratios=(1.5, 1, 1))
        for record, color, width in zip(records, COLORS, WIDTHS, strict=True):
            _draw_run((scale, loss, underflow), record, color, width)
        _label(scale, loss, underflow)
        figure.legend(*scale.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
        save(figure, path)


def _draw_run(panels: tuple[Axes, Axes, Axes], record: Record, color: str, width: float) -> None:
    scale, loss, underflow = panels
    scales = [step.scale for step in record.steps]
    scale.step(range(len(scales)), scales, where="post", color=color, linewidth=width, label=record.run.name)
    skipped = [index for index, step in enumerate(record.steps) if not step.applied]
    scale.plot(skipped, [scales[index] for index in skipped], "x", color=color, markersize=5)
    loss.plot([step.loss for step in record.steps], color=color, linewidth=width)
    shares = [100 * share for share in record.underflow.values()]
    underflow.plot(list(record.underflow), shares, color=color, linewidth=width)


def _label(scale: Axes, loss: Axes, underflow: Axes) -> None:
    scale.set_title("Loss scale; a cross is a step skipped for overflow")
    scale.set_yscale("log", base=2)
    scale.yaxis.set_major_locator(LogLocator(base=16))
    loss.set_title("Training loss")
    loss.set_ylim(bottom=0)
    underflow.set_title("Underflow: gradient values that became zero in float16, percent")
    underflow.set_ylim(-3, 103)
    underflow.set_xlabel("step")
    for axes in (scale, loss, underflow):
        axes.spines[["top", "right"]].set_visible(False)
