"""The step cells with torch's modules and optimizers: a loop written by hand, bit for bit, without its bad steps."""

import pytest
from frameworks.refusals import refused
from libraries import load

from ampscale import (
    DynamicLossScaleUpdateCell,
    GradientScan,
    MFTrainOneStepCell,
    Network,
    StatusRegister,
    TrainOneStepWithLossScaleCell,
    optimizers,
)

torch = pytest.importorskip("torch", reason="needs torch")
loops = pytest.importorskip("frameworks.torch.loops")

nn, OPTIMIZERS, INF, bits = torch.nn, loops.OPTIMIZERS, loops.INF, loops.bits

CELLS = pytest.mark.parametrize("cell", [TrainOneStepWithLossScaleCell, MFTrainOneStepCell])
TORCHS = OPTIMIZERS | {
    "groups": lambda params: torch.optim.Adam([{"params": params[::2], "lr": 0.01}, {"params": params[1::2]}], lr=0.002),
}
TRACE = "OFFOFFOOFF"  # overflow, finite, finite


class Model(nn.Module):
    """Two layers that return their loss."""

    def __init__(self):
        super().__init__()
        self.layers = loops.started(None, OPTIMIZERS["sgd"]).networks[0]

    def forward(self, inputs, targets):
        """The mean square error: shape ()."""
        return nn.functional.mse_loss(self.layers(inputs), targets)


def batch(step, letter="F"):
    """Inputs and targets; infinite targets make an overflow."""
    inputs, targets = loops.batch_of(step)
    return inputs, targets * (loops.INF if letter == "O" else 1)


def started(make=OPTIMIZERS["sgd"], dtype=torch.float32):
    """A model and its optimizer; always the same."""
    model = Model().to(dtype)
    return model, make(list(model.parameters()))


def moving():
    """A scale of powers of two that falls and rises."""
    return DynamicLossScaleUpdateCell(2**10, 2, 2)


def by_hand(model, optimizer, *inputs):
    """A step without any scaling, as torch's pages have it: the loss."""
    optimizer.zero_grad()
    loss = model(*inputs)
    loss.backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.clause(
    "STEP-order",
    "STEP-apply",
    "STEP-skip",
    "STEP-loss-unscaled",
    "MINDSPORE-cell-overflow",
    "MINDFORMERS-overflow",
    "TORCH-fused-momentum",
)
@pytest.mark.parametrize(
    ("cell", "dtype"), [(TrainOneStepWithLossScaleCell, torch.float32), (MFTrainOneStepCell, torch.bfloat16)], ids=str
)
@pytest.mark.parametrize("name", TORCHS)
def test_a_run_is_that_of_a_loop_by_hand(cell, dtype, name):
    """Finite steps are those without any scaling, and on an overflow nothing moves; no gradient is left behind."""
    model, optimizer = started(TORCHS[name], dtype)
    twin, by_twin = started(TORCHS[name], dtype)
    step = cell(model, optimizer, scale_sense=moving())
    for number, letter in enumerate(TRACE):
        inputs = [value.to(dtype) for value in batch(number, letter)]
        output = step(*inputs)
        assert bool(output.overflow) == (letter == "O")
        if letter == "F":
            assert bits(output.loss) == bits(by_hand(twin, by_twin, *inputs))
        assert bits(model.state_dict()) == bits(twin.state_dict())
        if "F" in TRACE[: number + 1]:  # a fused optimizer has moments of zero before
            assert bits(optimizer.state_dict()) == bits(by_twin.state_dict())
        assert [parameter.grad for parameter in model.parameters()] == [None] * 4
    assert float(output.loss_scale) == 2.0**9


@pytest.mark.clause("STEP-two-modes", "BACKENDS-one-host-sync", "BACKENDS-no-host-sync")
@pytest.mark.parametrize(
    ("cell", "name"),
    [
        *((TrainOneStepWithLossScaleCell, name) for name in ("adamw-foreach", "momentum-fused", "groups")),
        *((MFTrainOneStepCell, name) for name in ("sgd", "adamw-fused")),
    ],
)
def test_a_step_reads_once_and_a_fused_one_never(cell, name):
    """Besides what torch's optimizer reads itself; an overflow costs no more. Fused momentum reads until it has some."""
    model, optimizer = started(TORCHS[name])
    step = cell(model, optimizer, scale_sense=moving())
    step(*batch(0))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with load("torch").count_reads() as its_own:
        optimizer.step()
    for letter in "FOF":
        with load("torch").count_reads() as reads:
            step(*batch(1, letter))
        assert len(reads) == (0 if name.endswith("fused") else 1 + len(its_own) * (letter == "F"))


class Product(nn.Module):
    """The sum of weights times inputs, so that the gradients are the inputs."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2, dtype=dtype))
        self.b = nn.Parameter(torch.ones(1, dtype=dtype))

    def forward(self, w, b):
        """float32, shape ()."""
        return (self.w.float() * torch.tensor(w)).sum() + (self.b.float() * torch.tensor(b)).sum()


class Words(nn.Embedding):
    """The sum of the words' rows, each times a factor."""

    def forward(self, words, factor):
        """Shape ()."""
        return (super().forward(words) * factor).sum()


def cell_of(model, optimizer, scale=2.0**4, cell=MFTrainOneStepCell):
    """A cell with a fixed scale."""
    return cell(model, optimizer, scale_sense=torch.tensor(scale))


def values(model):
    """The parameters, bit for bit."""
    return bits(list(model.parameters()))


@pytest.mark.clause("MINDFORMERS-learning-rate")
@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)], ids=["number", "tensor"])
def test_the_rate_is_that_of_the_step(rate):
    """A snapshot, which a schedule that the user steps does not move afterwards."""
    model = Product()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = cell_of(model, optimizer)
    outputs = []
    for given in (1.0, INF, 1.0):
        outputs.append(step([given, 0.0], [0.0]))
        if not outputs[-1].overflow:
            schedule.step()
    assert [output.learning_rate.tolist() for output in outputs] == [0.5, 0.25, 0.25]
    assert model.w.tolist() == [0.25, 1.0]


@pytest.mark.clause("MINDFORMERS-learning-rate")
@pytest.mark.parametrize(
    ("rates", "told"),
    [
        ((0.5, 0.5), 0.5),
        ((0.5, 0.25), [0.5, 0.25]),
        ((0.5, torch.tensor(0.5)), [0.5, 0.5]),
        ((torch.tensor([0.5]), 0.25), [0.5, 0.25]),
    ],
    ids=["same", "different", "unknown", "mixed"],
)
def test_groups_tell_one_rate_or_one_each(rates, told):
    """One where all are known to be the same, without a look at a tensor's value."""
    model = Product()
    groups = [{"params": [parameter], "lr": rate} for parameter, rate in zip(model.parameters(), rates, strict=True)]
    output = cell_of(model, torch.optim.SGD(groups, foreach=False))([1.0, 0.0], [1.0])
    assert output.learning_rate.dtype == torch.float32
    assert output.learning_rate.tolist() == told
    assert (model.w.tolist(), model.b.tolist()) == ([0.5, 1.0], [1 - float(rates[1])])


@pytest.mark.clause("STEP-apply", "STEP-skip", "OVERFLOW-status-register")
@pytest.mark.parametrize(
    ("cell", "detector"), [(TrainOneStepWithLossScaleCell, GradientScan), (MFTrainOneStepCell, StatusRegister)]
)
def test_an_embedding_is_trained_by_its_rows(cell, detector):
    """As by hand with torch's SparseAdam; two values of one row that are finite, and not together, are an overflow."""
    model, twin = (Words.from_pretrained(torch.ones(6, 2), freeze=False, sparse=True) for _ in range(2))
    optimizer, by_twin = (torch.optim.SparseAdam(list(each.parameters()), lr=0.1) for each in (model, twin))
    step = cell(model, optimizer, scale_sense=torch.tensor(2.0**4), detector=detector())
    for words, factor, overflow in (([1, 4, 1], 0.5, False), ([2, 2], 1.5e37, True), ([2, 3], 1.5e37, False), ([1], 2.0, False)):
        output = step(torch.tensor(words), factor)
        assert bool(output.overflow) == overflow
        if not overflow:
            by_twin.zero_grad()
            twin(torch.tensor(words), factor).backward()
            by_twin.step()
        assert bits([model.state_dict(), optimizer.state_dict()]) == bits([twin.state_dict(), by_twin.state_dict()])


@pytest.mark.clause("OVERFLOW-both-sides", "STEP-skip")
@CELLS
@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_that_16_bits_cannot_hold_is_not_applied(cell, fused):
    """With a scale below one, float16 holds the scaled gradient 60000 and not the true one: the parameter stays finite."""
    model = Product(torch.float16)
    step = cell_of(model, torch.optim.SGD(model.parameters(), lr=2.0**-14, fused=fused), scale=0.5, cell=cell)
    for w, moved in ((120000.0, 0.0), (60000.0, 60000 * 2.0**-14)):
        before = model.w[0].item()
        step([w, 0.0], [0.0])
        assert before - model.w[0].item() == pytest.approx(moved, abs=2**-8)


@pytest.mark.clause("STEP-network", "MINDFORMERS-ema")
@pytest.mark.filterwarnings("error")
def test_a_network_of_parameters_is_moved_by_torchs_optimizers():
    """The parameters that were handed in move, and what is kept of them remembers no step."""
    params = {"w": nn.Parameter(torch.ones(2)), "b": torch.ones(1, requires_grad=True), "c": torch.ones(1)}
    network = Network(lambda params, x: (params["w"] * x).sum() + params["b"].sum() + params["c"].sum(), params)
    step = MFTrainOneStepCell(network, torch.optim.SGD(params.values(), lr=0.5), scale_sense=8.0, ema_decay=0.5)
    output = [step(torch.tensor([1.0, -2.0])) for _ in range(2)][-1]
    assert [params[name].tolist() for name in "wbc"] == [[0.0, 3.0], [0.0], [0.0]]
    assert network.params is params
    assert step.ema_params["w"].tolist() == [0.375, 2.25]
    assert not any(value.requires_grad for value in (*output[:4], *step.ema_params.values()))
    assert [params[name].grad for name in "wbc"] == [None] * 3


def test_our_own_optimizers_refuse_parameters_that_torch_keeps_book_of():
    """They make new arrays, so that the parameter would stay, and torch would remember every step."""
    for params in ([nn.Parameter(torch.ones(2))], {"w": torch.ones(2, requires_grad=True)}):
        with refused(ValueError, "params", "detach"):
            optimizers.AdamW(Network(lambda params: params[0].sum(), params))


def test_an_optimizer_holds_parameters_of_the_network_only():
    """A stranger would never get a gradient; a frozen parameter may get one later."""
    model, other = Product(), Product()
    model.b.requires_grad_(False)
    with refused(ValueError, "optimizer", "got 2 that are not the network's"):
        cell_of(model, torch.optim.SGD([*model.parameters(), *other.parameters()]))
    with refused(ValueError, "optimizer", "got 1 that are not the network's"):
        cell_of(Network(lambda w: w.sum(), model.w), torch.optim.SGD(model.parameters()))

    step = cell_of(model, torch.optim.SGD(model.parameters(), lr=0.5))
    step([1.0, 1.0], [1.0])
    assert model.b.tolist() == [1.0]
    model.b.requires_grad_(True)
    step([1.0, 1.0], [1.0])
    assert (model.w.tolist(), model.b.tolist()) == ([0.0, 0.0], [0.5])


@pytest.mark.parametrize("make", [torch.optim.LBFGS, torch.optim.SparseAdam])
def test_no_gradient_is_left_where_an_optimizer_raises(make):
    """LBFGS wants a closure, and SparseAdam sparse gradients."""
    model = Product()
    before = values(model)
    with pytest.raises((TypeError, RuntimeError)):
        cell_of(model, make(list(model.parameters())))([1.0, 1.0], [1.0])
    assert values(model) == before
    assert [parameter.grad for parameter in model.parameters()] == [None, None]


@pytest.mark.parametrize("fused", [False, True])
def test_an_heir_may_decide_with_a_bool(fused):
    """And a gradient that a parameter had before is not added."""

    class Heir(MFTrainOneStepCell):
        skip = True

        def process_loss_scale(self, overflow):
            return self.skip

    model = Product()
    step = cell_of(model, torch.optim.SGD(model.parameters(), lr=0.5, fused=fused), cell=Heir)
    for skip, w in ((True, 1.0), (False, 0.5)):
        model.w.grad = torch.full((2,), 100.0)
        step.skip = skip
        step([1.0, 1.0], [1.0])
        assert model.w.tolist() == [w, w]


@pytest.mark.clause("STEP-no-gradients", "MINDFORMERS-global-norm")
@pytest.mark.parametrize("fused", [False, True])
def test_a_loss_without_parameters_moves_nothing(fused):
    """The outputs are torch's, like those of any step."""
    model = Product()
    model.forward = lambda: torch.ones(())
    before = values(model)
    scale = DynamicLossScaleUpdateCell(2**10, 2, 2)
    step = MFTrainOneStepCell(model, torch.optim.AdamW(model.parameters(), fused=fused), True, 1.0, scale, True)
    output = step()
    assert all(isinstance(value, torch.Tensor) for value in output)
    assert (bool(output.overflow), float(output.global_norm), output.size.tolist()) == (False, 0.0, [])
    assert values(model) == before
