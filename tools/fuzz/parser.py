"""Parsers as the fuzz run takes them."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

_TEMPORARY = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # removed at exit


class Parser(NamedTuple):
    """A parser, and how its inputs are made."""

    share: float  # of all inputs
    draw: Callable[[Random], Any]
    parse: Callable[[Any], object]
    errors: tuple[type[Exception], ...] = (ValueError,)  # what it documents


def filed(name: str, parse: Callable[[Path], object], content: str | bytes) -> object:
    """Parse a file of this process that ends in *name*."""
    path = Path(_TEMPORARY.name, f"{os.getpid()}{name}")
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return parse(path)
