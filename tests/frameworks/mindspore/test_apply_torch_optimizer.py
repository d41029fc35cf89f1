"""Training cells with torch modules and optimizers, compared bit for bit with hand-written loops."""

from types import SimpleNamespace

import pytest
from frameworks.rejections import rejects
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
from ampscale.core.replicas import SINGLE_REPLICA

torch = pytest.importorskip("torch", reason="needs torch")
loops = pytest.importorskip("frameworks.torch.loops")

nn = torch.nn
INF = loops.INF
bits = loops.bits
OPTIMIZERS = loops.OPTIMIZERS | loops.GROUPED

TRACE = "OFFOFFOOFF"  # O is an overflow, F a finite step


class Model(nn.Module):
    """Network of two layers that returns its loss."""

    def __init__(self):
        super().__init__()
        self.layers = loops.new_run(None, OPTIMIZERS["sgd"]).networks[0]

    def forward(self, inputs, targets):
        return nn.functional.mse_loss(self.layers(inputs), targets)


def batch(step, letter="F"):
    """Return inputs and targets; infinite targets cause an overflow."""
    inputs, targets = loops.batch_of(step)
    return inputs, targets * (INF if letter == "O" else 1)


def new_model_and_optimizer(make=OPTIMIZERS["sgd"], dtype=torch.float32):
    """Return a model and its optimizer, with the same initial values in every call."""
    model = Model().to(dtype)
    return model, make(list(model.parameters()))


def dynamic_scale():
    return DynamicLossScaleUpdateCell(2**10, 2, 2)


def by_hand(model, optimizer, *inputs):
    """Run a step without scaling, as in torch's documentation, and return the loss."""
    optimizer.zero_grad()
    loss = model(*inputs)
    loss.backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.clause("STEP-order", "STEP-apply", "STEP-skip", "STEP-loss-unscaled", "TORCH-fused-momentum")
@pytest.mark.clause("MINDSPORE-cell-overflow", "MINDFORMERS-overflow")
@pytest.mark.parametrize(
    ("cell", "dtype", "name"),
    [
        *((TrainOneStepWithLossScaleCell, torch.float32, name) for name in OPTIMIZERS),
        *((MFTrainOneStepCell, torch.bfloat16, name) for name in ("sgd", "momentum-fused")),
    ],
)
def test_a_run_equals_a_hand_written_loop(cell, dtype, name):
    """Finite steps equal steps without scaling; an overflow changes nothing. No gradient is left on a parameter."""
    model, optimizer = new_model_and_optimizer(OPTIMIZERS[name], dtype)
    twin, twin_optimizer = new_model_and_optimizer(OPTIMIZERS[name], dtype)
    step = cell(model, optimizer, scale_sense=dynamic_scale())
    for number, letter in enumerate(TRACE):
        inputs = [value.to(dtype) for value in batch(number, letter)]
        output = step(*inputs)
        assert bool(output.overflow) == (letter == "O")
        if letter == "F":
            assert bits(output.loss) == bits(by_hand(twin, twin_optimizer, *inputs))
        assert bits(model.state_dict()) == bits(twin.state_dict())
        if "F" in TRACE[: number + 1]:  # before that, a fused optimizer has moments of zero
            assert bits(optimizer.state_dict()) == bits(twin_optimizer.state_dict())
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
def test_a_step_synchronizes_once_and_a_fused_optimizer_never(cell, name):
    """The optimizer's own synchronizations are subtracted. Fused momentum synchronizes until its first step."""
    model, optimizer = new_model_and_optimizer(OPTIMIZERS[name])
    step = cell(model, optimizer, scale_sense=dynamic_scale())
    step(*batch(0))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with load("torch").count_reads() as own_reads:
        optimizer.step()
    for letter in "FOF":
        with load("torch").count_reads() as reads:
            step(*batch(1, letter))
        expected = 1 + (len(own_reads) if letter == "F" else 0)
        assert len(reads) == (0 if name.endswith("fused") else expected)


class Product(nn.Module):
    """Network whose loss is the sum of weights times inputs, so the gradients equal the inputs."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2, dtype=dtype))
        self.b = nn.Parameter(torch.ones(1, dtype=dtype))

    def forward(self, w, b):
        return (self.w.float() * torch.tensor(w)).sum() + (self.b.float() * torch.tensor(b)).sum()


class Words(nn.Embedding):
    """Network whose loss is the sum of embedding rows, each times a factor."""

    def forward(self, words, factor):
        return (super().forward(words) * factor).sum()


def cell_of(model, optimizer, scale=2.0**4, cell=MFTrainOneStepCell):
    return cell(model, optimizer, scale_sense=torch.tensor(scale))


def parameter_bits(model):
    return bits(list(model.parameters()))


@pytest.mark.clause("MINDFORMERS-learning-rate")
@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)], ids=["number", "tensor"])
def test_the_reported_rate_is_that_of_the_step(rate):
    """The reported rate is a copy: a later step of the schedule does not change it."""
    model = Product()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = cell_of(model, optimizer)
    outputs = []
    for value in (1.0, INF, 1.0):
        outputs.append(step([value, 0.0], [0.0]))
        if not outputs[-1].overflow:
            schedule.step()
    assert [output.learning_rate.tolist() for output in outputs] == [0.5, 0.25, 0.25]
    assert model.w.tolist() == [0.25, 1.0]


@pytest.mark.clause("MINDFORMERS-learning-rate")
@pytest.mark.parametrize(
    ("rates", "reported"),
    [
        ((0.5, 0.5), 0.5),
        ((0.5, 0.25), [0.5, 0.25]),
        ((0.5, torch.tensor(0.5)), [0.5, 0.5]),
        ((torch.tensor([0.5]), 0.25), [0.5, 0.25]),
    ],
    ids=["same", "different", "unknown", "mixed"],
)
def test_equal_rates_of_all_groups_are_reported_as_one(rates, reported):
    """If rates differ, the report contains one rate for each group. The values of tensors are not compared."""
    model = Product()
    groups = [{"params": [parameter], "lr": rate} for parameter, rate in zip(model.parameters(), rates, strict=True)]
    output = cell_of(model, torch.optim.SGD(groups, foreach=False))([1.0, 0.0], [1.0])
    assert output.learning_rate.dtype == torch.float32
    assert output.learning_rate.tolist() == reported
    assert (model.w.tolist(), model.b.tolist()) == ([0.5, 1.0], [1 - float(rates[1])])


@pytest.mark.clause("STEP-apply", "STEP-skip", "OVERFLOW-status-register")
@pytest.mark.parametrize(
    ("cell", "detector"), [(TrainOneStepWithLossScaleCell, GradientScan), (MFTrainOneStepCell, StatusRegister)]
)
def test_sparse_gradients_of_an_embedding_are_applied(cell, detector):
    """The result equals torch's SparseAdam. Two finite values of one row whose sum is infinite are an overflow."""
    model, twin = (Words.from_pretrained(torch.ones(6, 2), freeze=False, sparse=True) for _ in range(2))
    optimizer, twin_optimizer = (torch.optim.SparseAdam(list(module.parameters()), lr=0.1) for module in (model, twin))
    step = cell(model, optimizer, scale_sense=torch.tensor(2.0**4), detector=detector())
    for words, factor, overflow in (([1, 4, 1], 0.5, False), ([2, 2], 1.5e37, True), ([2, 3], 1.5e37, False), ([1], 2.0, False)):
        output = step(torch.tensor(words), factor)
        assert bool(output.overflow) == overflow
        if not overflow:
            twin_optimizer.zero_grad()
            twin(torch.tensor(words), factor).backward()
            twin_optimizer.step()
        assert bits([model.state_dict(), optimizer.state_dict()]) == bits([twin.state_dict(), twin_optimizer.state_dict()])


@pytest.mark.clause("OVERFLOW-both-sides", "STEP-skip")
@pytest.mark.parametrize("cell", [TrainOneStepWithLossScaleCell, MFTrainOneStepCell])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("agrees", [False, True])
def test_a_gradient_that_overflows_float16_is_not_applied(cell, fused, agrees):
    """
    With a scale below 1, float16 represents the scaled gradient 60000 but not the unscaled gradient 120000.

    The cell of MindFormers checks it in float32, and reports an overflow only if ranks must agree.
    """
    ranks = SimpleNamespace(mean=lambda tree: tree, agree=SINGLE_REPLICA.agree, check_same=SINGLE_REPLICA.check_same)
    model = Product(torch.float16)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-14, fused=fused)
    step = cell(model, optimizer, scale_sense=torch.tensor(0.5), communicator=ranks if agrees else SINGLE_REPLICA)
    for w, change in ((120000.0, 0.0), (60000.0, 60000 * 2.0**-14)):
        old_weight = model.w[0].item()
        overflow = step([w, 0.0], [0.0]).overflow
        assert bool(overflow) == (not change and (agrees or cell is TrainOneStepWithLossScaleCell))
        assert old_weight - model.w[0].item() == pytest.approx(change, abs=2**-8)


@pytest.mark.clause("STEP-network", "MINDFORMERS-ema")
@pytest.mark.filterwarnings("error")
def test_torch_optimizers_update_a_network_of_parameters():
    """The tensors that were passed in are updated, and keep no gradients. Outputs and the moving average are detached."""
    params = {"w": nn.Parameter(torch.ones(2)), "b": torch.ones(1, requires_grad=True), "c": torch.ones(1)}
    network = Network(lambda params, x: (params["w"] * x).sum() + params["b"].sum() + params["c"].sum(), params)
    step = MFTrainOneStepCell(network, torch.optim.SGD(params.values(), lr=0.5), scale_sense=8.0, ema_decay=0.5)
    output = [step(torch.tensor([1.0, -2.0])) for _ in range(2)][-1]
    assert [params[name].tolist() for name in "wbc"] == [[0.0, 3.0], [0.0], [0.0]]
    assert network.params is params
    assert step.ema_params["w"].tolist() == [0.375, 2.25]
    assert not any(value.requires_grad for value in (*output[:4], *step.ema_params.values()))
    assert [params[name].grad for name in "wbc"] == [None] * 3


def test_ampscale_optimizers_reject_parameters_that_require_gradients():
    """The optimizers of ampscale create new arrays: the parameter would not change, and autograd would record every step."""
    for params in ([nn.Parameter(torch.ones(2))], {"w": torch.ones(2, requires_grad=True)}):
        with rejects(ValueError, "params", "detach"):
            optimizers.AdamW(Network(lambda params: params[0].sum(), params))


def test_an_optimizer_with_parameters_of_another_network_is_rejected():
    """Such a parameter would never have a gradient. A frozen one of the network is allowed, and can be unfrozen later."""
    model, other = Product(), Product()
    model.b.requires_grad_(False)
    with rejects(ValueError, "optimizer", "got 2 that do not belong to it"):
        cell_of(model, torch.optim.SGD([*model.parameters(), *other.parameters()]))
    with rejects(ValueError, "optimizer", "got 1 that do not belong to it"):
        cell_of(Network(lambda w: w.sum(), model.w), torch.optim.SGD(model.parameters()))

    step = cell_of(model, torch.optim.SGD(model.parameters(), lr=0.5))
    step([1.0, 1.0], [1.0])
    assert model.b.tolist() == [1.0]
    model.b.requires_grad_(True)
    step([1.0, 1.0], [1.0])
    assert (model.w.tolist(), model.b.tolist()) == ([0.0, 0.0], [0.5])


@pytest.mark.parametrize("make", [torch.optim.LBFGS, torch.optim.SparseAdam])
def test_no_gradient_is_left_after_an_optimizer_raised(make):
    """LBFGS raises an error without a closure, and SparseAdam for dense gradients. The parameters are unchanged."""
    model = Product()
    old_bits = parameter_bits(model)
    with pytest.raises((TypeError, RuntimeError)):
        cell_of(model, make(list(model.parameters())))([1.0, 1.0], [1.0])
    assert parameter_bits(model) == old_bits
    assert [parameter.grad for parameter in model.parameters()] == [None, None]


@pytest.mark.parametrize("fused", [False, True])
def test_process_loss_scale_may_return_a_python_bool(fused):
    """A gradient that a parameter had before is replaced, not accumulated."""

    class Subclass(MFTrainOneStepCell):
        skip = True

        def process_loss_scale(self, overflow):
            return self.skip

    model = Product()
    step = cell_of(model, torch.optim.SGD(model.parameters(), lr=0.5, fused=fused), cell=Subclass)
    for skip, w in ((True, 1.0), (False, 0.5)):
        model.w.grad = torch.full((2,), 100.0)
        step.skip = skip
        step([1.0, 1.0], [1.0])
        assert model.w.tolist() == [w, w]


@pytest.mark.clause("STEP-no-gradients", "MINDFORMERS-global-norm")
@pytest.mark.parametrize("fused", [False, True])
def test_a_loss_without_parameters_changes_nothing(fused):
    """The step is finite, and its norm is 0. The outputs are torch tensors, as in any step."""
    model = Product()
    model.forward = lambda: torch.ones(())
    old_bits = parameter_bits(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    step = MFTrainOneStepCell(model, optimizer, use_clip_grad=True, scale_sense=dynamic_scale(), local_norm=True)
    output = step()
    assert all(isinstance(value, torch.Tensor) for value in output)
    assert (bool(output.overflow), float(output.global_norm), output.size.tolist()) == (False, 0.0, [])
    assert parameter_bits(model) == old_bits
