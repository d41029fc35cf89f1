"""
Process of an implementation: send a line, receive a line within a time limit, and leave nothing running afterwards.

The process leads its own process group, which is killed as a whole. POSIX only. No operation on a pipe blocks indefinitely.
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
from .codec import LONGEST

_CHUNK = 2**16
_POLL_SECONDS = 0.1  # between two checks that the process still runs
_GRACE = 2.0  # seconds in which a process must end after its output ends
_TAIL = 4096  # bytes of stderr to keep
_LAST_LINES = 5


class Process:
    """Running process of an implementation. Raises Crashed if it cannot be started."""

    def __init__(self, command: Sequence[str]) -> None:
        if not hasattr(os, "killpg"):
            raise Crashed("the process cannot be started: this requires process groups, which only POSIX has")
        pipe = subprocess.PIPE
        try:
            self._popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True)
        except (OSError, ValueError) as error:
            raise Crashed(f"the process cannot be started: {error}") from None
        self._in, self._out, self._err = _pipe(self._popen.stdin), _pipe(self._popen.stdout), _pipe(self._popen.stderr)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._selector.register(self._err, selectors.EVENT_READ)
        self._unsent, self._received, self._stderr = memoryview(b""), bytearray(), b""
        self._closed = False
        self._finalize = weakref.finalize(self, _end, self._popen, self._selector)  # runs even if `end` is never called

    def exchange(self, line: bytes, seconds: float) -> bytes:
        """
        Send a line, and return the next line received, without its newline.

        Raises TimedOut, Crashed, or a ProtocolError if the line is too long or the process closed its output.
        """
        deadline = time.monotonic() + seconds
        self._unsent = memoryview(line)
        self._selector.register(self._in, selectors.EVENT_WRITE)
        while self._unsent or b"\n" not in self._received:
            if (remaining := deadline - time.monotonic()) <= 0:
                raise TimedOut(f"no reply within {seconds:g} s{self._stderr_tail()}")
            self._transfer(min(remaining, _POLL_SECONDS))
        reply, _, self._received = self._received.partition(b"\n")
        return bytes(reply)

    def end(self, grace: float = 0.0) -> None:
        """Wait up to *grace* seconds for the end of the process; then kill its process group, and close the pipes."""
        if grace:
            self._in.close()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(grace)
        self._finalize()

    def _transfer(self, seconds: float) -> None:
        """Read and write what the pipes allow; raise an error if the line received so far is too long or cannot be completed."""
        ended, old_length = self._popen.poll() is not None, len(self._received)
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._in:
                self._write()
            elif key.fileobj is self._out:
                self._read_stdout()
            else:
                self._read_stderr()
        if b"\n" in self._received:
            return
        if len(self._received) > LONGEST:
            raise ProtocolError(f"expected a line of at most {LONGEST} bytes, got more: {bytes(self._received[:60])!r}")
        if self._closed or (ended and len(self._received) == old_length):
            self._raise_end()

    def _write(self) -> None:
        try:
            written = self._in.write(self._unsent[:_CHUNK]) or 0  # None if the pipe is full
            self._unsent = self._unsent[written:]
        except BrokenPipeError:  # the process no longer reads; it may still reply
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._selector.unregister(self._in)

    def _read_stdout(self) -> None:
        chunk = self._out.read(_CHUNK)
        self._received += chunk or b""
        if chunk == b"":
            self._closed = True
            self._selector.unregister(self._out)

    def _read_stderr(self) -> bool:
        """Read from stderr and keep its end; return True if there may be more."""
        chunk = self._err.read(_CHUNK)
        self._stderr = (self._stderr + (chunk or b""))[-_TAIL:]
        if chunk == b"" and self._err in self._selector.get_map():
            self._selector.unregister(self._err)
        return bool(chunk)

    def _raise_end(self) -> NoReturn:
        partial = f" after {len(self._received)} bytes of a line" if self._received else ""
        try:
            status = self._popen.wait(_GRACE)
        except subprocess.TimeoutExpired:
            raise ProtocolError(f"the process closed its standard output{partial}, but still runs{self._stderr_tail()}") from None
        raise Crashed(f"the process ended{partial}, {_status_text(status)}{self._stderr_tail()}")

    def _stderr_tail(self) -> str:
        for _ in range(LONGEST // _CHUNK):  # a limit, since children of the process may write to stderr indefinitely
            if not self._read_stderr():
                break
        lines = [line.rstrip() for line in self._stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        printable = "".join(char if char.isprintable() else " " for char in " | ".join(lines[-_LAST_LINES:]))
        return f"; its stderr ends: {printable}" if printable else "; its stderr is empty"


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # created with PIPE
    os.set_blocking(stream.fileno(), False)
    return stream


def _status_text(status: int) -> str:
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
