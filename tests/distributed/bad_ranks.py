"""Ranks of a pool, one of which differs from the others. Each function runs on every rank, and returns what the rank observes."""

import time
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from distributed.training import RULE, communicator_of, message_of
from linear import network

import ampscale
from ampscale.mindformers import MFTrainOneStepCell
from ampscale.mindspore import DynamicLossScaleUpdateCell

DEVIATING_RANK = 2
STATE = {"scale": np.float32(1024.0), "good_steps": np.int32(3)}


class Layer(NamedTuple):
    """Gradients of a layer."""

    weight: object
    bias: object


class Reversed(NamedTuple):
    """Gradients of a layer in a different order."""

    bias: object
    weight: object


def arrays_of(make, *shapes, dtype=np.float32):
    return [make(np.ones(shape, dtype)) for shape in shapes]


ARRAYS = {  # gradients of the rank that differs; those of the other ranks have the shapes (2,) and (3,)
    "number of arrays": lambda make: arrays_of(make, (2,), (3,), (1,)),
    "no arrays": lambda _: [],
    "shape": lambda make: arrays_of(make, (2,), (4,)),
    "dtype": lambda make: arrays_of(make, (2,), (3,), dtype=np.float64),
    "integers": lambda make: arrays_of(make, (2,), (3,), dtype=np.int32),
    "large": lambda make: arrays_of(make, (2,), (100_000,)),
}
STRUCTURES = {  # gradients of the other ranks, and of the rank that differs: the same arrays in another structure
    "keys": lambda first, second: ({"a": first, "b": second}, {"b": first, "a": second}),
    "nested keys": lambda first, second: ([{"a": first, "b": second}], [{"b": first, "a": second}]),
    "fields": lambda first, second: (Layer(first, second), Reversed(first, second)),
    "None": lambda first, second: ([None, first, second], [first, None, second]),
}


def gradients_that_differ(rank, engine, call, differences):
    """Return the results of five calls for each of *differences*: the gradients of one rank differ in calls 1 and 4."""
    layout = {"mean": "replicated", "agree": "averaged", "norm": "sharded"}[call]

    def results(difference):
        communicator, _, make = communicator_of(engine, layout, timeout=10)
        if difference in STRUCTURES:
            equal, other = STRUCTURES[difference](*arrays_of(make, (2,), (2,)))
        else:
            equal, other = arrays_of(make, (2,), (3,)), ARRAYS[difference](make)

        def step(tree):
            if call == "mean":
                return repr(communicator.mean(tree)) == repr(tree)  # the gradients of all ranks are ones
            return bool(communicator.agree(True, STATE, tree, norm=True).finite)

        def failed():
            return message_of(step, other if rank == DEVIATING_RANK else equal)

        return failed(), step(equal), step(equal), failed(), step(equal)

    return [results(difference) for difference in differences]


def settings_that_differ(rank, engine, setting):
    """Let a *setting* of one rank differ before the first and the last of four steps; return the errors, scale and parameters."""
    communicator, _, make = communicator_of(engine, "replicated", timeout=10)
    model = network(arrays_of(make, (2,)))
    optimizer = ampscale.optimizers.SGD(model, 0.5)
    state, messages = ampscale.init_train_state(model.params, optimizer, RULE), []

    def step(state, deviates):
        rule = ampscale.LossScaleRule(2.0**10, growth_interval=3) if deviates and setting == "rule" else RULE
        max_norm = 2.0 if deviates and setting == "max_norm" else 1.0
        if deviates and setting in ("scale", "good_steps"):
            other_value = 2 * getattr(state.scaler, setting) + 1
            state = state._replace(scaler=state.scaler._replace(**{setting: other_value}))
        return ampscale.train_step(
            model, optimizer, rule, state, arrays_of(make, (2,)), max_norm=max_norm, communicator=communicator
        )[0]

    for number in range(4):
        if number in (0, 3):
            messages.append(message_of(step, state, deviates=rank == DEVIATING_RANK))
        state = step(state, deviates=False)
    return messages, float(state.scaler.scale), state.params[0].tolist()


def calls_that_differ(rank, engine, layout, case):
    """Let one rank skip or repeat a call of the second step, and return the error of that step or of the next one."""
    communicator, _, make = communicator_of(engine, layout, timeout=1)
    arrays, state = arrays_of(make, (2,)), dict(STATE)

    def step(number, calls):
        for call in calls:
            if call == "mean":
                communicator.mean(arrays)
            elif call == "exchange":
                communicator.exchange("text")
            else:
                communicator.agree(True, state | {"good_steps": np.int32(number)}, arrays, norm=True)

    step(0, ["mean", "agree"])
    other_calls = {
        "skips mean": ["agree"],
        "skips agree": ["mean"],
        "agrees twice": ["mean", "agree", "agree"],
        "exchanges": ["exchange", "mean", "agree"],
    }
    message = message_of(step, 1, other_calls[case] if rank == DEVIATING_RANK else ["mean", "agree"])
    return message or message_of(step, 2, ["mean", "agree"])


@contextmanager
def counted(communicator):
    """Yield two lists of sizes in bytes: those of all sums, and those of all exchanges of text."""
    sums, exchanges = [], []
    add, exchange = communicator._sum, communicator._exchange

    def counted_sum(vector):
        sums.append(int(np.asarray(vector).nbytes))
        return add(vector)

    def counted_exchange(text):
        exchanges.append(len(text))
        return exchange(text)

    communicator._sum, communicator._exchange = counted_sum, counted_exchange
    yield sums, exchanges


def collectives(_, engine, layout, max_norm, steps):
    """Return the bytes of the collectives of each step of `train_step`, for a model of 512 float16 parameters."""
    communicator, _, make = communicator_of(engine, layout, timeout=10)
    model = network([make(np.ones(512, np.float16))])
    optimizer = ampscale.optimizers.SGD(model, 0.5)
    state, rows = ampscale.init_train_state(model.params, optimizer, RULE), []
    with counted(communicator) as (sums, exchanges):
        for step in range(steps):
            inputs = [make(np.full(512, np.inf if step % 3 == 2 else 1.0, np.float16))]
            with np.errstate(all="ignore"):
                state, _ = ampscale.train_step(
                    model, optimizer, RULE, state, inputs, max_norm=max_norm, communicator=communicator
                )
            rows.append([list(sums), list(exchanges)])
            sums.clear()
            exchanges.clear()
    return rows


def late_after_error(rank):
    """Let one rank raise an error, then call late; return its message or None, those of `mean` and `agree`, and the seconds."""
    communicator, _, make = communicator_of("mpi", "replicated", timeout=10)
    communicator.mean(arrays_of(make, (2,)))
    communicator, _, make = communicator_of("mpi", "replicated", timeout=1)
    type_error, start = None, time.monotonic()
    if rank == DEVIATING_RANK:
        type_error = message_of(communicator.mean, ["text"], error=TypeError)
        time.sleep(1.5)
    first = message_of(communicator.mean, arrays_of(make, (2,)))
    seconds = time.monotonic() - start
    return type_error, first, message_of(communicator.agree, True, STATE, arrays_of(make, (2,))), seconds


def late_constructor(rank):
    """Let one rank create its communicator too late; return the error, and a mean of the next communicator."""
    time.sleep(3.3 if rank == DEVIATING_RANK else 0)
    message = message_of(communicator_of, "mpi", "replicated", timeout=1)
    communicator, _, make = communicator_of("mpi", "replicated", timeout=10)
    return message, communicator.mean([make(np.float32([rank]))])[0].item()


def late_agreement(rank):
    """Let one rank agree after the errors of the others, and return the error."""
    communicator, _, make = communicator_of("mpi", "distinct", timeout=1)
    time.sleep(3.3 if rank == DEVIATING_RANK else 0)
    return message_of(communicator.agree, True, STATE, arrays_of(make, (2,)))


def masked(rank):
    """Average a masked array, and then an array without a mask; return the error and the mean."""
    communicator, _, _ = communicator_of("mpi", "replicated", timeout=10)
    gradient = np.ma.masked_array(np.float32([1.0, 1e9]), [False, True])
    message = message_of(communicator.mean, [gradient], error=TypeError)
    return message, communicator.mean([np.float32([rank])])[0].tolist()


class OverflowInFirstMicroBatch:
    """Detector that reports an overflow of the first micro-batch on one rank."""

    def __init__(self, deviates):
        self.checks, self.deviates = 0, deviates

    def start(self, _like):
        """Return no status."""

    def observe(self, _status, _tree):
        """Ignore all values."""

    def finite(self, _status, _output):
        """Return False for the first check on the rank that differs."""
        self.checks += 1
        return np.asarray(not (self.deviates and self.checks == 1))


def accumulation_that_differs(rank):
    """Run three micro-batches, of which one rank takes a different number per step; return the error and the parameter."""
    model = network([np.ones(1, np.float32)])
    train = MFTrainOneStepCell(
        model, ampscale.optimizers.SGD(model, 0.5), gradient_accumulation_steps=2 + (rank == DEVIATING_RANK),
        communicator=communicator_of("mpi", "replicated", timeout=10)[0],
    )  # fmt: skip
    return message_of(lambda: [train([np.ones(1, np.float32)]) for _ in range(3)]), model.params[0].item()


def cell_without_update(rank):
    """Run a cell with an update cell, or with a fixed scale on one rank; return the error."""
    model = network([np.ones(1, np.float32)])
    scale = np.float32(4.0) if rank == DEVIATING_RANK else DynamicLossScaleUpdateCell(4.0, 2, 2)
    communicator = communicator_of("mpi", "replicated", timeout=10)[0]
    train = MFTrainOneStepCell(model, ampscale.optimizers.SGD(model, 0.5), scale_sense=scale, communicator=communicator)
    return message_of(train, [np.ones(1, np.float32)])


def cells_in_another_order(rank):
    """Run two cells of one communicator twice, the second time in a different order on one rank; return the error."""
    communicator = communicator_of("mpi", "replicated", timeout=10)[0]
    inputs = [np.ones(1, np.float32)]
    models = [network(inputs), network(inputs)]
    cells = [MFTrainOneStepCell(model, ampscale.optimizers.SGD(model, 0.5), communicator=communicator) for model in models]
    second_order = cells[::-1] if rank == DEVIATING_RANK else cells
    return message_of(lambda: [cell(inputs) for cell in [*cells, *second_order]])


def micro_batches(rank, layout):
    """Return overflow flag, True if ranks communicated, parameter and scale after each of six micro-batches, three per step."""
    communicator, _, _ = communicator_of("mpi", layout, timeout=10)
    model, rows = network([np.ones(1, np.float32)]), []
    train = MFTrainOneStepCell(
        model, ampscale.optimizers.SGD(model, 0.5), scale_sense=DynamicLossScaleUpdateCell(2.0**10, 2, 2),
        gradient_accumulation_steps=3, detector=OverflowInFirstMicroBatch(rank == DEVIATING_RANK), communicator=communicator,
    )  # fmt: skip
    with counted(communicator) as (sums, _):
        for _ in range(6):
            overflow = bool(train([np.ones(1, np.float32)]).overflow)
            rows.append([overflow, len(sums) > 0, model.params[0].item(), float(train.scale_sense)])
            sums.clear()
    return rows
