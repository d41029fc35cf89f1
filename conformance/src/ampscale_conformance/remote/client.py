"""
Adapter of an implementation in its own process, in any language, or of a recording of such a process: each call is a request.

spec/conformance/protocol.md specifies the messages. Every call has a time limit, whatever the process does. An interruption ends
the process and affects no other case: the next request without objects of that process starts a new one.
"""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ampscale.parsing import cut

from ..adapters.loading import name_of
from ..model.adapter import METHODS, RANKS_SECONDS, Adapter, ImplementationInfo, Unsupported
from ..model.subject import Crashed, Interruption, ProtocolError, check_seconds, verdict_of
from ..model.verdicts import Report, Result, environment
from .codec import PROTOCOL, Codec, read_reply, write_line
from .process import Process
from .transcript import Recorder, Recording

SECONDS = 10.0
START_SECONDS = 60.0  # time limit of the reply to hello; includes the imports of the implementation
_SERVE = "import sys; sys.path[:] = {path}; from ampscale_conformance.remote.serve import main; sys.exit(main([{name!r}]))"
_BYE_SECONDS = 2.0
_STARTS = 3  # consecutive failures to start, after which the implementation is not started again
_LONGEST_MESSAGE = 600  # characters
Transport = Process | Recording


class NotStarted(Exception):  # noqa: N818 - a state, reported as a verdict
    """Raised if the command gave no valid reply to hello."""

    def __init__(self, command: str, end: Interruption) -> None:
        super().__init__(f"{command}: {end}")
        self.command, self.end = command, end

    def report(self) -> Report:
        """Return a report with one result, since no case could run."""
        result = Result("", "hello", verdict_of(self.end), str(self.end))
        return Report(ImplementationInfo(name=self.command), (result,), environment())


@dataclass(frozen=True, eq=False)
class RemoteObject:
    """Handle, optimizer, cell or adapter in the process. There is one such object for each number of a case and process."""

    kind: str
    number: int


class RemoteMethods:
    """The methods of an adapter, each of which sends a request by the subclass's `request`."""

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(f"an adapter has no method {name}")

        def method(*arguments: Any, **options: Any) -> Any:
            if "options" in METHODS[name].takes:
                arguments = (*arguments, options)
            return self.request(name, *arguments)

        return method


class Client(RemoteMethods, AbstractContextManager["Client"]):
    """
    Adapter of an implementation that replies to protocol messages. It is the `ObjectTable` of its codec.

    *start* starts the implementation, or raises an `Interruption`; *command* is its command line, for error messages.
    *seconds* is the time limit per reply, except for the reply to hello.
    """

    def __init__(self, command: str, start: Callable[[], Transport], seconds: float, recorder: Recorder) -> None:
        self.command, self.seconds = command, seconds
        self._start, self._recorder = start, recorder
        self._transport: Transport | None = None
        self._info: ImplementationInfo | None = None
        self._objects: dict[tuple[str, int], RemoteObject] = {}
        self._end_reason = ""
        self._failed_starts: list[Interruption] = []  # since the last successful start
        self._request_id = 0  # of the last request
        self._codec = Codec("numpy", self)

    @property
    def info(self) -> ImplementationInfo:
        """Return the implementation's description. Start the process if necessary. Its `arrays` is "numpy"."""
        return self.start() if self._info is None else self._info

    def request(self, call: str, *arguments: Any, adapter: RemoteObject | None = None) -> Any:
        """
        Send one call and return its result.

        Raises Unsupported; NotImplementedError if the implementation does not have the call; for an error of the implementation,
        an Exception with the same class name; or an `Interruption`, even if an argument belongs to an earlier case or process.
        """
        takes, gives, _ = METHODS[call]
        if len(arguments) != len(takes):
            raise ValueError(f"{call} takes {', '.join(takes) or 'nothing'}, got {len(arguments)} arguments")
        encoded = {kind: self._codec.encode(kind, value) for kind, value in zip(takes, arguments, strict=True)}
        target = {} if adapter is None else {"adapter": self._codec.encode("adapter", adapter)}
        if self._transport is None:
            self._open()
        seconds = max(self.seconds, RANKS_SECONDS) if call == "train_on_ranks" else self.seconds
        outcome, value = self._exchange(call, encoded, gives, seconds, **target)
        return value if outcome == "result" else _raise_outcome(outcome, value)

    def start(self) -> ImplementationInfo:
        """Start the process unless it is running, and return its description; raise NotStarted if there is no valid reply."""
        if self._transport is None:
            try:
                self._open()
            except Interruption as interruption:
                raise NotStarted(self.command, interruption) from None
        assert self._info is not None  # set by the reply to hello
        return self._info

    def reset(self) -> None:
        """End a case: invalidate all object numbers on both sides. A process that has ended is not restarted."""
        if self._transport is not None:
            self._control("reset", {}, "nothing", self.seconds)
        self._invalidate("this case is over")

    def close(self) -> None:
        """Send bye and end the process. A later call starts a new process, which has no objects."""
        if self._transport is not None:
            with suppress(Interruption):
                self._control("bye", {}, "nothing", min(self.seconds, _BYE_SECONDS))
        self._end("it was closed", _BYE_SECONDS)

    def __exit__(self, *_: object) -> None:
        self.close()

    def number(self, kind: str, value: Any) -> int:
        """
        Return the number of an object of this process and case.

        Raises Crashed if the object belongs to an earlier one, and a TypeError if *value* is not an object of this *kind*.
        """
        if not isinstance(value, RemoteObject) or value.kind != kind:
            raise TypeError(f"{kind} must be an object of this implementation, got {value!r}")
        if self._objects.get((kind, value.number)) is not value:
            raise Crashed(f"{kind} {value.number} is no longer valid: {self._end_reason}")
        return value.number

    def lookup(self, kind: str, number: int) -> Any:
        """Return the object with this number, always the same one; for a compiled adapter, return an adapter that calls it."""
        remote = self._objects.setdefault((kind, number), RemoteObject(kind, number))
        return _Compiled(self.info, partial(self.request, adapter=remote)) if kind == "adapter" else remote

    def _open(self) -> None:
        if len(self._failed_starts) >= _STARTS:
            last = self._failed_starts[-1]
            raise type(last)(f"not started again after {_STARTS} failures; the last failure: {last}")
        try:
            self._hello()
        except Interruption as interruption:
            self._failed_starts.append(interruption)
            raise
        self._failed_starts.clear()

    def _hello(self) -> None:
        self._recorder.start()
        self._request_id = 0
        try:
            self._transport = self._start()
        except Interruption as interruption:
            self._recorder.end(interruption)
            raise
        info = self._control("hello", {"protocol": PROTOCOL}, "hello", START_SECONDS)
        if self._info not in (None, info):
            self._abort("hello", ProtocolError(f"expected the earlier reply {cut(str(self._info))}, got {cut(str(info))}"))
        self._info = info

    def _control(self, call: str, arguments: Mapping[str, Any], gives: str, seconds: float) -> Any:
        """Send hello, reset or bye, which must have a result of the kind *gives*."""
        outcome, value = self._exchange(call, arguments, gives, seconds)
        if outcome != "result":
            self._abort(call, ProtocolError(f"expected a result, got {outcome}: {value}"))
        return value

    def _exchange(self, call: str, arguments: Mapping[str, Any], gives: str, seconds: float, **target: int) -> tuple[str, Any]:
        """Send a request; return the outcome of the reply, and its value, which is decoded if it is a result."""
        self._request_id += 1
        line = write_line({"id": self._request_id, "call": call, **target, "arguments": arguments})
        assert self._transport is not None  # opened by the caller
        try:
            self._recorder.message("request", line)
            reply = self._transport.exchange(line, seconds)
            self._recorder.message("reply", reply)
            outcome, value = read_reply(reply, self._request_id)
            return outcome, self._codec.decode(gives, value) if outcome == "result" else value
        except (ValueError, RecursionError) as error:
            self._abort(call, ProtocolError(str(error)))
        except Interruption as interruption:
            self._abort(call, interruption)
        except BaseException as error:
            self._end(f"it was interrupted by {type(error).__name__}")
            raise

    def _abort(self, call: str, interruption: Interruption) -> NoReturn:
        """End the process, and raise the interruption with the number of the request."""
        self._recorder.end(interruption)
        self._end(f"{call}, request {self._request_id}: {cut(str(interruption), _LONGEST_MESSAGE)}")
        raise type(interruption)(self._end_reason) from None

    def _end(self, reason: str, grace: float = 0.0) -> None:
        transport, self._transport = self._transport, None
        self._invalidate(reason)
        if transport is not None:
            transport.end(grace)

    def _invalidate(self, reason: str) -> None:
        self._objects.clear()
        self._end_reason = reason


class CommandAdapter(Client):
    """
    Adapter of the implementation that a command starts.

    Args:
        command: Program with its arguments. A string is split like a shell command; no shell is started.
        seconds: Time limit per reply, except for the reply to hello, which has 60 seconds.
        record: File to which all messages are written, for `ReplayAdapter`.

    Raises:
        TypeError: The command is neither a string nor a sequence of strings, or the time limit is not a number.
        ValueError: The command is empty, or the time limit is not positive or exceeds three years.
        OSError: The file cannot be written.
    """

    def __init__(self, command: str | Sequence[str], seconds: float = SECONDS, record: Path | None = None) -> None:
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if not all(isinstance(word, str) for word in words):
            raise TypeError(f"command must be a string or a sequence of strings, got {command!r}")
        if not words:
            raise ValueError(f"command must name a program, got {command!r}")
        check_seconds("seconds", seconds)
        super().__init__(shlex.join(words), lambda: Process(words), seconds, Recorder(record, words))


class ReplayAdapter(Client):
    """
    Adapter that replays the recording of a `CommandAdapter`: the same replies, and the same interruptions.

    Raises an OSError if the file cannot be read, and a ValueError if it is not a recording.
    """

    def __init__(self, file: Path) -> None:
        recording = Recording(file)
        super().__init__(shlex.join(recording.command), recording.start, SECONDS, Recorder())


def served(adapter: Adapter, seconds: float = SECONDS) -> CommandAdapter:
    """Return the same adapter in another Python process with the same import path."""
    return CommandAdapter([sys.executable, "-c", _SERVE.format(path=sys.path, name=name_of(adapter))], seconds)


@dataclass(frozen=True, eq=False)
class _Compiled(RemoteMethods):
    """Result of `compiled`: an adapter of the same implementation."""

    info: ImplementationInfo
    request: Callable[..., Any]  # `Client.request` with the number of this adapter


def _raise_outcome(outcome: str, value: Any) -> NoReturn:
    if outcome == "unsupported":
        raise Unsupported(value)
    if outcome == "absent":
        raise NotImplementedError(value)
    raise type(value["type"].replace("\0", " "), (Exception,), {})(value["message"])  # class names cannot contain NUL
