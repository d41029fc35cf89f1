"""`ampscale presets`: the table of the published scalers, their descriptions, and JSON."""

import json
import math

import pytest
from click.testing import CliRunner

from ampscale import LossScaleRule
from ampscale.cli.app import main
from ampscale.cli.describe import ordinal, power, sentences
from ampscale.presets import PRESETS

NEVER_RESET = {"hysteresis": 2, "reset_bad_steps_on": ()}
RAISING = {"min_scale": 1.0, "raise_at_min_scale": True}
SINCE = "since the last growth or due backoff"
DIVIDING = {"backoff_factor": 0.2, "divide_on_backoff": True}
CREEPING = {"growth_interval": 1, "growth_factor": 1.5, "warmup_growth_factor": 4.0, "reset_bad_steps_on": ()}


def run(*arguments):
    """Return the output of the command and its exit code."""
    result = CliRunner().invoke(main, ["presets", *arguments])
    return result.output, result.exit_code


def test_table_has_a_line_for_each_preset():
    """The line is below the project and version, and starts with the name and the initial scale."""
    output, code = run()
    lines = output.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80
    for preset in PRESETS.values():
        (line,) = [line for line in lines if line.split()[:1] == [preset.name] and line.startswith("  ")]
        above = [line for line in lines[: lines.index(line)] if not line.startswith(" ")]
        assert above[-1] == f"{preset.project} {preset.version}"
        assert line.split()[1] == power(preset.rule().init_scale)
    (flax,) = [line for line in lines if line.startswith("  flax")]
    assert "2001" in flax  # the growth interval 2000 of flax counts one step less


def test_description_has_source_behavior_and_parameters():
    """The examples of the docstring are omitted. A line has at most 80 characters."""
    for preset in PRESETS.values():
        output, code = run(preset.name)
        assert code == 0
        for text in (preset.class_name, preset.project, preset.version, preset.source_file, f"presets.{preset.name}("):
            assert text in output
        assert max(map(len, output.splitlines())) <= 80
        assert ">>>" not in output
        words = " ".join(output.split())
        assert all(f"- {sentence}" in words for sentence in sentences(preset.rule()))


def test_json_contains_the_rules():
    """Each JSON object can be parsed into the rule of its preset."""
    documents = json.loads(run("--json")[0])
    assert [document["name"] for document in documents] == list(PRESETS)
    for document in documents:
        assert LossScaleRule.from_json(json.dumps(document["rule"])) == PRESETS[document["name"]].rule()
    assert json.loads(run("flax", "--json")[0]) == next(document for document in documents if document["name"] == "flax")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "The scale starts at 2^16."),
        ({}, "It is multiplied by 2 at the 2000th finite step in a row; the count of finite steps then restarts."),
        ({}, "The scale has no lower bound and can reach zero."),
        ({}, "A growth that would be non-finite is skipped."),
        ({"skip_infinite_growth": False}, "The scale can grow to infinity."),
        ({"initial_good_steps": -2}, "After the start and after each overflow, the growth comes 2 steps later."),
        ({"initial_good_steps": 1}, "After the start and after each overflow, the growth comes 1 step earlier."),
        ({"hysteresis": 2}, "It is multiplied by 0.5 at the 2nd counted overflow."),
        ({"hysteresis": 2}, "A finite step or a backoff resets the overflow count."),
        (NEVER_RESET, "Nothing resets the overflow count."),
        (NEVER_RESET, "After the first backoff, every overflow backs off until the count is reset."),
        ({"overflow_tolerance": 0.25}, f"It is multiplied by 0.5 when overflows reach 0.25 of the steps {SINCE}."),
        (DIVIDING, "It is divided by 5 at every overflow, which also restarts the count of finite steps."),
        ({"min_scale": 1.0, "max_scale": 2.0**24}, "The scale never backs off below 1 and never grows above 2^24."),
        ({"min_scale": 1.0, "block_at_bounds": True}, "The scale backs off only from above 1; the result may be lower."),
        ({"max_scale": 2.0**24, "block_at_bounds": True}, "The scale grows only from below 2^24; the result may be higher."),
        (RAISING, "The published scaler raises an error when a backoff is due at the lower bound."),
        ({"raise_at_or_below": 1e-4}, "The published scaler raises an error when an overflow leaves a scale of 0.0001 or below."),
        ({"delayed_update": True}, "Each change takes effect one step later."),
        ({"float64_factor": True}, "The scale is a float32; its factors are applied in float64, and the result is rounded once."),
        ({"dtype": "float64"}, "The scale is a float64 on the host, and so are its factors."),
        ({"growth_factor": 1.0, "backoff_factor": 1.0}, "It never grows."),
        ({"growth_factor": 1.0, "backoff_factor": 1.0}, "It never backs off."),
        (CREEPING, "It is multiplied by 4 at every finite step before the first overflow, and by 1.5 later."),
    ],
    ids=str,
)
def test_every_field_has_a_sentence(settings, sentence):
    """No sentence is repeated."""
    description = list(sentences(LossScaleRule(**settings)))
    assert sentence in description
    assert len(description) == len(set(description))


def test_powers_of_two_are_printed_as_powers():
    """Other numbers, and powers from 0.5 to 8, are printed as decimals."""
    powers = {65536.0: "2^16", 1.0: "1", 0.5: "0.5", 8.0: "8", 16.0: "2^4", 3.0: "3", 0.8: "0.8", 2.0**-126: "2^-126"}
    assert {value: power(value) for value in [*powers, 0.0, math.inf]} == {**powers, 0.0: "0", math.inf: "inf"}


def test_ordinals_have_english_endings():
    ordinals = "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th 1000th"
    assert " ".join(map(ordinal, (1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1000))) == ordinals
