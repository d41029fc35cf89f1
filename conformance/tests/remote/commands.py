"""Commands that are put to the suite, and what came of them: the fakes, the examples, and implementations of one expression."""

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from ampscale_conformance.model.case import Case
from ampscale_conformance.oracle.machine import trajectory
from ampscale_conformance.remote.command_adapter import CommandAdapter
from remote.fakes import STRIKES

from ampscale.presets import torch

RULE = torch(init_scale=8.0, growth_interval=1)
SERVE = [sys.executable, "-m", "ampscale_conformance.remote.serve"]
PYTHON = [sys.executable, "-S"]
PLAIN = [*PYTHON, str(Path(__file__).parents[2] / "examples" / "plain_python.py")]

# Answers hello; its other requests are answered by the expression that follows, of `n`, the id, and `r`, the request.
SCRIPT = """
import json, os, sys, time
hello = {"protocol": 1, "implementation": {"name": "script", "level": 4}}
for line in sys.stdin:
    r = json.loads(line)
    n = r["id"]
    said = {"id": n, "result": hello} if r["call"] == "hello" else %s
    print(json.dumps(said), flush=True)
"""


def script(expression, seconds=20.0, **options):
    """An implementation of one expression."""
    return CommandAdapter([*PYTHON, "-c", SCRIPT % expression], seconds, **options)


def processes(adapter):
    """The one process of an adapter, if it runs."""
    return [str(line._popen.pid) for line in [adapter._transport] if line is not None]


FAKES = Path(__file__).parent / "fakes.py"
BOUND = 60.0  # seconds for a whole run
LIMIT = 1.0  # for an answer of what is late
LATE = ("slow drip", "deaf to SIGTERM", "a grandchild holds the pipes", "floods stderr for ever", "never answers hello")


def walk(interval):
    """A case of four finite steps, read after each."""

    def run(subject):
        rule = subject.rule(growth_interval=interval)
        handle = subject.create(rule)
        for point in trajectory(rule, [True] * 4)[1:]:
            handle = subject.update(handle, True)
            got = subject.read_scale(handle)
            subject.expect(got == point.scale, f"expected {point.scale}, got {got}")

    return Case(f"interval-{interval}", "MACHINE-growth-window", 0, "off by one: it grows early or late", run)


WALKS = [walk(2), walk(STRIKES), walk(3)]


@contextmanager
def fake(name, folder, **options):
    """The adapter of a fake, after which no process of it may run."""
    limits = {"seconds": LIMIT if name in LATE else BOUND, "start_seconds": LIMIT if name == "never answers hello" else BOUND}
    folder.mkdir()
    started = time.monotonic()
    with CommandAdapter([sys.executable, "-S", str(FAKES), name, str(folder)], **limits, **options) as made:
        yield made
    assert time.monotonic() - started < BOUND
    deadline = time.monotonic() + 5
    while (left := [file.name for file in folder.iterdir() if runs(file.name)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []


def runs(pid):
    """Whether a process runs, and is not merely unburied, where that can be seen."""
    try:
        if not Path("/proc/self").exists():
            return os.kill(int(pid), 0) is None
        return (Path("/proc") / pid / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def verdicts(report):
    """What came of each case."""
    return [result.verdict for result in report.results]


def told(report):
    """All that a report says of each case but its time."""
    return [(result.case, result.verdict, result.message, result.calls, result.trajectory) for result in report.results]
