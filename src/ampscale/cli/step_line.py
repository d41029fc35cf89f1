"""Corners of step lines, for plots and for the page of a run."""

import numpy as np

CORNERS = 2000  # maximum number of corners of a line


def corners(values: np.ndarray, most: int = CORNERS) -> tuple[np.ndarray, np.ndarray]:
    """
    Return the corners of a step line: the positions at which the value changes, and the values there.

    A line with more than *most* corners is split into `CORNERS` / 2 parts, each represented by its smallest and its largest
    value. Such a line changes so often that it looks like the band between these values.
    """
    positions = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
    if positions.size <= most:
        return positions, values[positions]
    starts = np.arange(CORNERS // 2) * values.size // (CORNERS // 2)
    bands = np.stack([np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)], axis=1)
    return np.repeat(starts, 2), bands.reshape(-1)
