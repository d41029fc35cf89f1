"""
What an implementation is known to fail: a TOML file beside it, an entry for each fact, with the reason.

    [[expect]]
    case = "grows-*"  # or clause = "MACHINE-*": a glob
    verdict = "fail"  # fail, error, timeout, crash or protocol-error
    reason = "the first window is a step longer"
    issue = "https://example.org/issues/12"  # may be left out

Of several entries that match a case the first one counts. A case that passes although it is expected not to fails the run, and
so does an entry that no longer says anything: a file of expectations can grow old, but not without being noticed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ampscale.files import read_bounded
from ampscale.parsing import LONGEST_TOML, excerpt, parse_toml

from ..model.verdicts import Result, Verdict

EXPECTABLE = (Verdict.FAIL, Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASH, Verdict.PROTOCOL_ERROR)
KEYS = ("case", "clause", "verdict", "reason", "issue")
MOST = 1000  # entries of a file
LONGEST = 2000  # characters of a value
TODO = "TODO"  # how a reason begins that is still to be written


@dataclass(frozen=True)
class Expectation:
    """One entry: which cases, the verdict that they are expected to get, and why."""

    by: str  # "case" or "clause"
    glob: str
    verdict: Verdict
    reason: str
    issue: str = ""

    def matches(self, case: str, clause: str) -> bool:
        """Whether it speaks of this case."""
        return fnmatchcase(case if self.by == "case" else clause, self.glob)

    @property
    def accepted(self) -> bool:
        """Whether its reason has been written."""
        return not self.reason.startswith(TODO)

    def __str__(self) -> str:
        return f"{self.by} = {self.glob!r}"


@dataclass(frozen=True)
class Expectations:
    """The entries of one file, in its order."""

    file: Path
    entries: Sequence[Expectation] = ()

    def of(self, case: str, clause: str) -> Expectation | None:
        """The entry that counts for a case."""
        return next((entry for entry in self.entries if entry.matches(case, clause)), None)

    def applied(self, result: Result) -> Result:
        """The result in the light of what was expected: an expected one is xfail, an unexpected pass xpass."""
        entry = self.of(result.case, result.clause)
        if entry is None or result.verdict not in (*EXPECTABLE, Verdict.PASS):
            return result
        if result.verdict is Verdict.PASS:
            message = f"it passes, and {self.file.name} expects {entry.verdict}: {entry.reason}"
            return replace(result, verdict=Verdict.XPASS, message=message)
        if result.verdict is not entry.verdict:
            return replace(result, message=f"{result.message} ({self.file.name} expects {entry.verdict}: {entry.reason})")
        if not entry.accepted:
            return replace(result, message=f"{result.message} ({self.file.name} expects it, and its reason is to be written)")
        why = f"{entry.reason} ({entry.issue})" if entry.issue else entry.reason
        return replace(result, verdict=Verdict.XFAIL, message=f"{why}; {result.verdict}: {result.message}")

    def stale(self, results: Iterable[Result], known: Mapping[str, str]) -> Iterator[Result]:
        """
        A result, of the verdict xpass, for each entry that says nothing.

        Args:
            results: What came. An entry on cases that were left out is not stale.
            known: The clause of each case of the suite.
        """
        came = {result.case: result.verdict for result in results}
        for number, entry in enumerate(self.entries, start=1):
            if why := self._why_stale(entry, came, known):
                message = f"{self.file.name}, entry {number} ({entry}) is stale: {why}; take it out"
                yield Result("", f"expectation-{number}", Verdict.XPASS, message)

    def _why_stale(self, entry: Expectation, came: Mapping[str, Verdict], known: Mapping[str, str]) -> str:
        matching = [case for case, clause in known.items() if entry.matches(case, clause)]
        own = [case for case in matching if self.of(case, known[case]) is entry]
        if not matching:
            return f"there is no such {entry.by}"
        if not own:
            return "earlier entries speak of all its cases"
        return "all its cases are unsupported" if all(came.get(case) is Verdict.UNSUPPORTED for case in own) else ""


def read(file: Path) -> Expectations:
    """
    The expectations of a file.

    Raises:
        ValueError: It is no TOML, it is too long, or an entry has an unknown key, lacks one, or has a wrong value.
        OSError: It cannot be read.
    """
    data = read_bounded(file, LONGEST_TOML)
    try:
        said = parse_toml(data.decode())
    except ValueError as error:
        raise ValueError(f"{file}: wanted TOML: {error}") from None
    if unknown := sorted(set(said) - {"expect"}):
        raise ValueError(f"{file}: wanted [[expect]] tables and nothing else, got {excerpt(unknown)}")
    entries = said.get("expect", [])
    if not isinstance(entries, list) or len(entries) > MOST or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{file}: wanted up to {MOST} [[expect]] tables, got expect = {excerpt(entries)}")
    return Expectations(file, [_entry(entry, f"{file}, entry {number}") for number, entry in enumerate(entries, start=1)])


def _entry(said: dict[str, Any], place: str) -> Expectation:
    if unknown := sorted(set(said) - set(KEYS)):
        raise ValueError(f"{place}: wanted {', '.join(KEYS)}, got {excerpt(unknown)}")
    for key, value in said.items():
        if not isinstance(value, str) or not value.strip() or len(value) > LONGEST:
            raise ValueError(f"{place}: wanted {key} as a string of 1 to {LONGEST} characters, got {excerpt(value)}")
    which = [key for key in ("case", "clause") if key in said]
    if len(which) != 1:
        raise ValueError(f"{place}: wanted case or clause, and one of them, got {' and '.join(which) or 'neither'}")
    place = f"{place} ({which[0]} = {excerpt(said[which[0]])})"
    for key in ("verdict", "reason"):
        if key not in said:
            raise ValueError(f"{place}: wanted a {key}, got none")
    if said["verdict"] not in EXPECTABLE:
        raise ValueError(f"{place}: wanted as verdict one of {', '.join(EXPECTABLE)}, got {excerpt(said['verdict'])}")
    if not said.get("issue", "https://").startswith(("https://", "http://")):
        raise ValueError(f"{place}: wanted as issue a URL, got {excerpt(said['issue'])}")
    return Expectation(which[0], said[which[0]], Verdict(said["verdict"]), said["reason"], said.get("issue", ""))
