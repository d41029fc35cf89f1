"""Seven runs over the digits: what they report, and what they show about float16."""

import json
import math

import pytest
from click.testing import CliRunner
from rich.console import Console

from ampscale.cli.app import main
from ampscale.cli.demo import screen

FLOAT32, UNSCALED, *SCALED = (
    "float32",
    "float16 without scaling",
    "StaticLossScaler",
    "DynamicLossScaler",
    "GradScaler",
    "TrainOneStepWithLossScaleCell",
    "MFTrainOneStepCell",
)
KEYS = {
    "name", "dtype", "test_accuracy", "underflow_share", "overflow_steps", "applied_steps",
    "first_scale", "last_scale", "loss", "scale", "overflow", "underflow",
}  # fmt: skip


def invoke(out, *arguments):
    return CliRunner().invoke(main, ["demo", "--out", str(out), *arguments], catch_exceptions=False)


def runs_of(result):
    return {run["name"]: run for run in json.loads(result.stdout)["runs"]}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The output of twelve steps, and its folder."""
    out = tmp_path_factory.mktemp("short")
    return invoke(out, "--json", "--steps", "12", "--seed", "3"), out


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The runs that `make demo` makes."""
    return runs_of(invoke(tmp_path_factory.mktemp("full"), "--json"))


def test_json_is_all_there_is_on_stdout(short):
    """One JSON object; nothing on stderr either."""
    result, out = short
    assert result.exit_code == 0
    assert result.stderr == ""
    report = json.loads(result.stdout)
    assert {key: report[key] for key in ("seed", "steps", "picture")} == {
        "seed": 3, "steps": 12, "picture": str(out / "demo.png"),
    }  # fmt: skip
    assert "CC BY 4.0" in report["data"]


def test_seven_runs_come_in_order_with_all_their_keys(short):
    """float32, float16 as it is, and the five scalers."""
    runs = runs_of(short[0])
    assert list(runs) == [FLOAT32, UNSCALED, *SCALED]
    assert all(set(run) == KEYS for run in runs.values())
    assert [run["dtype"] for run in runs.values()] == ["float32"] + 6 * ["float16"]


def test_every_number_is_one(short):
    """Scales are positive and finite, shares lie between 0 and 1, and there is one entry a step."""
    for run in runs_of(short[0]).values():
        assert len(run["loss"]) == len(run["scale"]) == len(run["overflow"]) == 12
        assert all(math.isfinite(scale) and scale > 0 for scale in run["scale"])
        assert all(math.isfinite(loss) for loss in run["loss"])
        assert 0 <= run["test_accuracy"] <= 1
        assert [measured["step"] for measured in run["underflow"]] == [0, 5, 10]
        assert all(0 <= measured["share"] <= 1 for measured in run["underflow"])


def test_the_summary_is_of_the_steps(short):
    """The columns of the table follow from what the run did at each step."""
    for run in runs_of(short[0]).values():
        assert run["overflow_steps"] == sum(run["overflow"])
        assert run["applied_steps"] == 12 - run["overflow_steps"]
        assert (run["first_scale"], run["last_scale"]) == (run["scale"][0], run["scale"][-1])
        assert run["underflow_share"] == pytest.approx(sum(measured["share"] for measured in run["underflow"]) / 3)


def test_all_runs_start_from_the_same_weights(short):
    """The first loss is the same, up to float16."""
    first = [run["loss"][0] for run in runs_of(short[0]).values()]
    assert first == pytest.approx([first[0]] * 7, rel=1e-2)
    assert len(set(first[1:])) == 1


def test_an_overflow_is_skipped_and_halves_the_scale(short):
    """DynamicLossScaler starts too high; a skipped step leaves the loss of the same weights to the next batch."""
    run = runs_of(short[0])["DynamicLossScaler"]
    overflows = run["overflow_steps"]
    assert run["first_scale"] == 2.0**24
    assert overflows >= 2
    assert run["overflow"] == overflows * [True] + (12 - overflows) * [False]
    assert run["last_scale"] == 2.0 ** (24 - overflows)


def test_the_same_seed_gives_the_same_results(short, tmp_path):
    """Bit for bit, but for the place of the picture; another seed gives others."""
    again, other = (runs_of(invoke(tmp_path, "--json", "--steps", "12", "--seed", seed)) for seed in ("3", "4"))
    assert again == runs_of(short[0])
    assert other != again


def test_the_picture_is_a_png_of_1600_pixels(short):
    """Twice the width at which a README shows it."""
    head = (short[1] / "demo.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(head[16:20]) == 1600


def test_the_table_has_a_row_for_every_run_in_80_columns(tmp_path, monkeypatch):
    """In a terminal of ordinary width nothing is cut off, and the licence of the data is said."""
    monkeypatch.setattr(screen, "console", Console(width=80, highlight=False))
    result = invoke(tmp_path, "--steps", "2")
    rows = result.stdout[result.stdout.index("overflow") :]
    for name in (FLOAT32, UNSCALED, *SCALED):
        assert f"\n {name} " in rows
    assert "…" not in result.stdout
    assert "CC BY 4.0" in " ".join(result.stdout.split())
    assert "demo.png" in result.stdout


def test_one_step_is_a_run(tmp_path):
    """The shortest demo that there is."""
    assert all(run["underflow"][0]["step"] == 0 for run in runs_of(invoke(tmp_path, "--json", "--steps", "1")).values())


def test_float32_has_no_underflow(full):
    """By definition: it is what float16 is compared with."""
    assert full[FLOAT32]["underflow_share"] == 0
    assert full[FLOAT32]["test_accuracy"] > 0.95


def test_float16_without_scaling_is_worse(full):
    """Most gradient values become zero, and what is left does not train the network."""
    assert full[UNSCALED]["underflow_share"] > 0.8
    assert full[UNSCALED]["overflow_steps"] == 0
    assert full[UNSCALED]["test_accuracy"] < full[FLOAT32]["test_accuracy"] - 0.2


@pytest.mark.parametrize("name", SCALED)
def test_scaled_float16_is_within_one_point_of_float32(full, name):
    """With every documented scaler, and next to nothing becomes zero."""
    assert abs(full[name]["test_accuracy"] - full[FLOAT32]["test_accuracy"]) <= 0.01
    assert full[name]["underflow_share"] < 0.01


@pytest.mark.parametrize("name", SCALED[1:])
def test_dynamic_scales_overflow_and_go_on(full, name):
    """Each of the four meets overflows, skips those steps, and ends where the scale is nearly too high."""
    assert 1 <= full[name]["overflow_steps"] <= 30
    assert full[name]["applied_steps"] == 300 - full[name]["overflow_steps"]
    assert full[name]["last_scale"] >= 2.0**20
