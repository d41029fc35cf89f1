"""
Recording of all protocol messages in a file, and its replay instead of an implementation.

Each line is a JSON object with one member: `request` or `reply`, the unchanged message; `start`, the start of a process; or
`timeout`, `crash` or `protocol-error`, the interruption of a process.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ampscale.files import read_bounded
from ampscale.parsing import excerpt

from ..model.subject import VERDICTS, Interruption, ProtocolError, verdict_of
from .codec import read_line

FORMAT = "ampscale conformance recording"
VERSION = 1
LONGEST = 2**28  # bytes of a recording; a run of all cases has about 2**22
INTERRUPTIONS = {verdict: cls for cls, verdict in VERDICTS.items() if issubclass(cls, Interruption)}


class Recorder:
    """Writer of a recording; writes nothing if *file* is None. Writes at once, so that an aborted run leaves a usable file."""

    def __init__(self, file: Path | None = None, command: Sequence[str] = ()) -> None:
        self._file = None if file is None else file.resolve()
        if self._file is not None:
            self._file.write_text("")
        self._write({"format": FORMAT, "version": VERSION, "command": list(command)})

    def start(self) -> None:
        """Record the start of a process."""
        self._write({"start": True})

    def message(self, direction: str, line: bytes) -> None:
        """Record a "request" or a "reply"."""
        self._write({direction: _text(line)})

    def end(self, interruption: Interruption) -> None:
        """Record what ended the process."""
        self._write({str(verdict_of(interruption)): str(interruption)})

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is not None:
            with self._file.open("a", encoding="ascii") as file:
                file.write(json.dumps(entry) + "\n")


class Recording:
    """Replay of a `Recorder`'s file, in order. Raises an OSError or a ValueError if the file is not a readable recording."""

    def __init__(self, file: Path) -> None:
        self._file, self._index = file, 0
        *lines, _ = read_bounded(file, LONGEST).split(b"\n")  # drop an incomplete last line
        head, *self._entries = [_entry(line, f"{file}:{number}") for number, line in enumerate(lines, start=1)] or [{}]
        command: Any = head.get("command")
        is_command = isinstance(command, list) and all(isinstance(word, str) for word in command)
        if (head.get("format"), head.get("version")) != (FORMAT, VERSION) or not is_command:
            raise ValueError(
                f"{file} must begin with the format {FORMAT!r} in version {VERSION} and a command, got {excerpt(head)}"
            )
        self.command: list[str] = command

    def start(self) -> "Recording":
        """Replay the start of a process, and return this object as its transport."""
        self._take("start")
        self._raise_end()
        return self

    def exchange(self, line: bytes, _seconds: float) -> bytes:
        """Return the recorded reply, or raise the recorded interruption; the request must be the recorded one."""
        self._take("request", _text(line))
        reply = str(self._take("reply"))
        self._raise_end()
        return reply.encode("utf-8", "surrogateescape")

    def end(self, _grace: float = 0.0) -> None:
        """Do nothing: there is no process."""

    def _raise_end(self) -> None:
        """Raise the interruption that comes next in the recording, if there is one."""
        entry = self._next()
        for verdict, cls in INTERRUPTIONS.items():
            if verdict in entry:
                self._index += 1
                raise cls(entry[verdict])

    def _take(self, member: str, value: str | None = None) -> Any:
        """Return this member of the next entry, which must be *value* unless that is None; raise a recorded interruption."""
        self._raise_end()
        entry = self._next()
        if entry.get(member) is None or value not in (None, entry[member]):
            expected = f"a {member}" if value is None else excerpt({member: value})
            actual = excerpt(entry) if entry else "the end of the file"
            raise ProtocolError(f"{self._file}:{self._index + 2} belongs to another run: expected {expected}, got {actual}")
        self._index += 1
        return entry[member]

    def _next(self) -> dict[str, Any]:
        return self._entries[self._index] if self._index < len(self._entries) else {}


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape").removesuffix("\n")


def _entry(line: bytes, label: str) -> dict[str, Any]:
    try:
        return read_line(line)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
