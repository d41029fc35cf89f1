"""What the documents show of the command line is what it prints."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from ampscale.cli.app import main

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```console\n\$ ampscale (.+)\n((?:(?!```).*\n)*)```")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = [pytest.param(*found, id=f"{page.stem}-{found[0][:30]}") for page in PAGES for found in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_a_command_prints_what_its_page_shows(command, shown, monkeypatch):
    """At 80 columns, but for blank space at the ends of lines."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, shlex.split(command))
    assert result.exit_code == 0
    printed = [line.rstrip() for line in result.output.strip().splitlines()]
    assert printed == [line.rstrip() for line in shown.strip().splitlines()]


def test_commands_are_shown():
    """The reader of pages finds them."""
    assert {each.id.partition("-")[0] for each in SHOWN} >= {"README", "variants"}


VARIANTS = {  # log2 of the scale at the end, from 2**16 with an interval of 4
    "torch": 16, "keras": 16, "jmp": 16, "flax": 13, "fairseq": 16, "paddle": 16, "paddle:hysteresis=2": 21,
    "paddle_document:reset_bad_steps_on": 19, "megatron": 20, "deepspeed": 16,
    "deepspeed_consecutive": 18, "deepspeed:hysteresis=1": 13,
}  # fmt: skip


def test_the_page_of_variants_shows_the_measured_scales():
    """The scales that the published scalers themselves were seen to end at."""
    page = (ROOT / "docs" / "variants.md").read_text()
    ends = dict(re.findall(r"^ *\d+ (\S+) .* 2\^(\d+)$", page, re.MULTILINE))
    assert {name: int(ends[name]) for name in VARIANTS} == VARIANTS
