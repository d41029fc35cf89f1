"""Test runner: runs every case against an implementation and records a verdict for each."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import FrameType
from typing import NoReturn

import numpy as np

from ..cases import every_case
from ..model.adapter import CAPABILITIES, LEVELS, RANKS_SECONDS, Adapter, ImplementationInfo, level_of
from ..model.case import Case
from ..model.subject import VERDICTS, Interruption, Subject, TimedOut, check_seconds, message_of, verdict_of
from ..model.verdicts import Report, Result, Verdict, environment
from ..model.versions import RENAMED
from ..remote.client import Client

SECONDS = 60.0
AGAIN = 10.0  # seconds between further alarms, since Python ignores errors in some places, such as weakref callbacks
MIN_PASSED = 10  # in the whole suite: fewer passed cases prove nothing; the simplest adapter of this package passes 20


def check(
    adapter: Adapter,
    level: int | None = None,
    *,
    case: str = "*",
    clause: str = "*",
    seconds: float = SECONDS,
    cases: Iterable[Case] | None = None,
    min_passed: int | None = None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> Report:
    """
    Run the suite against an implementation.

    Args:
        adapter: Adapter of the implementation.
        level: Highest level of the cases to run, 0 to 5; None for all. Cases above the implementation's level are unsupported.
        case: Run only cases whose id matches this glob, as `--case` of the command.
        clause: Run only cases whose clause matches this glob, as `--clause` of the command.
        seconds: Time limit per case; at least 120 seconds for a case that starts ranks or compiles. In this process, the limit is
            enforced by a signal, which works only on POSIX and in the main thread. It is always enforced for an implementation
            in another process.
        cases: `Case` objects to run instead of the whole suite.
        min_passed: Number of passed cases below which the report is not ok; by default 10 for the whole suite, and 0 for selected
            cases. A report without any case that was run is never ok.
        on_result: Called with the result of each case as soon as it is known.

    Returns:
        Report with a result for each unknown capability and each case. An Exception of the implementation becomes a verdict;
        other BaseExceptions, such as KeyboardInterrupt, propagate.

    Raises:
        TypeError: *adapter* is a class or lacks an `info`, *level* or *min_passed* is not an int, *seconds* is not a number, or
            *cases* is a str.
        ValueError: *level* is not a level, *min_passed* is negative, *seconds* is not a time limit, or no case matches *case* and
            *clause*.

    >>> from ampscale_conformance.adapters.loading import find
    >>> check(find("ampscale-numpy"), level=0).ok
    True
    """
    if isinstance(adapter, type):
        raise TypeError(f"adapter must be an object, got the class {adapter.__name__}; pass {adapter.__name__}()")
    if not isinstance(getattr(adapter, "info", None), ImplementationInfo):
        raise TypeError(f"adapter.info must be an ImplementationInfo, got {getattr(adapter, 'info', None)!r}")
    if isinstance(cases, str):
        raise TypeError(f"cases must be Case objects, got {cases!r}; pass case={cases!r} to select cases by their ids")
    check_seconds("seconds", seconds)
    if min_passed is not None:
        _check_min_passed(min_passed)
    highest = max(LEVELS) if level is None else level_of(level)
    has_globs = (case, clause) != ("*", "*")
    selected = [each for each in (every_case() if cases is None else cases) if matches(each, case, clause)]
    if has_globs and not selected:
        raise ValueError(f"no case matches id {case!r} and clause {clause!r}")
    results = list(_unknown_capabilities(adapter.info))
    for each in selected:
        if each.level <= highest:
            results.append(run(each, adapter, seconds))
            on_result(results[-1])
    if min_passed is None:
        min_passed = 0 if has_globs or cases is not None else MIN_PASSED
    return Report(adapter.info, tuple(results), environment(), min_passed)


def _check_min_passed(min_passed: object) -> None:
    if isinstance(min_passed, bool) or not isinstance(min_passed, int):
        raise TypeError(f"min_passed must be an int or None, got {min_passed!r}")
    if min_passed < 0:
        raise ValueError(f"min_passed must be at least 0, got {min_passed}")


def matches(case: Case, case_glob: str, clause_glob: str) -> bool:
    """Return True if the id and the clause of a case match these globs. A glob can be the former id of a case."""
    return fnmatchcase(case.id, RENAMED.get(case_glob, case_glob)) and fnmatchcase(case.clause, clause_glob)


def run(case: Case, adapter: Adapter, seconds: float = SECONDS) -> Result:
    """Return the result of one case."""
    if missing := _missing(case, adapter.info):
        return Result(case.clause, case.id, Verdict.UNSUPPORTED, missing, case.level, case.catches)
    subject = Subject(adapter)
    started = time.perf_counter()
    verdict, message = Verdict.PASS, ""
    limit = max(seconds, RANKS_SECONDS) if {"ranks", "jit"} & case.needs else seconds  # processes start, compilers compile
    try:
        with _limit(limit), np.errstate(all="ignore"):
            case.run(subject)  # cases cause overflows on purpose, and NumPy warns of each
    except tuple(VERDICTS) as error:
        verdict, message = verdict_of(error), message_of(error)
    duration = time.perf_counter() - started
    if isinstance(adapter, Client):
        try:
            adapter.reset()
        except Interruption as interruption:  # a fault of the process after its last reply still belongs to this case
            if verdict is Verdict.PASS:
                verdict, message = verdict_of(interruption), str(interruption)
    message = message.replace(f" ({case.clause})", "")  # a report names the clause itself
    calls = tuple(subject.calls)
    return Result(case.clause, case.id, verdict, message, case.level, case.catches, calls, subject.trajectory, duration)


def _unknown_capabilities(info: ImplementationInfo) -> Iterator[Result]:
    """Yield an error for each capability that is not in `CAPABILITIES`: a misspelled claim would leave out cases unnoticed."""
    for claim in sorted(set(info.capabilities) - set(CAPABILITIES)):
        nearest = get_close_matches(claim.lower(), CAPABILITIES, n=1)
        remedy = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(CAPABILITIES)}"
        yield Result("", f"capability-{claim}", Verdict.ERROR, f"unknown capability {claim!r}; {remedy}")


def _missing(case: Case, info: ImplementationInfo) -> str:
    """Return the level or capabilities that the case requires and the implementation does not claim, or ""."""
    if case.level > info.level:
        return f"claims level {info.level}; requires level {case.level}"
    missing = sorted(case.needs - set(info.capabilities))
    return f"does not claim {', '.join(missing)}" if missing else ""


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise TimedOut in the block after this time, if signals can interrupt it."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_timeout(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimedOut(f"not finished within {seconds:g} s")

    old_handler = signal.signal(signal.SIGALRM, raise_timeout)
    remaining, _ = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining)  # restart an alarm of the caller: it fires late rather than never
        signal.signal(signal.SIGALRM, old_handler)
