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
    "ampscale-mindspore-scaler": "ampscale_conformance.adapters.ampscale.scalers:DynamicLossScaler",
    "ampscale-mindspore-static": "ampscale_conformance.adapters.ampscale.scalers:StaticLossScaler",
    "ampscale-mindspore-manager": "ampscale_conformance.adapters.ampscale.scalers:DynamicLossScaleManager",
    "ampscale-mindspore-update-cell": "ampscale_conformance.adapters.ampscale.cells:UpdateCell",
    "ampscale-mindspore-cell": "ampscale_conformance.adapters.ampscale.cells:TrainOneStep",
    "ampscale-mindformers-cell": "ampscale_conformance.adapters.ampscale.cells:MFTrainOneStep",
    "ampscale-paddle": "ampscale_conformance.adapters.ampscale.scalers:PaddleGradScaler",
    "ampscale-torch-scaler": "ampscale_conformance.adapters.ampscale.torch_scaler:TorchGradScaler",
    "ampscale-mpi": "ampscale_conformance.adapters.ampscale.mpi:OnMPI",
    "torch": "ampscale_conformance.adapters.torch:Torch",
    "torch-fsdp1": "ampscale_conformance.adapters.torch_fsdp1:ShardedTorch",
    "lightning": "ampscale_conformance.adapters.trainers:Lightning",
    "accelerate": "ampscale_conformance.adapters.trainers:Accelerate",
    "paddle": "ampscale_conformance.adapters.paddle:Paddle",
    "paddle-as-it-is": "ampscale_conformance.adapters.paddle:PaddleAsItIs",
    "mindspore": "ampscale_conformance.adapters.mindspore:MindSpore",
    "mindspore-cell": "ampscale_conformance.adapters.mindspore:MindSporeCell",
    "keras": "ampscale_conformance.adapters.keras:Keras",
    "flax": "ampscale_conformance.adapters.flax:Flax",
    "jmp": "ampscale_conformance.adapters.jmp:Jmp",
    "optax": "ampscale_conformance.adapters.optax:Optax",
    "deepspeed": "ampscale_conformance.adapters.deepspeed:DeepSpeed",
    "megatron": "ampscale_conformance.adapters.megatron:Megatron",
}


def version_of(distribution: str) -> str:
    """Return the installed version of a distribution; "" if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
