"""
The data of the demo, and its network, which is scaled badly on purpose.

The weights of the hidden layers are 8192 times larger than they should be. A normalisation behind each product hides
that from the forward pass, where nothing looks wrong. The backward pass is divided by what the normalisation divided
by, and it starts small already, since the loss is a mean over 256 images of ten answers each. So the gradients of the
hidden values lie around 1e-8: nothing to float32, and below the smallest positive float16, 6e-8.
"""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import autograd.numpy as np  # NumPy, recorded for the backward pass
import numpy
from sklearn.datasets import load_digits

from ... import Network

CREDIT = "UCI Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak), CC BY 4.0; from scikit-learn, BSD-3-Clause"
TRAINING, BATCH = 1200, 256
WIDTHS = (64, 32, 32, 32, 32, 32, 10)
GAIN = 8192.0

Array = Any  # of NumPy, or of autograd while it records
Params = list[Array]
Batch = tuple[Array, Array]  # images: float32, shape (N, 64), 0 to 1; answers: float32, shape (N, 10), one 1 in each row


class Digits(NamedTuple):
    """The digits, shuffled and split."""

    training: Batch  # 1,200 images
    test: Batch  # the other 597


def load(seed: int) -> Digits:
    """The digits, split by *seed*."""
    images, labels = load_digits(return_X_y=True)
    order = numpy.random.default_rng([seed, 0]).permutation(len(images))
    images = (images[order] / 16).astype("float32")
    answers = numpy.eye(10, dtype="float32")[labels[order]]
    return Digits((images[:TRAINING], answers[:TRAINING]), (images[TRAINING:], answers[TRAINING:]))


def batches_of(data: Digits, steps: int, seed: int) -> Iterator[Batch]:
    """As many random batches as there are *steps*; the same for the same *seed*."""
    images, answers = data.training
    random = numpy.random.default_rng([seed, 1])
    for _ in range(steps):
        chosen = random.integers(0, len(images), BATCH)
        yield images[chosen], answers[chosen]


def first_params(seed: int) -> Params:
    """The first weights, one matrix a layer: float32 in every run. A float16 network rounds them in each step."""
    random = numpy.random.default_rng([seed, 2])
    return [random.normal(0, rows**-0.5, (rows, columns)).astype("float32") for rows, columns in pairwise(WIDTHS)]


def network_of(params: Params, dtype: str) -> Network:
    """The network that computes in *dtype*."""
    return Network(partial(loss_of, dtype=dtype), params)


def loss_of(params: Params, images: Array, answers: Array, dtype: str) -> Array:
    """Ten yes-or-no answers an image, and how wrong they are: binary cross-entropy in float32, the mean over all."""
    outputs = outputs_of(params, images, dtype)
    return np.mean(np.logaddexp(0, outputs) - answers * outputs)


def outputs_of(params: Params, images: Array, dtype: str) -> Array:
    """Ten outputs an image, float32. Weights, hidden values and the gradients of both are *dtype*."""
    hidden = images.astype(dtype)
    for weights in params[:-1]:
        summed = product(hidden, (GAIN * weights).astype(dtype))
        hidden = np.tanh(normalised(summed).astype(dtype))
    return product(hidden, params[-1].astype(dtype)).astype("float32")


def product(left: Array, right: Array) -> Array:
    """The matrix product as tensor cores take it: summed in float32, and rounded to the dtype of *left*."""
    return (left.astype("float32") @ right.astype("float32")).astype(left.dtype)


def normalised(values: Array) -> Array:
    """Each row moved to mean 0 and standard deviation 1, in float32."""
    values = values.astype("float32")
    centred = values - np.mean(values, axis=1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + 1e-6)


def accuracy(params: Params, dtype: str, batch: Batch) -> float:
    """The share of images whose largest output is the right one; outputs that are not finite are wrong."""
    images, answers = batch
    with numpy.errstate(all="ignore"):  # weights that ran away
        outputs = outputs_of(params, images, dtype)
    right = numpy.argmax(outputs, axis=1) == numpy.argmax(answers, axis=1)
    return float(numpy.mean(right & numpy.isfinite(outputs).all(axis=1)))


def underflow(params: Params, dtype: str, batch: Batch, scale: float) -> float:
    """Of the gradient values that are not zero in float32, the share that is zero in *dtype*, the loss times *scale*."""
    exact = _gradients(params, "float32", batch, 1.0)
    rounded = _gradients(params, dtype, batch, scale)
    return float(numpy.mean(rounded[exact != 0] == 0))


def _gradients(params: Params, dtype: str, batch: Batch, scale: float) -> Array:
    loss, pullback = network_of(params, dtype).vjp(params, *batch)
    return numpy.concatenate([gradient.ravel() for gradient in pullback(numpy.full_like(loss, scale))])
