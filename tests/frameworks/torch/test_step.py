"""`GradScaler.step`: arguments, results, host synchronizations, fused optimizers, and optimizers without gradients."""

from types import SimpleNamespace

import libraries
import pytest
import torch
from frameworks.rejections import check_rejected
from frameworks.torch import loops
from frameworks.torch.loops import INF, OPTIMIZERS, bits, scaler_at

from ampscale.frameworks.torch import GradScaler

ATTRIBUTES = ("grad_scale", "found_inf")  # attributes that torch sets on an optimizer that skips on the device


class RecordingOptimizer(torch.optim.SGD):
    """Optimizer that records its arguments and the `ATTRIBUTES`, and applies no gradient."""

    fails = False

    def __init__(self, params):
        super().__init__(params, lr=1.0)
        self.calls = []

    def step(self, *args, **kwargs):
        attributes = {name: value for name, value in vars(self).items() if name in ATTRIBUTES}
        self.calls.append(SimpleNamespace(args=args, kwargs=kwargs, attributes=attributes))
        if self.fails:
            raise OSError("no step today")
        return "what an optimizer returns"


class OnDeviceOptimizer(RecordingOptimizer):
    """Optimizer that skips a step by its attribute `found_inf`."""

    _step_supports_amp_scaling = True


class OlderContract(RecordingOptimizer):
    """Optimizer that takes the scaler as an argument, as fused optimizers once did."""

    _step_supports_amp_scaling = True

    def step(self, *args, grad_scaler=None, **kwargs):
        assert grad_scaler is None
        return super().step(*args, **kwargs)


def optimizer_with_values(*values, make=RecordingOptimizer):
    """Return an optimizer with the gradient [1, value] for each of *values*; None is a parameter without gradient."""
    return loops.optimizer_with(*(None if value is None else torch.tensor([1.0, value]) for value in values), make=make)


def gradients(optimizer):
    return [parameter.grad for parameter in loops.parameters_of(optimizer)]


@pytest.mark.clause("TORCH-step", "TORCH-step-returns", "TORCH-fused")
@pytest.mark.parametrize("make", [RecordingOptimizer, OlderContract])
@pytest.mark.parametrize(("gradient", "applied"), [(8.0, True), (INF, False)])
def test_arguments_reach_the_optimizer(gradient, applied, make):
    """
    `step` calls the optimizer for finite, unscaled gradients only, and returns True if it called the optimizer.

    An optimizer with the argument `grad_scaler` does not receive it, and is treated like any other.
    """
    optimizer = optimizer_with_values(gradient, make=make)
    assert scaler_at(8.0).step(optimizer, None, 3, rate=0.5) is applied
    expected_calls = [((None, 3), {"rate": 0.5}, {})] if applied else []
    assert [(call.args, call.kwargs, call.attributes) for call in optimizer.calls] == expected_calls
    assert gradients(optimizer)[0][0] == 0.125


@pytest.mark.clause("TORCH-interrupted")
def test_an_interrupted_step_leaves_no_attributes():
    """The attributes are removed even if the optimizer raises an error."""
    optimizer = optimizer_with_values(8.0, make=OnDeviceOptimizer)
    optimizer.fails = True
    with pytest.raises(OSError, match="no step today"):
        scaler_at(8.0).step(optimizer)
    assert not set(ATTRIBUTES) & set(vars(optimizer))


@pytest.mark.clause("TORCH-closure")
@pytest.mark.parametrize("make", [RecordingOptimizer, OnDeviceOptimizer])
def test_a_closure_raises_before_any_change(make):
    """The closure is a positional or a keyword argument."""
    optimizer, scaler = optimizer_with_values(8.0, make=make), scaler_at(8.0)
    for arguments, keywords in (([lambda: 0.0], {}), ([], {"closure": lambda: 0.0}), ([], {"closure": None})):
        with pytest.raises(RuntimeError, match="closure"):
            scaler.step(optimizer, *arguments, **keywords)
    assert (optimizer.calls, gradients(optimizer)[0][1]) == ([], 8.0)
    assert scaler.step(optimizer)


@pytest.mark.clause("TORCH-unscale", "TORCH-step", "TORCH-abandon")
@pytest.mark.parametrize("call", ["unscale_", "step", "abandon"])
def test_an_optimizer_must_have_parameter_groups(call):
    """A TypeError names the type of the value. Only `abandon` accepts None, for all optimizers."""
    values = [1, object(), torch.nn.Linear(1, 1), *([None] if call != "abandon" else [])]
    wrong = [("optimizer", value, TypeError) for value in values]
    check_rejected(lambda _, value: getattr(scaler_at(8.0), call)(value), wrong, got=lambda value: type(value).__name__)


@pytest.mark.clause("TORCH-host-sync", "TORCH-fused", "STEP-two-modes")
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("gradient", "unscale_first"), [(8.0, True), (INF, False)])
def test_a_step_synchronizes_once_and_a_fused_optimizer_never(name, gradient, unscale_first):
    """Calls other than `step` never synchronize. The optimizer's own synchronizations are subtracted."""
    optimizer = optimizer_with_values(8.0, 8.0, make=OPTIMIZERS[name])
    with libraries.load("torch").count_reads() as own_reads:
        optimizer.step()
    for parameter, value in zip(optimizer.param_groups[0]["params"], (8.0, gradient), strict=True):
        parameter.grad = torch.tensor([1.0, value])
    scaler = GradScaler(init_scale=8.0, growth_interval=1)
    with libraries.load("torch").count_reads() as before_step:
        scaler.scale(torch.ones(()))
        if unscale_first:
            scaler.unscale_(optimizer)
    with libraries.load("torch").count_reads() as in_step:
        applied = scaler.step(optimizer)
    with libraries.load("torch").count_reads() as in_update:
        scaler.update()
    fused = isinstance(applied, torch.Tensor)
    assert fused == name.endswith("-fused")
    assert (before_step, in_update) == ([], [])
    optimizer_reads = len(own_reads) if applied else 0
    assert len(in_step) - optimizer_reads == (0 if fused else 1)
    assert scaler.get_scale() == (16.0 if applied else 4.0)


@pytest.mark.clause("TORCH-fused", "TORCH-step-returns")
@pytest.mark.parametrize(("gradient", "found_inf"), [(8.0, 0.0), (INF, 1.0)])
@pytest.mark.parametrize("unscale_first", [True, False])
def test_an_optimizer_that_skips_on_the_device_has_two_attributes(gradient, found_inf, unscale_first):
    """The optimizer is always called, with unscaled gradients; the attributes are removed afterwards."""
    optimizer = optimizer_with_values(gradient, make=OnDeviceOptimizer)
    scaler = scaler_at(8.0)
    if unscale_first:
        scaler.unscale_(optimizer)
    applied = scaler.step(optimizer, None, rate=0.5)
    (call,) = optimizer.calls
    assert (call.args, call.kwargs, call.attributes["grad_scale"]) == ((None,), {"rate": 0.5}, None)
    assert bits(call.attributes["found_inf"]) == bits(torch.tensor(found_inf))
    assert bits(applied) == bits(torch.tensor(found_inf == 0))
    assert bits(gradients(optimizer)) == bits([torch.tensor([0.125, gradient / 8])])
    assert not set(ATTRIBUTES) & set(vars(optimizer))


@pytest.mark.clause("TORCH-fused")
@pytest.mark.parametrize("gradient", [8.0, INF])
@pytest.mark.parametrize(("unscale_first", "grad_scale"), [(True, 4.0), (False, torch.tensor(4.0))])
def test_grad_scale_of_the_caller_applies_to_this_step(grad_scale, unscale_first, gradient):
    """The results equal torch's. The attribute may be a number, too."""

    def stepped_parameters(scaler, grad_scale):
        optimizer = optimizer_with_values(gradient, make=OPTIMIZERS["momentum-fused"])
        scaler.scale(torch.ones(()))
        if unscale_first:
            scaler.unscale_(optimizer)
        optimizer.grad_scale = grad_scale
        scaler.step(optimizer)
        assert not hasattr(optimizer, "grad_scale")
        return bits(optimizer.param_groups[0]["params"])

    theirs = torch.amp.GradScaler("cpu", init_scale=8.0)
    assert stepped_parameters(GradScaler(init_scale=8.0), grad_scale) == stepped_parameters(theirs, torch.tensor(4.0))


@pytest.mark.clause("TORCH-no-gradients")
@pytest.mark.parametrize(("make", "unscale_first"), [(RecordingOptimizer, True), (OnDeviceOptimizer, False)])
def test_an_optimizer_without_gradients_is_not_called_and_does_not_count(make, unscale_first):
    """`step` returns False, and raises an error until `update` is called, which leaves scale and count unchanged."""
    optimizer = optimizer_with_values(None, None, make=make)
    scaler = scaler_at(8.0, growth_interval=2)
    scaler.load_state_dict({**scaler.state_dict(), "_growth_tracker": 1})
    old_state = scaler.state_dict()
    if unscale_first:
        scaler.unscale_(optimizer)
    assert scaler.step(optimizer) is False
    with pytest.raises(RuntimeError, match="step"):
        scaler.step(optimizer)
    scaler.update()
    assert (optimizer.calls, scaler.state_dict()) == ([], old_state)
    assert scaler.step(optimizer) is False


@pytest.mark.clause("TORCH-no-gradients", "TORCH-several-optimizers")
@pytest.mark.parametrize(("gradient", "scale"), [(8.0, 16.0), (INF, 4.0)])
def test_other_optimizers_count_besides_one_without_gradients(gradient, scale):
    """The scale changes as if the optimizer without gradients did not exist."""
    scaler = scaler_at(8.0)
    for optimizer in (optimizer_with_values(None), optimizer_with_values(gradient, None)):
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == scale


@pytest.mark.clause("TORCH-no-gradients")
def test_gradients_computed_after_unscale_are_unscaled_by_the_step():
    """The optimizer had no gradients when `unscale_` was called."""
    optimizer, scaler = optimizer_with_values(None), scaler_at(8.0)
    scaler.unscale_(optimizer)
    optimizer.param_groups[0]["params"][0].grad = torch.tensor([8.0, 16.0])
    assert scaler.step(optimizer) is True
    assert bits(gradients(optimizer)) == bits([torch.tensor([1.0, 2.0])])
