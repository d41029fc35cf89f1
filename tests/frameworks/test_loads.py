"""A state that is missing a key, has one too many or holds a wrong value is refused, and nothing has changed then."""

import pytest
from frameworks.networks import array, data, linear
from frameworks.runs import RUNS, frozen

from ampscale.frameworks.mindspore import FixedLossScaleUpdateCell, TrainOneStepWithLossScaleCell

SCALER = {
    "scale_value": [(0, ValueError), (float("nan"), ValueError), ("8", TypeError), (True, TypeError)],
    "counter": [(-1, ValueError), (1.0, TypeError), (True, TypeError), (2**31, ValueError)],
    "scale_factor": [(0, ValueError), (2.0, TypeError)],
    "scale_window": [(0, ValueError), (None, TypeError)],
}
UPDATE_CELL = {
    "cur_iter": [(0, ValueError), (2.0, TypeError), (True, TypeError)],
    "last_overflow_iter": [(-1, ValueError), (99, ValueError), ("1", TypeError)],
}
PADDLE = {
    "scale": [
        *[(array([value]), ValueError) for value in (0, -1, float("inf"), float("nan"), 2.0**-127)],
        (array([8, 8]), ValueError),
        ("8", TypeError),
        (None, TypeError),
    ],
    "incr_ratio": [(1.0, ValueError), ("2", TypeError)],
    "decr_ratio": [(1.0, ValueError), (0, ValueError), (None, TypeError)],
    "incr_every_n_steps": [(0, ValueError), (2.5, TypeError)],
    "decr_every_n_nan_or_inf": [(0, ValueError), (True, TypeError)],
    "incr_count": [(-1, ValueError), (1.5, TypeError)],
    "decr_count": [(-1, ValueError), ("accumulated", TypeError)],
    "use_dynamic_loss_scaling": [(1, TypeError), (None, TypeError)],
}
CELL = {
    "scale_sense": [
        (array([8]), ValueError),
        (array(8, "float64"), TypeError),
        (array(float("nan")), ValueError),
        (8.0, TypeError),
        (None, TypeError),
    ],
    "update_cell": [({}, ValueError), ({"cur_iter": 1}, ValueError), (None, TypeError)],
}
MINDFORMERS = {
    **CELL,
    "accumulated": [(["x"], TypeError)],
    "overflow": [(1, TypeError), (None, TypeError)],
    "calls": [(-1, ValueError), (3, ValueError), (1.0, TypeError), (True, TypeError)],
    "ema_params": [(None, ValueError), (1.0, TypeError)],
}
WRONG = {
    "scaler": SCALER,
    "update cell": UPDATE_CELL,
    "accumulated": PADDLE,
    "consecutive": PADDLE,
    "step cell": CELL,
    "MindFormers": MINDFORMERS,
}


def unloadable():
    """Every state that is to be refused: (run, what is wrong with it, the error)."""
    for name, fields in WRONG.items():
        for key, values in fields.items():
            yield name, lambda state, key=key: state.pop(key), ValueError
            for value, error in values:
                yield name, lambda state, key=key, value=value: state.update({key: value}), error
        yield name, lambda state: state.update(unknown=1), ValueError
        yield name, lambda state: state.clear(), ValueError


@pytest.mark.clause("STEP-resume", "PADDLE-load-refuses")
@pytest.mark.parametrize(("name", "spoil", "error"), list(unloadable()))
def test_a_load_that_fails_changes_nothing(name, spoil, error):
    """A missing key, an unknown key or a wrong value: refused, and the run goes on as if nothing had been."""
    run, other = (RUNS[name][0]() for _ in range(2))
    run.step("F")
    state = run.saved.state_dict()
    for letter in "FFFF":
        run.step(letter)
    before = frozen(run.saved.state_dict())
    spoil(state)
    with pytest.raises(error):
        run.saved.load_state_dict(state)
    assert frozen(run.saved.state_dict()) == before
    seen = [other.step(letter) for letter in "FFFFFOFF"]
    assert [run.step(letter) for letter in "OFF"] == seen[5:]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("state", [None, [], "state", 1])
def test_a_state_is_a_mapping(name, state):
    """Anything else is a TypeError."""
    with pytest.raises(TypeError, match="mapping"):
        RUNS[name][0]().saved.load_state_dict(state)


def test_a_cell_whose_update_cell_saves_nothing_takes_nothing():
    """A fixed one, or an array; a state of another kind of scale is refused."""
    for scale_sense in (FixedLossScaleUpdateCell(8), array(8)):
        cell = TrainOneStepWithLossScaleCell(linear(), lambda _gradients: None, scale_sense)
        state = cell.state_dict()
        assert state["update_cell"] == {}
        cell.load_state_dict({**state, "scale_sense": array(32)})
        assert cell.scale_sense == 32
        with pytest.raises(ValueError, match="update_cell"):
            cell.load_state_dict({**state, "update_cell": {"cur_iter": 1, "last_overflow_iter": 0}})
        assert cell.scale_sense == 32


@pytest.mark.clause("STEP-resume")
def test_an_update_cell_that_cannot_load_leaves_the_scale():
    """Whatever it raises."""

    class Custom(FixedLossScaleUpdateCell):
        def load_state_dict(self, state_dict):
            raise KeyError("mine")

    cell = TrainOneStepWithLossScaleCell(linear(), lambda _gradients: None, Custom(8))
    with pytest.raises(KeyError):
        cell.load_state_dict({"scale_sense": array(32), "update_cell": {}})
    assert cell.scale_sense == 8


@pytest.mark.clause("STEP-resume")
@pytest.mark.parametrize(
    "wrong",
    [
        {"calls": 0},
        {"accumulated": None},
        {"accumulated": [array([1, 2]), array(1)]},
        {"accumulated": [array([1, 2, 3])]},
        {"ema_params": [array([1, 2, 3])]},
        {"ema_params": {"w": array([1, 2])}},
        {"ema_params": [array([1, 2], "float16")]},
    ],
)
def test_what_does_not_fit_the_network_is_refused(wrong):
    """Gradients and averages of other shapes, and a count of calls without their gradients."""
    cell = RUNS["MindFormers"][0]().saved
    cell(data("F"))
    state = cell.state_dict()
    with pytest.raises((TypeError, ValueError)):
        cell.load_state_dict({**state, **wrong})
    assert frozen(cell.state_dict()) == frozen(state)


@pytest.mark.clause("STEP-resume", "MINDFORMERS-accumulation-scale")
def test_an_overflow_without_a_call_is_refused():
    """There is nothing that it could be the overflow of."""
    cell = RUNS["MindFormers"][0]().saved
    with pytest.raises(ValueError, match="overflow"):
        cell.load_state_dict({**cell.state_dict(), "overflow": True})
