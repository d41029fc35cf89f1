"""Paddle's `GradScaler` with torch optimizers, compared bit for bit with hand-written loops."""

import pytest

from ampscale import GradScaler

torch = pytest.importorskip("torch", reason="needs torch")
loops = pytest.importorskip("frameworks.torch.loops")

bits, OPTIMIZERS = loops.bits, loops.OPTIMIZERS | loops.GROUPED
TRACE = "FFOFFOOFF"  # F is a finite step, O an overflow


class Run:
    """Network of two layers with its optimizer, and a scaler whose scales are powers of two."""

    def __init__(self, make):
        self.network = loops.new_run(None, make).networks[0]
        self.optimizer = make(list(self.network.parameters()))
        self.scaler = GradScaler(init_loss_scaling=2**10, incr_every_n_steps=2, decr_every_n_nan_or_inf=1)

    def loss(self, step, letter="F"):
        """Return the loss; infinite targets cause an overflow."""
        inputs, targets = loops.batch_of(step)
        return torch.nn.functional.mse_loss(self.network(inputs), targets * (loops.INF if letter == "O" else 1))

    def scaled(self, step, letter="F"):
        """Compute scaled gradients, and return the scaled loss."""
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
        return bits([dict(self.network.state_dict()), self.optimizer.state_dict()])


def minimize(run, scaled):
    """Run a step with `minimize`."""
    run.scaler.minimize(run.optimizer, scaled)


def step(run, _):
    """Run a step with `step` and `update`."""
    run.scaler.step(run.optimizer)
    run.scaler.update()


def unscale_first(run, _):
    """Run a step with `unscale_`, `step` and `update`."""
    run.scaler.unscale_(run.optimizer)
    step(run, _)


@pytest.mark.clause("PADDLE-scale", "PADDLE-minimize", "PADDLE-minimize-skips", "PADDLE-step", "PADDLE-update", "PADDLE-unscale")
@pytest.mark.parametrize(
    ("name", "run_step"), [*((name, minimize) for name in OPTIMIZERS), ("momentum", step), ("adamw-fused", unscale_first)]
)
def test_a_run_equals_a_hand_written_loop(name, run_step):
    """Finite steps equal steps without scaling; an overflow changes neither parameters nor optimizer."""
    run, twin = Run(OPTIMIZERS[name]), Run(OPTIMIZERS[name])
    scales = []
    for number, letter in enumerate(TRACE):
        run_step(run, run.scaled(number, letter))
        if letter == "F":
            twin.by_hand(number)
        assert run.state() == twin.state()
        scales.append(run.scaler.get_loss_scaling())
    assert scales == [2.0**power for power in (10, 11, 10, 10, 11, 10, 9, 9, 10)]


@pytest.mark.clause("PADDLE-minimize-skips", "PADDLE-unscale")
def test_sparse_gradients_are_coalesced_before_the_check():
    """Two finite values of one row whose sum is infinite are an overflow. Other steps equal those of a twin without a scaler."""
    words, twin = (torch.nn.Embedding.from_pretrained(torch.ones(4, 2), freeze=False, sparse=True) for _ in range(2))
    optimizer, twin_optimizer = (torch.optim.SGD(module.parameters(), lr=2.0**-10) for module in (words, twin))
    scaler = GradScaler(init_loss_scaling=2.0)
    for rows, factor, applied in (([1, 3, 1], 3.0, True), ([2, 2], 1e38, False), ([2, 0], 1e38, True)):
        for module, module_optimizer, scale in ((words, optimizer, scaler.scale), (twin, twin_optimizer, lambda loss: loss)):
            module_optimizer.zero_grad()
            scale((module(torch.tensor(rows)) * factor).sum()).backward()
        assert scaler.step(optimizer) == applied
        scaler.update()
        if applied:
            twin_optimizer.step()
        assert bits(words.state_dict()) == bits(twin.state_dict())
