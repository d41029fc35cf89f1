"""
`Adapter` of an implementation in its own process, in any language, or of a recording of such a process.

spec/conformance/protocol.md specifies the messages. Every call has a time limit, whatever the process does.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..adapters.loading import name_of
from ..model.adapter import Adapter
from ..model.subject import check_seconds
from .client import Client
from .process import Process
from .transcript import Recorder, Recording

SECONDS = 10.0
START_SECONDS = 60.0  # includes the imports of the implementation
_SERVE = "import sys; sys.path[:] = {path}; from ampscale_conformance.remote.serve import main; sys.exit(main([{name!r}]))"


class CommandAdapter(Client):
    """
    Adapter of the implementation that a command starts.

    Args:
        command: Program with its arguments. A string is split like a shell command; no shell is started.
        seconds: Time limit per reply.
        record: File to which all messages are written, for `ReplayAdapter`.
        start_seconds: Time limit of the reply to hello.

    Raises:
        TypeError: The command is neither a string nor a sequence of strings, or a time limit is not a number.
        ValueError: The command is empty, or a time limit is not positive or exceeds three years.
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
            raise TypeError(f"command must be a string or a sequence of strings, got {command!r}")
        if not words:
            raise ValueError(f"command must name a program, got {command!r}")
        check_seconds("seconds", seconds)
        check_seconds("start_seconds", start_seconds)
        super().__init__(shlex.join(words), lambda: Process(words), seconds, start_seconds, Recorder(record, words))


class ReplayAdapter(Client):
    """
    Adapter that replays the recording of a `CommandAdapter`: the same replies, and the same interruptions.

    Raises an OSError if the file cannot be read, and a ValueError if it is not a recording.
    """

    def __init__(self, file: Path) -> None:
        recording = Recording(file)
        super().__init__(shlex.join(recording.command), recording.start, SECONDS, START_SECONDS, Recorder())


def served(adapter: Adapter, seconds: float = SECONDS) -> CommandAdapter:
    """Return the same adapter in another Python process with the same import path."""
    return CommandAdapter([sys.executable, "-c", _SERVE.format(path=sys.path, name=name_of(adapter))], seconds)
