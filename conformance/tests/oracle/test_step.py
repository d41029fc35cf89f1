"""Whole steps where the cases and the vectors do not go: 16 bits, scales beyond all numbers, and what stays as it was."""

import dataclasses

import pytest
from ampscale_conformance.oracle.machine import Constants
from ampscale_conformance.oracle.step import Training
from ampscale_conformance.oracle.tensors import array


def test_what_the_scale_saves_reaches_the_optimizer_or_is_lost_in_16_bits():
    """2**-28 in float32 gradients moves a float16 parameter; unscaled in float16 it is zero."""
    data, rate = [array("float32", [2.0**-28])], {"learning_rate": 2.0**27}
    rule = Constants(init_scale=2.0**15)
    moved = Training(rule, [array("float16", [1.0])], **rate).step(data)
    lost = Training(rule, [array("float16", [1.0])], unscaled_to=None, **rate).step(data)
    assert (moved.parameters, lost.parameters) == ([array("float16", [0.5])], [array("float16", [1.0])])


def test_beside_float32_gradients_a_float64_scale_is_rounded():
    """To 1, which divides exactly; as it stands it would take the last bit away."""
    data = [array("float32", [1.75, 1.9375, 3.875])]
    training = Training(Constants(init_scale=1 + 1.9 * 2.0**-25, dtype="float64"), data)
    assert training.backward(data) == (data, True)


def test_the_unscaled_side_is_looked_at_too():
    """1.999 * 2**127 is rounded up while it is scaled by 2**-130, in bfloat16, and comes back as infinity."""
    rule, data = Constants(init_scale=2.0**-130), [array("float32", [2.0**127 * 1.999])]
    assert not Training(rule, [array("bfloat16", [1.0])]).step(data).finite
    assert Training(rule, [array("float32", [1.0])]).step(data).finite


@pytest.mark.parametrize(("scale", "guard"), [(2.0**127, False), (2.0**-149, True)])
def test_a_scale_beyond_all_numbers_lets_nothing_pass(scale, guard):
    """An unguarded growth makes it infinite, a backoff without a floor zero; every step is an overflow from there on."""
    training = Training(
        Constants(init_scale=scale, growth_interval=1, skip_infinite_growth=guard), [array("float32", [1.0, 0.0])]
    )
    first = training.step([array("float32", [0.0, 0.0] if scale > 1 else [float("inf"), 0.0])])
    assert first.next_scale in (0, float("inf"))
    assert not training.step([array("float32", [1.0, 1.0])]).finite


def test_a_step_in_which_the_published_scaler_stops_says_so():
    """The scale is held, and nothing is applied."""
    training = Training(Constants(init_scale=1.0, min_scale=1.0, raise_at_min_scale=True), [array("float32", [1.0])])
    came = training.step([array("float32", [float("inf")])])
    assert (came.status, came.next_scale, came.applied, came.attempted) == ("WOULD_RAISE", 1, 0, 1)


def test_outputs_are_not_changed_by_later_steps():
    """A list of its own each time."""
    training = Training(Constants(init_scale=1.0), [array("float32", [1.0])])
    first = training.step([array("float32", [1.0])])
    before = dataclasses.replace(first, parameters=list(first.parameters))
    training.step([array("float32", [1.0])])
    assert first == before
