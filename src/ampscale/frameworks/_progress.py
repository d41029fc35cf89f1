"""
Progress of an optimizer between two updates of the scale, as the two `GradScaler` classes record it.

A scaler sets the stage before it writes, so that no gradient is divided twice after an error between two writes.
"""

from enum import Enum


class Stage(Enum):
    """Stage of an optimizer between two updates of the scale; the value completes the message "since the last update(), ..."."""

    UNSCALING = "unscaling its gradients was interrupted: call update(), and compute new gradients"
    UNSCALED = "its gradients have been unscaled"
    STEPPING = "its step was interrupted: call update(), and compute new gradients"
    STEPPED = "it has stepped: call update() after step()"


UNSCALING, UNSCALED, STEPPING, STEPPED = Stage  # reading a member through the class takes 70 ns in Python 3.11


def out_of_order(caller: str, stage: Stage) -> RuntimeError:
    """Return the error of the method *caller* if it is called for an optimizer at *stage*."""
    before_step = ", and before step()" if caller == "unscale_" else ""
    order = f"must be called at most once per optimizer between two calls of update(){before_step}"
    return RuntimeError(f"{caller}() {order}; since the last update(), {stage.value}")
