"""
Protocol messages: JSON objects, one per line, read strictly. codec.py defines their contents.

Any deviation from the protocol raises a ValueError with the expected and the actual value.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from ampscale.parsing import excerpt, parse_json

LONGEST = 2**22  # bytes of a line; the suite writes shorter lines, and a recording quotes a line in less than LONGEST_JSON bytes
OUTCOMES = ("result", "raised", "unsupported", "absent")


def write_line(message: Mapping[str, Any]) -> bytes:
    """Return one message as a line of ASCII."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def read_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line."""
    try:
        message = parse_json(line)
    except UnicodeEncodeError:  # unpaired surrogates, which `read_text` escapes; all else was checked before
        message = json.loads(line)
    except ValueError as error:
        raise ValueError(f"expected a JSON object, got {excerpt(line)}: {error}") from None
    return message if isinstance(message, dict) else reject("a JSON object", message)


def read_reply(line: bytes, number: int) -> tuple[str, Any]:
    """Return the outcome, one of `OUTCOMES`, and its value from the reply to the request with this number."""
    message = read_line(line)
    if type(message.get("id")) is not int or message["id"] != number:
        reject(f"a reply with the id {number}", message)
    outcomes = [name for name in message if name != "id"]
    if len(outcomes) != 1 or outcomes[0] not in OUTCOMES:
        reject(f"an id and one of {', '.join(OUTCOMES)}", message)
    outcome, value = outcomes[0], message[outcomes[0]]
    if outcome == "raised":
        if not isinstance(value, dict) or set(value) != {"type", "message"}:
            reject("the type and the message of an error", value)
        return outcome, {"type": read_text(value["type"]), "message": read_text(value["message"])}
    return outcome, value if outcome == "result" else read_text(value)


def read_text(message: Any) -> str:
    """Return a string with unpaired surrogates escaped, which JSON allows and UTF-8 does not."""
    if not isinstance(message, str):
        reject("a string", message)
    return message.encode("utf-8", "backslashreplace").decode()


def reject(expected: str, actual: Any) -> NoReturn:
    """Raise a ValueError with the expected and the actual value."""
    raise ValueError(f"expected {expected}, got {excerpt(actual)}")
