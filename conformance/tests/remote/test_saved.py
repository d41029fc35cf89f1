"""JSON encoding of saved states: data round-trips exactly, and anything else is rejected."""

import json
from collections import OrderedDict, namedtuple

import ml_dtypes
import numpy as np
import pytest
from ampscale_conformance.remote.saved import saved_from_json, saved_to_json

Point = namedtuple("Point", "x")
VALUES = {
    "numbers": [None, True, False, 0, -(10**30), 0.1, -0.0, float("inf"), "text\ud800", b"\x00\xff"],
    "containers": ((), [], {}, [(1, [2.0])], {"a": {1: 2, (3, None): 4}}, OrderedDict(b=1, a=2)),
    "scalars": [np.float32(1.1), np.bool_(True), np.int64(-1)],
}


def description(value):
    """Return the type and the repr of a value."""
    return f"{type(value).__name__}: {value!r}"


@pytest.mark.parametrize("name", VALUES)
def test_data_round_trips_with_its_types(name):
    """The JSON has no floats, so that no digit is lost."""
    encoded = json.loads(json.dumps(saved_to_json(VALUES[name])), parse_float=lambda digits: pytest.fail(digits))
    assert description(saved_from_json(encoded, "numpy")) == description(VALUES[name])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.complex64, np.int32, np.bool_])
def test_numpy_arrays_round_trip(dtype):
    """Arrays of shape () stay arrays instead of scalars."""
    for array in (np.array([[1, 0]], dtype), np.array(1, dtype)):
        decoded = saved_from_json(json.loads(json.dumps(saved_to_json(array))), "numpy")
        assert (type(decoded), decoded.dtype, decoded.shape) == (np.ndarray, array.dtype, array.shape)
        assert decoded.tobytes() == array.tobytes()


def test_arrays_keep_their_library():
    """Arrays of NumPy and of the adapter's library are created; those of a third library are rejected."""
    torch = pytest.importorskip("torch")
    encoded = saved_to_json([torch.tensor([1.5]), np.array([1.5])])
    assert [type(array) for array in saved_from_json(encoded, "torch")] == [torch.Tensor, np.ndarray]
    with pytest.raises(ValueError, match="numpy or jax, got"):
        saved_from_json(encoded, "jax")


@pytest.mark.parametrize("value", [object(), Point(1), [lambda: None], {"a": (1, {2})}, np.array([None]), print, type])
def test_other_objects_are_not_encoded(value):
    """Such objects may be nested. A NamedTuple is not encoded as a tuple."""
    with pytest.raises(
        TypeError, match=r"a saved state must be plain data, got an object of type|expected an array with a dtype of"
    ):
        saved_to_json(value)


@pytest.mark.parametrize(
    "encoded",
    [
        {},
        {"list": []},
        {"tuple": "ab"},
        {"float": 1},
        {"float": "0"},
        {"bytes": "0"},
        {"bytes": 0},
        {"dict": {"a": 1}},
        {"dict": [[1]]},
        {"dict": [1]},
        {"OrderedDict": [[[1], 2]]},
        {"tuple": [], "dict": []},
        {"numpy": {"dtype": "object", "shape": [], "bits": []}},
        {"torch": {"dtype": "bool", "shape": [], "bits": ["01"]}},
        {"os.system": ["true"]},
    ],
)
def test_other_encodings_are_not_decoded(encoded):
    """Decoding raises a ValueError."""
    with pytest.raises(ValueError, match=r"expected|hexadecimal"):
        saved_from_json([encoded], "numpy")
