"""Rules, settings and numbers as arguments of the command line."""

import dataclasses

import click
import pytest

from ampscale import presets
from ampscale.cli.rule_arguments import NUMBER, number, parse_settings, read_rule, read_rules


def test_numbers_are_parsed():
    """Decimal numbers, powers and hexadecimal numbers are valid. Integers become ints."""
    numbers = {"32768": 32768, "2**15": 32768, "0x1p15": 32768.0, "1e-4": 1e-4, "2**-3": 0.125, " 0.5 ": 0.5, "-1": -1}
    for text, value in numbers.items():
        assert (number(text), type(number(text))) == (value, type(value))
        assert NUMBER.convert(text, None, None) == value


def test_invalid_number_raises_an_error():
    """The message shows valid numbers. A huge power is rejected before it is computed."""
    for text in ("", "x", "2**", "**2", "2**3**4", "9**999999", "1e999999**2", "0**-1", "0x", "2^15", "-2**2"):
        with pytest.raises(ValueError, match=r"^a number must be written like"):
            number(text)
        with pytest.raises(click.BadParameter):
            NUMBER.convert(text, None, None)


def test_rule_can_be_a_preset_with_settings():
    """Parameters of the preset are passed to its function; other fields are replaced in its rule."""
    assert read_rule("torch") == ("torch", presets.torch())
    common = {"growth_interval": "7", "init_scale": "8"}  # settings in the text of the rule take precedence
    assert read_rule("torch:growth_interval=4", common)[1] == presets.torch(8, growth_interval=4)
    assert read_rule("flax:growth_interval=4") == ("flax:growth_interval=4", presets.flax(growth_interval=4))
    _, rule = read_rule("paddle_document:reset_bad_steps_on=backoff,init_scale=2**16")
    assert rule == dataclasses.replace(presets.paddle_document(init_scale=2**16), reset_bad_steps_on=("backoff",))
    changes = {"reset_bad_steps_on": ("growth", "finite"), "min_scale": None, "skip_infinite_growth": True}
    _, rule = read_rule("megatron:reset_bad_steps_on=growth+finite,min_scale=none,skip_infinite_growth=true")
    assert rule == dataclasses.replace(presets.megatron(), **changes)


def test_rule_can_be_a_repr_or_a_json_file(tmp_path):
    """Settings apply to these rules, too."""
    rule = dataclasses.replace(presets.deepspeed(), max_scale=2.0**40)
    assert read_rule(repr(rule)) == ("rule", rule)
    file = tmp_path / "mine.json"
    file.write_text(rule.to_json())
    assert read_rule(str(file)) == ("mine", rule)
    assert read_rule(str(file), {"growth_interval": "3"})[1] == dataclasses.replace(rule, growth_interval=3)


def test_invalid_rule_raises_a_usage_error():
    invalid = [
        "pytorch", "missing.json", "torch:growth=4", "torch:growth_interval", "torch:growth_interval=x",
        "torch:growth_interval=0", "torch:delayed_update=true,delayed_update=true", "torch:reset_bad_steps_on=finit",
        "LossScaleRule(8)", "LossScaleRule(init_scale=", "LossScaleRule(init=1.0)", "LossScaleRule(init_scale=__import__('os'))",
    ]  # fmt: skip
    for text in invalid:
        with pytest.raises(click.UsageError) as caught:
            read_rule(text)
        assert text in caught.value.message


def test_invalid_json_file_raises_a_usage_error(tmp_path):
    for content in ("[]", "scale", '{"scale": 1}'):
        (tmp_path / "rule.json").write_text(content)
        with pytest.raises(click.UsageError, match=r"a rule must|the keys of a rule must be"):
            read_rule(str(tmp_path / "rule.json"))


def test_setting_that_a_preset_lacks_is_reported(capsys):
    """Keras has no parameter growth_factor; torch has one."""
    rules = read_rules(["torch", "keras"], {"growth_factor": "4", "growth_interval": "5"})
    assert rules == {"torch": presets.torch(growth_factor=4, growth_interval=5), "keras": presets.keras(growth_interval=5)}
    assert capsys.readouterr().err == "keras has no parameter growth_factor; the setting is ignored\n"


def test_unused_setting_or_repeated_rule_raises_a_usage_error(capsys):
    """Each setting must apply to at least one rule, and each rule must have a unique name. No note precedes the error."""
    with pytest.raises(click.UsageError, match="hysteresis"):
        read_rules(["torch", "keras"], {"hysteresis": "2"})
    assert capsys.readouterr().err == ""
    with pytest.raises(click.UsageError, match="twice"):
        read_rules(["torch", "torch"], {})


def test_settings_are_parsed_or_rejected():
    assert parse_settings(["init_scale=2**16", "growth_interval=4"]) == {"init_scale": "2**16", "growth_interval": "4"}
    for texts in (["init_scale"], ["init_scale=1", "init_scale=2"]):
        with pytest.raises(click.UsageError, match="a setting must be given once as FIELD=VALUE"):
            parse_settings(texts)
    with pytest.raises(click.UsageError, match=r"a rule has no field 'growth_intervall'; did you mean growth_interval\?"):
        parse_settings(["growth_intervall=3"])
