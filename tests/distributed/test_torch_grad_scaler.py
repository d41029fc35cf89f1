"""torch's `GradScaler` on DTensors: torch's own takes different decisions on different ranks, and this one the same."""

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

INF, NAN = float("inf"), float("nan")
STEPS = 40
# For each step with an overflow, the values that ranks write into their shard of the gradient of the first weight.
OVERFLOWS = {3: {2: INF}, 9: {1: NAN}, 10: {0: INF, 2: -INF}, 20: {0: -INF}, 33: {1: INF, 0: NAN}}
OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, foreach=True),
    "adamw-fused": lambda params: torch.optim.AdamW(params, lr=0.01, fused=True),
}


def scaler_of(name, **settings):
    import ampscale.torch

    return (ampscale.torch if name == "ampscale" else torch.amp).GradScaler("cpu", **settings)


def parameter(mesh, placements, gradient):
    """Return a parameter of ones whose gradient has this local shard."""
    from torch.distributed.tensor import DTensor

    result = torch.nn.Parameter(DTensor.from_local(torch.ones_like(gradient), mesh, placements))
    result.grad = DTensor.from_local(gradient, mesh, placements)
    return result


def shard_of(rank, bad):
    """Return the local shard of a gradient, with an infinity on one rank."""
    return torch.tensor([1.0, INF if rank == bad else 1.0])


def mixed_placements(rank):
    """Return a replicated parameter, and a sharded one with an infinity on rank 1."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard

    mesh = init_device_mesh("cpu", (4,))
    return [parameter(mesh, [Replicate()], torch.ones(2)), parameter(mesh, [Shard(0)], shard_of(rank, 1))]


def mixed_meshes(rank):
    """Return a parameter on a slice of a mesh, and one on all of it with an infinity on rank 3."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return [
        parameter(mesh["dp"], [Shard(0)], torch.ones(2)),
        parameter(mesh, [Shard(0), Shard(0)], shard_of(rank, 3)),
    ]


def beside_a_plain_tensor(rank):
    """Return a plain parameter, and a sharded one with an infinity on rank 1."""
    plain = torch.nn.Parameter(torch.ones(2))
    plain.grad = torch.ones(2)
    return [plain, mixed_placements(rank)[1]]


def one_step(rank, make, name):
    """Return the scale and a local value after a step and an update; or an error."""
    params = globals()[make](rank)
    optimizer, scaler = torch.optim.SGD(params, lr=0.25, foreach=False), scaler_of(name, init_scale=4.0)
    scaler.scale(torch.tensor(1.0))
    try:
        scaler.step(optimizer)
    except RuntimeError as error:
        return type(error).__name__
    scaler.update()
    local = params[0].to_local() if hasattr(params[0], "to_local") else params[0]
    return scaler.get_scale(), local[0].item()


SKIPPED, STEPPED = [2.0, 1.0], [4.0, 0.9375]


@pytest.mark.clause("REPLICAS-mixed-placements", "REPLICAS-mixed-meshes", "TORCH-dtensor-ranks", "TORCH-dtensor-step")
@pytest.mark.parametrize(
    ("make", "observed"),
    [
        (mixed_placements, [STEPPED, SKIPPED, STEPPED, STEPPED]),
        (mixed_meshes, [STEPPED, SKIPPED, STEPPED, SKIPPED]),
        (beside_a_plain_tensor, 4 * ["RuntimeError"]),
    ],
)
def test_torchs_ranks_disagree_on_mixed_gradients_and_these_agree(gloo, make, observed):
    """In 2.13.0, torch uses the mesh and the placements of the first gradient for all."""
    if torch.__version__.startswith("2.13.0"):
        assert gloo.run(one_step, make.__name__, "torch") == observed
    assert gloo.run(one_step, make.__name__, "ampscale") == 4 * [SKIPPED]


def network():
    """Return a network with a weight whose three rows leave the last of four ranks without any."""
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
    """Return whether each step was applied, and the scale after it."""
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
    wholes = (param.full_tensor() if hasattr(param, "full_tensor") else param for param in layers.parameters())
    return [whole.detach().flatten().tolist() for whole in wholes]


def sharded_run(rank, optimizer, size=4, state=None, steps=(0, STEPS)):
    """Train under FSDP2 on the first *size* ranks; start from *state*, parameters and a scaler's state dict."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh("cpu", list(range(size)))
    if rank >= size:
        return None
    layers, scaler = network(), scaler_of("ampscale", init_scale=2.0**10, growth_interval=6)
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
    """Train in this process."""
    layers, scaler = network(), scaler_of("ampscale", init_scale=2.0**10, growth_interval=6)
    results = trained(0, layers, OPTIMIZERS[optimizer](layers.parameters()), scaler, sharded=False)
    return results, values_of(layers), scaler.state_dict()


@pytest.mark.clause("REPLICAS-same-decision", "REPLICAS-same-scale", "REPLICAS-nan-survives", "TORCH-dtensor-step", "TORCH-fused")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fsdp2_training_takes_the_decisions_of_a_single_process(gloo, optimizer):
    """Scales, counts and parameters are equal too, with overflows in the shards of one or two ranks."""
    results = gloo.run(sharded_run, optimizer)
    assert results == 4 * [results[0]]
    steps, parameters, state = single_run(optimizer)
    assert results[0][0] == steps
    assert [index for index, (applied, _) in enumerate(steps) if not applied] == [*OVERFLOWS]
    assert results[0][2] == state
    for values, expected in zip(results[0][1], parameters, strict=True):
        assert values == pytest.approx(expected, rel=1e-4, abs=1e-6)
