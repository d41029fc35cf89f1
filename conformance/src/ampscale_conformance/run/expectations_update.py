"""A file of expectations after a run: what is still true stays as it was written, what is not goes, what is new is added."""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from json import dumps
from pathlib import Path

from ampscale.parsing import parse_toml

from ..model.verdicts import Result, Verdict
from .expectations import EXPECTABLE, TODO, Expectation, read

NEW_REASON = f"{TODO}: say why"
_TABLE = re.compile(r"^[ \t]*\[\[[ \t]*expect[ \t]*\]\]", re.MULTILINE)
_ENTRY = re.compile(rf"^(?:[ \t]*#.*\n)*+(?P<table>{_TABLE.pattern})?", re.MULTILINE)  # with the comment directly above it


def rewritten(file: Path, results: Iterable[Result]) -> tuple[str, list[str]]:
    """
    The text that *file* has to have, and what is different in it.

    Entries that are still true keep their text, with the comment directly above them; one of which only a part is still true
    becomes an entry for each case, with its reason and issue. What is new gets the reason `NEW_REASON`, with which it is not
    yet accepted.

    Args:
        file: The file of expectations, which may not exist.
        results: Of a run of the whole suite, before any expectation was applied.

    Raises:
        ValueError: The file is wrong, or is not written with one [[expect]] table for each entry.
    """
    entries = read(file).entries if file.exists() else []
    start, blocks = _split(file)
    waiting = {result.case: result for result in results if result.verdict is not Verdict.UNSUPPORTED}
    texts, changes = [start], list[str]()
    for entry, block in zip(entries, blocks, strict=True):
        texts.append(_after(entry, block, waiting, changes))
    for result in waiting.values():
        if result.verdict in EXPECTABLE:
            texts.append(_written(Expectation("case", result.case, result.verdict, NEW_REASON)))
            changes.append(f"added: case = {result.case!r}, {result.verdict}; its reason is to be written")
    if not changes and file.exists():
        return file.read_text("utf-8"), []
    return "\n".join(text.strip("\n") + "\n" for text in texts if text.strip()), changes


def _after(entry: Expectation, block: str, waiting: dict[str, Result], changes: list[str]) -> str:
    """What becomes of one entry. The cases that it keeps are no longer *waiting*."""
    own = [result for result in waiting.values() if entry.matches(result.case, result.clause)]
    true = [result.case for result in own if result.verdict is entry.verdict]
    for case in true:
        del waiting[case]
    if true and len(true) == len(own):
        return block
    others = ", ".join(f"{result.case}: {result.verdict}" for result in own if result.case not in true)
    if not true:
        changes.append(f"removed: {entry}, {entry.verdict}; {f'now {others}' if own else 'no case that is supported'}")
        return ""
    changes.append(f"split: {entry}, {entry.verdict}; now {others}")
    above = _TABLE.split(block, maxsplit=1)[0]
    return above + "\n".join(_written(replace(entry, by="case", glob=case)) for case in true)


def _split(file: Path) -> tuple[str, list[str]]:
    """What stands before the first entry, and the text of each entry, with the comment directly above it."""
    if not file.exists():
        return "", []
    text = file.read_text("utf-8")
    starts = [found.start() for found in _ENTRY.finditer(text) if found["table"]]
    blocks = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    try:
        found = [entry for block in blocks for entry in parse_toml(block)["expect"]]
    except (ValueError, KeyError):
        found = None
    if found != parse_toml(text).get("expect", []):
        raise ValueError(f"{file}: wanted a [[expect]] table for each entry, got what cannot be rewritten entry by entry")
    return text[: starts[0] if starts else None], blocks


def _written(entry: Expectation) -> str:
    members = {entry.by: entry.glob, "verdict": str(entry.verdict), "reason": entry.reason, "issue": entry.issue}
    lines = [f"{key} = {_quoted(value)}" for key, value in members.items() if value]
    return "\n".join(["[[expect]]", *lines, ""])


def _quoted(value: str) -> str:
    """A string of TOML: one of JSON, but for one character."""
    return dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
