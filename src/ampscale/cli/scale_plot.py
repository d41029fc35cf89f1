"""
Draws scales over the steps, of one rule or of several.

The scale in force at step k lies over k, half a step to each side. The scales of several rules often coincide. So each rule has
a lane of its own, a little above or below the height of its scale: so little that no other power of two could be meant.
"""

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..files import write_atomically
from ..simulation.simulate import Trajectory

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")  # Okabe and Ito's
DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.2)), (0, (1, 1)), (0, (6, 1.2, 1, 1.2)))  # another for each round of colours
CORNERS = 2000  # a line with more of them is drawn as the band that it fills, which looks the same
PLACES = 150, 60  # for crosses, side by side and one above the other: more would cover each other
WIDTH, LEFT, RIGHT = 8.0, 0.62, 0.35  # inches
LOOK: dict[Any, Any] = {
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "svg.hashsalt": "ampscale",  # the same picture is the same file
}


def draw(trajectories: Mapping[str, Trajectory], divergences: Sequence[int], path: Path) -> None:
    """
    Writes a picture, 1,600 pixels wide where it has pixels.

    Args:
        trajectories: By the names of their rules.
        divergences: Steps at which rules diverge, each to be marked.
        path: A file that ends in .png or .svg.
    """
    with rc_context(LOOK):
        figure, picture = drawn(trajectories, divergences), BytesIO()
        figure.savefig(picture, dpi=200, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else None)
    write_atomically(path, picture.getvalue())


def drawn(trajectories: Mapping[str, Trajectory], divergences: Sequence[int]) -> Figure:
    """The picture that `draw` writes; LOOK is in force."""
    heights = Heights(list(trajectories.values()))
    steps = max(trajectory.finite.size for trajectory in trajectories.values())
    labels = [_label(*numbered) for numbered in enumerate(trajectories.items(), start=1)]
    figure = Figure(facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    for index, trajectory in enumerate(trajectories.values()):
        _draw_line(axes, trajectory, heights, index, labels[index])
        _draw_crosses(axes, trajectory, heights, index, steps)
    rows = _mark(axes, divergences, steps)
    _scale_axes(axes, heights, steps)
    title = _title(list(trajectories))
    axes.set_title(title, pad=4 + 9 * rows)
    legend = _legend(figure, labels) if len(labels) > 1 else 0.0
    _lay_out(figure, axes, heights.tall / 72, 0.22 + 0.15 * title.count("\n") + 0.125 * rows, 0.45 + legend)
    return figure


class Heights:
    """Where scales are drawn: at their logarithm to base 2; zero has a place below all others, and infinity one above."""

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        scales = [trajectory.scales for trajectory in trajectories]
        powers = [power for power in map(_range, scales) if power]
        self.low = min((low for low, _ in powers), default=0)
        self.high = max((high for _, high in powers), default=0)
        apart = max(1, round((self.high - self.low) / 8))
        self.bottom, self.top = self.low - apart, self.high + apart
        self.special = {self.bottom: "0"} if any((each == 0).any() for each in scales) else {}
        if any(np.isinf(each).any() for each in scales):
            self.special[self.top] = "inf"
        self.least, self.most = min([self.low, *self.special]), max([self.high, *self.special])

        self.lanes, span = len(trajectories), max(1, self.most - self.least)
        most = min(560, 300 + 20 * self.lanes)
        self.tall = min(most, max(190.0, 20 + (span + 0.6) * self.lanes * 3.6))  # points, of the axes
        self.power = (self.tall - 20) / (span + 0.6)  # points from one power of two to the next
        self.lane = min(2.2, max(0.6 * self.power, 4) / self.lanes)  # points from one lane to the next

    def of(self, scales: np.ndarray, index: int) -> np.ndarray:
        """The heights of the scales of a rule, by its index: float64, of their shape."""
        with np.errstate(divide="ignore"):
            powers = np.clip(np.log2(scales), self.bottom, self.top)
        raised: np.ndarray = powers + self.lane / self.power * ((self.lanes - 1) / 2 - index)
        return raised

    def ticks(self) -> dict[int, str]:
        """The numbers at the axis, by their heights."""
        powers = [int(tick) for tick in MaxNLocator(8, integer=True).tick_values(self.low, self.high)]
        return {power: f"$2^{{{power}}}$" for power in powers if self.low <= power <= self.high} | self.special


def _range(scales: np.ndarray) -> tuple[int, int] | None:
    """The powers of two between which scales lie that are neither zero nor infinite; None where there is none."""
    usual = (scales > 0) & np.isfinite(scales)
    if not usual.any():
        return None
    least, largest = scales.min(where=usual, initial=math.inf), scales.max(where=usual, initial=0)
    return math.floor(math.log2(least)), math.ceil(math.log2(largest))


def corners(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    Where a line of steps turns.

    Args:
        scales: float64, shape (n,): the scale at each of the places 0, 1, ..., n - 1.

    Returns:
        The places at which another scale begins, and those scales: two arrays of one shape. Where there are more than
        CORNERS, the least and the largest scale of each of as many stretches as make CORNERS of them.
    """
    turns = np.concatenate([[0], np.flatnonzero(scales[1:] != scales[:-1]) + 1])
    if turns.size <= CORNERS:
        return turns, scales[turns]
    starts = np.arange(CORNERS // 2) * scales.size // (CORNERS // 2)
    bands = np.stack([np.minimum.reduceat(scales, starts), np.maximum.reduceat(scales, starts)], axis=1)
    return np.repeat(starts, 2), bands.reshape(-1)


def crosses(trajectory: Trajectory, heights: Heights, steps: int) -> np.ndarray:
    """The overflows to be marked, as steps, int64: of those whose crosses would cover each other, the first."""
    found = np.flatnonzero(~trajectory.finite)
    if trajectory.raised_at is not None:
        found = np.append(found, trajectory.raised_at)
    columns = found * PLACES[0] // max(steps, PLACES[0])
    shares = (heights.of(trajectory.scales[found], 0) - heights.least) / max(heights.most - heights.least, 1)
    _, first = np.unique(columns * 2 * PLACES[1] + np.round(shares * PLACES[1]), return_index=True)
    return found[np.sort(first)]


def _draw_line(axes: Axes, trajectory: Trajectory, heights: Heights, index: int, label: str) -> None:
    places, scales = corners(trajectory.scales)
    dense = places.size > 300  # lines lie upon each other
    look: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.7} if dense else {"linewidth": max(0.6, 0.64 * heights.lane)}
    x, y = np.append(places, trajectory.scales.size) - 0.5, heights.of(np.append(scales, scales[-1]), index)
    axes.step(x, y, where="post", label=label, color=COLOURS[index % 8], linestyle=DASHES[index // 8 % 4], **look)


def _draw_crosses(axes: Axes, trajectory: Trajectory, heights: Heights, index: int, steps: int) -> None:
    marked = crosses(trajectory, heights, steps)
    size = 4.5 if marked.size <= PLACES[0] / 2 else 2.5
    axes.plot(marked, heights.of(trajectory.scales[marked], index), "x", color=COLOURS[index % 8], markersize=size)
    if trajectory.raised_at is not None:
        last = heights.of(trajectory.scales[-1:], index)
        axes.plot(trajectory.raised_at, last, "s", color=COLOURS[index % 8], markersize=7, fillstyle="none")


def _mark(axes: Axes, divergences: Sequence[int], steps: int) -> int:
    """Lines where rules diverge, with the steps above them, in as many rows as they need: returns how many these are."""
    ends: list[float] = []  # of the last number in each row, as shares of the width
    for step in sorted(divergences):
        text, place = ("start" if step < 0 else f"{step:,}"), (step + 1) / (steps + 1)
        half = 0.004 + 0.0045 * len(text)
        row = next((row for row, end in enumerate(ends) if end < place - half), len(ends))
        ends[row : row + 1] = [place + half]
        axes.axvline(step + 0.5, color="#aaaaaa", linewidth=0.8, linestyle=":", zorder=1)
        axes.annotate(
            text, (step + 0.5, 1), (0, 3 + 9 * row), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", fontsize=7, color="#666666",
        )  # fmt: skip
    return len(ends)


def _scale_axes(axes: Axes, heights: Heights, steps: int) -> None:
    room = (0.3 if heights.most > heights.least else 0.8) + 10 / heights.power
    axes.set_xlim(-0.5 - 0.01 * steps, steps + 0.5 + 0.01 * steps)
    axes.set_ylim(heights.least - room, heights.most + room)
    axes.set_yticks(list(heights.ticks()), heights.ticks().values())
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("step, counted from 0")
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _title(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{_plain(names[0])}: the loss scale in force at each step; a cross is an overflow"
    return (
        "The loss scale in force at each step; a cross is an overflow. Dotted: the steps at which rules diverge.\n"
        "Each rule has a lane, the first on top, so that lines that coincide lie side by side."
    )


def _label(number: int, named: tuple[str, Trajectory]) -> str:
    name, trajectory = named
    stopped = "" if trajectory.raised_at is None else f", raises at step {trajectory.raised_at:,}"
    return f"{number}  {_plain(name)}{stopped}"


def _plain(name: str) -> str:
    return name.replace("$", r"\$")  # no formula


def _legend(figure: Figure, labels: Sequence[str]) -> float:
    """Its height in inches. It has as many columns as fit, at about 4.5 points a letter and 45 for the line."""
    columns = max(1, min(4, int(72 * (WIDTH - LEFT)) // (45 + round(4.5 * max(map(len, labels))))))
    legend = figure.legend(
        loc="lower left",
        bbox_to_anchor=(LEFT / WIDTH, 0),
        ncols=columns,
        frameon=False,
        handlelength=3,
        borderaxespad=0.2,
        borderpad=0,
    )
    for line in legend.get_lines():
        line.set(linewidth=1.4, alpha=1)
    return 0.168 * math.ceil(len(labels) / columns) + 0.1


def _lay_out(figure: Figure, axes: Axes, tall: float, above: float, below: float) -> None:
    """The axes in their place, all in inches: *tall*, and so much above and below them."""
    whole = above + tall + below
    figure.set_size_inches(WIDTH, whole)
    axes.set_position((LEFT / WIDTH, below / whole, (WIDTH - LEFT - RIGHT) / WIDTH, tall / whole))
