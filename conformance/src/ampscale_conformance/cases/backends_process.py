"""Resuming in another process, which imports the adapter by name and loads the saved state from JSON."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..model.adapter import Unsupported
from ..model.subject import Failed, Raised, Subject, TimedOut
from ..remote.client import Client, NotStarted, served
from ..remote.saved import saved_to_json

Run = tuple[Any, Any, Sequence[bool]]  # a rule, a saved state, and a flag per step


def scales_elsewhere(subject: Subject, runs: Sequence[Run], seconds: float = 60.0) -> list[list[float]]:
    """
    Return the scales after each step of each run, in a different process from the one that saved.

    Raises:
        Failed: The saved state is not plain data, or the other process raised an error.
        Raised: The other process raised an error, and the adapter is a `Client`.
        Interruption: The other process ended, or did not reply in time.
        Unsupported: The adapter cannot be imported in the other process.
    """
    if isinstance(subject.adapter, Client):
        subject.adapter.close()  # the next call starts a new process
        return _scales(subject, runs)
    try:
        data = [(rule, saved_to_json(saved), flags) for rule, saved, flags in runs]
    except (TypeError, RecursionError) as error:
        raise Failed(f"the saved state cannot be sent to another process: {error}") from None
    with served(subject.adapter, seconds) as other:
        _check_same_adapter(other, subject)
        try:
            return _scales(Subject(other), data)  # type: ignore[arg-type]  # its info is a property
        except Raised as error:
            raise Failed(f"in another process, {error}") from None


def _check_same_adapter(other: Client, subject: Subject) -> None:
    """Raise Unsupported unless the other process imports an adapter with the info of *subject*, except for its `arrays`."""
    try:
        info = other.start()
    except NotStarted as error:
        if isinstance(error.end, TimedOut):
            raise error.end from None
        raise Unsupported(f"another process cannot import the adapter: {error.end}") from None
    if info != replace(subject.info, arrays=info.arrays):
        raise Unsupported(f"another process imports a different adapter: {other.command}")


def _scales(subject: Subject, runs: Sequence[Run]) -> list[list[float]]:
    handles = [subject.call("load", rule, saved) for rule, saved, _ in runs]  # all before the first step
    scales: list[list[float]] = [[] for _ in runs]
    for index, (_, _, flags) in enumerate(runs):
        for finite in flags:
            handles[index] = subject.update(handles[index], finite)
            scales[index].append(subject.read_scale(handles[index]))
    return scales
