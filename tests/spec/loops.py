"""Hand-written training loops for the test vectors of spec/55-calls.md, with the suite's adapters of two scalers of ampscale."""

import pytest
from ampscale_conformance.adapters.loading import find
from ampscale_conformance.model.arrays import from_bits, to_bits
from ampscale_conformance.model.bits import Bits
from ampscale_conformance.oracle.tensors import same
from vectors import argument, arguments

from ampscale import LossScaleRule


class Loop:
    """Scaler of an adapter, and the optimizers of a test vector."""

    def __init__(self, adapter_name, case):
        self.adapter = find(adapter_name)
        self.scaler = self.adapter.create(LossScaleRule(**arguments(case["rule"])))
        self.optimizers = {
            name: self.adapter.add_optimizer(self.scaler, self.arrays(parameters))
            for name, parameters in case["optimizers"].items()
        }

    def arrays(self, encoded):
        """Return encoded arrays as arrays of the scaler's library; None stays None."""
        return [None if value is None else from_bits(Bits.from_json(value), self.adapter.info.arrays) for value in encoded]

    def run(self, call):
        """Run a call, and return True if its result is as expected. A missing rejection fails the test."""
        optimizers = [self.optimizers[call["optimizer"]]] if "optimizer" in call else []
        if call["call"] == "set_gradients":
            self.adapter.set_gradients(self.scaler, *optimizers, self.arrays(call["gradients"]))
            return True
        method = self.adapter.update_scale if call["call"] == "update" else getattr(self.adapter, call["call"])
        if call["result"] == "rejected":
            with pytest.raises(RuntimeError):
                method(self.scaler, *optimizers)
        else:
            result = method(self.scaler, *optimizers)
            if call.get("applied", result) != result:
                return False
        return self.state_matches(call.get("expect", {}))

    def state_matches(self, expected):
        """Return True if the scale, the gradients and the parameters are as expected."""
        if "scale" in expected and self.adapter.read_scale(self.scaler) != argument(expected["scale"]):
            return False
        for attribute in ("gradients", "parameters"):
            read = getattr(self.adapter, f"get_{attribute}")
            for name, arrays in expected.get(attribute, {}).items():
                pairs = zip(read(self.scaler, self.optimizers[name]), arrays, strict=True)
                if not all(same_bits(actual, encoded) for actual, encoded in pairs):
                    return False
        return True


def same_bits(actual, encoded):
    """Return True if an array has the encoded bits, or both arguments are None."""
    if actual is None or encoded is None:
        return actual is encoded
    return same(to_bits(actual), Bits.from_json(encoded))
