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
from remote.commands import verdicts

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


@pytest.fixture(scope="module")
def plain_c(tmp_path_factory):
    """The C one, compiled; every warning is an error."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    program = tmp_path_factory.mktemp("c") / "plain_c"
    subprocess.run([compiler, *STRICT, "-o", program, C, "-lm"], check=True, timeout=120)
    return program


def test_plain_python_passes_what_it_claims():
    """Level 1 on torch's rule, with resume."""
    passed = passes_what_it_claims([sys.executable, "-S", str(PYTHON)])
    assert {case.level for case in every_case() if case.id in passed} == {0, 1}
    assert any("resume" in case.needs for case in every_case() if case.id in passed)


def test_plain_c_passes_what_it_claims(plain_c):
    """Level 1 on Paddle's rule, with resume."""
    passed = passes_what_it_claims([str(plain_c)])
    assert {case.level for case in every_case() if case.id in passed} == {0, 1}
    assert any("resume" in case.needs for case in every_case() if case.id in passed)


def test_plain_python_needs_no_package():
    """Its imports are the standard library's."""
    imports = [node for node in ast.walk(ast.parse(PYTHON.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names}
    assert names <= sys.stdlib_module_names
    assert len(names) == 4


def test_plain_c_needs_no_library():
    """Its headers are C11's own."""
    headers = {line.split("<")[1].rstrip(">") for line in C.read_text().splitlines() if line.startswith("#include")}
    assert headers <= {"inttypes.h", "math.h", "stdbool.h", "stdio.h", "stdlib.h", "string.h"}


@pytest.mark.parametrize("flag", ["-fsanitize=address,undefined"])
def test_plain_c_touches_nothing_that_is_not_its_own(flag, tmp_path):
    """Under the sanitizers it passes the same, and they find nothing."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    command = [
        compiler,
        "-std=c11",
        "-g",
        "-ffp-contract=off",
        flag,
        "-fno-sanitize-recover",
        "-o",
        tmp_path / "plain_c",
        C,
        "-lm",
    ]
    if subprocess.run(command, check=False, capture_output=True, timeout=120).returncode:
        pytest.skip("needs the compiler's sanitizers")
    passes_what_it_claims([str(tmp_path / "plain_c")])


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("self.good_steps >= self.growth_interval", "self.good_steps > self.growth_interval"),
        ("* self.backoff_factor", "* 0.25"),
        ("grown if math.isfinite(grown) else self.scale", "grown"),
        ('return f"{bits >> 16 | 64:04x}" if math.isnan(value) else f"{bits + 0x7FFF + (bits >> 16 & 1) >> 16:04x}"',
         'return f"{bits >> 16:04x}"'),
        ("value / self.scalers[handle].scale", "value / self.scalers[handle].scale or 0.0"),
        ("saved[\"good_steps\"]", "0"),
        ("return all(math.isfinite", "return not all(math.isnan"),
        ("except OverflowError:", "except NotImplementedError:"),
    ],
)  # fmt: skip
def test_a_fault_in_the_example_is_found(right, wrong, tmp_path):
    """So that passing says something."""
    text = PYTHON.read_text()
    assert text.count(right) == 1
    (tmp_path / "wrong.py").write_text(text.replace(right, wrong))
    with CommandAdapter([sys.executable, "-S", str(tmp_path / "wrong.py")]) as adapter:
        assert set(verdicts(check(adapter))) & {"fail", "error"}
