"""
Fault injection: errors raised at every call and return of the library's functions, or at each of their lines.

A `World` holds the objects that a call may change. After an interruption, either the call has had its whole effect, or it can be
repeated, or the next call raises an error whose remedy works. In each case the next step must be correct to the last bit. Pure
functions with `out` are not tested: they have no state that could record an interruption, and their docstrings describe the
effect of an interruption.
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
    """Error that is raised at the chosen point."""


class World(ABC):
    """Objects that the interrupted calls change."""

    @abstractmethod
    def state(self):
        """Return all numbers that the next steps depend on, in a form that can be compared."""

    @abstractmethod
    def step(self):
        """Run one training step, and assert that the optimizer applied the correct gradients."""

    @abstractmethod
    def recover(self):
        """Apply the remedy in the error message of a rejected call."""


def check_every_interruption(events, make, call, finish=lambda _: None):
    """
    Interrupt a call at every point, and assert that the state and the steps that follow are correct.

    Args:
        events: Events of `sys.settrace` at which errors are raised.
        make: Function that creates a world. All worlds that it creates are equal.
        call: Function that is called with the world and interrupted.
        finish: Function that is called with the world after *call*, and completes the current step.

    Returns:
        The number of points that ended as "complete", "repeated" and "rejected".
    """
    new_state, final = _states(make(), call, finish)
    counts, point = Counter(), 0
    while interrupted := _interrupt(world := make(), call, events, point):
        try:
            counts[_outcome(world, call, new_state, finish, final)] += 1
        except AssertionError as error:
            raise AssertionError(f"a wrong number after an error at {interrupted}") from error
        point += 1
    print(f"{point} points: {dict(counts)}")  # noqa: T201
    return counts


def _states(world, call, finish):
    """Return the states of the world after the call, and after the step that follows."""
    call(world)
    new_state = world.state()
    finish(world)
    world.step()
    return new_state, world.state()


def _outcome(world, call, new_state, finish, final):
    """Return "complete", "repeated" or "rejected" for an interrupted call, and assert that the next step is correct."""
    outcome = "complete" if world.state() == new_state else "repeated"
    try:
        if outcome == "repeated":
            call(world)
            assert world.state() == new_state
        finish(world)
        world.step()
    except RuntimeError:
        world.recover()
        world.step()
        return "rejected"
    assert world.state() == final
    return outcome


def _interrupt(world, call, events, point):
    """Return the point at which *call* was interrupted, as text; None if it ended before event number *point*."""
    remaining = point

    def trace(frame, event, _):
        nonlocal remaining
        # Skip generator expressions: an error while one is closed would be ignored.
        if not frame.f_code.co_filename.startswith(SOURCE) or frame.f_code.co_name == "<genexpr>":
            return None
        if event in events:
            remaining -= 1
        if remaining < 0:
            sys.settrace(None)
            raise InterruptionError(f"the {event} of {frame.f_code.co_qualname}, line {frame.f_lineno}")
        frame.f_trace_lines = "line" in events  # without them, tracing is faster
        return trace

    old_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        call(world)
    except InterruptionError as interruption:
        return str(interruption)
    finally:
        sys.settrace(old_trace)
    assert remaining >= 0, "the library ignored an error"
    return None
