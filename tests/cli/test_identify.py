"""`ampscale identify`: its tables of consistent and inconsistent scalers, its JSON, and its sources."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli.runner import Runner

from ampscale import LossScaleRule, presets
from ampscale.cli.identify import identify
from ampscale.simulation.identification.identify import identify as search
from ampscale.simulation.traces import Observed, from_string

RUNNER = Runner(identify)
invoke, printed, error = RUNNER.invoke, RUNNER.printed, RUNNER.error

LOGS = Path(__file__).parent.parent / "simulation" / "recordings" / "logs"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
STEPS = "....x.xxxx....x"
MEGATRON = "64 64 64 128 128 128 128 64 32 16 8 8 8 16 16 16"  # scales of Megatron in STEPS, with a growth interval of 3


def report(*arguments, code=0):
    """Return the JSON output, with each explanation also under its name."""
    document = RUNNER.report(*arguments, code=code)
    return document | {explanation["name"]: explanation for explanation in document["explanations"]}


def consistent(document):
    """Return the names of the consistent scalers."""
    return [explanation["name"] for explanation in document["explanations"] if explanation["explains"]]


def contradiction(step, expected, seen, *, raises=False):
    return {"step": step, "expected": expected, "raises": raises, "seen": seen, "undecided": False}


def csv_of(path, **columns):
    """Write a CSV file with these columns, and return its path."""
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_tables_have_consistent_and_inconsistent_scalers():
    """Presets with equal cells share a row, and `=` joins presets with the same rule."""
    lines = printed("--scales", "65536 65536 65536 32768 32768", "--set", "hysteresis=2")
    text = "\n".join(lines)
    assert " ".join(lines[:2]) == "4 steps, 5 scales from 2^15 to 2^16, overflow flags for no step. Steps are counted from 0."
    assert re.search(r"^ consistent +inferred settings +overflows +steps$", text, re.MULTILINE)
    assert re.search(r"^ paddle_document +- +2 +3$", text, re.MULTILINE)
    assert re.search(r"^ deepspeed, megatron, +- +2 +2\n colossalai$", text, re.MULTILINE)
    assert "mindspore = jmp = tf_keras" in text
    assert re.search(r"^ static +- +2 2\^16 +2\^15$", text, re.MULTILINE)
    assert re.search(r"^ mpx, chainer +- +start init_scale must +", text, re.MULTILINE)
    assert "cannot be distinguished; = joins presets with the same rule." in text


def test_scales_with_equal_short_forms_are_printed_in_full():
    """The float32 nearest to 9 * 0.7 differs from the product of 9 and the float32 nearest to 0.7."""
    observed, expected = float(np.float32(9 * 0.7)), float(np.float32(9) * np.float32(0.7))
    lines = printed("--scales", f"9 {observed!r}", "--set", "backoff_factor=0.7", columns=140)
    assert any(re.search(rf"paddle.* 0 {expected!r} or 9.0 +{observed!r}$", line) for line in lines)


def test_output_fits_80_columns():
    """No name is broken or cut off. The exit code is 1 if no scaler is consistent."""
    lines = printed("--scales", "64 96 7 7 3", code=1)
    assert max(map(len, lines)) <= 80
    words = set(re.findall(r"[\w.*^=]+", "\n".join(lines)))
    assert words >= {*presets.PRESETS, "1.5*2^6", "1.75*2^2"}
    assert "No published scaler is consistent with these scales." in lines
    assert not any("…" in line for line in lines)


def test_json_equals_the_result_of_the_function():
    """The trace of a consistent scaler has the flags that `simulation.identify` returns."""
    settings = ("--set", "growth_interval=3", "--set", "hysteresis=2")
    document = report("--scales", MEGATRON, *settings)
    observed = Observed(np.array(MEGATRON.split(), float), np.full(len(STEPS), -1, np.int8))
    for explanation in search(observed, settings={"growth_interval": 3, "hysteresis": 2}):
        encoded = document[explanation.name]
        values = (encoded["explains"], encoded["settings"], tuple(encoded["changed"]))
        assert values == (explanation.explains, explanation.settings, explanation.changed)
        assert encoded["rule"] is None or LossScaleRule.from_json(json.dumps(encoded["rule"])) == explanation.rule
        assert (encoded["rejection"] or "") == explanation.rejection
        assert (encoded["contradiction"] is None) == (encoded["trace"] is not None) == explanation.explains
        if explanation.explains:
            assert from_string(encoded["trace"]).limits.tolist() == np.where(explanation.finite, np.inf, -np.inf).tolist()
            assert (encoded["overflows"], encoded["ambiguous"]) == ((~explanation.finite).sum(), explanation.ambiguous)
        else:
            assert encoded["contradiction"]["step"] == explanation.contradiction.step
            assert encoded["contradiction"]["expected"] == list(explanation.contradiction.expected)
    assert document["counted"] == "steps"
    assert document["megatron"]["settings"] == {"init_scale": 64, "growth_interval": 3, "hysteresis": 2}
    assert document["torch"]["contradiction"] == contradiction(5, [64, 256], 128)


def test_json_encodes_infinity_unknown_scales_and_errors():
    """Infinity is "inf", an unknown scale "?", and an error has `raises`. Without a consistent scaler, the exit code is 1."""
    document = report("--scales", "2**16, ?, ?, 2**14", "--set", "growth_interval=5")
    assert (document["torch"]["trace"].count("x"), document["torch"]["ambiguous"]) == (2, 3)
    document = report("--scales", "2**127 inf inf", "--set", "growth_interval=1")
    assert "keras" in consistent(document)
    assert document["torch"]["contradiction"]["seen"] == "inf"
    document = report("--scales", "2 1 1 1 0.75", "--set", "hysteresis=1", "--set", "min_scale=1", code=1)
    assert document["deepspeed"]["contradiction"] == contradiction(3, [1], 0.75, raises=True)
    assert consistent(document) == []
    assert len(document["explanations"]) == len(presets.PRESETS)


def test_csv_file_is_read_by_its_columns(tmp_path):
    """The default columns are `scale` and a known column of flags; options name others. A file need not have flags."""
    scales = MEGATRON.split()[:-1]
    path = csv_of(tmp_path / "run.csv", step=range(15), scale=scales, overflow=[int(step == "x") for step in STEPS])
    settings = ("--set", "growth_interval=3")
    assert "overflow flags for all steps." in " ".join(printed(path, *settings)[:2])
    document = report(path, *settings)
    assert "megatron" in consistent(document)
    assert document["megatron"]["trace"] == STEPS
    assert document["torch"]["contradiction"]["step"] == 4
    other = csv_of(tmp_path / "other.csv", S=scales, bad=[int(step == "x") for step in STEPS])
    assert report(other, "--scale-column", "S", "--overflow-column", "bad", *settings) == document
    named = csv_of(tmp_path / "run.txt", S=scales)
    assert report(named, "--scale-column", "S", *settings)["megatron"]["ambiguous"] > 0


@pytest.mark.parametrize(("file", "name"), [("fairseq_0.12_json_every_4.log", "fairseq"), ("megatron_core_0.16.log", "megatron")])
def test_project_of_a_log_comes_first(file, name):
    """The growth interval of the run is the only setting that is inferred."""
    document = report(LOGS / file)
    assert consistent(document)[0] == name
    assert document[name]["changed"] == ["growth_interval"]
    assert document[name]["settings"]["growth_interval"] == 4


@pytest.mark.parametrize(
    ("file", "name", "interval"),
    [
        ("lightning_2.6_metrics.csv", "torch", 3),
        ("megatron_core_0.16_every_5.log", "megatron", 4),
        ("paddle_3.log", "paddle", 4),
        ("deepspeed_0.9_fp16_optimizer.log", "deepspeed_fp16_optimizer", 4),
    ],
)
def test_scaler_that_wrote_a_log_is_consistent(file, name, interval):
    """If the interval is set, no other setting is inferred."""
    document = report(LOGS / file, "--set", f"growth_interval={interval}")
    assert (document[name]["explains"], document[name]["changed"]) == (True, [])


@pytest.mark.parametrize("columns", [0, 20, 59])
def test_table_is_not_cut_off_in_a_narrow_terminal(columns):
    """The terminal wraps the lines instead. Some programs set COLUMNS to 0."""
    assert printed("--scales", "65536 32768", columns=columns) == printed("--scales", "65536 32768", columns=60)


def test_noun_of_one_step_or_overflow_is_singular(tmp_path):
    """One step has two scales."""
    assert printed("--scales", "2 4")[0].startswith("1 step, 2 scales from 2^1 to 2^2, ")
    log = tmp_path / "apex.log"
    log.write_text("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n")
    assert printed(log)[0].startswith("1 overflow: ")


def test_log_without_step_numbers_is_identified_by_its_overflows():
    """The reason is printed. Any number of finite steps can lie between two overflows, so no ambiguous flags are counted."""
    lines = printed(LOGS / "apex_amp.log")
    reason = "the log does not number its steps, so the number of finite steps between its overflows is unknown"
    assert re.search(rf"\d+ overflows: {reason}; specify --step-pattern, a regular .* a step\.", " ".join(lines))
    document = report(LOGS / "apex_amp.log")
    assert document["counted"] == "overflows"
    assert {"torch", "apex_hysteresis"} <= set(consistent(document))
    assert not document["static"]["explains"]
    assert document["torch"]["ambiguous"] is None
    assert document["torch"]["overflows"] == int(lines[0].split()[0])


@pytest.mark.parametrize(("file", "code"), [("megatron_core_0.16.log", 2), ("deepspeed_0.16.log", 0)])
def test_log_of_two_runs_is_reported(tmp_path, file, code):
    """DeepSpeed's log has messages about overflows, which are identified without their steps; Megatron's has no messages."""
    log = tmp_path / "two.log"
    log.write_text(2 * (LOGS / file).read_text())
    result = RUNNER.invoke(log)
    assert result.exit_code == code
    assert "the step numbers decrease from" in " ".join(result.output.split())


def test_step_pattern_numbers_the_steps():
    """With step numbers, the number of finite steps between two overflows is known."""
    document = report(LOGS / "deepspeed_0.3_huggingface.log", "--step-pattern", r"\| +(?P<step>\d+)/\d+ \[")
    assert (document["counted"], document["torch"]["trace"]) == ("steps", "xxx..x..")


def test_log_of_paddle_reports_backoffs_only(tmp_path):
    """With hysteresis, steps without a message can be overflows. Without step numbers, the hysteresis is taken as 1."""
    text = (LOGS / "paddle_3.log").read_text()
    numbered = tmp_path / "numbered.log"
    steps = [f"loss: 6.9, global_step: {step}" for step in range(1, 5)]
    numbered.write_text("\n".join([*steps[:3], "Found inf or nan, current scale is: 64.0, decrease to: 64.0*0.5", steps[3]]))
    assert report(numbered, "--set", "hysteresis=2")["paddle"]["trace"] == "..xx"
    assert report(numbered)["paddle"]["trace"] == "...x"
    unnumbered = tmp_path / "unnumbered.log"
    unnumbered.write_text("\n".join(line for line in text.splitlines() if "global_step" not in line))
    assert report(unnumbered)["paddle_document"]["settings"]["hysteresis"] == 1
    assert "a log of Paddle reports backoffs instead of overflows" in error(unnumbered, "--set", "hysteresis=2")


def test_resumed_run_starts_at_its_first_scale():
    """Steps are counted from the first scale, and may start with any counts. A note suggests --resumed if a log starts late."""
    log = LOGS / "megatron_23.04_every_5.log"
    plain = invoke(log)
    assert "the log begins after step 1000" in plain.stderr
    assert "--resumed allows any counts" in plain.stderr
    assert invoke("--scales", "? 32", "--resumed").exit_code == 0
    result = invoke(log, "--resumed")
    assert "--resumed" not in result.stderr
    assert "Steps are counted from the first scale, 5 steps after the beginning." in " ".join(result.stdout.split())
    document = report(log, "--resumed", "--set", "growth_interval=4")
    assert document["megatron"]["explains"]
    assert len(document["megatron"]["trace"]) == 20
    assert document["megatron"]["start"] is not None


def test_rounded_scales_require_a_tolerance():
    """52400 is 52428.8 rounded to three digits."""
    arguments = ("--scales", "65536 52400 41900", "--set", "hysteresis=1")
    assert not report(*arguments)["tensorflow_contrib"]["explains"]
    document = report(*arguments, "--rtol", "2e-3")
    assert (document["tensorflow_contrib"]["changed"], document["torch"]["settings"]["backoff_factor"]) == ([], 0.8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the scales must come from either a file or --scales, got neither"),
        ((__file__, "--scales", "64 32"), "the scales must come from either a file or --scales, got both"),
        (("--scales", "64"), "--scales must have at least two scales, got 1"),
        (("--scales", "64 x"), "a number must be written like"),
        (("--scales", "? ?"), "at least one scale must be known, got none"),
        (("--scales", "64 -2"), "scales must not be negative"),
        (("--scales", "64 32", "--log"), "--log requires a log as PATH: give the options of one source"),
        ((__file__, "--scale-column", "S", "--step-pattern", "x"), "CSV file as PATH and --step-pattern requires a log as PATH"),
        ((pytest.__file__,), "the log has no known messages of"),
        ((EXAMPLES / "run.jsonl",), "run.jsonl is a run file, not a log: use ampscale watch"),
        ((LOGS / "lightning_2.6_metrics.csv", "--scale-column", "S"), "; specify --scale-column"),
        (("--scales", "64 32", "--set", "interval=2"), "a rule has no field 'interval'; did you mean"),
        (("--scales", "64 32", "--set", "delayed_update=true"), "parameters of at least one candidate, got ['delayed_update']"),
        (("--scales", "64 32", "--set", "growth_interval=-1"), "settings must be valid for at least one candidate"),
        (("--scales", "64 32", "--set", "growth_interval=2.5"), "growth_interval must be an int"),
        (("--scales", "64 32", "--rtol", "2"), "rtol must be a number from 0 to 0.1, got 2.0"),
        (("nowhere.csv",), "does not exist"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_usage_error_has_a_message(arguments, message):
    """The exit code is 2, and nothing is printed on stdout."""
    assert message in error(*arguments)
