"""Tests of the files that a hosting service reads: workflows and changelog entries."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def steps(workflow):
    """Return the steps of all jobs."""
    return [step for job in yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_existing_targets_only(workflow):
    """Every command is one `make` target."""
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    targets = [re.fullmatch(r'make ([a-z-]+)(?: [A-Z]+="[^"]*")*', command) for command in commands]
    assert commands
    assert None not in targets
    assert {match[1] for match in targets} <= TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_few_rights_and_no_secrets(workflow):
    """Actions have a major version. Rights beyond reading are granted to single jobs; no secret is used."""
    text = workflow.read_text("utf-8")
    content = yaml.safe_load(workflow.read_text("utf-8"))
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert [action for action in actions if not re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v\d+)", action)] == []
    assert content["permissions"] == {"contents": "read"}
    assert "secrets." not in text


def test_entries_render_to_a_changelog():
    """Each entry is in the draft; an entry of an unknown kind would be left out."""
    pytest.importorskip("towncrier", reason="needs towncrier")
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9", "--date", "2026-01-01"]
    draft = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "## 9.9.9, 2026-01-01\n" in draft
    for entry in (ROOT / "changes").iterdir():
        if entry.name != "README.md":
            assert " ".join(entry.read_text("utf-8").split()) in " ".join(draft.split()), entry.name
