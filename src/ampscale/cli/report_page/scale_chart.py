"""Picture of the scale over the steps, with skipped steps. It has a bounded size for any number of steps."""

import math

import numpy as np

from ...diagnostics.run_files import Run
from ..step_line import CORNERS, corners
from .markup import frame, power_of_two, short, step_ticks, stretched

_PARTS = CORNERS // 2  # maximum number of parts of the axis of steps
_GRID = 150, 60  # columns and rows for dots; dots in the same cell would cover each other


def scale_chart(run: Run) -> str:
    """Return the picture. Below the line of the scale, bars count the skipped steps in each of at most 1,000 equal parts."""
    levels, level_ticks, low, high = _levels(run.scales)
    heights = 100 * (high - levels) / (high - low)
    size = levels.size
    skipped = np.flatnonzero(~run.applied)
    columns, grid_rows = skipped * _GRID[0] // size, heights[skipped] * _GRID[1] // 101  # heights are at most 100
    cells = columns * _GRID[1] + grid_rows
    dots = "".join(
        f'<circle cx="{100 * (step + 0.5) / size:.3f}%" cy="{heights[step]:.2f}%" r="2.5"/>'
        for step in skipped[np.unique(cells, return_index=True)[1]].tolist()
    )
    line = stretched("line", 1000, 1000, _step_line(heights))
    ends = f"{int(run.steps[0]):,} to {int(run.steps[-1]):,}"
    label = f"Loss scale in the steps {ends}, on a logarithmic axis, with a dot at each of {skipped.size:,} skipped steps"
    rows = [(100 * (high - level) / (high - low), text) for level, text in level_ticks]
    bars = _bars(skipped, size, step_ticks(run.steps))
    return frame("scale", label, f'{line}<g class="dots">{dots}</g>', rows, []) + bars


def _levels(scales: np.ndarray) -> tuple[np.ndarray, list[tuple[int, str]], float, float]:
    """Return the base-2 logarithms of *scales*, zero and NaN lowest and infinity highest; the ticks; and the ends of the axis."""
    is_positive = (scales > 0) & np.isfinite(scales)
    is_above = scales == math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.log2(scales)
    finite_levels = levels[is_positive]
    low, high = (math.floor(finite_levels.min()), math.ceil(finite_levels.max())) if finite_levels.size else (0, 0)
    spacing = max(1, math.ceil((high - low) / 7))  # between ticks
    gap = max(1, math.ceil((high - low) / 8))  # between finite levels and those of infinity, or of zero and NaN
    ticks = [(level, power_of_two(level)) for level in range(low, high + 1) if level % spacing == 0]
    levels = np.where(is_positive, levels, np.where(is_above, high + gap, low - gap))
    if is_above.any():
        high += gap
        ticks.append((high, "inf"))
    if not (is_positive | is_above).all():
        low -= gap
        ticks.append((low, "0, nan"))
    margin = max(0.5, 0.06 * (high - low))
    return levels, ticks, low - margin, high + margin


def _step_line(heights: np.ndarray) -> str:
    """Return the path of a step line; with more than 1,000 corners, of the band between the extreme heights in each part."""
    steps, values = corners(heights, _PARTS)
    xs = [f"{1000 * step / heights.size:.4g}" for step in steps.tolist()]
    ys = [f"{10 * value:.1f}" for value in values.tolist()]
    others = "".join(f"H{x}V{y}" for x, y in zip(xs[1:], ys[1:], strict=True))
    return f"M{xs[0]} {ys[0]}{others}H1000"


def _bars(skipped: np.ndarray, steps: int, ticks: list[tuple[float, str]]) -> str:
    """Return a plot of the number of skipped steps in each of several equal parts of the run."""
    parts = min(_PARTS, steps)
    counts = np.bincount(skipped * parts // steps, minlength=parts)
    largest = max(1, int(counts.max()))
    width = math.ceil(steps / parts)
    heights = np.log1p(counts) / math.log1p(largest) * 100
    path = "".join(f"M{index} 100V{100 - round(heights[index])}h1V100" for index in np.flatnonzero(counts))
    label = f"Number of skipped steps in each {width:,} steps, at most {largest:,}"
    return frame("skips", label, stretched("bars", parts, 100, path), [(10, short(largest)), (90, "0")], ticks)
