"""`GradScaler` on a CUDA device, and on CPU and CUDA devices together."""

import pytest
import torch
from frameworks.torch.loops import INF, LOOPS, OPTIMIZERS, PAIRS, bits, new_run, train

from ampscale.frameworks.torch import GradScaler

pytestmark = [pytest.mark.device, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SETTINGS = {"init_scale": 2.0**16, "growth_interval": 6}


@pytest.fixture
def no_synchronization():
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.clause("TORCH-unscale", "TORCH-step", "TORCH-update", "TORCH-fused", "TORCH-first-scale")
@pytest.mark.parametrize(("loop", "optimizer"), PAIRS)
def test_two_hundred_steps_equal_torchs(loop, optimizer):
    """Parameters, moments, scale and count are compared after every step, with ten overflows."""

    def states(scaler):
        run = new_run(scaler, OPTIMIZERS[optimizer], device="cuda")
        return [state for state, _ in train(run, LOOPS[loop], range(200))]

    assert states(GradScaler(**SETTINGS)) == states(torch.amp.GradScaler(**SETTINGS))


@pytest.mark.clause("TORCH-host-sync")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.usefixtures("no_synchronization")
@pytest.mark.parametrize("gradient", [8.0, INF])
@pytest.mark.parametrize("unscale_first", [True, False])
def test_fused_optimizers_need_no_synchronization(gradient, unscale_first):
    """All calls from `scale` to `update` are tested, with finite and infinite gradients."""
    parameter = torch.zeros(3, device="cuda", requires_grad=True)
    scaler = GradScaler(**SETTINGS)
    optimizer = torch.optim.AdamW([parameter], fused=True)
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale((parameter * gradient).sum()).backward()
        if unscale_first:
            scaler.unscale_(optimizer)
        assert scaler.step(optimizer).device.type == "cuda"
        scaler.update()


@pytest.mark.clause("TORCH-devices", "TORCH-first-scale")
@pytest.mark.parametrize("devices", [("cpu", "cuda"), ("cuda", "cpu")])
def test_outputs_are_scaled_on_their_devices(devices):
    """The scale is on the device of the first output."""
    outputs = [torch.ones(2, device=device) for device in devices]
    result = GradScaler(init_scale=8.0).scale(outputs)
    assert [value.device.type for value in result] == list(devices)
    assert bits(result) == bits([torch.full((2,), 8.0)] * 2)


@pytest.mark.clause("TORCH-devices", "TORCH-host-sync")
@pytest.mark.parametrize("scale_device", ["cpu", "cuda"])
@pytest.mark.parametrize("gradients", [(8.0, 8.0), (INF, 8.0), (8.0, INF)])
def test_gradients_on_several_devices_are_one_step(scale_device, gradients):
    """All gradients are unscaled on their devices and skipped together, and the scale is updated once."""
    parameters = [torch.zeros(2, device=device, requires_grad=True) for device in ("cpu", "cuda")]
    scaler = GradScaler(init_scale=8.0, growth_interval=1)
    scaler.scale(torch.ones((), device=scale_device))
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.full_like(parameter, gradient)
    applied = scaler.step(torch.optim.SGD(parameters, lr=1.0))
    scaler.update()
    assert applied is (INF not in gradients)
    assert bits([parameter.grad for parameter in parameters]) == bits([torch.full((2,), value / 8) for value in gradients])
    assert bits(parameters) == bits([torch.full((2,), -1.0 if applied else 0.0)] * 2)
    assert scaler.get_scale() == (16.0 if applied else 4.0)


@pytest.mark.clause("TORCH-unscale", "TORCH-step")
@pytest.mark.parametrize("gradient", [8.0, 1e38, INF])
def test_bfloat16_gradients_are_unscaled(gradient):
    """Torch's scaler raises an error, because its kernel rejects them on CUDA. The scale is a power of two, and then is not."""
    states = []
    for device in ("cpu", "cuda"):
        parameter = torch.zeros(3, dtype=torch.bfloat16, device=device, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        scaler = GradScaler(init_scale=8.0, growth_factor=1.5, growth_interval=1)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale((parameter * gradient).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        states.append((bits([parameter.grad, parameter]), scaler.get_scale()))
    assert states[0] == states[1]
