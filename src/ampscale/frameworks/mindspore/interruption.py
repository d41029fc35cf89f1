"""
Decorators for the methods of training cells: after an error between two writes, a cell rejects further steps.

A step writes to several objects: network, optimizer and scale. A cell increments `_writes` before each write, so that the
decorators can detect an interruption; they set `_interrupted`.

Spec: MINDSPORE-cell-interrupted.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def step(method: Callable[Concatenate[Any, Arguments], Result]) -> Callable[Concatenate[Any, Arguments], Result]:
    """Make *method* raise a RuntimeError after an interruption while writing, and record its own interruptions."""

    @wraps(method)
    def guarded(cell: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        check_not_interrupted(cell)
        writes = cell._writes
        try:
            return method(cell, *args, **kwargs)
        except BaseException:
            cell._interrupted = cell._writes != writes
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
            cell._interrupted = cell._interrupted or cell._writes != writes
            raise
        cell._interrupted = False
        return result

    return guarded


def check_not_interrupted(cell: Any) -> None:
    """Raise a RuntimeError if a step or a load of *cell* was interrupted while writing its results."""
    if cell._interrupted:
        raise RuntimeError(
            "the last step was interrupted while it wrote: "
            "restore the network and the optimizer, and load a state dict that the cell returned before that step"
        )
