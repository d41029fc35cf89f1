"""
Decorators for the methods of training cells: after an error between two writes, a cell rejects further steps.

A step writes to several objects: network, optimizer and scale. A cell increments `_writes` before each write, so that the
decorators can detect an interruption; they set `_interrupted` to the call site of the interrupted step.

Spec: MINDSPORE-cell-interrupted.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from .._calls import CELL, STEPPING, call_site

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def step(method: Callable[Concatenate[Any, Arguments], Result]) -> Callable[Concatenate[Any, Arguments], Result]:
    """Make *method* raise a RuntimeError after an interruption while writing, and record its own interruptions."""

    @wraps(method)
    def guarded(cell: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        check_not_interrupted(cell, "cell")
        writes = cell._writes
        try:
            return method(cell, *args, **kwargs)
        except BaseException:
            if cell._writes != writes:
                cell._interrupted = call_site()
            raise

    return guarded


def load(method: Callable[Concatenate[Any, Arguments], Result]) -> Callable[Concatenate[Any, Arguments], Result]:
    """Make *method* clear a recorded interruption if it succeeds, and record its own interruptions while writing."""

    @wraps(method)
    def guarded(cell: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        writes = cell._writes
        try:
            result = method(cell, *args, **kwargs)
        except (TypeError, ValueError):  # the state dict was rejected before the first write
            raise
        except BaseException:
            if cell._writes != writes:
                cell._interrupted = cell._interrupted or call_site()
            raise
        cell._interrupted = None
        return result

    return guarded


def check_not_interrupted(cell: Any, call: str) -> None:
    """Raise the error of *call* if a step or a load of *cell* was interrupted while writing its results."""
    if cell._interrupted is not None:
        CELL.check(call, STEPPING, cell._interrupted)
