"""Chapter 60, replicas: several ranks take each step together; a word is a step, and a sign in it what one rank saw."""

from collections.abc import Sequence
from functools import partial

from ..model.case import Case, named
from ..model.floats import rounded
from ..model.subject import Subject
from ..oracle.machine import Machine
from .calls_loop import simple_rule


def ranks(name: str, steps: str, catches: str) -> Case:
    """A case that takes these steps, and looks at every rank's scale after each; a window is two finite steps."""
    return named(name, 4, catches, partial(_decide, steps=steps.split()), {"replicas"})


def _decide(subject: Subject, steps: Sequence[str]) -> None:
    rule = simple_rule(subject, growth_interval=2)
    machine, handles = Machine(rule), [subject.create(rule) for _ in steps[0]]
    for number, signs in enumerate(steps, start=1):
        flags = [sign == "+" for sign in signs]
        handles = list(subject.call("update_replicas", handles, flags))
        wanted = machine.step(all(flags)).scale
        got = [rounded(subject.read_scale(handle), rule.dtype) for handle in handles]
        subject.expect(got == [wanted] * len(flags), f"after step {number}, {signs}: wanted {wanted!r} on every rank, got {got}")


CASES = (
    ranks(
        "REPLICAS-one-flag/the-first-rank-decides-for-all",
        "-++",
        "one rank decides: the others' flags are used, and this one's is lost",
    ),
    ranks("REPLICAS-one-flag/the-last-rank-decides-for-all", "++-", "one rank decides: the first one's flag goes to all"),
    ranks("REPLICAS-one-flag/two-overflows-are-an-overflow", "-+-", "wrong sum: flags are added up, and compared with one"),
    ranks(
        "REPLICAS-same-scale/all-ranks-have-the-same-scale",
        "+++ -++ ++- +++ +++ --- +++",
        "own flag: each rank's scale moves by what it saw itself, and from then on they train apart",
    ),
    ranks(
        "REPLICAS-single/a-rank-alone-decides-for-itself",
        "+ - + +",
        "no group: a single rank has nobody to ask, and fails or hears no",
    ),
)
