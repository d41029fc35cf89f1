"""JSON codec: every kind of value round-trips exactly, and any other encoding is rejected."""

import math
import struct
import time

import numpy as np
import pytest
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.arrays import from_bits, to_bits
from ampscale_conformance.model.bits import DIGITS, Bits, map_tree
from ampscale_conformance.remote.codec import (
    Codec,
    hello_from_json,
    hello_to_json,
    read_float,
    read_line,
    read_reply,
    rule_to_json,
    write_float,
    write_line,
)
from hypothesis import given
from hypothesis import strategies as st

from ampscale import LossScaleRule
from ampscale.presets import PRESETS


class NamedHandles:
    """Registry of handles that are strings such as "handle3"."""

    def number(self, kind, handle):
        assert handle.startswith(kind)
        return int(handle.removeprefix(kind))

    def lookup(self, kind, number):
        return f"{kind}{number}"


CODEC = Codec("numpy", NamedHandles())
EVERY_FIELD = LossScaleRule(
    init_scale=3.3,
    growth_factor=1.1,
    backoff_factor=0.7,
    growth_interval=7,
    hysteresis=1,  # as `overflow_tolerance` requires
    min_scale=0.1,
    max_scale=2.0**20,
    reset_bad_steps_on=("growth", "finite"),
    divide_on_backoff=True,
    skip_infinite_growth=False,
    initial_good_steps=-3,
    dtype="float64",
    float64_factor=True,
    warmup_growth_factor=9.0,
    block_at_bounds=True,
    overflow_tolerance=0.3,
    raise_at_min_scale=True,
    raise_at_or_below=0.2,
    delayed_update=True,
)


def round_trip(kind, value):
    """Encode a value, write and read it as a line, and decode it."""
    return CODEC.decode(kind, read_line(write_line({"value": CODEC.encode(kind, value)}))["value"])


def array(dtype, *patterns):
    return from_bits(Bits(dtype, (len(patterns),), patterns), "numpy")


@given(st.integers(0, 2**64 - 1))
def test_floats_keep_their_bits(bits):
    """Every pattern round-trips, including every NaN."""
    value = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    assert struct.pack(">d", read_float(write_float(value))) == bits.to_bytes(8, "big")


def test_other_encodings_of_a_float_are_rejected():
    """A float is 16 lower-case hex digits that begin with the sign bit."""
    assert (write_float(1.0), write_float(-2.0), write_float(-0.0)) == (
        "3ff0000000000000",
        "c000000000000000",
        "8000000000000000",
    )
    for encoded in (1.0, 1, True, None, "3ff", "3FF0000000000000", "0x1p+0", " 3ff000000000000", "3ff00000_0000000"):
        with pytest.raises(ValueError, match="expected the 16 hex digits of a float64, got"):
            CODEC.decode("number", encoded)


def test_rules_round_trip():
    """
    The rules are those of all presets, and two rules that together differ from the defaults in every field.

    Their JSON contains no floats.
    """
    assert [name for name, value in vars(EVERY_FIELD).items() if value == getattr(LossScaleRule, name)] == ["hysteresis"]
    for rule in (EVERY_FIELD, LossScaleRule(hysteresis=3), *(preset.rule() for preset in PRESETS.values())):
        assert round_trip("rule", rule) == rule
        assert not any(isinstance(value, float) for value in rule_to_json(rule).values())


def test_invalid_rules_are_rejected():
    """Members have wrong types, names or combinations."""
    invalid = (
        {"init_scale": 8.0},
        {"min_scale": "8"},
        {"growth_interval": 2.5},
        {"delayed_update": 1},
        {"speed": 1},
        {"block_at_bounds": True},
        [],
        "x",
    )
    for encoded in invalid:
        with pytest.raises(ValueError, match=r"expected|must|require|unknown"):
            CODEC.decode("rule", encoded)


@pytest.mark.parametrize("dtype", DIGITS)
def test_arrays_of_every_dtype_round_trip(dtype):
    """Bits and shapes are kept, including those of empty arrays and of shape ()."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    patterns = (0, 1) if dtype == "bool" else (0, 16 ** DIGITS[dtype] - 1, int("9abcdef0" * 4, 16) % 16 ** DIGITS[dtype])
    for bits in (Bits(dtype, (len(patterns), 1), patterns), Bits(dtype, (0, 3), ()), Bits(dtype, (), patterns[:1])):
        assert to_bits(round_trip("tree", from_bits(bits, "numpy"))) == bits


def test_trees_round_trip():
    """Trees consist of lists, tuples, dicts and None, empty and nested."""
    leaf = array("float16", 0x3C00)
    tree = [(leaf, None, ()), {"bits": leaf, "tuple": [leaf], "dict": {"": {}}}, []]
    assert map_tree(to_bits, round_trip("tree", tree)) == map_tree(to_bits, tree)
    assert round_trip("tree", None) is None


def test_invalid_arrays_are_rejected():
    """NumPy or JSON Schema would accept some of these arrays. Messages are short. Tests of the schema cover other arrays."""
    bits = ("3c00", [15360], ["+c00"], ["3c00\n"], ["3c00", "3c00"])
    shapes = ([True], [1.0], ["1"], [1] * 100, [0] * 10**6, [10**1000, 0])
    invalid = [{"bits": value} for value in bits] + [{"shape": value} for value in shapes] + [{"shape": [0, 2**70], "bits": []}]
    for value in invalid:
        with pytest.raises(ValueError, match=r"^expected (an array with|a valid array: |at most 32 integer sizes)") as caught:
            CODEC.decode("tree", {"dtype": "float16", "shape": [1], "bits": ["3c00"]} | value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("flag or null", None),
        ("saved", {"any": [1, 0.1, None, "text"]}),
        ("options", {"learning_rate": [0.1, 1e-9], "max_norm": math.inf, "on": True, "none": None, "count": 3}),
        ("outputs", {"scale": 8.0, "attempted": 2**60}),
    ],
)
def test_other_kinds_round_trip(kind, value):
    """Other tests of this module, and the served adapters of test_serve.py, use the remaining kinds."""
    assert round_trip(kind, value) == value


def test_scalar_arrays_stay_arrays():
    """A float32 output or flag of shape () keeps its dtype; a NumPy float64 becomes a Python float, except in a list."""
    scale = round_trip("outputs", {"scale": np.float32(0.1)})["scale"]
    assert (scale.dtype, scale.shape, float(scale)) == (np.float32, (), float(np.float32(0.1)))
    assert to_bits(round_trip("flag", np.bool_(True))) == Bits("bool", (), (1,))
    assert type(round_trip("outputs", {"scale": np.float64(0.1)})["scale"]) is float
    (parameter,) = round_trip("outputs", {"parameters": [np.float64(0.1)]})["parameters"]
    assert (parameter.dtype, parameter.shape) == (np.float64, ())


def test_values_of_another_kind_are_rejected():
    """Decoding raises a ValueError."""
    for kind, value in (("handle", 1.0), ("handle and tree", {"0": 1, "1": []}), ("finite", 1), ("options", [])):
        with pytest.raises(ValueError, match=r"expected|must"):
            CODEC.decode(kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("rule", {"init_scale": 8.0}),
        ("finite", 1),
        ("flag", 1),
        ("flags", [np.True_]),
        ("number", None),
        ("tree", [1.0]),
        ("tree", {1: None}),
        ("tree", [{"a": ({2: None},)}]),
        ("tree", np.array(["a"])),
        ("arrays", np.zeros(2)),
        ("arrays", [[np.zeros(2)]]),
        ("handles", "handle1"),
        ("outputs", [1.0]),
        ("outputs", {1: 1.0}),
        ("outputs", {"words": "many"}),
    ],
)
def test_encode_rejects_other_types(kind, value):
    """Keys do not become strings, arrays do not become lists, and numbers do not become bools."""
    with pytest.raises(TypeError):
        CODEC.encode(kind, value)


@pytest.mark.parametrize("preset", ["paddle", EVERY_FIELD], ids=["name", "rule"])
def test_implementation_info_round_trips(preset):
    """The array library of the implementation is not sent, since arrays are sent as bits."""
    info = ImplementationInfo(name="é", version="1", url="u", level=3, capabilities={"loss", "resume"}, preset=preset)
    assert hello_from_json(read_line(write_line(hello_to_json(info)))) == info


def test_missing_members_of_hello_have_defaults():
    """Only the name is required. A preset may be a rule with the fields that differ."""
    assert hello_from_json({"protocol": 1, "implementation": {"name": "x"}}) == ImplementationInfo(name="x")
    implementation = {"name": "x", "preset": {"growth_interval": 5}}
    assert hello_from_json({"protocol": 1, "implementation": implementation}).preset == LossScaleRule(growth_interval=5)


def test_an_invalid_implementation_is_rejected():
    """The tests of the schema cover other values."""
    for implementation in ("x", {"name": "x", "preset": "nobody"}):
        with pytest.raises(ValueError, match=r"expected|nobody"):
            hello_from_json({"protocol": 1, "implementation": implementation})


def test_read_reply_returns_the_outcome_and_its_value():
    """Unpaired surrogates are escaped."""
    assert read_reply(b'{"id":3,"result":null}', 3) == ("result", None)
    assert read_reply(b'{"absent":"x","id":3}', 3) == ("absent", "x")
    assert read_reply(b'{"id":3,"raised":{"type":"E","message":"m"}}', 3) == ("raised", {"type": "E", "message": "m"})
    assert read_reply(b'{"id":3,"unsupported":"\\ud800"}', 3) == ("unsupported", "\\ud800")


INVALID_JSON = {
    "NaN": "NaN",
    "infinity": "-Infinity",
    "too large": "1e999",
    "too small": "-1e999",
    "duplicate name": '{"a": 1, "a": 1}',
    "trailing comma": "[1,]",
    "single quotes": "'1'",
    "byte order mark": "\ufeff1",
    "unclosed lists": "[" * 10**5,
    "nested lists": "[" * 101 + "]" * 101,
    "long integer": "1" * 5000,
    "long fraction": "1." + "1" * 10**6,
    "long name": '{"a' + "a" * 10**6 + '": 1, "a',
    "long word": "x" * 10**6,
    "surrogates before NaN": '["' + r"\ud800" * 10**5 + '", NaN]',
}


@pytest.mark.parametrize("name", INVALID_JSON)
def test_read_line_rejects_invalid_json(name):
    """A ValueError with a short message is raised in less than a second, even for JSON that some parsers accept."""
    started = time.process_time()
    with pytest.raises(ValueError, match="expected a JSON object, got ") as caught:
        read_line(f'{{"id": 3, "result": {{"saved": {INVALID_JSON[name]}}}}}'.encode())
    assert len(str(caught.value)) < 400
    assert time.process_time() - started < 1


def test_write_line_rejects_nan():
    with pytest.raises(ValueError, match="JSON compliant"):
        write_line({"saved": math.nan})
