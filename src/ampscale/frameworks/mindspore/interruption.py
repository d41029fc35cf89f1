"""
Decorators for the methods of training cells: after an error between two writes, a cell rejects further steps.

A step writes to several objects: network, optimizer and scale. A cell increments `_writes` before each write, so that the
decorators can detect an interruption; they set `_interrupted` to the call site of the interrupted step.

Spec: MINDSPORE-cell-interrupted.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from .._calls import CELL, STEPPING, call_site

Method = TypeVar("Method", bound=Callable[..., Any])


def step(method: Method) -> Method:
    """Make *method* raise a RuntimeError if the cell was interrupted while writing, and record interruptions of *method*."""
    return _guarded(method, is_step=True)


def load(method: Method) -> Method:
    """Make *method* clear a recorded interruption of the cell when it succeeds, and record one when it is interrupted itself."""
    return _guarded(method, is_step=False)


def check_not_interrupted(cell: Any, call: str) -> None:
    """Raise the error of *call* if a step or a load of *cell* was interrupted while writing its results."""
    if cell._interrupted is not None:
        CELL.check(call, STEPPING, cell._interrupted)


def _guarded(method: Method, *, is_step: bool) -> Method:
    """Decorate *method* as `step` does, or as `load` does if *is_step* is False."""

    @wraps(method)
    def guarded(cell: Any, /, *args: Any, **kwargs: Any) -> Any:
        if is_step:
            check_not_interrupted(cell, "cell")
        writes, interrupted = cell._writes, cell._interrupted
        try:
            result = method(cell, *args, **kwargs)
        except BaseException as error:
            is_rejection = not is_step and isinstance(error, TypeError | ValueError)  # an invalid state dict changes nothing
            if cell._writes != writes and not is_rejection:
                cell._interrupted = interrupted or call_site()
            raise
        if not is_step:
            cell._interrupted = None
        return result

    return guarded  # type: ignore[return-value]
