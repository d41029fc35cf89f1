"""`ampscale identify`: what explains the scales of a run, what does not and where, and the same as JSON."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli.runs import Runs

from ampscale import LossScaleRule, presets
from ampscale.cli.identify import identify
from ampscale.simulation.identification.identify import identify as search
from ampscale.simulation.simulate import simulate
from ampscale.simulation.traces import Observed, from_string

RUNS = Runs(identify)
invoke, printed, refused = RUNS.invoke, RUNS.printed, RUNS.refused

LOGS = Path(__file__).parent.parent / "simulation" / "recordings" / "logs"
STEPS = "....x.xxxx....x"
MEGATRON = "64 64 64 128 128 128 128 64 32 16 8 8 8 16 16 16"  # its scales at these steps, with an interval of 3


def report(*arguments, code=0):
    """The JSON, and in it each explanation also by its name."""
    document = RUNS.report(*arguments, code=code)
    return document | {each["name"]: each for each in document["explanations"]}


def explaining(document):
    return [each["name"] for each in document["explanations"] if each["explains"]]


def contradiction(step, expected, seen, *, raises=False):
    return {"step": step, "expected": expected, "raises": raises, "seen": seen, "undecided": False}


def csv_of(path, **columns):
    """A CSV file with these columns."""
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_a_table_names_what_explains_and_where_the_others_fail():
    """Presets with one explanation share a row; `=` joins those that are one rule; the steps are counted from 0."""
    lines = printed("--scales", "65536 65536 65536 32768 32768", "--set", "hysteresis=2")
    text = "\n".join(lines)
    assert lines[:2] == [
        "4 steps, 5 scales from 2^15 to 2^16; whether it overflowed is known of no step.",
        "Steps are counted from 0.",
    ]
    assert re.search(r"^ explained by +guessed settings +overflows either kind$", text, re.MULTILINE)
    assert re.search(r"^ paddle_document +- +2 +3$", text, re.MULTILINE)
    assert re.search(r"^ deepspeed, megatron, +- +2 +2\n colossalai$", text, re.MULTILINE)
    assert "mindspore = jmp = tf_keras" in text
    assert re.search(r"^ static +- +2 2\^16 +2\^15$", text, re.MULTILINE)
    assert re.search(r"^ mpx, chainer +- +start init_scale must +", text, re.MULTILINE)
    assert "Nothing that was seen tells these" in text


def test_scales_that_look_alike_are_written_in_full():
    """Nine times 0.7 is another float32 where the factor is rounded first."""
    right, wrong = float(np.float32(9 * 0.7)), float(np.float32(9) * np.float32(0.7))
    lines = printed("--scales", f"9 {right!r}", "--set", "backoff_factor=0.7", columns=140)
    assert any(re.search(rf"paddle.* 0 {wrong!r} or 9.0 +{right!r}$", line) for line in lines)


def test_a_table_fits_the_terminal():
    """No line is longer, no name is broken, and nothing is cut off; the exit code says that nothing explains the scales."""
    lines = printed("--scales", "64 96 7 7 3", code=1)
    assert max(map(len, lines)) <= 80
    words = set(re.findall(r"[\w.*^=]+", "\n".join(lines)))
    assert words >= {*presets.PRESETS, "1.5*2^6", "1.75*2^2"}
    assert "No published scaler explains this." in lines
    assert not any("…" in line for line in lines)


def test_json_has_all_that_the_function_says():
    """The rule as its own JSON, a pattern as a text, and the contradiction's step, scales and sight."""
    settings = ("--set", "growth_interval=3", "--set", "hysteresis=2")
    document = report("--scales", MEGATRON, *settings)
    observed = Observed(np.array(MEGATRON.split(), float), np.full(len(STEPS), -1, np.int8))
    for each in search(observed, settings={"growth_interval": 3, "hysteresis": 2}):
        told = document[each.name]
        assert (told["explains"], told["settings"], tuple(told["changed"])) == (each.explains, each.settings, each.changed)
        assert told["rule"] is None or LossScaleRule.from_json(json.dumps(told["rule"])) == each.rule
        assert (told["refusal"] or "") == each.refusal
        assert (told["contradiction"] is None) == (told["trace"] is not None) == each.explains
        if each.explains:
            assert from_string(told["trace"]).limits.tolist() == np.where(each.finite, np.inf, -np.inf).tolist()
            assert (told["overflows"], told["ambiguous"]) == ((~each.finite).sum(), each.ambiguous)
            assert simulate(each.rule, from_string(told["trace"])).scales.tolist() == observed.scales.tolist()
        else:
            assert told["contradiction"]["step"] == each.contradiction.step
            assert told["contradiction"]["expected"] == list(each.contradiction.expected)
    assert document["counted"] == "steps"
    assert document["megatron"]["settings"] == {"init_scale": 64, "growth_interval": 3, "hysteresis": 2}
    assert document["torch"]["contradiction"] == contradiction(5, [64, 256], 128)


def test_infinity_and_a_stop_are_said_in_json():
    """Infinity is "inf", and a scale that was not seen "?"; where a scaler could have raised, that is said."""
    document = report("--scales", "2**16, ?, ?, 2**14", "--set", "growth_interval=5")
    assert (document["torch"]["trace"].count("x"), document["torch"]["ambiguous"]) == (2, 3)
    document = report("--scales", "2**127 inf inf", "--set", "growth_interval=1")
    assert "keras" in explaining(document)
    assert document["torch"]["contradiction"]["seen"] == "inf"
    document = report("--scales", "2 1 1 1 0.75", "--set", "hysteresis=1", "--set", "min_scale=1", code=1)
    assert document["deepspeed"]["contradiction"] == contradiction(3, [1], 0.75, raises=True)
    assert explaining(document) == []
    assert len(document["explanations"]) == len(presets.PRESETS)


def test_a_csv_file_is_read_by_its_columns(tmp_path):
    """A row a step; by default the columns `scale` and one of overflows, which leave less open than scales alone."""
    scales = MEGATRON.split()[:-1]
    path = csv_of(tmp_path / "run.csv", step=range(15), scale=scales, overflow=[int(step == "x") for step in STEPS])
    settings = ("--set", "growth_interval=3")
    assert "whether it overflowed is known of every step." in " ".join(printed(path, *settings)[:2])
    document = report(path, *settings)
    assert "megatron" in explaining(document)
    assert document["megatron"]["trace"] == STEPS
    assert document["torch"]["contradiction"]["step"] == 4
    other = csv_of(tmp_path / "other.csv", S=scales, bad=[int(step == "x") for step in STEPS])
    assert report(other, "--scale-column", "S", "--overflow-column", "bad", *settings) == document
    named = csv_of(tmp_path / "run.txt", S=scales)
    assert report(named, "--scale-column", "S", *settings)["megatron"]["ambiguous"] > 0


@pytest.mark.parametrize(
    ("file", "name", "interval"),
    [
        ("fairseq_0.12_json_every_4.log", "fairseq", 4),
        ("megatron_core_0.16.log", "megatron", 4),
    ],
)
def test_a_log_is_recognised_as_its_own_projects(file, name, interval):
    """Of all presets its own comes first, with the interval of the run and no other guess."""
    document = report(LOGS / file)
    assert explaining(document)[0] == name
    assert document[name]["changed"] == ["growth_interval"]
    assert document[name]["settings"]["growth_interval"] == interval


@pytest.mark.parametrize(
    ("file", "name", "interval"),
    [
        ("lightning_2.6_metrics.csv", "torch", 3),
        ("megatron_core_0.16_every_5.log", "megatron", 4),
        ("paddle_3.log", "paddle", 4),
        ("deepspeed_0.9_fp16_optimizer.log", "deepspeed_fp16_optimizer", 4),
    ],
)
def test_a_log_is_explained_by_what_wrote_it(file, name, interval):
    """With the interval that the run had, without a guess."""
    document = report(LOGS / file, "--set", f"growth_interval={interval}")
    assert (document[name]["explains"], document[name]["changed"]) == (True, [])


def test_a_log_that_does_not_place_its_overflows_is_explained_by_them_alone():
    """What lies between them is free, and said to be."""
    lines = printed(LOGS / "apex_amp.log")
    assert re.fullmatch(r"\d+ overflows; which steps lie between them is not told\.", lines[0])
    document = report(LOGS / "apex_amp.log")
    assert document["counted"] == "overflows"
    assert {"torch", "apex_hysteresis"} <= set(explaining(document))
    assert not document["static"]["explains"]
    assert document["torch"]["ambiguous"] is None
    assert document["torch"]["overflows"] == int(lines[0].split()[0])


def test_a_step_pattern_places_the_overflows():
    """Then the finite steps between them count."""
    document = report(LOGS / "deepspeed_0.3_huggingface.log", "--step-pattern", r"\| +(?P<step>\d+)/\d+ \[")
    assert (document["counted"], document["torch"]["trace"]) == ("steps", "xxx..x..")


def test_what_paddle_does_not_report_may_have_happened(tmp_path):
    """Its log tells of backoffs: with patience, steps without a message can be overflows; without steps, none is told."""
    text = (LOGS / "paddle_3.log").read_text()
    patient = tmp_path / "patient.log"
    steps = [f"loss: 6.9, global_step: {step}" for step in range(1, 5)]
    patient.write_text("\n".join([*steps[:3], "Found inf or nan, current scale is: 64.0, decrease to: 64.0*0.5", steps[3]]))
    assert report(patient, "--set", "hysteresis=2")["paddle"]["trace"] == "..xx"
    assert report(patient)["paddle"]["trace"] == "...x"
    bare = tmp_path / "bare.log"
    bare.write_text("\n".join(line for line in text.splitlines() if "global_step" not in line))
    assert report(bare)["paddle_document"]["settings"]["hysteresis"] == 1
    assert "a log of Paddle shows backoffs and not overflows" in refused(bare, "--set", "hysteresis=2")


def test_a_resumed_run_is_taken_from_its_first_scale_on():
    """Its steps are counted from there; what a log says of its beginning is a hint to --resumed."""
    log = LOGS / "megatron_23.04_every_5.log"
    plain = invoke(log)
    assert "the log begins after step 1000" in plain.stderr
    assert "with --resumed it may have any" in plain.stderr
    assert invoke("--scales", "? 32", "--resumed").exit_code == 0
    result = invoke(log, "--resumed")
    assert "with --resumed" not in result.stderr
    assert "Steps are counted from the first scale, 5 steps after the beginning." in " ".join(result.stdout.split())
    document = report(log, "--resumed", "--set", "growth_interval=4")
    assert document["megatron"]["explains"]
    assert len(document["megatron"]["trace"]) == 20
    assert document["megatron"]["start"] is not None


def test_few_digits_want_a_tolerance():
    """52400 is 52428.8 in three digits."""
    arguments = ("--scales", "65536 52400 41900", "--set", "hysteresis=1")
    assert not report(*arguments)["tensorflow_contrib"]["explains"]
    found = report(*arguments, "--rtol", "2e-3")
    assert (found["tensorflow_contrib"]["changed"], found["torch"]["settings"]["backoff_factor"]) == ([], 0.8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "scales are wanted from a file or from --scales"),
        ((__file__, "--scales", "64 32"), "from one of them"),
        (("--scales", "64"), "--scales must have at least two scales, got 1"),
        (("--scales", "64 x"), "a number must be written like"),
        (("--scales", "? ?"), "a scale must have been seen, got none"),
        (("--scales", "64 -2"), "scales must not be negative"),
        (("--scales", "64 32", "--log"), "--log goes with a log: give what goes with one source"),
        ((__file__, "--scale-column", "S", "--step-pattern", "x"), "--scale-column goes with a CSV file and --step-pattern go"),
        ((pytest.__file__,), "the log has no known words of"),
        ((LOGS / "lightning_2.6_metrics.csv", "--scale-column", "S"), "must have one column 'S'"),
        (("--scales", "64 32", "--set", "interval=2"), "a setting must be written once as FIELD=VALUE"),
        (
            ("--scales", "64 32", "--set", "delayed_update=true"),
            "settings must be ones that a candidate has, got ['delayed_update']",
        ),
        (("--scales", "64 32", "--set", "growth_interval=-1"), "settings must be ones that a candidate admits"),
        (("--scales", "64 32", "--set", "growth_interval=2.5"), "growth_interval must be an int"),
        (("--scales", "64 32", "--rtol", "2"), "rtol must be a number from 0 to 0.1, got 2.0"),
        (("nowhere.csv",), "does not exist"),
    ],
)
def test_a_wrong_use_is_refused(arguments, message):
    """Exit code 2, and a line that says what was wanted and what came."""
    assert message in refused(*arguments)
