"""Tests of the run over all adapters: an adapter that cannot run has a row with the reason, and failures are reported."""

import json
import re
import sys

import pytest
from ampscale_conformance.adapters import SHIPPED
from ampscale_conformance.reports import matrix
from ampscale_conformance.reports.page import render
from matrix import run


def outcome(report):
    """Return the verdict and the message of the only result."""
    (result,) = report["results"]
    return result["verdict"], result["message"]


def test_every_adapter_runs_once():
    """The adapter for CuPy is left out if CuPy is not installed."""
    names = [*(name for names in run.ENVIRONMENTS.values() for name in names), *run.OWN]
    assert len(names) == len(set(names))
    assert {*names, "ampscale-cupy"} == set(SHIPPED)


def test_the_committed_matrix_has_no_absolute_path():
    """Errors of call orders name the files of adapters relative to the repository."""
    text = (run.REPOSITORY / "conformance" / "docs" / "matrix.json").read_text("utf-8")
    assert re.findall(r" at /\S+\.py", text) == []


@pytest.mark.slow
def test_an_adapter_that_cannot_run_has_a_row():
    """The reasons are: no environment, a missing adapter or package, a crash, a timeout."""
    assert outcome(run.row("jmp", sys.executable, "no space left")) == (
        "unsupported",
        "the environment of this adapter could not be created: no space left",
    )
    for name, reason in (("nowhere:ADAPTER", "no module nowhere"), ("deepspeed", "is not installed in this environment")):
        verdict, message = outcome(run.row(name, sys.executable))
        assert (verdict, reason in message) == ("unsupported", True), message
    assert outcome(run.row("jmp", "false")) == ("crash", "exit status 1")
    assert outcome(run.row("ampscale-numpy", sys.executable, seconds=0.01)) == ("timeout", "no report after 0.01 s")


@pytest.mark.slow
def test_a_row_without_cases_is_part_of_the_matrix():
    """The matrix contains the row, and the page contains its reason."""
    rows = [run.row("ampscale-mindspore-static", sys.executable), run.row("jmp", sys.executable, "no space left")]
    combined = matrix.of(rows)
    assert [column["info"]["name"] for column in combined.implementations] == ["ampscale StaticLossScaler", "jmp"]
    assert "no space left" in render.html_of(combined)
    assert json.loads(combined.to_json())["implementations"][0]["ok"]


@pytest.mark.parametrize(
    ("name", "ok", "reproduced", "failures"),
    [
        ("torch", False, True, 0),
        ("torch", False, False, 1),
        ("ampscale on numpy", True, None, 0),
        ("ampscale on numpy", False, None, 1),
    ],
)
def test_the_run_reports_failures_of_ampscale_and_of_snippets(name, ok, reproduced, failures):
    """A snippet fails if it does not reproduce the failure of a case. Other implementations may fail cases."""
    report = {"implementation": {"name": name}, "ok": ok, "results": [{"case": "one", "reproduced": reproduced}]}
    assert len(list(run.failures([report]))) == failures
