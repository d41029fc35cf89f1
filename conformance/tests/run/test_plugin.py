"""The suite under pytest, in a fresh process and an empty folder, as somebody has it who has installed ampscale."""

import os
import subprocess
import sys
from collections import Counter
from importlib import import_module
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from ampscale_conformance import check, suite
from ampscale_conformance.cases import every_case
from ampscale_conformance.model.case import CHAPTERS
from mutants.plain import Plain

import ampscale

SUITE = "ampscale_conformance.suite"
MODULE = """
from mutants.plain import Plain


class Right(Plain):
    def __init__(self):
        super().__init__("torch", 0, ())


class Late(Right):
    def window(self, handle):
        return super().window(handle) + 1


class Warning(Right):
    def create(self, rule):
        import warnings
        warnings.warn("overflow encountered")
        return super().create(rule)


RIGHT, LATE = Right(), Late()
"""
TRIVIAL = "def test_it():\n    pass\n"


class Late(Plain):
    """As the module has it."""

    def __init__(self):
        super().__init__("torch", 0, ())

    def window(self, handle):
        return super().window(handle) + 1


CASES = import_module("ampscale_conformance.cases.machine").CASES


@pytest.fixture
def here(tmp_path):
    """A folder with nothing but an adapter, and the entry point as the wheel has it."""
    (tmp_path / "strange.py").write_text(MODULE)
    folder = tmp_path / "installed" / "ampscale_suite-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ampscale-suite\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[pytest11]\nampscale = ampscale_conformance_pytest\n")
    return tmp_path


@pytest.fixture
def run(here):
    """Runs pytest there; returns its status and its output."""

    def ran(*arguments, **environment):
        path = os.pathsep.join([str(here / "installed"), str(os.path.dirname(os.path.dirname(ampscale.__file__)))])
        done = subprocess.run(
            [os.path.join(os.path.dirname(sys.executable), "pytest"), "-p", "no:cacheprovider", *map(str, arguments)],
            cwd=here,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120", **environment},
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


def test_a_right_one_passes(run):
    """From an empty folder, with the options alone; what it does not claim is skipped with the reason."""
    status, counts, output = put(run, "RIGHT", "-rs")
    assert status == 0
    assert set(counts) == {"passed", "skipped"}
    assert sum(counts.values()) == len(CASES)
    assert "does not claim resume" in output


def test_the_whole_suite_is_found_by_its_package(run):
    """All chapters, and a test's name ends in its case's id."""
    status, output = run("--pyargs", SUITE, "--ampscale-adapter", "strange:RIGHT", "--collect-only", "-q")
    assert status == 0
    for case in every_case():
        assert f"[{case.id}]" in output


def test_a_failure_has_the_clause_and_no_traceback(run):
    """What was wanted and came, the clause and its sentence, and no line of the suite's own."""
    status, counts, output = put(run, "LATE", "-k", "grows-in-the-third-step")
    assert (status, counts["failed"]) == (1, 1)
    assert "FAIL grows-in-the-third-step" in output
    assert "MACHINE-growth-window: The scale grows inside the" in output
    assert "Here: after step 3: wanted 2048.0, by MACHINE-growth-window, got 1024.0" in output
    assert "plugin.py" not in output
    assert "Error" not in output


def test_the_header_says_what_is_tested(run):
    """The implementation, its level and its claim."""
    _, output = run("--pyargs", SUITE, "--ampscale-adapter", "strange:RIGHT", "--collect-only")
    assert "ampscale: Right: level 0, torch, numpy arrays" in output


def test_a_level_leaves_out_what_is_above(run):
    """As deselected tests."""
    arguments = ("--pyargs", SUITE, "--ampscale-adapter", "strange:RIGHT", "--collect-only", "-q", "--ampscale-level")
    for level in ("0", "L0"):
        _, output = run(*arguments, level)
        asked = sum(case.level == 0 for case in every_case())
        assert f"{asked}/{len(every_case())} tests collected ({len(every_case()) - asked} deselected)" in output


def test_expectations_are_strict(run, here):
    """An expected failure is an xfail with its reason, an unexpected pass a failure."""
    (here / "expect.toml").write_text('[[expect]]\ncase = "grows-in-the-third-step"\nverdict = "fail"\nreason = "a step late"\n')
    chosen = ("-k", "grows-in-the-third-step", "--ampscale-expect", "expect.toml", "-rx")
    status, counts, output = put(run, "LATE", *chosen)
    assert (status, counts) == (0, {"deselected": len(CASES) - 1, "xfailed": 1})
    assert "a step late; fail: after step 3" in output
    status, counts, output = put(run, "RIGHT", *chosen)
    assert (status, counts["failed"]) == (1, 1)
    assert "XPASS grows-in-the-third-step" in output
    assert "it passes, and expect.toml expects fail: a step late" in output


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_stale_expectation_fails_the_run(run, here, workers):
    """An entry on no case, where every test passes; also where workers have the cases."""
    (here / "expect.toml").write_text('[[expect]]\ncase = "gorws"\nverdict = "fail"\nreason = "x"\n')
    status, counts, output = put(run, "RIGHT", "--ampscale-expect", "expect.toml", "-k", "window", *workers)
    assert (status, counts.get("failed")) == (1, None)
    assert "expect.toml, entry 1 (case = 'gorws') is stale: there is no such case; take it out" in output


def test_an_expectation_on_unsupported_cases_is_stale(run, here):
    """Once all of them were asked; also where workers have the cases."""
    first, second = [case.id for case in CASES if case.needs][:2]
    (here / "expect.toml").write_text(f'[[expect]]\ncase = "{first}"\nverdict = "fail"\nreason = "x"\n')
    chosen = ("--ampscale-expect", "expect.toml", "-n", "1", "-k")
    status, _, output = put(run, "RIGHT", *chosen, f"{first} or {second}")
    assert status == 1
    assert f"(case = '{first}') is stale: all its cases are unsupported" in output
    assert put(run, "RIGHT", *chosen, second)[0] == 0


def test_workers_share_the_cases(run):
    """With xdist it is the same run as `check`'s."""
    counts = check(Late(), cases=CASES).counts
    wanted = {"failed": counts["fail"], "passed": counts["pass"], "skipped": counts["unsupported"]}
    assert put(run, "LATE", "-n", "2")[:2] == (1, wanted)


def test_the_report_has_clauses_and_verdicts(run, here):
    """As properties of a test, in the JUnit XML that pytest writes."""
    put(run, "LATE", "--junit-xml", "a.xml")
    found = {
        tuple(each.get("value") for each in one.iter("property")) for one in ElementTree.parse(here / "a.xml").iter("testcase")
    }
    assert ("grows-in-the-third-step", "MACHINE-growth-window", "fail") in found


def test_warnings_of_an_implementation_are_no_failures(run):
    """Also where a project makes errors of them: an infinite scale is what some cases ask for."""
    assert put(run, "Warning", "-W", "error")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--pyargs", SUITE], "an implementation is wanted: pytest --pyargs ampscale_conformance.suite --ampscale-adapter"),
        (["--pyargs", f"{SUITE}.test_machine", "-n", "1"], "an implementation is wanted"),
        ([os.path.join(suite.__path__[0], "test_machine.py")], "an implementation is wanted"),
        (["--ampscale-level", "0"], "an implementation is wanted"),
        (["--ampscale-adapter", "strange:WRONG"], "strange:WRONG: strange has no WRONG; it has Plain, Right"),
        (["--ampscale-adapter", "nobody:RIGHT"], "nobody:RIGHT: there is no module nobody in "),
        (["--ampscale-adapter", "nobody"], "no installed adapter is called 'nobody'"),
        (["--ampscale-adapter", "strange:RIGHT", "--ampscale-level", "7"], "level must be from 0 to 4, got 7"),
        (["--ampscale-adapter", "strange:RIGHT", "--ampscale-level", "top"], "level must be from 0 to 4, got 'top'"),
        (["--ampscale-adapter", "strange:RIGHT", "--ampscale-seconds", "long"], "could not convert string to float: 'long'"),
        (["--ampscale-adapter", "strange:RIGHT", "--ampscale-expect", "absent.toml"], "absent.toml"),
    ],
)
def test_wrong_usage_is_refused(run, arguments, wanted):
    """In one line, with pytest's status for it."""
    status, output = run(*arguments)
    assert (status, "Traceback" in output) == (4, False)
    assert wanted in output


def test_the_suite_among_other_tests_says_what_is_missing(run, here):
    """Where it was collected by another name."""
    (here / "test_all.py").write_text(f"from {SUITE}.test_machine import *\n")
    status, output = run("-q")
    assert status == 4
    assert "an implementation is wanted: pytest --pyargs" in output


# --- everybody else ---


def test_other_projects_are_untouched(run, here):
    """One test of theirs is one test, without a warning, and with nothing of ours in its output but the list of plug-ins."""
    (here / "test_it.py").write_text(TRIVIAL)
    status, output = run("-W", "error")
    lines = [line for line in output.splitlines() if not line.startswith(("plugins: ", "rootdir: "))]
    assert status == 0
    assert "1 passed" in output
    assert "ampscale" not in "".join(lines)


def test_the_plug_in_is_light(run, here):
    """Where no adapter is named, neither the package nor NumPy is imported; and nothing by the plug-in itself."""
    (here / "test_it.py").write_text(
        "import sys\n\n\ndef test_it():\n"
        "    assert 'ampscale_conformance_pytest' in sys.modules\n"
        "    assert {'ampscale', 'numpy', 'hypothesis'} & set(sys.modules) <= {'hypothesis'}\n"
    )
    assert run("-q")[0] == 0
    code = "import sys; before = set(sys.modules); import ampscale_conformance_pytest; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ampscale_conformance_pytest"]


def test_the_options_are_in_the_help(run):
    """In a group of their own."""
    status, output = run("--help")
    assert status == 0
    assert "conformance of a loss scaler: --pyargs ampscale_conformance.suite" in output
    for option in ("adapter=PKG.MOD:NAME", "level=N", "expect=FILE", "seconds=S"):
        assert f"--ampscale-{option}" in output
