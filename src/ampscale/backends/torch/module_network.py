"""Network that wraps a torch module."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from ...core.trees import zip_leaves
from ...core.typing import Array, Tree
from ...core.validation import check_loss


class ModuleNetwork:
    """
    Network that wraps a module which returns its loss.

    `params` maps the names of the parameters that require gradients to their values. The values are not copies, so they change
    if an optimizer updates the module; setting `params` writes the new values into the module.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, *inputs: Any) -> Array:
        """Return the loss for the current parameters."""
        return self.module(*inputs)

    @property
    def params(self) -> dict[str, Array]:
        """Return the parameters by name: floating-point arrays of any shape."""
        return {name: param.detach() for name, param in self.module.named_parameters() if param.requires_grad}

    @params.setter
    def params(self, params: dict[str, Array]) -> None:
        pairs = zip_leaves(self.params, params)
        for name, (value, new) in zip(self.params, pairs, strict=True):
            if new is None or new.shape != value.shape:
                actual = None if new is None else tuple(new.shape)
                raise ValueError(f"params[{name!r}] must have shape {tuple(value.shape)}, got {actual}")
        for value, new in pairs:
            value.copy_(new)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the `torch.nn.Parameter` objects, in the order of `params`."""
        return [param for param in self.module.parameters() if param.requires_grad]

    def vjp(self, params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
        """
        Return the loss for *params*, and a function that maps an output cotangent to gradients and can be called once.

        Gradients are dense or sparse, as torch returns them, and None if the loss does not depend on a parameter. Every call
        updates the module's buffers, such as running means. torch.compile supports this method only with
        ``torch._dynamo.config.trace_autograd_ops``.

        Raises:
            TypeError: *params* is not a dict, the module returned something other than one array, or it was sharded by
                `fully_shard`.
            RuntimeError: `torch.inference_mode` is enabled.
        """
        if not isinstance(params, dict):
            expected = "a dict for a module, {name: value.detach() for name, value in module.named_parameters()}"
            raise TypeError(f"params must be {expected}, got {type(params).__name__}")
        if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled():
            raise RuntimeError("a module must be trained outside of torch.inference_mode(), in which torch computes no gradients")
        _check_not_fully_sharded(self.module)
        originals = [(submodule, dict(submodule._parameters)) for submodule in self.module.modules()]
        try:
            with torch.enable_grad():
                values = {name: param.detach().requires_grad_() for name, param in params.items()}
                loss = torch.func.functional_call(self.module, values, inputs)
        except BaseException:  # torch restores the parameters too, but an interrupt can stop it halfway
            for submodule, parameters in originals:
                submodule._parameters.update(parameters)
            raise
        check_loss(loss)

        def pullback(seed: Array) -> Tree:
            if not (values and loss.requires_grad):
                return dict.fromkeys(values)
            gradients = torch.autograd.grad(loss, list(values.values()), seed.to(loss.dtype), allow_unused=True)
            return dict(zip(values, gradients, strict=True))

        return loss.detach(), pullback


def _check_not_fully_sharded(module: torch.nn.Module) -> None:
    """Raise a TypeError for FSDP2, whose hooks replace parameters during a pass and write the gradients into `grad`."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and any(isinstance(submodule, fsdp.FSDPModule) for submodule in module.modules()):
        raise TypeError("train_step does not support modules sharded by fully_shard; train them with ampscale.torch.GradScaler")
