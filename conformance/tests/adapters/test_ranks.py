"""`on_ranks`: a function runs in real processes, and an error, exit or delay of any of them is reported. No process remains."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from adapters.rank_functions import describe, fail_on_one
from ampscale_conformance import ImplementationInfo, Verdict, check, on_ranks
from ampscale_conformance.adapters import ranks
from ampscale_conformance.cases.replicas_ranks import CASES
from remote.commands import is_running


@pytest.fixture(autouse=True)
def _end_ranks():
    """End the ranks after each test."""
    yield
    ranks.end_ranks()


def test_results_are_in_the_order_of_the_ranks():
    results = on_ranks(describe, 2, "a", [1.5, None])
    assert [[rank, size, world, other_arguments] for rank, size, _, world, other_arguments in results] == [
        [0, 2, 2, ["a", [1.5, None]]],
        [1, 2, 2, ["a", [1.5, None]]],
    ]


def test_processes_are_reused_for_the_same_number_of_ranks():
    """A call with a different number of ranks ends the processes."""
    first, second = on_ranks(describe, 2), on_ranks(describe, 2)
    pids = [pid for _, _, pid, *_ in first]
    assert pids == [pid for _, _, pid, *_ in second]
    assert os.getpid() not in pids
    assert [rank for rank, *_ in on_ranks(describe, 3)] == [0, 1, 2]
    assert not any(map(is_running, pids))


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("raise", "^rank 1: ValueError: no such rank$"),
        ("exit", "^no result of rank 0, 1: a process ended; the last output: out of memory$"),
    ],
)
def test_an_error_names_the_rank_and_ends_all_processes(monkeypatch, way, message):
    """The other ranks, which wait, delay the error by a few seconds at most."""
    monkeypatch.setattr(ranks, "GRACE", 0.5)
    pids = [pid for _, _, pid, *_ in on_ranks(describe, 2)]
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=message):
        on_ranks(fail_on_one, 2, way)
    assert time.monotonic() - started < 10
    assert not any(map(is_running, pids))


class Hangs:
    info = ImplementationInfo(name="hangs", level=5, capabilities=("ranks",))

    def train_on_ranks(self, rule, placements, steps, optimizers):
        return on_ranks(fail_on_one, 2, "wait")


def test_a_hanging_rank_is_a_timeout_of_its_case(monkeypatch):
    """The ranks are ended. They are started before the case, so that the time limit does not include their start."""
    on_ranks(describe, 2)
    monkeypatch.setattr(ranks, "SECONDS", 1.0)
    (result,) = check(Hangs(), cases=CASES[:1]).results
    assert (result.verdict, result.message) == (Verdict.TIMEOUT, "no result of rank 0 within 1 s")


SCRIPT = """
import json, os, sys, time
from ampscale_conformance import on_ranks

def process_id(rank, size):
    return os.getpid()

if __name__ == "__main__":
    print(json.dumps(on_ranks(process_id, 2)), flush=True)
    time.sleep(60)
"""


def test_ranks_of_a_script_end_if_it_is_killed(tmp_path):
    """Each rank imports the script itself, whose name is `__main__` only in the first process."""
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # nobody deletes the files of a killed process
    command = [sys.executable, str(tmp_path / "script.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        pids = json.loads(process.stdout.readline())
        assert all(map(is_running, pids))
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))
