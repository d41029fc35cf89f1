"""
Adapters that ship: the published scalers as they are installed, and ampscale's own.

A module is imported when it is asked for, and the library that it speaks to when it is first used. In an environment without
that library the module can still be imported; its adapter says no version and cannot be run.
"""

from importlib.metadata import PackageNotFoundError, version

# By name: where each one is, as `python -m ampscale.conformance` takes it.
SHIPPED = {
    "ampscale-numpy": "ampscale.conformance.adapters.ampscale:NUMPY",
    "ampscale-torch": "ampscale.conformance.adapters.ampscale:TORCH",
    "ampscale-jax": "ampscale.conformance.adapters.ampscale:JAX",
    "ampscale-cupy": "ampscale.conformance.adapters.ampscale:CUPY",
    "ampscale-mindspore-scaler": "ampscale.conformance.adapters.ampscale_scalers:DYNAMIC_LOSS_SCALER",
    "ampscale-mindspore-static": "ampscale.conformance.adapters.ampscale_scalers:STATIC_LOSS_SCALER",
    "ampscale-mindspore-manager": "ampscale.conformance.adapters.ampscale_scalers:DYNAMIC_LOSS_SCALE_MANAGER",
    "ampscale-mindspore-update-cell": "ampscale.conformance.adapters.ampscale_cells:UPDATE_CELL",
    "ampscale-mindspore-cell": "ampscale.conformance.adapters.ampscale_cells:TRAIN_ONE_STEP",
    "ampscale-mindformers-cell": "ampscale.conformance.adapters.ampscale_cells:MF_TRAIN_ONE_STEP",
    "ampscale-paddle": "ampscale.conformance.adapters.ampscale_scalers:PADDLE_GRAD_SCALER",
    "ampscale-torch-scaler": "ampscale.conformance.adapters.ampscale_torch:ADAPTER",
    "torch": "ampscale.conformance.adapters.torch:ADAPTER",
    "paddle": "ampscale.conformance.adapters.paddle:ADAPTER",
    "paddle-as-it-is": "ampscale.conformance.adapters.paddle:AS_IT_IS",
    "mindspore": "ampscale.conformance.adapters.mindspore:ADAPTER",
    "mindspore-cell": "ampscale.conformance.adapters.mindspore:CELL",
    "keras": "ampscale.conformance.adapters.keras:ADAPTER",
    "flax": "ampscale.conformance.adapters.flax:ADAPTER",
    "jmp": "ampscale.conformance.adapters.jmp:ADAPTER",
    "optax": "ampscale.conformance.adapters.optax:ADAPTER",
    "deepspeed": "ampscale.conformance.adapters.deepspeed:ADAPTER",
    "megatron": "ampscale.conformance.adapters.megatron:ADAPTER",
}


def version_of(distribution: str) -> str:
    """The version that is installed here; empty where there is none."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
