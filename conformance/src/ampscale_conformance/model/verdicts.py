"""Results of a run: a verdict and a `Result` for each case, and a `Report` of all."""

import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ampscale import __version__

from .adapter import ImplementationInfo
from .clauses import clauses
from .versions import SUITE, spec_version


class Verdict(StrEnum):
    """Verdict on one case. Only `PASS` counts as passed; unsupported cases are counted apart."""

    PASS = "pass"
    FAIL = "fail"  # a clause is violated, or a claimed feature is missing
    ERROR = "error"  # the implementation raised an error
    UNSUPPORTED = "unsupported"  # not claimed
    XFAIL = "xfail"  # fails, as the expectations file states
    XPASS = "xpass"  # passes, although the expectations file states that it fails
    TIMEOUT = "timeout"  # no reply in time
    CRASH = "crash"  # the process ended
    PROTOCOL_ERROR = "protocol-error"  # invalid reply


BAD = frozenset(set(Verdict) - {Verdict.PASS, Verdict.UNSUPPORTED, Verdict.XFAIL})


@dataclass(frozen=True)
class Call:
    """Record of one call of an adapter's method."""

    method: str  # "compiled().update" for a method of the compiled form
    arguments: Sequence[Any]  # in JSON form: arrays as bits, rules as objects, handles as {"handle": number}
    result: Any = None  # in JSON form, too; None if the call raised an error
    raised: str = ""  # type and message of the error; empty if there was none


@dataclass(frozen=True)
class Trajectory:
    """Expected and actual scales, the initial one and one per step; the actual scales only as far as they were read."""

    finite: str  # one "+" (finite) or "-" (overflow) per step
    expected: Sequence[float]
    got: Sequence[float]


@dataclass(frozen=True)
class Result:
    """
    Result of one case.

    Args:
        clause: Id of the clause that the case checks.
        case: Id of the case.
        verdict: Verdict on the implementation.
        message: Expected and actual value of a failure; reason of an unsupported case or an expected failure.
        level: Level of the case.
        catches: Bug that the case detects.
        calls: Recorded calls, in order.
        trajectory: Scales, if the case compares them.
        seconds: Duration.
        snippet: Script that reproduces the failure without ampscale; empty if there is none.
        reproduced: True if that script was run and reproduced the failure; None if it was not run.
    """

    clause: str
    case: str
    verdict: Verdict
    message: str = ""
    level: int = 0
    catches: str = ""
    calls: Sequence[Call] = ()
    trajectory: Trajectory | None = None
    seconds: float = 0.0
    snippet: str = ""
    reproduced: bool | None = None


@dataclass(frozen=True)
class Report:
    """
    Results of one run, with a description of the implementation and the environment.

    Args:
        info: Description of the implementation.
        results: Result of each selected case.
        environment: Versions and machine of the run, by name.
        min_passed: Number of passed cases and expected failures below which the run is not ok, since it proves too little.

    >>> report = Report(ImplementationInfo(name="mine"), [Result("MACHINE-skip", "skips", Verdict.FAIL)])
    >>> report.ok, report.counts
    (False, {'fail': 1})
    >>> report
    <Report of mine: not ok, 1 fail>
    """

    info: ImplementationInfo
    results: Sequence[Result]
    environment: Mapping[str, str] = field(default_factory=dict)
    min_passed: int = 0

    def __repr__(self) -> str:
        """Return only the counts, since the recorded calls of all results take hundreds of kilobytes."""
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        return f"<Report of {self.info.name}: {', '.join(filter(None, ('ok' if self.ok else 'not ok', counts)))}>"

    @property
    def ok(self) -> bool:
        """Return True if no result is a fail, error, timeout, crash, protocol-error or xpass, and `too_little` is empty."""
        return not self.too_little and not any(result.verdict in BAD for result in self.results)

    @property
    def too_little(self) -> str:
        """Return the reason why the run proves too little: no case was run, or too few passed; "" if there is none."""
        passed = self.counts.get("pass", 0) + self.counts.get("xfail", 0)
        if all(result.verdict is Verdict.UNSUPPORTED for result in self.results):
            return "no case was run"
        return f"at least {self.min_passed} cases must pass" if passed < self.min_passed else ""

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of results of each verdict that occurs, in the order of `Verdict`."""
        counter = Counter(result.verdict for result in self.results)
        return {str(verdict): counter[verdict] for verdict in Verdict if counter[verdict]}

    def to_json(self) -> str:
        """Return the report as JSON text; its schema is spec/conformance/report.schema.json."""
        preset = self.info.preset
        rule = preset if isinstance(preset, str) else json.loads(preset.to_json())
        head: dict[str, Any] = {"format": "ampscale conformance report", "version": 1, "suite": SUITE, "spec": spec_version()}
        info = asdict(self.info) | {"capabilities": sorted(self.info.capabilities), "preset": rule}
        head |= {"ampscale": __version__, "implementation": info, "environment": dict(self.environment)}
        head |= {name: getattr(self, name) for name in ("ok", "too_little", "counts")}
        return json.dumps(head | {"results": [_result_to_json(result) for result in self.results]}, allow_nan=False)


def environment() -> dict[str, str]:
    """Return the Python version, machine and system of this process."""
    return {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}


def _result_to_json(result: Result) -> dict[str, Any]:
    clause = clauses().get(result.clause)
    members = vars(result) | {"calls": list(map(vars, result.calls)), "basis": clause.basis if clause else ""}
    if result.trajectory is not None:
        scales = {name: [scale.hex() for scale in getattr(result.trajectory, name)] for name in ("expected", "got")}
        members["trajectory"] = vars(result.trajectory) | scales
    return members
