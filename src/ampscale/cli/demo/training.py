"""Training of the seven runs, and their results."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits  # comes with scikit-learn

from ampscale.optimizers import Momentum

from . import digits
from .loops import RUNS, Run, Step

RATE = 0.3  # learning rate of the first step; it decreases linearly to zero
MEASURED_EVERY = 5  # steps from one measurement of the underflow to the next


@dataclass
class Record:
    """Steps and results of one run."""

    run: Run
    steps: list[Step] = field(default_factory=list)
    underflow: dict[int, float] = field(default_factory=dict)  # share of underflow by step, counted from 0
    accuracy: float = math.nan

    @property
    def overflow_steps(self) -> int:
        """Return the number of steps with a non-finite gradient."""
        return sum(step.overflow for step in self.steps)


def train_all(data: digits.Digits, steps: int, seed: int, after_step: Callable[[Record], None]) -> list[Record]:
    """Train all runs from the same weights with the same batches. *after_step* is called after every step."""
    with threadpool_limits(1):  # more threads are slower for matrices of this size
        return [train(run, data, steps, seed, after_step) for run in RUNS]


def train(run: Run, data: digits.Digits, steps: int, seed: int, after_step: Callable[[Record], None]) -> Record:
    """Train one run, and measure its underflow and accuracy. *after_step* is called after every step."""
    network = digits.network_of(digits.first_params(seed), run.dtype)
    optimizer = Momentum(network, learning_rate=[RATE * (1 - step / steps) for step in range(steps)])
    record = Record(run)
    batches = list(digits.batches_of(data, steps, seed))
    for index, step in enumerate(run.loop(network, optimizer, batches)):
        record.steps.append(step)
        if index % MEASURED_EVERY == 0:
            record.underflow[index] = digits.underflow(network.params, run.dtype, batches[index], step.scale)
        after_step(record)
    record.accuracy = digits.accuracy(network.params, run.dtype, data.test)
    return record


def report(records: list[Record], seed: int, picture: Path) -> dict[str, Any]:
    """Return the results as JSON-serializable values."""
    runs = [
        {
            "name": record.run.name,
            "dtype": record.run.dtype,
            "test_accuracy": record.accuracy,
            "underflow_share": sum(record.underflow.values()) / len(record.underflow),
            "overflow_steps": record.overflow_steps,
            "applied_steps": sum(step.applied for step in record.steps),
            "first_scale": record.steps[0].scale,
            "last_scale": record.steps[-1].scale,
            "loss": [step.loss if math.isfinite(step.loss) else None for step in record.steps],
            "scale": [step.scale for step in record.steps],
            "overflow": [step.overflow for step in record.steps],
            "underflow": [{"step": step, "share": share} for step, share in record.underflow.items()],
        }
        for record in records
    ]
    return {"data": digits.CREDIT, "seed": seed, "steps": len(records[0].steps), "picture": str(picture), "runs": runs}
