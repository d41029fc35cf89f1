"""`ampscale conform`: from a stranger's module to a report, and every way in which that can go; its words are in test_docs.py."""

import importlib
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
from ampscale_conformance.model.clauses import clauses
from click.testing import CliRunner

MODULE = """
import os

from ampscale_conformance import ImplementationInfo
from mutants.plain import Plain


class Right(Plain):
    def __init__(self):
        super().__init__("torch", 0, ())


class Late(Right):
    "The first window is a step too long, and so is every other."

    def window(self, handle):
        return super().window(handle) + 1


class Talking(Right):
    def create(self, rule):
        print("created")
        os.write(1, b"created, said a library")
        return super().create(rule)


class Crashing(Right):
    def overflow_step(self, handle):
        os._exit(3)


class Bare:
    info = ImplementationInfo(name="Bare")

    def create(self, rule):
        return [rule.init_scale]

    def update(self, scale, finite):
        scale[0] *= 1.0 if finite else 0.5

    def read_scale(self, scale):
        return scale[0]
"""
GROWS = ("--case", "grows-*")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty current directory, but for a stranger's module, which is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)  # of processes: for the mutants
    (tmp_path / "strange.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("strange", None)
    importlib.invalidate_caches()


def invoke(*arguments):
    """A run of the command."""
    return CliRunner().invoke(conform, arguments, catch_exceptions=False)


def printed(status, *arguments):
    """What a run that ends with this status prints."""
    result = invoke(*arguments)
    assert result.exit_code == status, result.output[-400:]
    return result.stdout


def refused(*arguments):
    """What a run of wrong usage says; it prints nothing else."""
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    return " ".join(result.stderr.split())


def report(status, *arguments):
    """The report of a run."""
    return json.loads(printed(status, *arguments, "--json"))


def verdicts(said):
    """The verdict of each case of a report that was asked."""
    return {result["case"]: result["verdict"] for result in said["results"] if result["verdict"] != "unsupported"}


# --- what is printed ---


def test_json_alone_is_all_that_is_printed():
    """Whatever the implementation prints, in Python or below it, goes to the standard error; so does wrong usage."""
    command = [sys.executable, "-m", "ampscale_conformance", "strange:Talking", *GROWS, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = json.loads(done.stdout)
    assert (done.returncode, said["ok"], said["implementation"]["name"]) == (0, True, "Talking")
    assert {result["clause"] for result in said["results"]} <= set(clauses())
    assert "created\n" in done.stderr
    assert "created, said a library" in done.stderr
    done = subprocess.run(command[:3], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: python -m ampscale_conformance" in done.stderr


def test_reports_are_written(here):
    """As JSON, as JUnit's XML, in Markdown and as a page; scripts that people read have been run."""
    names = {"--json": "a.json", "--junit": "a.xml", "--markdown": "a.md", "--html": "a.html"}
    text = printed(1, "strange:Bare", "--clause", "MACHINE-growth-*", *(word for pair in names.items() for word in pair))
    titles = zip(("JSON", "JUnit", "Markdown", "HTML"), names.values(), strict=True)
    assert text.splitlines()[-4:] == [f"Wrote the {title} report to {name}." for title, name in titles]
    said = json.loads((here / "a.json").read_text())
    failed = [result for result in said["results"] if result["verdict"] == "fail"]
    assert ElementTree.parse(here / "a.xml").getroot().get("failures") == str(len(failed)) != "0"
    assert "# Conformance of Bare" in (here / "a.md").read_text()
    assert (here / "a.html").read_text().startswith("<!doctype html>")
    assert all("class Bare" in result["snippet"] and result["calls"] for result in failed)
    assert {result["reproduced"] for result in failed} == {True}
    assert (here / "a.md").read_text().count("when run, it did") == len(failed)


# --- what is asked ---


def test_a_level_leaves_out_what_is_above():
    """As a number, or as L and a number."""
    for level in ("0", "L0"):
        assert {result["level"] for result in report(0, "strange:Right", "--level", level, "--case", "*1*")["results"]} == {0}
    for level in ("7", "'top'"):
        assert f"level must be from 0 to 4, got {level}" in refused("strange:Right", "--level", level.strip("'"))


def test_globs_choose_cases():
    """By id, by clause, and by both."""
    everything = {case.id: case.clause for case in every_case()}
    by_case = report(0, "strange:Right", "--case", "grows-*")["results"]
    assert {each["case"] for each in by_case} == {case for case in everything if case.startswith("grows-")}
    by_clause = report(0, "strange:Right", "--clause", "MACHINE-b*")["results"]
    assert {each["clause"] for each in by_clause} == {clause for clause in everything.values() if clause.startswith("MACHINE-b")}
    both = report(0, "strange:Right", "--case", "*s*", "--clause", "MACHINE-backoff")["results"]
    assert {each["clause"] for each in both} == {"MACHINE-backoff"}
    assert "no case matches id 'gorws' and clause '*'" in refused("strange:Right", "--case", "gorws")


# --- what is known to fail ---


def test_what_is_expected_is_ok(here):
    """Once each failure has its reason; a pass is not ok then."""
    some = ("--clause", "MACHINE-[bg]*")
    before = verdicts(report(1, "strange:Late", *some))
    failing = [case for case, verdict in before.items() if verdict == "fail"]
    assert set(before.values()) == {"pass", "fail"}
    entries = [f'[[expect]]\ncase = "{case}"\nverdict = "fail"\nreason = "a step late"\n' for case in failing]
    (here / "expect.toml").write_text("\n".join(entries))
    text = printed(0, "strange:Late", *some, "--expect", "expect.toml")
    assert text.splitlines()[-1].startswith("ok: ")
    assert f"XFAIL {failing[0]}" in text
    assert "Result: a step late; fail: after step" in text
    after = verdicts(report(1, "strange:Right", *some, "--expect", "expect.toml"))
    assert {case for case, verdict in after.items() if verdict == "xpass"} == set(failing)


@pytest.mark.parametrize("option", ["--json", "--junit", "--markdown", "--html", "--expect"])
def test_a_file_that_cannot_be_written_stays_as_it_was(here, monkeypatch, option):
    """A disk that is full as the new file replaces the old one leaves the old one, and nothing else."""
    old = '[[expect]]\ncase = "grows-*"\nverdict = "fail"\nreason = "late"\n'
    (here / "file").write_text(old)
    monkeypatch.setattr("os.replace", mock.Mock(side_effect=OSError(28, "No space left on device")))
    said = ["--update-expectations"] if option == "--expect" else GROWS
    assert "No space left on device: 'file'" in refused("strange:Right", *said, option, "file")
    assert ((here / "file").read_text(), [file.name for file in here.glob(".ampscale*")]) == (old, [])


def test_a_stale_expectation_is_not_ok(here):
    """It is named in the report."""
    (here / "expect.toml").write_text('[[expect]]\ncase = "gorws"\nverdict = "fail"\nreason = "x"\n')
    text = " ".join(printed(1, "strange:Right", *GROWS, "--expect", "expect.toml").split())
    assert "XPASS expectation-1" in text
    assert "expect.toml, entry 1 (case = 'gorws') is stale: no case matches; remove it" in text


def test_expectations_that_cannot_be_read_are_refused(here):
    """Before anything is run."""
    assert "No such file" in refused("strange:Crashing", "--expect", "absent.toml")
    (here / "expect.toml").write_text("[[expect]]\ncase = 1\n")
    assert "expect.toml, entry 1: case must be a string" in refused("strange:Crashing", "--expect", "expect.toml")
    assert "expect.toml, entry 1: case must be" in refused("strange:Crashing", "--expect", "expect.toml", "--update-expectations")


def test_expectations_are_written_and_kept(here):
    """Begun, given their reasons, kept as they are, and taken out when what they say is mended."""
    file, update = here / "expect.toml", ("--expect", "expect.toml", "--update-expectations")
    begun = printed(1, "strange:Late", *update)
    failing = {case for case, verdict in verdicts(report(1, "strange:Late")).items() if verdict == "fail"}
    assert {entry["case"] for entry in tomllib.loads(file.read_text())["expect"]} == failing
    assert all(f"expect.toml: added: case = '{case}', fail; write its reason" in begun for case in failing)
    assert set(verdicts(report(1, "strange:Late", "--expect", "expect.toml")).values()) == {"pass", "fail"}
    file.write_text(file.read_text().replace("TODO: write the reason", "a step late"))
    before = file.read_text()
    assert "expect.toml: nothing changed" in printed(0, "strange:Late", *update)
    assert file.read_text() == before
    assert set(verdicts(report(0, "strange:Late", "--expect", "expect.toml")).values()) == {"pass", "xfail"}
    printed(1, "strange:Right", "--expect", "expect.toml")
    assert "expect.toml: removed: case = " in printed(0, "strange:Right", *update)
    assert file.read_text() == ""
    printed(0, "strange:Right", "--expect", "expect.toml")


# --- other ways in ---


def serving(name):
    """The command of a process that has this adapter."""
    return f"{sys.executable} -m ampscale_conformance.remote.serve strange:{name}"


def test_a_command_is_an_implementation_too(here):
    """It gives what its adapter gives here; and its recording gives it again without it."""
    (here / "level").mkdir()
    direct = verdicts(report(1, "strange:Late", "--level", "0"))
    assert verdicts(report(1, "--command", serving("Late"), "--level", "0", "--record", "said.jsonl")) == direct
    assert '"reset"' in (here / "said.jsonl").read_text().replace("\\", "")
    (here / "strange.py").unlink()
    assert verdicts(report(1, "--replay", "said.jsonl", "--level", "0")) == direct


def test_what_a_process_does_is_a_verdict():
    """One that does not start is a report of one result; after a crash the other cases are asked all the same."""
    said = report(1, "--command", "./absent")
    assert verdicts(said) == {"hello": "crash"}
    assert "./absent" in said["results"][0]["message"]
    said = report(1, "strange:Crashing", "--isolate", "--clause", "MACHINE-growth-*")
    assert set(verdicts(said).values()) == {"pass", "crash"}
    assert any("3" in result["message"] for result in said["results"] if result["verdict"] == "crash")


def test_the_shipped_adapters_are_listed():
    """With where they are; each is asked by its name."""
    lines = printed(0, "--list").splitlines()
    assert [line.split() for line in lines[: len(SHIPPED)]] == [list(item) for item in SHIPPED.items()]
    assert report(0, "ampscale-numpy", *GROWS)["implementation"]["name"].startswith("ampscale")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "expected one of IMPLEMENTATION, --command, --replay and --list, got none"),
        (["strange:Right", "--command", "x"], "--list, got IMPLEMENTATION and --command"),
        (["--replay", "x", "--command", "x"], "--list, got --command and --replay"),
        (["--json", "strange:Right"], "--json used 'strange:Right' as its FILE, so IMPLEMENTATION is missing; put --json last"),
        (["--command", "x", "--isolate"], "--isolate requires IMPLEMENTATION"),
        (["strange:Right", "--record", "x"], "--record requires --command"),
        (["strange:Right", "--update-expectations"], "--update-expectations requires --expect"),
        (
            ["strange:Right", "--update-expectations", "--expect", "x", "--case", "*"],
            "--update-expectations requires the whole suite, got --case",
        ),
        (["strange:Right", "--update-expectations", "--expect", "x", "--random", "0"], "got --random"),
        (["strange:Wrong"], "strange:Wrong: strange has no Wrong; it has "),
        (["nobody:Right"], "nobody:Right: no module nobody in "),
        (["strange"], "no installed adapter is named 'strange'"),
        (["--replay", "absent.jsonl"], "absent.jsonl"),
        (["strange:Right", "--case", "grows-*", "--junit", "absent/a.xml"], "absent/a.xml"),
        (["strange:Right", "--seconds", "0"], "0.0 is not in the range"),
    ],
)
def test_wrong_usage_is_refused(arguments, wanted):
    """With what was wanted and what came, and the status 2."""
    assert wanted in refused(*arguments)


# --- chance ---


def test_random_cases_are_added(monkeypatch):
    """A row for each kind, with the seed."""
    rows = [each for each in report(0, "strange:Right", *GROWS, "--random", "7")["results"] if each["case"].startswith("random-")]
    assert [each["verdict"] for each in rows] == ["pass"] + ["unsupported"] * 3
    assert rows[0]["message"].endswith(" cases with seed 7")
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    assert '--random requires hypothesis: pip install "ampscale-conformance[random]"' in refused("strange:Right", "--random", "1")
