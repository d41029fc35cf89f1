"""Functions on trees with DTensors: the flag and the norm have the same bits on all ranks, and placements are kept."""

from os import environ
from unittest.mock import patch

import libraries
import pytest

import ampscale
from ampscale.backends.cpu import fused

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from distributed.dtensors import INF, NAN, full, line, square  # noqa: E402
from distributed.training import message_of  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402

from ampscale.backends.torch import timed_group  # noqa: E402
from ampscale.core.trees import leaves  # noqa: E402

BAD = {"none": {}, "inf": {3: INF}, "nan": {1: NAN}, "opposite": {0: INF, 2: -INF}}  # rank: value in its shard


def whole_arrays(dtype="float32"):
    """Return the same seven arrays on every rank; the second array has fewer rows than there are ranks."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(4, 6), (3, 5), (8, 4), (5,), (8, 2), (), (4, 4)]
    return [(torch.randn(shape, generator=generator) * 100).to(getattr(torch, dtype)) for shape in shapes]


def placed(arrays):
    """Return a tree of *arrays*: sharded, unevenly sharded, on two meshes and a slice, replicated and plain."""
    rows, uneven, blocks, plain, half, scalar, columns = arrays
    return {
        "replicated": distribute_tensor(scalar, line(), [Replicate()]),
        "slice": distribute_tensor(half, square()["dp"], [Shard(0)]),
        "rows": distribute_tensor(rows, line(), [Shard(0)]),
        "lists": [distribute_tensor(uneven, line(), [Shard(0)]), plain],
        "blocks": distribute_tensor(blocks, square(), [Shard(0), Shard(1)]),
        "columns": distribute_tensor(columns, square(), [Replicate(), Shard(1)]),
    }


def in_order(arrays):
    """Return *arrays* in the order of the leaves of `placed`."""
    rows, uneven, blocks, plain, half, scalar, columns = arrays
    return [scalar, half, rows, uneven, plain, blocks, columns]


def whole_values(tree):
    """Return the whole arrays of a tree of `placed` as lists of hexadecimal numbers."""
    return [hexadecimal(full(leaf)) for leaf in leaves(tree)]


def hexadecimal(tensor):
    return [float(value).hex() for value in tensor.double().flatten()]


def placements(tree):
    """Return the placements and the number of mesh dimensions of each DTensor; None for another tensor."""
    return [(str(leaf.placements), leaf.device_mesh.ndim) if hasattr(leaf, "placements") else None for leaf in leaves(tree)]


def spoiled(tree, values):
    """Write the value that *values* has for this rank, if any, into the shard of this rank; return *tree*."""
    if str(dist.get_rank()) in values:  # keys of JSON are strings
        tree["rows"].to_local()[0, 0] = values[str(dist.get_rank())]
    return tree


def flags(_, values):
    """Return type, True if bool, shape and value of five flags: one of finite arrays, and four of arrays with *values*."""
    tree = spoiled(placed(whole_arrays()), values)
    in_place, result = ampscale.unscale_and_check(tree, torch.tensor(1024.0), out=tree)
    results = [
        ampscale.all_finite(placed(whole_arrays())),
        ampscale.all_finite(spoiled(placed(whole_arrays()), values)),
        ampscale.unscale_and_check(spoiled(placed(whole_arrays()), values), 3.0)[1],
        ampscale.unscale_check_and_norm(spoiled(placed(whole_arrays()), values), 3.0, dtype="float64")[1],
        result,
    ]
    assert in_place is tree
    return [[type(flag).__name__, flag.dtype == torch.bool, list(flag.shape), bool(flag)] for flag in results]


@pytest.mark.clause("REPLICAS-mixed-placements", "REPLICAS-mixed-meshes", "REPLICAS-nan-survives", "TORCH-dtensor-functions")
@pytest.mark.parametrize("name", BAD)
def test_all_ranks_get_the_flag_of_all_shards(gloo, name):
    """The flag is a plain bool tensor of shape (), even for opposite infinities in two shards."""
    expected = [True] + 4 * [name == "none"]
    assert gloo.run(flags, BAD[name]) == 4 * [[["Tensor", True, [], flag] for flag in expected]]


def norms(_, dtype):
    """Return dtype, type and value of several norms, alternately of the distributed arrays and of the whole arrays."""
    arrays = whole_arrays(dtype)
    tree, whole = placed(arrays), in_order(arrays)
    results = [
        (ampscale.global_norm(tree), ampscale.global_norm(whole)),
        (ampscale.local_norms(tree), ampscale.local_norms(whole)),
        (ampscale.unscale_check_and_norm(tree, 3.0)[2], ampscale.unscale_check_and_norm(whole, 3.0)[2]),
    ]
    return [[str(norm.dtype), type(norm).__name__, hexadecimal(norm)] for pair in results for norm in pair]


@pytest.mark.clause("REPLICAS-sharded-norm", "REPLICAS-copies-counted-once", "TORCH-dtensor-norms")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_the_sharded_norm_has_the_bits_of_the_whole_norm(gloo, dtype):
    """Local norms have the same bits, too. Replicated arrays and plain ones count once."""
    results = gloo.run(norms, dtype)
    assert results == 4 * [results[0]]
    sharded, whole = results[0][::2], results[0][1::2]
    assert sharded == whole


def with_kernels_on_one_rank(rank):
    """Return True if this rank has used compiled kernels, the flags and norms of functions above, and unscaled arrays."""
    environ["AMPSCALE_KERNELS"] = "numba" if rank == 2 else "numpy"
    fused.kernel_choice_host.cache_clear()
    try:
        results = [flags(rank, BAD["inf"]), norms(rank, "float32"), results_of(rank, "in place")]
        return fused._kernel.cache_info().currsize > 0, results
    finally:
        environ["AMPSCALE_KERNELS"] = "numpy"
        fused.kernel_choice_host.cache_clear()


@pytest.mark.clause("REPLICAS-sharded-norm", "TORCH-dtensor-functions", "BACKENDS-bit-identical")
def test_a_rank_with_compiled_kernels_has_the_results_of_the_others(gloo):
    """The kernels run on local shards, some of which are empty."""
    pytest.importorskip("numba")
    are_compiled, results = zip(*gloo.run(with_kernels_on_one_rank), strict=True)
    assert are_compiled == (False, False, True, False)
    assert list(results) == 4 * [results[0]]


def global_norms(_, dtype, factor):
    """Return the norm of the distributed arrays, and that of the whole arrays."""
    arrays = [array * factor for array in whole_arrays(dtype)]
    return [float(ampscale.global_norm(tree)) for tree in (placed(arrays), in_order(arrays))]


@pytest.mark.parametrize(
    ("dtype", "factor", "tolerance"), [("float64", 1, 2**-51), ("float32", 1e35, 2**-22), ("float32", 1e-42, 2**-22)]
)
def test_float64_and_extreme_norms_are_accurate_and_the_same_on_all_ranks(gloo, dtype, factor, tolerance):
    """In float64, the order of additions affects the last bits. In float32, squares of these values overflow or underflow."""
    results = gloo.run(global_norms, dtype, factor)
    assert results == 4 * [results[0]]
    distributed, whole = results[0]
    assert distributed == pytest.approx(whole, rel=tolerance)


def results_of(_, name):
    """Return the values of a function's results on DTensors and on whole arrays. Assert that the function keeps placements."""
    calls = {
        "scale": lambda tree: ampscale.scale(tree, 3.0),
        "unscale": lambda tree: ampscale.unscale(tree, torch.tensor(3.0)),
        "unscale_and_check": lambda tree: ampscale.unscale_and_check(tree, 3.0, dtype="float32")[0],
        "in place": lambda tree: ampscale.unscale_and_check(tree, torch.tensor(4.0), out=tree)[0],
        "clip": lambda tree: ampscale.clip_by_global_norm(tree, 1.5)[0],
    }
    tree = placed(whole_arrays())
    result = calls[name](tree)
    assert placements(result) == placements(tree)
    return whole_values(result), [hexadecimal(value) for value in calls[name](in_order(whole_arrays()))]


@pytest.mark.clause("TORCH-dtensor-functions", "TORCH-dtensor-norms")
@pytest.mark.parametrize("name", ["scale", "unscale", "unscale_and_check", "in place", "clip"])
def test_results_have_the_placements_of_the_tree_and_the_values_of_whole_arrays(gloo, name):
    """Clipping takes the norm of all shards."""
    for result, whole in gloo.run(results_of, name):
        assert result == whole


def unscaled_into_out(_):
    """Unscale into other DTensors, into plain tensors, and into another placement; return the values and the two errors."""
    tree = placed(whole_arrays())
    target = placed(whole_arrays())
    other = in_order(whole_arrays())
    result, _ = ampscale.unscale_and_check(tree, 2.0, out=target)
    assert result is target
    values = whole_values(tree), whole_values(target), [hexadecimal(array / 2) for array in other]
    message = message_of(ampscale.unscale_and_check, leaves(tree), 2.0, out=other, error=ValueError)
    sharded, replicated = (distribute_tensor(torch.ones(4), line(), [placement]) for placement in (Shard(0), Replicate()))
    redistributable = message_of(ampscale.unscale_and_check, [sharded], 2.0, out=[replicated], error=ValueError)
    return *values, [message, redistributable], [hexadecimal(array) for array in other]


def test_out_receives_shards_of_the_same_placements_only(gloo):
    """Other placements, and plain tensors, raise an error, and nothing is written."""
    for tree, target, halves, (message, redistributable), other in gloo.run(unscaled_into_out):
        assert target == halves
        assert other == tree
        assert message.startswith("out[0] must be a DTensor with placements (Replicate(),) on DeviceMesh(")
        assert message.endswith(", like the array of the tree, got a plain tensor")
        assert "got a DTensor with placements (Replicate(),) on " in redistributable
        assert redistributable.endswith("; call redistribute() on it first")


def unscaled_partial_sum(rank):
    """Unscale and scale a DTensor that is a sum of values on all ranks; return the results, and the error of writing in place."""
    value = DTensor.from_local(torch.tensor([1.0 + rank, -INF if rank == 2 else INF]), line(), [Partial()])
    result, finite = ampscale.unscale_and_check([value], 2.0)
    norm = ampscale.global_norm([ampscale.scale([value], 1.0)[0].full_tensor()[:1]])
    local = value.to_local().tolist()
    message = message_of(ampscale.unscale_and_check, [value], 2.0, out=[value], error=TypeError)
    return repr(result[0].full_tensor().tolist()), str(result[0].placements), bool(finite), float(norm), local, message


@pytest.mark.clause("TORCH-dtensor-partial")
def test_partial_placements_are_reduced_or_rejected_in_place(gloo):
    """The value of a reduced DTensor is the sum over the ranks; the sum of opposite infinities is NaN. A rejected one is kept."""
    for rank, (values, placement, finite, norm, local, message) in enumerate(gloo.run(unscaled_partial_sum)):
        assert (values, placement, finite, norm) == ("[5.0, nan]", "(Replicate(),)", False, 10.0)
        assert local == [1.0 + rank, -INF if rank == 2 else INF]
        assert message.startswith("out[0] must be sharded or replicated to be written in place, got placements (Partial(sum),)")


def flags_and_norms(rank):
    """Return flags and norms of DTensors on a mesh of two ranks, and on a slice of the mesh of all."""
    pairs = [DeviceMesh("cpu", ranks) for ranks in ([0, 1], [2, 3])]
    local = torch.tensor([3.0 if rank % 2 else 4.0, INF if rank == 1 else 0.0])
    pair = DTensor.from_local(local, pairs[rank // 2], [Shard(0)])
    column = DTensor.from_local(local, square()["dp"], [Shard(0)])
    flags = [bool(ampscale.all_finite([tensor])) for tensor in (pair, column)]
    return flags, [float(ampscale.global_norm([tensor])) for tensor in (pair, column)]


@pytest.mark.clause("TORCH-dtensor-functions", "TORCH-dtensor-norms")
def test_a_flag_covers_the_whole_mesh_and_a_norm_covers_the_slice(gloo):
    """Separate meshes of two ranks do not wait for each other. Rank 1 has an infinity; ranks 1 and 3 share a slice."""
    assert gloo.run(flags_and_norms) == [
        [[False, False], [INF, pytest.approx(32**0.5)]],
        [[False, False], [INF, INF]],
        [[True, False], [5.0, pytest.approx(32**0.5)]],
        [[True, False], [5.0, INF]],
    ]


def collectives(_):
    """Return the collectives and the host reads of three functions, in their second calls."""
    weight = [DTensor.from_local(torch.ones(2), line(), [Shard(0)])]
    calls = [
        lambda: ampscale.all_finite(weight),
        lambda: ampscale.unscale_check_and_norm(weight, 2.0),
        lambda: ampscale.clip_by_global_norm(weight, 1.0),
    ]
    counts = []
    for call in calls:
        call()
        with CommDebugMode() as debug, libraries.load("torch").count_reads() as reads:
            call()
        counts.append([debug.get_total_counts(), reads])
    return counts


@pytest.mark.clause("TORCH-dtensor-functions", "TORCH-dtensor-norms")
def test_a_flag_and_a_norm_take_one_collective_and_one_host_read_each(gloo):
    """The read compares the operations of the ranks; gloo has written the numbers on the host."""
    assert gloo.run(collectives) == 4 * [[[1, ["tolist"]], [2, 2 * ["tolist"]], [1, ["tolist"]]]]


OPERATIONS = {
    "overflow check": lambda array: ampscale.all_finite([array]),
    "overflow check (scale: 2.0)": lambda array: ampscale.unscale_and_check([array], torch.tensor(2.0))[1],
    "overflow check (scale: 4.0)": lambda array: ampscale.unscale_and_check([array], 4.0)[1],
    "norm (arrays: 3, dtype: float32)": lambda array: ampscale.global_norm(3 * [array]),
    "norm (arrays: 4, dtype: float32)": lambda array: ampscale.global_norm(4 * [array]),
    "norm (arrays: 3, dtype: float64)": lambda array: ampscale.global_norm([array, array, array.double()]),
    "local norms (arrays: 3, dtype: float32)": lambda array: ampscale.local_norms(3 * [array]),
    "clipping to 0.5 (arrays: 3, dtype: float32)": lambda array: ampscale.clip_by_global_norm(3 * [array], 0.5),
    "clipping to 2.0 (arrays: 3, dtype: float32)": lambda array: ampscale.clip_by_global_norm(3 * [array], 2),
}


def operations_that_differ(rank, usual):
    """Return the error of each other operation on rank 2, and a norm after these errors. First messages have few values."""
    array = DTensor.from_local(torch.ones(3), line(), [Shard(0)])
    with patch.object(timed_group, "FIRST", 4):
        errors = [message_of(OPERATIONS[usual if rank != 2 else other], array) for other in OPERATIONS if other != usual]
        return errors, float(ampscale.global_norm(3 * [array]))


@pytest.mark.clause("REPLICAS-error-names-ranks", "REPLICAS-sizes-compared")
@pytest.mark.parametrize("usual", ["overflow check (scale: 2.0)", "clipping to 0.5 (arrays: 3, dtype: float32)"])
def test_an_operation_that_differs_is_an_error_on_all_ranks(gloo, usual):
    """A message of another length would end a process of gloo, or change the sums."""
    others = [other for other in OPERATIONS if other != usual]
    errors = [f"operation differs: {other} on rank 2; {usual} on ranks 0, 1, 3" for other in others]
    assert gloo.run(operations_that_differ, usual) == 4 * [[errors, 6.0]]


def flag_with_another_engine(rank):
    """Return the flag of a DTensor while torch reports another engine than gloo, and True if no group with a limit is used."""
    tensor = DTensor.from_local(torch.tensor([INF if rank == 1 else 1.0]), line(), [Shard(0)])
    engine = patch.object(dist, "get_backend_config", return_value="cpu:mpi")
    no_groups = patch.object(timed_group, "_timed_groups", {})
    with engine, no_groups, patch.object(timed_group, "TimedGroup") as created:
        flag = ampscale.all_finite(tensor)
    return bool(flag), not created.called


def test_engines_other_than_gloo_use_the_groups_of_the_program(gloo):
    assert gloo.run(flag_with_another_engine) == 4 * [[False, True]]


def differentiated(rank):
    """Return the gradient of a DTensor that is scaled by 8 and doubled."""
    value = DTensor.from_local(torch.full((2,), 1.0 + rank), line(), [Shard(0)]).requires_grad_()
    (ampscale.scale([value], 8.0)[0] * 2).sum().backward()
    return str(value.grad.placements), value.grad.full_tensor().tolist()


def test_gradients_flow_through_scaling(gloo):
    """The gradient of a DTensor has its placements."""
    assert gloo.run(differentiated) == 4 * [["(Shard(dim=0),)", 8 * [16.0]]]
