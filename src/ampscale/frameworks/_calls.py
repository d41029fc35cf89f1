"""
Call orders of the documented classes as tables: the result of each call in each state is the next state or an error.

The classes raise the errors of these tables, and `tools/calls_page.py` prints the tables as docs/calls.md.

Spec: CALLS-unscale-once, CALLS-step-once, CALLS-update-needs-a-check, TORCH-call-order, TORCH-interrupted, TORCH-abandon,
PADDLE-call-order, PADDLE-interrupted, PADDLE-abandon, MINDSPORE-cell-interrupted.
"""

import os
from sys import _getframe
from types import CodeType

Site = tuple[CodeType, int]  # call site: code object, and index of the calling instruction; holds no frame and no variables

_FOLDER = os.path.dirname(__file__) + os.sep

# States of an optimizer since the last update() of its scaler. READY is also a state of scalers and cells, and STEPPING of cells.
READY = "ready"
UNSCALING = "unscaling interrupted"
UNSCALED = "unscaled"
STEPPING = "step interrupted"
STEPPED = "stepped"
OTHER_UNSCALED = "ready, another unscaled"
UNPLACED = "unplaced"  # state of torch's scaler
WRITING = "update interrupted"  # state of torch's scaler
ACCUMULATING = "accumulating"  # state of a cell


class Error(str):
    """Message of a RuntimeError. {call} stands for the rejected call, {at} for the site of an earlier call, if it is known."""


class CallTable:
    """
    Permitted calls of a class, as data.

    Args:
        name: Full name of the class; if the class has several tables, followed by the case that this table describes.
        states: Description of each state; the first state is that of a new object.
        calls: Names of the methods. Parameters on which the result depends follow in parentheses.
        entries: Next state or error for pairs of a state and a call. A call without an entry leaves the state unchanged.
    """

    def __init__(self, name: str, states: dict[str, str], calls: tuple[str, ...], entries: dict[str, dict[str, str]]) -> None:
        self.name, self.states, self.calls = name, states, calls
        self.results = {state: dict.fromkeys(calls, state) | entries.get(state, {}) for state in states}

    def check(self, call: str, state: str, site: Site | None = None) -> None:
        """Raise the error of *call* in *state*, if there is one; the message names *site*, where the earlier call was."""
        result = self.results[state][call]
        if isinstance(result, Error):
            raise RuntimeError(result.replace("{call}", call.partition("(")[0]).replace("{at}", location_text(site)))


def call_site() -> Site:
    """Return the site of the innermost call from code outside this package, such as the training loop."""
    frame = _getframe(2)
    while frame.f_code.co_filename.startswith(_FOLDER) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def location_text(site: Site | None) -> str:
    """Return text such as " at train.py:31", with a relative path if the file is in the working directory; "" without a site."""
    if site is None:
        return ""
    code, index = site
    line = next((line for start, end, line in code.co_lines() if start <= index < end), None)
    folder = os.getcwd() + os.sep
    return f" at {code.co_filename.removeprefix(folder)}:{line or code.co_firstlineno}"


_NO_CHECK = Error(
    "{call}() must be called after step() or unscale_(): "
    "neither has been called since the last update(){at}, or abandon() has discarded that call"
)
_ONCE = "call unscale_() once per iteration, after the last backward()"
_SECOND_UNSCALE = Error(f"{{call}}() was already called{{at}} since the last update(): {_ONCE}")
_SECOND_UNSCALE_FIXED = Error(f"{{call}}() was already called{{at}} since the last step(): {_ONCE}")
_SECOND_STEP = Error("{call}() was already called{at} since the last update(): call update() once per iteration, after the steps")
_NO_UPDATE = Error("{call}() must be called after update(): step() was called{at}, and update() has not been called since")
_NOT_ABANDONED = Error("{call}() must be called instead of step(), which was called{at} since the last update(): call update()")
_WAS_INTERRUPTED = "of this optimizer was interrupted{at}: call update() or abandon(), and compute new gradients"
_UNSCALING_INTERRUPTED = Error(f"{{call}}() requires new gradients, since unscaling those {_WAS_INTERRUPTED}")
_STEP_INTERRUPTED = Error(
    f"{{call}}() requires new gradients, since the step {_WAS_INTERRUPTED}; "
    "or restore a checkpoint, if the optimizer may have changed parameters"
)

_OPTIMIZER_STATES = {
    READY: "the optimizer was neither unscaled nor stepped",
    UNSCALED: "the optimizer's gradients were unscaled",
    STEPPED: "the optimizer stepped, or its step was skipped",
    UNSCALING: "an error was raised while the optimizer's gradients were being unscaled",
    STEPPING: "an error was raised during the optimizer's step",
}

_NOTHING_SCALED = Error("{call}() must be called after scale(): no tensor has been scaled yet")
_WRITING_INTERRUPTED = Error(
    "{call}() requires a consistent scale, but writing the scale was interrupted{at}: load a state dict that was saved before"
)
_COPY = Error("a GradScaler must not be copied between step() or unscale_(){at} and update(): call update() first")
_UPDATES = {"update()": READY, "update(new_scale)": READY}
_ABANDONS = {"abandon(optimizer)": READY, "abandon()": READY}

_TORCH_CALLS = (
    "scale", "unscale_", "step", "update()", "update(new_scale)", "abandon(optimizer)", "abandon()", "get_scale",
    "load_state_dict", "copy",
)  # fmt: skip
TORCH = CallTable(
    "ampscale.torch.GradScaler",
    {
        UNPLACED: "no tensor has been scaled yet",
        **_OPTIMIZER_STATES,
        WRITING: "an error was raised while `update` or `load_state_dict` wrote the scale",
    },
    _TORCH_CALLS,
    {
        UNPLACED: {"scale": READY, **dict.fromkeys(("unscale_", "step", *_UPDATES), _NOTHING_SCALED)},
        READY: {"unscale_": UNSCALED, "step": STEPPED, "update()": _NO_CHECK},
        UNSCALED: {"unscale_": _SECOND_UNSCALE, "step": STEPPED, **_UPDATES, **_ABANDONS, "copy": _COPY},
        STEPPED: {"unscale_": _NO_UPDATE, "step": _SECOND_STEP, **_UPDATES, "abandon(optimizer)": _NOT_ABANDONED, "copy": _COPY},
        UNSCALING: {"unscale_": _UNSCALING_INTERRUPTED, "step": _UNSCALING_INTERRUPTED, **_UPDATES, **_ABANDONS, "copy": _COPY},
        STEPPING: {"unscale_": _STEP_INTERRUPTED, "step": _STEP_INTERRUPTED, **_UPDATES, **_ABANDONS, "copy": _COPY},
        WRITING: {
            **dict.fromkeys(("scale", "unscale_", "step", *_UPDATES, *_ABANDONS, "get_scale"), _WRITING_INTERRUPTED),
            "copy": Error(_WRITING_INTERRUPTED.replace("{call}()", "copying")),
            "load_state_dict": READY,
        },
    },
)

_OTHER_UNSCALED = Error(
    "minimize() updates the scale, but another optimizer was unscaled{at} and has not stepped: "
    "call step() for each optimizer, then update()"
)
_PADDLE_CALLS = ("scale", "unscale_", "step", "minimize", "update", "abandon(optimizer)", "abandon()", "load_state_dict")
_PADDLE_INTERRUPTED = {
    UNSCALING: {**dict.fromkeys(("unscale_", "step", "minimize"), _UNSCALING_INTERRUPTED), "update": READY, **_ABANDONS},
    STEPPING: {**dict.fromkeys(("unscale_", "step", "minimize"), _STEP_INTERRUPTED), "update": READY, **_ABANDONS},
}

PADDLE = CallTable(
    "ampscale.GradScaler",
    {**_OPTIMIZER_STATES, OTHER_UNSCALED: "as ready, but another optimizer was unscaled and has not stepped"},
    _PADDLE_CALLS,
    {
        READY: {"unscale_": UNSCALED, "step": STEPPED, "update": _NO_CHECK},
        UNSCALED: {"unscale_": _SECOND_UNSCALE, "step": STEPPED, "minimize": READY, "update": READY, **_ABANDONS},
        STEPPED: {
            "unscale_": _NO_UPDATE,
            "step": _SECOND_STEP,
            "minimize": _NO_UPDATE,
            "update": READY,
            "abandon(optimizer)": _NOT_ABANDONED,
        },
        **_PADDLE_INTERRUPTED,
        OTHER_UNSCALED: {"unscale_": UNSCALED, "step": STEPPED, "minimize": _OTHER_UNSCALED, "update": READY, "abandon()": READY},
    },
)

PADDLE_FIXED = CallTable(
    "ampscale.GradScaler, fixed scale",
    {state: text for state, text in _OPTIMIZER_STATES.items() if state != STEPPED},
    _PADDLE_CALLS,
    {
        READY: {"unscale_": UNSCALED},
        UNSCALED: {"unscale_": _SECOND_UNSCALE_FIXED, "step": READY, "minimize": READY, **_ABANDONS},
        **{state: {**entries, "load_state_dict": READY} for state, entries in _PADDLE_INTERRUPTED.items()},
    },
)

_CELL_INTERRUPTED = Error(
    "the last step{at} was interrupted while it wrote its results: "
    "restore the network and the optimizer, and load a state dict that the cell returned before that step"
)
_CELL_CALLS = ("cell", "construct", "set_sense_scale", "state_dict", "load_state_dict")
_CELL_STATES = {READY: "between two steps", STEPPING: "an error was raised while a step wrote its results"}
_CELL_ENTRIES = {STEPPING: {**dict.fromkeys(("cell", "construct", "state_dict"), _CELL_INTERRUPTED), "load_state_dict": READY}}

CELL = CallTable("ampscale.TrainOneStepWithLossScaleCell", _CELL_STATES, _CELL_CALLS, _CELL_ENTRIES)
MF_CELL = CallTable(
    "ampscale.MFTrainOneStepCell, two micro-batches per step",
    {**_CELL_STATES, ACCUMULATING: "between the micro-batches of a step"},
    _CELL_CALLS,
    {
        READY: {"cell": ACCUMULATING, "construct": ACCUMULATING},
        ACCUMULATING: {"cell": READY, "construct": READY, "load_state_dict": READY},
        **_CELL_ENTRIES,
    },
)
TABLES = (TORCH, PADDLE, PADDLE_FIXED, CELL, MF_CELL)
