"""torch's `GradScaler` on DTensors: torch's own takes different decisions on different ranks, and this one the same."""

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

INF, NAN = float("inf"), float("nan")
STEPS = 30
# For each step with an overflow, the values that ranks write into their shard of the gradient of the first weight.
OVERFLOWS = {3: {2: INF}, 7: {1: NAN}, 8: {0: INF, 2: -INF}, 16: {0: -INF}, 24: {1: INF, 0: NAN}}
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


def local(tensor):
    """Return the shard of a DTensor that this rank has; another tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


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


def one_step(rank, make, name, given=False):
    """Return the scale and a local value after a step and an update; or an error."""
    import ampscale.distributed

    params = globals()[make](rank)
    settings = {"communicator": ampscale.distributed.TorchDistributed(timeout=20)} if given else {}
    optimizer, scaler = torch.optim.SGD(params, lr=0.25, foreach=False), scaler_of(name, init_scale=4.0, **settings)
    scaler.scale(torch.tensor(1.0))
    try:
        scaler.step(optimizer)
    except RuntimeError as error:
        return type(error).__name__
    scaler.update()
    return scaler.get_scale(), local(params[0])[0].item()


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
    """In 2.13.0, torch uses the mesh and the placements of the first gradient for all. A communicator is not needed."""
    if torch.__version__.startswith("2.13.0"):
        assert gloo.run(one_step, make.__name__, "torch") == observed
    assert gloo.run(one_step, make.__name__, "ampscale") == 4 * [SKIPPED]
    assert gloo.run(one_step, make.__name__, "ampscale", True) == 4 * [SKIPPED]


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


@pytest.mark.clause("REPLICAS-load-keeps-scale", "TORCH-load-state-dict")
def test_training_continues_on_two_ranks_from_a_state_of_four(gloo):
    """Decisions, scales and counts are those of the run that was not interrupted."""
    whole = gloo.run(sharded_run, "sgd")[0]
    steps, parameters, state = gloo.run(sharded_run, "sgd", 4, None, (0, 15))[0]
    first, second, *others = gloo.run(sharded_run, "sgd", 2, [parameters, state], (15, STEPS))
    assert (first, others) == (second, [None, None])
    assert steps + first[0] == whole[0]
    assert first[2] == whole[2]
    for values, expected in zip(first[1], whole[1], strict=True):
        assert values == pytest.approx(expected, rel=1e-4, abs=1e-6)


def plain_parameters(rank):
    """Return as many parameters as a stage of a pipeline could have."""
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(rank + 1)]
    for param in params:
        param.grad = torch.ones(2)
    return params


def without_gradients(rank, given):
    """Step without a gradient on rank 1: first finite, then with an infinity on rank 2, then without any gradient."""
    from ampscale.distributed import TorchDistributed

    results = []
    scaler = scaler_of(
        "ampscale", init_scale=4.0, communicator=TorchDistributed(gradients="distinct", timeout=20) if given else None
    )
    scaler.scale(torch.tensor(1.0))
    for bad in (None, 2, "no gradients"):
        params = plain_parameters(rank) if given else mixed_placements(rank)
        for param in params:
            local(param.grad).fill_(INF if rank == bad else 1.0)
            if rank == 1 or bad == "no gradients":
                param.grad = None
        optimizer = torch.optim.SGD(params, lr=0.25)
        applied = scaler.step(optimizer)
        scaler.update()
        results.append([applied, scaler.get_scale(), scaler.state_dict()["_growth_tracker"]])
    return results


@pytest.mark.clause("REPLICAS-empty-ranks", "TORCH-communicator", "TORCH-dtensor-ranks", "TORCH-no-gradients")
@pytest.mark.parametrize("given", [True, False])
def test_a_rank_without_gradients_follows_the_others(gloo, given):
    """Its scaler agrees because of a communicator, or of DTensor parameters. If no rank has a gradient, nothing is counted."""
    assert gloo.run(without_gradients, given) == 4 * [[[True, 4.0, 1], [False, 2.0, 0], [False, 2.0, 0]]]


def differing(rank, setting):
    """Return the error if one rank has another setting, and what follows on all ranks."""
    from ampscale.distributed import RankError

    scaler = scaler_of("ampscale", init_scale=4.0, growth_interval=5 if (setting, rank) == ("interval", 1) else 4)
    scaler.scale(torch.tensor(1.0))
    params = mixed_meshes(rank)
    optimizer = torch.optim.SGD(params, lr=0.25, foreach=False)
    if setting == "scale" and rank == 3:
        scaler.update(8.0)
    errors = []
    for method in (scaler.step, scaler.step):
        try:
            method(optimizer)
        except RuntimeError as error:
            errors.append([isinstance(error, RankError), str(error)])
    scale = scaler.get_scale()
    scaler.update()
    return errors, scaler.get_scale() == scale, params[0].to_local()[0].item()


@pytest.mark.clause("REPLICAS-settings-compared", "REPLICAS-scale-compared", "REPLICAS-agreement-first", "TORCH-interrupted")
@pytest.mark.parametrize(("setting", "name"), [("interval", "rank 1"), ("scale", "rank 3")])
def test_ranks_with_different_settings_are_named_and_nothing_is_applied(gloo, setting, name):
    """The gradients are divided, so the step is rejected until the update, which leaves the scale unchanged."""
    for errors, unchanged, parameter in gloo.run(differing, setting):
        (is_rank_error, message), (repeated, advice) = errors
        assert (is_rank_error, repeated, unchanged, parameter) == (True, False, True, 1.0)
        assert name in message
        assert "unscaling its gradients was interrupted: call update()" in advice


def collectives(rank):
    """Return the number of collectives of each of three steps with two optimizers."""
    from torch.distributed.tensor.debug import CommDebugMode

    scaler = scaler_of("ampscale", init_scale=4.0)
    scaler.scale(torch.tensor(1.0))
    counts = []
    for _ in range(3):
        optimizers = [torch.optim.SGD(make(rank), lr=0.25, foreach=False) for make in (mixed_placements, mixed_meshes)]
        with CommDebugMode() as debug:
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
            scaler.update()
        counts.append(debug.get_total_counts())
    return counts


@pytest.mark.clause("TORCH-dtensor-ranks")
def test_a_step_takes_one_small_collective_for_each_optimizer(gloo):
    """The collective of the first optimizer compares the settings, too."""
    results = gloo.run(collectives)
    assert [counts[1:] for counts in results] == 4 * [[2, 2]]


def clipped(_):
    """Clip unscaled gradients to a norm, and return them as a whole."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    import ampscale

    mesh, results = init_device_mesh("cpu", (4,)), []
    for sharded in (True, False):
        layers = network()
        scaler, optimizer = scaler_of("ampscale", init_scale=8.0), torch.optim.SGD(layers.parameters(), lr=0.5)
        values, targets = batch(0)
        scaler.scale(torch.nn.functional.mse_loss(layers(values), targets)).backward()
        params = list(layers.parameters())
        if sharded:
            gradients = [distribute_tensor(param.grad, mesh, [Shard(0)]) for param in params]
            params = [torch.nn.Parameter(distribute_tensor(param.detach(), mesh, [Shard(0)])) for param in params]
            for param, gradient in zip(params, gradients, strict=True):
                param.grad = gradient
            optimizer = torch.optim.SGD(params, lr=0.5)
        scaler.unscale_(optimizer)
        gradients, norm = ampscale.clip_by_global_norm([param.grad for param in params], 0.125)
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        applied = scaler.step(optimizer)
        wholes = [param.full_tensor() if sharded else param for param in params]
        results.append([applied, float(norm).hex(), [whole.flatten().tolist() for whole in wholes]])
    return results


@pytest.mark.clause("TORCH-dtensor-norms", "TORCH-unscale")
def test_gradients_clipped_between_unscale_and_step_equal_the_whole(gloo):
    """Norm and parameters have the same bits."""
    for sharded, whole in gloo.run(clipped):
        assert sharded == whole


def rejected(rank):
    """Return the errors of gradients that cannot be unscaled, and the gradients after them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Shard

    mesh, results = init_device_mesh("cpu", (4,)), []
    for placement, dtype in ((Partial(), torch.float32), (Shard(0), torch.float16)):
        params = [*mixed_placements(rank), parameter(mesh, [placement], torch.ones(2, dtype=dtype))]
        optimizer, scaler = torch.optim.SGD(params, lr=0.25), scaler_of("ampscale", init_scale=4.0)
        scaler.scale(torch.tensor(1.0))
        try:
            scaler.unscale_(optimizer)
        except (TypeError, ValueError) as error:
            results.append([type(error).__name__, str(error), params[0].grad.to_local().tolist()])
    return results


@pytest.mark.clause("TORCH-dtensor-partial", "TORCH-float16")
def test_partial_and_float16_gradients_are_rejected_before_anything_is_written(gloo):
    """The messages contain the remedy."""
    for partial, half in gloo.run(rejected):
        assert partial[::2] == ["TypeError", [1.0, 1.0]]
        assert "redistribute()" in partial[1]
        assert half[::2] == ["ValueError", [1.0, 1.0]]
        assert "use float32 parameters" in half[1]


def dtensor_loss(rank):
    """Scale a loss that is a DTensor, and a copy of the scaler after it."""
    import copy

    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    value = DTensor.from_local(torch.full((2,), 1.0 + rank), init_device_mesh("cpu", (4,)), [Shard(0)])
    param = torch.nn.Parameter(value)
    scaler, optimizer = scaler_of("ampscale", init_scale=8.0), torch.optim.SGD([param], lr=0.5)
    loss = (param * 2).sum()
    scaled = scaler.scale(loss)
    scaled.backward()
    gradient = param.grad.full_tensor().tolist()
    applied = scaler.step(optimizer)
    scaler.update()
    return scaled.full_tensor().item(), gradient, applied, param.full_tensor().tolist(), copy.deepcopy(scaler).get_scale()


@pytest.mark.clause("TORCH-scale", "TORCH-dtensor-step", "TORCH-copies")
def test_a_loss_that_is_a_dtensor_is_scaled(gloo):
    """The scaler can be copied afterwards."""
    expected = [320.0, 8 * [16.0], True, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0], 8.0]
    assert gloo.run(dtensor_loss) == 4 * [expected]


def stages(rank):
    """Return a parameter of a stage of two ranks, which has another shape than that of the other stage."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    return [parameter(mesh["tp"], [Shard(0)], torch.ones(1 + rank // 2))]


@pytest.mark.clause("REPLICAS-mixed-meshes")
def test_ranks_of_different_slices_of_a_mesh_may_have_parameters_of_different_shapes(gloo):
    assert gloo.run(one_step, "stages", "ampscale") == 4 * [STEPPED]


def swapped(rank, case):
    """Step two optimizers, then in another order on rank 1; return the error and whether a parameter changed."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard

    from ampscale.distributed import RankError, TorchDistributed

    if case == "averaged":
        params, settings = plain_parameters(1), {"communicator": TorchDistributed(timeout=20)}
    else:
        mesh, settings = init_device_mesh("cpu", (4,)), {}
        params = [parameter(mesh, [Shard(0)], torch.ones(2 if case == "later" else size)) for size in (2, 1)]
    scaler = scaler_of("ampscale", init_scale=4.0, **settings)
    scaler.scale(torch.tensor(1.0))
    first, second = (torch.optim.SGD([param], lr=0.25, foreach=False) for param in params)

    def step(optimizers):
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()

    if case != "first":
        step([first, second])
    values = local(params[0]).tolist()
    try:
        step([second, first] if rank == 1 else [first, second])
    except RankError as error:
        return str(error), local(params[0]).tolist() == values


@pytest.mark.clause("REPLICAS-settings-compared", "REPLICAS-error-names-ranks")
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("first", "parameters[0] differs: float32 (4,) on rank 1; float32 (8,) on ranks 0, 2, 3"),
        ("later", "optimizer differs: 1 on rank 1; 0 on ranks 0, 2, 3"),
        ("averaged", "optimizer differs: 1 on rank 1; 0 on ranks 0, 2, 3"),
    ],
)
def test_optimizers_stepped_in_another_order_on_one_rank_are_an_error(gloo, case, message):
    """Flag or gradients of one optimizer would reach the other. Parameters of all ranks are compared when they are new."""
    assert gloo.run(swapped, case) == 4 * [[message, True]]


def of_two_ranks(rank):
    """Step an optimizer that only ranks 0 and 1 have, and then one of all ranks; return the local value of the latter."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.tensor import Shard

    pair, mesh, scaler = DeviceMesh("cpu", [0, 1]), init_device_mesh("cpu", (4,)), scaler_of("ampscale", init_scale=4.0)
    scaler.scale(torch.tensor(1.0))
    params = [parameter(pair, [Shard(0)], torch.ones(1))] * (rank < 2) + [parameter(mesh, [Shard(0)], torch.ones(1))]
    for param in params:
        scaler.step(torch.optim.SGD([param], lr=0.25, foreach=False))
    return local(params[-1]).item()


@pytest.mark.clause("TORCH-dtensor-ranks")
def test_ranks_may_have_different_numbers_of_optimizers_on_different_meshes(gloo):
    """Optimizers are numbered for each set of ranks."""
    assert gloo.run(of_two_ranks) == 4 * [0.9375]


def host_reads(rank, name, given):
    """Return the operations that read on the host, and the result, of a second step, and of a third one with an overflow."""
    import libraries

    import ampscale.distributed

    count_reads, results = libraries.load("torch").count_reads, []
    settings = {"communicator": ampscale.distributed.TorchDistributed(mean=False, timeout=20)} if given else {}
    scaler, params = scaler_of("ampscale", init_scale=4.0, **settings), (plain_parameters(1) if given else mixed_meshes(rank))
    scaler.scale(torch.tensor(1.0))
    optimizer = torch.optim.SGD(params, lr=0.25, foreach=False) if name == "sgd" else torch.optim.Adam(params, fused=True)
    for bad in (None, None, 2):
        for param in params:
            local(param.grad).fill_(INF if rank == bad else 1.0)
        with count_reads() as reads:
            scaler.unscale_(optimizer)
            applied = scaler.step(optimizer)
            scaler.update()
        results.append([reads, bool(applied)])
    return results[1:]


@pytest.mark.clause("TORCH-dtensor-ranks")
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("name", ["sgd", "adam-fused"])
def test_a_step_of_ranks_reads_once_on_the_host(gloo, name, given):
    """The agreement reads the flag, which is not read again, neither to step nor to skip."""
    assert gloo.run(host_reads, name, given) == 4 * [[[["tolist"], True], [["tolist"], False]]]
