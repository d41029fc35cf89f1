"""The referee: what comes of each way to do wrong, what is asked for at each level, and that it always comes to an end."""

import json
import signal
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from ampscale_conformance import CAPABILITIES, ImplementationInfo, Report, Result, Unsupported, Verdict, check
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
    subject.expect(got == 2048.0, f"wanted 2048.0, got {got!r}")


@case("OVERFLOW-all-finite", 1, "no answer: nothing is checked")
def sees_nothing(subject):
    """Asks of a tree without anything."""
    subject.expect(subject.all_finite([]), "wanted True, got False")


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


def test_what_does_right_passes():
    """Without a message."""
    assert outcome(Scaler()) == (Verdict.PASS, "")


def test_what_does_otherwise_fails():
    """With what was wanted, and what came."""
    assert outcome(doing(read_scale=lambda *_: 1024.0)) == (Verdict.FAIL, "wanted 2048.0, got 1024.0")


@pytest.mark.parametrize("method", ["create", "update", "read_scale"])
def test_what_raises_is_an_error(method):
    """Whichever method it is; the message names it, and has the error."""
    said = f"{method} raised ArithmeticError: out of range"
    assert outcome(doing(**{method: raising(ArithmeticError("out of range"))})) == (Verdict.ERROR, said)


@pytest.mark.parametrize("method", ["create", "update", "read_scale"])
def test_what_is_claimed_and_not_there_is_a_failure(method):
    """If it says NotImplementedError, if there is no such method, and if it cannot be called."""
    absent = outcome(doing(**{method: raising(NotImplementedError("later"))}))
    assert absent == (Verdict.FAIL, f"{method} is claimed and not there: later")
    for nothing in (None, 3):
        message = f"{method} is claimed and not there: the adapter has no method {method}"
        assert outcome(doing(**{method: nothing})) == (Verdict.FAIL, message)


def test_a_method_that_does_not_exist_is_a_failure():
    """An adapter need not inherit."""

    class Bare:
        info = ImplementationInfo(name="bare")

    assert outcome(Bare()) == (Verdict.FAIL, "create is claimed and not there: the adapter has no method create")


@pytest.mark.parametrize("method", ["create", "update", "read_scale"])
def test_what_is_said_to_be_unsupported_is(method):
    """With its own words."""
    assert outcome(doing(**{method: raising(Unsupported("no such scaler"))})) == (Verdict.UNSUPPORTED, "no such scaler")


@pytest.mark.parametrize("value", ["2048", b"2048", True, None, [2048.0], 2048j, object, np.ones(2)], ids=repr)
def test_a_scale_that_is_no_number_is_a_failure(value):
    """Nothing is converted that is not one."""
    verdict, message = outcome(doing(read_scale=lambda *_: value))
    assert verdict is Verdict.FAIL
    assert message.startswith("read_scale: wanted a float, got ")


@pytest.mark.parametrize("value", [2048.0, 2048, np.float32(2048), np.float64(2048), np.asarray(2048, "float16")], ids=repr)
def test_a_scale_may_be_any_number(value):
    """Of Python or of NumPy, and an array of shape ()."""
    assert outcome(doing(read_scale=lambda *_: value))[0] is Verdict.PASS


@pytest.mark.parametrize("value", ["yes", 1, None, np.ones(1, bool), np.asarray(1), [True], object], ids=repr)
def test_an_answer_that_is_no_bool_is_a_failure(value):
    """Neither an int, nor an array with an axis."""
    adapter = type("Changed", (Scaler,), {"all_finite": lambda *_: value})(level=1)
    verdict, message = outcome(adapter, sees_nothing)
    assert verdict is Verdict.FAIL
    assert message.startswith("all_finite: wanted a bool or a bool array of shape (), got ")


@pytest.mark.parametrize("value", [True, np.True_, np.asarray(True)], ids=repr)
def test_an_answer_may_be_a_bool_of_either_kind(value):
    """A Python bool, or a bool array of shape ()."""
    assert outcome(type("Changed", (Scaler,), {"all_finite": lambda *_: value})(level=1), sees_nothing)[0] is Verdict.PASS


@pytest.mark.parametrize("hanging", [sleeping, stubborn])
def test_what_does_not_end_is_ended(hanging):
    """Also where it catches every Exception: what ends it is none."""
    started = time.monotonic()
    assert outcome(doing(update=hanging), seconds=0.05) == (Verdict.TIMEOUT, "no end after 0.05 s")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(("end", "verdict"), [(TimedOut, "timeout"), (Crashed, "crash"), (ProtocolError, "protocol-error")])
def test_an_end_from_outside_is_its_verdict(end, verdict):
    """As a process that answers for the implementation meets it."""
    assert outcome(doing(update=raising(end("gone")))) == (verdict, "gone")


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_exception_passes_through(end):
    """Whoever interrupts the suite means the suite."""
    with pytest.raises(end):
        check(doing(update=raising(end())), cases=[doubles])


def test_a_fault_spoils_no_other_case():
    """Each case has a result of its own."""
    broken = Case("breaks", "MACHINE-state", 0, "x: y", lambda subject: subject.call("update", None, True))
    report = check(Scaler(), cases=[broken, doubles])
    assert [result.verdict for result in report.results] == ["error", "pass"]


# --- handles ---


class Functional:
    """A handle is what its maker wants: here what `wrap` makes of scale and count."""

    info = ImplementationInfo(name="functional")

    def __init__(self, wrap, unwrap):
        self.wrap, self.unwrap = wrap, unwrap

    def create(self, rule):
        return self.wrap(rule.init_scale)

    def update(self, handle, finite):
        return self.wrap(self.unwrap(handle) * (2 if finite else 0.5))

    def read_scale(self, handle):
        return self.unwrap(handle)


@pytest.mark.parametrize(
    ("wrap", "unwrap"),
    [
        (lambda scale: (scale,), lambda handle: handle[0]),
        (lambda scale: {"scale": scale}, lambda handle: handle["scale"]),
        (lambda scale: [scale], lambda handle: handle[0]),
        (lambda scale: np.full(3, scale), lambda handle: handle[0]),
        (lambda scale: scale, lambda handle: handle),
    ],
    ids=["tuple", "dict", "list", "array", "number"],
)
def test_a_handle_is_anything(wrap, unwrap):
    """It is handed back, and neither looked into nor compared."""
    result = run(doubles, Functional(wrap, unwrap))
    assert result.verdict is Verdict.PASS
    assert [call.arguments[:1] for call in result.calls[1:]] == [[{"handle": 0}], [{"handle": 1}]]


def test_a_handle_may_be_changed_in_place():
    """Then `update` returns None."""
    result = run(doubles, Scaler())
    assert [call.method for call in result.calls] == ["create", "update", "read_scale"]
    assert [call.arguments[:1] for call in result.calls[1:]] == [[{"handle": 0}], [{"handle": 0}]]
    assert [call.result for call in result.calls] == [{"handle": 0}, None, (2048.0).hex()]


def test_a_call_that_raised_is_written_down():
    """With what it raised, and what it was given."""
    result = run(doubles, doing(update=raising(ValueError("no"))))
    last = result.calls[-1]
    assert (last.method, last.arguments, last.result, last.raised) == ("update", [{"handle": 0}, True], None, "ValueError: no")


# --- what is asked for ---


@pytest.mark.parametrize(("level", "asked"), [(0, ["doubles"]), ("L0", ["doubles"]), (1, ["doubles", "sees-nothing"])])
def test_cases_above_the_level_are_left_out(level, asked):
    """They are not in the report at all."""
    assert [result.case for result in check(Scaler(), level, cases=[doubles, sees_nothing]).results] == asked


def test_cases_above_the_claim_are_unsupported():
    """They are in the report, and nothing is called."""
    results = check(Scaler(), cases=[doubles, sees_nothing]).results
    assert [result.verdict for result in results] == ["pass", "unsupported"]
    assert results[1].message == "claims level 0, and this is level 1"
    assert results[1].calls == ()


def test_a_case_is_asked_with_its_capabilities_alone():
    """All of them have to be claimed."""

    @case("MACHINE-next-step", 0, "x: y", "resume", "rounding")
    def needs_two(subject):
        subject.create(subject.rule())

    assert outcome(Scaler(), needs_two) == (Verdict.UNSUPPORTED, "does not claim resume, rounding")
    assert outcome(Scaler(capabilities=["resume"]), needs_two) == (Verdict.UNSUPPORTED, "does not claim rounding")
    assert outcome(Scaler(capabilities=["resume", "rounding"]), needs_two) == (Verdict.PASS, "")


def test_an_unknown_capability_is_unsupported():
    """It may be one of a newer suite; it is shown, and it is no failure."""
    report = check(Scaler(capabilities=["telepathy", "resume", "astral"]), cases=[doubles])
    assert [(result.case, result.verdict) for result in report.results] == [
        ("capability-astral", "unsupported"),
        ("capability-telepathy", "unsupported"),
        ("doubles", "pass"),
    ]
    message = f"this suite knows no capability 'astral'; it knows {', '.join(CAPABILITIES)}"
    assert (report.results[0].message, report.ok) == (message, True)


@pytest.mark.parametrize(
    ("level", "error"), [(5, ValueError), (-1, ValueError), ("2", ValueError), (True, TypeError), (1.0, TypeError)]
)
def test_a_wrong_level_is_refused(level, error):
    """Before anything is called."""
    with pytest.raises(error, match="level must be"):
        check(doing(create=raising(AssertionError)), level, cases=[doubles])


@pytest.mark.parametrize("info", [None, "mine", {"name": "mine"}])
def test_an_adapter_without_info_is_refused(info):
    """It is no adapter."""
    with pytest.raises(TypeError, match="an adapter must have an ImplementationInfo as `info`, got "):
        check(type("Nothing", (), {"info": info})(), cases=[doubles])


def test_results_are_told_as_they_come():
    """In their order."""
    told = []
    report = check(Scaler(), cases=[doubles, sees_nothing], on_result=told.append)
    assert told == list(report.results)


# --- the clock ---


def test_the_clock_is_put_back():
    """Whoever has an alarm of his own gets his handler back, and none of ours rings later."""
    before = signal.getsignal(signal.SIGALRM)
    run(doubles, doing(update=sleeping), 0.02)
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


def test_a_result_has_its_time():
    """In seconds."""
    slow = doing(update=lambda self, handle, finite: (time.sleep(0.03), Plain.update(self, handle, finite))[1])
    assert 0.03 <= run(doubles, slow).seconds < 2


# --- reports ---


def report_of(*verdicts):
    """A report in which these came."""
    return Report(Scaler().info, tuple(Result("", f"case-{at}", Verdict(verdict)) for at, verdict in enumerate(verdicts)))


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_report_is_ok_without_anything_bad(verdict):
    """Passes, unsupported and expected ones are well; all else is not, and so is the unexpected pass."""
    well = verdict in ("pass", "unsupported", "xfail")
    assert report_of("pass", verdict).ok is well
    assert (verdict in BAD) is not well
    assert json.loads(report_of("pass", verdict).to_json())["ok"] is well


def test_nothing_but_a_pass_counts_as_passed():
    """Each verdict is counted by itself, in one order."""
    report = report_of("crash", "unsupported", "pass", "xfail", "pass", "fail")
    assert list(report.counts.items()) == [("pass", 2), ("fail", 1), ("unsupported", 1), ("xfail", 1), ("crash", 1)]
    assert report_of().counts == {}


def test_a_class_is_no_adapter():
    """It says so, instead of calling methods without an object."""
    with pytest.raises(TypeError, match="must be an object, got the class Scaler: call it"):
        check(Scaler)
