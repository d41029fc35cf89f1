"""Tests of whole steps that cases and vectors do not cover: 16-bit dtypes, scales of zero and infinity, and snapshots."""

import dataclasses
import math

import pytest
from ampscale_conformance.oracle.machine import Constants
from ampscale_conformance.oracle.step import Training
from ampscale_conformance.oracle.tensors import array


def test_small_gradients_survive_only_in_float32():
    """Unscaled in float32, a gradient of 2**-28 changes a float16 parameter. Unscaled in float16, the gradient is zero."""
    data, options = [array("float32", [2.0**-28])], {"learning_rate": 2.0**27}
    rule = Constants(init_scale=2.0**15)
    applied = Training(rule, [array("float16", [1.0])], **options).step(data)
    lost = Training(rule, [array("float16", [1.0])], unscaled_to=None, **options).step(data)
    assert (applied.parameters, lost.parameters) == ([array("float16", [0.5])], [array("float16", [1.0])])


def test_a_float64_scale_is_rounded_for_float32_gradients():
    """The scale is rounded to 1, which divides exactly; the float64 scale would change the last bit."""
    data = [array("float32", [1.75, 1.9375, 3.875])]
    training = Training(Constants(init_scale=1 + 1.9 * 2.0**-25, dtype="float64"), data)
    assert training.backward(data) == (data, True)


def test_unscaled_gradients_are_checked_too():
    """In bfloat16, 1.999 * 2**127 is rounded up when it is scaled by 2**-130, and becomes infinite when it is unscaled."""
    rule, data = Constants(init_scale=2.0**-130), [array("float32", [2.0**127 * 1.999])]
    assert not Training(rule, [array("bfloat16", [1.0])]).step(data).finite
    assert Training(rule, [array("float32", [1.0])]).step(data).finite


@pytest.mark.parametrize(
    ("scale", "gradient", "next_scale"),
    [
        (2.0**127, 0.0, math.inf),  # a growth, which `skip_infinite_growth` would skip
        (2.0**-149, math.inf, 0.0),  # a backoff, which `min_scale` would limit
    ],
)
def test_every_step_overflows_with_a_scale_of_zero_or_infinity(scale, gradient, next_scale):
    """The first step changes the scale to zero or infinity."""
    rule = Constants(init_scale=scale, growth_interval=1, skip_infinite_growth=False)
    training = Training(rule, [array("float32", [1.0, 0.0])])
    assert training.step([array("float32", [gradient, 0.0])]).next_scale == next_scale
    assert not training.step([array("float32", [1.0, 1.0])]).finite


def test_an_error_of_the_published_scaler_is_reported_in_the_status():
    """The scale is unchanged, and the step is not applied."""
    training = Training(Constants(init_scale=1.0, min_scale=1.0, raise_at_min_scale=True), [array("float32", [1.0])])
    report = training.step([array("float32", [float("inf")])])
    assert (report.status, report.next_scale, report.applied, report.attempted) == ("WOULD_RAISE", 1, 0, 1)


def test_outputs_are_not_changed_by_later_steps():
    """Each step returns a new list of parameters."""
    training = Training(Constants(init_scale=1.0), [array("float32", [1.0])])
    first = training.step([array("float32", [1.0])])
    snapshot = dataclasses.replace(first, parameters=list(first.parameters))
    training.step([array("float32", [1.0])])
    assert first == snapshot


@pytest.mark.parametrize("variant", [(True, False), (False, True)])
def test_a_step_without_gradients_updates_the_scale_or_counts_as_applied(variant):
    """With a growth interval of 1, a finite step doubles the scale."""
    rule = Constants(init_scale=1.0, growth_interval=1)
    report = Training(rule, [array("float32", [1.0])], without_gradients=variant).step([None])
    assert (report.status, report.next_scale == 2, report.applied == 1) == ("NO_GRADIENTS", *variant)
