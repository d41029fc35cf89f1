"""`ampscale presets` shows every published scaler as it is."""

import json
import math

import pytest
from click.testing import CliRunner

from ampscale import LossScaleRule
from ampscale.cli.app import main
from ampscale.cli.describe import ordinal, power, sentences
from ampscale.presets import PRESETS

DIVIDING = {"backoff_factor": 0.2, "divide_on_backoff": True}
CREEPING = {"growth_interval": 1, "growth_factor": 1.5, "warmup_growth_factor": 4.0, "reset_bad_steps_on": ()}


def run(*arguments):
    """What the command prints, and its exit status."""
    result = CliRunner().invoke(main, ["presets", *arguments])
    return result.output, result.exit_code


def test_the_list_has_a_line_for_each():
    """Every name once, below its project and version, with its first scale and interval."""
    output, code = run()
    lines = output.splitlines()
    assert code == 0
    for preset in PRESETS.values():
        (line,) = [line for line in lines if line.split()[:1] == [preset.name] and line.startswith("  ")]
        above = [line for line in lines[: lines.index(line)] if not line.startswith(" ")]
        assert above[-1] == f"{preset.project} {preset.version}"
        assert line.split()[1] == power(preset.rule().init_scale)
    assert "2001" in next(line for line in lines if line.startswith("  flax"))


def test_each_is_explained_in_words():
    """Whose it is, where its rule is written, how it moves, and how to make it."""
    for preset in PRESETS.values():
        output, code = run(preset.name)
        assert code == 0
        for said in (preset.class_name, preset.project, preset.version, preset.source_file, f"presets.{preset.name}("):
            assert said in output
        assert max(map(len, output.splitlines())) <= 100
        words = " ".join(output.split())
        assert all(f"- {sentence}" in words for sentence in sentences(preset.rule()))


def test_json_has_the_rule_whole():
    """The list as JSON: each rule goes back into the rule it came from."""
    found = json.loads(run("--json")[0])
    assert [each["name"] for each in found] == list(PRESETS)
    for each in found:
        assert LossScaleRule.from_json(json.dumps(each["rule"])) == PRESETS[each["name"]].rule()
    assert json.loads(run("flax", "--json")[0]) == next(each for each in found if each["name"] == "flax")


def test_an_unknown_name_is_refused_with_the_known():
    """Exit status 2, and all names."""
    output, code = run("pytorch")
    assert code == 2
    assert "torch" in output
    assert "got 'pytorch'" in output


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "The scale begins at 2^16."),
        ({}, "It grows times 2 at the 2000th finite step in a row, and the count starts again."),
        ({}, "It has no floor, and can reach zero."),
        ({}, "A growth that would not be finite keeps it."),
        ({"skip_infinite_growth": False}, "Nothing keeps it from growing to infinity."),
        ({"initial_good_steps": -2}, "From the start and after each overflow, that is 2 steps later."),
        ({"initial_good_steps": 1}, "From the start and after each overflow, that is 1 step sooner."),
        ({"hysteresis": 2}, "It is multiplied by 0.5 at the 2nd overflow that is counted."),
        ({"hysteresis": 2}, "Any finite step or a backoff makes it forget the overflows before."),
        ({"hysteresis": 2, "reset_bad_steps_on": ()}, "Nothing makes it forget the overflows before."),
        (
            {"overflow_tolerance": 0.25},
            "It is multiplied by 0.5 when overflows are at least 0.25 of the steps since it last moved.",
        ),
        (DIVIDING, "It is divided by 5 at every overflow, which also starts the count again."),
        ({"min_scale": 1.0, "max_scale": 2.0**24}, "It never backs off below 1 and never grows above 2^24."),
        ({"min_scale": 1.0, "block_at_bounds": True}, "It backs off only from above 1, and may land below."),
        ({"max_scale": 2.0**24, "block_at_bounds": True}, "It grows only from below 2^24, and may land above."),
        ({"min_scale": 1.0, "raise_at_min_scale": True}, "A backoff that is due at the floor raises, and ends the run."),
        ({"raise_at_or_below": 1e-4}, "An overflow that leaves it at 0.0001 or below raises, and ends the run."),
        ({"delayed_update": True}, "A change comes into force one step late."),
        ({"float64_factor": True}, "It is a float32, multiplied in float64 and rounded once."),
        ({"dtype": "float64"}, "It is a float64 on the host, and so are its factors."),
        ({"growth_factor": 1.0, "backoff_factor": 1.0}, "It never grows."),
        ({"growth_factor": 1.0, "backoff_factor": 1.0}, "It never backs off."),
        (CREEPING, "It grows times 4 at every finite step until the first overflow ever, and then times 1.5."),
    ],
    ids=str,
)
def test_every_axis_is_said(settings, said):
    """A sentence for each, and for no rule without the axis."""
    found = list(sentences(LossScaleRule(**settings)))
    assert said in found
    assert len(found) == len(set(found))


def test_words_for_numbers():
    """Powers of two as powers, others as they are."""
    powers = {65536.0: "2^16", 1.0: "1", 0.5: "0.5", 8.0: "8", 16.0: "2^4", 3.0: "3", 0.8: "0.8", 2.0**-126: "2^-126"}
    assert {value: power(value) for value in [*powers, 0.0, math.inf]} == {**powers, 0.0: "0", math.inf: "inf"}
    ordinals = "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th 1000th"
    assert " ".join(map(ordinal, (1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1000))) == ordinals
