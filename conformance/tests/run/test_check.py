"""The test runner: verdicts, choice of cases, time limits and reports."""

import json
import signal
import time
from contextlib import suppress

import jax.numpy as jnp
import numpy as np
import pytest
from ampscale_conformance import CAPABILITIES, Report, Result, Unsupported, Verdict, check
from ampscale_conformance.model.case import Case, case
from ampscale_conformance.model.verdicts import BAD
from ampscale_conformance.run.check import run
from mutants.plain import Plain


@case("MACHINE-growth-factor", 0, "no growth: the scale stays")
def doubles(subject):
    """Check one growth."""
    handle = subject.update(subject.create(subject.rule(growth_interval=1)), True)
    got = subject.read_scale(handle)
    subject.expect(got == 2048.0, f"expected 2048.0, got {got!r}")


@case("OVERFLOW-all-finite", 1, "no check: the result is ignored")
def checks_an_empty_tree(subject):
    """Check an empty tree."""
    subject.expect(subject.all_finite([]), "expected True, got False")


class Scaler(Plain):
    """Conforming scaler; the functions below replace single methods."""

    def __init__(self, level=0, capabilities=()):
        super().__init__("torch", level, capabilities)


def with_methods(**methods):
    """Return a conforming scaler with other methods."""
    return type("Changed", (Scaler,), methods)()


def raising(error):
    """Return a method that raises an error."""

    def method(*_):
        raise error

    return method


def with_flag(value):
    """Return a conforming scaler whose `all_finite` returns *value*."""
    return type("Changed", (Scaler,), {"all_finite": lambda *_: value})(level=1)


def outcome(adapter, case_=doubles, seconds=5.0):
    """Return the verdict and the message of a case."""
    result = run(case_, adapter, seconds)
    return result.verdict, result.message


def sleeping(*_):
    """Sleep indefinitely, a little at a time."""
    while True:
        time.sleep(0.005)


def stubborn(*_):
    """Loop indefinitely, and suppress every Exception."""
    while True:
        with suppress(Exception):
            sleeping()


# --- verdicts ---


@pytest.mark.parametrize("method", ["create", "update", "read_scale"])
def test_each_method_determines_the_verdict(method):
    """A method raises an error, is claimed but missing or not callable, or is unsupported."""
    message = f"{method} raised ArithmeticError: out of range"
    assert outcome(with_methods(**{method: raising(ArithmeticError("out of range"))})) == (Verdict.ERROR, message)
    absent = outcome(with_methods(**{method: raising(NotImplementedError("later"))}))
    assert absent == (Verdict.FAIL, f"{method} is claimed but missing: later")
    for missing in (None, 3):
        message = f"{method} is claimed but missing: the adapter has no method {method}"
        assert outcome(with_methods(**{method: missing})) == (Verdict.FAIL, message)
    assert outcome(with_methods(**{method: raising(Unsupported("no such scaler"))})) == (Verdict.UNSUPPORTED, "no such scaler")


def test_errors_of_an_adapters_own_types_have_verdicts():
    """A subclass of Unsupported counts as Unsupported. A message that cannot be formatted is replaced by a note."""

    class TooOld(Unsupported):
        pass

    class UnprintableError(Exception):
        __str__ = raising(RuntimeError())

    note = "its message cannot be formatted: RuntimeError"
    assert outcome(with_methods(create=raising(TooOld("needs 2.0")))) == (Verdict.UNSUPPORTED, "needs 2.0")
    assert outcome(with_methods(create=raising(UnprintableError()))) == (Verdict.ERROR, f"create raised UnprintableError: {note}")


def test_an_unreadable_array_is_a_failure():
    """JAX deletes arrays that are donated to a compiled function."""
    deleted = jnp.ones(2)
    deleted.delete()
    verdict, message = outcome(with_flag(deleted), checks_an_empty_tree)
    assert verdict is Verdict.FAIL
    assert message.startswith("all_finite: expected a readable array, got RuntimeError: Array has been deleted")


def test_read_scale_must_return_a_number():
    """The number may be a NumPy number or an array of shape ()."""
    assert outcome(Scaler()) == (Verdict.PASS, "")
    for value in (2048.0, 2048, np.float32(2048), np.asarray(2048, "float16")):
        assert outcome(with_methods(read_scale=lambda *_, value=value: value)) == (Verdict.PASS, "")
    assert outcome(with_methods(read_scale=lambda *_: 1024.0)) == (Verdict.FAIL, "expected 2048.0, got 1024.0")
    for value in ("2048", b"2048", True, None, [2048.0], 2048j, object, np.ones(2)):
        verdict, message = outcome(with_methods(read_scale=lambda *_, value=value: value))
        assert verdict is Verdict.FAIL, value
        assert message.startswith("read_scale: expected a float, got ")


def test_a_flag_must_be_a_bool():
    """A flag may be a bool array of shape (), but neither an int nor an array with an axis."""
    for value in (True, np.True_, np.asarray(True)):
        assert outcome(with_flag(value), checks_an_empty_tree)[0] is Verdict.PASS, value
    for value in ("yes", 1, None, np.ones(1, bool), np.asarray(1), [True], object):
        verdict, message = outcome(with_flag(value), checks_an_empty_tree)
        assert verdict is Verdict.FAIL, value
        assert message.startswith("all_finite: expected a bool or a bool array of shape (), got ")


@pytest.mark.parametrize("hanging", [sleeping, stubborn])
def test_an_endless_method_times_out(hanging):
    """Suppressing every Exception does not prevent the timeout, which is a BaseException."""
    started = time.monotonic()
    assert outcome(with_methods(update=hanging), seconds=0.05) == (Verdict.TIMEOUT, "not finished within 0.05 s")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_propagates(interrupt):
    """Any other error affects only its own case."""
    with pytest.raises(interrupt):
        check(with_methods(update=raising(interrupt())), cases=[doubles])
    broken = Case("breaks", "MACHINE-state", 0, "x: y", lambda subject: subject.call("update", None, True))
    assert [result.verdict for result in check(Scaler(), cases=[broken, doubles]).results] == ["error", "pass"]


# --- chosen cases ---


def test_cases_above_the_level_are_not_reported():
    """`on_result` is called with each result of the report."""
    for level, ids in ((0, ["doubles"]), ("L0", ["doubles"]), (1, ["doubles", "checks-an-empty-tree"])):
        received = []
        report = check(Scaler(), level, cases=[doubles, checks_an_empty_tree], on_result=received.append)
        assert [result.case for result in report.results] == ids
        assert received == list(report.results)


def test_cases_above_the_claimed_level_are_unsupported():
    """No method of the adapter is called. This is not a failure."""
    report = check(Scaler(capabilities=["resume"]), cases=[doubles, checks_an_empty_tree])
    assert [(result.case, result.verdict, result.message) for result in report.results] == [
        ("doubles", "pass", ""),
        ("checks-an-empty-tree", "unsupported", "claims level 0; requires level 1"),
    ]
    assert (report.results[-1].calls, report.ok) == ((), True)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "1"])
def test_a_time_limit_must_be_positive_and_finite(seconds):
    """A timer of 0 seconds would never fire."""
    with pytest.raises((TypeError, ValueError), match=r"^seconds must be "):
        check(Scaler(), cases=[doubles], seconds=seconds)


@pytest.mark.parametrize("min_passed", ["3", 1.5, True, -1])
def test_the_least_number_of_passed_cases_must_be_an_int_of_at_least_0(min_passed):
    """A bool is not a number."""
    with pytest.raises((TypeError, ValueError), match=rf"^min_passed must be .*, got {min_passed!r}$"):
        check(Scaler(), cases=[doubles], min_passed=min_passed)


def test_globs_select_cases():
    """
    Globs match ids and clauses, as in the command; `min_passed` is then 0.

    A glob that matches no case raises an error: it must match the whole id.
    """
    report = check(Scaler(), case="grows-*", clause="MACHINE-*")
    assert report.results
    assert all(result.case.startswith("grows-") for result in report.results)
    assert report.min_passed == 0
    with pytest.raises(ValueError, match=r"^no case matches id 'grow' and clause '\*'$"):
        check(Scaler(), case="grow")


def test_cases_must_not_be_a_glob():
    with pytest.raises(TypeError, match=r"pass case='grows-\*' to select cases by their ids$"):
        check(Scaler(), cases="grows-*")


def test_an_unknown_capability_is_an_error():
    """The message suggests the nearest known capability, if there is one."""
    report = check(Scaler(capabilities=["telepathy", "Bfloat"]), cases=[doubles])
    assert [(result.case, result.verdict, result.message) for result in report.results[:2]] == [
        ("capability-Bfloat", "error", "unknown capability 'Bfloat'; did you mean bfloat16?"),
        ("capability-telepathy", "error", f"unknown capability 'telepathy'; known are {', '.join(CAPABILITIES)}"),
    ]
    assert not report.ok


def test_capabilities_are_any_iterable_of_strings():
    """An iterator, which can be read only once, is read once."""
    claims = {"resume", "rounding"}
    assert all(Scaler(capabilities=kind(claims)).info.capabilities == claims for kind in (list, set, iter, dict.fromkeys))
    for wrong in ("resume", b"resume", None, 3, ["resume", 3], [["resume"]], iter([3])):
        with pytest.raises(TypeError, match="capabilities must be a list of strings such as 'resume', got "):
            Scaler(capabilities=wrong)


def test_a_case_requires_all_its_capabilities():
    """The message lists the capabilities that are not claimed."""

    @case("MACHINE-next-step", 0, "x: y", "resume", "rounding")
    def needs_two(subject):
        subject.create(subject.rule())

    assert outcome(Scaler(), needs_two) == (Verdict.UNSUPPORTED, "does not claim resume, rounding")
    assert outcome(Scaler(capabilities=["resume"]), needs_two) == (Verdict.UNSUPPORTED, "does not claim rounding")
    assert outcome(Scaler(capabilities=["resume", "rounding"]), needs_two) == (Verdict.PASS, "")


@pytest.mark.parametrize(
    ("level", "error"), [(6, ValueError), (-1, ValueError), ("2", ValueError), (True, TypeError), (1.0, TypeError)]
)
def test_an_invalid_level_is_rejected(level, error):
    """A level is an int from 0 to 5, or a text such as "L2"."""
    with pytest.raises(error, match='level must be an int from 0 to 5, or "L0" to "L5", got'):
        check(Scaler(), level, cases=[doubles])


def test_an_adapter_must_be_an_object_with_a_description():
    """A class is not called."""
    for info in (None, {}):
        with pytest.raises(TypeError, match=r"adapter.info must be an ImplementationInfo, got "):
            check(type("It", (), {"info": info})(), cases=[doubles])
    with pytest.raises(TypeError, match=r"adapter must be an object, got the class Scaler; pass Scaler\(\)"):
        check(Scaler, cases=[doubles])


def test_overflows_of_numpy_cause_no_warnings():
    """A warning, which is an error in these tests, would be the error of an implementation that does not silence NumPy."""
    scaler = with_methods(read_scale=lambda *_: 2048.0 if np.isinf(np.float32(3e38) * np.float32(2)) else 0.0)
    assert outcome(scaler) == (Verdict.PASS, "")


# --- the timer ---


def test_the_signal_handler_is_restored_and_the_timer_is_stopped():
    """One case times out, and another one passes."""
    handler = signal.getsignal(signal.SIGALRM)
    run(doubles, with_methods(update=sleeping), 0.02)
    run(doubles, Scaler(), 0.05)
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_result_has_its_duration():
    assert run(doubles, with_methods(update=sleeping), 0.02).seconds >= 0.02


# --- reports ---


def report_of(*verdicts):
    """Return a report with these verdicts."""
    return Report(Scaler().info, tuple(Result("", f"case-{index}", Verdict(verdict)) for index, verdict in enumerate(verdicts)))


def test_a_report_is_ok_unless_a_verdict_is_bad():
    """Passes, unsupported cases and expected failures are ok. Verdicts are counted in a fixed order."""
    for verdict in Verdict:
        ok = verdict in ("pass", "unsupported", "xfail")
        assert report_of("pass", verdict).ok is ok
        assert (verdict in BAD) is not ok
        assert json.loads(report_of("pass", verdict).to_json())["ok"] is ok
    report = report_of("crash", "unsupported", "pass", "xfail", "pass", "fail")
    assert list(report.counts.items()) == [("pass", 2), ("fail", 1), ("unsupported", 1), ("xfail", 1), ("crash", 1)]
    assert report_of().counts == {}
