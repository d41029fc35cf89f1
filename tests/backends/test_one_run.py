"""One training run, with ten overflows provoked, is the same run on every library."""

from itertools import product

import numpy as np
import pytest
from libraries import DTYPES_OF, load
from linear import network
from strategies import same

import ampscale
from ampscale.core.step import StepStatus

STEPS = 60
OVERFLOWS = dict(zip((0, 3, 4, 17, 18, 19, 30, 41, 42, 59), 5 * (np.inf, np.nan), strict=True))
RULE = ampscale.LossScaleRule(2.0**20, growth_interval=5, hysteresis=2, min_scale=2.0**10, max_scale=2.0**22)
PAIRS = [("strict", "float32"), ("strict16", "bfloat16"), *product(("torch", "jax"), ("float16", "float64"))]
PAIRS += [pytest.param("cupy", dtype, marks=pytest.mark.device) for dtype in DTYPES_OF["cupy"]]
OTHERS = pytest.mark.parametrize(("library", "dtype"), PAIRS, indirect=["library"])


def data():
    """The inputs of each step, which are its gradients: small binary fractions, and the overflows."""
    random = np.random.default_rng(0)
    inputs = [[random.integers(-64, 64, shape).astype(np.float32) / 256 for shape in ((3, 2), (2,), ())] for _ in range(STEPS)]
    for step, bad in OVERFLOWS.items():
        inputs[step][step % 2].flat[0] = bad
    return inputs


def parameters(library, dtype):
    """The same weights everywhere."""
    random = np.random.default_rng(1)
    return [library.array(random.standard_normal(shape), dtype) for shape in ((3, 2), (2,), ())]


def pure(library, make, dtype):
    """The functional step: what it reports, and the parameters in the end."""
    model = network(parameters(library, dtype))
    optimizer = make(model, learning_rate=[0.5, 0.25, 0.125], weight_decay=2.0**-10)
    state, reports = ampscale.init_train_state(model.params, optimizer, RULE), []
    for inputs in data():
        state, report = ampscale.train_step(model, optimizer, RULE, state, library.from_numpy(inputs))
        kept = (report.finite, report.applied, report.scale, report.next_scale, report.status, state.attempted, state.applied)
        reports.append([library.get(value).item() for value in kept])
    return reports, library.to_numpy(state.params)


def cell(library, make, dtype):
    """MindFormers' cell likewise."""
    model = network(parameters(library, dtype))
    optimizer = make(model, learning_rate=[0.5, 0.25, 0.125], weight_decay=2.0**-10)
    step = ampscale.MFTrainOneStepCell(model, optimizer, scale_sense=ampscale.DynamicLossScaleUpdateCell(2.0**20, 2, 5))
    outputs = [step(library.from_numpy(inputs)) for inputs in data()]
    kept = [[library.get(value).item() for value in (out.overflow, out.loss_scale, out.learning_rate)] for out in outputs]
    return kept, library.to_numpy(model.params)


@pytest.mark.clause("BACKENDS-same-run")
@OTHERS
@pytest.mark.parametrize(
    ("run", "make"), [(pure, ampscale.optimizers.Momentum), (cell, ampscale.optimizers.SGD)], ids=["pure", "cell"]
)
def test_a_run_is_the_same_everywhere(library, make, run, dtype):
    """The same overflows, scales and applied steps as on NumPy, and the same parameters to the last bit."""
    wanted, got = run(load("numpy"), make, dtype), run(library, make, dtype)
    assert got[0] == wanted[0]
    assert same(got[1], wanted[1])


def test_the_run_overflows_ten_times():
    """The run that is compared has ten overflows, and the scale grows, backs off and meets its bounds."""
    reports, _ = pure(load("numpy"), ampscale.optimizers.SGD, "float32")
    finite, applied, scale, next_scale, reason, attempted, counted = zip(*reports, strict=True)
    assert [step for step, each in enumerate(finite) if not each] == sorted(OVERFLOWS)
    assert applied == finite
    assert {StepStatus.APPLIED, StepStatus.OVERFLOW} == set(reason)
    assert (attempted[-1], counted[-1]) == (STEPS, STEPS - 10)
    assert next_scale[:-1] == scale[1:]
    assert len({*scale}) >= 3
