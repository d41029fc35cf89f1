"""
Communicators of ranks that share one loss scale. Each uses an engine, which is imported when the communicator is first used.

| name | engine |
|---|---|
| `TorchDistributed` | process groups of torch.distributed |
| `MPI` | mpi4py, for NumPy and CuPy arrays |
| `JaxAxis` | a mapped axis of JAX: `shard_map`, `pmap` and `vmap` |
| `SingleReplica` | none: one rank |

Spec: spec/60-replicas.md.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..core.replicas import Agreement, Communicator, RankError, SingleReplica

if TYPE_CHECKING:
    from .jax import JaxAxis
    from .mpi import MPI
    from .torch import TorchDistributed

_ENGINES = {"TorchDistributed": "torch", "MPI": "mpi4py", "JaxAxis": "jax"}
_MODULES = {"TorchDistributed": "torch", "MPI": "mpi", "JaxAxis": "jax"}  # also the extras that install the engines

__all__ = ["MPI", "Agreement", "Communicator", "JaxAxis", "RankError", "SingleReplica", "TorchDistributed"]
# help() and `import *` read every listed name, so only communicators whose engine is installed are listed.
__all__[:] = [name for name in __all__ if name not in _ENGINES or find_spec(_ENGINES[name])]


def __getattr__(name: str) -> Any:
    """Import the module of a communicator when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:  # `from ampscale.distributed import MPI` would hide the message of an AttributeError
        remedy = f'pip install "ampscale[{_MODULES[name]}]"'
        raise ModuleNotFoundError(f"{name} requires {error.name}: {remedy}", name=error.name) from error


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
