"""
DTensors: functions run on the local shards of a tree, and their results are combined over the ranks of its device meshes.

If a mesh is a slice of another mesh, a flag is combined over the whole mesh, because its ranks train together. A norm includes
only the arrays in the tree, so that pipeline stages on slices of one mesh can have different arrays.

Spec: REPLICAS-nan-survives, REPLICAS-mixed-placements, REPLICAS-mixed-meshes, REPLICAS-copies-counted-once,
REPLICAS-sharded-norm.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist

from ...core.norms import LiftedNorm, norm_dtype, norm_of_sums, square_sums
from ...core.trees import leaves, leaves_with_paths, unflatten
from ...core.typing import Array, Flag, Scale, Tree
from .groups import Ranks
from .timed_group import all_reduce

DTENSORS = "torch.distributed.tensor"  # without this module, no tensor can be a DTensor


def has_dtensors(tensors: Iterable[Array]) -> bool:
    """Return True if one of *tensors* is a DTensor. This check does not import `DTENSORS`, which takes a second."""
    module = sys.modules.get(DTENSORS)
    return module is not None and any(issubclass(cls, module.DTensor) for cls in set(map(type, tensors)))


class Shards:
    """
    Local shards of a tree with DTensors. Plain tensors in the tree must be equal on all ranks, and stay as they are.

    Args:
        tree: Tensors, of which at least one is a DTensor. Partial placements are reduced to replicated ones.
        name: Name of *tree* for an error message, or None. A name means that the tensors will be written in place.

    Raises:
        TypeError: *name* is given, and a DTensor has a partial placement.

    Spec: TORCH-dtensor-functions, TORCH-dtensor-partial.
    """

    def __init__(self, tree: Tree, name: str | None = None) -> None:
        if name is not None:
            for path, tensor in leaves_with_paths(tree, name):
                check_not_partial(tensor, path)
        self._tree, self._tensors = tree, list(map(reduced, leaves(tree)))
        self.local = unflatten(tree, map(local_part, self._tensors))

    def check_placed_as(self, other: "Shards", name: str) -> None:
        """Raise a ValueError unless the arrays of this tree, called *name*, have the meshes and placements of *other*."""
        paths = [path for path, _ in leaves_with_paths(self._tree, name)]
        for path, tensor, expected in zip(paths, self._tensors, other._tensors, strict=True):
            if _placement(tensor) != _placement(expected):
                remedy = "; call redistribute() on it first" if _is_dtensor(tensor) and _is_dtensor(expected) else ""
                raise ValueError(f"{path} must be {_kind(expected)}, like the array of the tree, got {_kind(tensor)}{remedy}")

    def wrapped(self, local: Tree) -> Tree:
        """Return a tree of DTensors whose local shards are in *local*, with the placements of this tree."""
        return unflatten(self._tree, map(_wrapped, leaves(local), self._tensors))

    def all_finite(self, finite: Flag, scale: Scale | None = None) -> Flag:
        """Return True on all ranks if *finite* is True on all. With gloo, raise a RankError if their *scale* differs."""
        overflows = finite.logical_not().to(torch.int32).reshape(1)
        return _summed(overflows, root_ranks(self._tensors), "overflow check", scale).reshape(()) == 0

    def norm(self, operation: str = "norm") -> LiftedNorm:
        """Return the global norm of the tree, with the same bits on all ranks. With gloo, the ranks compare *operation*."""
        parts = [part.detach() for part in leaves(self.local)]
        return norm_of_sums(self._summed(square_sums(parts, self._copies()), operation), self._tensors)

    def norms(self) -> list[LiftedNorm]:
        """Return the norm of each array in the dtype of the global norm, with the same bits on all ranks."""
        dtype: torch.dtype = getattr(torch, norm_dtype(self._tensors))
        complex_dtype = torch.promote_types(dtype, torch.complex64)
        parts = [part.detach().to(complex_dtype if part.is_complex() else dtype) for part in leaves(self.local)]
        rows = [square_sums([part], [copies]) for part, copies in zip(parts, self._copies(), strict=True)]
        sums = self._summed(torch.cat(rows), "local norms").split(list(map(len, rows)))
        empty = torch.empty(0, dtype=dtype)  # widens each norm to the common dtype
        zero = torch.zeros_like(sums[0][:1])  # sum of the squares of *empty*
        return [norm_of_sums(torch.cat([row, zero]), [part, empty]) for row, part in zip(sums, leaves(self.local), strict=True)]

    def _summed(self, squares: Array, name: str) -> Array:
        """Overwrite *squares* with their sums over the ranks of the tree, and return them."""
        operation = f"{name} (arrays: {len(self._tensors)}, dtype: {norm_dtype(self._tensors)})"
        return _summed(squares, _tree_ranks(self._tensors), operation)

    def _copies(self) -> list[int]:
        """Return, for each array, the number of ranks that store a copy of each value."""
        ranks = _tree_ranks(self._tensors)
        holder_counts = {mesh: len(ranks & _ranks_host(mesh._get_root_mesh())) for mesh in _meshes(self._tensors)}
        return [
            holder_counts[tensor.device_mesh] // _shards(tensor) if _is_dtensor(tensor) else len(ranks)
            for tensor in self._tensors
        ]


def check_not_partial(tensor: Array, name: str) -> None:
    """Raise a TypeError if *tensor*, which will be written in place, is a DTensor with a partial placement."""
    if _is_partial(tensor):
        raise TypeError(
            f"{name} must be sharded or replicated to be written in place, got placements {tuple(tensor.placements)}: "
            "its value is the sum of all ranks' parts; call redistribute() first"
        )


def reduced(tensor: Array) -> Array:
    """Return *tensor*, with its partial placements reduced to replicated ones."""
    if not _is_partial(tensor):
        return tensor
    from torch.distributed.tensor import Replicate

    return tensor.redistribute(placements=[Replicate() if item.is_partial() else item for item in tensor.placements])


def local_part(tensor: Array) -> Array:
    """Return this rank's shard of a DTensor, which shares memory with the DTensor; return any other tensor unchanged."""
    return tensor.to_local() if _is_dtensor(tensor) else tensor


def copies_in_mesh(tensor: Array) -> int:
    """Return the number of ranks in the mesh of a DTensor that store a copy of each value; 1 for any other tensor."""
    return tensor.device_mesh.size() // _shards(tensor) if _is_dtensor(tensor) else 1


def root_ranks(tensors: Iterable[Array]) -> Ranks:
    """Return the ranks of the meshes of all DTensors in *tensors*. A slice of a mesh counts as the whole mesh."""
    return frozenset[int]().union(*(_ranks_host(mesh._get_root_mesh()) for mesh in _meshes(tensors)))


def _is_dtensor(tensor: Array) -> bool:
    return has_dtensors([tensor])


def _summed(values: Array, ranks: Ranks, operation: str, scale: Scale | None = None) -> Array:
    """Overwrite *values* with their sum over *ranks*, and return them. On a rank that is not in *ranks*, leave them unchanged."""
    if dist.get_rank() in ranks:
        all_reduce(values, ranks, operation, scale)
    return values


def _tree_ranks(tensors: Sequence[Array]) -> Ranks:
    """Return the ranks over which squares are added: those of a mesh that contains all other meshes, or else `root_ranks`."""
    largest = max((_ranks_host(mesh) for mesh in _meshes(tensors)), key=len)
    return largest if all(_ranks_host(mesh) <= largest for mesh in _meshes(tensors)) else root_ranks(tensors)


def _meshes(tensors: Iterable[Array]) -> set[Any]:
    return {tensor.device_mesh for tensor in tensors if _is_dtensor(tensor)}


@lru_cache
def _ranks_host(mesh: Any) -> Ranks:
    return frozenset(mesh.mesh.flatten().tolist())


def _shards(tensor: Array) -> int:
    """Return the number of parts into which a DTensor is divided."""
    mesh = tensor.device_mesh
    return math.prod(mesh.size(axis) for axis, placement in enumerate(tensor.placements) if not placement.is_replicate())


def _is_partial(tensor: Array) -> bool:
    return _is_dtensor(tensor) and any(placement.is_partial() for placement in tensor.placements)


def _placement(tensor: Array) -> Any:
    return (tensor.device_mesh, tensor.placements) if _is_dtensor(tensor) else None


def _kind(tensor: Array) -> str:
    """Return the kind of a tensor for an error message, with the placements and the mesh of a DTensor."""
    return f"a DTensor with placements {tensor.placements} on {tensor.device_mesh}" if _is_dtensor(tensor) else "a plain tensor"


def _wrapped(local: Array, like: Array) -> Array:
    """Return a DTensor with the local shard *local* and the placements of *like*; *local* itself if *like* is not a DTensor."""
    if not _is_dtensor(like):
        return local
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride())
