"""
Errors raised at every point of a call: at each call and return of the library's own functions, or at each line of them.

A `World` is what a call may change. After an interruption the call was whole; or it can be repeated; or it is refused, and what
the error says to do helps. In each case the next step must be right, to the last bit. Pure functions with `out` are not
interrupted: they have no state that could be marked, and their docstrings say what an interrupt leaves.
"""

import sys
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path

import pytest

import ampscale

SOURCE = str(Path(ampscale.__file__).parent)
EVENTS = [("call", "return"), pytest.param(("line",), marks=pytest.mark.slow)]
at_every_point = pytest.mark.parametrize("events", EVENTS, ids=["calls", "lines"])


class InterruptionError(Exception):
    """Raised at the chosen point; the library knows nothing of it."""


class World(ABC):
    """Objects that calls change."""

    @abstractmethod
    def state(self):
        """All numbers that the next steps depend on, comparable."""

    @abstractmethod
    def step(self):
        """One whole step of training; asserts that the optimizer applied the true gradients."""

    @abstractmethod
    def recover(self):
        """What the error of a refused call says to do."""


def outcomes(events, make, call, finish=lambda _: None):
    """
    Interrupt a call at every point, and check what follows.

    Args:
        events: Those of `sys.settrace` at which errors are raised.
        make: Returns a new world; always the same.
        call: The call, of a world.
        finish: What ends the present step after the call, of a world.

    Returns:
        How many points ended as "whole", "repeated" and "refused".
    """
    after, final = _states(make(), call, finish)
    counts, point = Counter(), 0
    while interrupted := _interrupt(world := make(), call, events, point):
        try:
            counts[_outcome(world, call, after, finish, final)] += 1
        except AssertionError as wrong:
            raise AssertionError(f"a wrong number after an error at {interrupted}") from wrong
        point += 1
    print(f"{point} points: {dict(counts)}")  # noqa: T201
    return counts


def _states(world, call, finish):
    call(world)
    after = world.state()
    finish(world)
    world.step()
    return after, world.state()


def _outcome(world, call, after, finish, final):
    outcome = "whole" if world.state() == after else "repeated"
    try:
        if outcome == "repeated":
            call(world)
            assert world.state() == after
        finish(world)
        world.step()
    except RuntimeError:
        world.recover()
        world.step()
        return "refused"
    assert world.state() == final
    return outcome


def _interrupt(world, call, events, point):
    """The point at which *call* was interrupted, as text; None if it has ended before event number *point*."""
    left = point

    def trace(frame, event, _):
        nonlocal left
        if not frame.f_code.co_filename.startswith(SOURCE) or frame.f_code.co_name == "<genexpr>":  # closed, it may not raise
            return None
        left -= event in events
        if left < 0:
            sys.settrace(None)
            raise InterruptionError(f"the {event} of {frame.f_code.co_qualname}, line {frame.f_lineno}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(world)
    except InterruptionError as interruption:
        return str(interruption)
    finally:
        sys.settrace(before)
    assert left >= 0, "the library has swallowed an error"
    return None
