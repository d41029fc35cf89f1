"""Every kind of value goes over the wire and comes back, bit for bit; and what is not exactly so is refused."""

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
    rule_to_json,
    write_float,
)
from ampscale_conformance.remote.jsonl import read_line, read_reply, write_line
from hypothesis import given
from hypothesis import strategies as st

from ampscale import LossScaleRule
from ampscale.presets import PRESETS


class Named:
    """Things that are their own names."""

    def number(self, kind, thing):
        assert thing.startswith(kind)
        return int(thing.removeprefix(kind))

    def lookup(self, kind, number):
        return f"{kind}{number}"


WIRE = Codec("numpy", Named())
EVERY_FIELD = LossScaleRule(
    3.3, 1.1, 0.7, 7, 1, 0.1, 2.0**20, ("growth", "finite"), True, False, -3, "float64", True, 9.0, True, 0.3, True, 0.2, True
)


def over(kind, value):
    """What arrives of a value, by way of a line."""
    return WIRE.decode(kind, read_line(write_line({"value": WIRE.encode(kind, value)}))["value"])


def array(dtype, *patterns):
    return from_bits(Bits(dtype, (len(patterns),), patterns), "numpy")


@given(st.integers(0, 2**64 - 1))
def test_a_float_is_its_bits(bits):
    """Every pattern comes back, every NaN's among them."""
    value = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    assert struct.pack(">d", read_float(write_float(value))) == bits.to_bytes(8, "big")


def test_what_is_no_pattern_is_no_float():
    """However a float might else be written; a pattern begins with the sign, as protocol.md says."""
    assert (write_float(1.0), write_float(-2.0), write_float(-0.0)) == (
        "3ff0000000000000",
        "c000000000000000",
        "8000000000000000",
    )
    for said in (1.0, 1, True, None, "3ff", "3FF0000000000000", "0x1p+0", " 3ff000000000000", "3ff00000_0000000"):
        with pytest.raises(ValueError, match="expected the 16 hex digits of a float64, got"):
            WIRE.decode("number", said)


def test_a_rule_comes_back():
    """Of every published scaler, and with no field at its default but one."""
    assert [name for name, value in vars(EVERY_FIELD).items() if value == getattr(LossScaleRule, name)] == ["hysteresis"]
    for rule in (EVERY_FIELD, LossScaleRule(hysteresis=3), *(preset.rule() for preset in PRESETS.values())):
        assert over("rule", rule) == rule
        assert not any(isinstance(value, float) for value in rule_to_json(rule).values())


def test_a_rule_that_cannot_be_is_refused():
    """By its members' kinds, their names, and what they are together."""
    wrong = (
        {"init_scale": 8.0},
        {"min_scale": "8"},
        {"growth_interval": 2.5},
        {"delayed_update": 1},
        {"speed": 1},
        {"block_at_bounds": True},
        [],
        "x",
    )
    for said in wrong:
        with pytest.raises(ValueError, match=r"expected|must|require|unknown"):
            WIRE.decode("rule", said)


@pytest.mark.parametrize("dtype", DIGITS)
def test_an_array_of_every_dtype_comes_back(dtype):
    """Bit for bit, with its shape; an array of no element, and one of shape ()."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    patterns = (0, 1) if dtype == "bool" else (0, 16 ** DIGITS[dtype] - 1, int("9abcdef0" * 4, 16) % 16 ** DIGITS[dtype])
    for bits in (Bits(dtype, (len(patterns), 1), patterns), Bits(dtype, (0, 3), ()), Bits(dtype, (), patterns[:1])):
        assert to_bits(over("tree", from_bits(bits, "numpy"))) == bits


def test_a_tree_keeps_its_form():
    """Lists, tuples, dicts and None, of nothing and of each other."""
    one = array("float16", 0x3C00)
    tree = [(one, None, ()), {"bits": one, "tuple": [one], "dict": {"": {}}}, []]
    assert map_tree(to_bits, over("tree", tree)) == map_tree(to_bits, tree)
    assert over("tree", None) is None


def test_what_is_no_array_is_refused():
    """Exactly one way is right: what NumPy or JSON Schema would let pass is none; the rest the schema's tests hold."""
    bits = ("3c00", [15360], ["+c00"], ["3c00\n"], ["3c00", "3c00"])
    shapes = ([True], [1.0], ["1"], [1] * 100, [0] * 10**6, [10**1000, 0])
    wrong = [{"bits": said} for said in bits] + [{"shape": said} for said in shapes] + [{"shape": [0, 2**70], "bits": []}]
    for said in wrong:
        with pytest.raises(ValueError, match=r"expected|elements|sizes") as caught:
            WIRE.decode("tree", {"dtype": "float16", "shape": [1], "bits": ["3c00"]} | said)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("finite", True),
        ("flag", False),
        ("answer", None),
        ("answer", True),
        ("flags", [True, False]),
        ("handle", "handle0"),
        ("optimizer", "optimizer7"),
        ("cell", "cell1"),
        ("adapter", "adapter2"),
        ("handles", ["handle3", "handle3"]),
        ("nothing", None),
        ("saved", {"any": [1, 0.1, None, "text"]}),
        ("options", {"learning_rate": [0.1, 1e-9], "max_norm": math.inf, "on": True, "none": None, "count": 3}),
        ("outputs", {"scale": 8.0, "attempted": 2**60}),
    ],
)
def test_other_kinds_come_back(kind, value):
    """As they went."""
    assert over(kind, value) == value


def test_arrays_may_lack_one():
    """None among arrays stays where it is; a handle and a tree come as a pair."""
    got = over("arrays", (array("float32", 0x3F800000), None))
    assert (to_bits(got[0]), got[1]) == (Bits("float32", (1,), (0x3F800000,)), None)
    handle, tree = over("handle and tree", ("handle4", [array("float32", 0x3F800000)]))
    assert (handle, to_bits(tree[0]).bits) == ("handle4", (0x3F800000,))


def test_numbers_that_are_arrays_stay_arrays():
    """An output of shape () in float32 is told as one, so that its dtype is seen; so is a flag."""
    scale = over("outputs", {"scale": np.float32(0.1)})["scale"]
    assert (scale.dtype, scale.shape, float(scale)) == (np.float32, (), float(np.float32(0.1)))
    assert to_bits(over("flag", np.bool_(True))) == Bits("bool", (), (1,))
    assert type(over("outputs", {"scale": np.float64(0.1)})["scale"]) is float


def test_what_is_of_no_kind_is_refused():
    """A ValueError for each value that is of none of the kinds that a request has."""
    for kind, said in (("handle", 1.0), ("handle and tree", {"0": 1, "1": []}), ("finite", 1), ("options", [])):
        with pytest.raises(ValueError, match=r"expected|must"):
            WIRE.decode(kind, said)


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
def test_what_cannot_be_said_is_not_said_otherwise(kind, value):
    """A key is not made a string, nor a list an array, nor a number a bool."""
    with pytest.raises(TypeError):
        WIRE.encode(kind, value)


@pytest.mark.parametrize("preset", ["paddle", EVERY_FIELD], ids=["name", "rule"])
def test_what_an_implementation_says_of_itself_comes_back(preset):
    """All but the library of its arrays, which are bits on the way."""
    info = ImplementationInfo(name="é", version="1", url="u", level=3, capabilities={"loss", "resume"}, preset=preset)
    assert hello_from_json(read_line(write_line(hello_to_json(info)))) == info


def test_what_is_left_out_of_hello_has_its_default():
    """A name is enough; and of a rule what differs."""
    assert hello_from_json({"protocol": 1, "implementation": {"name": "x"}}) == ImplementationInfo(name="x")
    said = {"name": "x", "preset": {"growth_interval": 5}}
    assert hello_from_json({"protocol": 1, "implementation": said}).preset == LossScaleRule(growth_interval=5)


def test_what_is_no_implementation_is_refused():
    """Nor is one of a preset that nobody knows; the schema's tests hold the rest."""
    for said in ("x", {"name": "x", "preset": "nobody"}):
        with pytest.raises(ValueError, match=r"expected|nobody"):
            hello_from_json({"protocol": 1, "implementation": said})


def test_a_reply_has_one_outcome():
    """And it comes with what it says; unpaired surrogates are escaped."""
    assert read_reply(b'{"id":3,"result":null}', 3) == ("result", None)
    assert read_reply(b'{"absent":"x","id":3}', 3) == ("absent", "x")
    assert read_reply(b'{"id":3,"raised":{"type":"E","message":"m"}}', 3) == ("raised", {"type": "E", "message": "m"})
    assert read_reply(b'{"id":3,"unsupported":"\\ud800"}', 3) == ("unsupported", "\\ud800")


@pytest.mark.parametrize(
    "said",
    [
        *(
            "NaN",
            "-Infinity",
            "1e999",
            "-1e999",
            '{"a": 1, "a": 1}',
            "[1,]",
            "'1'",
            "\ufeff1",
            "[" * 10**5,
            "[" * 101 + "]" * 101,
        ),
        *("1" * 5000, "1." + "1" * 10**6, '{"a' + "a" * 10**6 + '": 1, "a', "x" * 2**23, '["' + r"\ud800" * 10**5 + '", NaN]'),
    ],
    ids=range(15),
)
def test_what_is_no_json_is_no_line(said):
    """However many readers of JSON take it; also in what is saved."""
    started = time.process_time()
    with pytest.raises(ValueError, match="expected a JSON object, got ") as caught:
        read_line(f'{{"id": 3, "result": {{"saved": {said}}}}}'.encode())
    assert len(str(caught.value)) < 400
    assert time.process_time() - started < 1
    with pytest.raises(ValueError, match="JSON compliant"):  # nor is it sent
        write_line({"saved": math.nan})
