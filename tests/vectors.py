"""Reader of the test vectors in spec/: floats in hexadecimal, arrays as bits."""

import json
from pathlib import Path

import numpy as np
from ampscale_conformance.model.arrays import from_bits
from ampscale_conformance.model.bits import Bits

VECTORS = Path(__file__).parent.parent / "spec" / "vectors"


def cases():
    """Return the test vectors of all files as dicts, each with its chapter."""
    files = (json.loads(path.read_text()) for path in sorted(VECTORS.glob("*.json")) if path.stem != "schema")
    return [{"chapter": file["chapter"], **case} for file in files for case in file["cases"]]


def array(encoded):
    """Decode an array that is written as dtype, shape and big-endian bits."""
    return from_bits(Bits.from_json(encoded), "numpy")


def argument(value):
    """Decode an argument or a tree; see the conventions in spec/README.md."""
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
    """Decode a dict from the names of arguments to their encoded values."""
    return {name: argument(value) for name, value in values.items()}


def rule_arguments(values):
    """Decode the arguments of a LossScaleRule, of which `reset_bad_steps_on` and a valid `dtype` are written as plain strings."""
    rule = {name: argument(value) for name, value in values.items() if name not in ("reset_bad_steps_on", "dtype")}
    if "reset_bad_steps_on" in values:
        rule["reset_bad_steps_on"] = tuple(values["reset_bad_steps_on"])
    if "dtype" in values:
        rule["dtype"] = values["dtype"] if isinstance(values["dtype"], str) else argument(values["dtype"])
    return rule
