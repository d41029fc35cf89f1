"""Plot for `ampscale simulate --ranks`: seconds of a collective, and steps until ranks disagree, over the number of ranks."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..simulation.ranks import RankModel, agreement_cost, steps_until_disagreement
from .describe import counted
from .scale_plot import COLORS, DASHES, LOOK, WIDTH, mark, save, style

LEAST, MOST = 2, 100_000  # range of the horizontal axis
POINTS = 400


def draw(model: RankModel, vector: int, ranks: int, overflow_probability: float, path: Path) -> None:
    """Write the plot to a .png file, 1,600 pixels wide, or to a .svg file. A dotted line marks *ranks*."""
    with rc_context(LOOK):
        save(figure_of(model, vector, ranks, overflow_probability), path)


def figure_of(model: RankModel, vector: int, ranks: int, overflow_probability: float) -> Figure:
    """Return the figure that `draw` writes. The caller must set the matplotlib parameters `LOOK`."""
    figure = Figure(figsize=(WIDTH, 3.6), facecolor="white", layout="constrained")
    costs, steps = figure.subplots(1, 2)
    counts = np.unique(np.geomspace(LEAST, max(MOST, ranks), POINTS).astype(int)).tolist()
    rows = [asdict(agreement_cost(count, vector, model)) for count in counts]
    _draw_lines(costs, counts, {name: [row[name] for row in rows] for name in rows[0]}, ranks)
    sizes = f"{counted(vector, 'byte')}, {counted(model.ranks_per_node, 'rank')} per node"
    costs.set_title(f"Model: time of one collective;\n{sizes}", pad=14)
    costs.set_ylabel("seconds")
    costs.legend(frameon=False, loc="upper left")
    _draw_lines(steps, counts, {"": [steps_until_disagreement(count, overflow_probability) for count in counts]}, ranks)
    overflow = f"overflow probability {overflow_probability:g} per rank and step"
    steps.set_title(f"Model: expected steps until ranks disagree;\n{overflow}", pad=14)
    steps.set_ylabel("steps")
    return figure


def _draw_lines(axes: Axes, counts: list[int], lines: Mapping[str, list[float]], ranks: int) -> None:
    """Draw *lines*, named by their labels, on logarithmic axes, and mark *ranks*. Infinite values are not drawn."""
    for index, (label, values) in enumerate(lines.items()):
        axes.plot(counts, values, label=label, color=COLORS[index], linestyle=DASHES[index])
    axes.set_xscale("log")
    axes.set_yscale("log")
    if not np.isfinite(list(lines.values())).any():
        axes.set_ylim(1, 10)  # a logarithmic axis must have a positive range
        axes.text(0.5, 0.5, "infinite", transform=axes.transAxes, ha="center")
    axes.set_xlabel("ranks")
    mark(axes, ranks, f"{ranks:,}")
    style(axes, grid="both")
