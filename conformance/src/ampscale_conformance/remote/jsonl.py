"""
The protocol's lines: JSON objects, read strictly. What is in them, call by call, is codec.py's.

Whatever is not exactly as the protocol says is a ValueError with what was wanted and what came; nothing is guessed.
"""

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, NoReturn

from ampscale.parsing import parse_json

LONGEST = 2**22  # bytes of a line, which a recording quotes in less than LONGEST_JSON; the suite's own are far below it
OUTCOMES = ("result", "raised", "unsupported", "absent")
_SHOWN = 100  # characters of what came, in a message


def write_line(message: Mapping[str, Any]) -> bytes:
    """One message, as a line of ASCII."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def read_line(line: bytes) -> dict[str, Any]:
    """The object that a line is."""
    try:
        said = parse_json(line)
    except UnicodeEncodeError:  # half characters, which `text` spells out; everything else has been checked
        said = json.loads(line)
    except ValueError as error:
        raise ValueError(f"wanted a JSON object, got {shown(line)}: {error}") from None
    return said if isinstance(said, dict) else refuse("a JSON object", said)


def read_reply(line: bytes, number: int) -> tuple[str, Any]:
    """One of `OUTCOMES` and what it says: the reply to the request of this number."""
    said = read_line(line)
    if type(said.get("id")) is not int or said["id"] != number:
        refuse(f"a reply with the id {number}", said)
    found = [name for name in said if name != "id"]
    if len(found) != 1 or found[0] not in OUTCOMES:
        refuse(f"an id and one of {', '.join(OUTCOMES)}", said)
    outcome, what = found[0], said[found[0]]
    if outcome == "raised":
        if not isinstance(what, dict) or set(what) != {"type", "message"}:
            refuse("the type and the message of what was raised", what)
        return outcome, {"type": text(what["type"]), "message": text(what["message"])}
    return outcome, what if outcome == "result" else text(what)


def text(said: Any) -> str:
    """A string, without the half characters that JSON allows and no file can hold."""
    if not isinstance(said, str):
        refuse("a string", said)
    return str(said.encode("utf-8", "backslashreplace").decode())


def shown(said: Any) -> str:
    """Return *said* on one line, cut to the length of a message; the rest is not formatted."""
    if isinstance(said, bytes):
        return cut(repr(said[: _SHOWN + 1].decode("utf-8", "backslashreplace")))
    return cut("".join(islice(json.JSONEncoder().iterencode(said), _SHOWN + 1)))


def cut(words: str) -> str:
    """The beginning of a text, where a message bears no more."""
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}..."


def refuse(wanted: str, came: Any) -> NoReturn:
    """A ValueError with what was wanted and what came."""
    raise ValueError(f"wanted {wanted}, got {shown(came)}")
