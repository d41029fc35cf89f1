"""Tests of the encoding of values in the vector files."""

import math

import pytest
from ampscale_conformance.oracle.tensors import array
from spec_vectors.encoding import argument

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
