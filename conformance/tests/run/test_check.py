"""The referee: what comes of each way to do wrong, what is asked for at each level, and that it always comes to an end."""

import json
import signal
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from ampscale_conformance import CAPABILITIES, Report, Result, Unsupported, Verdict, check
from ampscale_conformance.model.case import Case, case
from ampscale_conformance.model.subject import Crashed, ProtocolError, TimedOut
from ampscale_conformance.model.verdicts import BAD
from ampscale_conformance.run.check import run
from mutants.plain import Plain


@case("MACHINE-growth-factor", 0, "no growth: the scale stays")
def doubles(subject):
    """Grows once."""
    handle = subject.update(subject.create(subject.rule(growth_interval=1)), True)
    got = subject.read_scale(handle)
    subject.expect(got == 2048.0, f"expected 2048.0, got {got!r}")


@case("OVERFLOW-all-finite", 1, "no answer: nothing is checked")
def sees_nothing(subject):
    """Asks of a tree without anything."""
    subject.expect(subject.all_finite([]), "expected True, got False")


class Scaler(Plain):
    """A right one; what is below differs from it in a method."""

    def __init__(self, level=0, capabilities=()):
        super().__init__("torch", level, capabilities)


def doing(**methods):
    """A right one, with other methods."""
    return type("Changed", (Scaler,), methods)()


def raising(error):
    """A method that raises."""

    def method(*_):
        raise error

    return method


def answering(value):
    """A right one, but for its answer to whether all is finite."""
    return type("Changed", (Scaler,), {"all_finite": lambda *_: value})(level=1)


def outcome(adapter, asked=doubles, seconds=5.0):
    """The verdict and the message."""
    result = run(asked, adapter, seconds)
    return result.verdict, result.message


def sleeping(*_):
    """Never ends."""
    while True:
        time.sleep(0.005)


def stubborn(*_):
    """Never ends, whatever Exception comes."""
    while True:
        with suppress(Exception):
            sleeping()


# --- verdicts ---


@pytest.mark.parametrize("method", ["create", "update", "read_scale"])
def test_a_method_decides_the_verdict(method):
    """If it raises, if it is claimed and not there or cannot be called, and if it says that it is unsupported."""
    said = f"{method} raised ArithmeticError: out of range"
    assert outcome(doing(**{method: raising(ArithmeticError("out of range"))})) == (Verdict.ERROR, said)
    absent = outcome(doing(**{method: raising(NotImplementedError("later"))}))
    assert absent == (Verdict.FAIL, f"{method} is claimed but missing: later")
    for nothing in (None, 3):
        message = f"{method} is claimed but missing: the adapter has no method {method}"
        assert outcome(doing(**{method: nothing})) == (Verdict.FAIL, message)
    assert outcome(doing(**{method: raising(Unsupported("no such scaler"))})) == (Verdict.UNSUPPORTED, "no such scaler")


def test_a_scale_decides_the_verdict():
    """A right one passes without a message, also as a number of NumPy or an array of shape (); another one fails."""
    assert outcome(Scaler()) == (Verdict.PASS, "")
    for value in (2048.0, 2048, np.float32(2048), np.asarray(2048, "float16")):
        assert outcome(doing(read_scale=lambda *_, value=value: value)) == (Verdict.PASS, "")
    assert outcome(doing(read_scale=lambda *_: 1024.0)) == (Verdict.FAIL, "expected 2048.0, got 1024.0")
    for value in ("2048", b"2048", True, None, [2048.0], 2048j, object, np.ones(2)):
        verdict, message = outcome(doing(read_scale=lambda *_, value=value: value))
        assert verdict is Verdict.FAIL, value
        assert message.startswith("read_scale: expected a float, got ")


def test_an_answer_is_a_bool():
    """A Python bool or a bool array of shape (); neither an int, nor an array with an axis."""
    for value in (True, np.True_, np.asarray(True)):
        assert outcome(answering(value), sees_nothing)[0] is Verdict.PASS, value
    for value in ("yes", 1, None, np.ones(1, bool), np.asarray(1), [True], object):
        verdict, message = outcome(answering(value), sees_nothing)
        assert verdict is Verdict.FAIL, value
        assert message.startswith("all_finite: expected a bool or a bool array of shape (), got ")


@pytest.mark.parametrize("hanging", [sleeping, stubborn])
def test_what_does_not_end_is_ended(hanging):
    """Also where it catches every Exception: what ends it is none."""
    started = time.monotonic()
    assert outcome(doing(update=hanging), seconds=0.05) == (Verdict.TIMEOUT, "not finished within 0.05 s")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(("end", "verdict"), [(TimedOut, "timeout"), (Crashed, "crash"), (ProtocolError, "protocol-error")])
def test_an_end_from_outside_is_its_verdict(end, verdict):
    """As a process that answers for the implementation meets it."""
    assert outcome(doing(update=raising(end("gone")))) == (verdict, "gone")


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_passes_through(end):
    """Whoever interrupts the suite means the suite; all else spoils no other case."""
    with pytest.raises(end):
        check(doing(update=raising(end())), cases=[doubles])
    broken = Case("breaks", "MACHINE-state", 0, "x: y", lambda subject: subject.call("update", None, True))
    assert [result.verdict for result in check(Scaler(), cases=[broken, doubles]).results] == ["error", "pass"]


# --- what is asked for ---


def test_cases_above_the_level_are_left_out():
    """They are not in the report at all; results are told as they come."""
    for level, asked in ((0, ["doubles"]), ("L0", ["doubles"]), (1, ["doubles", "sees-nothing"])):
        told = []
        report = check(Scaler(), level, cases=[doubles, sees_nothing], on_result=told.append)
        assert [result.case for result in report.results] == asked
        assert told == list(report.results)


def test_cases_above_the_claim_are_unsupported():
    """They are in the report, and nothing is called; so is a capability of a newer suite, and neither is a failure."""
    report = check(Scaler(capabilities=["telepathy", "resume", "astral"]), cases=[doubles, sees_nothing])
    message = f"unknown capability 'astral'; known are {', '.join(CAPABILITIES)}"
    assert [(result.case, result.verdict, result.message) for result in report.results] == [
        ("capability-astral", "unsupported", message),
        ("capability-telepathy", "unsupported", message.replace("astral", "telepathy")),
        ("doubles", "pass", ""),
        ("sees-nothing", "unsupported", "claims level 0; requires level 1"),
    ]
    assert (report.results[-1].calls, report.ok) == ((), True)


def test_a_case_is_asked_with_its_capabilities_alone():
    """All of them have to be claimed."""

    @case("MACHINE-next-step", 0, "x: y", "resume", "rounding")
    def needs_two(subject):
        subject.create(subject.rule())

    assert outcome(Scaler(), needs_two) == (Verdict.UNSUPPORTED, "does not claim resume, rounding")
    assert outcome(Scaler(capabilities=["resume"]), needs_two) == (Verdict.UNSUPPORTED, "does not claim rounding")
    assert outcome(Scaler(capabilities=["resume", "rounding"]), needs_two) == (Verdict.PASS, "")


@pytest.mark.parametrize(
    ("adapter", "level", "error", "words"),
    [
        *((Scaler(), level, ValueError, "level must be") for level in (5, -1, "2")),
        *((Scaler(), level, TypeError, "level must be") for level in (True, 1.0)),
        *(
            (type("It", (), {"info": info})(), None, TypeError, "adapter.info must be an ImplementationInfo, got ")
            for info in (None, {})
        ),
        (Scaler, None, TypeError, "adapter must be an object, got the class Scaler; pass Scaler()"),
    ],
)
def test_what_cannot_be_checked_is_refused(adapter, level, error, words):
    """Before anything is called."""
    with pytest.raises(error, match=words):
        check(adapter, level, cases=[doubles])


# --- the clock ---


def test_the_clock_is_put_back():
    """Whoever has an alarm of his own gets his handler back, and none of ours rings later; a result has its time."""
    before = signal.getsignal(signal.SIGALRM)
    assert 0.02 <= run(doubles, doing(update=sleeping), 0.02).seconds < 2
    run(doubles, Scaler(), 0.05)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_another_thread_goes_without_a_clock():
    """Signals are for the main thread; the case is run all the same."""
    came = []
    thread = threading.Thread(target=lambda: came.append(outcome(Scaler(), seconds=0.001)))
    thread.start()
    thread.join()
    assert came == [(Verdict.PASS, "")]


# --- reports ---


def report_of(*verdicts):
    """A report in which these came."""
    return Report(Scaler().info, tuple(Result("", f"case-{at}", Verdict(verdict)) for at, verdict in enumerate(verdicts)))


def test_a_report_is_ok_without_anything_bad():
    """Passes, unsupported and expected ones are well; all else is not. Each verdict is counted by itself, in one order."""
    for verdict in Verdict:
        well = verdict in ("pass", "unsupported", "xfail")
        assert report_of("pass", verdict).ok is well
        assert (verdict in BAD) is not well
        assert json.loads(report_of("pass", verdict).to_json())["ok"] is well
    report = report_of("crash", "unsupported", "pass", "xfail", "pass", "fail")
    assert list(report.counts.items()) == [("pass", 2), ("fail", 1), ("unsupported", 1), ("xfail", 1), ("crash", 1)]
    assert report_of().counts == {}
