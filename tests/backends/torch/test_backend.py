"""torch backend: differentiation, and modules as networks."""

import pytest
from libraries import load
from strategies import alike

import ampscale
from ampscale.backends import get_backend, network_of
from ampscale.core.trees import leaves, map_leaves

torch = pytest.importorskip("torch", reason="needs torch")
from torch.nn.utils._named_member_accessor import NamedMemberAccessor  # noqa: E402

nn = torch.nn

LIBRARY = load("torch")
equal = LIBRARY.same
RULE = ampscale.LossScaleRule(init_scale=2.0**10)


class Loss(nn.Module):
    """Mean square error of the outputs of a module."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs, targets):
        return torch.nn.functional.mse_loss(self.inner(inputs), targets)


class Tied(nn.Module):
    """Module with one weight under two names."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.second(torch.tanh(self.first(inputs)))


def module_of(inner, seed=0):
    """Return a module that computes its loss, with random weights from *seed*."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in inner.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return Loss(inner)


def batch(outputs=2, seed=1):
    """Return four inputs of three values, and their targets."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 3, generator=generator), torch.randn(4, outputs, generator=generator)


def copied(tree):
    return map_leaves(lambda leaf: leaf.detach().clone(), tree)


def step_and_state(module, make=ampscale.optimizers.SGD):
    """Return the training step of a module, and the initial state."""
    network = network_of(module)
    optimizer = make(network, 0.1, weight_decay=0.01)
    state = ampscale.init_train_state(network.params, optimizer, RULE)
    return lambda state, *inputs: ampscale.train_step(module, optimizer, RULE, state, *inputs), state


@pytest.mark.clause("OVERFLOW-all-finite", "NORMS-global", "BACKENDS-arrays-decide")
@pytest.mark.usefixtures("each_kernel")
def test_results_are_on_the_device_of_the_arrays():
    """The default device may be another one. "meta" stands for an accelerator."""
    sparse = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    trees = [[torch.ones(3), torch.ones(5000)], [torch.ones(3).half(), torch.ones(6, dtype=torch.float64)[::2]], [sparse]]
    in_place = [ampscale.unscale_and_check, ampscale.unscale_check_and_norm, ampscale.unscale_check_and_measure]
    calls = [lambda tree, function=function: function(tree, torch.tensor(4.0, device="cpu"), out=tree) for function in in_place]
    calls += [lambda tree, function=function: function(tree, 3.0) for function in (ampscale.scale, *in_place)]
    calls += [ampscale.all_finite, ampscale.global_norm, ampscale.local_norms, ampscale.measure, ampscale.exponent_histogram]
    calls += [lambda tree: ampscale.clip_by_global_norm(tree, 1.0, out=tree)]
    for tree in trees:
        for call in calls:
            expected = call(copied(tree))
            with torch.device("meta"):
                actual = call(copied(tree))
            for result, expected_result in zip(leaves(actual), leaves(expected), strict=True):
                assert result.device.type == "cpu"
                assert torch.equal(result.to_dense(), expected_result.to_dense())


@pytest.mark.clause("STEP-network")
def test_a_module_is_not_differentiated_in_inference_mode():
    """All gradients would be missing, and each step would change nothing."""
    module = module_of(nn.Linear(3, 2))
    step, state = step_and_state(module)
    with torch.inference_mode(), pytest.raises(RuntimeError, match=r"outside of torch.inference_mode\(\)"):
        step(state, *batch())


@pytest.mark.clause("MINDFORMERS-outputs")
def test_a_step_is_on_the_device_of_the_parameters():
    """The default device may be another one. The optimizer is torch's."""
    module, inputs = module_of(nn.Linear(3, 2)), batch()
    optimizer = torch.optim.Adam(module.parameters())
    update_cell = ampscale.DynamicLossScaleUpdateCell(8, 2, 2)
    cell = ampscale.MFTrainOneStepCell(module, optimizer, use_clip_grad=True, scale_sense=update_cell, local_norm=True)
    with torch.device("meta"):
        outputs = cell(*inputs)
    assert {output.device.type for output in outputs if isinstance(output, torch.Tensor)} == {"cpu"}


# Networks of a function and parameters.


@pytest.mark.clause("STEP-vjp")
def test_gradients_equal_those_of_torch_autograd():
    """Gradients have the structure and dtypes of the parameters, and are zero if the loss does not depend on a parameter."""

    def loss_fn(params, inputs, targets):
        hidden = inputs @ params["w"] + params["b"][0] * params["b"][1].float().sum()
        return (params["factor"] * (hidden - targets) ** 2).sum()

    params = {
        "w": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),
        "b": [torch.tensor([0.5, -1.5]), torch.tensor([0.25, 3.0], dtype=torch.bfloat16)],
        "factor": torch.tensor(1.7, dtype=torch.float64),
        "unused": torch.ones(2, dtype=torch.float16),
    }
    copy, inputs = copied(params), batch()
    loss, pullback = ampscale.Network(loss_fn, params).vjp(params, *inputs)
    gradients = pullback(torch.tensor(8.0))

    tracked = map_leaves(lambda leaf: leaf.clone().requires_grad_(), params)
    expected_loss = loss_fn(tracked, *inputs)
    expected = torch.autograd.grad(expected_loss * 8.0, leaves(tracked), materialize_grads=True, allow_unused=True)
    assert equal([loss], [expected_loss.detach()])
    assert equal(gradients, list(expected))
    assert list(gradients) == list(params)
    assert not gradients["unused"].any()
    assert equal(params, copy)


@pytest.mark.clause("STEP-seed")
def test_seeds_are_rounded_to_the_dtype_of_the_loss():
    """In float16, 2**11 + 1 is rounded to 2**11, and 65520 is infinite, so a step with a scale of 65520 overflows."""
    params, inputs = torch.ones(2), torch.tensor([1.0, -2.0])
    network = ampscale.Network(lambda w, x: (w * x).sum().to(torch.float16), params)
    gradients = [network.vjp(params, inputs)[1](torch.tensor(seed)).tolist() for seed in (2049.0, 65519.0, 65520.0)]
    assert gradients == [[2048, -4096], [65504, -131008], [float("inf"), float("-inf")]]


def test_params_of_a_module_must_be_a_dict():
    """The error shows how to create it."""
    module = nn.Linear(1, 1)
    sgd, rule = ampscale.optimizers.SGD(module, 0.5), ampscale.LossScaleRule()
    state = ampscale.init_train_state([param.detach() for param in module.parameters()], sgd, rule)
    with pytest.raises(TypeError, match=r"^params must be a dict for a module, {name: value.detach\(\) .*, got list$"):
        ampscale.train_step(module, sgd, rule, state, torch.ones(1))


def test_norms_of_tensors_that_require_gradients_do_not_warn():
    """By default, torch warns only once in each process."""
    gradient = torch.tensor([3.0, 4.0], requires_grad=True)
    torch.set_warn_always(True)
    try:
        norms = [ampscale.clip_by_global_norm(gradient, 5.0)[1], ampscale.local_norms(gradient)[0]]
    finally:
        torch.set_warn_always(False)
    assert [float(norm.detach()) for norm in norms] == [5.0, 5.0]


@pytest.mark.clause("STEP-single-output")
def test_modules_that_do_not_return_one_array_raise():
    """Outputs are a number, a list and None."""
    for output in (1.0, [torch.ones(())], None):
        module = nn.Linear(1, 1)
        module.forward = lambda _, output=output: output
        network = network_of(module)
        with pytest.raises(TypeError, match="a network must return its loss as one array, got"):
            network.vjp(network.params, torch.ones(1))


def test_results_keep_no_reference_to_inputs():
    """Neither the loss nor the gradients belong to the autograd graph of the inputs."""
    inputs = [value.requires_grad_() for value in batch()]
    weights = torch.ones(3, 2)
    functional = ampscale.Network(lambda w, x, y: ((x @ w - y) ** 2).mean(), weights)
    for network in (functional, network_of(module_of(nn.Linear(3, 2)))):
        loss, pullback = network.vjp(network.params, *inputs)
        assert not any(leaf.requires_grad for leaf in leaves([loss, pullback(torch.ones(()))]))


# Modules as networks.


@pytest.mark.clause("STEP-network")
def test_params_are_the_trainable_values_of_a_module():
    """The values are not copied. Frozen parameters are omitted, and a weight with two names occurs once. A network is kept."""
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
def test_module_gradients_equal_those_of_backward(inner):
    """A weight with two names has one gradient, the sum over both uses."""
    module = module_of(inner())
    inputs = batch(outputs=module.inner(torch.ones(4, 3)).shape[1])
    network = network_of(module)
    loss, pullback = network.vjp(network.params, *inputs)
    gradients = pullback(torch.tensor(8.0))
    (module(*inputs) * 8).backward()
    assert equal(gradients, {name: parameter.grad for name, parameter in module.named_parameters()})
    assert equal([loss], [module(*inputs).detach()])


@pytest.mark.clause("STEP-vjp")
def test_unused_parameters_have_no_gradient():
    """The gradient is None, so an optimizer with momentum leaves the parameter unchanged."""
    module = module_of(nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)]))
    module.forward = lambda inputs, targets: nn.functional.mse_loss(module.inner[0](inputs), targets)
    network = network_of(module)
    gradients = network.vjp(network.params, *batch())[1](torch.ones(()))
    assert [name for name, gradient in gradients.items() if gradient is None] == ["inner.1.weight", "inner.1.bias"]


@pytest.mark.clause("STEP-no-gradients")
def test_steps_without_gradients_count_as_attempted():
    """The loss is constant, or the module is frozen. For a frozen module, the configured backend creates the state."""
    module = module_of(nn.Linear(3, 2))
    module.forward = lambda *_: torch.ones(())
    with ampscale.use_backend("torch"):
        for frozen in (False, True):
            step, state = step_and_state(module.requires_grad_(not frozen))
            state, report = step(state, *batch())
            assert int(report.status) == ampscale.StepStatus.NO_GRADIENTS
            assert (bool(report.finite), bool(report.applied)) == (True, False)
            assert (int(state.attempted), int(state.applied)) == (1, 0)


def test_steps_update_buffers_and_draw_random_numbers_like_module_calls():
    """Running means are updated in training mode only, and dropout uses the same random numbers."""
    module = module_of(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.Dropout(0.5)))
    twin = module_of(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.Dropout(0.5)))
    for train in (True, False):
        step, state = step_and_state(module.train(train))
        torch.manual_seed(3)
        _, report = step(state, *batch())
        torch.manual_seed(3)
        loss = twin.train(train)(*batch())
        assert equal([report.loss], [loss.detach()])
        assert equal(dict(module.named_buffers()), dict(twin.named_buffers()))
        assert int(module.inner[0].num_batches_tracked) == 1


@pytest.mark.clause("STEP-network")
def test_setting_params_writes_into_the_module():
    """The parameters stay the same objects. Other names or shapes raise an error before anything is written."""
    module = module_of(nn.Linear(3, 2))
    network, weight = network_of(module), module.inner.weight
    new_params = {name: torch.full_like(value, 7) for name, value in network.params.items()}
    network.params = new_params
    assert module.inner.weight is weight
    assert weight.requires_grad
    assert equal(network.params, new_params)
    with pytest.raises(ValueError, match="same structure"):
        network.params = {"inner.weight": torch.zeros(2, 3), "other": torch.zeros(2)}
    with pytest.raises(ValueError, match=r"params\['inner.bias'\] must have shape \(2,\), got \(\)"):
        network.params = {"inner.weight": torch.zeros(2, 3), "inner.bias": torch.zeros(())}
    assert equal(network.params, new_params)


@pytest.mark.clause("STEP-network")
def test_modules_keep_their_parameters_after_an_interrupt(monkeypatch):
    """The interrupt occurs while torch restores the parameters after the forward pass."""
    module = module_of(nn.Linear(3, 2))
    network, originals = network_of(module), dict(module.named_parameters())
    swap = NamedMemberAccessor.swap_tensors_dict
    calls = []

    def interrupted(self, *args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return swap(self, *args, **kwargs)

    monkeypatch.setattr(NamedMemberAccessor, "swap_tensors_dict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        network.vjp(network.params, *batch())
    assert all(parameter is originals[name] for name, parameter in module.named_parameters())


@pytest.mark.clause("STEP-apply", "MACHINE-pure")
@pytest.mark.parametrize("optimizer", [ampscale.optimizers.Momentum, ampscale.optimizers.AdamW])
def test_train_step_changes_neither_module_nor_state(optimizer):
    """The parameters, their `grad` and the old state are unchanged. No result requires gradients, so memory does not grow."""
    module = module_of(nn.Linear(3, 2)).to(torch.bfloat16)
    inputs = [value.to(torch.bfloat16) for value in batch()]
    original = copied(dict(module.named_parameters()))
    step, first = step_and_state(module, optimizer)
    first_copy = copied(first)
    second, report = step(first, *inputs)
    assert bool(report.applied)
    pairs = zip(leaves(second.params), leaves(original), strict=True)
    assert not any(alike(LIBRARY.get(new), LIBRARY.get(old)) for new, old in pairs)
    assert equal(dict(module.named_parameters()), original)
    assert equal(first, first_copy)
    assert [parameter.grad for parameter in module.parameters()] == [None, None]
    third, report = step(second, *inputs)
    assert not any(tensor.requires_grad for tensor in leaves([second, third, list(report)]))


@pytest.mark.clause("STEP-network")
def test_values_other_than_modules_are_not_networks():
    """Examples are a function, a tensor and a module class."""
    for value in (nn.Linear(3, 2).forward, torch.ones(1), nn.Linear):
        assert get_backend(torch.ones(1)).as_network(value) is None
        with pytest.raises(TypeError, match="network must be"):
            network_of(value)
