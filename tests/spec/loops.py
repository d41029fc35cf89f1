"""Loops written by hand, for the vectors of spec/55-calls.md: both documented scalers over optimizers that subtract gradients."""

import importlib

import numpy as np
import pytest
from linear import network
from strategies import alike
from vectors import argument, arguments, array

import ampscale


def called(case, loop):
    """Whether each call of a vector goes as it says, in its turn."""
    for call in case["calls"]:
        if call["call"] == "set_gradients":
            loop.lay(call["optimizer"], [argument(gradient) for gradient in call["gradients"]])
        elif not (went(call, loop) and stands(call.get("expect", {}), loop)):
            return False
    return True


def went(call, loop):
    """Whether a call is refused, or answered, as it shall be."""
    method = getattr(loop.scaler, call["call"])
    optimizers = [loop.optimizers[call["optimizer"]]] if "optimizer" in call else []
    if call["result"] == "rejected":
        with pytest.raises(RuntimeError):
            method(*optimizers)
        return True
    answer = method(*optimizers)
    return call.get("applied", answer) == answer


def stands(expected, loop):
    """Whether the scale, the gradients and the parameters are now as they shall be."""
    if "scale" in expected and loop.scale() != argument(expected["scale"]):
        return False
    lying = [
        (got, wanted)
        for read in ("gradients", "parameters")
        for name, arrays in expected.get(read, {}).items()
        for got, wanted in zip(getattr(loop, read)(name), map(argument, arrays), strict=True)
    ]
    return all(got is wanted if wanted is None or got is None else alike(got, wanted) for got, wanted in lying)


class PaddleLoop:
    """Optimizers of the package under Paddle's scaler."""

    def __init__(self, case):
        given = arguments(case["rule"])
        self.scaler = ampscale.GradScaler(
            init_loss_scaling=given["init_scale"],
            incr_every_n_steps=given.get("growth_interval", 2000),
            decr_every_n_nan_or_inf=1,
        )
        self.optimizers = {
            name: ampscale.optimizers.SGD(network([np.array(array(parameter)) for parameter in parameters]), 1.0)
            for name, parameters in case["optimizers"].items()
        }

    def lay(self, name, gradients):
        for parameter, gradient in zip(self.optimizers[name].parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.copy()

    def gradients(self, name):
        return [parameter.grad for parameter in self.optimizers[name].parameters]

    def parameters(self, name):
        return [parameter.value for parameter in self.optimizers[name].parameters]

    def scale(self):
        return self.scaler.get_loss_scaling()


class TorchLoop:
    """torch's optimizers under torch's scaler."""

    def __init__(self, case):
        self.torch = pytest.importorskip("torch")
        self.scaler = importlib.import_module("ampscale.frameworks.torch").GradScaler(**arguments(case["rule"]))
        self.scaler.scale(self.torch.zeros(()))
        self.optimizers = {name: self.sgd(parameters) for name, parameters in case["optimizers"].items()}

    def sgd(self, parameters):
        made = [self.torch.nn.Parameter(self.torch.from_numpy(array(parameter).copy())) for parameter in parameters]
        return self.torch.optim.SGD(made, lr=1.0)

    def held(self, name):
        return self.optimizers[name].param_groups[0]["params"]

    def lay(self, name, gradients):
        for parameter, gradient in zip(self.held(name), gradients, strict=True):
            parameter.grad = None if gradient is None else self.torch.from_numpy(gradient.copy())

    def gradients(self, name):
        return [None if parameter.grad is None else parameter.grad.numpy() for parameter in self.held(name)]

    def parameters(self, name):
        return [parameter.detach().numpy() for parameter in self.held(name)]

    def scale(self):
        return self.scaler.get_scale()
