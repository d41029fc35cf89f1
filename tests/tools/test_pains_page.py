"""Every report in docs/pains.md has tests that exist, or a reason."""

import ast
from functools import cache

from pains_page import ROOT, reports


@cache
def functions(file):
    """Return the names of the functions of a file."""
    return {node.name for node in ast.parse((ROOT / file).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_named_tests_exist():
    """After renaming a test, rename it in tools/pains/pains.toml, too."""
    tests = [test.split("::") for report in reports() for test in report.get("tests", ())]
    assert [(file, name) for file, name in tests if not (ROOT / file).is_file() or name not in functions(file)] == []


def test_every_report_has_threads_and_tests_or_a_reason():
    """Each report has a unique id."""
    for report in reports():
        assert report["threads"], report["id"]
        assert report.get("tests") or report.get("reason"), report["id"]
    assert len({report["id"] for report in reports()}) == len(reports())
