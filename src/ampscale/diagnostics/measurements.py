"""Measurements of gradients for a `StepRecord`. Each copies its results to the host."""

import math
from typing import Any

from .. import functional
from ..core.scaling import number_host
from ..core.statistics import LOWEST
from ..core.typing import Array, Tree
from .records import histograms_of, statistics_of


def measured_fields(gradients: Tree, scale: float, *, has_histograms: bool = False) -> dict[str, Any]:
    """Measure gradients scaled by *scale*, and return the results as fields of a `StepRecord`, by name."""
    measured: dict[str, Any] = {"measured_scale": scale, "tensors": statistics_of(functional.measure(gradients).tolist())}
    if has_histograms:
        measured["histograms"] = histograms_of(functional.exponent_histogram(gradients).tolist(), LOWEST)
    return measured


def first_peak(gradients: list[Array]) -> float | None:
    """Return the largest magnitude in the first gradient that is not empty; None if all are empty."""
    return next((float(abs(gradient).max()) for gradient in gradients if 0 not in gradient.shape), None)


def other_norms(gradients: list[Array]) -> tuple[float, ...] | None:
    """Return `OTHER_NORMS` of *gradients*; None if one is not finite, or if all gradients are empty."""
    maxima = [abs(gradient).max() for gradient in gradients if 0 not in gradient.shape]
    if not maxima:
        return None
    powers = {order: [abs(gradient) ** (order / 2) for gradient in gradients] for order in (1, 3)}
    norms = [number_host(functional.global_norm(powers[order])) ** (2 / order) for order in powers]
    norms.append(number_host(functional.local_norms(maxima).max()))  # one device-to-host copy for all gradients
    return tuple(norms) if all(map(math.isfinite, norms)) else None
