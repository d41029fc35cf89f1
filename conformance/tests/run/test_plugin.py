"""The suite under pytest, in a fresh process and an empty folder, as somebody has it who has installed the suite."""

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
MODULE = """
from mutants.plain import Plain


class Right(Plain):
    def __init__(self):
        super().__init__("torch", 0, ())

    def create(self, rule):
        import warnings
        warnings.warn("overflow encountered")
        return super().create(rule)


class Late(Right):
    def window(self, handle):
        return super().window(handle) + 1


RIGHT, LATE = Right(), Late()
"""
THIRD = "grows-in-the-third-step"


def entry(case, reason="x"):
    return f'[[expect]]\ncase = "{case}"\nverdict = "fail"\nreason = "{reason}"\n'


@pytest.fixture
def here(tmp_path):
    """A folder with nothing but an adapter."""
    (tmp_path / "strange.py").write_text(MODULE)
    return tmp_path


@pytest.fixture
def run(here):
    """Runs pytest there; returns its status and its output."""

    def ran(*arguments):
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=here,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return ran


def put(run, adapter, *arguments):
    """Puts the machine's cases to an adapter of the module: the status, and the counts of the last line."""
    status, output = run("-q", "--pyargs", f"{SUITE}.test_machine", "--ampscale-adapter", f"strange:{adapter}", *arguments)
    words = output.strip().splitlines()[-1].replace(",", "").split()
    return status, {kind: int(count) for count, kind in pairwise(words) if count.isdigit()}, output


def test_a_chapter_has_its_file():
    """Every case of the suite is in one of them, once, under the name of its chapter's module."""
    named = {name.removeprefix("test_").removesuffix(".py") for name in os.listdir(suite.__path__[0]) if name.startswith("test_")}
    assert named == set(CHAPTERS)
    found = Counter()
    for chapter in CHAPTERS:
        module = import_module(f"{SUITE}.test_{chapter}")
        [mark] = getattr(module, f"test_{chapter}").pytestmark
        found.update(parameter.values[0].id for parameter in mark.args[1])
        assert [parameter.id for parameter in mark.args[1]] == [parameter.values[0].id for parameter in mark.args[1]]
    assert found == Counter(case.id for case in every_case())


def test_a_right_one_passes(run, here):
    """Also where warnings are errors; what it does not claim is skipped with the reason, and a stale expectation is told."""
    first, second = [case.id for case in CASES if case.needs][:2]
    (here / "expect.toml").write_text(entry(second))
    assert put(run, "RIGHT", "-k", first, "--ampscale-expect", "expect.toml")[0] == 0  # the second was not asked
    (here / "expect.toml").write_text(entry("gorws") + entry(second))
    status, counts, output = put(run, "RIGHT", "-rs", "-W", "error", "--ampscale-expect", "expect.toml")
    assert status == 1
    assert set(counts) == {"passed", "skipped"}
    assert sum(counts.values()) == len(CASES)
    assert "does not claim resume" in output
    assert "expect.toml, entry 1 (case = 'gorws') is stale: no case matches; remove it" in output
    assert f"(case = '{second}') is stale: all its cases are unsupported" in output


def test_the_whole_suite_is_found_by_its_package(run):
    """All chapters up to the level; a test's name ends in its case's id, and the header says what is tested."""
    status, output = run("--pyargs", SUITE, "--ampscale-adapter", "strange:RIGHT", "--collect-only", "--ampscale-level", "L1")
    asked = [case for case in every_case() if case.level <= 1]
    assert status == 0
    assert [case.id for case in asked if f"[{case.id}]" not in output] == []
    assert "ampscale: Right: level 0, torch, numpy arrays" in output
    total = len(every_case())
    assert f"{len(asked)}/{total} tests collected ({total - len(asked)} deselected)" in output


def test_a_failure_has_the_clause_and_no_traceback(run, here):
    """What was wanted and came, the clause and its sentence, and no line of the suite's own; also as properties in XML."""
    status, counts, output = put(run, "LATE", "-k", THIRD, "--junit-xml", "a.xml")
    assert (status, counts["failed"]) == (1, 1)
    assert f"FAIL {THIRD}" in output
    assert "MACHINE-growth-window: " in output
    assert "Result: after step 3: expected scale 2048.0 (MACHINE-growth-window), got" in output
    assert "plugin.py" not in output
    assert "Error" not in output
    (found,) = ElementTree.parse(here / "a.xml").iter("testcase")
    assert [each.get("value") for each in found.iter("property")] == [THIRD, "MACHINE-growth-window", "fail"]


def test_expectations_are_strict(run, here):
    """An expected failure is an xfail with its reason, an unexpected pass a failure."""
    (here / "expect.toml").write_text(entry(THIRD, "a step late"))
    chosen = ("-k", THIRD, "--ampscale-expect", "expect.toml", "-rx")
    status, counts, output = put(run, "LATE", *chosen)
    assert (status, counts) == (0, {"deselected": len(CASES) - 1, "xfailed": 1})
    assert "a step late; fail: after step 3" in output
    status, counts, output = put(run, "RIGHT", *chosen)
    assert (status, counts["failed"]) == (1, 1)
    assert f"XPASS {THIRD}" in output
    assert "passes, but expect.toml expects fail: a step late" in output


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_workers_share_the_cases(run, here, monkeypatch):
    """With xdist it is the same run as `check`'s, and stale expectations are told."""
    monkeypatch.syspath_prepend(here)
    counts = check(find("strange:LATE", here), cases=CASES).counts
    (here / "expect.toml").write_text(entry("gorws"))
    status, found, output = put(run, "LATE", "-n", "2", "--ampscale-expect", "expect.toml")
    assert (status, found) == (1, {"failed": counts["fail"], "passed": counts["pass"], "skipped": counts["unsupported"]})
    assert "expect.toml, entry 1 (case = 'gorws') is stale: no case matches; remove it" in output


MISSING = "an adapter is required: pytest --pyargs ampscale_conformance.suite --ampscale-adapter"
RIGHT = ["--ampscale-adapter", "strange:RIGHT"]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--pyargs", SUITE], MISSING),
        ([os.path.join(suite.__path__[0], "test_machine.py")], MISSING),
        (["--ampscale-level", "0"], MISSING),
        (["test_all.py"], MISSING),
        (["--ampscale-adapter", "strange:WRONG"], "strange:WRONG: strange has no WRONG; it has Plain, Right"),
        (["--ampscale-adapter", "nobody"], "no installed adapter is named 'nobody'"),
        ([*RIGHT, "--ampscale-level", "7"], "level must be from 0 to 4, got 7"),
        ([*RIGHT, "--ampscale-level", "top"], "level must be from 0 to 4, got 'top'"),
        ([*RIGHT, "--ampscale-seconds", "long"], "could not convert string to float: 'long'"),
        ([*RIGHT, "--ampscale-expect", "absent.toml"], "absent.toml"),
    ],
)
def test_wrong_usage_is_refused(here, monkeypatch, capsys, arguments, wanted):
    """In one line, with pytest's status for it; also where the suite is collected by another name."""
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (here / "test_all.py").write_text(f"from {SUITE}.test_machine import *\n")
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments])
    output = "".join(capsys.readouterr())
    sys.modules.pop("strange", None)
    assert (status, "Traceback" in output) == (4, False)
    assert wanted in output


def test_other_projects_are_untouched(run, here):
    """A test of theirs is one test, without a warning or a word of ours; where no adapter is named, nothing is imported."""
    (here / "test_it.py").write_text(
        "import sys\n\n\ndef test_it():\n"
        "    assert 'ampscale_conformance_pytest' in sys.modules\n"
        "    assert {'ampscale', 'numpy', 'hypothesis'} & set(sys.modules) <= {'hypothesis'}\n"
    )
    status, output = run("-W", "error")
    lines = [line for line in output.splitlines() if not line.startswith(("plugins: ", "rootdir: "))]
    assert status == 0
    assert "1 passed" in output
    assert "ampscale" not in "".join(lines)
    code = "import sys; before = set(sys.modules); import ampscale_conformance_pytest; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ampscale_conformance_pytest"]


def test_the_options_are_in_the_help(capsys):
    """In a group of their own."""
    assert pytest.main(["--help", "-p", "no:cacheprovider"]) == 0
    output = capsys.readouterr().out
    assert "conformance of a loss scaler: --pyargs ampscale_conformance.suite" in output
    for option in ("adapter=PKG.MOD:NAME", "level=N", "expect=FILE", "seconds=S"):
        assert f"--ampscale-{option}" in output
