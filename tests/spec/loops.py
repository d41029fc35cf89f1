"""Hand-written training loops for the test vectors of spec/55-calls.md, with Paddle's and torch's scaler."""

import importlib

import numpy as np
import pytest
from linear import network
from strategies import alike
from vectors import argument, arguments, array

import ampscale


def run_calls(case, loop):
    """Run the calls of a test vector in order, and return True if all results are as expected."""
    for call in case["calls"]:
        if call["call"] == "set_gradients":
            loop.set_gradients(call["optimizer"], [argument(gradient) for gradient in call["gradients"]])
        elif not (run_call(call, loop) and state_matches(call.get("expect", {}), loop)):
            return False
    return True


def run_call(call, loop):
    """Run a call, and return True if its result is as expected. A missing rejection fails the test."""
    method = getattr(loop.scaler, call["call"])
    optimizers = [loop.optimizers[call["optimizer"]]] if "optimizer" in call else []
    if call["result"] == "rejected":
        with pytest.raises(RuntimeError):
            method(*optimizers)
        return True
    result = method(*optimizers)
    return call.get("applied", result) == result


def state_matches(expected, loop):
    """Return True if the scale, the gradients and the parameters are as expected."""
    if "scale" in expected and loop.scale() != argument(expected["scale"]):
        return False
    pairs = [
        (actual, target)
        for read in ("gradients", "parameters")
        for name, arrays in expected.get(read, {}).items()
        for actual, target in zip(getattr(loop, read)(name), map(argument, arrays), strict=True)
    ]
    return all(actual is target if actual is None or target is None else alike(actual, target) for actual, target in pairs)


class PaddleLoop:
    """Paddle's scaler with optimizers of the package."""

    def __init__(self, case):
        settings = arguments(case["rule"])
        self.scaler = ampscale.GradScaler(
            init_loss_scaling=settings["init_scale"],
            incr_every_n_steps=settings.get("growth_interval", 2000),
            decr_every_n_nan_or_inf=1,
        )
        self.optimizers = {
            name: ampscale.optimizers.SGD(network([np.array(array(parameter)) for parameter in parameters]), 1.0)
            for name, parameters in case["optimizers"].items()
        }

    def set_gradients(self, name, gradients):
        for parameter, gradient in zip(self.optimizers[name].parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.copy()

    def gradients(self, name):
        return [parameter.grad for parameter in self.optimizers[name].parameters]

    def parameters(self, name):
        return [parameter.value for parameter in self.optimizers[name].parameters]

    def scale(self):
        return self.scaler.get_loss_scaling()


class TorchLoop:
    """torch's scaler with torch's optimizers."""

    def __init__(self, case):
        self.torch = pytest.importorskip("torch")
        self.scaler = importlib.import_module("ampscale.frameworks.torch").GradScaler(**arguments(case["rule"]))
        self.scaler.scale(self.torch.zeros(()))  # before the first `scale`, other calls are rejected
        self.optimizers = {name: self.sgd(parameters) for name, parameters in case["optimizers"].items()}

    def sgd(self, parameters):
        tensors = [self.torch.nn.Parameter(self.torch.from_numpy(array(parameter).copy())) for parameter in parameters]
        return self.torch.optim.SGD(tensors, lr=1.0)

    def tensors(self, name):
        return self.optimizers[name].param_groups[0]["params"]

    def set_gradients(self, name, gradients):
        for parameter, gradient in zip(self.tensors(name), gradients, strict=True):
            parameter.grad = None if gradient is None else self.torch.from_numpy(gradient.copy())

    def gradients(self, name):
        return [None if parameter.grad is None else parameter.grad.numpy() for parameter in self.tensors(name)]

    def parameters(self, name):
        return [parameter.detach().numpy() for parameter in self.tensors(name)]

    def scale(self):
        return self.scaler.get_scale()
