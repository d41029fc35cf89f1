"""A torch module as a network."""

from collections.abc import Callable
from typing import Any

import torch

from ...core.trees import zip_leaves
from ...core.typing import Array, Tree
from ...core.validation import check_loss


class ModuleNetwork:
    """
    A module that returns its loss.

    `params` are the values of its parameters that require gradients, by name: not copies, so that what an optimizer moves
    is moved here. Setting them writes the new values into the module.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, *inputs: Any) -> Array:
        """The loss of the current parameters."""
        return self.module(*inputs)

    @property
    def params(self) -> dict[str, Array]:
        """The parameters by name: any shape, floating-point."""
        return {name: param.detach() for name, param in self.module.named_parameters() if param.requires_grad}

    @params.setter
    def params(self, params: dict[str, Array]) -> None:
        pairs = zip_leaves(self.params, params)
        for value, new in pairs:
            if new is None or new.shape != value.shape:
                got = "None" if new is None else str(tuple(new.shape))
                raise ValueError(f"params must have an array of shape {tuple(value.shape)} for this parameter, got {got}")
        for value, new in pairs:
            value.copy_(new)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters themselves, each with `grad`, in the same order."""
        return [param for param in self.module.parameters() if param.requires_grad]

    def vjp(self, params: dict[str, Array], *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
        """
        The loss of *params*, and what turns a seed into gradients, once: dense or sparse, as torch gives them, and None
        where the loss does not depend on a parameter.

        Buffers, such as running means, are the module's own, and move with every call. torch.compile follows with
        ``torch._dynamo.config.trace_autograd_ops`` only.

        Raises:
            TypeError: The module returned something else than one array.
        """
        holders = [(holder, dict(holder._parameters)) for holder in self.module.modules()]
        try:
            with torch.enable_grad():
                values = {name: param.detach().requires_grad_() for name, param in params.items()}
                loss = torch.func.functional_call(self.module, values, inputs)
        except BaseException:  # torch puts the parameters back as well, but not after an interrupt in the midst of that
            for holder, parameters in holders:
                holder._parameters.update(parameters)
            raise
        check_loss(loss)

        def pullback(seed: Array) -> Tree:
            if not (values and loss.requires_grad):
                return dict.fromkeys(values)
            gradients = torch.autograd.grad(loss, list(values.values()), seed.to(loss.dtype), allow_unused=True)
            return dict(zip(values, gradients, strict=True))

        return loss.detach(), pullback
