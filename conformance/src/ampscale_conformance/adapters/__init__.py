"""
Shipped adapters: the published scalers as installed, and ampscale's own.

An adapter's module is imported on request, and its library at the first use. Without the library the module can still be
imported; its adapter has an empty version and cannot run.
"""

from importlib.metadata import PackageNotFoundError, version

# Location of each adapter by name, in the form that `python -m ampscale_conformance` accepts.
SHIPPED = {
    "ampscale-numpy": "ampscale_conformance.adapters.ampscale.backends:NUMPY",
    "ampscale-torch": "ampscale_conformance.adapters.ampscale.backends:TORCH",
    "ampscale-jax": "ampscale_conformance.adapters.ampscale.backends:JAX",
    "ampscale-cupy": "ampscale_conformance.adapters.ampscale.backends:CUPY",
    "ampscale-mindspore-scaler": "ampscale_conformance.adapters.ampscale.scalers:DYNAMIC_LOSS_SCALER",
    "ampscale-mindspore-static": "ampscale_conformance.adapters.ampscale.scalers:STATIC_LOSS_SCALER",
    "ampscale-mindspore-manager": "ampscale_conformance.adapters.ampscale.scalers:DYNAMIC_LOSS_SCALE_MANAGER",
    "ampscale-mindspore-update-cell": "ampscale_conformance.adapters.ampscale.cells:UPDATE_CELL",
    "ampscale-mindspore-cell": "ampscale_conformance.adapters.ampscale.cells:TRAIN_ONE_STEP",
    "ampscale-mindformers-cell": "ampscale_conformance.adapters.ampscale.cells:MF_TRAIN_ONE_STEP",
    "ampscale-paddle": "ampscale_conformance.adapters.ampscale.scalers:PADDLE_GRAD_SCALER",
    "ampscale-torch-scaler": "ampscale_conformance.adapters.ampscale.torch_scaler:ADAPTER",
    "ampscale-mpi": "ampscale_conformance.adapters.ampscale.mpi:ADAPTER",
    "torch": "ampscale_conformance.adapters.torch:ADAPTER",
    "torch-fsdp1": "ampscale_conformance.adapters.torch_fsdp1:ADAPTER",
    "lightning": "ampscale_conformance.adapters.trainers:LIGHTNING",
    "accelerate": "ampscale_conformance.adapters.trainers:ACCELERATE",
    "paddle": "ampscale_conformance.adapters.paddle:ADAPTER",
    "paddle-as-it-is": "ampscale_conformance.adapters.paddle:AS_IT_IS",
    "mindspore": "ampscale_conformance.adapters.mindspore:ADAPTER",
    "mindspore-cell": "ampscale_conformance.adapters.mindspore:CELL",
    "keras": "ampscale_conformance.adapters.keras:ADAPTER",
    "flax": "ampscale_conformance.adapters.flax:ADAPTER",
    "jmp": "ampscale_conformance.adapters.jmp:ADAPTER",
    "optax": "ampscale_conformance.adapters.optax:ADAPTER",
    "deepspeed": "ampscale_conformance.adapters.deepspeed:ADAPTER",
    "megatron": "ampscale_conformance.adapters.megatron:ADAPTER",
}


def version_of(distribution: str) -> str:
    """Return the installed version of a distribution; "" if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
