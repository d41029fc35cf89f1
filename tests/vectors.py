"""Reads the vectors of spec/: floats from their hex form, arrays from their bits."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np

VECTORS = Path(__file__).parent.parent / "spec" / "vectors"


def cases():
    """Every case of every file, with its chapter."""
    files = (json.loads(path.read_text()) for path in sorted(VECTORS.glob("*.json")) if path.stem != "schema")
    return [{"chapter": file["chapter"], **case} for file in files for case in file["cases"]]


def array(vector):
    """The array that a vector writes as dtype, shape and big-endian bits."""
    dtype = np.dtype({"bfloat16": ml_dtypes.bfloat16}.get(vector["dtype"], vector["dtype"]))
    data = b"".join(bytes.fromhex(bits) for bits in vector["bits"])
    part = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return np.frombuffer(data, f">u{part}").astype(f"u{part}").view(dtype).reshape(vector["shape"])


def argument(value):
    """What stands for an argument or a tree: see the conventions in spec/README.md."""
    if isinstance(value, list):
        return [argument(item) for item in value]
    if isinstance(value, str):
        return float.fromhex(value)
    if not isinstance(value, dict):
        return value
    if "bits" in value:
        return array(value)
    if "dict" in value:
        return {key: argument(item) for key, item in value["dict"].items()}
    return value["text"] if "text" in value else np.dtype(value["numpy"]).type(argument(value["value"]))


def arguments(values):
    """A dictionary of arguments."""
    return {name: argument(value) for name, value in values.items()}


def rule_arguments(values):
    """The arguments of a LossScaleRule, whose `reset_bad_steps_on` and `dtype` are plain words."""
    plain = {name: values[name] for name in ("reset_bad_steps_on", "dtype") if isinstance(values.get(name), list | str)}
    given = arguments({name: value for name, value in values.items() if name not in plain})
    return {**given, **{name: tuple(value) if name == "reset_bad_steps_on" else value for name, value in plain.items()}}


def same(got, wanted):
    """Whether two arrays agree in dtype, shape and bits; any NaN equals any NaN."""
    got = np.asarray(got)
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    both_nan = (got != got) & (wanted != wanted)
    bits = f"V{got.dtype.itemsize}"
    return bool(
        np.all(both_nan | (np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(wanted).view(bits)).reshape(got.shape))
    )
