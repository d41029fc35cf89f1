"""Chapter 30, the machine: overflows in, scales out; and what was saved goes on."""

from functools import partial
from typing import Any

from ..case import Case
from ..oracle.floats import rounded
from ..oracle.machine import trajectory
from ..subject import Subject
from ..verdicts import Trajectory


def trace(id: str, clause: str, finite: str, catches: str, *needs: str, **settings: Any) -> Case:
    """A case that walks a scaler along *finite*, one "+" (finite) or "-" (overflow) a step, under the claimed rule's *settings*."""
    return Case(id, clause, 0, catches, partial(_walk, finite=finite, settings=settings), frozenset(needs))


def _walk(subject: Subject, finite: str, settings: dict[str, Any]) -> None:
    rule = subject.rule(**settings)
    follow(subject, subject.create(rule), rule, finite)


def follow(subject: Subject, handle: Any, rule: Any, finite: str) -> Any:
    """Takes the steps and compares the scale after each, the initial one too. Returns the last handle."""
    wanted = trajectory(rule, [sign == "+" for sign in finite])
    got = [subject.read_scale(handle)]
    subject.trajectory = Trajectory(finite, [point.scale for point in wanted], got)
    _expect_scale(subject, rule, 0, wanted[0], got[-1])
    for step, (sign, point) in enumerate(zip(finite, wanted[1:], strict=True), start=1):
        if point.stopped:
            subject.expect(subject.refuses("update", handle, sign == "+"), f"step {step}: wanted it to give up, and it went on")
            return handle
        handle = subject.update(handle, sign == "+")
        got.append(subject.read_scale(handle))
        _expect_scale(subject, rule, step, point, got[-1])
    return handle


def _expect_scale(subject: Subject, rule: Any, step: int, point: Any, got: float) -> None:
    when = f"after step {step}" if step else "at the start"
    because = f", by {' and '.join(point.clauses)}" if point.clauses else ""
    subject.expect(rounded(got, rule.dtype) == point.scale, f"{when}: wanted {point.scale!r}{because}, got {got!r}")


CASES = (
    trace("starts-at-its-initial-scale", "MACHINE-state", "", "state lost: it starts at a default of its own", init_scale=2.0**8),
    trace(
        "grows-in-the-third-step",
        "MACHINE-growth-window",
        "++++",
        "off by one: the first window is longer or shorter than its interval",
        growth_interval=3,
    ),
)
