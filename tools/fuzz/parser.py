"""Description of a parser for the fuzz run."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

_TEMPORARY = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # removed at exit


class Parser(NamedTuple):
    """Parser, with the function that generates its inputs and the errors that it documents."""

    share: float  # fraction of all inputs
    generate: Callable[[Random], Any]
    parse: Callable[[Any], object]
    errors: tuple[type[Exception], ...] = (ValueError,)


def parse_file(suffix: str, parse: Callable[[Path], object], content: str | bytes) -> object:
    """Write *content* to a temporary file whose name ends in *suffix*, and parse it."""
    path = Path(_TEMPORARY.name, f"{os.getpid()}{suffix}")
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return parse(path)
