"""Known failures of `torch.amp.GradScaler` that ampscale's class does not have. Each test runs both classes."""

import pytest
import torch
from frameworks.torch.loops import INF, ours, theirs

from ampscale.frameworks.torch import GradScaler


def one_step(scaler, gradient, make=torch.optim.SGD):
    """Return the parameter, which was 1, after a step with this scaled gradient, and the scale after the update."""
    parameter = torch.ones(1, requires_grad=True)
    scaler.scale(parameter)
    parameter.grad = torch.tensor([gradient])
    scaler.step(make([parameter]))
    scaler.update()
    return parameter.item(), scaler.get_scale()


def fused(params):
    return torch.optim.SGD(params, lr=1.0, fused=True)


@pytest.mark.clause("TORCH-unscale", "OVERFLOW-both-sides")
@pytest.mark.parametrize("make", [torch.optim.SGD, fused])
@pytest.mark.parametrize(("scale", "gradient"), [(0.25, 3e38), (2.0**-126, 8.0)])
def test_torch_applies_infinities_of_a_small_scale(scale, gradient, make):
    """Torch checks the scaled gradient only. ampscale skips the step and backs off."""
    assert one_step(theirs(init_scale=scale), gradient, make) == (-INF, scale)
    assert one_step(ours(init_scale=scale), gradient, make) == (1.0, max(scale / 2, 2.0**-126))


@pytest.mark.clause("TORCH-fused-momentum")
def test_torch_leaves_fused_momentum_uninitialized():
    """If the first step is skipped, torch creates momentum without writing it. ampscale creates none."""

    def momentum_after_an_overflow(scaler):
        parameter = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], lr=1.0, momentum=0.5, fused=True)
        scaler.scale(parameter)
        parameter.grad = torch.tensor([INF])
        result = scaler.step(optimizer)
        scaler.update()
        return result, optimizer.state[parameter].get("momentum_buffer")

    assert momentum_after_an_overflow(theirs())[1] is not None
    assert momentum_after_an_overflow(ours()) == (False, None)


@pytest.mark.clause("TORCH-min-scale")
def test_the_scale_of_torch_falls_to_zero():
    """Torch's scale stays 0 indefinitely. ampscale's stops at the smallest normal number, and grows again."""

    def scales(scaler, *gradients):
        return [one_step(scaler, gradient)[1] for gradient in gradients]

    start = {"init_scale": 2.0**-125, "growth_interval": 1}
    assert scales(theirs(**start), *[INF] * 25, 1e-40)[-2:] == [0.0, 0.0]
    assert scales(ours(**start), *[INF] * 25, 1e-40)[-2:] == [2.0**-126, 2.0**-125]


@pytest.mark.clause("TORCH-never-off")
@pytest.mark.skipif(torch.cuda.is_available(), reason="torch disables itself only without CUDA")
def test_torch_disables_itself_without_cuda():
    """Torch warns once. ampscale's scaler is enabled, without a warning."""
    with pytest.warns(UserWarning, match="Disabling"):
        off = torch.amp.GradScaler()
    assert (off.is_enabled(), GradScaler().is_enabled()) == (False, True)
    assert (off.scale(torch.ones(())), GradScaler().scale(torch.ones(()))) == (1.0, 2.0**16)
