"""`scale`, `unscale_`, `step` and `update` in every order, compared with torch."""

from itertools import product

import pytest
import torch
from frameworks.torch import loops
from frameworks.torch.loops import bits

from ampscale.frameworks.torch import GradScaler

CALLS = ("scale", "unscale_", "step", "update")


class Loop:
    """Loop with one optimizer over one parameter, whose gradient is finite or not."""

    def __init__(self, scaler, gradient):
        self.scaler, self.gradient = scaler, gradient
        self.parameter = torch.ones(1, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.5)

    def run(self, call):
        """Run one call; `scale` includes the backward pass."""
        if call == "scale":
            self.optimizer.zero_grad()
            self.scaler.scale(self.parameter * self.gradient).sum().backward()
        else:
            getattr(self.scaler, call)(*([] if call == "update" else [self.optimizer]))

    def outcome(self, call):
        """Return the type of the error, if any, and the state after the call."""
        try:
            self.run(call)
        except (RuntimeError, AssertionError) as error:
            return type(error), self.state()
        return None, self.state()

    def state(self):
        """Return the parameter, its gradient, and the scaler's state dict."""
        return bits([self.parameter, self.parameter.grad]), self.scaler.state_dict()


def outcomes(scaler, gradient, calls):
    """Return the outcome of each call."""
    loop = Loop(scaler, gradient)
    return [loop.outcome(call) for call in calls]


def with_runtime_error(outcome):
    """Return an outcome of torch with a RuntimeError instead of an AssertionError."""
    error, state = outcome
    return RuntimeError if error is AssertionError else error, state


@pytest.mark.clause(
    "TORCH-call-order", "TORCH-first-scale", "TORCH-update-needs-a-step", "TORCH-step", "TORCH-update", "CALLS-every-sequence"
)  # fmt: skip
@pytest.mark.parametrize("gradient", [3.0, float("inf")])
def test_every_order_of_calls_has_torchs_outcome(gradient):
    """Two calls, or four after `scale`, give torch's values and errors, except a RuntimeError for each AssertionError."""
    settings = {"init_scale": 8.0, "growth_interval": 2}
    errors = set()
    for calls in [*product(CALLS, repeat=2), *(("scale", *calls) for calls in product(CALLS, repeat=4))]:
        expected = outcomes(loops.theirs(**settings), gradient, calls)
        assert outcomes(loops.ours(**settings), gradient, calls) == [with_runtime_error(outcome) for outcome in expected], calls
        errors |= {error for error, _ in expected}
    assert errors == {None, RuntimeError, AssertionError}


@pytest.mark.clause("TORCH-several-optimizers", "TORCH-update", "TORCH-call-order", "REPLICAS-one-update")
@pytest.mark.parametrize("order", ["AaBb", "BbAa", "ABab", "ABba", "aBb", "bAa", "abAB"])
def test_each_optimizer_has_its_own_call_order(order):
    """A capital letter is `unscale_`, a small one `step`. Optimizer b overflows and is skipped, and the scale backs off once."""
    scaler = GradScaler(init_scale=8.0)
    good, bad = Loop(scaler, 3.0), Loop(scaler, float("nan"))
    for loop in (good, bad):
        loop.run("scale")
    for letter in order:
        loop = {"a": good, "b": bad}[letter.lower()]
        out_of_order = letter.isupper() and order.index(letter) > order.index(letter.lower())
        assert loop.outcome("unscale_" if letter.isupper() else "step")[0] is (RuntimeError if out_of_order else None)
    scaler.update()
    assert (good.parameter.item(), bad.parameter.item(), scaler.get_scale()) == (-0.5, 1.0, 4.0)


@pytest.mark.clause("TORCH-call-order")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # warnings of torch.compile about caches and profilers
def test_a_compiled_loop_equals_an_eager_one_and_its_errors_name_lines():
    """The calls break the graph, as all calls of optimizers do."""

    def iteration():
        scaler.scale(loop.parameter * 3).sum().backward()
        scaler.step(loop.optimizer)
        scaler.update()
        loop.optimizer.zero_grad()

    results = []
    for run in (iteration, torch.compile(iteration, backend="eager")):
        scaler = GradScaler("cpu", init_scale=8.0, growth_interval=2)
        loop = Loop(scaler, 3.0)
        scaler.scale(torch.ones(()))
        for _ in range(3):
            run()
        results.append((loop.state()[0][0], scaler.state_dict()))
    assert results[0] == results[1]
    line = iteration.__code__.co_firstlineno + 3
    with pytest.raises(RuntimeError, match=rf"since the last update\(\) at .*test_call_order.py:{line}, or abandon\(\) has"):
        scaler.update()
