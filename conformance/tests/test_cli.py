"""Command `ampscale conform`: options, reports, expectations, processes and errors. test_docs.py compares its output."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest
from ampscale_conformance.adapters import SHIPPED
from ampscale_conformance.cases import every_case
from ampscale_conformance.cli import conform
from ampscale_conformance.model import versions
from ampscale_conformance.model.clauses import clauses
from click.testing import CliRunner

ADAPTER = "strange:Conforming"
GROWS = ("--case", "grows-*")
SHORT = ("--case", "*-by-*")  # a growth, a backoff, and cases of unclaimed capabilities
UPDATE = ("--expect", "expect.toml", "--update-expectations")
MODULE = [sys.executable, "-m", "ampscale_conformance"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Return the current directory, which is empty. Processes import the adapters of strange.py, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    return tmp_path


def invoke(*arguments):
    """Run `ampscale conform` with these arguments, and return the result."""
    return CliRunner().invoke(conform, arguments, catch_exceptions=False)


def output_of(status, *arguments):
    """Run the command, check its exit status, and return its output."""
    result = invoke(*arguments)
    assert result.exit_code == status, result.output[-400:]
    return result.stdout


def usage_error(*arguments):
    """Run the command with wrong usage, check that it prints only an error, and return the message."""
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    return " ".join(result.stderr.split())


def report_of(status, *arguments):
    """Return the JSON report of a run."""
    return json.loads(output_of(status, *arguments, "--json"))


def verdicts(report):
    """Return the verdict of each case that is not unsupported."""
    return {result["case"]: result["verdict"] for result in report["results"] if result["verdict"] != "unsupported"}


# --- output ---


def test_json_output_is_the_report_alone():
    """Output of the implementation and of libraries goes to stderr."""
    process = subprocess.run([*MODULE, "strange:Printing", *GROWS, "--json"], capture_output=True, text=True, check=False)
    report = json.loads(process.stdout)
    assert (process.returncode, report["ok"], report["implementation"]["name"]) == (0, True, "Printing")
    assert {result["clause"] for result in report["results"]} <= set(clauses())
    assert "created\n" in process.stderr
    assert "created by a library" in process.stderr


def test_usage_errors_go_to_stderr():
    process = subprocess.run(MODULE, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert "Usage: python -m ampscale_conformance" in process.stderr


def test_reports_are_written(folder):
    """The formats are JSON, JUnit XML, Markdown and HTML. Markdown reports state that their scripts were run."""
    names = {"--json": "a.json", "--junit": "a.xml", "--markdown": "a.md", "--html": "a.html"}
    options = [argument for pair in names.items() for argument in pair]
    text = output_of(1, "strange:Bare", *SHORT, *options)
    titles = zip(("JSON", "JUnit", "Markdown", "HTML"), names.values(), strict=True)
    assert text.splitlines()[-4:] == [f"Wrote the {title} report to {name}." for title, name in titles]
    report = json.loads((folder / "a.json").read_text())
    failed = [result for result in report["results"] if result["verdict"] == "fail"]
    assert ElementTree.parse(folder / "a.xml").getroot().get("failures") == str(len(failed)) != "0"
    assert "# Conformance of Bare" in (folder / "a.md").read_text()
    assert (folder / "a.html").read_text().startswith("<!doctype html>")
    assert all("class Bare" in result["snippet"] and result["calls"] for result in failed)
    assert {result["reproduced"] for result in failed} == {True}
    assert (folder / "a.md").read_text().count("when run, it did") == len(failed)


def test_text_of_an_implementation_is_printable(monkeypatch):
    """Control characters, which a terminal would execute, and surrogates, which UTF-8 lacks, are escaped."""
    monkeypatch.setattr("strange.Raising.MESSAGE", "\x1b[2J\udc80")
    output = output_of(1, "strange:Raising", *GROWS)
    assert "update raised RuntimeError: \\x1b[2J\\udc80" in output


def test_an_output_without_chinese_characters_gets_escapes():
    """On Windows, a redirected output often has such an encoding."""
    result = CliRunner(charset="latin-1").invoke(conform, ["strange:Bare", "--case", "grows-by-4"], catch_exceptions=False)
    assert "\\u300c" in result.stdout_bytes.decode("latin-1")


# --- chosen cases ---


def test_a_level_excludes_higher_levels():
    """A level is a number, or L and a number."""
    for level in ("0", "L0"):
        results = report_of(0, ADAPTER, "--level", level, "--case", "*1*")["results"]
        assert {result["level"] for result in results} == {0}


def test_globs_select_cases():
    """`--case` matches ids, and `--clause` matches clauses. With the two options, a case must match both globs."""
    results = report_of(0, ADAPTER, "--case", "*-by-*", "--clause", "MACHINE-backoff")["results"]
    assert [result["case"] for result in results] == ["backs-off-by-a-quarter"]


def test_a_glob_without_a_case_is_wrong_usage():
    """If a clause is passed as a case, the message has the right option."""
    assert "no case of suite 1.0 matches id 'gorws' and clause '*'" in usage_error(ADAPTER, "--case", "gorws")
    assert "clause: pass --clause MACHINE-backoff" in usage_error(ADAPTER, "--case", "MACHINE-backoff")


def test_a_version_and_the_sources_select_cases(monkeypatch):
    """A newer case is left out, and so are cases of clauses that are decisions."""
    available = [case for case in every_case() if case.level < 2]
    monkeypatch.setattr(versions, "SUITE", "1.1")
    monkeypatch.setattr(versions, "ADDED", {available[0].id: "1.1"})
    chosen = report_of(0, ADAPTER, "--suite", "1.0", "--sources", "observed", "--level", "1")["results"]
    expected = [case.id for case in available[1:] if clauses()[case.clause].basis != "decision"]
    assert [result["case"] for result in chosen] == expected
    assert 0 < len(expected) < len(available) - 1


def test_too_few_passed_cases_are_not_ok():
    output = output_of(1, ADAPTER, "--case", "grows-by-4", "--min-passed", "2")
    assert "not ok: 1 pass; at least 2 cases must pass" in output


def test_the_same_failure_is_printed_once():
    """Another line contains the number and the names of the other cases."""
    output = output_of(1, "strange:Raising", "--level", "0")
    assert output.count("Result: update raised RuntimeError: broken") == 1
    assert "more cases: " in output


# --- expectations ---


@pytest.mark.parametrize("option", ["--json", "--junit", "--markdown", "--html", "--expect"])
def test_a_failed_write_keeps_the_old_file(folder, monkeypatch, option):
    """The disk is full when the new file replaces the old one. No temporary file remains."""
    old = '[[expect]]\ncase = "grows-*"\nverdict = "fail"\nreason = "late"\n'
    (folder / "file").write_text(old)
    monkeypatch.setattr("os.replace", mock.Mock(side_effect=OSError(28, "No space left on device")))
    options = ["--update-expectations"] if option == "--expect" else GROWS
    assert "No space left on device: 'file'" in usage_error(ADAPTER, *options, option, "file")
    assert ((folder / "file").read_text(), [file.name for file in folder.glob(".ampscale*")]) == (old, [])


def test_a_stale_expectation_is_not_ok(folder):
    """The report names the expectation."""
    (folder / "expect.toml").write_text('[[expect]]\ncase = "gorws"\nverdict = "fail"\nreason = "x"\n')
    text = " ".join(output_of(1, ADAPTER, *GROWS, "--expect", "expect.toml").split())
    assert "XPASS expectation-1" in text
    assert "expect.toml, entry 1 (case = 'gorws') is stale: no case matches; remove it" in text


def test_invalid_expectations_are_rejected(folder):
    """The adapter would end the process if a case were run."""
    assert "No such file" in usage_error("strange:Crashing", "--expect", "absent.toml")
    (folder / "expect.toml").write_text("[[expect]]\ncase = 1\n")
    options = ("--expect", "expect.toml")
    message = "expect.toml, entry 1: case must be a non-blank string of at most 2000 characters, got 1"
    for option in ([], ["--update-expectations"]):
        assert message in usage_error("strange:Crashing", *options, *option)


@pytest.fixture
def late_cases(folder):
    """Return the cases that `strange:Late` fails, after writing them to expect.toml with a reason."""
    output_of(1, "strange:Late", *UPDATE)
    text = (folder / "expect.toml").read_text().replace("TODO: write the reason", "a step late")
    (folder / "expect.toml").write_text(text)
    return {entry["case"] for entry in tomllib.loads(text)["expect"]}


def test_update_expectations_adds_failing_cases(folder):
    """An entry without a reason is not accepted."""
    output = output_of(1, "strange:Late", *UPDATE)
    failing = {case for case, verdict in verdicts(report_of(1, "strange:Late")).items() if verdict == "fail"}
    assert {entry["case"] for entry in tomllib.loads((folder / "expect.toml").read_text())["expect"]} == failing
    assert all(f"expect.toml: added: case = '{case}', fail; write its reason" in output for case in failing)
    assert set(verdicts(report_of(1, "strange:Late", "--expect", "expect.toml")).values()) == {"pass", "fail"}


@pytest.mark.usefixtures("late_cases")
def test_update_expectations_keeps_current_entries(folder):
    """The options select the whole suite, as no options do."""
    old_text = (folder / "expect.toml").read_text()
    whole_suite = ("--level", "5", "--case", "*", "--sources", "all")
    assert "expect.toml: nothing changed" in output_of(0, "strange:Late", *UPDATE, *whole_suite)
    assert (folder / "expect.toml").read_text() == old_text


def test_update_expectations_removes_fixed_failures(folder, late_cases):
    """Before the update, each of them is an unexpected pass. An empty file is accepted."""
    fixed = verdicts(report_of(1, ADAPTER, "--expect", "expect.toml"))
    assert {case for case, verdict in fixed.items() if verdict == "xpass"} == late_cases
    assert "expect.toml: removed: case = " in output_of(0, ADAPTER, *UPDATE)
    assert (folder / "expect.toml").read_text() == ""
    output_of(0, ADAPTER, "--expect", "expect.toml")


def test_expected_failures_are_ok(late_cases):
    """The text report has their cases, and the reason before the message."""
    text = output_of(0, "strange:Late", "--expect", "expect.toml")
    assert text.splitlines()[-1].startswith("ok: ")
    assert "Result: a step late; fail: after step" in text
    assert all(case in text for case in late_cases)
    assert "XFAIL" in text


def test_expectations_stay_if_the_implementation_does_not_start(folder):
    """No case was run, so no entry is known to be fixed."""
    old_text = '[[expect]]\ncase = "MACHINE-*"\nverdict = "fail"\nreason = "x"\n'
    (folder / "expect.toml").write_text(old_text)
    output_of(1, "--command", "./absent", "--expect", "expect.toml", "--update-expectations")
    assert (folder / "expect.toml").read_text() == old_text


# --- processes and shipped adapters ---


def test_a_served_adapter_has_the_same_verdicts(folder, monkeypatch):
    """The replay of its recording has the same verdicts, too, and does not require the module."""
    direct = verdicts(report_of(1, "strange:Late", *SHORT))
    command = f"{sys.executable} -m ampscale_conformance.remote.serve strange:Late"
    assert verdicts(report_of(1, "--command", command, *SHORT, "--record", "run.jsonl")) == direct
    assert '"reset"' in (folder / "run.jsonl").read_text().replace("\\", "")
    monkeypatch.setitem(sys.modules, "strange", None)  # an import of the module now raises an error
    assert verdicts(report_of(1, "--replay", "run.jsonl", *SHORT)) == direct
    assert set(direct.values()) == {"pass", "fail"}


def test_a_program_that_does_not_start_has_one_result():
    """The verdict is a crash."""
    report = report_of(1, "--command", "./absent")
    assert verdicts(report) == {"hello": "crash"}
    assert "./absent" in report["results"][0]["message"]
    assert output_of(1, "--command", "./absent").startswith("./absent: not started\n")


def test_the_cases_after_a_crash_are_run():
    """The message contains the exit status of the process."""
    report = report_of(1, "strange:Crashing", "--isolate", *SHORT)
    assert set(verdicts(report).values()) == {"pass", "crash"}
    assert any("exit status 3" in result["message"] for result in report["results"] if result["verdict"] == "crash")


def test_list_prints_the_shipped_adapters():
    """
    The first line of an adapter is the name, which selects it, and the second line is its location.

    No line is longer than 80 characters.
    """
    lines = output_of(0, "--list").splitlines()
    assert lines[: 2 * len(SHIPPED)] == [line for name, value in SHIPPED.items() for line in (name, f"    {value}")]
    assert max(map(len, lines)) <= 80
    assert report_of(0, "ampscale-numpy", *GROWS)["implementation"]["name"].startswith("ampscale")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected one of IMPLEMENTATION, --command, --replay and --list, got none"),
        ([ADAPTER, "--command", "x"], "--list, got IMPLEMENTATION and --command"),
        (["--replay", "x", "--command", "x"], "--list, got --command and --replay"),
        (
            ["--json", ADAPTER],
            "--json used 'strange:Conforming' as its FILE, so IMPLEMENTATION is missing; put --json last",
        ),
        (["--command", "x", "--isolate"], "--isolate requires IMPLEMENTATION"),
        ([ADAPTER, "--record", "x"], "--record requires --command"),
        ([ADAPTER, "--update-expectations"], "--update-expectations requires --expect"),
        (
            [ADAPTER, "--update-expectations", "--expect", "x", "--case", "grows-*"],
            "--update-expectations requires the whole suite, got --case",
        ),
        ([ADAPTER, "--update-expectations", "--expect", "x", "--random", "0"], "got --random"),
        ([ADAPTER, "--update-expectations", "--expect", "x", "--level", "4"], "got --level"),
        (["strange:Wrong"], "strange:Wrong: module strange has no Wrong; it has "),
        (["megatron"], "Megatron DynamicGradScaler is not installed in this environment"),
        (["--replay", "absent.jsonl"], "absent.jsonl"),
        ([ADAPTER, "--junit", "absent/a.xml"], "the folder of --junit must exist, got absent/a.xml"),
        ([ADAPTER, "--json", "a.xml", "--junit", "./a.xml"], "--json and --junit must be different files, got a.xml"),
        ([ADAPTER, "--json", "absent/a.json"], "the folder of --json must exist, got absent/a.json"),
        ([ADAPTER, "--case", ""], "no case of suite 1.0 matches id '' and clause '*'"),
        ([ADAPTER, "--clause", ""], "no case of suite 1.0 matches id '*' and clause ''"),
        ([ADAPTER, "--level", "7"], 'level must be an int from 0 to 5, or "L0" to "L5", got 7'),
        ([ADAPTER, "--level", "top"], """level must be an int from 0 to 5, or "L0" to "L5", got 'top'"""),
        ([ADAPTER, "--suite", "latest"], "a version of the suite must be MAJOR.MINOR"),
        ([ADAPTER, "--suite", ""], "a version of the suite must be MAJOR.MINOR"),
        ([ADAPTER, "--seconds", "0"], "--seconds must be positive and at most 100,000,000, got 0.0"),
        ([ADAPTER, "--seconds", "nan"], "--seconds must be positive and at most 100,000,000, got nan"),
    ],
)
def test_wrong_usage_exits_with_status_2(arguments, message):
    """The message names the options, the argument or the file at fault."""
    assert message in usage_error(*arguments)


def test_an_adapter_requires_the_library_of_its_arrays(monkeypatch):
    """Otherwise almost every case would be an error."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "torch is not installed in this environment" in usage_error("ampscale-torch")


# --- random tests ---


@pytest.mark.slow
def test_random_adds_one_result_for_each_kind():
    """The message contains the seed. `--only-random` leaves out all other cases."""
    results = report_of(0, ADAPTER, *GROWS, "--random", "7")["results"]
    rows = [result for result in results if result["case"].startswith("random-")]
    assert [result["verdict"] for result in rows] == ["pass"] * 2 + ["unsupported"] * 8
    assert rows[0]["message"].endswith(" cases with seed 7")
    results_alone = report_of(0, ADAPTER, "--random", "7", "--only-random")["results"]
    assert [(result["case"], result["verdict"]) for result in results_alone] == [(row["case"], row["verdict"]) for row in rows]


def test_random_requires_hypothesis(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    message = '--random requires hypothesis: pip install "ampscale-conformance[random]"'
    assert message in usage_error(ADAPTER, "--random", "1")
