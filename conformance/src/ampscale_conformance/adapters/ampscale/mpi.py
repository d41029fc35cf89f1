"""Adapter of ampscale's training step on NumPy arrays, on the ranks of MPI."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    rank_options = {name: values[rank] for name, values in options.items() if isinstance(values, list)}
    defaults = {"max_norm": None, "elements": 1, "scale": None}
    max_norm, size, scale = (rank_options.pop(name, default) for name, default in defaults.items())
    seconds = options.get("time_limit", 60.0)
    rule = replace(LossScaleRule.from_json(rule_text), **rank_options)
    placement = placements[0]
    layout = "replicated" if placement == "reduced" else placement
    communicator = ampscale.distributed.MPI(gradients=layout, mean=placement == "replicated", timeout=seconds)
    network, optimizer = network_with_optimizer(arrays_of(placement, steps[0][rank], size), "numpy", 1.0)
    state, results = ampscale.init_train_state(network.params, optimizer, rule), []
    for index, step in enumerate(steps, start=1):
        is_last = index == len(steps)
        if is_last and options.get("late") == rank:
            time.sleep(seconds + GRACE)
        if not step or (scale and is_last):
            saved = NUMPY.save((rule, state.scaler))
            if step:
                saved = [scale, *saved[1:]]
            state = state._replace(scaler=NUMPY.load(rule, saved)[1])
        applied = state.applied
        try:
            if step:
                data = arrays_of(placement, step[rank], size)
                with_options = {"max_norm": max_norm, "communicator": communicator}
                state, _ = ampscale.train_step(network, optimizer, rule, state, *data, **with_options)
        except ampscale.distributed.RankError:
            if not options.get("returns"):
                raise
        results.append([float(state.scaler.scale), bool(state.applied > applied)])
    return results


def arrays_of(placement: str, values: Sequence[float | None], size: int) -> list[Any]:
    """Return an array of this size for each value. None gives an empty shard, or no array if the arrays are distinct."""
    if placement == "distinct":
        values = [value for value in values if value is not None]
    return [np.full(0 if value is None else size, value or 0.0, np.float32) for value in values]
