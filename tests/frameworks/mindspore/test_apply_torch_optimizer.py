"""The step cells with torch's modules and optimizers: a loop written by hand, bit for bit, without its bad steps."""

from itertools import pairwise

import pytest
from libraries import load

from ampscale import DynamicLossScaleUpdateCell, MFTrainOneStepCell, TrainOneStepWithLossScaleCell, optimizers
from ampscale.backends import network_of

torch = pytest.importorskip("torch", reason="needs torch")
loops = pytest.importorskip("frameworks.torch.loops")

nn, OPTIMIZERS, bits = torch.nn, loops.OPTIMIZERS, loops.bits

CELLS = pytest.mark.parametrize("cell", [TrainOneStepWithLossScaleCell, MFTrainOneStepCell])
TORCHS = OPTIMIZERS | {
    "groups": lambda params: torch.optim.Adam([{"params": params[::2], "lr": 0.01}, {"params": params[1::2]}], lr=0.002),
}
TRACE = "OFFOFFOOFF"  # overflow, finite, finite


class Model(nn.Module):
    """Two layers that return their loss."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)

    def forward(self, inputs, targets):
        """The mean square error: shape ()."""
        return nn.functional.mse_loss(self.layers(inputs), targets)


def batch(step, letter="F"):
    """Four inputs and targets; infinite targets make an overflow."""
    generator = torch.Generator().manual_seed(step)
    inputs, targets = torch.randn(4, 3, generator=generator), torch.randn(4, 2, generator=generator)
    return inputs, targets * (float("inf") if letter == "O" else 1)


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


def stands(model, optimizer):
    """Parameters and the state of the optimizer, bit for bit."""
    return bits([dict(model.state_dict()), optimizer.state_dict()])


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


@pytest.mark.clause(
    "MINDFORMERS-clip", "MINDFORMERS-accumulation", "MINDFORMERS-ema", "MINDFORMERS-global-norm", "MINDFORMERS-local-norm"
)
@pytest.mark.parametrize("name", ["momentum", "adamw-fused"])
def test_mindformers_cell_with_everything_is_a_loop_by_hand(name):
    """Two micro-batches a step, clipped together, and an average of the parameters; an overflow in either skips both."""
    model, optimizer = started(TORCHS[name])
    twin, by_twin = started(TORCHS[name])
    step = MFTrainOneStepCell(model, optimizer, True, 0.5, moving(), True, gradient_accumulation_steps=2, ema_decay=0.75)
    average = {name: value.clone() for name, value in twin.state_dict().items()}
    for number, letters in enumerate(["FF", "OF", "FF", "FO", "FF"]):
        micro = [batch(2 * number + part, letter) for part, letter in enumerate(letters)]
        output = [step(*inputs) for inputs in micro][-1]
        assert bool(output.overflow) == (letters != "FF")
        if letters == "FF":
            norm, norms = clipped_by_hand(twin, micro, 0.5)
            by_twin.step()
            average = {name: 0.75 * average[name] + 0.25 * value for name, value in twin.state_dict().items()}
            assert bits([output.global_norm, output.local_norm]) == bits([norm, norms])
        assert output.size.tolist() == [15, 5, 10, 2]
        assert stands(model, optimizer) == stands(twin, by_twin)
        assert bits(step.ema_params) == bits(average)
        assert not any(value.requires_grad for value in step.ema_params.values())


def clipped_by_hand(model, micro, max_norm):
    """The mean gradients of some batches, clipped in place by MindFormers' coefficient; their norm, and each one's."""
    model.zero_grad()
    for inputs in micro:
        (model(*inputs) / len(micro)).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    squares = [(gradient**2).sum(dtype=torch.float64).to(torch.float32) for gradient in gradients]
    norm = sum(squares[1:], squares[0]).double().sqrt().float()
    for gradient in gradients:
        gradient *= max_norm / (norm.clamp(min=max_norm) + 1e-6)
    return norm, torch.stack(squares).double().sqrt().float()


@pytest.mark.clause("STEP-two-modes", "BACKENDS-host-reads-one", "BACKENDS-host-reads-none")
@pytest.mark.parametrize(
    ("cell", "name"),
    [
        *((TrainOneStepWithLossScaleCell, name) for name in TORCHS),
        (MFTrainOneStepCell, "sgd"),
        (MFTrainOneStepCell, "adamw-fused"),
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


@pytest.mark.clause("STEP-two-modes", "BACKENDS-host-reads-none")
@pytest.mark.parametrize("functional", [optimizers.AdamW, lambda _: Descent()], ids=["adamw", "optax"])
@CELLS
def test_a_functional_optimizer_moves_a_module_and_reads_nothing(cell, functional):
    """The new values are written into the module, which stays as it is on an overflow."""
    model = Model()
    optimizer = functional(model)
    step = cell(model, optimizer, scale_sense=moving())
    with load("torch").count_reads() as reads:
        before = [[parameter.detach().clone() for parameter in model.parameters()]]
        for number, letter in enumerate("FOF"):
            step(*batch(number, letter))
            before.append([parameter.detach().clone() for parameter in model.parameters()])
    assert reads == []
    moved = [bits(new) != bits(old) for old, new in pairwise(before)]
    assert moved == [True, False, True]
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in model.parameters())


class Descent:
    """A transformation in optax's shape."""

    def init(self, params):
        """Counts the steps."""
        return {"count": torch.zeros((), dtype=torch.int32)}

    def update(self, gradients, state, params):
        """A tenth of the gradients."""
        return {name: gradient * -0.1 for name, gradient in gradients.items()}, {"count": state["count"] + 1}


@pytest.mark.clause("STEP-resume")
@pytest.mark.parametrize("name", ["adamw-fused", "groups"])
def test_a_run_resumes_from_what_was_saved(name):
    """Cell, module and optimizer are saved in the midst of a step of two micro-batches, and go on as if nothing had been."""

    def made():
        model, optimizer = started(TORCHS[name])
        options = {"gradient_accumulation_steps": 2, "ema_decay": 0.5}
        return model, optimizer, MFTrainOneStepCell(model, optimizer, True, 1.0, moving(), **options)

    model, optimizer, step = made()
    outputs = [step(*batch(number, letter)) for number, letter in enumerate("FFOFFFFFF")]
    resumed_model, resumed_optimizer, resumed = made()
    model_again, optimizer_again, again = made()
    first = [again(*batch(number, letter)) for number, letter in enumerate("FFOFF")]
    resumed.load_state_dict(again.state_dict())
    resumed_model.load_state_dict(model_again.state_dict())
    resumed_optimizer.load_state_dict(optimizer_again.state_dict())
    rest = [resumed(*batch(number)) for number in range(5, 9)]
    assert bits(first + rest) == bits(outputs)
    assert stands(resumed_model, resumed_optimizer) == stands(model, optimizer)
    assert bits(resumed.ema_params) == bits(step.ema_params)
    assert network_of(resumed.network) is resumed.network
