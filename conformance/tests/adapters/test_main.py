"""`python -m ampscale_conformance`: JSON and nothing else, and a status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"
LOUD = """
import os

from ampscale_conformance import ImplementationInfo


class Loud:
    info = ImplementationInfo(name="loud", preset="static")

    def create(self, rule):
        print("made")
        os.write(1, b"made\\n")
        return [rule.init_scale]

    def update(self, handle, finite):
        handle[0] += 0 if finite else {error}

    def read_scale(self, handle):
        return handle[0]
"""


def main(folder, *words):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "ampscale_conformance", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.fixture
def loud(tmp_path):
    """A folder with an adapter that prints, and is right or wrong."""

    def written(error):
        (tmp_path / "loud.py").write_text(LOUD.format(error=error))
        return tmp_path

    return written


def test_it_prints_the_report_and_nothing_else(loud):
    """What the implementation prints, in Python or below, goes to the standard error."""
    done = main(loud(0), "loud:Loud", "--level", "0")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["implementation"]["name"] == "loud"
    assert report["ok"]
    assert {result["level"] for result in report["results"]} == {0}
    assert "made" in done.stderr


def test_a_failure_is_a_status_and_has_a_snippet(loud):
    """1, and a script for each."""
    done = main(loud(1), "loud:Loud")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    failed = [result for result in report["results"] if result["verdict"] == "fail"]
    assert failed
    assert all("class Loud" in result["snippet"] for result in failed)
    assert {result["level"] for result in report["results"]} > {0}


@pytest.mark.parametrize("words", [["loud:Quiet"], ["nowhere:Loud"], ["loud:Loud", "--level", "5"], []])
def test_what_is_not_there_is_told(loud, words):
    """2, with a line that says so, and nothing on the standard output."""
    done = main(loud(0), *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: python -m ampscale_conformance" in done.stderr
