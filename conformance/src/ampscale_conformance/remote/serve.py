"""
Any Python adapter over the protocol: `python -m ampscale_conformance.remote.serve pkg.mod:ADAPTER`. spec/conformance/protocol.md.

What the adapter itself prints goes to stderr, and what it would read is empty: stdin and stdout are the protocol's alone.
"""

import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any, BinaryIO

from ..adapters.loading import NotFound, find
from ..model.adapter import Adapter, Unsupported
from ..model.methods import METHODS
from .codec import PROTOCOL, Wire, hello_to_json, number_of
from .jsonl import LONGEST, cut, read_line, refuse, shown, write_line
from .saved import saved_from_json, saved_to_json

_TOKEN = "token"  # what a saved state that is not data is known by, in this process until it is reset
_IN_PLACE = {"update": 0, "scale": 1, "unscale": 1}  # whose result None means this argument


class Server:
    """Answers requests to one adapter."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.ended = False
        self._things: dict[tuple[str, int], Any] = {}
        self._numbers: dict[tuple[str, int], int] = {}  # by kind and identity, which is kept as the thing is
        self._wire = Wire(adapter.info.arrays, self)

    def answer(self, line: bytes) -> bytes:
        """
        The reply to a request.

        Raises:
            ValueError: It is no request, so that there is no id to reply to.
        """
        request = read_line(line)
        if type(request.get("id")) is not int:
            refuse("a request with an integer as its id", request)
        return write_line({"id": request["id"], **self._outcome(request)})

    def number(self, kind: str, thing: Any) -> int:
        """The number of a thing; the same while it is the same, as for one that is changed in place."""
        number = self._numbers.setdefault((kind, id(thing)), len(self._things))
        self._things[kind, number] = thing
        return number

    def thing(self, kind: str, number: int) -> Any:
        """What was given this number."""
        if (kind, number) not in self._things:
            raise ValueError(f"there is no {kind} {number}")
        return self._things[kind, number]

    def _outcome(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"result": self._result(request)}
        except Unsupported as reason:
            return {"unsupported": str(reason)}
        except NotImplementedError as reason:
            return {"absent": str(reason)}
        except Exception as error:  # noqa: BLE001 - whatever the adapter raises is an answer
            return {"raised": {"type": type(error).__name__, "message": str(error)}}

    def _result(self, request: dict[str, Any]) -> Any:
        unknown = sorted(set(request) - {"id", "call", "adapter", "arguments"})
        if unknown or not isinstance(request.get("arguments"), dict):
            refuse("a request of id, call and arguments, or adapter besides", request)
        call, arguments = request.get("call"), request["arguments"]
        if call == "hello":
            return self._hello(arguments)
        if call in ("reset", "bye"):
            self.ended = call == "bye"
            self._things.clear()
            self._numbers.clear()
            return None
        if call not in METHODS:
            raise NotImplementedError(f"there is no call {shown(call)}")
        adapter = self._taken("adapter", request["adapter"]) if "adapter" in request else self.adapter
        return self._called(adapter, str(call), arguments)

    def _hello(self, arguments: dict[str, Any]) -> Any:
        if arguments.get("protocol") != PROTOCOL:
            raise Unsupported(f"this speaks protocol {PROTOCOL}, not {shown(arguments.get('protocol'))}")
        return hello_to_json(self.adapter.info)

    def _called(self, adapter: Any, call: str, said: dict[str, Any]) -> Any:
        takes, gives, _ = METHODS[call]
        if set(said) != set(takes):
            raise ValueError(f"{call} takes {', '.join(takes) or 'nothing'}, got {cut(', '.join(said)) or 'nothing'}")
        method = getattr(adapter, call, None)
        if not callable(method):
            raise NotImplementedError(f"the adapter has no method {call}")
        given = [self._taken(kind, said[kind]) for kind in takes]
        options = given.pop(takes.index("options")) if "options" in takes else {}
        result = method(*given, **options)
        if result is None and call in _IN_PLACE:
            result = given[_IN_PLACE[call]]
        return self._given(gives, result)

    def _taken(self, kind: str, said: Any) -> Any:
        if kind != "saved":
            return self._wire.decode(kind, said)
        if isinstance(said, dict) and set(said) == {_TOKEN}:
            return self.thing("saved", number_of(said[_TOKEN], "saved"))
        return saved_from_json(said, self._wire.library)

    def _given(self, kind: str, value: Any) -> Any:
        if kind != "saved":
            return self._wire.encode(kind, value)
        try:
            return saved_to_json(value)
        except TypeError:  # not data: the object stays here
            return {_TOKEN: self.number("saved", value)}


def serve(server: Server, requests: Iterable[bytes], replies: BinaryIO) -> None:
    """Answers until bye or the end of the requests."""
    for line in requests:
        replies.write(server.answer(line))
        replies.flush()
        if server.ended:
            return


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for this module alone; for all others nothing to read, and stderr to print to."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, replies


def main(arguments: list[str]) -> int:
    """Serves the adapter that is named; the exit status."""
    if len(arguments) != 1:
        print("usage: python -m ampscale_conformance.remote.serve pkg.mod:ADAPTER", file=sys.stderr)  # noqa: T201 - it is a command
        return 2
    requests, replies = _own_streams()
    try:
        lines = iter(partial(requests.readline, LONGEST + 1), b"")  # a longer line is refused by its beginning
        serve(Server(find(arguments[0])), lines, replies)
    except (NotFound, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - it is a command
        return 2
    except BrokenPipeError:  # nobody listens any more
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
