"""Clip float32 gradients whose squares are beyond the range of float32, by a maximum of 1."""

import torch

for number in (1e20, 1e-30):
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.full_like(weight, number)
    norm = torch.nn.utils.clip_grad_norm_([weight], max_norm=1.0)
    print(f"gradients {number}: norm {norm.item()}, clipped gradients {weight.grad[0].item():.4g}")
