"""A network and optimizers that a test can see through."""

import numpy as np

from ampscale import Network


def linear(*weights, dtype="float32"):
    """
    The loss is the sum of all weights times the inputs, one input a weight: the gradients are the inputs.

    A seed is kept in `network.seeds`.
    """
    seeds = []

    def loss_of(params, *inputs):
        products = [np.sum(wide(weight) * wide(given)) for weight, given in zip(params, inputs, strict=True)]
        return np.asarray(sum(products)).astype(dtype)

    def vjp(params, *inputs):
        def pullback(seed):
            seeds.append(seed)
            with np.errstate(all="ignore"):
                return [(wide(given) * wide(seed)).astype(dtype) for given in inputs]

        with np.errstate(all="ignore"):
            return loss_of(params, *inputs), pullback

    network = Network(loss_of, [np.array(weight, dtype) for weight in weights or ([1.0, 2.0],)], vjp=vjp)
    network.seeds = seeds
    return network


def wide(array):
    """At least float32, as a backward pass in mixed precision computes."""
    array = np.asarray(array)
    return array if array.dtype == np.float64 else array.astype(np.float32)


class Recorder:
    """An eager optimizer that only keeps what it is called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, gradients):
        """Keeps copies."""
        self.calls.append([np.array(gradient) for gradient in gradients])


def array(value, dtype="float32"):
    """*value* as a NumPy array, float32 unless told."""
    return np.array(value, dtype)


def bits(values):
    """What makes two lists of arrays the same: dtype, shape and every bit."""
    return [(np.asarray(value).dtype.name, np.shape(value), np.asarray(value).tobytes()) for value in values]


FINE = array([1.0, -2.0])
BAD = array([float("inf"), 1.0])


def data(letter):
    """The input that makes a step finite (F) or overflow (O) in a network of one weight of shape (2,)."""
    return FINE if letter == "F" else BAD
