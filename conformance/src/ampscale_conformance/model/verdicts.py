"""What can come out of a case: a closed set of verdicts, a result for each case, a report for all."""

import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ampscale import __version__

from .adapter import ImplementationInfo


class Verdict(StrEnum):
    """What came of a case. Only `PASS` counts as passed, and unsupported is never among it."""

    PASS = "pass"
    FAIL = "fail"  # it does something else than the clause says, or lacks what it claims
    ERROR = "error"  # it raised where nothing is to be raised
    UNSUPPORTED = "unsupported"  # it does not claim this
    XFAIL = "xfail"  # it does not pass, as its expectations say
    XPASS = "xpass"  # it passes although its expectations say otherwise
    TIMEOUT = "timeout"  # no answer in time
    CRASH = "crash"  # its process ended
    PROTOCOL_ERROR = "protocol-error"  # an answer that is no answer


BAD = frozenset(set(Verdict) - {Verdict.PASS, Verdict.UNSUPPORTED, Verdict.XFAIL})


@dataclass(frozen=True)
class Call:
    """
    One call of an adapter's method, as it went.

    Args:
        method: Its name; a method of an implementation that another one makes, as "compiled().update".
        arguments: In JSON's words: arrays as bits, rules as objects, handles as {"handle": number}.
        result: Likewise; None where it raised.
        raised: The type and the words of what it raised; empty otherwise.
    """

    method: str
    arguments: Sequence[Any]
    result: Any = None
    raised: str = ""


@dataclass(frozen=True)
class Trajectory:
    """Scales step by step, the initial one first: what the oracle wants, and what came as far as it came."""

    finite: str  # one "+" or "-" a step
    wanted: Sequence[float]
    got: Sequence[float]


@dataclass(frozen=True)
class Result:
    """
    What came of one case.

    Args:
        clause: The clause of spec/ that the case holds against.
        case: The case's id.
        verdict: See `Verdict`.
        message: What was wanted and what came; the reason of an unsupported or an expected one.
        level: The case's level.
        catches: The fault that the case is there for.
        calls: What was called, in order.
        trajectory: The scales, where the case is about them.
        seconds: How long it took.
        snippet: A script that shows the failure without ampscale; empty where there is none.
        reproduced: Whether that script was run and did show it; None where it was not run.
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
    """All results of one run, and of what and where it was."""

    info: ImplementationInfo
    results: Sequence[Result]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing failed: no fail, error, timeout, crash, protocol-error or unexpected pass."""
        return not any(result.verdict in BAD for result in self.results)

    @property
    def counts(self) -> dict[str, int]:
        """How many results there are of each verdict that occurs, in the order of `Verdict`."""
        found = Counter(result.verdict for result in self.results)
        return {str(verdict): found[verdict] for verdict in Verdict if found[verdict]}

    def to_json(self) -> str:
        """The report as a JSON object; spec/conformance/report.schema.json is its form."""
        info = asdict(self.info)
        info["capabilities"] = sorted(info["capabilities"])
        preset = self.info.preset
        info["preset"] = preset if isinstance(preset, str) else json.loads(preset.to_json())
        said = {
            "format": "ampscale conformance report",
            "version": 1,
            "ampscale": __version__,
            "implementation": info,
            "environment": dict(self.environment),
            "ok": self.ok,
            "counts": self.counts,
            "results": [_written(result) for result in self.results],
        }
        return json.dumps(said, allow_nan=False)


def here() -> dict[str, str]:
    """Where a run takes place."""
    return {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}


def _written(result: Result) -> dict[str, Any]:
    said = asdict(result)
    if result.trajectory is not None:
        for name in ("wanted", "got"):
            said["trajectory"][name] = [scale.hex() for scale in said["trajectory"][name]]
    return said
