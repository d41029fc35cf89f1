"""
Plot of the scales of one or several rules over the steps.

The scale of step k is drawn from k - 1/2 to k + 1/2. Since the scales of several rules often coincide, each rule has a lane that
is shifted up or down by much less than the distance between two powers of two.
"""

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..files import write_atomically
from ..simulation.simulate import Trajectory
from .step_line import corners

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")  # palette of Okabe and Ito
# Line styles. Each time that the colors start again, the next style is used.
DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.2)), (0, (1, 1)), (0, (6, 1.2, 1, 1.2)))
GRID = 150, 60  # columns and rows for crosses; crosses in the same cell would cover each other
WIDTH, LEFT, RIGHT = 8.0, 0.62, 0.35  # inches
LOOK: dict[Any, Any] = {
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "svg.hashsalt": "ampscale",  # makes the file reproducible
}


def draw(trajectories: Mapping[str, Trajectory], divergences: Sequence[int], path: Path) -> None:
    """Write the plot to a .png file, 1,600 pixels wide, or to a .svg file. Mark the steps in *divergences*."""
    with rc_context(LOOK):
        save(figure_of(trajectories, divergences), path)


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a .png file, with 200 pixels per inch, or to a .svg file."""
    picture = BytesIO()
    figure.savefig(picture, dpi=200, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else None)
    write_atomically(path, picture.getvalue())


def mark(axes: Axes, position: float, text: str, row: int = 0) -> None:
    """Draw a dotted vertical line, and *text* above it, in the row with the number *row* above the axes."""
    axes.axvline(position, color="#aaaaaa", linewidth=0.8, linestyle=":", zorder=1)
    axes.annotate(
        text, (position, 1), (0, 3 + 9 * row), xycoords=("data", "axes fraction"), textcoords="offset points",
        ha="center", fontsize=7, color="#666666",
    )  # fmt: skip


def style(axes: Axes, grid: Literal["both", "y"]) -> None:
    """Draw a grid below all lines, and no frame at the top and the right."""
    axes.grid(axis=grid, color="#eeeeee")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def figure_of(trajectories: Mapping[str, Trajectory], divergences: Sequence[int]) -> Figure:
    """Return the figure that `draw` writes. The caller must set the matplotlib parameters `LOOK`."""
    heights = Heights(list(trajectories.values()))
    steps = max(trajectory.finite.size for trajectory in trajectories.values())
    runs = enumerate(trajectories.items(), start=1)
    labels = [_label(number, name, trajectory) for number, (name, trajectory) in runs]
    figure = Figure(facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    for index, trajectory in enumerate(trajectories.values()):
        _draw_trajectory(axes, trajectory, heights, index, steps, labels[index])
    rows = _mark_divergences(axes, divergences, steps)
    _scale_axes(axes, heights, steps)
    title = _title(list(trajectories))
    axes.set_title(title, pad=4 + 9 * rows)
    # Heights in inches of the axes, and of what is above and below them.
    above = 0.22 + 0.15 * title.count("\n") + 0.125 * rows
    inside = heights.points / 72
    below = 0.45
    if len(labels) > 1:
        below += _legend(figure, labels)
    height = above + inside + below
    figure.set_size_inches(WIDTH, height)
    axes.set_position((LEFT / WIDTH, below / height, (WIDTH - LEFT - RIGHT) / WIDTH, inside / height))
    return figure


class Heights:
    """Vertical positions of scales: base-2 logarithms, with the scale 0 below and infinity above all other scales."""

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        scales = np.concatenate([trajectory.scales for trajectory in trajectories])
        positive = scales[(scales > 0) & np.isfinite(scales)]
        self.low = math.floor(math.log2(positive.min())) if positive.size else 0  # rounded height of the lowest positive scale
        self.high = math.ceil(math.log2(positive.max())) if positive.size else 0  # rounded height of the highest finite scale
        gap = max(1, round((self.high - self.low) / 8))
        self.bottom, self.top = self.low - gap, self.high + gap  # heights of 0 and infinity
        self.special = {self.bottom: "0"} if (scales == 0).any() else {}  # labels of 0 and infinity, if they occur
        if np.isinf(scales).any():
            self.special[self.top] = "inf"
        self.least, self.most = min([self.low, *self.special]), max([self.high, *self.special])  # range of all scales

        self.lanes = len(trajectories)
        span = max(1, self.most - self.least)
        largest = min(560, 300 + 20 * self.lanes)
        self.points = min(largest, max(190.0, 20 + (span + 0.6) * self.lanes * 3.6))  # height of the axes in points
        self.power = (self.points - 20) / (span + 0.6)  # points from one power of two to the next
        self.lane = min(2.2, max(0.6 * self.power, 4) / self.lanes)  # points from one lane to the next

    def of(self, scales: np.ndarray, index: int) -> np.ndarray:
        """Return the heights of the scales of the rule with this index: float64, of the shape of *scales*."""
        with np.errstate(divide="ignore"):
            powers = np.clip(np.log2(scales), self.bottom, self.top)
        return np.asarray(powers + self.lane / self.power * ((self.lanes - 1) / 2 - index))

    def ticks(self) -> dict[int, str]:
        """Return the labels of the vertical axis by height."""
        powers = [int(tick) for tick in MaxNLocator(8, integer=True).tick_values(self.low, self.high)]
        return {power: f"$2^{{{power}}}$" for power in powers if self.low <= power <= self.high} | self.special


def crosses(trajectory: Trajectory, heights: Heights, steps: int) -> np.ndarray:
    """Return the steps of the overflows to mark, int64. Of several crosses in one cell of GRID, only the first is drawn."""
    overflows = np.flatnonzero(~trajectory.finite)
    if trajectory.raised_at is not None:
        overflows = np.append(overflows, trajectory.raised_at)
    columns = overflows * GRID[0] // max(steps, GRID[0])
    shares = (heights.of(trajectory.scales[overflows], 0) - heights.least) / max(heights.most - heights.least, 1)
    rows = np.round(shares * GRID[1])  # from 0 to GRID[1], or slightly beyond, since a lane is shifted
    _, first = np.unique(columns * 2 * GRID[1] + rows, return_index=True)  # a number that is different for each cell
    return overflows[np.sort(first)]


def _draw_trajectory(axes: Axes, trajectory: Trajectory, heights: Heights, index: int, steps: int, label: str) -> None:
    positions, scales = corners(trajectory.scales)
    dense = positions.size > 300  # the vertical parts of the line overlap
    line_style: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.7} if dense else {"linewidth": max(0.6, 0.64 * heights.lane)}
    x = np.append(positions, trajectory.scales.size) - 0.5
    y = heights.of(np.append(scales, scales[-1]), index)
    color = COLORS[index % len(COLORS)]
    dashes = DASHES[index // len(COLORS) % len(DASHES)]
    axes.step(x, y, where="post", label=label, color=color, linestyle=dashes, **line_style)
    marked = crosses(trajectory, heights, steps)
    size = 4.5 if marked.size <= GRID[0] / 2 else 2.5
    axes.plot(marked, heights.of(trajectory.scales[marked], index), "x", color=color, markersize=size)
    if trajectory.raised_at is not None:
        last = heights.of(trajectory.scales[-1:], index)
        axes.plot(trajectory.raised_at, last, "s", color=color, markersize=7, fillstyle="none")


def _mark_divergences(axes: Axes, divergences: Sequence[int], steps: int) -> int:
    """Mark divergences with their step numbers; return the number of rows of step numbers."""
    ends: list[float] = []  # right end of each row, as a share of the width
    for step in sorted(divergences):
        text = "start" if step < 0 else f"{step:,}"
        position = (step + 1) / (steps + 1)
        half_width = 0.004 + 0.0045 * len(text)
        row = next((row for row, end in enumerate(ends) if end < position - half_width), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = position + half_width
        mark(axes, step + 0.5, text, row)
    return len(ends)


def _scale_axes(axes: Axes, heights: Heights, steps: int) -> None:
    margin = (0.3 if heights.most > heights.least else 0.8) + 10 / heights.power
    axes.set_xlim(-0.5 - 0.01 * steps, steps + 0.5 + 0.01 * steps)
    axes.set_ylim(heights.least - margin, heights.most + margin)
    ticks = heights.ticks()
    axes.set_yticks(list(ticks), ticks.values())
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("step, counted from 0")
    style(axes, grid="y")


def _title(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{_plain(names[0])}: loss scale at each step; a cross is an overflow"
    return (
        "Loss scale at each step. Crosses are overflows; dotted lines are steps at which rules diverge.\n"
        "Each rule has its own lane, the first on top, so that equal scales are drawn side by side."
    )


def _label(number: int, name: str, trajectory: Trajectory) -> str:
    raised = "" if trajectory.raised_at is None else f", raises at step {trajectory.raised_at:,}"
    return f"{number}  {_plain(name)}{raised}"


def _plain(name: str) -> str:
    return name.replace("$", r"\$")  # matplotlib would parse "$" as the start of a formula


def _legend(figure: Figure, labels: Sequence[str]) -> float:
    """Add a legend and return its height in inches. A column takes 45 points for the line and about 4.5 for each letter."""
    columns = max(1, min(4, int(72 * (WIDTH - LEFT)) // (45 + round(4.5 * max(map(len, labels))))))
    position: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (LEFT / WIDTH, 0), "ncols": columns}
    legend = figure.legend(**position, frameon=False, handlelength=3, borderaxespad=0.2, borderpad=0)
    for line in legend.get_lines():
        line.set(linewidth=1.4, alpha=1)
    return 0.168 * math.ceil(len(labels) / columns) + 0.1
