"""Training with `GradScaler` on sharded parameters takes the decisions of a training in one process."""

import pytest

import ampscale

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed")

from distributed.dtensors import INF, NAN, full, line  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402

from ampscale.torch import GradScaler  # noqa: E402

STEPS = 20
# For each step with an overflow, the values that ranks write into their shard of the gradient of the last weight.
OVERFLOWS = {2: {2: INF}, 5: {1: NAN}, 6: {0: INF, 2: -INF}, 14: {0: -INF}, 15: {1: INF, 0: NAN}}
OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, foreach=True),
    "adamw-fused": lambda params: torch.optim.AdamW(params, lr=0.01, fused=True),
}


def network():
    """Return a network with a weight of three rows, so the last of four ranks has none of them."""
    generator = torch.Generator().manual_seed(5)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    with torch.no_grad():
        for param in layers.parameters():
            param.copy_(torch.randn(param.shape, generator=generator) / 2)
    return layers


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4, 3, generator=generator), torch.randn(4, 3, generator=generator)


def trained(rank, layers, optimizer, scaler, steps=range(STEPS), sharded=True):
    """Train, and return for each step True if it was applied, and the scale after it."""
    results = []
    for step in steps:
        values, targets = batch(step)
        scaler.scale(torch.nn.functional.mse_loss(layers(values), targets)).backward()
        bad = OVERFLOWS.get(step, {})
        gradient = layers[2].weight.grad
        if sharded and rank in bad:
            gradient.to_local()[0, 0] = bad[rank]
        elif bad and not sharded:
            gradient[0, 0] = INF
        if step % 2:
            scaler.unscale_(optimizer)
        applied = scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        results.append([bool(applied), scaler.get_scale()])
    return results


def values_of(layers):
    """Return all parameters as lists."""
    return [full(param).detach().flatten().tolist() for param in layers.parameters()]


def sharded_run(rank, optimizer, size=4, state=None, steps=(0, STEPS)):
    """Train like `single_run`, but under FSDP2 on *size* ranks. *state* has initial parameters and a state dict of the scaler."""
    mesh = DeviceMesh("cpu", list(range(size)))
    if rank >= size:
        return None
    layers = network()
    scaler = GradScaler("cpu", init_scale=2.0**10, growth_interval=6)
    if state is not None:
        with torch.no_grad():
            for param, values in zip(layers.parameters(), state[0], strict=True):
                param.copy_(torch.tensor(values).reshape(param.shape))
        scaler.load_state_dict(state[1])
    for layer in (layers[0], layers[2], layers):
        fully_shard(layer, mesh=mesh)
    results = trained(rank, layers, OPTIMIZERS[optimizer](layers.parameters()), scaler, range(*steps))
    return results, values_of(layers), scaler.state_dict()


def single_run(optimizer):
    """Train in this process; return the results of the steps, the parameters and the scaler's state dict."""
    layers = network()
    scaler = GradScaler("cpu", init_scale=2.0**10, growth_interval=6)
    results = trained(0, layers, OPTIMIZERS[optimizer](layers.parameters()), scaler, sharded=False)
    return results, values_of(layers), scaler.state_dict()


@pytest.mark.clause("REPLICAS-same-decision", "REPLICAS-same-scale", "REPLICAS-nan-survives", "TORCH-dtensor-step", "TORCH-fused")
@pytest.mark.parametrize("optimizer", [pytest.param(name, marks=[pytest.mark.slow] * (name != "sgd")) for name in OPTIMIZERS])
def test_fsdp2_training_takes_the_decisions_of_a_single_process(gloo, optimizer):
    """Scales, counts and parameters are equal too, with overflows in the shards of one or two ranks."""
    results = gloo.run(sharded_run, optimizer)
    assert results == 4 * [results[0]]
    steps, parameters, state = results[0]
    expected_steps, expected_parameters, expected_state = single_run(optimizer)
    assert steps == expected_steps
    assert [index for index, (applied, _) in enumerate(steps) if not applied] == [*OVERFLOWS]
    assert state == expected_state
    for values, expected in zip(parameters, expected_parameters, strict=True):
        assert values == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.clause("REPLICAS-load-keeps-scale", "TORCH-load-state-dict")
def test_training_continues_on_two_ranks_from_a_state_of_four(gloo):
    """Decisions, scales and counts are those of a run that was not interrupted. The state has counted some finite steps."""
    first_steps, *saved = gloo.run(sharded_run, "sgd", 4, None, (0, 10))[0]
    result, same_result, *others = gloo.run(sharded_run, "sgd", 2, saved, (10, STEPS))
    assert (result, others) == (same_result, [None, None])
    last_steps, parameters, state = result
    expected_steps, expected_parameters, expected_state = single_run("sgd")
    assert first_steps + last_steps == expected_steps
    assert state == expected_state
    for values, expected in zip(parameters, expected_parameters, strict=True):
        assert values == pytest.approx(expected, rel=1e-4, abs=1e-6)


def clipped(_):
    """Unscale, clip and step with sharded, then whole gradients; for each, return the result of `step`, norm and parameters."""
    results = []
    for sharded in (True, False):
        layers = network()
        scaler = GradScaler("cpu", init_scale=8.0)
        optimizer = torch.optim.SGD(layers.parameters(), lr=0.5)
        values, targets = batch(0)
        scaler.scale(torch.nn.functional.mse_loss(layers(values), targets)).backward()
        params = list(layers.parameters())
        if sharded:
            gradients = [distribute_tensor(param.grad, line(), [Shard(0)]) for param in params]
            params = [torch.nn.Parameter(distribute_tensor(param.detach(), line(), [Shard(0)])) for param in params]
            for param, gradient in zip(params, gradients, strict=True):
                param.grad = gradient
            optimizer = torch.optim.SGD(params, lr=0.5)
        scaler.unscale_(optimizer)
        gradients, norm = ampscale.clip_by_global_norm([param.grad for param in params], 0.125)
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        applied = scaler.step(optimizer)
        results.append([applied, float(norm).hex(), [full(param).flatten().tolist() for param in params]])
    return results


@pytest.mark.clause("TORCH-dtensor-norms", "TORCH-unscale")
def test_gradients_clipped_between_unscale_and_step_equal_the_whole(gloo):
    """Norm and parameters have the same bits with sharded as with whole gradients."""
    for sharded, whole in gloo.run(clipped):
        assert sharded == whole
