"""
Protocol server for any Python adapter: `python -m ampscale_conformance.remote.serve pkg.mod:ADAPTER`.

stdin and stdout are reserved for the protocol of spec/conformance/protocol.md. What the adapter prints goes to stderr, and its
standard input is empty.
"""

import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any, BinaryIO

from ampscale.parsing import cut, excerpt

from ..adapters.loading import NotFound, find
from ..model.adapter import METHODS, Adapter, Unsupported
from ..model.subject import message_of
from .codec import LONGEST, PROTOCOL, Codec, hello_to_json, read_line, read_number, reject, write_line
from .saved import saved_from_json, saved_to_json

_TOKEN = "token"  # key of the number of a saved state that is not data; the state stays in this process until reset
_LONGEST_MESSAGE = 2**16  # characters of an error; even as escapes, they are shorter than the longest line
_IN_PLACE = {"update": 0, "scale": 1, "unscale": 1}  # index of the argument that replaces a result of None


class Server:
    """Server of one adapter: replies to requests. It is the `ObjectTable` of its codec."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.ended = False
        self._objects: dict[tuple[str, int], Any] = {}  # keeps references, so that an id is not reused
        self._numbers: dict[tuple[str, int], int] = {}  # by kind and id
        self._codec = Codec(adapter.info.arrays, self)

    def answer(self, line: bytes) -> bytes:
        """Return the reply to a request; raise a ValueError if the line has no id to reply to."""
        request = read_line(line)
        if type(request.get("id")) is not int:
            reject("a request with an integer as its id", request)
        return write_line({"id": request["id"], **self._outcome(request)})

    def number(self, kind: str, value: Any) -> int:
        """Return the number of an object. An object that is changed in place keeps its number."""
        number = self._numbers.setdefault((kind, id(value)), len(self._objects))
        self._objects[kind, number] = value
        return number

    def lookup(self, kind: str, number: int) -> Any:
        """Return the object with this number; raise a ValueError if there is none."""
        if (kind, number) not in self._objects:
            raise ValueError(f"there is no {kind} {number}")
        return self._objects[kind, number]

    def _outcome(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"result": self._result(request)}
        except Exception as error:  # noqa: BLE001 - any error of the adapter is a reply
            message = message_of(error)[:_LONGEST_MESSAGE]
            if isinstance(error, Unsupported):
                return {"unsupported": message}
            if isinstance(error, NotImplementedError):
                return {"absent": message}
            return {"raised": {"type": type(error).__name__, "message": message}}

    def _result(self, request: dict[str, Any]) -> Any:
        if set(request) - {"id", "call", "adapter", "arguments"} or not isinstance(request.get("arguments"), dict):
            reject("a request with id, call, an object of arguments, and optionally adapter", request)
        call, arguments = request.get("call"), request["arguments"]
        if call == "hello":
            if arguments.get("protocol") != PROTOCOL:
                raise Unsupported(f"this server supports protocol {PROTOCOL}, got {excerpt(arguments.get('protocol'))}")
            return hello_to_json(self.adapter.info)
        if call in ("reset", "bye"):
            self.ended = call == "bye"
            self._objects.clear()
            self._numbers.clear()
            return None
        if call not in METHODS:
            raise NotImplementedError(f"there is no call {excerpt(call)}")
        adapter = self._decode("adapter", request["adapter"]) if "adapter" in request else self.adapter
        return self._call(adapter, str(call), arguments)

    def _call(self, adapter: Any, call: str, arguments: dict[str, Any]) -> Any:
        takes, gives, _ = METHODS[call]
        if set(arguments) != set(takes):
            raise ValueError(f"{call} takes {', '.join(takes) or 'nothing'}, got {cut(', '.join(arguments)) or 'nothing'}")
        method = getattr(adapter, call, None)
        if not callable(method):
            raise NotImplementedError(f"the adapter has no method {call}")
        values = [self._decode(kind, arguments[kind]) for kind in takes]
        options = values.pop(takes.index("options")) if "options" in takes else {}
        result = method(*values, **options)
        if result is None and call in _IN_PLACE:
            result = values[_IN_PLACE[call]]
        return self._encode(gives, result)

    def _decode(self, kind: str, encoded: Any) -> Any:
        if kind != "saved":
            return self._codec.decode(kind, encoded)
        if isinstance(encoded, dict) and set(encoded) == {_TOKEN}:
            return self.lookup("saved", read_number(encoded[_TOKEN], "saved"))
        return saved_from_json(encoded, self._codec.library)

    def _encode(self, kind: str, value: Any) -> Any:
        if kind != "saved":
            return self._codec.encode(kind, value)
        try:
            return saved_to_json(value)
        except TypeError:  # not data, so the object stays in this process
            return {_TOKEN: self.number("saved", value)}


def serve(server: Server, requests: Iterable[bytes], replies: BinaryIO) -> None:
    """Reply to requests until bye or the end of the input."""
    for line in requests:
        replies.write(server.answer(line))
        replies.flush()
        if server.ended:
            return


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return the protocol's streams; redirect stdin to the null device and stdout to stderr for all other code."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, replies


def main(arguments: list[str]) -> int:
    """Serve the named adapter and return the exit status."""
    if len(arguments) != 1:
        print("usage: python -m ampscale_conformance.remote.serve pkg.mod:ADAPTER", file=sys.stderr)  # noqa: T201 - it is a command
        return 2
    requests, replies = _own_streams()
    try:
        lines = iter(partial(requests.readline, LONGEST + 1), b"")  # a longer line is truncated, and so rejected
        serve(Server(find(arguments[0])), lines, replies)
    except (NotFound, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - it is a command
        return 2
    except BrokenPipeError:  # the client is gone
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
