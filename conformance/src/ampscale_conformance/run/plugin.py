"""
The suite under pytest: a test for each case, which fails with the clause and without a traceback.

Nothing imports this before an adapter is named: ampscale_conformance_pytest has the options.
"""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

import pytest

from .. import cases
from ..adapters.loading import NotFound, find
from ..model.adapter import LEVELS, level_of
from ..model.case import Case
from ..model.verdicts import BAD, Result, Verdict
from ..reports.text import explained, heading
from .check import SECONDS, run
from .expectations import Expectations, read

MISSING = "an implementation is wanted: pytest --pyargs ampscale_conformance.suite --ampscale-adapter pkg.mod:NAME"


def chapter_test(chapter: str) -> Callable[[Case, pytest.FixtureRequest], None]:
    """The test that puts each case of one module of conformance/cases to the implementation; a verdict decides how it ends."""
    chosen = import_module(f"{cases.__name__}.{chapter}").CASES

    @pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in chosen])
    def test(case: Case, request: pytest.FixtureRequest) -> None:
        asked = request.config.pluginmanager.get_plugin(Run.NAME)
        if asked is None:
            pytest.exit(MISSING, returncode=pytest.ExitCode.USAGE_ERROR)
        result = asked.result_of(case)
        request.node.user_properties += [(name, str(getattr(result, name))) for name in ("case", "clause", "verdict")]
        if result.verdict is Verdict.UNSUPPORTED:
            pytest.skip(result.message)
        if result.verdict is Verdict.XFAIL:
            pytest.xfail(result.message)
        if result.verdict in BAD:
            pytest.fail("\n".join(explained(result)), pytrace=False)

    return test


class Run:
    """
    One implementation, while pytest puts the suite to it.

    Raises:
        pytest.UsageError: The adapter cannot be loaded, or another option of the plug-in has a wrong value.
    """

    NAME = "ampscale-conformance"

    def __init__(self, config: pytest.Config) -> None:
        said = {name: config.getoption(f"ampscale_{name}") for name in ("adapter", "level", "expect", "seconds")}
        folder = config.invocation_params.dir
        try:
            self.adapter = find(said["adapter"], folder)
            self.level = max(LEVELS) if said["level"] is None else level_of(_number(said["level"]))
            self.seconds = SECONDS if said["seconds"] is None else float(said["seconds"])
            self.expectations = Expectations(Path()) if said["expect"] is None else read(folder / said["expect"])
        except (NotFound, OSError, ValueError) as error:
            raise pytest.UsageError(str(error)) from None
        self.came: list[Result] = []  # with xdist, those of all workers

    def result_of(self, case: Case) -> Result:
        """What comes of a case, in the light of what was expected."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a scale that becomes infinite is what some cases ask for
            return self.expectations.applied(run(case, self.adapter, self.seconds))

    def pytest_report_header(self) -> str:
        """What is tested."""
        return f"ampscale: {heading(self.adapter.info)}"

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out the cases above the level."""
        above = [item for item in items if _level(item) > self.level]
        if above:
            config.hook.pytest_deselected(items=above)
            items[:] = [item for item in items if _level(item) <= self.level]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the verdict, by which stale expectations are found."""
        said = dict(report.user_properties)
        if {"case", "clause", "verdict"} <= set(said):
            self.came.append(Result(str(said["clause"]), str(said["case"]), Verdict(str(said["verdict"]))))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A stale expectation fails the run."""
        if session.exitstatus == pytest.ExitCode.OK and self._stale():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Names the stale expectations."""
        for result in self._stale():
            terminalreporter.write_line(result.message, red=True)

    def _stale(self) -> list[Result]:
        return list(self.expectations.stale(self.came, _known()))


def _known() -> Mapping[str, str]:
    return {case.id: case.clause for case in cases.every_case()}


def _level(item: pytest.Item) -> int:
    case = getattr(item, "callspec", None) and item.callspec.params.get("case")  # type: ignore[attr-defined]  # pytest.Function
    return case.level if isinstance(case, Case) else min(LEVELS)


def _number(level: str) -> int | str:
    return int(level) if level.isdecimal() else level
