"""Tests that code blocks of the documents run, that commands print the output shown, and that links exist."""

import doctest
import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from ampscale.backends import registry
from ampscale.cli.app import main

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FURTHER = ("CONTRIBUTING", "CHANGELOG", "GOVERNANCE", "SECURITY", "changes/README", "conformance/README")
PAGES = [*DOCS, *(ROOT / f"{name}.md" for name in FURTHER), *sorted((ROOT / "conformance" / "docs").glob("*.md"))]
CODE = re.compile(r"^```(pycon|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"```console\n\$ ampscale (.+)\n((?:(?!```).*\n)*)```")
# docs/api.md shows signatures; its examples run as the docstrings' doctests.
WITH_CODE = [pytest.param(page, id=page.stem) for page in DOCS if page.stem != "api" and CODE.search(page.read_text("utf-8"))]
COMMANDS = [
    pytest.param(*match, id=f"{page.stem}-{match[0][:30]}") for page in DOCS for match in CONSOLE.findall(page.read_text("utf-8"))
]
TESTED_LIBRARIES = os.environ.get("AMPSCALE_TEST_LIBRARIES", "torch jax").split()


def skip_without_libraries(code):
    """Skip the test if *code* uses a library that is not installed, or not to be tested."""
    for name in ("torch", "jax", "optax", "autograd", "ml_dtypes"):
        is_used = re.search(rf"\b(import|from) {name}\b|ampscale\.{name}\b|\"{name}\"", code)
        is_untested = name in ("torch", "jax") and name not in TESTED_LIBRARIES
        if is_used and (is_untested or find_spec(name) is None):
            pytest.skip(f"needs {name}")


@pytest.fixture
def _restored(monkeypatch):
    """End the process group that a page has started, and remove a backend that it has registered."""
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))
    monkeypatch.setattr(registry, "_owners", dict(registry._owners))
    yield
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("page", WITH_CODE)
def test_code_blocks_run_and_print_what_they_show(page):
    """The blocks of a page share one namespace, from top to bottom."""
    text = page.read_text("utf-8")
    namespace = {"__name__": page.stem}
    runner = doctest.DocTestRunner()
    blocks = [(match[1], match[2], text.count("\n", 0, match.start(2))) for match in CODE.finditer(text)]
    skip_without_libraries("".join(code for _, code, _ in blocks))
    for language, code, line in blocks:
        if language == "python":
            exec(compile("\n" * line + code, page, "exec"), namespace)
            continue
        test = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), line)
        test.globs = namespace  # DocTest copies its globals
        assert test.examples
        assert runner.run(test, clear_globs=False).failed == 0


@pytest.mark.parametrize(("command", "expected"), COMMANDS)
def test_commands_print_the_output_shown(command, expected, monkeypatch):
    """The terminal has 80 columns; blank space at the ends of lines is ignored."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, shlex.split(command))
    assert result.exit_code == 0
    printed = [line.rstrip() for line in result.output.strip().splitlines()]
    assert printed == [line.rstrip() for line in expected.strip().splitlines()]


def test_code_and_commands_are_collected():
    """The patterns match the blocks of these pages."""
    assert {param.id for param in WITH_CODE} >= {"README", "torch", "jax", "numpy", "cupy", "mindspore", "paddle"}
    assert {param.id.partition("-")[0] for param in COMMANDS} >= {"README", "tools", "variants"}


@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES])
def test_links_lead_to_files_and_headings(page):
    """Links are relative to the page; the anchor of a heading follows GitHub's rule."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https:)([^)]+)\)", prose):
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), target
        headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE) if anchor else []
        anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in anchors, target


def test_error_messages_in_the_headings_of_questions_exist():
    """A heading quotes the constant beginning of a message, without the values of a call."""
    source = "".join(file.read_text("utf-8") for file in (ROOT / "src").rglob("*.py")).replace("{call}()", "unscale_()")
    messages = re.findall(r'^## "(.+)"$', (ROOT / "docs" / "faq.md").read_text("utf-8"), re.MULTILINE)
    assert len(messages) == 3
    assert [message for message in messages if message not in source] == []


def test_the_index_lists_every_page():
    """docs/README.md has one line for each page."""
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = [page.name for page in DOCS if page.parent.name == "docs" and page.name != "README.md"]
    assert [name for name in pages if len(re.findall(rf"^.*\]\({re.escape(name)}\).*$", index, re.MULTILINE)) != 1] == []


def test_the_readme_is_short():
    """The README has at most 150 lines; everything else has a page in docs/."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


VARIANTS = {  # log2 of the last scale of a run that starts at 2**16 with growth_interval=4
    "torch": 16, "keras": 16, "jmp": 16, "flax": 13, "fairseq": 16, "paddle": 16, "paddle:hysteresis=2": 21,
    "paddle_document:reset_bad_steps_on": 19, "megatron": 20, "deepspeed": 16,
    "deepspeed_consecutive": 18, "deepspeed:hysteresis=1": 13,
}  # fmt: skip


def test_variants_end_at_the_measured_scales():
    """The scales in `VARIANTS` were observed on the published scalers."""
    page = (ROOT / "docs" / "variants.md").read_text()
    ends = dict(re.findall(r"^ *\d+ (\S+) .* 2\^(\d+)$", page, re.MULTILINE))
    assert {name: int(ends[name]) for name in VARIANTS} == VARIANTS
