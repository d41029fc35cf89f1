"""Tests of conformance/upstream: scripts print what the reports show, and expected failures are cases of the suite."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from ampscale_conformance.cases import every_case
from ampscale_conformance.run.expectations import TODO, read

UPSTREAM = Path(__file__).parents[1] / "upstream"
REPORTS = sorted(UPSTREAM.glob("*/*.md"))
EXPECT_FILES = sorted(UPSTREAM.glob("*/expect*.toml"))
CLAUSE_OF_CASE = {case.id: case.clause for case in every_case()}


def name_of(path):
    """Return the path of a file, relative to `UPSTREAM`."""
    return str(path.relative_to(UPSTREAM))


@pytest.mark.parametrize("report", REPORTS, ids=name_of)
def test_report_contains_its_script(report):
    assert f"```python\n{report.with_suffix('.py').read_text('utf-8')}```" in report.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("report", REPORTS, ids=name_of)
def test_script_prints_the_output_in_the_report(report, tmp_path):
    project = report.parent.name
    if find_spec(project) is None:
        pytest.skip(f"capability {project}: not installed in this environment")
    command = [sys.executable, "-W", "ignore", str(report.with_suffix(".py"))]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else None
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, cwd=tmp_path, env=environment)
    assert f"Output:\n\n```\n{process.stdout}```" in report.read_text("utf-8")


def test_readme_lists_every_report_and_expectations_file():
    readme = (UPSTREAM / "README.md").read_text("utf-8")
    assert [path for path in [*REPORTS, *EXPECT_FILES] if f"({name_of(path)})" not in readme] == []


def test_every_script_has_a_report():
    assert {path.with_suffix(".md") for path in UPSTREAM.glob("*/*.py")} == set(REPORTS)


@pytest.mark.parametrize("file", EXPECT_FILES, ids=name_of)
def test_every_expected_failure_has_a_reason_and_matches_a_case(file):
    for entry in read(file).entries:
        assert not entry.reason.startswith(TODO)
        assert any(entry.matches(case, clause) for case, clause in CLAUSE_OF_CASE.items()), str(entry)


@pytest.mark.parametrize("file", EXPECT_FILES, ids=name_of)
def test_reasons_name_reports_that_exist(file):
    for entry in read(file).entries:
        names = entry.reason.rpartition(": ")[2].split(", ")
        assert all((file.parent / name).resolve() in REPORTS for name in names), str(entry)
