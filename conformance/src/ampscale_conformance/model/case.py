"""Cases: executable checks, each for one clause of the specification."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .adapter import CAPABILITIES
from .clauses import clauses
from .subject import Subject

# Chapters in execution order. Each is a module of ampscale_conformance.cases.
CHAPTERS = ("machine", "scaling", "overflow", "calls", "step", "norms", "replicas", "backends")


@dataclass(frozen=True)
class Case:
    """Executable check of one clause."""

    id: str  # unique name: words joined by dashes that state the expected behavior
    clause: str  # id of the clause that it checks
    level: int  # lowest level of an implementation that runs it
    catches: str  # bug that it detects: a name, a colon, and its effect
    run: Callable[[Subject], None]  # checks the implementation under test; raises an error if an expectation is not met
    needs: frozenset[str] = frozenset()  # capabilities that it requires

    def __post_init__(self) -> None:
        if unknown := self.needs - set(CAPABILITIES):
            raise ValueError(f"the needs of case {self.id} must be in {sorted(CAPABILITIES)}, got {sorted(unknown)}")

    @property
    def chapter(self) -> str:
        """Return the chapter of the clause."""
        return clauses()[self.clause].chapter


def named(name: str, level: int, catches: str, run: Callable[[Subject], None], needs: Iterable[str] = ()) -> Case:
    """Return a case. *name* is "CLAUSE/id", such as "MACHINE-growth-factor/grows-by-4"."""
    clause, _, id = name.rpartition("/")
    return Case(id, clause, level, catches, run, frozenset(needs))


def case(clause: str, level: int, catches: str, *needs: str) -> Callable[[Callable[[Subject], None]], Case]:
    """Return a decorator that turns a function into a case. The id is the function's name, with dashes for underscores."""

    def decorate(run: Callable[[Subject], None]) -> Case:
        return Case(run.__name__.replace("_", "-"), clause, level, catches, run, frozenset(needs))

    return decorate
