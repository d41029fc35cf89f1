"""Apply a gradient that becomes infinite when it is divided by a scale below 1."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # for ShardedGradScaler only
for scaler_class in (torch.amp.GradScaler, ShardedGradScaler):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = scaler_class("cpu", init_scale=0.25)
    scaler.scale((weight * 1e19 * 1e20).sum()).backward()
    print(f"{scaler_class.__name__}: scaled gradient {weight.grad.item():g}", end=", ")
    scaler.unscale_(optimizer)
    print(f"unscaled {weight.grad.item():g}", end=", ")
    scaler.step(optimizer)
    scaler.update()
    print(f"weight after step {weight.item():g}, scale {scaler.get_scale()}")
dist.destroy_process_group()
