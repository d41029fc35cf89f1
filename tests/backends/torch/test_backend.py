"""torch's backend: its own differentiation, and modules as networks."""

import pytest
from libraries import load
from strategies import alike, same

import ampscale
from ampscale.backends import get_backend, network_of
from ampscale.core.trees import leaves, map_leaves

torch = pytest.importorskip("torch", reason="needs torch")
from torch.nn.utils._named_member_accessor import NamedMemberAccessor  # noqa: E402

nn = torch.nn

LIBRARY = load("torch")
RULE = ampscale.LossScaleRule(init_scale=2.0**10)


class Loss(nn.Module):
    """Any module, and the mean square of what it gives beside a target."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs, targets):
        """The loss: shape ()."""
        return torch.nn.functional.mse_loss(self.inner(inputs), targets)


class Tied(nn.Module):
    """One weight under two names."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        """Twice the same map."""
        return self.second(torch.tanh(self.first(inputs)))


def module_of(inner, seed=0):
    """A module that returns its loss, with weights that are always the same."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in inner.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return Loss(inner)


def batch(outputs=2, seed=1):
    """Four inputs of three values, and their targets."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 3, generator=generator), torch.randn(4, outputs, generator=generator)


def equal(left, right):
    """Whether two trees hold the same tensors, bit for bit."""
    return same(LIBRARY.to_numpy(left), LIBRARY.to_numpy(right))


def copied(tree):
    """A tree that nothing can change."""
    return map_leaves(lambda leaf: leaf.detach().clone(), tree)


def started(module, optimizer=ampscale.optimizers.SGD):
    """A functional step of a module, and the state to start from."""
    network = network_of(module)
    moved = optimizer(network, 0.1, weight_decay=0.01)
    state = ampscale.init_train_state(network.params, moved, RULE)
    return lambda state, *inputs: ampscale.train_step(module, moved, RULE, state, *inputs), state


# A network of a function and parameters.


@pytest.mark.clause("STEP-vjp")
def test_gradients_are_those_of_torchs_autograd():
    """In the structure and the dtypes of the parameters, from several inputs; zero where the loss does not depend on one."""

    def loss_fn(params, inputs, targets):
        hidden = inputs @ params["w"] + params["b"][0] * params["b"][1].float().sum()
        return (params["factor"] * (hidden - targets) ** 2).sum()

    params = {
        "w": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),
        "b": [torch.tensor([0.5, -1.5]), torch.tensor([0.25, 3.0], dtype=torch.bfloat16)],
        "factor": torch.tensor(1.7, dtype=torch.float64),
        "unused": torch.ones(2, dtype=torch.float16),
    }
    before, inputs = copied(params), batch()
    loss, pullback = ampscale.Network(loss_fn, params).vjp(params, *inputs)
    gradients = pullback(torch.tensor(8.0))

    tracked = map_leaves(lambda leaf: leaf.clone().requires_grad_(), params)
    wanted_loss = loss_fn(tracked, *inputs)
    wanted = torch.autograd.grad(wanted_loss * 8.0, leaves(tracked), materialize_grads=True, allow_unused=True)
    assert equal([loss], [wanted_loss.detach()])
    assert equal(gradients, list(wanted))
    assert list(gradients) == list(params)
    assert not gradients["unused"].any()
    assert equal(params, before)


@pytest.mark.clause("STEP-seed")
def test_a_seed_is_rounded_to_the_dtype_of_the_loss():
    """2**11 + 1 is even in float16, and 65520 infinite, so that a step from there on is an overflow."""
    params, inputs = torch.ones(2), torch.tensor([1.0, -2.0])
    network = ampscale.Network(lambda w, x: (w * x).sum().to(torch.float16), params)
    gradients = [network.vjp(params, inputs)[1](torch.tensor(seed)).tolist() for seed in (2049.0, 65519.0, 65520.0)]
    assert gradients == [[2048, -4096], [65504, -131008], [float("inf"), float("-inf")]]


@pytest.mark.clause("STEP-single-output")
def test_a_module_returns_one_array():
    """Anything else is refused, as it is of a function."""
    for output in (1.0, [torch.ones(())], None):
        module = nn.Linear(1, 1)
        module.forward = lambda _, output=output: output
        network = network_of(module)
        with pytest.raises(TypeError, match="a network must return one array, its loss, got"):
            network.vjp(network.params, torch.ones(1))


def test_inputs_that_require_gradients_are_not_held():
    """Neither the loss nor the gradients belong to a graph of the caller's."""
    inputs = [value.requires_grad_() for value in batch()]
    weights = torch.ones(3, 2)
    function = ampscale.Network(lambda w, x, y: ((x @ w - y) ** 2).mean(), weights)
    for network in (function, network_of(module_of(nn.Linear(3, 2)))):
        loss, pullback = network.vjp(network.params, *inputs)
        assert not any(leaf.requires_grad for leaf in leaves([loss, pullback(torch.ones(()))]))


# A module as a network.


@pytest.mark.clause("STEP-network")
def test_the_parameters_of_a_module_are_its_own_values_by_name():
    """Not copies: what moves them is seen; what is frozen is left out, and a weight with two names is there once."""
    module = module_of(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
    module.inner[0].bias.requires_grad_(False)
    network = network_of(module)
    assert list(network.params) == ["inner.0.weight", "inner.1.weight", "inner.1.bias"]
    assert not any(value.requires_grad for value in network.params.values())
    with torch.no_grad():
        module.inner[1].bias.add_(1)
    assert equal(network.params["inner.1.bias"], module.inner[1].bias)
    assert list(network_of(module_of(Tied())).params) == ["inner.first.weight"]
    assert network_of(network) is network


@pytest.mark.clause("STEP-vjp")
@pytest.mark.parametrize("inner", [lambda: nn.Linear(3, 2), Tied], ids=["linear", "tied"])
def test_a_modules_gradients_are_those_of_backward(inner):
    """A weight with two names has one, the sum."""
    module = module_of(inner())
    inputs = batch(outputs=module.inner(torch.ones(4, 3)).shape[1])
    network = network_of(module)
    loss, pullback = network.vjp(network.params, *inputs)
    gradients = pullback(torch.tensor(8.0))
    (module(*inputs) * 8).backward()
    assert equal(gradients, {name: parameter.grad for name, parameter in module.named_parameters()})
    assert equal([loss], [module(*inputs).detach()])


@pytest.mark.clause("STEP-vjp")
def test_a_parameter_that_the_loss_does_not_use_has_no_gradient():
    """None, so that an optimizer leaves it where it is, whatever its momentum."""
    module = module_of(nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)]))
    module.forward = lambda inputs, targets: nn.functional.mse_loss(module.inner[0](inputs), targets)
    network = network_of(module)
    gradients = network.vjp(network.params, *batch())[1](torch.ones(()))
    assert [name for name, gradient in gradients.items() if gradient is None] == ["inner.1.weight", "inner.1.bias"]


@pytest.mark.clause("STEP-no-gradients")
def test_a_step_without_any_gradient_is_counted_as_tried():
    """A loss that depends on nothing, or a module that is frozen; there the state lies where the chosen library puts it."""
    module = module_of(nn.Linear(3, 2))
    module.forward = lambda *_: torch.ones(())
    with ampscale.use_backend("torch"):
        for frozen in (False, True):
            step, state = started(module.requires_grad_(not frozen))
            state, report = step(state, *batch())
            assert int(report.status) == ampscale.StepStatus.NO_GRADIENTS
            assert (bool(report.finite), bool(report.applied)) == (True, False)
            assert (int(state.attempted), int(state.applied)) == (1, 0)


def test_buffers_and_random_numbers_are_the_modules_own():
    """Running means move with every call in training and never in evaluation, and dropout draws as in a call of the module."""
    module = module_of(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.Dropout(0.5)))
    twin = module_of(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.Dropout(0.5)))
    for training in (True, False):
        step, state = started(module.train(training))
        torch.manual_seed(3)
        _, report = step(state, *batch())
        torch.manual_seed(3)
        loss = twin.train(training)(*batch())
        assert equal([report.loss], [loss.detach()])
        assert equal(dict(module.named_buffers()), dict(twin.named_buffers()))
        assert int(module.inner[0].num_batches_tracked) == 1


@pytest.mark.clause("STEP-network")
def test_setting_the_parameters_writes_into_the_module():
    """The parameters stay the same objects; other names are refused before anything is written."""
    module = module_of(nn.Linear(3, 2))
    network, weight = network_of(module), module.inner.weight
    new = {name: torch.full_like(value, 7) for name, value in network.params.items()}
    network.params = new
    assert module.inner.weight is weight
    assert weight.requires_grad
    assert equal(network.params, new)
    with pytest.raises(ValueError, match="same structure"):
        network.params = {"inner.weight": torch.zeros(2, 3), "other": torch.zeros(2)}
    with pytest.raises(ValueError, match=r"must have an array of shape \(2,\) for this parameter, got \(\)"):
        network.params = {"inner.weight": torch.zeros(2, 3), "inner.bias": torch.zeros(())}
    assert equal(network.params, new)


@pytest.mark.clause("STEP-network")
def test_an_interrupt_leaves_a_module_its_parameters(monkeypatch):
    """While torch puts back the parameters that it exchanged for the forward pass."""
    module = module_of(nn.Linear(3, 2))
    network, before = network_of(module), dict(module.named_parameters())
    swap, calls = NamedMemberAccessor.swap_tensors_dict, []

    def interrupted(self, *args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return swap(self, *args, **kwargs)

    monkeypatch.setattr(NamedMemberAccessor, "swap_tensors_dict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        network.vjp(network.params, *batch())
    assert all(after is before[name] for name, after in module.named_parameters())


@pytest.mark.clause("STEP-apply", "MACHINE-pure")
@pytest.mark.parametrize("optimizer", [ampscale.optimizers.Momentum, ampscale.optimizers.AdamW])
def test_a_functional_step_moves_the_state_alone(optimizer):
    """
    The module's parameters and their `grad` stay, and so does the state that was handed in.

    Nothing in state or report requires gradients, so a run's memory does not grow: with weight decay and master weights.
    """
    module = module_of(nn.Linear(3, 2)).to(torch.bfloat16)
    inputs = [value.to(torch.bfloat16) for value in batch()]
    before, (step, first) = copied(dict(module.named_parameters())), started(module, optimizer)
    first_before = copied(first)
    second, report = step(first, *inputs)
    assert bool(report.applied)
    pairs = zip(leaves(second.params), leaves(before), strict=True)
    assert not any(alike(LIBRARY.get(new), LIBRARY.get(old)) for new, old in pairs)
    assert equal(dict(module.named_parameters()), before)
    assert equal(first, first_before)
    assert [parameter.grad for parameter in module.parameters()] == [None, None]
    third, report = step(second, *inputs)
    assert not any(tensor.requires_grad for tensor in leaves([second, third, list(report)]))


@pytest.mark.clause("STEP-network")
def test_what_is_no_module_is_no_network_of_torchs():
    """A function, a tensor and a module's class are refused."""
    for value in (nn.Linear(3, 2).forward, torch.ones(1), nn.Linear):
        assert get_backend(torch.ones(1)).as_network(value) is None
        with pytest.raises(TypeError, match="network must be"):
            network_of(value)
