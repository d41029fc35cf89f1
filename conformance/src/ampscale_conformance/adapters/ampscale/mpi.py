"""Adapter of ampscale's training step on NumPy arrays, on the ranks of MPI."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import ampscale
from ampscale import LossScaleRule

from ...model.adapter import Unsupported
from ..ranks import GRACE, on_ranks
from .backends import CAPABILITIES, EVERY_CONSTANT, NUMPY, Core, info_of, network_with_optimizer


class OnMPI(Core):
    """Functional core on NumPy, whose ranks use the communicator `ampscale.distributed.MPI`."""

    def __init__(self) -> None:
        super().__init__("numpy")
        self.info = info_of("on MPI", EVERY_CONSTANT, 5, (*CAPABILITIES, "ranks", "sharded", "distinct", "rank-errors"))

    def train_on_ranks(
        self, rule: LossScaleRule, placements: Sequence[str], steps: Sequence[Any], optimizers: int, **options: Any
    ) -> Any:
        """Raise Unsupported for several optimizers, and if mpi4py is not installed."""
        if optimizers > 1:
            raise Unsupported("train_step supports a single optimizer")
        if not find_spec("mpi4py"):
            raise Unsupported("mpi4py is not installed")
        launcher = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(len(steps[0]))]
        return on_ranks(train_on_rank, len(steps[0]), rule.to_json(), placements, steps, options, launcher=launcher)


def train_on_rank(
    rank: int, _size: int, rule_text: str, placements: Sequence[str], steps: Sequence[Any], options: Mapping[str, Any]
) -> list[Any]:
    """
    Train on one rank with the communicator, and return the scale after each step, with True if the step was applied.

    *options* are those of `Adapter.train_on_ranks`. A step without ranks saves the state and loads it.
    """
    rank_options = {name: values[rank] for name, values in options.items() if isinstance(values, list)}
    max_norm, size, scale = rank_options.pop("max_norm", None), rank_options.pop("elements", 1), rank_options.pop("scale", None)
    rule = replace(LossScaleRule.from_json(rule_text), **rank_options)
    seconds = options.get("time_limit", 60.0)
    placement = placements[0]
    layout = "replicated" if placement == "reduced" else placement
    communicator = ampscale.distributed.MPI(gradients=layout, mean=placement == "replicated", timeout=seconds)
    network, optimizer = network_with_optimizer(arrays_of(placement, steps[0][rank], size), "numpy", 1.0)
    train_step = partial(ampscale.train_step, network, optimizer, rule, max_norm=max_norm, communicator=communicator)
    ignored: Any = ampscale.distributed.RankError if options.get("returns") else ()
    state, results = ampscale.init_train_state(network.params, optimizer, rule), []
    for index, step in enumerate(steps, start=1):
        is_last = index == len(steps)
        if is_last and options.get("late") == rank:
            time.sleep(seconds + GRACE)
        if not step or (is_last and scale):
            state = reloaded(rule, state, scale if step else None)
        old_applied = state.applied
        if step:
            data = arrays_of(placement, step[rank], size)
            with suppress(ignored):
                state, _ = train_step(state, *data)
        results.append([float(state.scaler.scale), bool(state.applied > old_applied)])
    return results


def reloaded(rule: LossScaleRule, state: Any, scale: float | None) -> Any:
    """Return a training state whose scaler was saved and loaded, with another scale if one is given."""
    saved = NUMPY.save((rule, state.scaler))
    _, scaler = NUMPY.load(rule, saved if scale is None else [scale, *saved[1:]])
    return state._replace(scaler=scaler)


def arrays_of(placement: str, values: Sequence[float | None], size: int) -> list[Any]:
    """Return an array of this size for each value. None gives an empty shard, or no array if the arrays are distinct."""
    if placement == "distinct":
        values = [value for value in values if value is not None]
    return [np.full(0 if value is None else size, value or 0.0, np.float32) for value in values]
