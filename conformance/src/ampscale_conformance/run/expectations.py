"""
Expected failures of an implementation: a TOML file with one entry per known failure and its reason.

    [[expect]]
    case = "grows-*"  # or clause = "MACHINE-*": a glob
    verdict = "fail"  # fail, error, timeout, crash or protocol-error
    reason = "the first window is a step longer"
    issue = "https://example.org/issues/12"  # optional

If several entries match a case, the first one counts. The run fails if a case passes that is expected to fail, or if an entry
is stale because it applies to no case, so that an outdated file is noticed. `updated` updates a file after a run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from json import dumps
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
NEW_REASON = f"{TODO}: write the reason"
_TABLE = re.compile(r"^[ \t]*\[\[[ \t]*expect[ \t]*\]\]", re.MULTILINE)
_ENTRY = re.compile(rf"^(?:[ \t]*#.*\n)*+(?P<table>{_TABLE.pattern})?", re.MULTILINE)  # with the comments above an entry


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


def updated(file: Path, results: Iterable[Result]) -> tuple[str, list[str]]:
    """
    Return the updated text of *file*, which need not exist, and a description of each change.

    The results are those of the whole suite, before expectations are applied; those without a clause are ignored. Entries
    that still apply keep their text and the comment directly above them, and line ends stay. An entry that applies only to some
    of its cases is split into one per case with the same reason and issue. New entries get the reason `NEW_REASON`, which fails
    the run until it is replaced.

    Raises a ValueError if the file is invalid, or does not have a separate [[expect]] table for each entry.
    """
    entries, old_text = (read(file).entries, file.read_bytes().decode()) if file.exists() else ([], "")
    start, blocks = _split(old_text.replace("\r\n", "\n"), file)
    remaining = {result.case: result for result in results if result.clause and result.verdict is not Verdict.UNSUPPORTED}
    texts, changes = [start], list[str]()
    for entry, block in zip(entries, blocks, strict=True):
        texts.append(_updated_entry(entry, block, remaining, changes))
    for result in remaining.values():
        if result.verdict in EXPECTABLE:
            texts.append(_to_toml(Expectation("case", result.case, result.verdict, NEW_REASON)))
            changes.append(f"added: case = {result.case!r}, {result.verdict}; write its reason")
    if not changes:
        return old_text, []
    new_text = "\n".join(text.strip("\n") + "\n" for text in texts if text.strip())
    return new_text.replace("\n", "\r\n" if "\r\n" in old_text else "\n"), changes


def _updated_entry(entry: Expectation, block: str, remaining: dict[str, Result], changes: list[str]) -> str:
    """Return the updated text of one entry, and remove the cases that it covers from *remaining*."""
    matching = [result for result in remaining.values() if entry.matches(result.case, result.clause)]
    confirmed = [result.case for result in matching if result.verdict is entry.verdict]
    for case in confirmed:
        del remaining[case]
    if confirmed and len(confirmed) == len(matching):
        return block
    others = ", ".join(f"{result.case}: {result.verdict}" for result in matching if result.case not in confirmed)
    if not confirmed:
        changes.append(f"removed: {entry}, {entry.verdict}; {f'now {others}' if matching else 'no supported case matches'}")
        return ""
    changes.append(f"split: {entry}, {entry.verdict}; now {others}")
    comment = _TABLE.split(block, maxsplit=1)[0]
    return comment + "\n".join(_to_toml(replace(entry, by="case", glob=case)) for case in confirmed)


def _split(text: str, file: Path) -> tuple[str, list[str]]:
    """Return the text before the first entry, and the text of each entry with the comment directly above it."""
    starts = [match.start() for match in _ENTRY.finditer(text) if match["table"]]
    blocks = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    try:
        entries = [entry for block in blocks for entry in parse_toml(block)["expect"]]
    except (ValueError, KeyError):
        entries = None
    if entries != parse_toml(text).get("expect", []):
        raise ValueError(f"{file}: expected a separate [[expect]] table for each entry; other forms cannot be updated")
    return text[: starts[0] if starts else None], blocks


def _to_toml(entry: Expectation) -> str:
    members = {entry.by: entry.glob, "verdict": str(entry.verdict), "reason": entry.reason, "issue": entry.issue}
    # A TOML string differs from a JSON string only in the escape of DEL.
    lines = [f"{key} = {dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f") for key, value in members.items() if value]
    return "\n".join(["[[expect]]", *lines, ""])
