"""`GradScaler.update` with torch's kernel, compared with the rule: scale and count are equal bit for bit."""

from copy import copy
from dataclasses import replace

import libraries
import pytest
import torch
from frameworks.torch.loops import INF, bits
from hypothesis import example, given
from hypothesis import strategies as st

from ampscale import presets
from ampscale.core.dtypes import FLOATS
from ampscale.frameworks.torch import GradScaler
from ampscale.frameworks.torch.optimizer_step import update_scale

MIN_SCALE = FLOATS["float32"].smallest_normal
LARGEST = FLOATS["float32"].largest
CONSTANTS = {
    "growth_factor": st.sampled_from([2.0, 1.1, 1.0000001, 3.0, 2.0**100, LARGEST]) | st.floats(1, 1e9, exclude_min=True),
    "backoff_factor": st.sampled_from([0.5, 0.3, 0.9999999, 2.0**-100, MIN_SCALE]) | st.floats(1e-9, 1, exclude_max=True),
    "growth_interval": st.integers(1, 4),
    "init_scale": st.sampled_from([MIN_SCALE, 1.5 * MIN_SCALE, LARGEST, 2.0**127]) | st.floats(MIN_SCALE, LARGEST, width=32),
}
CALLS = [("update", 4.0), ("update", 3.0), ("set_growth_factor", 2.0), ("set_growth_factor", 3.0), ("set_backoff_factor", 0.25)]
CALLS += [("set_backoff_factor", 0.3), ("step", 1.0), ("step", INF), ("get_scale", None), ("state_dict", None)]


@pytest.mark.clause(
    "TORCH-arithmetic", "TORCH-skip-infinite-growth", "TORCH-min-scale", "TORCH-growth", "TORCH-backoff", "MACHINE-at-least"
)
@given(constants=st.fixed_dictionaries(CONSTANTS), steps=st.lists(st.booleans(), max_size=60), count=st.integers(0, 6))
def test_the_update_equals_that_of_the_rule(constants, steps, count):
    """Factors and scales are arbitrary, and the first count may exceed the interval."""
    rule = replace(presets.torch(), min_scale=MIN_SCALE, **constants)
    expected = rule.init(like=torch.empty(()))._replace(good_steps=torch.tensor(count, dtype=torch.int32))
    state = expected._replace(scale=expected.scale.clone(), good_steps=expected.good_steps.clone())
    for number, finite in enumerate(steps):
        expected = rule.update(expected, torch.tensor(finite))
        found_inf = [torch.tensor(0.0 if finite else 1.0)]
        update_scale(rule, state, found_inf, may_exceed=number == 0, may_undercut=not finite)
        assert bits(list(state[:3])) == bits(list(expected[:3]))


@pytest.mark.clause("TORCH-min-scale", "TORCH-fused", "TORCH-host-sync")
@pytest.mark.parametrize("fused", [False, True])
def test_the_lower_bound_holds_with_and_without_a_synchronization(fused):
    """After three overflows, the scale is at the bound, and a growth doubles it."""
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.0, fused=fused)
    scaler = GradScaler(init_scale=4 * MIN_SCALE, backoff_factor=0.3, growth_interval=1)
    scaler.scale(torch.ones(()))
    scales = []
    for gradient in (INF, INF, INF, 0.0):
        parameter.grad = torch.tensor([gradient])
        scaler.step(optimizer)
        with libraries.load("torch").count_reads() as reads:
            scaler.update()
        assert reads == []
        scales.append(scaler.get_scale())
    assert scales == [float(torch.tensor(1.2 * MIN_SCALE)), MIN_SCALE, MIN_SCALE, 2 * MIN_SCALE]


@pytest.mark.clause("TORCH-unscale", "TORCH-arithmetic")
@given(init=st.sampled_from([1.0, 2.0**16, 3.0, 2.0**-126]), fused=st.booleans(), calls=st.lists(st.sampled_from(CALLS)))
@example(init=1.0, fused=False, calls=[("step", 1.0)])
def test_the_lower_bound_of_the_scale_is_correct(init, fused, calls):
    """
    After any sequence of calls, the bound is at most the scale, and 0 unless the scale is a power of two.

    It is positive if no scale was another number, and the initial scale if there were only finite steps.
    """
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.0, fused=fused)
    scaler = GradScaler(init_scale=init, growth_interval=1)
    scaler.scale(torch.ones(()))
    for name, value in calls:
        if name == "step":
            parameter.grad = torch.tensor([value])
            scaler.step(optimizer)
            scaler.update()
        else:
            getattr(scaler, name)(*([] if value is None else [value]))
        lower_bound, scale = scaler._scale_lower_bound(), copy(scaler).get_scale()
        assert lower_bound <= scale
        assert lower_bound == 0 or torch.frexp(torch.tensor(scale)).mantissa == 0.5
        if name in ("update", "get_scale", "state_dict"):  # the scale was written or read on the host
            assert lower_bound in (0, scale)
    has_only_powers_of_two = {3.0, 0.3}.isdisjoint([init, *(value for _, value in calls)])
    if has_only_powers_of_two:
        assert scaler._scale_lower_bound() > 0
    if all(call == ("step", 1.0) for call in calls) and not fused:
        assert scaler._scale_lower_bound() == (0 if init == 3.0 else init)
