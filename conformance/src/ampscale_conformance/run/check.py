"""The referee: puts every case to an implementation, and says what came of each."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from ..cases import every_case
from ..model.adapter import CAPABILITIES, LEVELS, Adapter, ImplementationInfo, Unsupported, level_of
from ..model.case import Case
from ..model.subject import Absent, Failed, Interruption, Raised, Subject, TimedOut
from ..model.verdicts import Report, Result, Verdict, here
from ..remote.client import Client
from ..remote.transcript import ENDS

SECONDS = 60.0

_VERDICTS: dict[type[BaseException], Verdict] = {
    Failed: Verdict.FAIL,
    Absent: Verdict.FAIL,
    Raised: Verdict.ERROR,
    Unsupported: Verdict.UNSUPPORTED,
    **{kind: verdict for verdict, kind in ENDS.items()},
}


def check(
    adapter: Adapter,
    level: int | None = None,
    *,
    seconds: float = SECONDS,
    cases: Iterable[Case] | None = None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> Report:
    """
    Puts the suite to an implementation.

    Args:
        adapter: The implementation.
        level: Cases above this level are left out; None for all, of which those above the implementation's own level are
            unsupported.
        seconds: How long one case may take. It is kept where there are signals to keep it with: on POSIX, in the main
            thread. An implementation in a process of its own is held to it everywhere.
        cases: Other cases than the suite's.
        on_result: Called with each result as it comes.

    Returns:
        A result for each case. Nothing that an implementation does or raises is raised here, save what is no
        `Exception`, as a KeyboardInterrupt.

    Raises:
        TypeError: It is a class, it has no `info`, or *level* is no int.
        ValueError: There is no such level.
    """
    if isinstance(adapter, type):
        raise TypeError(f"an adapter must be an object, got the class {adapter.__name__}: call it")
    if not isinstance(getattr(adapter, "info", None), ImplementationInfo):
        raise TypeError(f"an adapter must have an ImplementationInfo as `info`, got {getattr(adapter, 'info', None)!r}")
    highest = max(LEVELS) if level is None else level_of(level)
    asked = [case for case in (every_case() if cases is None else cases) if case.level <= highest]
    results = list(unknown_claims(adapter.info))
    for case in asked:
        results.append(run(case, adapter, seconds))
        on_result(results[-1])
    return Report(adapter.info, tuple(results), here())


def run(case: Case, adapter: Adapter, seconds: float = SECONDS) -> Result:
    """What comes of one case."""
    lacking = _lacking(case, adapter.info)
    if lacking:
        return Result(case.clause, case.id, Verdict.UNSUPPORTED, lacking, case.level, case.catches)
    subject, started = Subject(adapter), time.perf_counter()
    verdict, message = _outcome(case, subject, seconds)
    spent = time.perf_counter() - started
    if isinstance(adapter, Client):
        try:
            adapter.reset()
        except Interruption as ended:  # what comes after the last answer is still this case's
            if verdict is Verdict.PASS:
                verdict, message = _VERDICTS[type(ended)], str(ended)
    calls = tuple(subject.calls)
    return Result(case.clause, case.id, verdict, message, case.level, case.catches, calls, subject.trajectory, spent)


def unknown_claims(info: ImplementationInfo) -> Iterator[Result]:
    """An unsupported result for each capability that this suite does not know."""
    for claim in sorted(set(info.capabilities) - set(CAPABILITIES)):
        message = f"this suite knows no capability {claim!r}; it knows {', '.join(CAPABILITIES)}"
        yield Result("", f"capability-{claim}", Verdict.UNSUPPORTED, message)


def _lacking(case: Case, info: ImplementationInfo) -> str:
    if case.level > info.level:
        return f"claims level {info.level}, and this is level {case.level}"
    lacking = sorted(case.needs - set(info.capabilities))
    return f"does not claim {', '.join(lacking)}" if lacking else ""


def _outcome(case: Case, subject: Subject, seconds: float) -> tuple[Verdict, str]:
    try:
        with _limit(seconds):
            case.run(subject)
    except tuple(_VERDICTS) as ended:
        return _VERDICTS[type(ended)], str(ended)
    return Verdict.PASS, ""


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """TimedOut in the block after this time, where signals can do that."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimedOut(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)  # somebody else's alarm goes on; late, and not never
        signal.signal(signal.SIGALRM, before)
