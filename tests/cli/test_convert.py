"""`ampscale convert` takes a scaler from one framework's checkpoint to another's, and says what became of it."""

import json
import re

import numpy as np
import pytest
import torch
from cli.runs import Runs

from ampscale import LossScaleRule, checkpoints, presets
from ampscale.checkpoints import Run
from ampscale.cli.convert import convert, spelled

SCALER = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 1234}
WHOLE = {"model": {"weight": [1.0, 2.0]}, "optimizer": [{"scaler": SCALER}], "epoch": 3}


@pytest.fixture
def run(tmp_path):
    """Converts a mapping, which is put into a file first; the result, and the folder."""

    def converted(mapping, *arguments, name="in.json"):
        checkpoints.write_file(tmp_path / name, mapping)
        return Runs(convert).invoke(tmp_path / name, *(word.replace("{}", str(tmp_path)) for word in arguments))

    return converted


def test_the_entries_are_printed_and_the_report_beside_them(run):
    """The entries on standard output, so that they can be piped, and the report on standard error."""
    result = run(WHOLE, "--from", "torch", "--to", "jmp")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"loss_scale": 65536.0, "counter": 1234}
    assert result.stderr.splitlines() == [
        "torch, at optimizer.0.scaler -> jmp",
        "carried    scale 2^16, 1,234 finite steps, 0 overflows",
        "dropped    min_scale: was None, is 1.0",
        "construct  period=2000, factor=2, min_loss_scale=1.0",
        "load       construct jmp.DynamicLossScale with the entries; under jax.jit it replaces min_loss_scale by 1",
        "growth     if no overflow comes, the scale grows after 766 steps, as before",
        "parting    at the earliest after 17 overflows",
        "parting    without end: for example after 17 overflows, again and again with 2,000 finite steps, 1 overflow",
    ]


@pytest.mark.parametrize("suffix", [".json", ".safetensors", ".pt"])
def test_the_entries_are_written(run, tmp_path, suffix):
    """To --out, in the kind that its name says; then the report alone is printed."""
    result = run(WHOLE, "--from", "torch", "--to", "paddle", "--out", f"{{}}/out{suffix}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("torch, at optimizer.0.scaler -> paddle\n")
    found = checkpoints.load("paddle", checkpoints.read_file(tmp_path / f"out{suffix}"))
    assert (found.rule, float(found.state.scale), int(found.state.good_steps)) == (presets.paddle(), 65536.0, 1234)
    result = run({"scaler": SCALER, "weight": torch.ones(3)}, "--from", "torch", "--to", "torch", name="in.pt")
    assert json.loads(result.stdout) == SCALER
    assert "parting    none: the two agree for ever, whatever comes" in result.stderr


def test_what_was_assumed_is_said_unless_it_is_set(run):
    """Constants that a file does not hold are those of the preset, or those of --set under the scaler's own names."""
    saved = {"scale": np.array([2.0**32], np.float32), "growth_tracker": 0, "hysteresis_tracker": 1}
    result = run(saved, "--from", "megatron", "--to", "paddle", name="in.safetensors")
    assert "assumed    growth_interval = 1000" in result.stderr
    assert "assumed    hysteresis = 2" in result.stderr
    settings = ["--set", "growth_interval=500", "--set", "hysteresis=3", "--set", "min_scale=2**-4"]
    result = run(saved, "--from", "megatron", "--to", "paddle", *settings, name="in.safetensors")
    assert json.loads(result.stdout)["incr_every_n_steps"] == 500
    assert json.loads(result.stdout)["decr_every_n_nan_or_inf"] == 3
    assert json.loads(result.stdout)["decr_count"] == 2
    assert "assumed    growth_interval" not in result.stderr
    assert "dropped    min_scale: was 0.0625, is None" in result.stderr
    assert "dropped    reset_bad_steps_on: was ('growth',), is ('finite', 'backoff')" in result.stderr
    result = run({"fin_steps": 1, "scale": 8.0}, "--from", "flax", "--to", "keras", "--set", "minimum_scale=none")
    assert "min_scale" not in result.stderr


def test_a_late_growth_is_said_in_steps(run):
    """The figure that is asked for first."""
    zero = checkpoints.convert(SCALER | {"_growth_tracker": 0}, "torch", "deepspeed").mapping
    result = run({**zero, "cur_iter": 0}, "--from", "deepspeed", "--to", "torch")
    assert "growth     if no overflow comes, the scale grows after 2,000 steps, 1 step early" in result.stderr
    static = presets.static(8.0)
    own = checkpoints.save("ampscale", checkpoints.Checkpoint(static, static.init(like=np.zeros(())))).mapping
    result = run(own, "--from", "ampscale", "--to", "ampscale")
    assert "growth     if no overflow comes, neither scale grows again" in result.stderr
    result = run(own, "--from", "ampscale", "--to", "keras")
    assert "growth     if no overflow comes, only the target's grows" in result.stderr


def test_json_has_entries_and_report(run):
    """Everything that the text says, and the rule that the target runs; nothing else is printed."""
    result = run(WHOLE, "--from", "torch", "--to", "flax", "--json")
    assert result.stderr == ""
    found = json.loads(result.stdout)
    report = found["report"]
    assert found["mapping"] == {"fin_steps": 1234, "scale": 65536.0}
    assert (report["lossless"], report["at"], report["assumed"], report["ignored"]) == (False, "optimizer.0.scaler", {}, [])
    assert report["carried"] == {"scale": 65536.0, "good_steps": 1234, "bad_steps": 0}
    assert report["dropped"] == {
        "max_scale": {"was": None, "is": presets.LARGEST},
        "skip_infinite_growth": {"was": True, "is": False},
    }
    assert report["settings"]["growth_interval"] == 1999
    assert LossScaleRule.from_json(json.dumps(report["rule"])) == presets.flax(growth_interval=1999, min_scale=None)
    assert report["next_growth"] == {"source": 766, "target": 766}
    assert report["divergence"]["first"] == [[".", 222766]]
    assert report["divergence"]["steps"] == "without end"
    assert set(report["divergence"]["endless"]) == {"lead", "cycle"}


def test_strict_tells_by_the_exit_status(run):
    """1 unless the target is proven to go on alike; what was asked for is printed all the same."""
    result = run(SCALER, "--from", "torch", "--to", "keras", "--strict")
    assert (result.exit_code, json.loads(result.stdout)["step_counter"]) == (1, 1234)
    assert run(SCALER, "--from", "torch", "--to", "torch", "--strict").exit_code == 0
    assert run(SCALER, "--from", "torch", "--to", "keras").exit_code == 0
    unknown = {**SCALER, "growth_factor": 3.0}  # which leads to more scales than can be followed
    result = run(unknown, "--from", "torch", "--to", "paddle", "--strict")
    assert result.exit_code == 1
    assert re.search(r"^parting    not known; there is none up to step [\d,]+, whatever comes$", result.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "numpy", "--to", "torch"], "the format must be one of"),
        (["--from", "torch", "--to", "numpy"], "the format must be one of"),
        (["--from", "paddle", "--to", "torch"], "there is no state of paddle at the top level or below it"),
        (["--from", "torch", "--to", "jmp", "--at", "model"], "there is no state of torch at 'model'"),
        (["--from", "torch", "--to", "jmp", "--at", "nowhere"], "there must be a mapping at 'nowhere'"),
        (["--from", "torch", "--to", "jmp", "--set", "period"], "a setting must be written as KEY=VALUE"),
        (["--from", "torch", "--to", "jmp", "--set", "period=3"], "settings of torch must be some of []"),
        (["--from", "torch", "--to", "jmp", "--set", "period=x"], "a number must be written like"),
        (["--from", "torch", "--to", "jmp", "--out", "{}/out.txt"], "must end in one of"),
        (["--from", "torch", "--to", "jmp", "--out", "{}/in.json"], "--out must be another file than IN"),
        (["--from", "torch", "--to", "ampscale", "--out", "{}/out.safetensors"], "each value in a safetensors file must be a number"),
        (["--from", "torch"], "Missing option '--to'"),
    ],
)
def test_what_cannot_be_done_is_said(run, tmp_path, arguments, message):
    """With exit status 2, and nothing is written."""
    result = run(WHOLE, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert [file.name for file in tmp_path.iterdir()] == ["in.json"]
    assert checkpoints.read_file(tmp_path / "in.json") == WHOLE


def test_a_file_that_is_damaged_or_missing_is_said(tmp_path):
    """Neither shows a traceback."""
    (tmp_path / "cut.json").write_text('{"scale": ')
    for name, message in (("cut.json", "must be a .json file"), ("none.json", "does not exist")):
        assert message in Runs(convert).refused(tmp_path / name, "--from", "torch", "--to", "jmp")


def test_other_entries_of_a_checkpoint_are_named(run):
    """Of MindSpore's, where the scaler's stand among a network's, the first few."""
    network = {f"dense{number}.weight": np.float32(number) for number in range(20)}
    cell = {"scale_sense": np.float32(8), "current_iterator_step": np.int32(1), "last_overflow_iterator_step": np.int32(0)}
    result = run({**network, **cell}, "--from", "mindspore_update_cell", "--to", "keras", name="in.safetensors")
    assert "left out   dense0.weight" in result.stderr
    assert "and 12 more: not the scaler's" in result.stderr


def test_a_long_trace_is_cut():
    """After eight runs of steps the rest is counted."""
    assert spelled((Run(".", 2000), Run("x", 1))) == "2,000 finite steps, 1 overflow"
    assert spelled((Run(".", 1), Run("x", 2)) * 5) == f"{', '.join(['1 finite step, 2 overflows'] * 4)}, and 3 steps more"
