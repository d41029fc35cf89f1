"""
Audit of the suite with mutants: `python -m mutants.audit [--chapter NAME ...]`.

A mutant is killed if it fails a case of the clause that it violates; a failure of another clause would mislead the author of
such a bug. The audit proves that every mutant is killed, that without any one case some mutant would survive, and that without
any one expectation some mutant would survive. An expectation is a line of a case, or of a helper, that calls `expect` directly
or indirectly. The exit status is 1 if one of the proofs fails.
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
from .expectations import SUBJECT, Location, callers, expectations_in, files_of, traceback_locations

Failures = dict[str, set[Location]]  # of one mutant: the ids of the cases that it fails, and the lines of each failure


@dataclass(frozen=True)
class Audit:
    """
    Results of all mutants in the cases of their clauses.

    Args:
        cases: The cases.
        mutants: The mutants.
        kills: The failures of each mutant, in the order of *mutants*.
        expectations: The lines of all expectations.
    """

    cases: Sequence[Case]
    mutants: Sequence[Mutant]
    kills: Sequence[Failures]
    expectations: Sequence[Location]

    def survivors(self) -> list[Mutant]:
        """Return the mutants that no case of their clause kills."""
        return [mutant for mutant, kills in zip(self.mutants, self.kills, strict=True) if not kills]

    def redundant_cases(self) -> list[Case]:
        """Return the cases without which every mutant is still killed: no mutant is killed by this case alone."""
        needed = {case for kills in self.kills if len(kills) == 1 for case in kills}
        return [case for case in self.cases if case.id not in needed]

    def redundant_expectations(self) -> list[Location]:
        """Return the expectations without which every mutant is still killed."""
        return [location for location in self.expectations if not self._is_needed(location)]

    def _is_needed(self, location: Location) -> bool:
        """Return True if a mutant survives without this expectation, since all failures of the mutant pass through it."""
        cases_by_id = {case.id: case for case in self.cases}
        for mutant, failures in zip(self.mutants, self.kills, strict=True):
            decisive = failures and all(location in locations for locations in failures.values())
            if decisive and not any(failure(cases_by_id[case], mutant.make, without=location) is not None for case in failures):
                return True
        return False


def audit(cases: Sequence[Case], mutants: Sequence[Mutant], files: Sequence[Path]) -> Audit:
    """Run every mutant in the cases of its clause. The expectations are those in these files."""
    executed: set[Location] = set()
    kills = []
    for mutant in mutants:
        by_case = {case.id: failure(case, mutant.make, executed) for case in cases if case.clause == mutant.clause}
        kills.append({case: locations for case, locations in by_case.items() if locations is not None})
    inside = {str(file) for file in files if file != SUBJECT}
    expectations = expectations_in(files) | {location for location in executed if location[0] in inside}
    return Audit(cases, mutants, kills, sorted(expectations))


def failure(
    case: Case, make: Callable[[], Adapter], executed: set[Location] | None = None, without: Location | None = None
) -> set[Location] | None:
    """
    Run a case, and return the lines through which it failed: an empty set if the implementation raised an error.

    Args:
        case: The case.
        make: Returns a new adapter.
        executed: Set to which the lines of all expectations that are executed are added.
        without: Expectation to disable.

    Returns:
        None if the implementation does not fail the case, or if the case raises an error after the disabled expectation.
    """
    lines: set[Location] = set()

    def expect(_: Subject, holds: bool, message: str) -> None:
        if executed is not None:
            executed.update(callers())
        if not holds and without not in callers():
            raise Failed(message)

    def watched(subject: Subject) -> None:
        try:
            case.run(subject)
        except Failed as failed:
            locations = traceback_locations(failed.__traceback__)
            if without not in locations:  # an error that Subject itself raises cannot be disabled alone: the case ends there
                lines.update(locations)
                raise

    try:
        with patch.object(Subject, "expect", expect):
            result = run(replace(case, run=watched), make())
    except Exception:  # any error that the disabled expectation would have prevented
        if without is None:
            raise
        return None
    return lines if result.verdict in BAD else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the results to stdout, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mutants.audit", description=__doc__)
    parser.add_argument("--chapter", action="append", choices=CHAPTERS, help="audit only this chapter; can be repeated")
    chapters = parser.parse_args(arguments).chapter
    cases = _cases_of(chapters) if chapters else suite.every_case()
    mutants = [mutant for chapter in chapters or CHAPTERS for mutant in mutants_of(chapter)]
    results = audit(cases, mutants, files_of(chapters))
    problems: list[Mutant | Case | Location] = [
        *results.survivors(),
        *results.redundant_cases(),
        *results.redundant_expectations(),
    ]
    sys.stdout.write("\n".join([*_matrix(results), *map(_described, problems)]) + "\n")
    return 1 if problems else 0


def _cases_of(chapters: Iterable[str]) -> list[Case]:
    return [case for chapter in chapters for case in import_module(f"{suite.__name__}.{chapter}").CASES]


def _matrix(results: Audit) -> Iterator[str]:
    """Yield a line for each mutant with the cases that kill it, and a line of totals."""
    for mutant, kills in zip(results.mutants, results.kills, strict=True):
        yield f"{mutant.name}: {mutant.clause}, killed by {', '.join(kills) or 'NOTHING'}"
    yield f"{len(results.mutants)} mutants, {len(results.cases)} cases, {len(results.expectations)} lines of expectations"


def _described(problem: Mutant | Case | Location) -> str:
    """Return a line for a surviving mutant, a redundant case or a redundant expectation."""
    if isinstance(problem, Mutant):
        return f"survives: {problem.name}, {problem.clause}"
    if isinstance(problem, Case):
        return f"redundant: case {problem.id}, {problem.clause}"
    return f"redundant: {problem[0]}:{problem[1]}: {linecache.getline(*problem).strip()}"


if __name__ == "__main__":
    sys.exit(main())
