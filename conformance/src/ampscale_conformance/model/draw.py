"""
Drawn cases: scenarios composed of choices, which test combinations that nobody wrote down.

A function that draws a case takes a `Pick`. The suite passes the result of `seeded`, so that its cases are the same in every run
and on every Python version; `--random` passes a function of Hypothesis, which shrinks towards the first value of each sequence.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from .adapter import ImplementationInfo, Unsupported
from .subject import Failed, Raised, Subject

T = TypeVar("T")


class Pick(Protocol):
    """Function that chooses one of several values."""

    def __call__(self, values: Sequence[T], /) -> T:
        """Return one of *values*; the first one is the simplest."""


class DrawnCase(NamedTuple):
    """Drawn case, with the inputs of a test vector in spec/vectors if a vector can express the case."""

    run: Callable[[Subject], None]  # as in `Case`
    chapter: str = ""  # of the test vector
    inputs: Mapping[str, Any] = MappingProxyType({})


def seeded(seed: str) -> Pick:
    """
    Return a function whose choices depend on *seed* alone.

    >>> pick = seeded("an example")
    >>> "".join(pick("+-") for _ in range(8))
    '-+-+++++'
    """
    numbers = count()

    def pick(values: Sequence[T], /) -> T:
        digest = sha256(f"{seed} {next(numbers)}".encode()).digest()
        return values[int.from_bytes(digest[:8]) % len(values)]

    return pick


def one_in(count: int, pick: Pick) -> bool:
    """Return True in one of *count* choices on average; False is the simplest."""
    return pick(range(count)) == count - 1


def numbered(name: str, count: int) -> list[str]:
    """Return the seeds "NAME 0", "NAME 1" and so on."""
    return [f"{name} {number}" for number in range(count)]


def run_draws(subject: Subject, draw: Callable[[Pick, ImplementationInfo], DrawnCase], seeds: Sequence[str]) -> None:
    """
    Run the cases that *draw* composes with these seeds, up to the first that fails.

    Calls are not recorded; a case that fails is run again to record them. Raises Unsupported if every case is unsupported.
    """
    reasons = list[Unsupported]()
    for seed in seeds:

        def run(subject: Subject, seed: str = seed) -> None:
            draw(seeded(seed), subject.info).run(subject)

        try:
            run_unrecorded(subject, run)
        except Unsupported as unsupported:
            reasons.append(unsupported)
        except (Failed, Raised) as failure:
            failure.args = (f"draw {seed}: {failure}",)
            raise
    if len(reasons) == len(seeds):
        raise reasons[0]


def run_unrecorded(subject: Subject, run: Callable[[Subject], None]) -> None:
    """Run thousands of calls without recording them; after a failure, run them again to record them."""
    subject.records = False
    try:
        run(subject)
    except (Failed, Raised) as failure:
        failure.args = (f"{failure}{_recorded(subject, run)}",)
        raise
    finally:
        subject.records = True


def _recorded(subject: Subject, run: Callable[[Subject], None]) -> str:
    """Repeat a failed run to record its calls, and return an empty string; if it passes now, record nothing and return a note."""
    subject.records = True
    try:
        with suppress(Unsupported):
            run(subject)
    except (Failed, Raised):
        return ""
    subject.calls.clear()
    return "; not reproducible: the same case passed when repeated"
