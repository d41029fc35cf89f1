"""
Decorators for the methods of training cells: after an error between two writes, a cell rejects further steps.

A step writes to several objects: network, optimizer and scale. A cell increments `_writes` before each write, so that the
decorators can detect an interruption; they set `_interrupted` to the call site of the interrupted step or load.

Spec: MINDSPORE-cell-interrupted.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from .._calls import CELL, STEPPING, call_site

Method = TypeVar("Method", bound=Callable[..., Any])


def guarded_step(method: Method) -> Method:
    """Make *method* raise a RuntimeError if the cell was interrupted while writing, and record interruptions of *method*."""

    @wraps(method)
    def guarded(cell: Any, /, *args: Any, **kwargs: Any) -> Any:
        check_not_interrupted(cell)
        return _run(method, cell, args, kwargs)

    return guarded  # type: ignore[return-value]


def guarded_load(method: Method) -> Method:
    """Make *method* clear a recorded interruption of the cell when it succeeds, and record one when it is interrupted itself."""

    @wraps(method)
    def guarded(cell: Any, /, *args: Any, **kwargs: Any) -> Any:
        _run(method, cell, args, kwargs, harmless=(TypeError, ValueError))  # an invalid state dict changes nothing
        cell._interrupted = None

    return guarded  # type: ignore[return-value]


def check_not_interrupted(cell: Any) -> None:
    """Raise a RuntimeError if a step or a load of *cell* was interrupted while writing its results."""
    if cell._interrupted is not None:
        CELL.check("cell", STEPPING, cell._interrupted)


def _run(method: Any, cell: Any, args: Any, kwargs: Any, harmless: tuple[type[Exception], ...] = ()) -> Any:
    """Call *method*, and record an interruption if it raises an error, other than a *harmless* one, after its first write."""
    old_writes, old_interrupted = cell._writes, cell._interrupted
    try:
        return method(cell, *args, **kwargs)
    except BaseException as error:
        if cell._writes != old_writes and not isinstance(error, harmless):
            cell._interrupted = old_interrupted or call_site()
        raise
