"""Tests of the fuzz run."""

import json
import re
from types import SimpleNamespace

import pytest
from ampscale_conformance import ImplementationInfo
from ampscale_conformance.remote.serve import Server

pytest.importorskip("torch", reason="needs torch")

from fuzz import run, suite
from fuzz.parser import Parser


def raise_error(message):
    raise ValueError(message)


FAULTS = {  # a faulty parser for each kind of failure, by a pattern of the report
    "RecursionError": json.loads,
    "ZeroDivisionError: division by zero": lambda _: 1 / 0,
    r"\d\.\d\d s\n": lambda _: sum(range(30_000_000)),
    "a message of 100000 characters": raise_error,
    "a message that is not a single line": lambda _: raise_error("two\nlines"),
}


def test_mutated_inputs_are_parsed_or_rejected():
    """Each parser accepts some of its inputs and rejects others, without a failure."""
    results = [run.run_chunk(chunk) for chunk in run.chunks(4000, 0)]
    assert [failure for _, _, failures in results for failure in failures] == []
    assert {name for name, _, _ in results} == set(run.PARSERS)
    assert [name for name, counts, _ in results if not 0 < counts.get("results", 0) < counts["inputs"]] == []


def test_the_request_that_is_mutated_is_valid():
    """A server reads its arguments, and replies with the number of a handle."""
    adapter = SimpleNamespace(info=ImplementationInfo(name="any"), create=lambda rule, **_: rule)
    assert Server(adapter).answer(suite.REQUEST.encode()) == b'{"id":3,"result":0}\n'


@pytest.mark.parametrize("message", FAULTS)
def test_failure_is_reported_with_its_input(monkeypatch, message):
    """Failures are undocumented errors, slow calls, and messages that are too long or have several lines."""
    monkeypatch.setitem(run.PARSERS, "faulty", Parser(1.0, lambda _: "[" * 100_000, FAULTS[message]))
    _, _, failures = run.run_chunk(("faulty", 1, "0"))
    assert len(failures) == 1
    assert re.search(f"^faulty, input 0 of 0: .*{message}", failures[0])
    assert "'[[[" in failures[0]
