"""Tests of docs/guide.md: its adapter is complete, its commands print what it shows, and its tables are those of the suite."""

import doctest
import importlib
import re
import shlex
import sys
import time
import tomllib
from pathlib import Path

import pytest
from ampscale_conformance.adapters.loading import GROUP
from ampscale_conformance.adapters.ranks import end_ranks
from ampscale_conformance.cli import conform
from ampscale_conformance.model.adapter import ARRAYS, CAPABILITIES, LEVELS
from ampscale_conformance.model.verdicts import BAD, Verdict
from ampscale_conformance.run.expectations import KEYS, read
from click.testing import CliRunner

PAGE_FILE = Path(__file__).parents[1] / "docs" / "guide.md"
PAGE = PAGE_FILE.read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(language):
    """Return the code blocks of one language."""
    return [text for name, text in BLOCKS if name == language]


def table(title):
    """Return the rows of the table whose first column has this title."""
    rows = re.search(rf"^\| {title} .*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()]


SCALER, ADAPTER, FIXED_UPDATE, RANKS = blocks("python")
FILES = {"my_scaler.py": SCALER, "my_adapter.py": ADAPTER}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Create a current directory that contains only the scaler and the adapter of the page."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("my_scaler", "my_adapter", "my_ranks"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def fix_scaler(folder):
    """Write the scaler with the fix of the page, and unload it and its adapter."""
    (folder / "my_scaler.py").write_text(SCALER[: SCALER.index("    def update")] + FIXED_UPDATE)
    sys.modules.pop("my_scaler", None)
    sys.modules.pop("my_adapter", None)


def run_command(command):
    """Run a command of the page."""
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("ampscale", "conform")
    return CliRunner().invoke(conform, arguments, catch_exceptions=False)


def commands():
    """Yield the listing of files above each command whose output the page shows, the command, and the output."""
    for text in blocks("console"):
        listing, _, run = text.partition("$ ampscale")
        command, _, shown = f"ampscale{run}".partition("\n")
        yield listing, command, shown


def matches(shown, lines):
    """Return True if the lines are those shown; a line of three dots matches any lines."""
    pattern = "\n".join(".*" if line == "..." else re.escape(line) for line in shown.strip().splitlines())
    return re.fullmatch(pattern, "\n".join(lines), re.DOTALL) is not None


def test_commands_print_what_the_page_shows(folder):
    """The first run has the bug, the second one the fix. A run takes less than five seconds."""
    for (listing, command, shown), status in zip(commands(), (1, 0), strict=False):
        assert listing == "$ ls\nmy_adapter.py  my_scaler.py\n"
        started = time.process_time()
        assert run_and_compare(command, shown) == status
        assert time.process_time() - started < 5
        fix_scaler(folder)


def run_and_compare(command, shown):
    """Run a command, check its output, and return its exit status."""
    result = run_command(command)
    lines = [line.rstrip() for line in result.stdout.strip().splitlines()]
    assert matches(shown, lines), result.stdout
    return result.exit_code


@pytest.mark.slow
def test_the_adapter_with_ranks_passes_only_with_its_reduction(folder):
    """Without the reduction of the overflow flag, a rank does not detect an overflow on another rank."""
    pytest.importorskip("torch")
    _, _, (listing, command, shown) = commands()
    (folder / "my_ranks.py").write_text(RANKS)
    assert listing == f"$ ls\n{'  '.join(sorted(file.name for file in folder.iterdir()))}\n"
    assert run_and_compare(command, shown) == 0
    (folder / "my_ranks.py").write_text(RANKS.replace("        dist.all_reduce(overflow)\n", ""))
    sys.modules.pop("my_ranks")
    end_ranks()
    assert "six of these cases fail" in PAGE
    assert "not ok: 6 fail, 5 pass, 17 unsupported" in run_command(command).stdout


def test_the_page_names_each_file_before_its_block():
    for name, text in FILES.items():
        assert re.search(rf"`{name}`[^\n]*:\n\n```python\n{re.escape(text.splitlines()[0])}\n", PAGE)


def test_the_adapter_is_short():
    assert len(ADAPTER.splitlines()) < 30


def test_the_expectation_of_the_page_is_rejected_after_the_fix(folder):
    """The entry has every key, with a case instead of a clause. `test_the_workflow_writes_all_that_it_uploads` runs the bug."""
    entry, _ = blocks("toml")
    (folder / "expect.toml").write_text(entry)
    assert set(tomllib.loads(entry)["expect"][0]) == set(KEYS) - {"clause"}
    assert len(read(folder / "expect.toml").entries) == 1
    command = next(line for line in re.findall(r"`(ampscale conform[^`]*)`", PAGE) if "--expect" in line)
    fix_scaler(folder)
    assert run_command(command).exit_code == 1


def test_the_page_has_every_option():
    """The options are those of the command and of the pytest plugin, and there are no others."""
    command_options = {name for parameter in conform.params for name in parameter.opts if name.startswith("--")}
    plugin_options = {f"--ampscale-{name}" for name in importlib.import_module("ampscale_conformance_pytest").OPTIONS}
    page_options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE)) - {"--pyargs"}
    assert page_options <= command_options | plugin_options
    assert command_options - page_options == set()
    assert plugin_options <= page_options


def test_tables_equal_those_of_the_suite():
    """Levels, capabilities, verdicts and libraries have the same text and order."""
    assert table("level") == [[str(level), text] for level, text in LEVELS.items()]
    rows = [[name, str(level), text.replace("`", "")] for name, (level, text) in CAPABILITIES.items()]
    assert [[cell.replace("`", "") for cell in row] for row in table("capability")] == rows
    assert [row[0] for row in table("verdict")] == list(Verdict)
    assert [row[2] for row in table("verdict")] == ["is not ok" if verdict in BAD else "is ok" for verdict in Verdict]
    assert ", ".join(f'"{name}"' for name in ARRAYS[:-1]) + f' or "{ARRAYS[-1]}"' in " ".join(PAGE.split())


def test_the_example_of_an_installed_adapter_has_the_group_of_its_entry_point():
    assert GROUP in tomllib.loads(blocks("toml")[1])["project"]["entry-points"]


@pytest.mark.parametrize("module", ["model.adapter", "model.bits", "model.verdicts", "run.check"])
def test_doctests_pass(module):
    """The examples are those of the public functions and classes."""
    results = doctest.testmod(importlib.import_module(f"ampscale_conformance.{module}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_workflow_writes_all_that_it_uploads(folder):
    """The command of the workflow is run with the expected failure of the page."""
    (workflow,) = blocks("yaml")
    command = " ".join(re.search(r"run: >-\n\s+(ampscale conform .*?)\n\s+- uses", workflow, re.DOTALL)[1].split())
    (folder / "expect.toml").write_text(blocks("toml")[0])
    result = run_command(command.replace("$GITHUB_STEP_SUMMARY", "summary.md"))
    assert result.exit_code == 0, result.output
    assert {path.name for path in folder.iterdir()} >= {"conformance.html", "conformance.xml", "badge.json", "summary.md"}
    assert '"color": "yellow"' in (folder / "badge.json").read_text()
