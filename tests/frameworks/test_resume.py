"""What is saved after any step, loaded into another object and gone on from is as good as never having stopped."""

import pickle

import numpy as np
import pytest
from frameworks.runs import RUNS, TRACE, frozen

from ampscale.frameworks.mindspore import DynamicLossScaleManager, DynamicLossScaler


@pytest.mark.clause("STEP-resume", "PADDLE-state-dict", "PADDLE-load-state-dict", "MINDSPORE-update-cell-dynamic")
@pytest.mark.parametrize("name", RUNS)
def test_saving_loading_and_going_on_is_never_having_stopped(name):
    """At every step of thirty, through a file, into an object that was made otherwise where the state says all."""
    start, start_otherwise = RUNS[name]
    run, seen, files = start(), [], []
    for letter in TRACE:
        files.append(pickle.dumps((run.saved.state_dict(), getattr(run, "beside", lambda: None)())))
        seen.append(run.step(letter))
    for step, file in enumerate(files):
        state, beside = pickle.loads(file)
        resumed = start_otherwise()
        resumed.saved.load_state_dict(state)
        if beside is not None:
            resumed.put(beside)
        assert frozen(resumed.saved.state_dict()) == frozen(state)
        assert [resumed.step(letter) for letter in TRACE[step:]] == seen[step:], step


@pytest.mark.clause("STEP-resume", "MINDSPORE-manager-dynamic")
def test_a_manager_goes_on_from_a_pickle():
    """It has no state dict: the whole object is saved, at every step of thirty."""
    manager, seen, files = DynamicLossScaleManager(8, 3, 3), [], []
    for letter in TRACE:
        files.append(pickle.dumps(manager))
        manager.update_loss_scale(letter == "O")
        seen.append(manager.get_loss_scale())
    for step, file in enumerate(files):
        resumed = pickle.loads(file)
        for letter, scale in zip(TRACE[step:], seen[step:], strict=True):
            resumed.update_loss_scale(letter == "O")
            assert resumed.get_loss_scale() == scale


@pytest.mark.clause("STEP-resume")
@pytest.mark.parametrize("name", RUNS)
def test_a_saved_state_is_a_copy(name):
    """Later steps do not reach it, and what is written into it, or into what was loaded, reaches nothing."""
    run = RUNS[name][0]()
    run.step("F")
    state = run.saved.state_dict()
    before = frozen(state)
    run.step("F")
    assert frozen(state) == before
    other = RUNS[name][1]()
    other.saved.load_state_dict(state)
    for value in state.values():
        for found in value if isinstance(value, list) else [value]:
            if isinstance(found, np.ndarray):
                found[...] = 77
    assert frozen(other.saved.state_dict()) == before


@pytest.mark.clause("STEP-resume")
def test_a_scaler_whose_scale_was_set_below_one_can_be_resumed():
    """What the attribute may hold, a state may hold."""
    scaler, resumed = DynamicLossScaler(8, 2, 3), DynamicLossScaler(8, 2, 3)
    scaler.scale_value = 0.25
    resumed.load_state_dict(scaler.state_dict())
    assert resumed.scale_value == 0.25
