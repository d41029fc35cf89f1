"""
The page for strangers: what it shows is a whole adapter, and what comes of it is what it prints.

`python conformance/tests/test_docs.py` brings what it prints up to date.
"""

import importlib
import os
import re
import resource
import shlex
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from ampscale_conformance.adapters.loading import GROUP
from ampscale_conformance.cli import conform
from ampscale_conformance.model.adapter import ARRAYS, CAPABILITIES, LEVELS
from ampscale_conformance.model.verdicts import BAD, Verdict
from ampscale_conformance.run.expectations import KEYS, read
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "conformance" / "docs" / "guide.md").read_text("utf-8")
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
    """The scaler as the page mends it."""
    (folder / "my_scaler.py").write_text(SCALER[: SCALER.index("    def update")] + MENDED)


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


@pytest.mark.parametrize("index", [0, 1])
def test_a_run_prints_what_the_page_shows(here, index):
    """First with the fault, and then without it."""
    command, shown = list(runs())[index]
    if index:
        mended(here)
    result = printed(command)
    lines = [line.rstrip() for line in result.stdout.strip().splitlines()]
    assert matches(shown, lines), result.stdout
    assert result.exit_code == (0 if index else 1)


def test_the_page_shows_all_its_runs():
    """One that fails and one that is ok."""
    assert len(list(runs())) == 2


@pytest.mark.usefixtures("here")
def test_the_run_is_quick():
    """It takes less than ten seconds, of which it spends few; the machine may have other things to do."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = "from ampscale_conformance.cli import conform; conform()"
    done = subprocess.run([sys.executable, "-c", code, "my_adapter:Adapter"], capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 1
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5


def test_the_adapter_is_short():
    """It is whole in less than thirty lines."""
    assert len(ADAPTER.splitlines()) < 30


def test_the_page_names_the_files_as_they_are():
    """Each before its block."""
    for name, text in FILES.items():
        assert re.search(rf"`{name}`[^\n]*:\n\n```python\n{re.escape(text.splitlines()[0])}\n", PAGE)


def test_the_expectation_is_one_of_this_scaler(here):
    """With it, the faulty scaler is ok; and without its fault, it is not."""
    entry, _ = blocks("toml")
    (here / "expect.toml").write_text(entry)
    assert set(tomllib.loads(entry)["expect"][0]) == set(KEYS) - {"clause"}
    assert len(read(here / "expect.toml").entries) == 1
    command = next(line for line in re.findall(r"`(ampscale conform[^`]*)`", PAGE) if "--expect" in line)
    assert printed(command).exit_code == 0
    sys.modules.pop("my_scaler")
    sys.modules.pop("my_adapter")
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


def test_levels_are_those_of_the_suite():
    """In its words."""
    assert table("level") == [[str(level), words] for level, words in LEVELS.items()]


def test_capabilities_are_those_of_the_suite():
    """In its words and its order."""
    rows = [[name, str(level), words.replace("`", "")] for name, (level, words) in CAPABILITIES.items()]
    assert [[cell.replace("`", "") for cell in row] for row in table("capability")] == rows


def test_verdicts_are_those_of_the_suite():
    """Each of them, and whether a run with it is ok."""
    assert [row[0] for row in table("verdict")] == list(Verdict)
    assert [row[2] for row in table("verdict")] == ["is not ok" if verdict in BAD else "is ok" for verdict in Verdict]


def test_libraries_are_those_of_the_suite():
    """In its order."""
    assert ", ".join(f'"{name}"' for name in ARRAYS[:-1]) + f' or "{ARRAYS[-1]}"' in " ".join(PAGE.split())


def test_the_entry_point_is_of_the_group():
    """Under which adapters are looked for."""
    assert GROUP in tomllib.loads(blocks("toml")[1])["project"]["entry-points"]


def test_links_lead_somewhere():
    """Beside the page."""
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_its_lines_are_of_one_width():
    """Of text, and not of code or tables."""
    text = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert [line for line in text.splitlines() if len(line) > 150 and not line.startswith("|")] == []
    assert [two for two in pairwise(text.splitlines()) if two[0].startswith("#") and two[1]] == []


def brought_up_to_date(folder):
    """The page with what its runs print today; where a line of three dots stood, as many lines before it as there were."""
    page = PAGE
    for index, (command, shown) in enumerate(runs()):
        if index:
            mended(folder)
        done = subprocess.run(
            [sys.executable, "-c", "from ampscale_conformance.cli import conform; conform()", *shlex.split(command)[2:]],
            cwd=folder,
            env={**os.environ, "COLUMNS": "80"},
            capture_output=True,
            text=True,
            check=False,
        )
        before, after = ([*text.splitlines()] for text in shown.split("...\n"))
        title = next(at for at, line in enumerate(before) if line.startswith("Not tested"))
        lines = done.stdout.splitlines()
        start = next(at for at, line in enumerate(lines) if line.startswith("Not tested")) + len(before) - title
        page = page.replace(shown, "\n".join([*lines[:start], "...", *lines[len(lines) - len(after) :], ""]))
    return page


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        for file, content in FILES.items():
            Path(place, file).write_text(content)
        (ROOT / "conformance" / "docs" / "guide.md").write_text(brought_up_to_date(Path(place)), "utf-8")
