"""
The adapter of an implementation that answers lines: each call is a request. command.py has what answers them.

Whatever it does, a fault spoils no other case: its process is ended, and the next request that needs nothing of it starts
another.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.methods import METHODS
from ..model.subject import Crashed, Interruption, ProtocolError
from ..model.verdicts import Report, Result, here
from .codec import PROTOCOL, Wire
from .jsonl import cut, read_reply, write_line
from .process import Process
from .transcript import Recorder, Recording, verdict_of

_BYE_SECONDS = 2.0
_STARTS = 3  # failures in a row after which it is not started again
_WORDS = 600  # characters of a message


class NotStarted(Exception):  # noqa: N818 - the name says it
    """The command gave no proper answer to hello, but came to this end."""

    def __init__(self, command: str, end: Interruption) -> None:
        super().__init__(f"{command}: {end}")
        self.command, self.end = command, end

    def report(self) -> Report:
        """A report of one result: nothing else could be asked."""
        result = Result("", "hello", verdict_of(self.end), str(self.end))
        return Report(ImplementationInfo(name=self.command), (result,), here())


@dataclass(frozen=True, eq=False)
class Remote:
    """A handle, optimizer, cell or adapter of the process; the same one each time that it gives the same number."""

    kind: str
    number: int
    life: int  # of the process and of the case


Line = Process | Recording


class Calls:
    """The adapter's methods, as requests by `ask`, which an heir has."""

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(f"an adapter has no method {name}")

        def asked(*arguments: Any, **options: Any) -> Any:
            return self.ask(name, *arguments, *([options] if "options" in METHODS[name].takes else []))

        return asked


class Client(Calls):
    """
    The adapter of whatever answers lines.

    Args:
        command: Its name in messages.
        start: Starts it anew; raises an `Interruption` where that fails.
        seconds: How long one answer may take.
        start_seconds: How long the answer to hello may take.
        recorder: Where all is written down.
    """

    def __init__(self, command: str, start: Callable[[], Line], seconds: float, start_seconds: float, recorder: Recorder) -> None:
        self.command, self.seconds, self.start_seconds = command, seconds, start_seconds
        self._start, self._recorder = start, recorder
        self._line: Line | None = None
        self._info: ImplementationInfo | None = None
        self._remotes: dict[tuple[str, int], Remote] = {}
        self._life, self._why = 0, ""
        self._failed: list[Interruption] = []  # starts in a row
        self._last = 0  # the last request's number
        self._wire = Wire("numpy", self)

    # --- what an adapter is ---

    @property
    def info(self) -> ImplementationInfo:
        """What it said of itself; its arrays are NumPy's on this side. Starts it, if nothing has."""
        return self.start() if self._info is None else self._info

    def ask(self, call: str, *arguments: Any, adapter: Remote | None = None) -> Any:
        """
        The result of one call.

        Raises:
            Unsupported: It said so.
            NotImplementedError: It has no such call.
            Exception: It raised; of a class with the same name.
            TimedOut: No answer in time.
            Crashed: The process has ended, or the one that made an argument.
            ProtocolError: The answer is none.
        """
        takes, gives, _ = METHODS[call]
        said = {kind: self._wire.encode(kind, value) for kind, value in zip(takes, arguments, strict=True)}
        whose = {} if adapter is None else {"adapter": self._wire.encode("adapter", adapter)}
        if self._line is None:
            self._open()
        outcome, what = self._request(call, said, gives, self.seconds, whose)
        return what if outcome == "result" else _raise(outcome, what)

    # --- its life ---

    def start(self) -> ImplementationInfo:
        """
        Starts it, unless it runs, and says hello.

        Raises:
            NotStarted: It gave no proper answer.
        """
        if self._line is None:
            try:
                self._open()
            except Interruption as end:
                raise NotStarted(self.command, end) from None
        assert self._info is not None  # hello has been answered
        return self._info

    def reset(self) -> None:
        """Between two cases: every number is forgotten, here and there. A process that has ended is left so."""
        if self._line is not None:
            self._bare("reset", {}, self.seconds)
        self._forget("this case is over")

    def close(self) -> None:
        """Says bye, and ends the process. A later call would start another, which knows no more than is loaded into it."""
        if self._line is not None:
            with suppress(Interruption):
                self._bare("bye", {}, min(self.seconds, _BYE_SECONDS))
        self._end("it was closed", _BYE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- numbers: wire.Things ---

    def number(self, kind: str, thing: Any) -> int:
        """The number of what this process made in this case; Crashed for what another one made."""
        if not isinstance(thing, Remote) or thing.kind != kind:
            raise TypeError(f"wanted a {kind} of this implementation, got {thing!r}")
        if thing.life != self._life:
            raise Crashed(f"{kind} {thing.number} is gone: {self._why}")
        return thing.number

    def thing(self, kind: str, number: int) -> Any:
        """What a number stands for."""
        remote = self._remotes.setdefault((kind, number), Remote(kind, number, self._life))
        return _Compiled(self, remote) if kind == "adapter" else remote

    # --- requests ---

    def _open(self) -> None:
        if len(self._failed) >= _STARTS:
            last = self._failed[-1]
            raise type(last)(f"not started again after {_STARTS} failures; the last one: {last}")
        try:
            self._hello()
        except Interruption as end:
            self._failed.append(end)
            raise
        self._failed.clear()

    def _hello(self) -> None:
        self._recorder.start()
        self._last = 0
        try:
            self._line = self._start()
        except Interruption as end:
            self._recorder.end(end)
            raise
        info = self._bare("hello", {"protocol": PROTOCOL}, self.start_seconds)
        if self._info not in (None, info):
            self._lost("hello", ProtocolError(f"another answer than before: {cut(str(info))}, and it was {cut(str(self._info))}"))
        self._info = info

    def _bare(self, call: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """A call of the protocol's own, which has to have a result."""
        outcome, what = self._request(call, arguments, "hello" if call == "hello" else "nothing", seconds)
        if outcome != "result":
            self._lost(call, ProtocolError(f"wanted a result, got {outcome}: {what}"))
        return what

    def _request(
        self, call: str, arguments: Mapping[str, Any], gives: str, seconds: float, whose: Mapping[str, int] | None = None
    ) -> tuple[str, Any]:
        self._last += 1
        line = write_line({"id": self._last, "call": call, **(whose or {}), "arguments": arguments})
        try:
            return self._exchange(line, gives, seconds)
        except (ValueError, RecursionError) as error:
            self._lost(call, ProtocolError(str(error)))
        except Interruption as end:
            self._lost(call, end)
        except BaseException as end:
            self._end(f"it was broken off by {type(end).__name__}")
            raise

    def _exchange(self, line: bytes, gives: str, seconds: float) -> tuple[str, Any]:
        assert self._line is not None  # it was opened
        self._recorder.said("request", line)
        came = self._line.exchange(line, seconds)
        self._recorder.said("reply", came)
        outcome, what = read_reply(came, self._last)
        return outcome, self._wire.decode(gives, what) if outcome == "result" else what

    def _lost(self, call: str, end: Interruption) -> NoReturn:
        """Ends the process, and says at which request."""
        self._recorder.end(end)
        words = str(end) if len(str(end)) <= _WORDS else f"{str(end)[:_WORDS]}..."
        self._end(f"{call}, request {self._last}: {words}")
        raise type(end)(self._why) from None

    def _end(self, why: str, patience: float = 0.0) -> None:
        line, self._line = self._line, None
        self._forget(why)
        if line is not None:
            line.end(patience)

    def _forget(self, why: str) -> None:
        self._remotes.clear()
        self._life, self._why = self._life + 1, why


class _Compiled(Calls):
    """What `compiled` gives: the same implementation, whose requests say which of its adapters is meant."""

    def __init__(self, client: Client, remote: Remote) -> None:
        self._client, self._remote = client, remote

    @property
    def info(self) -> ImplementationInfo:
        """As its maker's."""
        return self._client.info

    def ask(self, call: str, *arguments: Any) -> Any:
        """As `Client.ask`."""
        return self._client.ask(call, *arguments, adapter=self._remote)


def _raise(outcome: str, what: Any) -> NoReturn:
    if outcome == "unsupported":
        raise Unsupported(what)
    if outcome == "absent":
        raise NotImplementedError(what)
    raise type(what["type"].replace("\0", " "), (Exception,), {})(what["message"])
