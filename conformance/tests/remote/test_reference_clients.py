"""The two example clients pass every case that they claim, and require no package."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ampscale_conformance.cases import every_case
from ampscale_conformance.remote.client import CommandAdapter
from ampscale_conformance.run.check import check

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHON, C = EXAMPLES / "plain_python.py", EXAMPLES / "plain_c.c"
STRICT = ["-std=c11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror"]


def passed_cases(command):
    """Run the suite, check that no case fails and that passed cases are claimed, and return the ids of passed cases."""
    with CommandAdapter(command) as adapter:
        report, info = check(adapter), adapter.info
    failures = [
        (result.case, result.verdict, result.message)
        for result in report.results
        if result.verdict not in ("pass", "unsupported")
    ]
    assert failures == []
    claimed = {case.id for case in every_case() if case.level <= info.level and case.needs <= info.capabilities}
    passed = {result.case for result in report.results if result.verdict == "pass"}
    assert passed <= claimed
    return passed


@pytest.fixture
def plain_c(tmp_path):
    """Compile the C example with warnings as errors, and with sanitizers if they are available; return the program's path."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    for sanitizers in (["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"], []):
        command = [compiler, *STRICT, *sanitizers, "-o", tmp_path / "plain_c", C, "-lm"]
        process = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        if process.returncode == 0:
            return tmp_path / "plain_c"
    raise AssertionError(process.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["python", "c"])
def test_examples_pass_what_they_claim(name, request):
    """Both clients claim level 1 with resume; the Python client implements torch's rule, the C client Paddle's."""
    command = [sys.executable, "-S", str(PYTHON)] if name == "python" else [str(request.getfixturevalue("plain_c"))]
    passed = passed_cases(command)
    assert {case.level for case in every_case() if case.id in passed} == {0, 1}
    assert any("resume" in case.needs for case in every_case() if case.id in passed)


def test_examples_require_no_package():
    """The Python client imports the standard library only, and the C client includes C11 headers only."""
    imports = [node for node in ast.walk(ast.parse(PYTHON.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names}
    assert names
    assert names <= sys.stdlib_module_names
    headers = {line.split("<")[1].rstrip(">") for line in C.read_text().splitlines() if line.startswith("#include")}
    assert headers <= {"inttypes.h", "math.h", "stdbool.h", "stdio.h", "stdlib.h", "string.h"}
