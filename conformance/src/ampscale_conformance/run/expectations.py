"""
Expected failures of an implementation: a TOML file with one entry per known failure and its reason.

    [[expect]]
    case = "grows-*"  # or clause = "MACHINE-*": a glob
    verdict = "fail"  # fail, error, timeout, crash or protocol-error
    reason = "the first window is a step longer"
    issue = "https://example.org/issues/12"  # optional

If several entries match a case, the first one counts. The run fails if a case passes that is expected to fail, or if an entry
is stale because it applies to no case, so that an outdated file is noticed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ampscale.files import read_bounded
from ampscale.parsing import LONGEST_TOML, excerpt, parse_toml

from ..model.verdicts import Result, Verdict
from ..model.versions import RENAMED

EXPECTABLE = (Verdict.FAIL, Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASH, Verdict.PROTOCOL_ERROR)
KEYS = ("case", "clause", "verdict", "reason", "issue")
MOST = 1000  # entries of a file
LONGEST = 2000  # characters of a value
TODO = "TODO"  # prefix of a placeholder for a reason


@dataclass(frozen=True)
class Expectation:
    """Entry of an expectations file: the cases, their expected verdict, and the reason."""

    by: str  # "case" or "clause"
    glob: str
    verdict: Verdict
    reason: str
    issue: str = ""

    def matches(self, case: str, clause: str) -> bool:
        """Return True if the entry applies to this case."""
        id = case if self.by == "case" else clause
        return fnmatchcase(id, self.glob)

    def __str__(self) -> str:
        return f"{self.by} = {self.glob!r}"


@dataclass(frozen=True)
class Expectations:
    """Entries of one file, in its order."""

    file: Path
    entries: Sequence[Expectation] = ()

    def of(self, case: str, clause: str) -> Expectation | None:
        """Return the first entry that applies to a case, or None."""
        return next((entry for entry in self.entries if entry.matches(case, clause)), None)

    def applied(self, result: Result) -> Result:
        """Return a result with its entry applied: an expected failure becomes xfail, a pass xpass; other failures get a note."""
        entry = self.of(result.case, result.clause)
        if entry is None or result.verdict not in (*EXPECTABLE, Verdict.PASS):
            return result
        if result.verdict is Verdict.PASS:
            message = f"passes, but {self.file.name} expects {entry.verdict}: {entry.reason}"
            return replace(result, verdict=Verdict.XPASS, message=message)
        if result.verdict is not entry.verdict:
            return replace(result, message=f"{result.message} ({self.file.name} expects {entry.verdict}: {entry.reason})")
        if entry.reason.startswith(TODO):
            return replace(result, message=f"{result.message} ({self.file.name} expects this, but its reason is not written yet)")
        reason = f"{entry.reason} ({entry.issue})" if entry.issue else entry.reason
        return replace(result, verdict=Verdict.XFAIL, message=f"{reason}; {result.verdict}: {result.message}")

    def stale(self, results: Iterable[Result], known: Mapping[str, str]) -> Iterator[Result]:
        """
        Yield a result with the verdict xpass for each stale entry, given the clauses of all *known* cases.

        An entry for cases that were not run is not stale.
        """
        verdicts = {result.case: result.verdict for result in results}
        for number, entry in enumerate(self.entries, start=1):
            if reason := self._stale_reason(entry, verdicts, known):
                message = f"{self.file.name}, entry {number} ({entry}) is stale: {reason}; remove it"
                yield Result("", f"expectation-{number}", Verdict.XPASS, message)

    def _stale_reason(self, entry: Expectation, verdicts: Mapping[str, Verdict], known: Mapping[str, str]) -> str:
        matching = [case for case, clause in known.items() if entry.matches(case, clause)]
        effective = [case for case in matching if self.of(case, known[case]) is entry]
        if not matching:
            return f"no {entry.by} matches"
        if not effective:
            return "earlier entries match all its cases"
        unsupported = all(verdicts.get(case) is Verdict.UNSUPPORTED for case in effective)
        return "all its cases are unsupported" if unsupported else ""


def read(file: Path) -> Expectations:
    """Return the expectations in a file; raise an OSError, or a ValueError that names the file or the entry."""
    data = read_bounded(file, LONGEST_TOML)
    try:
        table = parse_toml(data.decode())
    except ValueError as error:
        raise ValueError(f"{file}: expected TOML: {error}") from None
    if unknown := sorted(set(table) - {"expect"}):
        raise ValueError(f"{file}: expected only [[expect]] tables, got {excerpt(unknown)}")
    entries = table.get("expect", [])
    if not isinstance(entries, list) or len(entries) > MOST or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{file}: expected at most {MOST} [[expect]] tables, got expect = {excerpt(entries)}")
    return Expectations(file, [_entry(entry, f"{file}, entry {number}") for number, entry in enumerate(entries, start=1)])


def _entry(table: dict[str, Any], label: str) -> Expectation:
    if unknown := sorted(set(table) - set(KEYS)):
        raise ValueError(f"{label}: expected only the keys {', '.join(KEYS)}, got {excerpt(unknown)}")
    for key, value in table.items():
        if not isinstance(value, str) or not value.strip() or len(value) > LONGEST:
            raise ValueError(f"{label}: {key} must be a non-blank string of at most {LONGEST} characters, got {excerpt(value)}")
    selectors = [key for key in ("case", "clause") if key in table]
    if len(selectors) != 1:
        raise ValueError(f"{label}: expected either case or clause, got {' and '.join(selectors) or 'neither'}")
    by = selectors[0]
    glob = RENAMED.get(table[by], table[by]) if by == "case" else table[by]
    label = f"{label} ({by} = {excerpt(glob)})"
    for key in ("verdict", "reason"):
        if key not in table:
            raise ValueError(f"{label}: expected a {key}, got none")
    if table["verdict"] not in EXPECTABLE:
        raise ValueError(f"{label}: verdict must be one of {', '.join(EXPECTABLE)}, got {excerpt(table['verdict'])}")
    if not table.get("issue", "https://").startswith(("https://", "http://")):
        raise ValueError(f"{label}: issue must be an http or https URL, got {excerpt(table['issue'])}")
    return Expectation(by, glob, Verdict(table["verdict"]), table["reason"], table.get("issue", ""))
