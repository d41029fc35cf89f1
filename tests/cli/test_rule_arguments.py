"""How rules and numbers are written on the command line."""

import dataclasses

import click
import pytest

from ampscale import presets
from ampscale.cli.rule_arguments import NUMBER, number, parse_settings, read_rule, read_rules


def test_numbers_are_read():
    """Decimals, powers and hexadecimal, and whole numbers as ints."""
    numbers = {"32768": 32768, "2**15": 32768, "0x1p15": 32768.0, "1e-4": 1e-4, "2**-3": 0.125, " 0.5 ": 0.5, "-1": -1}
    for word, value in numbers.items():
        assert (number(word), type(number(word))) == (value, type(value))
        assert NUMBER.convert(word, None, None) == value


def test_what_is_no_number_is_refused():
    """A ValueError that shows how numbers are written; a huge power takes no time."""
    for word in ("", "x", "2**", "**2", "2**3**4", "9**999999", "1e999999**2", "0**-1", "0x", "2^15"):
        with pytest.raises(ValueError, match=r"^a number must be written like"):
            number(word)
        with pytest.raises(click.BadParameter):
            NUMBER.convert(word, None, None)


def test_a_preset_is_a_rule_with_settings():
    """Its own parameters go through its function, any other field into its rule."""
    assert read_rule("torch") == ("torch", presets.torch())
    for_all = {"growth_interval": "7", "init_scale": "8"}  # these give way to the rule's own
    assert read_rule("torch:growth_interval=4", for_all)[1] == presets.torch(8, growth_interval=4)
    assert read_rule("flax:growth_interval=4") == ("flax:growth_interval=4", presets.flax(growth_interval=4))
    _, rule = read_rule("paddle_document:reset_bad_steps_on=backoff,init_scale=2**16")
    assert rule == dataclasses.replace(presets.paddle_document(init_scale=2**16), reset_bad_steps_on=("backoff",))
    assert read_rule("megatron:reset_bad_steps_on=growth+finite,min_scale=none,skip_infinite_growth=true")[
        1
    ] == dataclasses.replace(
        presets.megatron(), reset_bad_steps_on=("growth", "finite"), min_scale=None, skip_infinite_growth=True
    )


def test_a_rule_is_read_as_python_prints_it_and_from_a_file(tmp_path):
    """`repr` can be pasted, and `to_json` put into a file; settings change them too."""
    rule = dataclasses.replace(presets.deepspeed(), max_scale=2.0**40)
    assert read_rule(repr(rule)) == ("rule", rule)
    file = tmp_path / "mine.json"
    file.write_text(rule.to_json())
    assert read_rule(str(file)) == ("mine", rule)
    assert read_rule(str(file), {"growth_interval": "3"})[1] == dataclasses.replace(rule, growth_interval=3)


def test_what_is_no_rule_is_refused(tmp_path):
    """An error of usage that names the text; also a file of other JSON, or of none."""
    for text in [
        *(
            "pytorch",
            "torch:growth=4",
            "torch:growth_interval",
            "torch:growth_interval=x",
            "torch:delayed_update=true,delayed_update=true",
        ),
        *("torch:growth_interval=0", "torch:reset_bad_steps_on=finit", "LossScaleRule(8)", "LossScaleRule(init_scale="),
        *("LossScaleRule(init=1.0)", "LossScaleRule(init_scale=__import__('os'))", "missing.json"),
    ]:
        with pytest.raises(click.BadParameter) as caught:
            read_rule(text)
        assert text in caught.value.message
    for content in ("[]", "scale", '{"scale": 1}'):
        (tmp_path / "rule.json").write_text(content)
        with pytest.raises(click.BadParameter, match=r"a rule must"):
            read_rule(str(tmp_path / "rule.json"))


def test_a_setting_that_a_preset_lacks_is_left_out_and_said(capsys):
    """Keras cannot be given a factor; torch can."""
    rules = read_rules(["torch", "keras"], {"growth_factor": "4", "growth_interval": "5"})
    assert rules == {"torch": presets.torch(growth_factor=4, growth_interval=5), "keras": presets.keras(growth_interval=5)}
    assert capsys.readouterr().err == "keras has no growth_factor to set, and keeps its own\n"


def test_a_setting_that_none_has_and_a_rule_named_twice_are_refused():
    """One would do nothing, and results are told apart by names."""
    with pytest.raises(click.BadParameter, match="hysteresis"):
        read_rules(["torch", "keras"], {"hysteresis": "2"})
    with pytest.raises(click.BadParameter, match="twice"):
        read_rules(["torch", "torch"], {})


def test_settings_are_pairs():
    """Each FIELD=VALUE, once."""
    assert parse_settings(["init_scale=2**16", "growth_interval=4"]) == {"init_scale": "2**16", "growth_interval": "4"}
    for words in (["init_scale"], ["init=3"], ["init_scale=1", "init_scale=2"]):
        with pytest.raises(click.BadParameter, match="a setting must be"):
            parse_settings(words)
