"""A case: one fact of the specification, and how an implementation is asked for it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from .adapter import CAPABILITIES
from .clauses import clauses
from .subject import Subject

# The modules of ampscale_conformance.cases, in the order in which their cases are run.
CHAPTERS = ("machine", "scaling", "overflow", "calls", "step", "norms", "replicas", "backends")


@dataclass(frozen=True)
class Case:
    """
    One fact of the specification.

    Args:
        id: Unique among all cases; words with dashes, and the fact.
        clause: The clause that it holds against.
        level: From which level on it is asked.
        catches: The fault that it is there for: a name, a colon, and what it does here.
        run: Asks the implementation; raises where an expectation is not met.
        needs: Capabilities without which it is not asked.
    """

    id: str
    clause: str
    level: int
    catches: str
    run: Callable[[Subject], None]
    needs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if unknown := self.needs - set(CAPABILITIES):
            raise ValueError(f"{self.id} must need capabilities of {sorted(CAPABILITIES)}, got {sorted(unknown)}")

    @property
    def chapter(self) -> str:
        """The chapter of its clause."""
        return clauses()[self.clause].chapter


def named(name: str, level: int, catches: str, run: Callable[[Subject], None], needs: Iterable[str] = ()) -> Case:
    """A case by its clause and its id: "MACHINE-growth-factor/grows-by-4"; by its id alone where `under` says the clause."""
    clause, _, id = name.rpartition("/")
    return Case(id, clause, level, catches, run, frozenset(needs))


def under(clause: str, *cases: Case) -> Iterator[Case]:
    """Cases that hold against this clause, made with their ids alone."""
    return (replace(each, clause=clause) for each in cases)


def case(clause: str, level: int, catches: str, *needs: str) -> Callable[[Callable[[Subject], None]], Case]:
    """Makes a case of a function, whose name is its id: `grows_in_the_third_step` is "grows-in-the-third-step"."""

    def made(run: Callable[[Subject], None]) -> Case:
        return Case(run.__name__.replace("_", "-"), clause, level, catches, run, frozenset(needs))

    return made
