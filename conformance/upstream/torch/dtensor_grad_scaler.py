"""Step DTensors with several placements or meshes, where one shard of one gradient is infinite, on four ranks."""

import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard


def train(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    line, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

    def array(mesh, placements, infinite_on=None):
        gradient = torch.tensor([1.0, float("inf") if rank == infinite_on else 1.0])
        parameter = torch.nn.Parameter(DTensor.from_local(torch.ones(2), mesh, placements))
        parameter.grad = DTensor.from_local(gradient, mesh, placements)
        return parameter

    def scales_after(first, second):  # after a step that every rank must skip
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(torch.zeros(()))
        scaler.step(torch.optim.SGD([first, second], lr=0.25))
        scaler.update()
        scales = [None] * 4
        dist.all_gather_object(scales, scaler.get_scale())
        return scales

    cases = {
        "sharded (infinity on rank 1), replicated": (array(line, [Shard(0)], 1), array(line, [Replicate()])),
        "replicated, sharded (infinity on rank 1)": (array(line, [Replicate()]), array(line, [Shard(0)], 1)),
        "on dp x tp (infinity on rank 3), on dp": (array(square, [Shard(0)] * 2, 3), array(square["dp"], [Shard(0)])),
        "on dp, on dp x tp (infinity on rank 3)": (array(square["dp"], [Shard(0)]), array(square, [Shard(0)] * 2, 3)),
    }
    results = {name: scales_after(*parameters) for name, parameters in cases.items()}
    if rank == 0:
        print(*(f"{name}: {scales}" for name, scales in results.items()), sep="\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (folder,), nprocs=4)
