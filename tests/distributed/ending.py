"""
Ranks that are killed, hang or leave: a separate program, since a pool would not survive these faults.

`python ending.py NAME` runs the function `gloo`, `late`, `functions`, `error` or `mpi`. The ranks print the errors that they
observed, with seconds.
"""

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import numpy as np

import ampscale
from ampscale.distributed import RankError

LIMIT = 1.5


def error_of(function, *arguments):
    """Return the message of the RankError that a call raises, or None, and the seconds until then."""
    start, message = time.monotonic(), None
    try:
        function(*arguments)
    except RankError as error:
        message = str(error)
    return message, time.monotonic() - start


def observed(communicator, make):
    """Return the errors of two calls, and the seconds that the first one took."""
    arrays = [make(np.ones(2, np.float32))]
    first, seconds = error_of(communicator.mean, arrays)
    second, _ = error_of(communicator.agree, True, np.float32(1.0), arrays)
    return [first, second], seconds


def print_line(**results):
    """Print a JSON object in a single write, so that lines of different ranks do not mix."""
    os.write(1, json.dumps(results).encode() + b"\n")


def gloo():
    """
    Fork into four processes. Rank 3 kills itself while rank 2 waits for it.

    Rank 1 hangs in another collective while rank 0 waits for it; rank 1 then calls too late, and leaves while ranks 0 and 2 wait.
    """
    from rank import fork

    fork(4, "torch.distributed")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, members = dist.get_rank(), [[0, 1], [2, 3], [0, 1, 2]]
    groups = [dist.new_group(ranks) for ranks in members]
    pair = ampscale.distributed.TorchDistributed(groups[rank // 2], timeout=LIMIT if rank < 2 else 20.0)
    three = ampscale.distributed.TorchDistributed(groups[2], timeout=20.0) if rank < 3 else None
    everyone = ampscale.distributed.TorchDistributed(timeout=20.0)
    for ranks, group in zip(members, groups, strict=True):
        if rank in ranks:
            dist.barrier(group)
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    (error, _), _ = observed(everyone, torch.from_numpy)
    if rank == 1:
        values = torch.ones(100)
        dist.all_reduce(values, group=groups[0])  # returns when rank 0 calls it too, after the time limit of rank 0
        print_line(rank=rank, everyone=error, pair=observed(pair, torch.from_numpy), values=values.sum().item())
        dist.destroy_process_group()
        return
    of_pair = observed(pair, torch.from_numpy)
    if rank == 0:
        dist.all_reduce(torch.ones(100), group=groups[0])
    print_line(rank=rank, everyone=error, pair=of_pair, three=observed(three, torch.from_numpy))
    if rank == 0:
        time.sleep(1)  # while this process serves the store of the other ranks
    os._exit(0)


def late():
    """
    Fork into four processes. Ranks that are only late must not be named.

    Rank 3 kills itself, and rank 2 is late. Then rank 2 creates a communicator too late, but another one in time. Then rank 1 is
    late, and rank 2 hangs. At the end, rank 0, which serves the store, is stopped, and rank 1 creates another communicator and a
    group.
    """
    from rank import fork

    fork(4, "torch.distributed")
    import torch
    import torch.distributed as dist

    from ampscale.backends.torch.groups import group_of

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, pids = dist.get_rank(), [None] * 4
    create = partial(ampscale.distributed.TorchDistributed, timeout=LIMIT)
    three, new, pair, new_pair = (dist.new_group(ranks) for ranks in ([0, 1, 2], [0, 1, 2], [0, 1], [0, 1]))
    everyone = ampscale.distributed.TorchDistributed(timeout=20.0)
    if rank < 3:
        hanging = ampscale.distributed.TorchDistributed(three, timeout=2.5)
    if rank < 2:
        stopped = ampscale.distributed.TorchDistributed(pair, timeout=LIMIT)
    dist.all_gather_object(pids, os.getpid())
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep([0, 0, 2.2][rank])
    killed = observed(everyone, torch.from_numpy)
    dist.barrier(three)
    time.sleep([0, 0, LIMIT + 2.2][rank])
    created = error_of(create, new)
    dist.barrier(three)
    again = observed(ampscale.distributed.TorchDistributed(new, timeout=20.0), torch.from_numpy)
    time.sleep([0, 2.3, 8][rank])
    print_line(rank=rank, killed=killed, created=created, again=again, hung=observed(hanging, torch.from_numpy))
    time.sleep([5, 3.5, 0][rank])  # rank 0 is stopped after all errors, and before rank 1 waits again
    if rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 1:
        created = [error_of(create, new_pair), error_of(group_of, [0, 1, 3], LIMIT)]
        print_line(rank=rank, stopped=observed(stopped, torch.from_numpy), created=created)
        os.kill(pids[0], signal.SIGKILL)
    os._exit(0)


def dtensor_calls():
    """Return four functions by name, each of which takes a DTensor."""
    import torch

    from ampscale.backends import network_of

    class Loss(torch.nn.Module):
        """Sum of the local shard of a weight, which needs no communication."""

        def __init__(self, weight):
            super().__init__()
            self.weight = torch.nn.Parameter(weight)

        def forward(self):
            return self.weight.to_local().sum()

    def train(weight):
        network = network_of(Loss(weight))
        optimizer, rule = ampscale.optimizers.SGD(network, 0.5), ampscale.LossScaleRule()
        ampscale.train_step(network, optimizer, rule, ampscale.init_train_state(network.params, optimizer, rule))

    return {
        "all_finite": ampscale.all_finite,
        "unscale_check_and_norm": lambda weight: ampscale.unscale_check_and_norm(weight, 2.0),
        "clip_by_global_norm": lambda weight: ampscale.clip_by_global_norm(weight, 1.0),
        "train_step": train,
    }


def functions():
    """
    Fork into six processes, of which ranks 0 to 2 call functions of DTensors without a communicator.

    Rank 3 hangs, rank 4 kills itself, and rank 5 leaves. Each of the ranks 0 to 2 calls a function of its own on three meshes, of
    itself and one of the faulty ranks. All three call `train_step` on three meshes, of the three and one of the faulty ranks.
    Before that, all meshes have been used once, except the one for `train_step` with rank 3.
    """
    from rank import fork

    fork(6, "torch._dynamo", "torch.distributed.tensor", "ampscale.torch")
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, everyone, calls = dist.get_rank(), dist.new_group(), dtensor_calls()

    def weight_on(ranks):
        mesh = DeviceMesh("cpu", ranks)
        return DTensor.from_local(torch.ones(2), mesh, [Shard(0)]) if rank in ranks else None

    calls["train_step"](weight_on([*range(6)]))  # imports modules before the time limit is reduced
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=LIMIT), dist.group.WORLD)
    callers = {"all_finite": [0], "unscale_check_and_norm": [1], "clip_by_global_norm": [2], "train_step": [0, 1, 2]}
    weights = {(name, faulty): weight_on([*callers[name], faulty]) for name in calls for faulty in (3, 4, 5)}
    own = {key: partial(calls[key[0]], weight) for key, weight in weights.items() if weight is not None}
    unused, pids = ("train_step", 3), [None] * 6
    for key in weights:
        dist.barrier(everyone)  # so that no rank waits long for the next call of another one
        if key in own and key != unused:
            own[key]()
    dist.all_gather_object(pids, os.getpid(), everyone)
    if rank == 3:
        time.sleep(60)
    if rank == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 5:
        return
    time.sleep(LIMIT + [1.0, 0.5, 0.0][rank])  # gloo detects the end of a rank on rank 2, which stops before the others call
    last = {unused: own.pop(unused)}
    print_line(rank=rank, functions=reports_of(own) + reports_of(last))
    if rank == 0:
        time.sleep(3)  # while this process serves the store of the other ranks
        os.kill(pids[3], signal.SIGKILL)
    os._exit(0)


def reports_of(calls):
    """Run each call twice, on a thread of its own; return its key, both errors, and the seconds of the first call."""

    def report_of(key):
        first, seconds = error_of(calls[key])
        return [*key, [first, error_of(calls[key])[0]], seconds]

    with ThreadPoolExecutor() as pool:
        return list(pool.map(report_of, calls))


def error():
    """Fork into two processes, of which rank 1 hangs, so rank 0 ends with an error."""
    from rank import fork

    fork(2, "torch.distributed")
    import torch.distributed as dist

    dist.init_process_group("gloo")
    communicator = ampscale.distributed.TorchDistributed(timeout=LIMIT)
    time.sleep(60 * dist.get_rank())
    communicator.mean([])


def mpi():
    """Run a rank of MPI, of which rank 1 hangs, and end it with an error, upon which mpi4py ends all ranks."""
    communicator = ampscale.distributed.MPI(timeout=20.0)
    communicator.mean([np.ones(2, np.float32)])
    communicator = ampscale.distributed.MPI(timeout=LIMIT)
    if communicator.rank == 1:
        time.sleep(60)
    print_line(rank=communicator.rank, everyone=observed(communicator, np.asarray))
    time.sleep(1)
    raise SystemExit(1)


if __name__ == "__main__":
    {"mpi": mpi, "gloo": gloo, "late": late, "functions": functions, "error": error}[sys.argv[1]]()
