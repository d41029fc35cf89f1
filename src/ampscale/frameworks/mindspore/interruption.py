"""
Guards of cells, whose steps write to several objects: after an error between two writes, a cell rejects further steps.

A guarded cell increments `_writes` before each write; the guards set `_interrupted`.

Spec: MINDSPORE-cell-interrupted.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def step(method: Callable[Concatenate[Any, Arguments], Result]) -> Callable[Concatenate[Any, Arguments], Result]:
    """Make *method* raise a RuntimeError after a step or a load that was interrupted while it wrote."""

    @wraps(method)
    def guarded(cell: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        check_whole(cell)
        writes = cell._writes
        try:
            return method(cell, *args, **kwargs)
        except BaseException:
            cell._interrupted = cell._writes != writes
            raise

    return guarded


def load(method: Callable[Concatenate[Any, Arguments], Result]) -> Callable[Concatenate[Any, Arguments], Result]:
    """Make *method* end an interruption where it succeeds, and begin one where it is interrupted itself."""

    @wraps(method)
    def guarded(cell: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        writes = cell._writes
        try:
            result = method(cell, *args, **kwargs)
        except (TypeError, ValueError):  # a rejected state: nothing has been written
            raise
        except BaseException:
            cell._interrupted = cell._interrupted or cell._writes != writes
            raise
        cell._interrupted = False
        return result

    return guarded


def check_whole(cell: Any) -> None:
    """Raise a RuntimeError if a step or a load was interrupted while it wrote."""
    if cell._interrupted:
        raise RuntimeError(
            "the last step was interrupted while it wrote: "
            "restore the network and the optimizer, and load a state dict that the cell gave before that step"
        )
