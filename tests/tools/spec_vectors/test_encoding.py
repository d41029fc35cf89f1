"""Tests of the encoding of values in the vector files."""

import math

import pytest
from ampscale_conformance.oracle.machine import Constants
from ampscale_conformance.oracle.tensors import array
from spec_vectors.encoding import argument, flags, number, rule, scalar

ARRAY = {"dtype": "float32", "shape": [1], "bits": ["40400000"]}


@pytest.mark.parametrize(
    ("encoded", "value"),
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
def test_argument_decodes_values(encoded, value):
    """The encoding is defined in spec/README.md."""
    assert argument(encoded) == value
    assert type(argument(encoded)) is type(value)


def test_rule_has_two_plain_strings():
    """`reset_bad_steps_on` and `dtype` are plain strings, and all other fields are encoded arguments."""
    encoded = {
        "init_scale": "0x1.0p+3",
        "reset_bad_steps_on": ["growth"],
        "dtype": "float64",
        "growth_interval": 3,
        "delayed_update": True,
    }
    assert rule(encoded) == Constants(
        8.0, reset_bad_steps_on=("growth",), dtype="float64", growth_interval=3, delayed_update=True
    )


@pytest.mark.parametrize("encoded", ["0x1.8p+1", ARRAY, {**ARRAY, "shape": []}, 3])
def test_number_decodes_numbers_and_arrays_of_one_element(encoded):
    """The array has shape () or (1,)."""
    assert number(encoded) == 3.0


def test_flags_decodes_signs():
    """The text has one sign for each step."""
    assert flags("+-") == [True, False]


def test_scalar_encodes_a_number_as_an_array():
    """The array has one element, and the given dtype and shape."""
    assert scalar(3.0, "float32", (1,)) == ARRAY
