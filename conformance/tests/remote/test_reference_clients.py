"""The two implementations to start from pass everything that they claim, and need nothing that a stranger may lack."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ampscale_conformance.cases import every_case
from ampscale_conformance.remote.command_adapter import CommandAdapter
from ampscale_conformance.run.check import check

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHON, C = EXAMPLES / "plain_python.py", EXAMPLES / "plain_c.c"
STRICT = ["-std=c11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror"]


def passes_what_it_claims(command):
    """Runs the suite, and holds that nothing which is claimed is left out or fails. Returns the cases that passed."""
    with CommandAdapter(command) as adapter:
        report, info = check(adapter), adapter.info
    bad = [
        (result.case, result.verdict, result.message)
        for result in report.results
        if result.verdict not in ("pass", "unsupported")
    ]
    assert bad == []
    claimed = {case.id for case in every_case() if case.level <= info.level and case.needs <= info.capabilities}
    passed = {result.case for result in report.results if result.verdict == "pass"}
    assert passed <= claimed
    return passed


@pytest.fixture
def plain_c(tmp_path):
    """The C one, compiled; every warning is an error, and so is what the sanitizers find, where there are any."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    for sanitizers in (["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"], []):
        command = [compiler, *STRICT, *sanitizers, "-o", tmp_path / "plain_c", C, "-lm"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            return tmp_path / "plain_c"
    raise AssertionError(done.stderr)


@pytest.mark.parametrize("name", ["python", "c"])
def test_an_example_passes_what_it_claims(name, request):
    """Level 1, with resume: Python on torch's rule, C on Paddle's."""
    command = [sys.executable, "-S", str(PYTHON)] if name == "python" else [str(request.getfixturevalue("plain_c"))]
    passed = passes_what_it_claims(command)
    assert {case.level for case in every_case() if case.id in passed} == {0, 1}
    assert any("resume" in case.needs for case in every_case() if case.id in passed)


def test_examples_need_no_package():
    """Imports are the standard library's, and headers C11's own."""
    imports = [node for node in ast.walk(ast.parse(PYTHON.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names}
    assert names <= sys.stdlib_module_names
    assert len(names) == 4
    headers = {line.split("<")[1].rstrip(">") for line in C.read_text().splitlines() if line.startswith("#include")}
    assert headers <= {"inttypes.h", "math.h", "stdbool.h", "stdio.h", "stdlib.h", "string.h"}
