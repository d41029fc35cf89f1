"""Picture of the scale over the steps, with skipped steps. It has a bounded size for any number of steps."""

import math

import numpy as np

from ...diagnostics.run_files import Run
from .markup import frame, power_of_two, short, step_ticks

_COLUMNS = 1000  # a line with more corners is drawn as the band that it fills
_GRID = 150, 60  # columns and rows for dots; dots in the same cell would cover each other


def scale_chart(run: Run) -> str:
    """Return the picture. Below the line of the scale, bars count the skipped steps in each of at most 1,000 equal parts."""
    levels, rows, low, high = _levels(run.scales)
    heights = 100 * (high - levels) / (high - low)
    skipped = np.flatnonzero(~run.applied)
    dots = "".join(
        f'<circle cx="{100 * (step + 0.5) / levels.size:.3f}%" cy="{heights[step]:.2f}%" r="2.5"/>'
        for step in _visible(skipped, heights)
    )
    line = (
        '<svg class="stretched" width="100%" height="100%" viewBox="0 0 1000 1000" preserveAspectRatio="none">'
        f'<path class="line" vector-effect="non-scaling-stroke" d="{_path(heights)}"/></svg>'
    )
    ticks, ends = step_ticks(run.steps), f"{int(run.steps[0]):,} to {int(run.steps[-1]):,}"
    label = f"Loss scale in the steps {ends}, on a logarithmic axis, with a dot at each of {skipped.size:,} skipped steps"
    labels = [(100 * (high - level) / (high - low), text) for level, text in rows]
    return frame("scale", label, f'{line}<g class="dots">{dots}</g>', labels, []) + _bars(skipped, levels.size, ticks)


def _levels(scales: np.ndarray) -> tuple[np.ndarray, list[tuple[int, str]], float, float]:
    """Return the base-2 logarithms of *scales*, the ticks, and the ends of the axis. Zero and infinity are below and above."""
    is_positive = (scales > 0) & np.isfinite(scales)
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.log2(scales)
    known = levels[is_positive]
    low, high = (math.floor(known.min()), math.ceil(known.max())) if known.size else (0, 0)
    every = max(1, math.ceil((high - low) / 7))
    ticks = [(level, power_of_two(level)) for level in range(low, high + 1) if level % every == 0]
    apart = max(1.0, (high - low) / 8)
    is_above = scales == math.inf
    levels = np.where(is_positive, levels, np.where(is_above, high + apart, low - apart))
    if is_above.any():
        high = math.ceil(high + apart)
        ticks.append((high, "inf"))
    if not (is_positive | is_above).all():
        low = math.floor(low - apart)
        ticks.append((low, "0, nan"))
    margin = max(0.5, 0.06 * (high - low))
    return np.clip(levels, low, high), ticks, low - margin, high + margin


def _path(heights: np.ndarray) -> str:
    """Return the path of a step line, or of the band between the smallest and the largest height in each part."""
    size = heights.size
    turns = np.concatenate([[0], np.flatnonzero(heights[1:] != heights[:-1]) + 1])
    if turns.size > _COLUMNS:
        starts = np.arange(_COLUMNS) * size // _COLUMNS
        lows, highs = np.minimum.reduceat(heights, starts), np.maximum.reduceat(heights, starts)
        corners = zip(np.repeat(starts, 2).tolist(), np.stack([lows, highs], axis=1).reshape(-1).tolist(), strict=True)
    else:
        corners = zip(turns.tolist(), heights[turns].tolist(), strict=True)
    pieces = [f"{1000 * step / size:.4g} {10 * height:.1f}" for step, height in corners]
    moves = (f"H{x}V{y}" for x, y in (piece.split() for piece in pieces[1:]))
    return f"M{pieces[0]}{''.join(moves)}H1000"


def _visible(skipped: np.ndarray, heights: np.ndarray) -> list[int]:
    """Return one skipped step for each cell of the grid that has any."""
    cells = skipped * _GRID[0] // max(1, heights.size) * _GRID[1] + (heights[skipped] * _GRID[1] / 101).astype(np.int64)
    visible: list[int] = skipped[np.unique(cells, return_index=True)[1]].tolist()
    return visible


def _bars(skipped: np.ndarray, steps: int, ticks: list[tuple[float, str]]) -> str:
    parts = min(_COLUMNS, steps)
    counts = np.bincount(skipped * parts // steps, minlength=parts)
    most, width = max(1, int(counts.max())), math.ceil(steps / parts)
    heights = np.log1p(counts) / math.log1p(most) * 100
    path = "".join(f"M{index} 100V{100 - round(heights[index])}h1V100" for index in np.flatnonzero(counts))
    content = (
        f'<svg class="stretched" width="100%" height="100%" viewBox="0 0 {parts} 100" preserveAspectRatio="none">'
        f'<path class="bars" vector-effect="non-scaling-stroke" d="{path}"/></svg>'
    )
    label = f"Number of skipped steps in each {width:,} steps, at most {most:,}"
    return frame("skips", label, content, [(10, short(most)), (90, "0")], ticks)
