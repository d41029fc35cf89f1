"""
The data of the demo, and its network, which is scaled badly on purpose.

The weights are drawn 2048 wide where 0.2 would be usual. A normalisation behind every product hides that from the
forward pass, so nothing looks wrong. The backward pass sees it: what the normalisation divides by, gradients are divided
by too. Float32 does not mind. Float16 ends at 6e-8, and the gradients of a loss that is averaged over 256 images of ten
answers each, divided by some ten thousand, are below that.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import autograd.numpy as np  # NumPy, recorded for the backward pass
import numpy
from sklearn.datasets import load_digits

from .. import Network

CREDIT = (
    "UCI Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak): CC BY 4.0; shipped by scikit-learn, BSD-3-Clause"
)
TRAINING, BATCH = 1200, 256
WIDTHS = (64, 32, 32, 32, 32, 32, 10)
WEIGHT = 2048.0  # the standard deviation of the first weights

Array = Any
Params = list[Array]
Batch = tuple[Array, Array]


class Digits(NamedTuple):
    """The digits, shuffled and split."""

    training: Batch  # images: float32, shape (1200, 64), from 0 to 1; answers: float32, shape (1200, 10), one 1 a row
    test: Batch  # the other 597


def load(seed: int) -> Digits:
    """The digits, split by *seed*."""
    images, labels = load_digits(return_X_y=True)
    order = numpy.random.default_rng(seed).permutation(len(images))
    images = (images[order] / 16).astype("float32")
    answers = numpy.eye(10, dtype="float32")[labels[order]]
    return Digits((images[:TRAINING], answers[:TRAINING]), (images[TRAINING:], answers[TRAINING:]))


def batches(digits: Digits, steps: int, seed: int) -> Iterator[Batch]:
    """As many random batches as there are *steps*, the same for the same *seed*."""
    images, answers = digits.training
    random = numpy.random.default_rng([seed, 1])
    for _ in range(steps):
        chosen = random.integers(0, len(images), BATCH)
        yield images[chosen], answers[chosen]


def first_params(seed: int) -> Params:
    """The first weights: float32, as they are for every run; a float16 network casts them in each step."""
    random = numpy.random.default_rng([seed, 2])
    shapes = zip(WIDTHS, WIDTHS[1:], strict=False)
    return [random.normal(0, WEIGHT, shape).astype("float32") for shape in shapes]


def network_of(params: Params, dtype: str) -> Network:
    """The network that computes in *dtype*."""
    return Network(partial(loss_of, dtype=dtype), params)


def loss_of(params: Params, images: Array, answers: Array, dtype: str) -> Array:
    """How wrong ten yes-or-no answers an image are: binary cross-entropy, the mean over all of them, in float32."""
    outputs = outputs_of(params, images, dtype)
    return np.mean(np.logaddexp(0, outputs) - answers * outputs)


def outputs_of(params: Params, images: Array, dtype: str) -> Array:
    """Ten outputs an image, float32; weights, hidden values and their gradients are *dtype*."""
    hidden = images.astype(dtype)
    for weights in params[:-1]:
        hidden = np.tanh(normalised(product(hidden, weights.astype(dtype))).astype(dtype))
    return normalised(product(hidden, params[-1].astype(dtype)))


def product(left: Array, right: Array) -> Array:
    """A matrix product as tensor cores take it: float16 in, sums in float32, float16 out."""
    return (left.astype("float32") @ right.astype("float32")).astype(left.dtype)


def normalised(values: Array) -> Array:
    """Every row moved to mean 0 and standard deviation 1, in float32."""
    values = values.astype("float32")
    centred = values - np.mean(values, axis=1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + 1e-6)


def accuracy(params: Params, dtype: str, batch: Batch) -> float:
    """The share of images whose largest output is the right one; a network that outputs NaN knows none."""
    images, answers = batch
    outputs = outputs_of(params, images, dtype)
    right = numpy.argmax(outputs, axis=1) == numpy.argmax(answers, axis=1)
    return float(numpy.mean(right & numpy.isfinite(outputs).all(axis=1)))


def underflow(params: Params, dtype: str, batch: Batch, scale: float) -> float:
    """Of the gradient values that are not zero in float32, the share that is zero in *dtype* with the loss times *scale*."""
    here, exact = (_gradients(params, of, batch, times) for of, times in ((dtype, scale), ("float32", 1.0)))
    return float(numpy.mean(here[exact != 0] == 0)) if exact.any() else 0.0


def _gradients(params: Params, dtype: str, batch: Batch, scale: float) -> Array:
    loss, pullback = network_of(params, dtype).vjp(params, *batch)
    return numpy.concatenate([gradient.ravel() for gradient in pullback(numpy.full_like(loss, scale))])
