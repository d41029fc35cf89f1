"""Meshes of four ranks, which all tests share, and parameters that are DTensors on them."""

from functools import cache

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

INF, NAN = float("inf"), float("nan")


@cache
def line():
    """Return a mesh of one dimension with all ranks."""
    return init_device_mesh("cpu", (4,))


@cache
def square():
    """Return a mesh of two dimensions with all ranks."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def parameter(gradient, mesh, *placements):
    """Return a parameter of ones; *gradient* is the local shard of its gradient. By default, the first dimension is sharded."""
    placements = placements or [Shard(0)] * mesh.ndim
    result = torch.nn.Parameter(DTensor.from_local(torch.ones_like(gradient), mesh, placements))
    result.grad = DTensor.from_local(gradient, mesh, placements)
    return result


def local(tensor):
    """Return the shard of a DTensor on this rank. Return any other tensor unchanged."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def full(tensor):
    """Return a DTensor as a whole tensor. Return any other tensor unchanged."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
