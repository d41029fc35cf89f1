"""`GradScaler` and torch's: equal parameters, scales and counts, bit for bit, over a hundred steps with eight overflows."""

from functools import cache
from inspect import Parameter, signature

import pytest
import torch
from frameworks.torch import loops
from frameworks.torch.loops import LOOPS, OPTIMIZERS, PAIRS, factors_at, new_run, together, train

from ampscale.frameworks.torch import GradScaler

STEPS = 100
SETTINGS = {"init_scale": 2.0**16, "growth_interval": 6}


@cache
def reference(loop, optimizer):
    """Return the states of a run with torch's scaler."""
    run = new_run(loops.theirs(**SETTINGS), OPTIMIZERS[optimizer])
    return [state for state, _ in train(run, LOOPS[loop], range(STEPS))]


@pytest.mark.clause("TORCH-growth", "TORCH-backoff", "TORCH-unscale", "TORCH-step", "TORCH-step-returns", "TORCH-update")
@pytest.mark.clause("TORCH-several-optimizers", "TORCH-fused")
@pytest.mark.parametrize(("loop", "optimizer"), PAIRS)
def test_a_hundred_steps_equal_those_of_torch(loop, optimizer):
    """Two optimizers share a scaler; parameters, moments, scale and count are compared after every step."""
    run = new_run(loops.ours(**SETTINGS), OPTIMIZERS[optimizer])
    states, results = zip(*train(run, LOOPS[loop], range(STEPS)), strict=True)
    assert list(states) == reference(loop, optimizer)
    applied = [[bool(result) for result in step_results] for step_results in results]
    assert applied == [[factor == 1 for factor in factors_at(step)] for step in range(STEPS)]


@pytest.mark.clause("TORCH-load-state-dict", "TORCH-state-dict")
@pytest.mark.parametrize(
    ("first", "then", "loaded", "optimizer"),
    [
        ("theirs", "ours", "before the first scale", "momentum"),
        ("theirs", "ours", "after it", "adamw-fused"),
        ("ours", "theirs", "before the first scale", "adamw-fused"),
    ],
)
def test_a_run_resumes_from_the_state_dict_of_the_other_class(first, then, loaded, optimizer):
    """Either class saves and loads after half of the steps, and no bit differs from torch's run."""
    run = new_run(getattr(loops, first)(**SETTINGS), OPTIMIZERS[optimizer])
    states = [state for state, _ in train(run, together, range(STEPS // 2))]
    saved = run.scaler.state_dict()
    run.scaler = getattr(loops, then)(growth_factor=3.0, backoff_factor=0.25)
    if loaded == "after it":
        run.scaler.scale(torch.ones(()))
    run.scaler.load_state_dict(saved)
    states += [state for state, _ in train(run, together, range(STEPS // 2, STEPS))]
    assert states == reference("together", optimizer)


@pytest.mark.clause("TORCH-parameters")
def test_constructor_and_methods_have_torchs_parameters():
    """Names, kinds and defaults are equal; the additions are two keywords and a method."""
    names = [{name for name in dir(cls) if not name.startswith("_")} for cls in (GradScaler, torch.amp.GradScaler)]
    assert names[0] - names[1] == {"abandon"}
    for name in names[1]:
        assert parameters(getattr(GradScaler, name)) == parameters(getattr(torch.amp.GradScaler, name)), name
    *documented, communicator, monitor = parameters(GradScaler.__init__)
    assert documented == parameters(torch.amp.GradScaler.__init__)
    for parameter, name in ((communicator, "communicator"), (monitor, "monitor")):
        assert (parameter.name, parameter.kind, parameter.default) == (name, Parameter.KEYWORD_ONLY, None)


def parameters(function):
    """Return the parameters of a function without their annotations."""
    return [parameter.replace(annotation=Parameter.empty) for parameter in signature(function).parameters.values()]
