"""The run over every adapter: what cannot be had is a row, and what goes wrong is told."""

import json
import sys

import pytest
from ampscale_conformance.adapters import SHIPPED
from ampscale_conformance.reports import matrix
from ampscale_conformance.reports.page import render
from matrix import run


def said(report):
    (result,) = report["results"]
    return result["verdict"], result["message"]


def test_every_adapter_is_asked_once():
    """Those of ampscale too; cupy's where cupy is."""
    names = [*(name for names in run.ENVIRONMENTS.values() for name in names), *run.OWN]
    assert sorted([*names, "ampscale-cupy"]) == sorted({*SHIPPED, "ampscale-cupy"})


def test_what_cannot_be_had_is_a_row():
    """Its environment's trouble, a process that ends, one that is late, a package that is not there."""
    assert said(run.row("jmp", sys.executable, "no space left")) == (
        "unsupported",
        "its environment could not be made: no space left",
    )
    verdict, message = said(run.row("nowhere:ADAPTER", sys.executable))
    assert verdict == "crash"
    assert "there is no module nowhere" in message
    assert said(run.row("ampscale-numpy", sys.executable, seconds=0.01)) == ("timeout", "not done after 0.01 s")
    assert said(run.row("deepspeed", sys.executable)) == ("unsupported", "it is not installed in its environment")


def test_a_row_without_cases_stands_beside_the_others():
    """In the matrix, and on its page."""
    rows = [run.row("ampscale-mindspore-static", sys.executable), run.row("jmp", sys.executable, "no space left")]
    made = matrix.of(rows)
    assert [column["info"]["name"] for column in made.implementations] == ["ampscale StaticLossScaler", "jmp"]
    assert "no space left" in render.html_of(made)
    assert json.loads(made.to_json())["implementations"][0]["ok"]


@pytest.mark.parametrize(
    ("name", "ok", "reproduced", "lines"),
    [
        ("torch", False, True, 0),
        ("torch", False, False, 1),
        ("ampscale on numpy", True, None, 0),
        ("ampscale on numpy", False, None, 1),
    ],
)
def test_what_makes_the_run_fail(name, ok, reproduced, lines):
    """Our own failures, and a snippet that does not show what it is there for."""
    report = {"implementation": {"name": name}, "ok": ok, "results": [{"case": "one", "reproduced": reproduced}]}
    assert len(list(run.failures([report]))) == lines
