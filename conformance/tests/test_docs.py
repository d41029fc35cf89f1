"""The page for strangers: what it shows is a whole adapter, and what comes of it is what it prints."""

import doctest
import importlib
import re
import resource
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ampscale_conformance.adapters.loading import GROUP
from ampscale_conformance.cli import conform
from ampscale_conformance.model.adapter import ARRAYS, CAPABILITIES, LEVELS
from ampscale_conformance.model.verdicts import BAD, Verdict
from ampscale_conformance.run.expectations import KEYS, read
from click.testing import CliRunner

PAGE_FILE = Path(__file__).parents[1] / "docs" / "guide.md"
PAGE = PAGE_FILE.read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(kind):
    """What the page shows of one kind."""
    return [text for name, text in BLOCKS if name == kind]


def table(title):
    """The rows of the table whose first column has this title."""
    rows = re.search(rf"^\| {title} .*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()]


SCALER, ADAPTER, MENDED = blocks("python")
FILES = {"my_scaler.py": SCALER, "my_adapter.py": ADAPTER}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the two files of the page, and nothing else."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("my_scaler", "my_adapter"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def mended(folder):
    """Writes the scaler as the page mends it, to be imported the next time."""
    (folder / "my_scaler.py").write_text(SCALER[: SCALER.index("    def update")] + MENDED)
    sys.modules.pop("my_scaler", None)
    sys.modules.pop("my_adapter", None)


def printed(command):
    """What a line of the page prints."""
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("ampscale", "conform")
    return CliRunner().invoke(conform, arguments, catch_exceptions=False)


def runs():
    """Each command of the page that has its output there, with it."""
    for text in blocks("console"):
        listing, _, run = text.partition("$ ampscale")
        assert listing == "$ ls\nmy_adapter.py  my_scaler.py\n"
        command, _, shown = f"ampscale{run}".partition("\n")
        yield command, shown


def matches(shown, lines):
    """Whether these are the lines shown, where a line of three dots stands for any."""
    pattern = "\n".join(".*" if line == "..." else re.escape(line) for line in shown.strip().splitlines())
    return re.fullmatch(pattern, "\n".join(lines), re.DOTALL) is not None


def test_runs_print_what_the_page_shows(here):
    """First with the fault, and then without it."""
    for index, (command, shown) in enumerate(runs()):
        result = printed(command)
        lines = [line.rstrip() for line in result.stdout.strip().splitlines()]
        assert matches(shown, lines), result.stdout
        assert result.exit_code == (1, 0)[index]
        mended(here)
    assert index == 1


@pytest.mark.usefixtures("here")
def test_the_run_is_quick():
    """It spends less than five seconds of processor time; the machine may have other things to do."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "ampscale_conformance", "my_adapter:Adapter"]
    done = subprocess.run(command, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 1
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5


def test_the_page_names_the_files_as_they_are():
    """Each before its block; the adapter is whole in less than thirty lines."""
    for name, text in FILES.items():
        assert re.search(rf"`{name}`[^\n]*:\n\n```python\n{re.escape(text.splitlines()[0])}\n", PAGE)
    assert len(ADAPTER.splitlines()) < 30


def test_the_expectation_is_one_of_this_scaler(here):
    """With it, the faulty scaler is ok; and without its fault, it is not."""
    entry, _ = blocks("toml")
    (here / "expect.toml").write_text(entry)
    assert set(tomllib.loads(entry)["expect"][0]) == set(KEYS) - {"clause"}
    assert len(read(here / "expect.toml").entries) == 1
    command = next(line for line in re.findall(r"`(ampscale conform[^`]*)`", PAGE) if "--expect" in line)
    assert printed(command).exit_code == 0
    mended(here)
    assert printed(command).exit_code == 1


def test_every_option_of_the_page_is_one():
    """Of the command, and of the plug-in."""
    known = {name for parameter in conform.params for name in parameter.opts if name.startswith("--")}
    plugin = {f"--ampscale-{name}" for name in importlib.import_module("ampscale_conformance_pytest").OPTIONS}
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE)) - {"--pyargs"}
    assert used <= known | plugin
    assert known - used == set()
    assert plugin <= used


def test_tables_are_those_of_the_suite():
    """Levels, capabilities, verdicts and libraries, in its words and its order."""
    assert table("level") == [[str(level), words] for level, words in LEVELS.items()]
    rows = [[name, str(level), words.replace("`", "")] for name, (level, words) in CAPABILITIES.items()]
    assert [[cell.replace("`", "") for cell in row] for row in table("capability")] == rows
    assert [row[0] for row in table("verdict")] == list(Verdict)
    assert [row[2] for row in table("verdict")] == ["is not ok" if verdict in BAD else "is ok" for verdict in Verdict]
    assert ", ".join(f'"{name}"' for name in ARRAYS[:-1]) + f' or "{ARRAYS[-1]}"' in " ".join(PAGE.split())
    assert GROUP in tomllib.loads(blocks("toml")[1])["project"]["entry-points"]


def test_links_lead_somewhere():
    """Relative to the page."""
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (PAGE_FILE.parent / target).exists(), target


@pytest.mark.parametrize("module", ["model.adapter", "model.bits", "model.verdicts", "run.check"])
def test_examples_in_docstrings_print_what_they_show(module):
    """The examples of the public functions and classes."""
    results = doctest.testmod(importlib.import_module(f"ampscale_conformance.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
