"""
Pytest plug-in: one test per case. A failure shows the clause instead of a traceback.

This module is imported only if an adapter is named; ampscale_conformance_pytest defines the options.
"""

import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from .. import cases
from ..adapters.loading import NotFound, find
from ..model.adapter import LEVELS, parse_level
from ..model.case import Case
from ..model.subject import check_seconds
from ..model.verdicts import BAD, Result, Verdict
from ..model.versions import SUITE, belongs
from ..reports.text import heading, lines_of, printable
from .check import SECONDS, run
from .expectations import Expectations, read

MISSING = "an adapter is required: pytest --pyargs ampscale_conformance.suite --ampscale-adapter pkg.mod:NAME"


def chapter_test(chapter: str) -> Callable[[Case, pytest.FixtureRequest], None]:
    """Return a parametrized test that runs the cases of one chapter; the verdict determines the outcome."""
    chapter_cases = import_module(f"{cases.__name__}.{chapter}").CASES

    @pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in chapter_cases])
    def test(case: Case, request: pytest.FixtureRequest) -> None:
        suite_run = request.config.pluginmanager.get_plugin(Run.NAME)
        if suite_run is None:
            pytest.exit(MISSING, returncode=pytest.ExitCode.USAGE_ERROR)
        result = suite_run.result_of(case)
        request.node.user_properties += [(name, str(getattr(result, name))) for name in ("case", "clause", "verdict")]
        if result.verdict is Verdict.UNSUPPORTED:
            pytest.skip(result.message)
        if result.verdict is Verdict.XFAIL:
            pytest.xfail(result.message)
        if result.verdict in BAD:
            pytest.fail(printable("\n".join(lines_of(result))), pytrace=False)

    return test


class Run:
    """Run of the suite against one implementation under pytest. Raises a pytest.UsageError for an invalid option."""

    NAME = "ampscale-conformance"

    def __init__(self, config: pytest.Config) -> None:
        options = {name: config.getoption(f"ampscale_{name}") for name in ("adapter", "level", "suite", "expect", "seconds")}
        folder = config.invocation_params.dir
        try:
            self.adapter = find(options["adapter"], folder)
            self.level = max(LEVELS) if options["level"] is None else parse_level(options["level"])
            self.suite = SUITE if options["suite"] is None else options["suite"]
            belongs("", self.suite)  # raises a ValueError for a version that does not exist
            self.seconds = SECONDS if options["seconds"] is None else options["seconds"]
            check_seconds("--ampscale-seconds", self.seconds)
            self.expectations = Expectations(Path()) if options["expect"] is None else read(folder / options["expect"])
        except (NotFound, OSError, ValueError) as error:
            raise pytest.UsageError(str(error)) from None
        self.results: list[Result] = []  # with xdist, those of all workers

    def result_of(self, case: Case) -> Result:
        """Return the result of a case with its expectation applied."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some cases make the scale infinite on purpose
            return self.expectations.applied(run(case, self.adapter, self.seconds))

    def pytest_report_header(self) -> str:
        """Return a line that describes the implementation."""
        return f"ampscale: {heading(self.adapter.info)}"

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the cases above the level, and those that are newer than the selected version of the suite."""
        config.hook.pytest_deselected(items=[item for item in items if not self._selects(item)])
        items[:] = filter(self._selects, items)

    def _selects(self, item: pytest.Item) -> bool:
        callspec = getattr(item, "callspec", None)  # of a parametrized test
        case = callspec.params.get("case") if callspec else None
        return not isinstance(case, Case) or (case.level <= self.level and belongs(case.id, self.suite))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the verdict, from which stale expectations are determined."""
        properties = dict(report.user_properties)
        if {"case", "clause", "verdict"} <= set(properties):
            clause, case, verdict = (str(properties[name]) for name in ("clause", "case", "verdict"))
            self.results.append(Result(clause, case, Verdict(verdict)))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if an expectation is stale, or if no case was run."""
        if session.exitstatus == pytest.ExitCode.OK and self._problems():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Print the stale expectations, or that no case was run."""
        for problem in self._problems():
            terminalreporter.write_line(problem, red=True)

    def _problems(self) -> list[str]:
        stale = self.expectations.stale(self.results, {case.id: case.clause for case in cases.every_case()})
        problems = [result.message for result in stale]
        if self.results and all(result.verdict is Verdict.UNSUPPORTED for result in self.results):
            problems.append("no case was run")
        return problems
