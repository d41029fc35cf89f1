"""
An implementation's process: a line goes out, a line comes back within a time, and nothing is left of it afterwards.

It leads a process group of its own, which is killed whole. POSIX only: no pipe is ever waited for without a limit.
"""

import os
import selectors
import signal
import subprocess
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, NoReturn

from ..model.subject import Crashed, ProtocolError, TimedOut
from .jsonl import LONGEST

_CHUNK = 2**16
_GLANCE = 0.1  # seconds between two looks whether it still runs
_GRACE = 2.0  # seconds from the end of its output to its own end
_TAIL = 4096  # bytes of stderr that are kept
_LAST_LINES = 5


class Process:
    """
    A running implementation.

    Args:
        command: The program and its arguments.

    Raises:
        Crashed: It cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        if not hasattr(os, "killpg"):
            raise Crashed("it cannot be started: a process group is needed, which only POSIX has")
        pipe = subprocess.PIPE
        try:
            self._popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True)
        except (OSError, ValueError) as error:
            raise Crashed(f"it cannot be started: {error}") from None
        self._in, self._out, self._err = _pipe(self._popen.stdin), _pipe(self._popen.stdout), _pipe(self._popen.stderr)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._selector.register(self._err, selectors.EVENT_READ)
        self._unsent, self._came, self._said, self._closed = memoryview(b""), bytearray(), b"", False
        self._finalize = weakref.finalize(self, _end, self._popen, self._selector)  # also when nobody asks for it

    def exchange(self, line: bytes, seconds: float) -> bytes:
        """
        Sends a line, and returns the next one that comes, without its newline.

        Raises:
            TimedOut: It has not come whole in this time.
            Crashed: The process has ended.
            ProtocolError: What comes is too long, or can come no more.
        """
        deadline = time.monotonic() + seconds
        self._unsent = memoryview(line)
        self._selector.register(self._in, selectors.EVENT_WRITE)
        newline = self._came.find(b"\n")
        while self._unsent or newline < 0:
            if (left := deadline - time.monotonic()) <= 0:
                raise TimedOut(f"no answer within {seconds:g} s{self._last_words()}")
            newline = self._turn(min(left, _GLANCE), newline)
        came = bytes(self._came[:newline])
        del self._came[: newline + 1]
        return came

    def end(self, patience: float = 0.0) -> None:
        """Kills it, unless it ends by itself within some seconds, and all that it has started; and closes the pipes."""
        if patience:
            self._in.close()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(patience)
        self._finalize()

    def _turn(self, seconds: float, newline: int) -> int:
        """Moves what can be moved within a glance; where the first newline is, or -1."""
        ended, before = self._popen.poll() is not None, len(self._came)
        for key, _ in self._selector.select(seconds):
            self._move(key.fileobj)
        if newline < 0 <= (found := self._came.find(b"\n", before)):
            return found
        if newline < 0 and len(self._came) > LONGEST:
            raise ProtocolError(f"a line of more than {LONGEST} bytes, which begins with {bytes(self._came[:60])!r}")
        if newline < 0 and (self._closed or (ended and len(self._came) == before)):
            self._gone()
        return newline

    def _move(self, stream: object) -> None:
        if stream is self._in:
            self._write()
        elif stream is self._out:
            came = self._out.read(_CHUNK)
            self._came += came or b""
            if came == b"":
                self._closed = True
                self._selector.unregister(self._out)
        else:
            self._hear()

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[self._in.write(self._unsent[:_CHUNK]) or 0 :]
        except BrokenPipeError:  # it reads no more; whether it still answers is seen from its output
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._selector.unregister(self._in)

    def _hear(self) -> bool:
        """Reads some of stderr and keeps its end; whether there may be more."""
        came = self._err.read(_CHUNK)
        self._said = (self._said + (came or b""))[-_TAIL:]
        if came == b"" and self._err in self._selector.get_map():
            self._selector.unregister(self._err)
        return bool(came)

    def _gone(self) -> NoReturn:
        rest = f" after {len(self._came)} bytes of a line" if self._came else ""
        try:
            status = self._popen.wait(_GRACE)
        except subprocess.TimeoutExpired:
            raise ProtocolError(f"it closed its standard output{rest}, and runs on{self._last_words()}") from None
        raise Crashed(f"its process ended{rest}, {_told(status)}{self._last_words()}")

    def _last_words(self) -> str:
        for _ in range(LONGEST // _CHUNK):  # what it had still written; and no end of it is waited for
            if not self._hear():
                break
        lines = [line.rstrip() for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
        printable = "".join(sign if sign.isprintable() else " " for sign in " | ".join(lines[-_LAST_LINES:]))
        return f"; its stderr ends: {printable}" if printable else "; its stderr is empty"


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # it was asked for
    os.set_blocking(stream.fileno(), False)
    return stream


def _told(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"killed by signal {-status}"


def _end(popen: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)
    selector.close()
    for stream in (popen.stdin, popen.stdout, popen.stderr):
        if stream is not None:
            stream.close()
    with suppress(subprocess.TimeoutExpired):
        popen.wait(_GRACE)
