"""`ampscale demo`: its report, its table, and the effect of loss scaling on float16."""

import json
import math

import pytest
from click.testing import CliRunner
from rich.console import Console

from ampscale.cli.app import main

SCALED = ["StaticLossScaler", "DynamicLossScaler", "GradScaler", "TrainOneStepWithLossScaleCell", "MFTrainOneStepCell"]
NAMES = ["float32", "float16 without scaling", *SCALED]
KEYS = {"name", "dtype", "test_accuracy", "underflow_share", "overflow_steps", "applied_steps", "first_scale", "last_scale"}
KEYS |= {"loss", "scale", "overflow", "underflow"}


def invoke(out, *arguments):
    return CliRunner().invoke(main, ["demo", "--out", str(out), *arguments], catch_exceptions=False)


def runs_of(result):
    """Return the runs in the JSON output by name."""
    return {run["name"]: run for run in json.loads(result.stdout)["runs"]}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Return the result of six steps, and its folder."""
    out = tmp_path_factory.mktemp("short")
    return invoke(out, "--json", "--steps", "6", "--seed", "3"), out


@pytest.fixture
def _without_picture(monkeypatch):
    """Draw no picture, which takes most of the time of a short run."""
    monkeypatch.setattr("ampscale.cli.demo.picture.draw", lambda _, path: path)


def test_json_is_the_only_output(short):
    """The JSON object names the license of the data, and has seven runs, the first in float32. The picture is a PNG file."""
    result, out = short
    assert (result.exit_code, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert (report["seed"], report["steps"], report["picture"]) == (3, 6, str(out / "demo.png"))
    assert "CC BY 4.0" in report["data"]
    runs = runs_of(result)
    assert list(runs) == NAMES
    assert all(set(run) == KEYS for run in runs.values())
    assert [run["dtype"] for run in runs.values()] == ["float32"] + 6 * ["float16"]
    head = (out / "demo.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(head[16:20]) == 1600  # twice the width in the README


def test_report_is_consistent(short):
    """Scales and losses are finite, each step has an entry, and the summary follows from the steps."""
    for run in runs_of(short[0]).values():
        assert len(run["loss"]) == len(run["scale"]) == len(run["overflow"]) == 6
        assert all(math.isfinite(scale) and scale > 0 for scale in run["scale"])
        assert all(math.isfinite(loss) for loss in run["loss"])
        assert 0 <= run["test_accuracy"] <= 1
        assert [measured["step"] for measured in run["underflow"]] == [0, 5]
        assert all(0 <= measured["share"] <= 1 for measured in run["underflow"])
        assert run["overflow_steps"] == sum(run["overflow"])
        assert run["applied_steps"] == 6 - run["overflow_steps"]
        assert (run["first_scale"], run["last_scale"]) == (run["scale"][0], run["scale"][-1])
        assert run["underflow_share"] == pytest.approx(sum(measured["share"] for measured in run["underflow"]) / 2)


def test_all_runs_have_the_same_initial_weights(short):
    """The first losses in float16 are equal, and differ from that in float32 by rounding only."""
    first = [run["loss"][0] for run in runs_of(short[0]).values()]
    assert first == pytest.approx([first[0]] * 7, rel=1e-2)
    assert len(set(first[1:])) == 1


def test_overflow_skips_the_step_and_halves_the_scale(short):
    """The scale of DynamicLossScaler starts too high, so the first steps overflow."""
    run = runs_of(short[0])["DynamicLossScaler"]
    overflows = run["overflow_steps"]
    assert run["first_scale"] == 2.0**24
    assert overflows >= 2
    assert run["overflow"] == overflows * [True] + (6 - overflows) * [False]
    assert run["last_scale"] == 2.0 ** (24 - overflows)


@pytest.mark.usefixtures("_without_picture")
def test_seed_determines_the_results(short, tmp_path):
    """The results of a seed are equal bit for bit, and another seed gives other results. A run of one step is measured, too."""
    runs = runs_of(short[0])
    assert runs_of(invoke(tmp_path, "--json", "--steps", "6", "--seed", "3")) == runs
    other = runs_of(invoke(tmp_path, "--json", "--steps", "1", "--seed", "4"))
    assert all(run["underflow"][0]["step"] == 0 for run in other.values())
    assert other["float32"]["loss"] != runs["float32"]["loss"][:1]


@pytest.mark.usefixtures("_without_picture")
def test_table_has_a_row_for_each_run_in_80_columns(tmp_path, monkeypatch):
    """Nothing is cut off, and the license of the data and the path of the picture are printed."""
    monkeypatch.setattr("ampscale.cli.demo.screen.console", Console(width=80, highlight=False))
    result = invoke(tmp_path, "--steps", "2")
    rows = result.stdout[result.stdout.index("overflow") :]
    for name in NAMES:
        assert f"\n {name} " in rows
    assert "…" not in result.stdout
    assert "CC BY 4.0" in " ".join(result.stdout.split())
    assert "demo.png" in result.stdout


@pytest.mark.slow
def test_scaling_makes_float16_train_as_float32_does(tmp_path):
    """
    Without scaling, most float16 gradients underflow, and the accuracy is lower by more than 0.2.

    With each documented scaler, less than 1% underflow, and the accuracy differs by at most 0.01. Dynamic scalers skip overflows.
    """
    float32, unscaled, *scaled = runs_of(invoke(tmp_path, "--json")).values()
    assert float32["underflow_share"] == 0
    assert float32["test_accuracy"] > 0.95
    assert unscaled["underflow_share"] > 0.8
    assert unscaled["overflow_steps"] == 0
    assert unscaled["test_accuracy"] < float32["test_accuracy"] - 0.2
    for run in scaled:
        assert abs(run["test_accuracy"] - float32["test_accuracy"]) <= 0.01
        assert run["underflow_share"] < 0.01
    for run in scaled[1:]:
        assert 1 <= run["overflow_steps"] <= 30
        assert run["applied_steps"] == 300 - run["overflow_steps"]
