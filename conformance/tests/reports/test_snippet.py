"""Scripts that reproduce failures in a fresh interpreter without ampscale."""

import subprocess
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from ampscale_conformance.cases.machine_lockstep import run_lockstep
from ampscale_conformance.model.bits import Bits
from ampscale_conformance.model.case import Case, named
from ampscale_conformance.model.verdicts import Verdict
from ampscale_conformance.reports.snippet import reproduced, snippet_of
from ampscale_conformance.reports.snippet_source import source_of
from ampscale_conformance.run.check import run
from reports.snippets import (
    BacksOffOnArrays,
    Configured,
    GrowsLate,
    IgnoresTheLearningRate,
    KeepsTensors,
    NeverStepsOnRanks,
    RaisesASurrogate,
    RaisesOfALibrary,
    RequiresAmpscale,
    ScaleAsFloat64,
    ScalesInALambda,
)

ONE = Bits("float16", (2,), (0x3C00, 0x7C00))


def trace(name, finite, catches, **settings):
    """Return a case that follows an overflow trace."""
    return named(name, 0, catches, partial(run_lockstep, finite=finite, settings=settings))


WINDOW = trace("MACHINE-growth-window/window", "-+++-", "late: by one step", growth_interval=3)
START = trace("MACHINE-state/start", "", "start: another")


def case_of(function, clause="SCALING-scale"):
    """Return a case that calls a function."""
    return Case("named", clause, 0, "fault: what it does", function)


def failure(case, adapter, verdict=Verdict.FAIL):
    """Run a case, check its verdict, and return its result."""
    result = run(case, adapter)
    assert result.verdict is verdict, result.message
    return result


def script_of(case, adapter, verdict=Verdict.FAIL):
    """Return the script that reproduces the failure of a case."""
    return snippet_of(failure(case, adapter, verdict), adapter)


def last_line(script):
    """Run a script without ampscale and return the last line of its stderr."""
    blocked = "import sys\nsys.modules['ampscale'] = None\n"
    process = subprocess.run(
        [sys.executable, "-I", "-"], input=blocked + strip_future(script), capture_output=True, text=True, check=False
    )
    return process.stderr.strip().splitlines()[-1]


def strip_future(script):
    """Remove a future import, which must come first, and the annotations that need it."""
    return script.replace("from __future__ import annotations\n", "").replace(": LossScaleRule", "")


def expect_another_product(subject):
    """Expect a product that differs from the correct one in the last bit."""
    handle = subject.create(subject.rule(init_scale=16.0))
    subject.expect_same(subject.scaled("scale", handle, [ONE]), [Bits("float16", (2,), (0x4C01, 0x7C00))], "scale")


@pytest.mark.parametrize("adapter", [GrowsLate(), ScaleAsFloat64()], ids=["in-place", "subclass"])
def test_the_script_of_a_trace_fails_with_the_same_message(adapter):
    """The script runs without ampscale."""
    script = script_of(WINDOW, adapter)
    assert "ampscale" not in script.replace("ampscale's specification", "")
    message = failure(WINDOW, adapter).message
    assert last_line(script) == f"AssertionError: {message}"
    assert reproduced(script)


def test_a_script_contains_what_its_methods_refer_to():
    """A script has a header, a loop for repeated steps, and only those definitions that its methods need, with comments."""
    script = script_of(WINDOW, GrowsLate())
    assert script.startswith("# late 1.0, and MACHINE-growth-window of ampscale's specification:\n# The scale grows in")
    parts = ["# Detects: late: by one step\n", "@dataclass\nclass State:", "def doubled(", "LATE = 1"]
    parts += ["def _grown(", "# one step too late", 'for sign in "-+++":']
    parts.append("SimpleNamespace(init_scale=1024.0, growth_factor=2.0, growth_interval=3)")
    assert [part for part in parts if part not in script] == []
    assert not any(part in script for part in ("def unused", "def scale(", "info =", "ImplementationInfo", "import numpy"))


def test_arrays_are_written_as_values():
    """The script reproduces a difference in the last bit of a float16 product."""
    script = script_of(case_of(expect_another_product), GrowsLate())
    assert "np.array([1.0, inf], np.float16)" in script
    assert "from math import inf" in script
    assert reproduced(script)


def test_the_script_of_an_error_raises_it():
    """Such a script has no assertion. The message of a drawn case begins with the draw."""
    result = failure(case_of(lambda subject: subject.all_finite([ONE])), GrowsLate(), Verdict.ERROR)
    for message in (result.message, f"draw it 1: {result.message}"):
        script = snippet_of(replace(result, message=message), GrowsLate())
        assert last_line(script) == "OverflowError: too large"
        assert reproduced(script)


@pytest.mark.parametrize("adapter", [RaisesOfALibrary(), RaisesASurrogate()], ids=["module", "surrogate"])
def test_errors_are_recognized_in_any_traceback(adapter):
    """A traceback names the module of the error and escapes surrogates. Other output need not be UTF-8."""
    script = script_of(START, adapter, Verdict.ERROR)
    assert reproduced(script)
    assert not reproduced(script.replace("raise ", "return "))


def test_bfloat16_tensors_of_torch_are_written():
    """NumPy has no bfloat16 of its own, and torch does not take that of ml_dtypes."""
    tree = [Bits("bfloat16", (2,), (0x3F80, 0x4000))]

    def expect_a_product(subject):
        got = subject.scaled("scale", subject.create(subject.rule()), tree)
        subject.expect(got != tree, "expected other numbers")

    script = script_of(case_of(expect_a_product), KeepsTensors())
    assert "torch.from_numpy(np.array([1.0, 2.0], ml_dtypes.bfloat16).view(np.int16)).view(torch.bfloat16)" in script
    with pytest.raises(AssertionError, match="expected other numbers"):
        exec(script, {})  # another process would take seconds to import torch


def test_scalers_of_a_compiled_form_have_names_of_their_own():
    """One of two scales, which are read one after the other, is wrong."""

    def follow(subject):
        compiled = subject.compiled()
        handles = [compiled.create(subject.rule()) for _ in range(2)]
        handles[0], _ = compiled.call("step_on_arrays", handles[0], compiled.to_arrays([ONE]))
        scales = [compiled.read_scale(handle) for handle in handles]
        subject.expect(scales == [512.0, 1024.0], f"expected the first scale to back off, got {scales}")

    script = script_of(case_of(follow), BacksOffOnArrays())
    assert "got = [compiled.read_scale(handle2), compiled.read_scale(handle1)]" in script
    assert reproduced(script)
    assert not reproduced(script.replace("handle / 4", "handle / 2"))


def test_a_script_fails_if_the_required_error_is_not_raised():
    """The script asserts that the call raises."""

    def requires_an_error(subject):
        handle = subject.create(subject.rule())
        subject.expect(subject.raises("update", handle, True), "expected an error")

    script = script_of(case_of(requires_an_error), GrowsLate())
    assert reproduced(script)
    assert last_line(script) == "AssertionError: expected an error"


def test_a_script_continues_after_an_error_that_is_required():
    """The first call raises an error, and the result of the last one is wrong."""

    def continues(subject):
        subject.expect(subject.raises("all_finite", [ONE]), "expected an error")
        subject.expect(subject.read_scale(subject.create(subject.rule())) == 0, "expected 0")

    script = script_of(case_of(continues), GrowsLate())
    assert "with suppress(Exception):\n    adapter.all_finite(" in script
    assert reproduced(script)


def test_reproduced_requires_the_same_failure():
    """A script that passes, raises another error, or takes too long does not reproduce the failure."""
    script = script_of(WINDOW, GrowsLate())
    assert not reproduced(script.replace("LATE = 1", "LATE = 0"))
    assert not reproduced(script.replace("class State", "class Stat"))
    assert not reproduced(script.replace("LATE = 1", "import time; time.sleep(60)"), seconds=0.5)


def test_a_script_contains_the_attributes_of_the_adapter():
    """The attributes are written as a dict."""
    script = script_of(START, Configured(by=4))
    assert "adapter.__dict__.update({'by': 4})" in script
    assert reproduced(script)


def test_adapters_without_self_contained_source_have_no_script():
    """
    The adapters use ampscale, have a method that is a part of a statement, or have no class of their own.

    The methods of the first one that do not use ampscale have a source.
    """
    adapter = RequiresAmpscale()
    members = {"info": GrowsLate.info, "create": lambda *_: 1, "read_scale": lambda *_: 3.0}
    adapters = (adapter, ScalesInALambda(), type("Typed", (), members)(), SimpleNamespace(**members))
    assert [script_of(START, adapter_) for adapter_ in adapters] == [""] * 4
    assert source_of(adapter, {"read_scale"}) != ""


def test_a_passed_case_has_no_script():
    """The script is an empty string."""
    result = run(trace("MACHINE-state/start", "-", "start: another"), GrowsLate())
    assert (result.verdict, snippet_of(result, GrowsLate())) == (Verdict.PASS, "")


@pytest.mark.parametrize(
    ("bits", "written"),
    [
        (Bits("float32", (), (0x80000000,)), "np.array(-0.0, np.float32)"),
        (Bits("bfloat16", (1,), (0x3F80,)), "np.array([1.0], ml_dtypes.bfloat16)"),
        (Bits("complex64", (1,), (0x3F8000007F800000,)), "np.array([complex(1.0, inf)], np.complex64).reshape((1,))"),
        (Bits("int32", (2,), (0xFFFFFFFF, 1)), "np.array([-1, 1], np.int32)"),
        (Bits("bool", (1,), (1,)), "np.array([True], np.bool_)"),
        (Bits("float32", (0, 2), ()), "np.empty((0, 2), np.float32)"),
    ],
    ids=lambda value: value.dtype if isinstance(value, Bits) else "",
)
def test_arrays_of_each_dtype_are_python_expressions(bits, written):
    """Evaluating an expression gives the same bits."""
    import ml_dtypes
    import numpy as np
    from ampscale_conformance.model.arrays import to_bits
    from ampscale_conformance.reports.snippet import _array

    assert _array(bits) == written
    array = eval(written, {"np": np, "ml_dtypes": ml_dtypes, "inf": np.inf, "nan": np.nan})
    assert to_bits(array) == bits


def test_a_handle_that_is_used_again_keeps_its_name():
    """The name is not reassigned in a loop."""

    def goes_back(subject):
        first = subject.create(subject.rule(growth_interval=1))
        handle = first
        for _ in range(4):
            handle = subject.update(handle, False)
            subject.read_scale(handle)
        subject.expect(subject.read_scale(first) == 1.0, "expected the first")

    script = script_of(case_of(goes_back, "MACHINE-pure"), GrowsLate())
    assert reproduced(script)
    assert "read_scale(handle)" in script.splitlines()[-2]


def test_options_are_written_as_keywords():
    """A cell has a learning rate."""

    def step(subject):
        weights = subject.to_arrays([Bits("float32", (1,), (0x40800000,))])
        cell = subject.call("create_cell", subject.rule(), weights, learning_rate=0.5)
        outputs = subject.call("train_step", cell, weights)
        subject.expect_same(
            subject.to_bits(outputs["parameters"], "parameters"), [Bits("float32", (1,), (0x40000000,))], "parameters"
        )

    script = script_of(case_of(step, "STEP-apply"), IgnoresTheLearningRate())
    assert "learning_rate=0.5)" in script
    assert reproduced(script)


def test_the_script_of_a_case_on_ranks_starts_its_own_ranks():
    """Each rank imports the script, which contains `on_ranks`."""

    def expect_a_step(subject):
        results = subject.call("train_on_ranks", subject.rule(), ["replicated"], [[[1.0], [1.0]]], 1)
        subject.expect(all(stepped for [[_, stepped]] in results), "expected a step")

    script = script_of(case_of(expect_a_step, "REPLICAS-same-scale"), NeverStepsOnRanks())
    assert "ampscale_conformance" not in script
    assert reproduced(script)
    assert not reproduced(script.replace("False]", "True]"))


def test_a_script_runs_in_a_temporary_folder(tmp_path, monkeypatch):
    """The files that it writes are removed. Modules of the current folder can still be imported."""
    (tmp_path / "beside.py").write_text("LATE = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    script = script_of(WINDOW, GrowsLate()).replace("LATE = 1", "from beside import LATE\nopen('left', 'w').close()")
    assert reproduced(script)
    assert not (tmp_path / "left").exists()
