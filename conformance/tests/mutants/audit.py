"""
Whether the suite is sharp, and nothing in it is too much: `python -m mutants.audit [--chapter NAME ...]`.

A mutant is caught when a case of the clause that names its fault accuses it; a case of another clause would tell its author the
wrong thing. Three proofs follow: every mutant is caught; without any one case, some mutant is not; and without any one
expectation, some mutant is not. An expectation is a line of a case, or of a helper, through which something is expected. The exit
status is 1 where one of the proofs fails.
"""

import argparse
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

from ampscale_conformance import cases as suite
from ampscale_conformance.model.adapter import Adapter
from ampscale_conformance.model.case import CHAPTERS, Case
from ampscale_conformance.model.subject import Failed, Subject
from ampscale_conformance.model.verdicts import BAD
from ampscale_conformance.run.check import run

from . import Mutant, mutants_of
from .places import SUBJECT, Place, callers, files_of, passed, written

Accusations = dict[str, set[Place]]  # of one mutant: each case that it does not pass, and the lines that it failed through


@dataclass(frozen=True)
class Audit:
    """
    What came of every mutant under every case.

    Args:
        cases: The cases.
        mutants: The mutants.
        accusations: One entry a mutant, in their order.
        places: The lines through which something is expected.
    """

    cases: Sequence[Case]
    mutants: Sequence[Mutant]
    accusations: Sequence[Accusations]
    places: Sequence[Place]

    @property
    def own(self) -> list[Accusations]:
        """Of each mutant the accusations by cases of its clause: what it is caught by."""
        clause = {case.id: case.clause for case in self.cases}
        pairs = zip(self.mutants, self.accusations, strict=True)
        return [{case: found[case] for case in found if clause[case] == mutant.clause} for mutant, found in pairs]

    def uncaught(self) -> list[Mutant]:
        """The mutants that no case of their clause accuses."""
        return [mutant for mutant, own in zip(self.mutants, self.own, strict=True) if not own]

    def idle_cases(self) -> list[Case]:
        """The cases without which every mutant is still caught."""
        needed = _only(self.own)
        return [case for case in self.cases if case.id not in needed]

    def idle_places(self) -> list[Place]:
        """The expectations without which every mutant is still caught."""
        own = self.own
        return [place for place in self.places if not self._needs(place, own)]

    def _needs(self, place: Place, own: list[Accusations]) -> bool:
        """Whether a mutant is not caught when this expectation is left out: one whose every failure goes through it."""
        named = {case.id: case for case in self.cases}
        for mutant, found in zip(self.mutants, own, strict=True):
            through = found and all(place in places for places in found.values())
            if through and not any(accused(named[case], mutant.make, without=place) is not None for case in found):
                return True
        return False


def audit(cases: Sequence[Case], mutants: Sequence[Mutant], files: Sequence[Path]) -> Audit:
    """Puts every case to every mutant; the expectations are those in these files."""
    asked: set[Place] = set()
    accusations = []
    for mutant in mutants:
        found = {case.id: accused(case, mutant.make, asked) for case in cases}
        accusations.append({case: places for case, places in found.items() if places is not None})
    inside = {str(file) for file in files if file != SUBJECT}
    places = written(files) | {place for place in asked if place[0] in inside}
    return Audit(cases, mutants, accusations, sorted(places))


def accused(
    case: Case, make: Callable[[], Adapter], asked: set[Place] | None = None, without: Place | None = None
) -> set[Place] | None:
    """
    The lines through which a case fails; none where the implementation raised.

    Args:
        case: The case.
        make: A fresh adapter.
        asked: Is given the lines through which anything is expected.
        without: An expectation that is left out.

    Returns:
        None where the case does not accuse the implementation.
    """
    through: set[Place] = set()

    def expect(_: Subject, holds: bool, message: str) -> None:
        if asked is not None:
            asked.update(callers())
        if not holds and without not in callers():
            raise Failed(message)

    def watched(subject: Subject) -> None:
        try:
            case.run(subject)
        except Failed as failed:
            places = passed(failed.__traceback__)
            if without not in places:  # what Subject raises by itself cannot be left out alone: the case ends there
                through.update(places)
                raise

    try:
        with patch.object(Subject, "expect", expect):
            result = run(replace(case, run=watched), make())
    except Exception:  # whatever a case meets that an expectation should have kept it from
        if without is None:
            raise
        return None
    return through if result.verdict in BAD else None


def _only(accusations: Iterable[Accusations]) -> set[str]:
    """The cases that are the only one to accuse some mutant."""
    return {case for found in accusations if len(found) == 1 for case in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes what was found to stdout; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mutants.audit", description=__doc__)
    parser.add_argument("--chapter", action="append", choices=CHAPTERS, help="of this chapter alone; may be given several times")
    chapters = parser.parse_args(arguments).chapter
    cases = _cases_of(chapters) if chapters else suite.every_case()
    mutants = [mutant for chapter in chapters or CHAPTERS for mutant in mutants_of(chapter)]
    found = audit(cases, mutants, files_of(chapters))
    idle: list[Mutant | Case | Place] = [*found.uncaught(), *found.idle_cases(), *found.idle_places()]
    sys.stdout.write("\n".join([*_matrix(found), *map(_complaint, idle)]) + "\n")
    return 1 if idle else 0


def _cases_of(chapters: Iterable[str]) -> list[Case]:
    return [case for chapter in chapters for case in import_module(f"{suite.__name__}.{chapter}").CASES]


def _matrix(found: Audit) -> Iterator[str]:
    for mutant, own, every in zip(found.mutants, found.own, found.accusations, strict=True):
        yield f"{mutant.name}: {mutant.clause}, by {', '.join(own) or 'NOTHING'}; and by {len(every) - len(own)} of other clauses"
    yield f"{len(found.mutants)} mutants, {len(found.cases)} cases, {len(found.places)} lines of expectations"
    yield f"{len(_only(found.accusations))} cases are the only one, of any clause, to accuse some mutant"


def _complaint(idle: Mutant | Case | Place) -> str:
    if isinstance(idle, Mutant):
        return f"not caught: {idle.name}, by {idle.clause}"
    if isinstance(idle, Case):
        return f"not necessary: case {idle.id}, {idle.clause}"
    return f"not necessary: {idle[0]}:{idle[1]}: {linecache.getline(*idle).strip()}"


if __name__ == "__main__":
    sys.exit(main())
