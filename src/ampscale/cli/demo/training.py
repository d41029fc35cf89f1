"""Trains the seven runs, and keeps what is reported about them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits  # comes with scikit-learn

from ampscale.optimizers import Momentum

from . import digits
from .loops import RUNS, Run, Step

RATE = 0.3  # of the first step; it falls to zero in a straight line
MEASURED_EVERY = 5


@dataclass
class Record:
    """What one run did."""

    run: Run
    steps: list[Step] = field(default_factory=list)
    underflow: dict[int, float] = field(default_factory=dict)  # by step
    accuracy: float = math.nan

    @property
    def underflow_share(self) -> float:
        """The mean over the measured steps."""
        return sum(self.underflow.values()) / len(self.underflow)

    @property
    def overflow_steps(self) -> int:
        """Steps with an infinity or a NaN among the gradients."""
        return sum(step.overflow for step in self.steps)

    @property
    def applied_steps(self) -> int:
        """Steps that moved the weights."""
        return sum(step.applied for step in self.steps)


def train_all(data: digits.Digits, steps: int, seed: int, stepped: Callable[[Record], None]) -> list[Record]:
    """All runs, from the same weights over the same batches; *stepped* is called after every step."""
    with threadpool_limits(1):  # the matrices are small: threads would wait for each other
        return [train(run, data, steps, seed, stepped) for run in RUNS]


def train(run: Run, data: digits.Digits, steps: int, seed: int, stepped: Callable[[Record], None]) -> Record:
    """One run."""
    network = digits.network_of(digits.first_params(seed), run.dtype)
    optimizer = Momentum(network, learning_rate=[RATE * (1 - step / steps) for step in range(steps)])
    record = Record(run)
    batches = list(digits.batches_of(data, steps, seed))
    for index, step in enumerate(run.loop(network, optimizer, batches)):
        record.steps.append(step)
        if index % MEASURED_EVERY == 0:
            record.underflow[index] = digits.underflow(network.params, run.dtype, batches[index], step.scale)
        stepped(record)
    record.accuracy = digits.accuracy(network.params, run.dtype, data.test)
    return record


def report(records: list[Record], seed: int, picture: Path) -> dict[str, Any]:
    """All results, for JSON."""
    return {
        "data": digits.CREDIT,
        "seed": seed,
        "steps": len(records[0].steps),
        "picture": str(picture),
        "runs": [_described(record) for record in records],
    }


def _described(record: Record) -> dict[str, Any]:
    return {
        "name": record.run.name,
        "dtype": record.run.dtype,
        "test_accuracy": record.accuracy,
        "underflow_share": record.underflow_share,
        "overflow_steps": record.overflow_steps,
        "applied_steps": record.applied_steps,
        "first_scale": record.steps[0].scale,
        "last_scale": record.steps[-1].scale,
        "loss": [step.loss if math.isfinite(step.loss) else None for step in record.steps],
        "scale": [step.scale for step in record.steps],
        "overflow": [step.overflow for step in record.steps],
        "underflow": [{"step": step, "share": share} for step, share in record.underflow.items()],
    }
