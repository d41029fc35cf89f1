"""`ampscale.torch.GradScaler` on DTensors: all ranks take the same decision, unlike with torch's class."""

import copy

import libraries
import pytest

import ampscale

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed")

from distributed.dtensors import INF, line, local, parameter, square  # noqa: E402
from distributed.training import message_of  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402

from ampscale.distributed import RankError, TorchDistributed  # noqa: E402


def scaler_of(package=ampscale.torch, **settings):
    """Return a scaler that has scaled a loss."""
    scaler = package.GradScaler("cpu", init_scale=4.0, **settings)
    scaler.scale(torch.tensor(1.0))
    return scaler


def sgd(params):
    return torch.optim.SGD(params, lr=0.25, foreach=False)


def shard_of(rank, bad):
    """Return the local shard of a gradient, with an infinity on one rank."""
    return torch.tensor([1.0, INF if rank == bad else 1.0])


def mixed_placements(rank):
    """Return a replicated parameter, and a sharded one whose gradient has an infinity on rank 1."""
    return [parameter(torch.ones(2), line(), Replicate()), parameter(shard_of(rank, 1), line())]


def mixed_meshes(rank):
    """Return a parameter on a slice of a mesh, and one on the whole mesh whose gradient has an infinity on rank 3."""
    return [parameter(torch.ones(2), square()["dp"]), parameter(shard_of(rank, 3), square())]


def beside_a_plain_tensor(rank):
    """Return a plain parameter, and a sharded one whose gradient has an infinity on rank 1."""
    plain = torch.nn.Parameter(torch.ones(2))
    plain.grad = torch.ones(2)
    return [plain, mixed_placements(rank)[1]]


def one_step(rank, make, scaler_name):
    """Return the scale and a local value of the first parameter after a step and an update; or the type of an error."""
    params = globals()[make](rank)
    settings = {"communicator": TorchDistributed(timeout=20)} if scaler_name == "ampscale with a communicator" else {}
    scaler = scaler_of(torch.amp if scaler_name == "torch" else ampscale.torch, **settings)
    try:
        scaler.step(sgd(params))
    except RuntimeError as error:
        return type(error).__name__
    scaler.update()
    return scaler.get_scale(), local(params[0])[0].item()


SKIPPED, STEPPED = [2.0, 1.0], [4.0, 0.9375]


@pytest.mark.clause("REPLICAS-mixed-placements", "REPLICAS-mixed-meshes", "TORCH-dtensor-ranks", "TORCH-dtensor-step")
@pytest.mark.parametrize(
    ("make", "results_of_torch"),
    [
        (mixed_placements, [STEPPED, SKIPPED, STEPPED, STEPPED]),
        (mixed_meshes, [STEPPED, SKIPPED, STEPPED, SKIPPED]),
        (beside_a_plain_tensor, 4 * ["RuntimeError"]),
    ],
)
def test_ranks_agree_on_mixed_gradients_although_torch_lets_them_differ(gloo, make, results_of_torch):
    """In 2.13.0, torch uses the mesh and the placements of the first gradient for all. A communicator is not needed."""
    if torch.__version__.startswith("2.13.0"):
        assert gloo.run(one_step, make.__name__, "torch") == results_of_torch
    assert gloo.run(one_step, make.__name__, "ampscale") == 4 * [SKIPPED]
    assert gloo.run(one_step, make.__name__, "ampscale with a communicator") == 4 * [SKIPPED]


def mean_beside_a_dtensor(rank):
    """Return the gradients of a plain and a sharded parameter after a scaler with a communicator has unscaled them."""
    plain, sharded = params = beside_a_plain_tensor(rank)
    plain.grad.fill_(4.0 * rank)
    scaler_of(communicator=TorchDistributed(timeout=20)).unscale_(sgd(params))
    return plain.grad.tolist(), sharded.grad.to_local().tolist()


@pytest.mark.clause("TORCH-communicator")
def test_a_communicator_averages_only_gradients_that_are_not_dtensors(gloo):
    """
    The plain gradients are four times the numbers of the ranks, and the scale is 4.

    The gradient of the DTensor consists of ones, except an infinity in the shard of rank 1.
    """
    results = gloo.run(mean_beside_a_dtensor)
    assert results == [[[1.5, 1.5], [0.25, INF if rank == 1 else 0.25]] for rank in range(4)]


def plain_parameters(count):
    """Return *count* parameters with gradients, which are not DTensors."""
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(count)]
    for param in params:
        param.grad = torch.ones(2)
    return params


def without_gradients(rank, has_communicator):
    """Return flag, scale and count of three steps without gradients on rank 1: finite, an overflow on rank 2, no gradients."""
    results = []
    scaler = scaler_of(communicator=TorchDistributed(gradients="distinct", timeout=20) if has_communicator else None)
    for bad in (None, 2, "no gradients"):
        params = plain_parameters(rank + 1) if has_communicator else mixed_placements(rank)  # like stages of a pipeline
        for param in params:
            local(param.grad).fill_(INF if rank == bad else 1.0)
            if rank == 1 or bad == "no gradients":
                param.grad = None
        applied = scaler.step(torch.optim.SGD(params, lr=0.25))
        scaler.update()
        results.append([applied, scaler.get_scale(), scaler.state_dict()["_growth_tracker"]])
    return results


@pytest.mark.clause("REPLICAS-empty-ranks", "TORCH-communicator", "TORCH-dtensor-ranks", "TORCH-no-gradients")
@pytest.mark.parametrize("has_communicator", [True, False])
def test_a_rank_without_gradients_follows_the_others(gloo, has_communicator):
    """The ranks agree because of a communicator, or of DTensor parameters. If no rank has a gradient, nothing is counted."""
    assert gloo.run(without_gradients, has_communicator) == 4 * [[[True, 4.0, 1], [False, 2.0, 0], [False, 2.0, 0]]]


def differing(rank, setting):
    """Step twice while one rank has another setting; return the errors, True if the scale is unchanged, and a local value."""
    scaler = scaler_of(growth_interval=5 if (setting, rank) == ("interval", 1) else 4)
    params = mixed_meshes(rank)
    optimizer = sgd(params)
    if setting == "scale" and rank == 3:
        scaler.update(8.0)
    errors = []
    for _ in range(2):
        try:
            scaler.step(optimizer)
        except RuntimeError as error:
            errors.append([isinstance(error, RankError), str(error)])
    scale = scaler.get_scale()
    scaler.update()
    return errors, scaler.get_scale() == scale, params[0].to_local()[0].item()


@pytest.mark.clause("REPLICAS-settings-compared", "REPLICAS-scale-compared", "REPLICAS-agreement-first", "TORCH-interrupted")
@pytest.mark.parametrize(("setting", "name"), [("interval", "rank 1"), ("scale", "rank 3")])
def test_ranks_with_different_settings_are_named_and_nothing_is_applied(gloo, setting, name):
    """The gradients are divided, so the step is rejected until the update. The update leaves the scale unchanged."""
    for errors, unchanged, value in gloo.run(differing, setting):
        (first_is_rank_error, message), (second_is_rank_error, advice) = errors
        assert (first_is_rank_error, second_is_rank_error, unchanged, value) == (True, False, True, 1.0)
        assert name in message
        assert "unscaling those of this optimizer was interrupted" in advice


def collectives(rank):
    """Return the number of collectives of each of three steps with two optimizers."""
    scaler, counts = scaler_of(), []
    for _ in range(3):
        optimizers = [sgd(make(rank)) for make in (mixed_placements, mixed_meshes)]
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


def rejected(rank):
    """Unscale two optimizers, each with a gradient that cannot be unscaled; return the errors, and another gradient of each."""
    results = []
    for placement, dtype in ((Partial(), torch.float32), (Shard(0), torch.float16)):
        params = [*mixed_placements(rank), parameter(torch.ones(2, dtype=dtype), line(), placement)]
        try:
            scaler_of().unscale_(sgd(params))
        except (TypeError, ValueError) as error:
            results.append([type(error).__name__, str(error), params[0].grad.to_local().tolist()])
    return results


@pytest.mark.clause("TORCH-dtensor-partial", "TORCH-float16")
def test_partial_and_float16_gradients_are_rejected_before_anything_is_written(gloo):
    """The messages contain the remedy."""
    for partial, half in gloo.run(rejected):
        for result, expected, remedy in (
            (partial, "TypeError", "redistribute()"),
            (half, "ValueError", "use float32 parameters"),
        ):
            error, message, other_gradient = result
            assert (error, other_gradient) == (expected, [1.0, 1.0])
            assert remedy in message


def dtensor_loss(rank):
    """Run a step with a loss that is a DTensor, and copy the scaler; return the result of each call."""
    param = torch.nn.Parameter(DTensor.from_local(torch.full((2,), 1.0 + rank), line(), [Shard(0)]))
    scaler = ampscale.torch.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD([param], lr=0.5)
    scaled = scaler.scale((param * 2).sum())
    scaled.backward()
    gradient = param.grad.full_tensor().tolist()
    applied = scaler.step(optimizer)
    scaler.update()
    return scaled.full_tensor().item(), gradient, applied, param.full_tensor().tolist(), copy.deepcopy(scaler).get_scale()


@pytest.mark.clause("TORCH-scale", "TORCH-dtensor-step", "TORCH-copies")
def test_a_loss_that_is_a_dtensor_is_scaled(gloo):
    """The scaler can be copied afterwards."""
    params = [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    loss, gradient, applied, copied_scale = 320.0, 8 * [16.0], True, 8.0
    assert gloo.run(dtensor_loss) == 4 * [[loss, gradient, applied, params, copied_scale]]


def stages(rank):
    """Return the parameter of a pipeline stage. Each of two stages has two ranks, and the shapes of their parameters differ."""
    return [parameter(torch.ones(1 + rank // 2), square()["tp"])]


@pytest.mark.clause("REPLICAS-mixed-meshes")
def test_ranks_of_different_slices_of_a_mesh_may_have_parameters_of_different_shapes(gloo):
    assert gloo.run(one_step, "stages", "ampscale") == 4 * [STEPPED]


def swapped(rank, case):
    """Step two optimizers, then swap them on rank 1; return the error, and True if the first parameter is unchanged."""
    if case == "averaged":
        params = plain_parameters(2)
        settings = {"communicator": TorchDistributed(timeout=20)}
    else:
        params = [parameter(torch.ones(2 if case == "later" else size), line()) for size in (2, 1)]
        settings = {}
    scaler = scaler_of(**settings)
    first, second = (sgd([param]) for param in params)

    def step(optimizers):
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()

    if case != "first":
        step([first, second])
    values = local(params[0]).tolist()
    message = message_of(step, [second, first] if rank == 1 else [first, second])
    return message, local(params[0]).tolist() == values


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
    """Without the error, an optimizer would get the flag or the gradients of the other optimizer on some ranks."""
    assert gloo.run(swapped, case) == 4 * [[message, True]]


def of_two_ranks(rank):
    """Step an optimizer that only ranks 0 and 1 have, and then one of all ranks; return the local value of the last parameter."""
    pair, scaler = DeviceMesh("cpu", [0, 1]), scaler_of()
    meshes = [pair, line()] if rank < 2 else [line()]
    params = [parameter(torch.ones(1), mesh) for mesh in meshes]
    for param in params:
        scaler.step(sgd([param]))
    return local(params[-1]).item()


@pytest.mark.clause("TORCH-dtensor-ranks")
def test_ranks_may_have_different_numbers_of_optimizers_on_different_meshes(gloo):
    """Optimizers are numbered separately for each set of ranks."""
    assert gloo.run(of_two_ranks) == 4 * [1 - 0.25 * 1 / 4]  # learning rate times gradient, divided by the scale


def host_reads(rank, name, has_communicator):
    """Return the host reads and the result of a second step, and of a third one with an overflow."""
    count_reads, results = libraries.load("torch").count_reads, []
    scaler = scaler_of(communicator=TorchDistributed(mean=False, timeout=20) if has_communicator else None)
    params = plain_parameters(2) if has_communicator else mixed_meshes(rank)
    optimizer = sgd(params) if name == "sgd" else torch.optim.Adam(params, fused=True)
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
@pytest.mark.parametrize("has_communicator", [True, False])
@pytest.mark.parametrize("name", ["sgd", "adam-fused"])
def test_a_step_of_ranks_reads_once_on_the_host(gloo, name, has_communicator):
    """The agreement reads the flag, which is not read again, neither to step nor to skip."""
    assert gloo.run(host_reads, name, has_communicator) == 4 * [[[["tolist"], True], [["tolist"], False]]]
