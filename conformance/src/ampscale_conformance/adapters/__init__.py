"""
Adapters that ship: the published scalers as they are installed, and ampscale's own.

A module is imported when it is asked for, and the library that it speaks to when it is first used. In an environment without
that library the module can still be imported; its adapter says no version and cannot be run.
"""

from importlib.metadata import PackageNotFoundError, version

# By name: where each one is, as `python -m ampscale_conformance` takes it.
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
    "torch": "ampscale_conformance.adapters.torch:ADAPTER",
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
    """The version that is installed here; empty where there is none."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
