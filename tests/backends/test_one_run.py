"""One training run with ten overflows. The results must be equal on every library."""

from itertools import product

import numpy as np
import pytest
from libraries import DTYPES_OF, load
from linear import network
from strategies import same

import ampscale

STEPS = 32
OVERFLOWS = dict(zip((0, 3, 4, 10, 11, 12, 23, 29, 30, 31), 5 * (np.inf, np.nan), strict=True))
RULE = ampscale.LossScaleRule(2.0**19, growth_interval=5, hysteresis=2, min_scale=2.0**10, max_scale=2.0**20)


def data():
    """Return the inputs of each step: small binary fractions, or an infinity or NaN. The gradients equal the inputs."""
    rng = np.random.default_rng(0)
    inputs = [[rng.integers(-64, 64, shape).astype(np.float32) / 256 for shape in ((3, 2), (2,), ())] for _ in range(STEPS)]
    for step, bad in OVERFLOWS.items():
        inputs[step][step % 2].flat[0] = bad
    return inputs


def parameters(library, dtype):
    """Return the initial weights, equal on every library."""
    rng = np.random.default_rng(1)
    return [library.array(rng.standard_normal(shape), dtype) for shape in ((3, 2), (2,), ())]


def pure(library, dtype):
    """Run `train_step` with Momentum; return its reports and the final parameters."""
    model = network(parameters(library, dtype))
    optimizer = ampscale.optimizers.Momentum(model, learning_rate=[0.5, 0.25, 0.125], weight_decay=2.0**-10)
    state, reports = ampscale.init_train_state(model.params, optimizer, RULE), []
    for inputs in data():
        state, report = ampscale.train_step(model, optimizer, RULE, state, library.from_numpy(inputs))
        values = (report.finite, report.applied, report.scale, report.next_scale, report.status, state.attempted, state.applied)
        reports.append([library.get(value).item() for value in values])
    return reports, library.to_numpy(state.params)


def cell(library, dtype):
    """Run a MindFormers cell with SGD; return its outputs and the final parameters."""
    model = network(parameters(library, dtype))
    optimizer = ampscale.optimizers.SGD(model, learning_rate=[0.5, 0.25, 0.125], weight_decay=2.0**-10)
    step = ampscale.MFTrainOneStepCell(model, optimizer, scale_sense=ampscale.DynamicLossScaleUpdateCell(2.0**20, 2, 5))
    outputs = [step(library.from_numpy(inputs)) for inputs in data()]
    reports = [[library.get(value).item() for value in (out.overflow, out.loss_scale, out.learning_rate)] for out in outputs]
    return reports, library.to_numpy(model.params)


RUNS = [(pure, "strict", "float32"), (cell, "strict16", "bfloat16"), (pure, "torch", "float16"), (cell, "torch", "float64")]
RUNS += [(pure, "jax", "float64"), (cell, "jax", "float16")]
RUNS += [pytest.param(run, "cupy", dtype, marks=pytest.mark.device) for run, dtype in product((pure, cell), DTYPES_OF["cupy"])]


@pytest.mark.clause("BACKENDS-same-run")
@pytest.mark.parametrize(("run", "library", "dtype"), RUNS, indirect=["library"])
def test_runs_equal_those_of_numpy(library, run, dtype):
    """Overflows, scales, applied steps and parameters are equal."""
    (expected, expected_params), (actual, params) = run(load("numpy"), dtype), run(library, dtype)
    assert actual == expected
    assert same(params, expected_params)
