"""
What was said with an implementation, as a file; and that file in the implementation's place.

A JSON object a line, with one member: `request` and `reply`, as they went; `start`, a process; and what ended one:
`timeout`, `crash` or `protocol-error`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ampscale.files import read_bounded

from ..model.subject import Crashed, Interruption, ProtocolError, TimedOut
from ..model.verdicts import Verdict
from .jsonl import read_line, shown

FORMAT = "ampscale conformance recording"
VERSION = 1
LONGEST = 2**28  # bytes of a recording; a run of all cases has some 2**22
ENDS: dict[Verdict, type[Interruption]] = {
    Verdict.TIMEOUT: TimedOut,
    Verdict.CRASH: Crashed,
    Verdict.PROTOCOL_ERROR: ProtocolError,
}


def verdict_of(end: Interruption) -> Verdict:
    """The verdict on what ended a call from outside."""
    return next(verdict for verdict, kind in ENDS.items() if isinstance(end, kind))


class Recorder:
    """
    Writes down what is said, line by line, so that a run that breaks off leaves all before it.

    Args:
        file: Where to; what it held is gone. None for nowhere.
        command: What is recorded.
    """

    def __init__(self, file: Path | None = None, command: Sequence[str] = ()) -> None:
        self._file = None if file is None else file.resolve()
        if self._file is not None:
            self._file.write_text("")
        self._write({"format": FORMAT, "version": VERSION, "command": list(command)})

    def start(self) -> None:
        """A process is started."""
        self._write({"start": True})

    def said(self, way: str, line: bytes) -> None:
        """A "request" to the implementation, or its "reply"."""
        self._write({way: _text(line)})

    def end(self, end: Interruption) -> None:
        """What ended the process."""
        self._write({str(verdict_of(end)): str(end)})

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is not None:
            with self._file.open("a", encoding="ascii") as file:
                file.write(json.dumps(entry) + "\n")


class Recording:
    """
    A recording, read from its beginning on: what was answered is answered again, and what ended ends again.

    Args:
        file: What a `Recorder` wrote.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no recording.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._at = file, 0
        *lines, _ = read_bounded(file, LONGEST).split(b"\n")  # a line without an end was not written whole
        head, *self._entries = [_entry(line, f"{file}:{at}") for at, line in enumerate(lines, start=1)] or [{}]
        command: Any = head.get("command")
        is_command = isinstance(command, list) and all(isinstance(word, str) for word in command)
        if (head.get("format"), head.get("version")) != (FORMAT, VERSION) or not is_command:
            raise ValueError(
                f"{file} must begin with the format {FORMAT!r} in version {VERSION} and a command, got {shown(head)}"
            )
        self.command: list[str] = command

    def start(self) -> "Recording":
        """The next process, which is this recording itself."""
        self._take("start", True)
        self._end()
        return self

    def exchange(self, line: bytes, _seconds: float) -> bytes:
        """The recorded reply to this line, which must be the recorded one; or what ended it."""
        self._end()
        self._take("request", _text(line))
        entry = self._next()
        if "reply" in entry:
            self._at += 1
            self._end()
            return str(entry["reply"]).encode("utf-8", "surrogateescape")
        self._end()
        return self._differs("a reply", entry)

    def end(self, _patience: float = 0.0) -> None:
        """Nothing: there is no process."""

    def _end(self) -> None:
        """Ends, where the recording does."""
        entry = self._next()
        for verdict, kind in ENDS.items():
            if verdict in entry:
                self._at += 1
                raise kind(entry[verdict])

    def _take(self, way: str, wanted: object) -> None:
        entry = self._next()
        if entry != {way: wanted}:
            self._differs(shown({way: wanted}), entry)
        self._at += 1

    def _next(self) -> dict[str, Any]:
        return self._entries[self._at] if self._at < len(self._entries) else {}

    def _differs(self, wanted: str, entry: dict[str, Any]) -> NoReturn:
        came = shown(entry) if entry else "its end"
        raise ProtocolError(f"{self._file}:{self._at + 2} is of another run: wanted {wanted}, got {came}")


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape").removesuffix("\n")


def _entry(line: bytes, place: str) -> dict[str, Any]:
    try:
        return read_line(line)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
