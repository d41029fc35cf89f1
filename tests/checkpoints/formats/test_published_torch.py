"""Tests of conversions to and from `torch.amp.GradScaler`."""

from itertools import product

import numpy as np
import pytest

from ampscale import checkpoints

torch = pytest.importorskip("torch", reason="needs torch")

TRACES = ["".join(trace) for trace in product(".x", repeat=5)]


class Training:
    """Training of one parameter with torch's scaler on the CPU."""

    def __init__(self, **settings):
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.0)
        self.scaler = torch.amp.GradScaler("cpu", **settings)

    def step(self, finite):
        """Run a training step, and return the next scale."""
        self.optimizer.zero_grad()
        loss = self.weight * (1.0 if finite else float("inf"))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.scaler.get_scale()


def test_state_dict_of_grad_scaler_is_loaded():
    """After any five steps, the state dict holds the state of the rule and is written again unchanged."""
    for trace in TRACES:
        training = Training(init_scale=8.0, growth_interval=3, growth_factor=1.1, backoff_factor=0.7)
        rule = checkpoints.load("torch", {**training.scaler.state_dict(), "scale": 8.0}).rule
        state = rule.init(like=np.zeros(()))
        for symbol in trace:
            training.step(symbol == ".")
            state = rule.update(state, symbol == ".")
        checkpoint = checkpoints.load("torch", training.scaler.state_dict())
        assert checkpoint.state == state
        assert checkpoints.save("torch", checkpoint).mapping == training.scaler.state_dict()
