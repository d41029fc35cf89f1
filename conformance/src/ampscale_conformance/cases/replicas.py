"""Chapter 60, replicas: several replicas take each step together. A script has a word per step with a sign per replica."""

from collections.abc import Sequence
from functools import partial

from ..model.case import Case, named
from ..model.floats import rounded
from ..model.subject import Subject
from ..oracle.machine import Machine
from .calls_loop import simple_rule
from .replicas_ranks import CASES as RANK_CASES


def replicas(name: str, steps: str, catches: str) -> Case:
    """Return a case that takes these steps with a growth interval of 2, and checks every replica's scale after each."""
    return named(name, 4, catches, partial(_decide, steps=steps.split()), {"replicas"})


def _decide(subject: Subject, steps: Sequence[str]) -> None:
    rule = simple_rule(subject, growth_interval=2)
    machine, handles = Machine(rule), [subject.create(rule) for _ in steps[0]]
    for number, signs in enumerate(steps):
        flags = [sign == "+" for sign in signs]
        handles = list(subject.call("update_replicas", handles, flags))
        expected = machine.step(all(flags)).scale
        got = [rounded(subject.read_scale(handle), rule.dtype) for handle in handles]
        message = f"after step {number} (counted from 0), {signs}: expected scale {expected!r} on every replica, got {got}"
        subject.expect(got == [expected] * len(flags), message)


CASES = (
    replicas("REPLICAS-one-flag/the-first-rank-decides-for-all", "-++", "lost flag: the first replica ignores its own flag"),
    replicas("REPLICAS-one-flag/the-last-rank-decides-for-all", "++-", "lost flag: all replicas use the first replica's flag"),
    replicas(
        "REPLICAS-one-flag/two-overflows-are-an-overflow", "-+-", "wrong reduction: the sum of the flags is compared with 1"
    ),
    replicas(
        "REPLICAS-same-scale/all-ranks-have-the-same-scale",
        "+++ -++ ++- +++ +++ --- +++",
        "local flag: each replica uses only its own flag, so the scales diverge",
    ),
    replicas(
        "REPLICAS-single/a-rank-alone-decides-for-itself", "+ - + +", "missing group: a single replica fails, or its flag is lost"
    ),
    *RANK_CASES,
)
