"""
Loss scaler in plain Python that the suite tests as a program: it reads and writes JSON lines, and imports no package.

    ampscale conform --command "python conformance/examples/plain_python.py"

It claims torch's rule at level 1: float32 scales, factors applied in float64 and rounded once, no bounds. The protocol is
spec/conformance/protocol.md. A scaler that can be imported from Python needs an adapter instead of such a program.
"""

import json
import math
import struct
import sys

SELF = {
    "name": "plain Python",
    "version": "1",
    "level": 1,
    "capabilities": ["resume", "rounding", "division", "float16", "bfloat16", "integers", "none", "empty"],
    "preset": "torch",
}
FORMATS = {"float16": ">e", "float32": ">f", "float64": ">d"}


class Scaler:
    """Loss scaler. Its scale is a float32 value, stored in a Python float."""

    def __init__(self, scale, growth_factor, backoff_factor, growth_interval, good_steps=0):
        self.scale, self.good_steps = rounded(scale, "float32"), good_steps
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval

    def update(self, finite):
        """Update the scale after a step."""
        if not finite:
            self.scale, self.good_steps = rounded(self.scale * self.backoff_factor, "float32"), 0
            return
        self.good_steps += 1
        if self.good_steps >= self.growth_interval:
            grown = rounded(self.scale * self.growth_factor, "float32")
            self.scale, self.good_steps = grown if math.isfinite(grown) else self.scale, 0


# --- numbers as bit patterns ---


def packed(value, dtype):
    """Return the bit pattern of a float rounded to *dtype*, as hex digits."""
    if dtype == "bfloat16":  # the upper half of a float32, rounded to even
        bits = int(packed(value, "float32"), 16)
        return f"{bits >> 16 | 64:04x}" if math.isnan(value) else f"{bits + 0x7FFF + (bits >> 16 & 1) >> 16:04x}"
    try:
        return struct.pack(FORMATS[dtype], value).hex()
    except OverflowError:  # struct raises where IEEE 754 rounds to infinity
        return struct.pack(FORMATS[dtype], math.copysign(math.inf, value)).hex()


def unpacked(pattern, dtype):
    """Return the float of a bit pattern."""
    if dtype == "bfloat16":
        return unpacked(f"{pattern}0000", "float32")
    return struct.unpack(FORMATS[dtype], bytes.fromhex(pattern))[0]


def rounded(value, dtype):
    """Return a float rounded to *dtype*."""
    return unpacked(packed(value, dtype), dtype)


# --- trees ---


def arrays_in(tree):
    """Yield every array of a tree."""
    if isinstance(tree, list):
        for child in tree:
            yield from arrays_in(child)
    elif tree is not None and "bits" in tree:
        yield tree
    elif tree is not None:
        yield from arrays_in(tree["tuple"] if "tuple" in tree else list(tree["dict"].values()))


def mapped(tree, function):
    """Apply *function* to each number in place, in float32 (float64 for float64), and round to the dtype of the array."""
    for array in arrays_in(tree):
        dtype = array["dtype"]
        wide = "float64" if dtype == "float64" else "float32"
        array["bits"] = [packed(rounded(function(unpacked(bits, dtype)), wide), dtype) for bits in array["bits"]]
    return tree


def double(pattern):
    """Return a float from its form in the protocol, the bit pattern of a float64."""
    return unpacked(pattern, "float64")


# --- the protocol: a method for each call, whose parameters are the request's arguments ---


class Calls:
    """Methods of the protocol. A call of any other method is reported as absent."""

    def __init__(self):
        self.reset()

    def hello(self, protocol):
        """Return the description of this implementation."""
        return {"protocol": protocol, "implementation": SELF}

    def reset(self):
        """Delete all handles, which are indices into a list."""
        self.scalers = []

    bye = reset

    def create(self, rule, options):
        """Create a scaler. It supports four constants of a rule."""
        factors = double(rule["growth_factor"]), double(rule["backoff_factor"])
        self.scalers.append(Scaler(double(rule["init_scale"]), *factors, rule["growth_interval"]))
        return len(self.scalers) - 1

    def update(self, handle, finite):
        """Update the scaler in place, and return the same handle."""
        self.scalers[handle].update(finite)
        return handle

    def read_scale(self, handle):
        """Return the scale as the bit pattern of a float64."""
        return packed(self.scalers[handle].scale, "float64")

    def save(self, handle):
        """Return the state, which can be any JSON value."""
        return {"scale": self.read_scale(handle), "good_steps": self.scalers[handle].good_steps}

    def load(self, rule, saved):
        """Create a scaler from a saved state."""
        handle = self.create(rule, {})
        self.scalers[handle].scale, self.scalers[handle].good_steps = double(saved["scale"]), saved["good_steps"]
        return handle

    def scale(self, handle, tree):
        """Multiply a tree by the scale."""
        return mapped(tree, lambda value: value * self.scalers[handle].scale)

    def unscale(self, handle, tree):
        """Divide a tree by the scale."""
        return mapped(tree, lambda value: value / self.scalers[handle].scale)

    def all_finite(self, tree):
        """Return True if no number is infinite or NaN; integers and bools are finite."""
        floats = [array for array in arrays_in(tree) if "float" in array["dtype"]]
        return all(math.isfinite(unpacked(bits, array["dtype"])) for array in floats for bits in array["bits"])


def reply_to(request, calls):
    """Return the reply to a request: its id and one outcome."""
    method = getattr(calls, request["call"], None)
    if method is None:
        return {"id": request["id"], "absent": "not implemented"}
    try:
        return {"id": request["id"], "result": method(**request["arguments"])}
    except Exception as error:  # noqa: BLE001 - every error is reported
        return {"id": request["id"], "raised": {"type": type(error).__name__, "message": str(error)}}


def main():
    """Reply to each line with a line, until "bye"."""
    calls = Calls()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(reply_to(request, calls)), flush=True)
        if request["call"] == "bye":
            break


if __name__ == "__main__":
    main()
