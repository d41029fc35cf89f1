"""Update of an expectations file after a run: unchanged entries keep their text, stale ones are removed, new ones are added."""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from json import dumps
from pathlib import Path

from ampscale.parsing import parse_toml

from ..model.verdicts import Result, Verdict
from .expectations import EXPECTABLE, TODO, Expectation, read

NEW_REASON = f"{TODO}: write the reason"
_TABLE = re.compile(r"^[ \t]*\[\[[ \t]*expect[ \t]*\]\]", re.MULTILINE)
_ENTRY = re.compile(rf"^(?:[ \t]*#.*\n)*+(?P<table>{_TABLE.pattern})?", re.MULTILINE)  # with the comments above an entry


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
