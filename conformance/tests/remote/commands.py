"""Implementations under test: the faulty ones of `fakes.py`, the examples, programs of one expression, and served adapters."""

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from ampscale_conformance.model.case import Case
from ampscale_conformance.oracle.machine import trajectory
from ampscale_conformance.remote import client
from ampscale_conformance.remote.client import Client, CommandAdapter
from ampscale_conformance.remote.serve import Server
from ampscale_conformance.remote.transcript import Recorder
from remote.fakes import FAULTY_INTERVAL, LONG

from ampscale.presets import torch

RULE = torch(init_scale=8.0, growth_interval=1)
SERVE = [sys.executable, "-m", "ampscale_conformance.remote.serve"]
PYTHON = [sys.executable, "-S"]
PLAIN = [*PYTHON, str(Path(__file__).parents[2] / "examples" / "plain_python.py")]

# Program that replies to hello. The expression `%s` is its reply to other requests; `n` is the id, and `r` the request.
SCRIPT = """
import json, os, sys, time
hello = {"protocol": 1, "implementation": {"name": "script", "level": 4}}
for line in sys.stdin:
    r = json.loads(line)
    n = r["id"]
    reply = {"id": n, "result": hello} if r["call"] == "hello" else %s
    print(json.dumps(reply), flush=True)
"""


def script(expression, seconds=20.0, **options):
    """Return the adapter of an implementation that replies to all requests but hello with the value of *expression*."""
    return CommandAdapter([*PYTHON, "-c", SCRIPT % expression], seconds, **options)


class Connection:
    """Transport to a server in this process."""

    def __init__(self, adapter):
        self.server = Server(adapter)

    def exchange(self, line, _seconds):
        """Return the reply to a request."""
        return self.server.answer(line)

    def end(self, _grace=0.0):
        """Do nothing, as there is no process to end."""


def served(adapter, record=None):
    """Return a client of servers of an adapter; closing it and sending a further request starts another server."""
    return Client("x", lambda: Connection(adapter), 1, Recorder(record))


def process_id(adapter):
    """Return the id of the adapter's process; None if it has none."""
    return None if adapter._transport is None else adapter._transport._popen.pid


FAKES = Path(__file__).parent / "fakes.py"
LIMIT = 0.5  # seconds for a reply of a fake in LATE
LATE = ("slow drip", "ignores SIGTERM", "a grandchild holds the pipes", "floods stderr indefinitely", "never answers hello")


def growth_case(interval):
    """Return a case of four finite steps, with a read after each."""

    def run(subject):
        rule = subject.rule(growth_interval=interval)
        handle = subject.create(rule)
        for point in trajectory(rule, [True] * 4)[1:]:
            handle = subject.update(handle, True)
            actual = subject.read_scale(handle)
            subject.expect(actual == point.scale, f"expected {point.scale}, got {actual}")

    return Case(f"interval-{interval}", "MACHINE-growth-window", 0, "off by one: it grows early or late", run)


CASES = [growth_case(2), growth_case(FAULTY_INTERVAL), growth_case(3)]


@contextmanager
def fake(name, folder, **options):
    """Yield the adapter of a fake; check afterwards that the run did not wait for it, and that none of its processes runs."""
    folder.mkdir()
    started = time.monotonic()
    command, seconds = [sys.executable, "-S", str(FAKES), name, str(folder)], LIMIT if name in LATE else LONG
    start_seconds = LIMIT if name == "never answers hello" else LONG
    with mock.patch.object(client, "START_SECONDS", start_seconds), CommandAdapter(command, seconds, **options) as adapter:
        yield adapter
    assert time.monotonic() - started < LONG  # a fake that does not reply sleeps for LONG seconds
    deadline = time.monotonic() + 5
    while (running := [file.name for file in folder.iterdir() if is_running(file.name)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running == []


def is_running(pid):
    """Return True if a process runs. On systems that have /proc, a zombie does not count as running."""
    try:
        if not Path("/proc/self").exists():
            os.kill(int(pid), 0)
            return True
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def verdicts(report):
    """Return the verdict of each result."""
    return [result.verdict for result in report.results]


def without_times(report):
    """Return the case, verdict, message, calls and trajectory of each result."""
    return [(result.case, result.verdict, result.message, result.calls, result.trajectory) for result in report.results]
