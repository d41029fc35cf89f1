"""torch's own `GradScaler` goes on from what was converted as the machine says, and is converted from where it stands."""

from itertools import product

import numpy as np
import pytest
import torch
from checkpoints.scalers import SCALERS, Small, reached

from ampscale import checkpoints

TRACES = ["".join(trace) for trace in product(".x", repeat=5)]


class Training:
    """One parameter, and torch's scaler around its optimizer, on the CPU."""

    def __init__(self, **settings):
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.0)
        self.scaler = torch.amp.GradScaler("cpu", **settings)

    def step(self, finite):
        """A training step, and the scale after it."""
        self.optimizer.zero_grad()
        loss = self.weight * (1.0 if finite else float("inf"))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.scaler.get_scale()


@pytest.mark.parametrize("source", SCALERS)
def test_torchs_own_class_goes_on_as_the_report_says(source):
    """Its scales after loading are those of the rule that the report says it runs, along all traces of five steps."""
    scaler, small = SCALERS[source], Small(2, 2, 1.0)
    seen = set()
    for loop in reached(scaler.make(small), 4):
        saved = checkpoints.convert(scaler.save(loop), source, "torch", settings=scaler.settings_of(loop))
        if repr(saved.mapping) in seen:
            continue
        seen.add(repr(saved.mapping))
        for trace in TRACES[:: len(seen)]:  # all of them for the first, and then fewer
            training, state = Training(), saved.report.target.state
            training.scaler.load_state_dict(saved.mapping)
            for symbol in trace:
                state = saved.report.target.rule.update(state, symbol == ".")
                assert training.step(symbol == ".") == state.scale
    assert len(seen) > 5


def test_where_torchs_own_class_stands_is_read():
    """A dict of the real scaler after any five steps says the state of the machine after them."""
    for trace in TRACES:
        training = Training(init_scale=8.0, growth_interval=3, growth_factor=1.1, backoff_factor=0.7)
        rule = checkpoints.load("torch", {**training.scaler.state_dict(), "scale": 8.0}).rule
        state = rule.init(like=np.zeros(()))
        for symbol in trace:
            training.step(symbol == ".")
            state = rule.update(state, symbol == ".")
        found = checkpoints.load("torch", training.scaler.state_dict())
        assert found.state == state
        assert checkpoints.save("torch", found).mapping == training.scaler.state_dict()
