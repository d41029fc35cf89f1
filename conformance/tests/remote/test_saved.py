"""Saved states as JSON: what is data comes back as it was, and anything else is refused."""

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


def shown(value):
    """A value with the types of all its parts."""
    return f"{type(value).__name__}: {value!r}"


@pytest.mark.parametrize("name", VALUES)
def test_data_comes_back_as_it_was(name):
    """With the type of each part, through JSON that has no float."""
    said = json.loads(json.dumps(saved_to_json(VALUES[name])), parse_float=lambda digits: pytest.fail(digits))
    assert shown(saved_from_json(said, "numpy")) == shown(VALUES[name])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.complex64, np.int32, np.bool_])
def test_arrays_come_back_as_they_were(dtype):
    """Also where they have no dimension, as arrays that can be written to."""
    for array in (np.array([[1, 0]], dtype), np.array(1, dtype)):
        got = saved_from_json(json.loads(json.dumps(saved_to_json(array))), "numpy")
        assert (type(got), got.dtype, got.shape, got.tobytes()) == (np.ndarray, array.dtype, array.shape, array.tobytes())


def test_arrays_of_a_library_come_back_as_its_own():
    """And NumPy's beside them as NumPy's; those of a third library are not created."""
    torch = pytest.importorskip("torch")
    said = saved_to_json([torch.tensor([1.5]), np.array([1.5])])
    assert [type(each) for each in saved_from_json(said, "torch")] == [torch.Tensor, np.ndarray]
    with pytest.raises(ValueError, match="numpy or jax, got"):
        saved_from_json(said, "jax")


@pytest.mark.parametrize("value", [object(), Point(1), [lambda: None], {"a": (1, {2})}, np.array([None]), print, type])
def test_what_is_not_data_is_not_written(value):
    """Wherever in it an object of another type is; a subclass of a type of data is another type."""
    with pytest.raises(TypeError, match=r"a saved state must be data, got an object of type|expected an array with a dtype of"):
        saved_to_json(value)


@pytest.mark.parametrize(
    "said",
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
        {"tuple": [], "dict": []},
        {"numpy": {"dtype": "object", "shape": [], "bits": []}},
        {"torch": {"dtype": "bool", "shape": [], "bits": ["01"]}},
        {"os.system": ["true"]},
    ],
)
def test_what_is_not_written_is_not_read(said):
    """A ValueError, whatever it is."""
    with pytest.raises(ValueError, match=r"expected|hexadecimal|is required"):
        saved_from_json([said], "numpy")
