"""
Reproduce a disagreement of ranks in torch.amp.GradScaler: four processes on gloo.

Run with ``python torch_dtensor_grad_scaler.py``; only torch is needed.
"""

import os
import sys
from multiprocessing import get_context

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

RANKS = 4


def parameter(mesh, placements, gradient):
    """Return a parameter of ones whose gradient has *gradient* as its local shard."""
    result = torch.nn.Parameter(DTensor.from_local(torch.ones(2), mesh, placements))
    result.grad = DTensor.from_local(gradient, mesh, placements)
    return result


def cases(rank):
    """Return the parameters of each case; an infinity is in one shard of one gradient."""
    line = init_device_mesh("cpu", (RANKS,))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

    def gradient(bad=None):
        return torch.tensor([1.0, float("inf") if rank == bad else 1.0])

    plain = torch.nn.Parameter(torch.ones(2))
    plain.grad = torch.ones(2)
    return {
        "sharded (infinity on rank 1), replicated": [
            parameter(line, [Shard(0)], gradient(1)),
            parameter(line, [Replicate()], gradient()),
        ],
        "replicated, sharded (infinity on rank 1)": [
            parameter(line, [Replicate()], gradient()),
            parameter(line, [Shard(0)], gradient(1)),
        ],
        "on dp, on dp x tp (infinity on rank 3)": [
            parameter(square["dp"], [Shard(0)], gradient()),
            parameter(square, [Shard(0), Shard(0)], gradient(3)),
        ],
        "on dp x tp (infinity on rank 3), on dp": [
            parameter(square, [Shard(0), Shard(0)], gradient(3)),
            parameter(square["dp"], [Shard(0)], gradient()),
        ],
        "plain tensor, sharded (infinity on rank 1)": [plain, parameter(line, [Shard(0)], gradient(1))],
    }


def step(params):
    """Return the scale after one step that must be skipped: 2.0 if this rank skipped it, and 4.0 if it stepped."""
    optimizer = torch.optim.SGD(params, lr=0.25, foreach=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.tensor(1.0))
    try:
        scaler.step(optimizer)
    except RuntimeError as error:
        return f"RuntimeError: {str(error).splitlines()[0][:90]}"
    scaler.update()
    return scaler.get_scale()


def main(rank):
    """Run all cases on one rank; rank 0 prints."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    lines = [f"torch {torch.__version__}; scale of ranks 0 to 3 after the step (4.0: stepped, 2.0: skipped)"]
    for name, params in cases(rank).items():
        results = [None] * RANKS
        dist.all_gather_object(results, step(params))
        agree = "agree" if len(set(results)) == 1 else "DISAGREE"
        lines.append(f"{name + ':':46}{agree:10}{results[0] if isinstance(results[0], str) else results}")
    if rank == 0:
        sys.stdout.write("\n".join(lines) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29655"))
    processes = [get_context("fork").Process(target=main, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode) for process in processes))
