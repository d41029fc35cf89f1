"""Clip float16 gradients whose norm is 300000 to a norm of 1."""

import torch

for dtype in (torch.float16, torch.float32):
    weight = torch.nn.Parameter(torch.zeros(100, dtype=dtype))
    weight.grad = torch.full_like(weight, 30000.0)
    norm = torch.nn.utils.clip_grad_norm_([weight], max_norm=1.0)
    print(f"{dtype}: norm {norm.item()}, clipped gradients {weight.grad[0].item():.4g}")
