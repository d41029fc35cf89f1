"""Another process: it finds the adapter by its name, loads what was saved as JSON, and goes on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..model.adapter import Unsupported
from ..model.subject import Failed, Raised, Subject, TimedOut
from ..remote.client import Client, NotStarted
from ..remote.command_adapter import served
from ..remote.saved import saved_to_json


def scales_elsewhere(subject: Subject, rule: Any, saved: Any, flags: Sequence[bool], seconds: float = 60.0) -> list[float]:
    """
    Return the scale after each step in another process than the one that saved.

    Raises:
        Failed: What was saved is not data, or the other process raised.
        Interruption: The other process ended, or gave no answer in time.
        Unsupported: The adapter cannot be found there.
    """
    if isinstance(subject.adapter, Client):
        subject.adapter.close()  # it has a process of its own, and the next call starts another
        return _scales(subject, rule, saved, flags)
    try:
        data = saved_to_json(saved)
    except (TypeError, RecursionError) as error:
        raise Failed(f"what was saved cannot be sent to another process: {error}") from None
    with served(subject.adapter, seconds) as other:
        _meet(other, subject)
        try:
            return _scales(Subject(other), rule, data, flags)  # type: ignore[arg-type]  # its info is a property
        except Raised as error:
            raise Failed(f"in another process, {error}") from None


def _meet(other: Client, subject: Subject) -> None:
    """Check that the other process finds the same adapter."""
    try:
        info = other.start()
    except NotStarted as error:
        if isinstance(error.end, TimedOut):
            raise error.end from None
        raise Unsupported(f"another process does not find the adapter: {error.end}") from None
    if info != replace(subject.info, arrays=info.arrays):
        raise Unsupported(f"another process finds another adapter: {other.command}")


def _scales(subject: Subject, rule: Any, saved: Any, flags: Sequence[bool]) -> list[float]:
    handle, scales = subject.call("load", rule, saved), []
    for finite in flags:
        handle = subject.update(handle, finite)
        scales.append(subject.read_scale(handle))
    return scales
