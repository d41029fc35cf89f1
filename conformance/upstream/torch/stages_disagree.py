"""Step two pipeline stages, of which only the second one has an infinite gradient."""

import tempfile

import torch
import torch.distributed as dist
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def train(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for scaler_class in (torch.amp.GradScaler, ShardedGradScaler):
        weight = torch.nn.Parameter(torch.zeros(1))  # the parameters of this rank's stage
        scaler = scaler_class("cpu", init_scale=4.0)
        scaler.scale((weight * (1.0 if rank == 0 else float("inf"))).sum()).backward()
        scaler.step(torch.optim.SGD([weight], lr=1.0))
        scaler.update()
        results = [None, None]
        dist.all_gather_object(results, (weight.item(), scaler.get_scale()))
        if rank == 0:
            print(f"{scaler_class.__name__}: weight and scale of rank 0: {results[0]}, of rank 1: {results[1]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (folder,), nprocs=2)
