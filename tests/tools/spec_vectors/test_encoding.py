"""What stands in a file of vectors."""

import math

import pytest
from ampscale_conformance.oracle.machine import Constants
from ampscale_conformance.oracle.tensors import array
from spec_vectors.encoding import argument, flags, number, rule, scalar

ARRAY = {"dtype": "float32", "shape": [1], "bits": ["40400000"]}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("0x1.8p+1", 3.0),
        ("-inf", -math.inf),
        (7, 7),
        (True, True),
        (None, None),
        ({"text": "nan"}, "nan"),
        ({"numpy": "int64", "value": 2**53 + 1}, 2**53 + 1),
        ({"numpy": "float32", "value": "0x1.999999999999ap-4"}, float.fromhex("0x1.99999ap-4")),
        ({"numpy": "float64", "value": 3}, 3.0),
        (ARRAY, array("float32", [3.0])),
        ([ARRAY, "inf", []], [array("float32", [3.0]), math.inf, []]),
        ({"dict": {"bits": "0x1.0p+0"}}, {"bits": 1.0}),
    ],
)
def test_an_argument(said, meant):
    """As spec/README.md has it."""
    assert argument(said) == meant
    assert type(argument(said)) is type(meant)


def test_a_rule_has_two_plain_words():
    """Refills and the dtype; everything else is an argument."""
    said = {
        "init_scale": "0x1.0p+3",
        "reset_bad_steps_on": ["growth"],
        "dtype": "float64",
        "growth_interval": 3,
        "delayed_update": True,
    }
    assert rule(said) == Constants(8.0, reset_bad_steps_on=("growth",), dtype="float64", growth_interval=3, delayed_update=True)


@pytest.mark.parametrize("said", ["0x1.8p+1", ARRAY, {**ARRAY, "shape": []}, 3])
def test_a_scale_is_a_number_or_an_array_of_one(said):
    """Of shape () or (1,)."""
    assert number(said) == 3.0


def test_signs_are_flags():
    """One a step."""
    assert flags("+-") == [True, False]


def test_a_number_is_written_as_an_array():
    """In a dtype and a shape of one element."""
    assert scalar(3.0, "float32", (1,)) == ARRAY
