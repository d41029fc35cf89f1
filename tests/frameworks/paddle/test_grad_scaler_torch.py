"""Paddle's `GradScaler` with torch optimizers, compared bit for bit with hand-written loops, and the example of Paddle's page."""

import sys
from types import SimpleNamespace

import pytest

from ampscale import GradScaler

torch = pytest.importorskip("torch", reason="needs torch")
loops = pytest.importorskip("frameworks.torch.loops")

bits, OPTIMIZERS = loops.bits, loops.OPTIMIZERS
TORCHS = OPTIMIZERS | {
    "groups": lambda params: torch.optim.Adam([{"params": params[::2], "lr": 0.01}, {"params": params[1::2]}], lr=0.002),
}
TRACE = "FFOFFOOFF"  # finite, finite, overflow
PAGE = """
import paddle

model = paddle.nn.Conv2D(3, 2, 3, bias_attr=True)
optimizer = paddle.optimizer.SGD(learning_rate=0.01, parameters=model.parameters())
scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
data = paddle.rand([10, 3, 32, 32])

with paddle.amp.auto_cast():
    conv = model(data)
    loss = paddle.mean(conv)

scaled = scaler.scale(loss)  # scale the loss
scaled.backward()            # do backward
scaler.minimize(optimizer, scaled)  # update parameters
"""


class Run:
    """Network of two layers with its optimizer, and a scaler of powers of two."""

    def __init__(self, make):
        self.network = loops.started(None, make).networks[0]
        self.optimizer = make(list(self.network.parameters()))
        self.scaler = GradScaler(init_loss_scaling=2**10, incr_every_n_steps=2, decr_every_n_nan_or_inf=1)

    def loss(self, step, letter="F"):
        """Return the loss of a batch."""
        inputs, targets = loops.batch_of(step)
        return torch.nn.functional.mse_loss(self.network(inputs), targets * (loops.INF if letter == "O" else 1))

    def scaled(self, step, letter="F"):
        """Return the scaled loss after its backward pass."""
        self.optimizer.zero_grad()
        scaled = self.scaler.scale(self.loss(step, letter))
        scaled.backward()
        return scaled

    def by_hand(self, step):
        """Run a step without scaling."""
        self.optimizer.zero_grad()
        self.loss(step).backward()
        self.optimizer.step()

    def state(self):
        """Return the bits of the parameters and of the optimizer state."""
        return bits([dict(self.network.state_dict()), self.optimizer.state_dict()])


def minimized(run, scaled):
    """Run a step as on Paddle's page."""
    run.scaler.minimize(run.optimizer, scaled)


def stepped(run, _):
    """Run a step with `step` and `update`, and return whether the optimizer stepped."""
    run.scaler.step(run.optimizer)
    run.scaler.update()


def unscaled_first(run, _):
    """Run a step that calls `unscale_` first."""
    run.scaler.unscale_(run.optimizer)
    stepped(run, _)


@pytest.mark.clause("PADDLE-scale", "PADDLE-minimize", "PADDLE-minimize-skips", "PADDLE-step", "PADDLE-update", "PADDLE-unscale")
@pytest.mark.parametrize(
    ("name", "way"), [*((name, minimized) for name in TORCHS), ("momentum", stepped), ("adamw-fused", unscaled_first)]
)
def test_a_run_equals_a_hand_written_loop(name, way):
    """Finite steps equal steps without scaling; an overflow changes neither parameters nor optimizer."""
    run, twin = Run(TORCHS[name]), Run(TORCHS[name])
    scales = []
    for number, letter in enumerate(TRACE):
        way(run, run.scaled(number, letter))
        if letter == "F":
            twin.by_hand(number)
        assert run.state() == twin.state()
        scales.append(run.scaler.get_loss_scaling())
    assert scales == [2.0**power for power in (10, 11, 10, 10, 11, 10, 9, 9, 10)]


@pytest.mark.clause("PADDLE-minimize-skips", "PADDLE-unscale")
def test_sparse_gradients_are_coalesced_before_the_check():
    """Two finite values of one row whose sum is infinite are an overflow."""
    words, twin = (torch.nn.Embedding.from_pretrained(torch.ones(4, 2), freeze=False, sparse=True) for _ in range(2))
    optimizer, by_twin = (torch.optim.SGD(module.parameters(), lr=2.0**-10) for module in (words, twin))
    scaler = GradScaler(init_loss_scaling=2.0)
    for rows, factor, applied in (([1, 3, 1], 3.0, True), ([2, 2], 1e38, False), ([2, 0], 1e38, True)):
        for module, used, scale in ((words, optimizer, scaler.scale), (twin, by_twin, lambda loss: loss)):
            used.zero_grad()
            scale((module(torch.tensor(rows)) * factor).sum()).backward()
        assert scaler.step(optimizer) == applied
        scaler.update()
        if applied:
            by_twin.step()
        assert bits(words.state_dict()) == bits(twin.state_dict())


@pytest.mark.clause("PADDLE-example")
def test_the_documented_example_applies_the_unscaled_gradient(monkeypatch):
    """The learning rate is 0.01, the tolerance that of float16. The gradient of a bias is 0.5, and the scale is kept."""
    paddle = SimpleNamespace(
        nn=SimpleNamespace(Conv2D=lambda *sizes, bias_attr: torch.nn.Conv2d(*sizes, bias=bias_attr)),
        optimizer=SimpleNamespace(SGD=lambda learning_rate, parameters: torch.optim.SGD(parameters, lr=learning_rate)),
        amp=SimpleNamespace(GradScaler=GradScaler, auto_cast=lambda: torch.autocast("cpu", dtype=torch.float16)),
        rand=torch.rand,
        mean=torch.mean,
    )
    monkeypatch.setitem(sys.modules, "paddle", paddle)
    torch.manual_seed(0)
    before, after = torch.nn.Conv2d(3, 2, 3), {}
    torch.manual_seed(0)
    exec(PAGE, after)
    before(after["data"]).mean().backward()
    for old, new in zip(before.parameters(), after["model"].parameters(), strict=True):
        torch.testing.assert_close((old - new).detach(), 0.01 * old.grad, rtol=2e-3, atol=1e-6)
    torch.testing.assert_close(before.bias.grad, torch.tensor([0.5, 0.5]), rtol=1e-4, atol=0)
    assert after["scaler"].get_loss_scaling() == 1024
    assert float(after["scaled"].detach()) == pytest.approx(1024 * float(after["loss"].detach()))
