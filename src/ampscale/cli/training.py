"""Trains the seven runs, and keeps what is reported about them."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ampscale.optimizers import Momentum

from . import digits
from .demo import RUNS, Run, Step

RATE = 4 * digits.WEIGHT**2  # weights WEIGHT times larger, gradients WEIGHT times smaller: the rate is its square
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
        """Steps that moved the weights; without a scaler every step does."""
        return len(self.steps) - (self.overflow_steps if self.scaled else 0)

    @property
    def scaled(self) -> bool:
        """Whether there is a scaler."""
        return any(step.scale != 1 for step in self.steps)


class Watch(Protocol):
    """Who is told of every step."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *_: object) -> None: ...
    def stepped(self, record: Record) -> None:
        """*record* has one step more."""


class Silence:
    """Nobody watches."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def stepped(self, record: Record) -> None: ...


def train_all(data: digits.Digits, steps: int, seed: int, watch: Watch) -> list[Record]:
    """All runs, from the same weights over the same batches."""
    with watch:
        return [train(run, data, steps, seed, watch) for run in RUNS]


def train(run: Run, data: digits.Digits, steps: int, seed: int, watch: Watch) -> Record:
    """One run; the learning rate falls to zero in a straight line."""
    network = digits.network_of(digits.first_params(seed), run.dtype)
    optimizer = Momentum(network, learning_rate=[RATE * (1 - step / steps) for step in range(steps)])
    record = Record(run)
    batches = list(digits.batches(data, steps, seed))
    for batch, step in zip(batches, run.loop(network, optimizer, batches), strict=True):
        if len(record.steps) % MEASURED_EVERY == 0:
            record.underflow[len(record.steps)] = digits.underflow(network.params, run.dtype, batch, step.scale)
        record.steps.append(step)
        watch.stepped(record)
    record.accuracy = digits.accuracy(network.params, run.dtype, data.test)
    return record


def report(records: list[Record], steps: int, seed: int, picture: Path) -> dict[str, Any]:
    """All results, ready for JSON; a loss that is no number is null."""
    return {
        "data": {"credit": digits.CREDIT, "training_images": digits.TRAINING, "test_images": 1797 - digits.TRAINING},
        "steps": steps,
        "seed": seed,
        "runs": [_described(record) for record in records],
        "picture": str(picture),
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
        "underflow": {str(step): share for step, share in record.underflow.items()},
    }
