"""
An implementation in a process of its own, in any language, as an `Adapter`; and a recording in the place of one.

spec/conformance/protocol.md says what is sent. No call takes longer than its time, whatever the process does.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..adapters.loading import name_of
from ..model.adapter import Adapter
from .client import Client, NotStarted
from .process import Process
from .transcript import Recorder, Recording

__all__ = ["CommandAdapter", "NotStarted", "ReplayAdapter", "served"]

SECONDS = 10.0
START_SECONDS = 60.0  # to import what an implementation needs
_SERVE = "import sys; sys.path[:] = {path}; from ampscale_conformance.remote.serve import main; sys.exit(main([{name!r}]))"


class CommandAdapter(Client):
    """
    The implementation that a command starts.

    Args:
        command: The program and its arguments; one string is split as a shell does it, and no shell is started.
        seconds: How long one answer may take.
        record: A file to write all to that is said, for `ReplayAdapter`.
        start_seconds: How long the answer to hello may take.

    Raises:
        TypeError: The command is neither a string nor strings.
        ValueError: It is empty, or a time is not above zero.
        OSError: The file cannot be written.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        seconds: float = SECONDS,
        record: Path | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if not all(isinstance(word, str) for word in words):
            raise TypeError(f"command must be a string or several, got {command!r}")
        if not words:
            raise ValueError(f"command must name a program, got {command!r}")
        for name, value in (("seconds", seconds), ("start_seconds", start_seconds)):
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value!r}")
        super().__init__(shlex.join(words), lambda: Process(words), seconds, start_seconds, Recorder(record, words))


class ReplayAdapter(Client):
    """
    The implementation that a recording is of, without it: the same answers, and the same ends.

    Args:
        file: What a `CommandAdapter` recorded.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no recording.
    """

    def __init__(self, file: Path) -> None:
        recording = Recording(file)
        super().__init__(shlex.join(recording.command), recording.start, SECONDS, START_SECONDS, Recorder())


def served(adapter: Adapter, seconds: float = SECONDS) -> CommandAdapter:
    """The adapter that another Python finds under this one's name, on the same paths."""
    return CommandAdapter([sys.executable, "-c", _SERVE.format(path=sys.path, name=name_of(adapter))], seconds)
