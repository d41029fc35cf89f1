"""Torch objects under the names that the example of Paddle's page uses, and ampscale's `GradScaler`."""

from types import SimpleNamespace

import torch

from ampscale.paddle import GradScaler


def _conv2d(in_channels: int, out_channels: int, kernel_size: int, bias_attr: bool = True) -> torch.nn.Conv2d:
    return torch.nn.Conv2d(in_channels, out_channels, kernel_size, bias=bias_attr)


def _sgd(learning_rate: float, parameters: object) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=learning_rate)


def _auto_cast() -> torch.autocast:
    return torch.autocast("cuda" if torch.cuda.is_available() else "cpu", dtype=torch.float16)


nn = SimpleNamespace(Conv2D=_conv2d)
optimizer = SimpleNamespace(SGD=_sgd)
amp = SimpleNamespace(GradScaler=GradScaler, auto_cast=_auto_cast)
rand, mean = torch.rand, torch.mean
