"""The suite under pytest, in a fresh process and an empty folder."""

import os
import subprocess
import sys
from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ampscale_conformance import check, suite
from ampscale_conformance.adapters.loading import find
from ampscale_conformance.cases import every_case
from ampscale_conformance.cases.machine import CASES
from ampscale_conformance.model.case import CHAPTERS

SUITE = "ampscale_conformance.suite"
THIRD = "grows-in-the-third-step"


def entry(case, reason="x"):
    """Return an expected failure as TOML."""
    return f'[[expect]]\ncase = "{case}"\nverdict = "fail"\nreason = "{reason}"\n'


@pytest.fixture
def run(tmp_path):
    """Return a function that runs pytest in an empty folder, and returns its status and its output."""

    def run_pytest(*arguments):
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
        )
        return process.returncode, process.stdout + process.stderr

    return run_pytest


def run_machine(run, adapter, *arguments):
    """Run the machine cases on an adapter; return the status, the counts of the last line, and the output."""
    status, output = run("-q", "--pyargs", f"{SUITE}.test_machine", "--ampscale-adapter", f"strange:{adapter}", *arguments)
    tokens = output.strip().splitlines()[-1].replace(",", "").split()
    return status, {outcome: int(count) for count, outcome in pairwise(tokens) if count.isdigit()}, output


def test_each_chapter_has_its_module():
    """Every case of the suite is in exactly one module, and the id of its test is the id of the case."""
    files = os.listdir(suite.__path__[0])
    chapters = {name.removeprefix("test_").removesuffix(".py") for name in files if name.startswith("test_")}
    assert chapters == set(CHAPTERS)
    counts = Counter()
    for chapter in CHAPTERS:
        module = import_module(f"{SUITE}.test_{chapter}")
        [mark] = getattr(module, f"test_{chapter}").pytestmark
        counts.update(parameter.values[0].id for parameter in mark.args[1])
        assert [parameter.id for parameter in mark.args[1]] == [parameter.values[0].id for parameter in mark.args[1]]
    assert counts == Counter(case.id for case in every_case())


def test_a_conforming_adapter_passes(run, tmp_path):
    """
    Warnings are errors. Cases of unclaimed capabilities are skipped with the reason.

    Stale expectations are reported, and only they make the exit status 1.
    """
    unclaimed = next(case.id for case in CASES if case.needs)
    (tmp_path / "expect.toml").write_text(entry("gorws") + entry(unclaimed))
    status, counts, output = run_machine(run, "Conforming", "-rs", "-W", "error", "--ampscale-expect", "expect.toml")
    assert status == 1
    assert set(counts) == {"passed", "skipped"}
    assert sum(counts.values()) == len(CASES)
    assert "does not claim resume" in output
    assert "expect.toml, entry 1 (case = 'gorws') is stale: no case matches; remove it" in output
    assert f"(case = '{unclaimed}') is stale: all its cases are unsupported" in output


def test_the_package_collects_the_whole_suite(run):
    """All cases up to the level are collected. Test names end with the id of the case, and the header describes the adapter."""
    status, output = run("--pyargs", SUITE, *ADAPTER.split(), "--collect-only", "--ampscale-level", "L1")
    cases = [case for case in every_case() if case.level <= 1]
    assert status == 0
    assert [case.id for case in cases if f"[{case.id}]" not in output] == []
    assert "ampscale: Conforming: level 0, torch, numpy arrays" in output
    total = len(every_case())
    assert f"{len(cases)}/{total} tests collected ({total - len(cases)} deselected)" in output


def test_a_failure_has_the_clause_and_no_traceback(run, tmp_path):
    """The output has the expected and actual values. The XML has case, clause and verdict as properties."""
    status, counts, output = run_machine(run, "Late", "-k", THIRD, "--junit-xml", "a.xml")
    assert (status, counts["failed"]) == (1, 1)
    assert f"FAIL {THIRD}" in output
    assert "MACHINE-growth-window: " in output
    assert "Result: after step 2 (counted from 0): expected scale 2048.0, got" in output
    assert "plugin.py" not in output
    assert "Error" not in output
    (test_case,) = ElementTree.parse(tmp_path / "a.xml").iter("testcase")
    assert [property_.get("value") for property_ in test_case.iter("property")] == [THIRD, "MACHINE-growth-window", "fail"]


def test_expectations_are_strict(run, tmp_path):
    """An expected failure is an xfail with its reason, and an unexpected pass is a failure. A case that is not run is ignored."""
    passing = "backs-off-below-1"
    (tmp_path / "expect.toml").write_text("".join(entry(case, "a step late") for case in (THIRD, passing, "grows-by-4")))
    chosen = ("-k", f"{THIRD} or {passing}", "--ampscale-expect", "expect.toml", "-rx")
    status, counts, output = run_machine(run, "Late", *chosen)
    assert (status, counts) == (1, {"deselected": len(CASES) - 2, "failed": 1, "xfailed": 1})
    assert "a step late; fail: after step 2" in output
    assert f"XPASS {passing}" in output
    assert "passes, but expect.toml expects fail: a step late" in output
    assert "stale" not in output


def test_a_run_without_any_case_fails(run):
    """Unsupported cases prove nothing."""
    status, output = run("--pyargs", SUITE, "--ampscale-adapter", "strange:Conforming", "-k", "unscales-by-1001-and-a-half")
    assert (status, "no case was run" in output) == (1, True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_workers_share_the_cases(run, tmp_path):
    """With xdist, the counts are those of `check`, and stale expectations are reported."""
    counts = check(find("strange:Late"), cases=CASES).counts
    (tmp_path / "expect.toml").write_text(entry("gorws"))
    status, outcomes, output = run_machine(run, "Late", "-n", "2", "--ampscale-expect", "expect.toml")
    assert (status, outcomes) == (1, {"failed": counts["fail"], "passed": counts["pass"], "skipped": counts["unsupported"]})
    assert "expect.toml, entry 1 (case = 'gorws') is stale: no case matches; remove it" in output


MISSING = "an adapter is required: pytest --pyargs ampscale_conformance.suite --ampscale-adapter"
ADAPTER = "--ampscale-adapter strange:Conforming"


USAGE_ERRORS = {
    f"--pyargs {SUITE}": MISSING,
    os.path.join(suite.__path__[0], "test_machine.py"): MISSING,
    "--ampscale-level 0": MISSING,
    "test_all.py": MISSING,
    "--ampscale-adapter strange:WRONG": "strange:WRONG: module strange has no WRONG; it has ",
    f"{ADAPTER} --ampscale-level 7": 'level must be an int from 0 to 5, or "L0" to "L5", got 7',
    f"{ADAPTER} --ampscale-level top": """level must be an int from 0 to 5, or "L0" to "L5", got 'top'""",
    f"{ADAPTER} --ampscale-seconds long": "argument --ampscale-seconds: invalid float value: 'long'",
    f"{ADAPTER} --ampscale-seconds 0": "--ampscale-seconds must be positive and at most 100,000,000, got 0.0",
    f"{ADAPTER} --ampscale-suite=": "a version of the suite must be MAJOR.MINOR",
    f"{ADAPTER} --ampscale-expect absent.toml": "absent.toml",
}


@pytest.mark.parametrize("arguments", USAGE_ERRORS)
def test_wrong_usage_has_a_message_and_status_4(tmp_path, monkeypatch, capsys, arguments):
    """There is no traceback, even if another test module imports the suite."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "test_all.py").write_text(f"from {SUITE}.test_machine import *\n")
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments.split()])
    output = "".join(capsys.readouterr())
    assert (status, "Traceback" in output) == (4, False)
    assert USAGE_ERRORS[arguments] in output


def test_the_plugin_does_not_affect_other_projects(run, tmp_path):
    """Without an adapter, the plugin imports nothing, warns about nothing and prints nothing."""
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n\ndef test_it():\n"
        "    assert 'ampscale_conformance_pytest' in sys.modules\n"
        "    assert {'ampscale', 'numpy'}.isdisjoint(sys.modules)\n"
    )
    status, output = run("-W", "error")
    lines = [line for line in output.splitlines() if not line.startswith(("plugins: ", "rootdir: "))]
    assert status == 0
    assert "1 passed" in output
    assert "ampscale" not in "".join(lines)
    code = "import sys; before = set(sys.modules); import ampscale_conformance_pytest; print(*set(sys.modules) - before)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["ampscale_conformance_pytest"]
