"""
Progress of an optimizer between two updates of the scale, as the scalers of hand-written loops keep it.

An entry is marked before the first write, so that after an error in the middle no gradient is divided twice.
"""

from enum import Enum


class Stage(Enum):
    """Stage of an optimizer between two updates of the scale; the value completes "since the last update(), ..."."""

    UNSCALING = "unscaling its gradients was interrupted: call update(), and compute new gradients"
    UNSCALED = "its gradients have been unscaled"
    STEPPING = "its step was interrupted: call update(), and compute new gradients"
    STEPPED = "it has stepped"


def out_of_order(caller: str, stage: Stage) -> RuntimeError:
    """Return the error for *caller*, the name of a method, that came when the optimizer was at *stage*."""
    order = "must come once between two calls of update(), and unscale_() before step()"
    return RuntimeError(f"{caller}() {order}; since the last update(), {stage.value}")
