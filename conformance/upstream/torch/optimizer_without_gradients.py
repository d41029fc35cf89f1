"""Step two optimizers, the second of which has no gradient."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # for ShardedGradScaler only
for scaler_class in (torch.amp.GradScaler, ShardedGradScaler):
    used, unused = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    optimizers = [torch.optim.SGD([parameter], lr=0.5) for parameter in (used, unused)]
    scaler = scaler_class("cpu", init_scale=4.0)
    scaler.scale(used.sum()).backward()
    try:
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        print(f"{scaler_class.__name__}: used {used.item()}, unused {unused.item()}, scale {scaler.get_scale()}")
    except AssertionError as error:
        print(f"{scaler_class.__name__}: AssertionError: {error}")
dist.destroy_process_group()
