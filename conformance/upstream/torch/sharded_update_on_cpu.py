"""Let the scales of GradScaler and of FSDP1's ShardedGradScaler grow once, on the CPU."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def grown(scaler_class, scale, factor):
    weight = torch.nn.Parameter(torch.zeros(1))
    scaler = scaler_class("cpu", init_scale=scale, growth_factor=factor, growth_interval=1)
    scaler.scale(weight.sum() * 0).backward()
    scaler.step(torch.optim.SGD([weight], lr=1.0))
    scaler.update()
    return scaler.get_scale()


dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for scaler_class in (torch.amp.GradScaler, ShardedGradScaler):
    print(f"{scaler_class.__name__}: 2**127 * 2.0 -> {grown(scaler_class, 2.0**127, 2.0)}", end=", ")
    print(f"9.0 * 1.1 -> {grown(scaler_class, 9.0, 1.1)}")
dist.destroy_process_group()
