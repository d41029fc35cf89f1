"""Another process: it is given an adapter, a rule and what was saved, goes on from there, and tells the scale after each step."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ..model.adapter import Adapter, Unsupported
from ..model.subject import Failed, TimedOut

_CHILD = """
import os, pickle, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the implementation prints is no answer
adapter, rest = pickle.load(sys.stdin.buffer)
try:
    adapter = pickle.loads(adapter)
except Exception as error:
    sys.exit(f"{NOT_FOUND}{error}")
rule, saved, flags = pickle.loads(rest)
handle = adapter.load(rule, saved)
for finite in flags:
    after = adapter.update(handle, finite)
    handle = handle if after is None else after
    print(float(adapter.read_scale(handle)).hex(), file=answers, flush=True)
"""
NOT_FOUND = "the adapter is not there: "


def scales_elsewhere(adapter: Adapter, rule: Any, saved: Any, flags: Sequence[bool], seconds: float = 60.0) -> list[float]:
    """
    The scales after each step.

    Raises:
        Failed: What was saved cannot be sent there, or nothing comes of it.
        TimedOut: No end in time.
        Unsupported: The adapter itself cannot be sent there.
    """
    pickled = _pickled(adapter, "the adapter", Unsupported), _pickled((rule, saved, list(flags)), "what was saved", Failed)
    sent = pickle.dumps(pickled)
    paths = [path or os.getcwd() for path in sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", f"NOT_FOUND = {NOT_FOUND!r}{_CHILD}"]
    try:
        ended = subprocess.run(command, input=sent, capture_output=True, env=environment, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise TimedOut(f"the other process did not end within {seconds:g} s") from None
    said = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if said.startswith(NOT_FOUND):
        raise Unsupported(f"another process does not find the adapter: {said.removeprefix(NOT_FOUND)}")
    if ended.returncode:
        raise Failed(f"the other process ended with {ended.returncode}: {said}")
    return [float.fromhex(line) for line in ended.stdout.decode("utf-8").split()]


def _pickled(value: Any, what: str, refusal: type[Exception]) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - whatever stops it, it does not come to the other process
        raise refusal(f"{what} cannot be sent to another process: {error}") from None
