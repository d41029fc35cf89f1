"""Networks and optimizers whose results can be checked by hand."""

from collections.abc import Mapping

import numpy as np

from ampscale import Network


def linear(*weights, dtype="float32"):
    """Return a network of weights, by default [1, 2]. Gradients are its inputs times the seed, which the list `seeds` records."""
    seeds = []

    def loss_of(params, *inputs):
        products = [np.sum(widened(weight) * widened(value)) for weight, value in zip(params, inputs, strict=True)]
        return np.asarray(sum(products)).astype(dtype)

    def vjp(params, *inputs):
        def pullback(seed):
            seeds.append(seed)
            with np.errstate(all="ignore"):
                return [(widened(value) * widened(seed)).astype(dtype) for value in inputs]

        with np.errstate(all="ignore"):
            return loss_of(params, *inputs), pullback

    network = Network(loss_of, [np.array(weight, dtype) for weight in weights or ([1.0, 2.0],)], vjp=vjp)
    network.seeds = seeds
    return network


def widened(array):
    """Return *array* in at least float32, as in a mixed-precision backward pass."""
    array = np.asarray(array)
    return array if array.dtype == np.float64 else array.astype(np.float32)


class Recorder:
    """Callable optimizer that records copies of the gradients."""

    def __init__(self):
        self.calls = []

    def __call__(self, gradients):
        self.calls.append([np.array(gradient) for gradient in gradients])


def array(value, dtype="float32"):
    return np.array(value, dtype)


def bits(values):
    """Return dtype, shape and bytes of each array, for comparisons bit for bit."""
    return [(np.asarray(value).dtype.name, np.shape(value), np.asarray(value).tobytes()) for value in values]


def frozen(value):
    """Return a pytree in a form that can be compared bit for bit."""
    if isinstance(value, Mapping):
        return {key: frozen(child) for key, child in value.items()}
    if isinstance(value, tuple | list):
        return [frozen(child) for child in value]
    return bits([value]) if isinstance(value, np.ndarray | np.generic) else (type(value), value)


FINE = array([1.0, -2.0])
BAD = array([float("inf"), 1.0])


def input_of(letter):
    """Return the input of a finite (F) or overflowing (O) step of a network with one weight of shape (2,)."""
    return FINE if letter == "F" else BAD
