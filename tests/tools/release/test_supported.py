"""Tests of the run with the oldest and newest packages, and of its committed table."""

import json
import tomllib

import pytest
from release import supported, supported_page

RESULT = json.loads(supported.RESULT.read_text("utf-8"))


def test_the_committed_page_matches_the_result():
    """`python tools/release/supported_page.py` writes the page."""
    assert supported_page.PAGE.read_text("utf-8") == supported_page.page(RESULT)


def test_the_oldest_versions_are_those_of_the_requirements():
    """The runs with the oldest packages had the lower bounds of `pyproject.toml`, except that JAX requires a newer NumPy."""
    project = tomllib.loads((supported.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = supported.oldest(["numpy", "torch"])
    assert {f"numpy>={bounds['numpy']}", f"array-api-compat>={bounds['array-api-compat']}"} == set(project["dependencies"])
    assert project["optional-dependencies"]["torch"] == [f"torch>={bounds['torch']}"]
    for run in RESULT["runs"]:
        if run["packages"] == "oldest":
            bounds = supported.oldest(run["libraries"])
            tested = {"numpy", "array-api-compat", *run["libraries"]}
            assert {name: release(run["versions"][name]) for name in tested} == {name: release(bounds[name]) for name in tested}


def release(version):
    """Return a version as three numbers, without a local part such as "+cu124"."""
    numbers = [int(part) for part in version.partition("+")[0].split(".")]
    return (*numbers, 0, 0)[:3]


def test_no_recorded_run_failed():
    """Each run passed more than 3,000 tests, so it was complete."""
    assert [run["failures"] for run in RESULT["runs"] if run["failures"]] == []
    assert all(run["counts"]["passed"] > 3000 for run in RESULT["runs"])


OUTPUT = """FAILED tests/test_a.py::test_b[1-2] - AssertionError: assert 1 == 2
ERROR conformance/tests/test_c.py
1 failed, 20 passed, 3 skipped, 4 deselected, 1 error in 1.50s (0:00:01)
"""


def test_a_row_has_the_counts_and_the_failures():
    """The counts and the failures are read from the output of pytest."""
    row = supported.row("newest", ["numpy"], {"numpy": "2.4.6"}, OUTPUT)
    assert row["counts"] == {"failed": 1, "passed": 20, "skipped": 3, "error": 1}
    assert row["failures"] == ["tests/test_a.py::test_b[1-2]", "conformance/tests/test_c.py"]


@pytest.mark.parametrize(("python", "rows"), [("3.13.7", 1), ("3.14.0", 2), ("3.13.0t", 2)])
def test_a_result_replaces_that_of_the_same_environment(python, rows, tmp_path, monkeypatch):
    """The environment consists of the packages, the minor version of Python, its threading and the libraries."""
    monkeypatch.setattr(supported, "RESULT", tmp_path / "supported.json")
    row = supported.row("newest", ["numpy"], {}, OUTPUT) | {"python": "3.13.0"}
    for result in (row, row | {"python": python}):
        supported.record(result)
    runs = json.loads(supported.RESULT.read_text("utf-8"))["runs"]
    assert len(runs) == rows
    assert python in {run["python"] for run in runs}
