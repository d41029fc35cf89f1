"""Communicator of torch.distributed: groups, meshes, and the scaler that uses it."""

import signal
import time
from copy import deepcopy
from threading import Thread

import pytest

import ampscale

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from distributed.dtensors import line, square  # noqa: E402
from distributed.training import message_of  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402

from ampscale.backends.torch import timed_group  # noqa: E402
from ampscale.backends.torch.groups import group_of as group_of_ranks  # noqa: E402
from ampscale.backends.torch.records import _last  # noqa: E402
from ampscale.core.norms import unlifted  # noqa: E402
from ampscale.distributed import RankError, TorchDistributed  # noqa: E402


def group_of(name):
    """Return the argument of a communicator; "pair" and "slice" are different groups for even and odd ranks."""
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    groups = {"all": None, "line": line(), "square": square(), "slice": square()["dp"]}
    return groups[name] if name in groups else pairs[dist.get_rank() % 2]


def means_and_flags(rank, name):
    """Return the ranks of a group, two means, and the flags without and with an overflow on rank 3."""
    communicator = TorchDistributed(group_of(name), timeout=20)
    mean = communicator.mean({"w": torch.tensor([1.0, 2.0], dtype=torch.bfloat16) * rank, "b": [torch.tensor(60000.0).half()]})
    flags = [communicator.agree(torch.tensor(rank != bad), torch.tensor(8.0), [mean["w"]]).finite for bad in (None, 3)]
    return communicator.ranks, mean["w"].tolist(), mean["b"][0].item(), [bool(flag) for flag in flags]


WHOLE = [[0, 1, 2, 3], [1.5, 3.0], 60000.0, [True, False]]
EVEN, ODD = [[0, 2], [1.0, 2.0], 60000.0, [True, True]], [[1, 3], [2.0, 4.0], 60000.0, [True, False]]


@pytest.mark.clause("REPLICAS-mean", "REPLICAS-one-flag", "REPLICAS-accumulation-dtype")
@pytest.mark.parametrize(
    ("names", "expected"), [(["all", "line", "square"], 4 * [WHOLE]), (["pair", "slice"], [EVEN, ODD, EVEN, ODD])]
)
def test_the_ranks_of_a_group_or_mesh_share_means_and_flags(gloo, names, expected):
    """A two-dimensional mesh is one group, and so is a slice of it. Groups of two ranks are independent."""
    for name in names:
        assert gloo.run(means_and_flags, name) == expected, name


def flag_after_unequal_groups(rank):
    """Return the flag of a mesh of ranks 2 and 3; rank 2 is in one group more than rank 3."""
    dist.new_group([0, 1])
    dist.new_group([1, 2])
    mesh = DeviceMesh("cpu", [2, 3])
    if rank < 2:
        return None
    return [bool(TorchDistributed(mesh, timeout=5).agree(torch.tensor(rank != 3), torch.tensor(8.0), []).finite)]


def test_ranks_may_have_created_different_numbers_of_groups(gloo):
    assert gloo.run(flag_after_unequal_groups) == [None, None, [False], [False]]


def errors_of_new_groups(rank):
    """Return the errors for a group of ranks 1 to 3, which are in different numbers of groups, and for one that rank 0 awaits."""
    counts = [None] * 4
    dist.all_gather_object(counts, len(dist.distributed_c10d._world.pg_names))
    if counts[1] == counts[3]:
        dist.new_group([0, 3])
    unequal = message_of(group_of_ranks, [1, 2, 3], error=RuntimeError) if rank > 0 else None

    def error_of_three():
        return message_of(group_of_ranks, [0, 1, 2], 0.2, error=RankError)

    error = error_of_three() if rank == 0 else None
    dist.barrier()
    if rank in (1, 2):  # too late
        error = error_of_three()
    return unequal, error


@pytest.mark.clause("REPLICAS-time-limit")
def test_a_group_that_torch_cannot_create_is_an_error(gloo):
    """Without the error, the ranks, even those that are late, wait until the time limit of torch, which is half an hour."""
    unequal, errors = zip(*gloo.run(errors_of_new_groups), strict=True)
    assert errors == (*3 * ["ranks 1, 2 did not respond within 0.2 s"], None)
    assert len(set(unequal[1:])) == 1
    assert unequal[1].startswith("ranks [1, 2, 3] must be in equal numbers of process groups to create one more, got ")


def sharded(rank, name):
    """Return the agreed norm of an array of eight values, of which each rank has two."""
    communicator = TorchDistributed(group_of(name), gradients="sharded", timeout=20)
    part = torch.tensor([3.0, 4.0]) * (rank + 1)
    return float(unlifted(communicator.agree(torch.tensor(True), torch.tensor(8.0), [part], norm=True).norm))


@pytest.mark.clause("REPLICAS-agreed-norm", "REPLICAS-sharded-norm")
def test_the_norm_of_sharded_gradients_is_that_of_the_group(gloo):
    """Squares of all ranks are added."""
    assert gloo.run(sharded, "square") == 4 * [pytest.approx(5 * 30**0.5)]
    assert gloo.run(sharded, "pair") == 2 * [pytest.approx(5 * 10**0.5), pytest.approx(5 * 20**0.5)]


def late(rank):
    """Return the combined flag, and True if the call took over 0.2 s. Rank 1 calls `agree` 0.3 s late, with an overflow."""
    communicator = TorchDistributed(timeout=20)
    communicator.agree(torch.tensor(True), torch.tensor(8.0), [])
    start = time.monotonic()
    if rank == 1:
        time.sleep(0.3)
    agreement = communicator.agree(torch.tensor(rank != 1), torch.tensor(8.0), [])
    return bool(agreement.finite), time.monotonic() - start > 0.2


@pytest.mark.clause("REPLICAS-wait-before-read")
def test_the_flag_is_read_after_the_last_rank_has_sent_its_own(gloo):
    """The rank that calls last, after 0.3 s, has the overflow, and all ranks wait for it."""
    finite, waited = False, True
    assert gloo.run(late) == 4 * [[finite, waited]]


def signalled(rank):
    """Return True if a rank that waits 0.6 s for the other ones handles a signal after 0.2 s, not only at the end."""
    communicator, received = TorchDistributed(timeout=20), []
    communicator.agree(torch.tensor(True), torch.tensor(8.0), [])
    start = time.monotonic()
    if rank > 0:
        time.sleep(0.6)
    else:
        timed_group.PATIENCE = 0.1
        signal.signal(signal.SIGALRM, lambda *_: received.append(time.monotonic() - start))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
    communicator.agree(torch.tensor(True), torch.tensor(8.0), [])
    timed_group.PATIENCE = 1.0
    return rank > 0 or received[0] < 0.5


def test_a_rank_that_waits_handles_signals(gloo):
    """Python handles signals, such as that of Ctrl-C, only between two calls of torch."""
    assert gloo.run(signalled) == 4 * [True]


def keys_of_slow_calls(rank):
    """Return the number of keys that five calls add to torch's store, in each of which rank 1 is late."""
    communicator = TorchDistributed(timeout=20)
    store = dist.distributed_c10d._get_default_store()
    timed_group.PATIENCE = 0.01
    counts = []
    for _ in range(6):
        if rank == 1:
            time.sleep(0.1)
        communicator.agree(torch.tensor(True), torch.tensor(8.0), [])
        counts.append(store.num_keys())
        dist.barrier()
    timed_group.PATIENCE = 1.0
    return counts[-1] - counts[0]


def test_slow_calls_do_not_fill_the_store(gloo):
    """A rank that waits long records this in torch's store, with one key for each rank and not for each call."""
    assert max(gloo.run(keys_of_slow_calls)) <= 4


@pytest.mark.clause("REPLICAS-error-names-ranks")
@pytest.mark.parametrize(("absent", "named"), [({0, 2, 3}, {0}), ({3}, {3})])
def test_the_rank_that_serves_the_store_is_named_if_the_store_ends(absent, named):
    """In the first case, ranks 2 and 3 had no time to record that they wait. In the second one, rank 0 had done so."""

    def answers():
        yield absent
        raise RuntimeError("connection reset by peer")

    assert _last(answers(), 20, servers={0}) == named


def errors_of_invalid_calls(_):
    """Return the errors of two invalid groups, of a deep copy, and of a gradient that cannot be averaged; None for no error."""
    mesh = DeviceMesh("cpu", [0, 1])
    scaler = ampscale.torch.GradScaler("cpu", communicator=TorchDistributed())
    sparse = torch.ones(2).to_sparse()
    calls = [
        (TorchDistributed, [0, 1], TypeError),
        (TorchDistributed, mesh, RuntimeError),
        (deepcopy, scaler, TypeError),
        (TorchDistributed().mean, [sparse], TypeError),
        (TorchDistributed, dist.GroupMember.NON_GROUP_MEMBER, RuntimeError),
    ]
    return [message_of(function, argument, error=error) for function, argument, error in calls]


def test_wrong_groups_copies_and_sparse_means_are_rejected(gloo):
    """The error is raised without a collective, so no rank waits for another one."""
    for rank, (of_list, of_mesh, of_copy, of_sparse_mean, of_other_group) in enumerate(gloo.run(errors_of_invalid_calls)):
        assert of_list == "group must be a process group, a device mesh or None, got list"
        outside_of_mesh = f"rank {rank} is not in the group, which has ranks 0, 1: use it only there"
        assert of_mesh == (None if rank < 2 else outside_of_mesh)
        assert of_copy == "TorchDistributed cannot be copied or pickled: create one on each rank"
        assert of_sparse_mean.startswith(
            "gradients to be averaged must be dense, got torch.sparse_coo of shape (2,): average them"
        )
        assert of_other_group.startswith(f"rank {rank} is not in the group: ")


def crossed(rank):
    """Return the flags of two communicators, each used by a thread of its own. Rank 1 starts the second thread first."""
    communicators = [TorchDistributed(timeout=20) for _ in range(2)]
    flags = [None, None]

    def agree(index):
        agreement = communicators[index].agree(torch.tensor((index, rank) != (1, 3)), torch.tensor(8.0), [])
        flags[index] = bool(agreement.finite)

    threads = [Thread(target=agree, args=(index,)) for index in range(2)]
    if rank == 1:
        threads.reverse()
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    return flags


def test_communicators_of_one_group_are_independent(gloo):
    """Ranks may call them in different orders on several threads."""
    assert gloo.run(crossed) == [[True, False]] * 4


def crossed_with_the_program(rank, backend):
    """Return a flag, and a sum in the same group. Rank 1 starts the sum after the flag, and the other ranks start it before."""
    communicator = TorchDistributed(group := dist.new_group(backend=backend), timeout=20)
    values, flags, works = torch.ones(100), [], []
    calls = [
        lambda: works.append(dist.all_reduce(values, group=group, async_op=True)),
        lambda: flags.append(bool(communicator.agree(torch.tensor(rank < 3), torch.tensor(8.0), []).finite)),
    ]
    if rank == 1:
        calls.reverse()
    for call in calls:
        call()
    works[0].wait()
    return flags[0], values.sum().item()


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo"])
def test_messages_are_not_mixed_up_with_those_of_the_program(gloo, backend):
    """
    One rank starts a sum of the program and the agreement in another order than the others. Both have their own results.

    The backend of `dist.init_process_group()` without arguments is "cpu:gloo" on a machine without CUDA.
    """
    assert gloo.run(crossed_with_the_program, backend) == [[False, 400.0]] * 4


def step_with_other_gradients(rank, mean):
    """Return the error of a scaler: of two parameters, rank 1 has a gradient of the second, and other ranks of the first."""
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    scaler = ampscale.torch.GradScaler("cpu", communicator=TorchDistributed(mean=mean, timeout=20))
    scaler.scale(weights[rank == 1].sum()).backward()
    return message_of(scaler.step, torch.optim.SGD(weights, lr=1.0))


@pytest.mark.clause("TORCH-communicator", "REPLICAS-sizes-compared")
@pytest.mark.parametrize("mean", [True, False])
def test_gradients_of_different_parameters_on_one_rank_are_an_error_on_all(gloo, mean):
    """The gradients have equal numbers, shapes and dtypes."""
    assert gloo.run(step_with_other_gradients, mean) == 4 * ["gradients structure differs: [1] on rank 1; [0] on ranks 0, 2, 3"]


def results_with_another_default_device(rank):
    """Return a mean, a flag and a norm, computed while torch creates tensors on another device."""
    communicator = TorchDistributed(gradients="distinct", timeout=20)
    gradient, scale, finite = torch.tensor([3.0, 0.0]), torch.tensor(8.0), torch.tensor(True)
    with torch.device("meta"):
        agreement = communicator.agree(finite, {"scale": scale}, [gradient], norm=True)
        mean = TorchDistributed(timeout=20).mean([gradient * rank])
    return mean[0].tolist(), bool(agreement.finite), unlifted(agreement.norm).item()


@pytest.mark.clause("REPLICAS-mean", "REPLICAS-one-flag")
def test_results_are_on_the_device_of_the_gradients(gloo):
    """The device "meta" stands for an accelerator that `torch.set_default_device` selects."""
    assert gloo.run(results_with_another_default_device) == 4 * [[[4.5, 0.0], True, 6.0]]
