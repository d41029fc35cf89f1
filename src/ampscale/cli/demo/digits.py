"""
Data and network of the demo. The network is scaled badly on purpose.

The weights of the hidden layers are 8192 times too large. A normalization after each product hides this in the forward pass, but
divides the values of the backward pass by the same factor. These values are small already, since the loss is a mean over 256
images with ten outputs each. The gradients of the hidden values are therefore about 1e-8, which float32 represents, but float16
does not: the smallest positive float16 number is 6e-8.
"""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import autograd.numpy as np  # NumPy functions that autograd records for the backward pass
import numpy
from sklearn.datasets import load_digits

from ... import Network

CREDIT = "UCI Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak), CC BY 4.0; from scikit-learn, BSD-3-Clause"
TRAINING, BATCH = 1200, 256  # numbers of training images, and of images in a batch
WIDTHS = (64, 32, 32, 32, 32, 32, 10)
GAIN = 8192.0

Array = Any  # NumPy array, or autograd's wrapper of an array while it records operations
Params = list[Array]
Batch = tuple[Array, Array]  # images: float32, shape (N, 64), 0 to 1; one-hot labels: float32, shape (N, 10)


class Digits(NamedTuple):
    """Digits, shuffled and split into training and test images."""

    training: Batch  # 1,200 images
    test: Batch  # 597 images


def load(seed: int) -> Digits:
    """Load the digits, and split them at random by *seed*."""
    images, labels = load_digits(return_X_y=True)
    order = numpy.random.default_rng([seed, 0]).permutation(len(images))
    images = (images[order] / 16).astype("float32")
    answers = numpy.eye(10, dtype="float32")[labels[order]]
    return Digits((images[:TRAINING], answers[:TRAINING]), (images[TRAINING:], answers[TRAINING:]))


def batches_of(data: Digits, steps: int, seed: int) -> Iterator[Batch]:
    """Yield a random batch for each step, determined by *seed*."""
    images, answers = data.training
    rng = numpy.random.default_rng([seed, 1])
    for _ in range(steps):
        chosen = rng.integers(0, len(images), BATCH)
        yield images[chosen], answers[chosen]


def first_params(seed: int) -> Params:
    """Return the initial weights, one float32 matrix for each layer. A float16 network rounds them in each step."""
    rng = numpy.random.default_rng([seed, 2])
    return [rng.normal(0, rows**-0.5, (rows, columns)).astype("float32") for rows, columns in pairwise(WIDTHS)]


def network_of(params: Params, dtype: str) -> Network:
    """Return the network that computes in *dtype*."""
    return Network(partial(loss_of, dtype=dtype), params)


def loss_of(params: Params, images: Array, answers: Array, dtype: str) -> Array:
    """Return the mean binary cross-entropy of the ten outputs for each image, in float32."""
    outputs = outputs_of(params, images, dtype)
    return np.mean(np.logaddexp(0, outputs) - answers * outputs)


def outputs_of(params: Params, images: Array, dtype: str) -> Array:
    """Return ten float32 outputs for each image. Weights, hidden values and the gradients of both have *dtype*."""
    hidden = images.astype(dtype)
    for weights in params[:-1]:
        summed = product(hidden, (GAIN * weights).astype(dtype))
        hidden = np.tanh(normalized(summed).astype(dtype))
    return product(hidden, params[-1].astype(dtype)).astype("float32")


def product(left: Array, right: Array) -> Array:
    """Return the matrix product, accumulated in float32 as on tensor cores and rounded to the dtype of *left*."""
    return (left.astype("float32") @ right.astype("float32")).astype(left.dtype)


def normalized(values: Array) -> Array:
    """Return *values* in float32, with each row shifted and scaled to mean 0 and standard deviation 1."""
    values = values.astype("float32")
    centered = values - np.mean(values, axis=1, keepdims=True)
    return centered / np.sqrt(np.mean(centered**2, axis=1, keepdims=True) + 1e-6)


def accuracy(params: Params, dtype: str, batch: Batch) -> float:
    """Return the share of images whose largest output is at the label. Images with a non-finite output count as wrong."""
    images, answers = batch
    with numpy.errstate(all="ignore"):  # diverged weights overflow
        outputs = outputs_of(params, images, dtype)
    correct = numpy.argmax(outputs, axis=1) == numpy.argmax(answers, axis=1)
    return float(numpy.mean(correct & numpy.isfinite(outputs).all(axis=1)))


def underflow(params: Params, dtype: str, batch: Batch, scale: float) -> float:
    """Return the share of gradient values that become zero in *dtype* with this *scale*, among those nonzero in float32."""
    exact = _gradients(params, "float32", batch, 1.0)
    rounded = _gradients(params, dtype, batch, scale)
    return float(numpy.mean(rounded[exact != 0] == 0))


def _gradients(params: Params, dtype: str, batch: Batch, scale: float) -> Array:
    loss, pullback = network_of(params, dtype).vjp(params, *batch)
    return numpy.concatenate([gradient.ravel() for gradient in pullback(numpy.full_like(loss, scale))])
