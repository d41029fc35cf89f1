"""One training run with ten overflows. The results must be equal on every library."""

import numpy as np
import pytest
from libraries import load
from linear import network
from strategies import DTYPES, same

import ampscale

SHAPES = ((3, 2), (2,), ())  # of the parameters
OVERFLOWS = {0: np.inf, 3: np.nan, 4: np.inf, 10: np.nan, 11: np.inf, 12: np.nan, 23: np.inf, 29: np.nan, 30: np.inf, 31: np.nan}
RULE = ampscale.LossScaleRule(2.0**19, growth_interval=5, hysteresis=2, min_scale=2.0**10, max_scale=2.0**20)


def inputs_of_steps():
    """Return the inputs of each step: small binary fractions, or an infinity or NaN. The gradients equal the inputs."""
    rng = np.random.default_rng(0)
    inputs = [[rng.integers(-64, 64, shape).astype(np.float32) / 256 for shape in SHAPES] for _ in range(32)]
    for step, bad in OVERFLOWS.items():
        inputs[step][step % 2].flat[0] = bad
    return inputs


def parameters(library, dtype):
    """Return the initial weights, equal on every library."""
    rng = np.random.default_rng(1)
    return [library.array(rng.standard_normal(shape), dtype) for shape in SHAPES]


def run_train_step(library, dtype):
    """Run `train_step` with Momentum; return its reports and the final parameters."""
    model = network(parameters(library, dtype))
    optimizer = ampscale.optimizers.Momentum(model, learning_rate=[0.5, 0.25, 0.125], weight_decay=2.0**-10)
    state, reports = ampscale.init_train_state(model.params, optimizer, RULE), []
    for inputs in inputs_of_steps():
        state, report = ampscale.train_step(model, optimizer, RULE, state, library.from_numpy(inputs))
        values = (report.finite, report.applied, report.scale, report.next_scale, report.status, state.attempted, state.applied)
        reports.append([library.get(value).item() for value in values])
    return reports, library.to_numpy(state.params)


def run_cell(library, dtype):
    """Run a MindFormers cell with SGD; return its outputs and the final parameters."""
    model = network(parameters(library, dtype))
    optimizer = ampscale.optimizers.SGD(model, learning_rate=[0.5, 0.25, 0.125], weight_decay=2.0**-10)
    step = ampscale.MFTrainOneStepCell(model, optimizer, scale_sense=ampscale.DynamicLossScaleUpdateCell(2.0**20, 2, 5))
    outputs = [step(library.from_numpy(inputs)) for inputs in inputs_of_steps()]
    reports = [[library.get(value).item() for value in (out.overflow, out.loss_scale, out.learning_rate)] for out in outputs]
    return reports, library.to_numpy(model.params)


RUNS = [
    (run_train_step, "strict", "float32"),
    (run_train_step, "torch", "float16"),
    (run_train_step, "jax", "float64"),
    (run_cell, "strict16", "bfloat16"),
    (run_cell, "torch", "float64"),
    (run_cell, "jax", "float16"),
]
ON_DEVICE = [pytest.param(run, "cupy", dtype, marks=pytest.mark.device) for run in (run_train_step, run_cell) for dtype in DTYPES]


@pytest.mark.clause("BACKENDS-same-run")
@pytest.mark.parametrize(("run", "library", "dtype"), [*RUNS, *ON_DEVICE], indirect=["library"])
def test_runs_equal_those_of_numpy(library, run, dtype):
    """Overflows, scales, applied steps and parameters are equal."""
    expected, expected_params = run(load("numpy"), dtype)
    actual, params = run(library, dtype)
    assert actual == expected
    assert same(params, expected_params)
