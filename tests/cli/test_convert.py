"""`ampscale convert`: entries, report, detection of the format, and errors."""

import json
import re
import shlex

import numpy as np
import pytest
from cli.runner import Runner

from ampscale import LossScaleRule, checkpoints, presets
from ampscale.checkpoints import Run
from ampscale.cli.convert import choose_state, convert, runs_text

SCALER = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 1234}
WHOLE = {"model": {"weight": [1.0, 2.0]}, "optimizer": [{"scaler": SCALER}], "epoch": 3}


@pytest.fixture
def run(tmp_path):
    """Return a function that writes a mapping to a file and converts it. {} in an argument stands for the folder of the file."""

    def converted(mapping, *arguments, name="in.json"):
        checkpoints.write_file(tmp_path / name, mapping)
        return Runner(convert).invoke(tmp_path / name, *(argument.replace("{}", str(tmp_path)) for argument in arguments))

    return converted


def test_entries_and_report_are_printed(run):
    """The entries are printed on stdout, so that they can be piped, and the report on stderr."""
    result = run(WHOLE, "--from", "torch", "--to", "jmp")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"loss_scale": 65536.0, "counter": 1234}
    assert result.stderr.splitlines() == [
        "torch, at optimizer.0.scaler -> jmp",
        "carried    scale 2^16, 1,234 finite steps, 0 overflows",
        "changed    min_scale: was None, is 1.0",
        "construct  period=2000, factor=2, min_loss_scale=1.0",
        "load       construct jmp.DynamicLossScale with the entries; under jax.jit it",
        "           replaces min_loss_scale by 1",
        "growth     without overflows the scale grows after 766 steps, as before",
        "divergence earliest after 17 overflows",
        "differing  without end: for example after 17 overflows, then repeatedly 2,000",
        "           finite steps, 1 overflow",
    ]


@pytest.mark.parametrize("suffix", [".json", ".safetensors", ".pt"])
def test_entries_are_written_to_a_file(run, tmp_path, suffix):
    """The suffix of --out determines the file type. Only the report is printed, on stdout."""
    if suffix == ".pt":
        pytest.importorskip("torch", reason="needs torch")
    result = run(WHOLE, "--from", "torch", "--to", "paddle", "--out", f"{{}}/out{suffix}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("torch, at optimizer.0.scaler -> paddle\n")
    loaded = checkpoints.load("paddle", checkpoints.read_file(tmp_path / f"out{suffix}"))
    assert (loaded.rule, float(loaded.state.scale), int(loaded.state.good_steps)) == (presets.paddle(), 65536.0, 1234)


def test_assumed_constants_are_reported_unless_they_are_set(run):
    """A missing constant has the preset's value, or that of --set, under the source's name. What the target lacks is changed."""
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
    assert "changed    min_scale: was 0.0625, is None" in result.stderr
    assert "changed    reset_bad_steps_on: was ('growth',), is ('finite', 'backoff')" in result.stderr
    result = run({"fin_steps": 1, "scale": 8.0}, "--from", "flax", "--to", "keras", "--set", "minimum_scale=none")
    assert "min_scale" not in result.stderr


def test_changed_value_is_not_carried(run):
    """The target has no overflow count, so the count is reported as changed, and is absent from the carried values."""
    saved = {"scale": np.array([2.0**12], np.float32), "growth_tracker": 1, "hysteresis_tracker": 1}
    result = run(saved, "--from", "megatron", "--to", "torch", name="in.safetensors")
    assert "carried    scale 2^12, 1 finite step\n" in result.stderr
    assert "changed    bad_steps: was 1, is 0" in result.stderr
    report = json.loads(run(saved, "--from", "megatron", "--to", "torch", "--json", name="in.safetensors").stdout)["report"]
    assert report["carried"] == {"scale": 4096.0, "good_steps": 1}


def test_next_growth_is_reported_in_steps(run):
    """The growth can be earlier than in the source, and the scale of the source or of both scalers can be constant."""
    start = checkpoints.convert(SCALER | {"_growth_tracker": 0}, "torch", "deepspeed").mapping
    result = run({**start, "cur_iter": 0}, "--from", "deepspeed", "--to", "torch")
    assert "growth     without overflows the scale grows after 2,000 steps, 1 step early" in result.stderr
    static = presets.static(8.0)
    saved = checkpoints.save("ampscale", checkpoints.Checkpoint(static, static.init(like=np.zeros(())))).mapping
    result = run(saved, "--from", "ampscale", "--to", "ampscale")
    assert "growth     without overflows neither scale grows" in result.stderr
    result = run(saved, "--from", "ampscale", "--to", "keras")
    assert "growth     without overflows only the target's scale grows" in result.stderr


def test_json_has_entries_and_report(run):
    """The JSON contains all facts of the text, and the rule of the target; nothing else is printed."""
    result = run(WHOLE, "--from", "torch", "--to", "flax", "--json")
    assert result.stderr == ""
    document = json.loads(result.stdout)
    report = document["report"]
    assert document["mapping"] == {"fin_steps": 1234, "scale": 65536.0}
    assert (report["lossless"], report["at"], report["assumed"], report["ignored"]) == (False, "optimizer.0.scaler", {}, [])
    assert report["carried"] == {"scale": 65536.0, "good_steps": 1234, "bad_steps": 0}
    dropped = {"max_scale": (None, presets.LARGEST), "skip_infinite_growth": (True, False)}
    assert report["dropped"] == {name: {"was": old, "is": new} for name, (old, new) in dropped.items()}
    assert report["settings"]["growth_interval"] == 1999
    assert LossScaleRule.from_json(json.dumps(report["rule"])) == presets.flax(growth_interval=1999, min_scale=None)
    assert report["next_growth"] == {"source": 766, "target": 766}
    assert report["divergence"]["first"] == [[".", 222766]]
    assert report["divergence"]["steps"] == "without end"
    assert set(report["divergence"]["endless"]) == {"lead", "cycle"}


def test_strict_exits_with_1_and_writes_no_file_if_the_scales_can_differ(run, tmp_path):
    """They can also differ if the search for a divergence ends without a result. Without --strict, the output is the same."""
    target = tmp_path / "out.json"
    assert run(SCALER, "--from", "torch", "--to", "keras", "--strict", "--out", str(target)).exit_code == 1
    assert not target.exists()
    strict, plain = (run(SCALER, "--from", "torch", "--to", "keras", *options) for options in (["--strict"], []))
    assert (strict.exit_code, plain.exit_code) == (1, 0)
    assert (strict.stdout, strict.stderr) == (plain.stdout, plain.stderr)
    same = run(SCALER, "--from", "torch", "--to", "torch", "--strict")
    assert (same.exit_code, json.loads(same.stdout)) == (0, SCALER)
    assert "divergence none: both scales are equal for every overflow trace" in same.stderr
    unsearchable = {**SCALER, "growth_factor": 3.0}  # with this factor, too many scales are reachable for a search
    result = run(unsearchable, "--from", "torch", "--to", "paddle", "--strict")
    assert result.exit_code == 1
    assert re.search(r"^divergence unknown; none up to step [\d,]+ for any overflow trace$", result.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--from numpy --to torch", "unknown format 'numpy'; known formats are ampscale, torch, paddle,"),
        ("--from torch --to mindformers", "unknown format 'mindformers'; did you mean mindspore_update_cell?"),
        ("--from torch --to padle", "unknown format 'padle'; did you mean paddle?"),
        ("--to torch --at model", "the file contains no state of a known format at 'model' (a disabled scaler saves"),
        ("--from paddle --to torch", "the nearest mapping is at 'optimizer.0.scaler': missing"),
        ("--from torch --to jmp --at model", "there is no state of torch at 'model'"),
        ("--from torch --to jmp --at nowhere", "at must be the path of a mapping, got 'nowhere'"),
        ("--from torch --to jmp --set period", "a setting must be given once as KEY=VALUE"),
        ("--from jmp --to torch --set period=5 --set period=6", "KEY=VALUE, got 'period=6'"),
        ("--from torch --to jmp --set period=3", "the settings for torch must be empty, since the"),
        ("--from torch --to jmp --set period=x", "a number must be written like"),
        ("--from torch --to jmp --out {}/out.txt", "must end in one of"),
        ("--from torch --to jmp --out {}/in.json", "--out must not be the file that is read"),
        ("--from torch --to ampscale --out {}/out.safetensors", "each value in a safetensors file must be"),
        ("--from torch", "Missing option '--to'"),
    ],
)
def test_error_has_a_message(run, tmp_path, arguments, message):
    """The exit code is 2, the message is one line, and nothing is written."""
    result = run(WHOLE, *arguments.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert [file.name for file in tmp_path.iterdir()] == ["in.json"]
    assert checkpoints.read_file(tmp_path / "in.json") == WHOLE


def test_damaged_or_missing_file_is_an_error(tmp_path):
    """Neither error prints a traceback."""
    (tmp_path / "cut.json").write_text('{"scale": ')
    for name, message in (("cut.json", "must be a valid .json file"), ("none.json", "does not exist")):
        assert message in Runner(convert).error(tmp_path / name, "--from", "torch", "--to", "jmp")


def test_other_entries_of_a_checkpoint_are_reported(run):
    """A checkpoint of MindSpore has the parameters of the network beside those of the scaler."""
    network = {f"dense{number}.weight": np.float32(number) for number in range(20)}
    cell = {"scale_sense": np.float32(8), "current_iterator_step": np.int32(1), "last_overflow_iterator_step": np.int32(0)}
    result = run({**network, **cell}, "--from", "mindspore_update_cell", "--to", "keras", name="in.safetensors")
    assert "ignored    dense0.weight" in result.stderr
    assert "and 12 more: outside the scaler" in " ".join(result.stderr.split())


def test_long_trace_is_shortened():
    """After eight runs, the remaining steps are counted."""
    assert runs_text((Run(".", 2000), Run("x", 1))) == "2,000 finite steps, 1 overflow"
    assert runs_text((Run(".", 1), Run("x", 2)) * 5) == f"{', '.join(['1 finite step, 2 overflows'] * 4)}, and 3 more steps"


PADDLE = {"scale": [8.0], "incr_count": 3, "decr_count": 0, "use_dynamic_loss_scaling": True}
PADDLE |= {"incr_ratio": 2.0, "decr_ratio": 0.5, "incr_every_n_steps": 4, "decr_every_n_nan_or_inf": 1}
BOTH = {"scale_value": 8.0, "counter": 0, "scale_sense": 8.0, "current_iterator_step": 1, "last_overflow_iterator_step": 0}


@pytest.mark.parametrize("source", checkpoints.FORMATS)
def test_format_is_detected(run, source):
    """The entries are recognized at the top level and in a larger checkpoint."""
    rule = presets.torch(8.0)
    saved = checkpoints.save(source, checkpoints.Checkpoint(rule, rule.init(like=0.0))).mapping
    assert run(saved, "--to", "torch").stderr.startswith(f"{source} -> torch\n")
    result = run({"model": {"weight": [1.0]}, "amp": [saved]}, "--to", "torch")
    assert result.stderr.startswith(f"{source}, at amp.0 -> torch\n")


@pytest.mark.parametrize(
    ("mapping", "arguments", "choices"),
    [
        ({"b": SCALER, "a": [SCALER | {"scale": 8.0}]}, "", "--from torch --at a.0, or --from torch --at b"),
        ({"b": SCALER, "a": [SCALER | {"scale": 8.0}]}, "--from torch", "--at a.0, or --at b"),
        ({"amp": SCALER, "fleet": PADDLE}, "", "--from torch --at amp, or --from paddle --at fleet"),
        ({"b": BOTH}, "--at b", "--from mindspore, or --from mindspore_update_cell"),
        ({"my amp": SCALER, "b": SCALER | {"scale": 8.0}}, "", "--from torch --at b, or --from torch --at 'my amp'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_several_states_are_listed_with_the_options_that_choose_them(run, mapping, arguments, choices):
    """With the options of any choice in the message, the conversion succeeds."""
    result = run(mapping, "--to", "jmp", *arguments.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"the file contains 2 scaler states; choose one with {choices}\n" in result.stderr
    for choice in choices.split(", or "):
        assert run(mapping, "--to", "jmp", *arguments.split(), *shlex.split(choice)).exit_code == 0


def test_many_states_are_counted():
    """Eight choices are listed."""
    mapping = {f"scaler{number}": SCALER | {"scale": 2.0**number} for number in range(10)}
    with pytest.raises(ValueError, match=r"the file contains 10 scaler states; .* --at scaler7, and 2 more$"):
        choose_state(mapping, None, None)
