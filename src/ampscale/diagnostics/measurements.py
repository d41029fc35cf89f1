"""Measurements of gradients and losses for a `StepRecord`. Each copies its results to the host."""

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


def clipping_fields(gradients: list[Array], *, has_norms: bool) -> dict[str, Any]:
    """Return the fields of a `StepRecord` for clipping: `peak` and, if *has_norms*, `norms`; none if all gradients are empty."""
    # torch has no maximum of a sparse tensor, which Paddle's scaler passes as it is.
    gradients = [gradient.coalesce().values() if getattr(gradient, "is_sparse", False) else gradient for gradient in gradients]
    maxima = (abs(gradient).max() for gradient in gradients if 0 not in gradient.shape)  # all but the first only for `norms`
    first = next(maxima, None)
    if first is None:
        return {}
    clipping: dict[str, Any] = {"peak": float(first)}
    if has_norms:
        largest = number_host(functional.local_norms([first, *maxima]).max())  # one device-to-host copy for all gradients
        norms = _order_norm(gradients, 1), _order_norm(gradients, 3), largest
        clipping["norms"] = norms if all(map(math.isfinite, norms)) else None
    return clipping


def mean_loss(losses: list[Any]) -> float | None:
    """Return the mean of *losses* as a number; None if there are none."""
    return sum(map(_loss, losses)) / len(losses) if losses else None


def _order_norm(gradients: list[Array], order: int) -> float:
    """Return the norm of this order, computed as a Euclidean norm of powers."""
    powers = [abs(gradient) ** (order / 2) for gradient in gradients]
    return float(number_host(functional.global_norm(powers)) ** (2 / order))


def _loss(loss: Any) -> float:
    """Return the loss as a number: the mean of several values, and the magnitude of a complex one."""
    number = complex(loss if isinstance(loss, int | float) else loss.mean())
    return abs(number) if number.imag else number.real
