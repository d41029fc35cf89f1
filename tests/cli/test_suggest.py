"""`ampscale suggest`: the scales that would have suited a run, and a replay of the run with each preset."""

import pytest
from cli.run_samples import HISTOGRAMS, TENSORS, write_run, write_steps
from cli.runner import Runner

from ampscale import presets
from ampscale.cli.suggest import suggest
from ampscale.diagnostics import Histogram, StepRecord, read_run, replay
from ampscale.diagnostics import suggest as suggest_scales

RUNNER = Runner(suggest)


def test_interval_is_that_of_all_histograms_before_scaling(tmp_path):
    """The histograms are divided by the scale of their step: 2**14 at the first step with histograms, and 2**13 at the second."""
    document = RUNNER.report(write_run(tmp_path / "run.jsonl"), "--share", "0.3")
    unscaled = [Histogram(low - power, counts) for power in (14, 13) for low, counts in HISTOGRAMS]
    assert document["suggestion"] == suggest_scales(unscaled, share=0.3)._asdict()


def test_extreme_exponents_have_a_suggestion(tmp_path):
    """Such exponents are treated as 1000 and -1000, so the suggested scales are float64 numbers."""
    extremes = Histogram(2**62, (1,)), Histogram(-(2**62), (2,))
    record = StepRecord(0, 1.0, 1.0, finite=True, applied=True, measured_scale=1.0, histograms=extremes)
    suggestion = RUNNER.report(write_steps(tmp_path / "run.jsonl", [record]))["suggestion"]
    assert (suggestion["high"], suggestion["low"]) == (2.0**-986, 2.0**976)


@pytest.mark.parametrize(("overflow", "is_reported"), [(2.0**13, True), (2.0**15, False)])
def test_an_overflow_at_a_suggested_scale_is_reported(tmp_path, overflow, is_reported):
    """The largest suggested scale is 2**13."""
    finite = StepRecord(0, 1.0, 1.0, finite=True, applied=True, measured_scale=1.0, histograms=(Histogram(0, (1, 1)),))
    skipped = StepRecord(1, overflow, 1.0, finite=False, applied=False)
    lines = " ".join(RUNNER.printed(write_steps(tmp_path / "run.jsonl", [finite, skipped])))
    assert ("But a step overflowed at scale 2^13: " in lines) == is_reported


def test_every_preset_is_replayed(tmp_path):
    """The results are those of `replay`, in JSON and in a table of 80 columns."""
    path = write_run(tmp_path / "run.jsonl")
    results = [result._asdict() for result in replay(read_run(path).records())]
    assert RUNNER.report(path)["presets"] == results
    lines = RUNNER.printed(path)
    assert len(results) == len(presets.PRESETS)
    assert [line.split()[0] for line in lines[-len(results) :]] == [result["name"] for result in results]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("measured", [{}, {"measured_scale": 1.0, "tensors": TENSORS}], ids=["no measurement", "statistics"])
def test_run_without_histograms_is_rejected(tmp_path, measured):
    """Statistics alone do not determine how many values are lost."""
    path = write_steps(tmp_path / "run.jsonl", [StepRecord(0, 1.0, 1.0, finite=True, applied=True, **measured)])
    assert "only a GradScaler whose monitor has histogram_every records them" in RUNNER.error(path)
