"""Rows of growth: exponents of the time as a function of the size of one array, and of the number of arrays."""

import math
import statistics
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import ours
from gradients import Gradients, baselines
from measure import Cell, Contender, in_turn
from shapes import Shape, equal
from specs import Spec

ELEMENTS = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000, 300_000_000)
TENSORS = (1, 10, 100, 1_000, 10_000, 100_000)
SECONDS = 1.5  # for each size
CACHE = 128 * 2**20  # bytes; larger than the caches


def specs() -> Iterator[Spec]:
    """Yield the specifications of the two rows."""
    by_elements, by_arrays = partial(cells, elements, evicts=True), partial(cells, tensors)
    yield Spec("growth/elements", "growth", "exponent of time, values of 1 array", by_elements, "float32", "1M to 300M", "")
    yield Spec("growth/tensors", "growth", "exponent of time, arrays of 1,000", by_arrays, "float32", "1 to 100,000", "")


def elements(quick: bool) -> dict[int, Shape]:
    """Return, for each size in `ELEMENTS`, the shape of one array of this size."""
    return {size: equal("", "", 1, size // (1000 if quick else 1)) for size in ELEMENTS}


def tensors(quick: bool) -> dict[int, Shape]:
    """Return, for each number in `TENSORS`, the shape of this many small arrays."""
    return {count: equal("", "", min(count, 100) if quick else count, 1_000) for count in TENSORS}


def cells(sizes: Callable[[bool], dict[int, Shape]], quick: bool, *, evicts: bool = False) -> Iterator[Cell]:
    """Yield for each contender the exponent, its standard error, and the points that it was fitted to; see `evicting_reset`."""
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for size, shape in sizes(quick).items():
        gradients = Gradients(shape, "float32")
        reset = evicting_reset(gradients) if evicts and not quick else gradients.refill
        compared = contenders(gradients, reset)
        for contender, times in zip(compared, in_turn(compared, None if quick else SECONDS), strict=True):
            points.setdefault((contender.name, contender.kind), []).append((size, statistics.median(times.values())))
    for (name, kind), fit_points in points.items():
        exponent, error = fitted(fit_points)
        yield {"name": name, "kind": kind, "value": exponent, "error": error, "points": fit_points}


def contenders(gradients: Gradients, reset: Callable[[], None]) -> list[Contender]:
    """Return unscaling and checking in place on NumPy and on torch, torch's kernel, and the baseline."""
    import torch
    from others import torch as others_torch

    tensors = gradients.as_torch()
    (baseline,) = baselines(gradients, writes=True).values()
    scale = np.asarray(gradients.scale, np.float32)
    return [
        Contender("ampscale", ours.call(ours.UNSCALE, gradients.arrays, scale, 1.0), reset, "ours"),
        Contender("ampscale, torch", ours.call(ours.UNSCALE, tensors, torch.tensor(gradients.scale), 1.0), reset, "ours"),
        Contender("torch kernel", others_torch.kernel(ours.UNSCALE, tensors, gradients.scale, 1.0), reset),
        Contender("multiply", baseline, reset, "baseline"),
    ]


def evicting_reset(gradients: Gradients) -> Callable[[], None]:
    """
    Return a function that restores the gradients and evicts them from the caches.

    Otherwise a million values would be in the cache and three hundred million would not, which would change the exponent.
    """
    other = np.zeros(CACHE, np.uint8)

    def reset() -> None:
        gradients.refill()
        other.fill(1)

    return reset


def fitted(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Return the slope of a linear fit of the logarithms, and its standard error."""
    xs, ys = ([math.log(value) for value in column] for column in zip(*points, strict=True))
    slope, intercept = statistics.linear_regression(xs, ys)
    residuals = sum((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    deviations = sum((x - statistics.fmean(xs)) ** 2 for x in xs)
    return slope, math.sqrt(residuals / (len(points) - 2) / deviations)
