"""State dicts: a run that is saved and loaded after any step equals an uninterrupted one; invalid state dicts are rejected."""

import pickle

import numpy as np
import pytest
from frameworks.networks import array, bits, frozen, input_of, linear
from frameworks.rejections import check_rejected

from ampscale import GradScaler, optimizers
from ampscale.frameworks.mindformers import MFTrainOneStepCell
from ampscale.frameworks.mindspore import (
    DynamicLossScaleManager,
    DynamicLossScaler,
    DynamicLossScaleUpdateCell,
    FixedLossScaleUpdateCell,
    TrainOneStepWithLossScaleCell,
)

TRACE = "FFFOFFFOOFFFFFOFOOOFFFFFFFOFOF"


class Scaler:
    """Loop with a `DynamicLossScaler`, stored as `stateful`, whose state dict includes factor and window."""

    def __init__(self, factor=4, window=9):
        self.stateful = DynamicLossScaler(8, factor, window)

    def step(self, letter):
        self.stateful.adjust(letter == "F")
        return self.stateful.state_dict()

    def unsaved(self):
        """Return None, since the state dict has everything."""


class UpdateCell:
    """Loop with a `DynamicLossScaleUpdateCell`, which does not store the scale."""

    def __init__(self):
        self.stateful, self.scale = DynamicLossScaleUpdateCell(8, 3, 3), array([8])

    def step(self, letter):
        self.stateful(self.scale, letter == "O")
        return self.scale.tolist(), self.stateful.state_dict()

    def unsaved(self):
        return self.scale

    def restore(self, unsaved):
        self.scale = unsaved


class Paddle:
    """Loop with a `GradScaler`; its state dict includes ratios and intervals."""

    def __init__(self, decr_count, **arguments):
        self.stateful = GradScaler(decr_count=decr_count, **arguments)
        self.network = linear([1, 2])
        self.optimizer = optimizers.Momentum(self.network, 0.5)

    def step(self, letter):
        self.network.parameters[0].grad = input_of(letter) * array(self.stateful.get_loss_scaling())
        self.stateful.minimize(self.optimizer, None)
        return frozen((self.stateful.state_dict(), self.unsaved()))

    def unsaved(self):
        return self.network.params, self.optimizer.state

    def restore(self, unsaved):
        self.network.params, self.optimizer.state = unsaved


class Cell(Paddle):
    """Loop with a training cell; *make* creates it from a network and an optimizer."""

    def __init__(self, make):
        self.network = linear([1, 2], dtype="float16")
        self.optimizer = optimizers.AdamW(self.network, [2.0**-index for index in range(9)])
        self.stateful = make(self.network, self.optimizer)

    def step(self, letter):
        return bits([*self.stateful(input_of(letter)), *self.network.params])


def one_step(network, optimizer):
    return TrainOneStepWithLossScaleCell(network, optimizer, DynamicLossScaleUpdateCell(8, 2, 3))


def mindformers(network, optimizer):
    """Return a MindFormers cell with all options: thirty calls are ten steps, so that some states are saved within a step."""
    options = {"use_clip_grad": True, "local_norm": True, "gradient_accumulation_steps": 3, "ema_decay": 0.75}
    return MFTrainOneStepCell(network, optimizer, scale_sense=DynamicLossScaleUpdateCell(8, 2, 3), **options)


RUNS = {  # functions that start a run, and that create an object, with other settings if possible, to load its state
    "scaler": (lambda: Scaler(2, 3), Scaler),
    "update cell": (UpdateCell, UpdateCell),
    "accumulated": (lambda: Paddle("accumulated", incr_every_n_steps=3), lambda: Paddle("accumulated", init_loss_scaling=2)),
    "consecutive": (lambda: Paddle("consecutive", incr_every_n_steps=3), lambda: Paddle("consecutive", incr_ratio=7)),
    "step cell": (lambda: Cell(one_step), lambda: Cell(one_step)),
    "MindFormers": (lambda: Cell(mindformers), lambda: Cell(mindformers)),
}


@pytest.mark.clause("STEP-resume", "PADDLE-state-dict", "PADDLE-load-state-dict", "MINDSPORE-update-cell-dynamic")
@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_equals_an_uninterrupted_one(name):
    """The state is pickled before each of thirty steps, and loaded into an object with other settings, except for cells."""
    start, start_with_other_settings = RUNS[name]
    run, results, pickles = start(), [], []
    for letter in TRACE:
        pickles.append(pickle.dumps((run.stateful.state_dict(), run.unsaved())))
        results.append(run.step(letter))
    for step, pickled in enumerate(pickles):
        state, unsaved = pickle.loads(pickled)
        resumed = start_with_other_settings()
        resumed.stateful.load_state_dict(state)
        if unsaved is not None:
            resumed.restore(unsaved)
        assert frozen(resumed.stateful.state_dict()) == frozen(state)
        assert [resumed.step(letter) for letter in TRACE[step:]] == results[step:], step


@pytest.mark.clause("STEP-resume", "MINDSPORE-manager-dynamic")
def test_a_manager_resumes_from_a_pickle():
    """A manager has no state dict: the object itself is pickled before each of thirty steps."""
    manager, results, pickles = DynamicLossScaleManager(8, 3, 3), [], []
    for letter in TRACE:
        pickles.append(pickle.dumps(manager))
        manager.update_loss_scale(letter == "O")
        results.append(manager.get_loss_scale())
    for step, pickled in enumerate(pickles):
        resumed = pickle.loads(pickled)
        for letter, scale in zip(TRACE[step:], results[step:], strict=True):
            resumed.update_loss_scale(letter == "O")
            assert resumed.get_loss_scale() == scale


@pytest.mark.clause("STEP-resume")
@pytest.mark.parametrize("name", RUNS)
def test_a_saved_state_is_a_copy(name):
    """Later steps do not change the state dict, and writing into it does not change an object that has loaded it."""
    run = RUNS[name][0]()
    run.step("F")
    state = run.stateful.state_dict()
    old_state = frozen(state)
    run.step("F")
    assert frozen(state) == old_state
    other = RUNS[name][1]()
    other.stateful.load_state_dict(state)
    for value in state.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, np.ndarray):
                item[...] = 77
    assert frozen(other.stateful.state_dict()) == old_state


SCALER = {
    "scale_value": [(0, ValueError), (True, TypeError)],
    "counter": [(-1, ValueError), (1.0, TypeError), (2**31, ValueError)],
    "scale_factor": [(0, ValueError), (2.0, TypeError)],
    "scale_window": [(0, ValueError), (None, TypeError)],
}
UPDATE_CELL = {
    "cur_iter": [(0, ValueError), (2.0, TypeError)],
    "last_overflow_iter": [(-1, ValueError), (99, ValueError), ("1", TypeError)],
}
PADDLE = {
    "scale": [*[(array(value), ValueError) for value in ([0], [float("nan")], [2.0**-127], [8, 8])], ("8", TypeError)],
    "incr_ratio": [(1.0, ValueError), ("2", TypeError)],
    "decr_ratio": [(1.0, ValueError), (None, TypeError)],
    "incr_every_n_steps": [(0, ValueError), (2.5, TypeError)],
    "decr_every_n_nan_or_inf": [(0, ValueError), (True, TypeError)],
    "incr_count": [(-1, ValueError), (1.5, TypeError)],
    "decr_count": [(-1, ValueError), ("accumulated", TypeError)],
    "use_dynamic_loss_scaling": [(1, TypeError)],
}
CELL = {
    "scale_sense": [(array([8]), ValueError), (array(8, "float64"), TypeError), (array(np.nan), ValueError), (8.0, TypeError)],
    "update_cell": [({}, ValueError), ({"cur_iter": 1}, ValueError), (None, TypeError)],
}
MINDFORMERS = {
    **CELL,
    "accumulated": [(["x"], TypeError)],
    "overflow": [(1, TypeError)],
    "calls": [(-1, ValueError), (3, ValueError), (1.0, TypeError)],
    "ema_params": [(None, ValueError), (1.0, TypeError)],
}
WRONG = dict(zip(RUNS, (SCALER, UPDATE_CELL, PADDLE, PADDLE, CELL, MINDFORMERS), strict=True))


@pytest.mark.clause("STEP-resume", "PADDLE-load-rejects")
@pytest.mark.parametrize("name", WRONG)
def test_a_load_that_fails_changes_nothing(name):
    """After a missing key, an unknown key or an invalid value, the run continues unchanged."""
    run, other = (RUNS[name][0]() for _ in range(2))
    run.step("F")
    state = run.stateful.state_dict()
    for letter in "FFFF":
        run.step(letter)
    old_state = frozen(run.stateful.state_dict())
    wrong = [("state_dict", {key: value for key, value in state.items() if key != missing}, ValueError) for missing in state]
    empty = RuntimeError if isinstance(run.stateful, GradScaler) else ValueError  # as in Paddle
    wrong += [("state_dict", {**state, "unknown": 1}, ValueError), ("state_dict", {}, empty)]
    wrong += [("mapping", other_type, TypeError) for other_type in (None, [], "state", 1)]
    check_rejected(lambda _, invalid: run.stateful.load_state_dict(invalid), wrong, got=None)
    for key, cases in WRONG[name].items():
        for value, error in cases:
            with pytest.raises(error):
                run.stateful.load_state_dict({**state, key: value})
            assert frozen(run.stateful.state_dict()) == old_state, (key, value)
    results = [other.step(letter) for letter in "FFFFFOFF"]
    assert [run.step(letter) for letter in "OFF"] == results[5:]


def test_a_cell_without_a_dynamic_update_cell_rejects_update_cell_state():
    """Fixed update cells and arrays have no state. A rejected state does not change the scale."""
    for scale_sense in (FixedLossScaleUpdateCell(8), array(8)):
        cell = TrainOneStepWithLossScaleCell(linear(), lambda _gradients: None, scale_sense)
        state = cell.state_dict()
        assert state["update_cell"] == {}
        cell.load_state_dict({**state, "scale_sense": array(32)})
        assert cell.scale_sense == 32
        with pytest.raises(ValueError, match="update_cell"):
            cell.load_state_dict({**state, "update_cell": {"cur_iter": 1, "last_overflow_iter": 0}})
        assert cell.scale_sense == 32


@pytest.mark.clause("STEP-resume", "MINDFORMERS-accumulation-scale")
def test_a_state_that_does_not_match_the_network_is_rejected():
    """Arrays must match the parameters; gradients and an overflow require calls, and calls gradients. Nothing changes."""
    cell = RUNS["MindFormers"][0]().stateful
    with pytest.raises(ValueError, match="overflow"):
        cell.load_state_dict({**cell.state_dict(), "overflow": True})
    cell(input_of("F"))
    state = cell.state_dict()
    for changed, message in (
        ({"scale_sense": array([8])}, r"scale_sense must have shape \(\), got \(1,\)"),
        ({"calls": -1}, "calls must be an int from 0"),
        ({"calls": 0}, "accumulated must be None with calls=0, got list"),
        ({"accumulated": None}, "accumulated must not be None with calls=1"),
        ({"accumulated": [array([1, 2]), array(1)]}, None),
        ({"accumulated": [array([1, 2, 3])]}, r"accumulated\[0\] must have shape \(2,\), got \(3,\)"),
        ({"ema_params": [array([1, 2, 3])]}, r"ema_params\[0\] must have shape \(2,\), got \(3,\)"),
        ({"ema_params": {"w": array([1, 2])}}, None),
        ({"ema_params": [array([1, 2], "float16")]}, r"ema_params\[0\] must be float32 for a parameter of float16"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            cell.load_state_dict({**state, **changed})
        assert frozen(cell.state_dict()) == frozen(state), changed
