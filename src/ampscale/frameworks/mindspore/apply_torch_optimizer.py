"""
Wrapper of torch's optimizers: supports parameter groups, sparse gradients, and fused optimizers that skip a step on the device.

Spec: STEP-two-modes, STEP-skip.
"""

from collections.abc import Callable
from typing import Any

import torch

from ... import functional
from ...backends.torch.module_network import ModuleNetwork
from ...core.trees import leaves, zip_leaves
from ...core.typing import Flag, Tree
from ..torch.optimizer_step import found_inf_of, parameters_of, step_if_finite


class TorchOptimizer:
    """
    Wrapper of a `torch.optim.Optimizer` that updates the parameters of a network.

    A step assigns each gradient to the `grad` of its parameter, in the parameter's dtype, and sets `grad` to None afterwards.

    Raises:
        ValueError: The optimizer holds a parameter that does not belong to the network, and so would never have a gradient.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, network: Any) -> None:
        self._optimizer = optimizer
        self._network = network
        all_parameters = network.module.parameters() if isinstance(network, ModuleNetwork) else leaves(network.params)
        network_ids = {id(parameter) for parameter in all_parameters}
        foreign = [parameter for parameter in parameters_of(optimizer) if id(parameter) not in network_ids]
        if foreign:
            raise ValueError(f"optimizer must have only parameters of the network, got {len(foreign)} that do not belong to it")

    @property
    def learning_rate(self) -> Any:
        """Return the learning rate of the next step, or a float32 tensor of shape (groups,) if the groups can have several."""
        first, *others = (group["lr"] for group in self._optimizer.param_groups)
        if all(_are_known_equal(first, rate) for rate in others):
            return first
        return torch.stack([torch.as_tensor(rate, dtype=torch.float32).reshape(()) for rate in (first, *others)])

    def fits(self, gradients: Tree, max_norm: float | None) -> Flag:
        """
        Return True if no gradient will overflow in the dtype of its parameter.

        The ranks combine this flag with the finite flag, since a rank with float16 parameters would otherwise skip alone. If
        *max_norm* is a number, the gradients will be clipped to this global norm, so a dtype that can hold *max_norm* is safe.
        """
        _, changed = self._cast(gradients)
        unsafe = [gradient for gradient in changed if max_norm is None or max_norm > torch.finfo(gradient.dtype).max]
        return functional.all_finite(unsafe) if unsafe else True

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        """Return a function that steps if its argument is True and no gradient overflows in the dtype of its parameter."""
        parameters = _trainable_parameters(self._network)
        casts, changed = self._cast(gradients)
        still_finite = functional.all_finite(changed) if changed else True

        def apply(finite: Flag) -> Flag:
            try:
                for parameter, gradient in zip(parameters, casts, strict=True):
                    parameter.grad = gradient
                flag = torch.as_tensor(finite, device=getattr(finite, "device", "cpu"))
                return step_if_finite(self._optimizer, found_inf_of(flag & still_finite), (), {})
            finally:
                for parameter in parameters:
                    parameter.grad = None

        return apply

    def _cast(self, gradients: Tree) -> tuple[list[torch.Tensor | None], list[torch.Tensor]]:
        """Return each gradient in the dtype of its parameter; and, of these results, those whose dtype has changed."""
        inputs = [gradient for _, gradient in zip_leaves(self._network.params, gradients)]
        dtypes = [parameter.dtype for parameter in _trainable_parameters(self._network)]
        casts = [None if gradient is None else gradient.to(dtype) for gradient, dtype in zip(inputs, dtypes, strict=True)]
        return casts, [new for new, old in zip(casts, inputs, strict=True) if new is not None and new is not old]


def _trainable_parameters(network: Any) -> list[torch.Tensor]:
    """Return the parameters that the network computes gradients for: the objects themselves, not detached copies."""
    return list(network.parameters) if isinstance(network, ModuleNetwork) else leaves(network.params)


def _are_known_equal(left: Any, right: Any) -> bool:
    """Return True if two learning rates are equal. Distinct tensors count as unequal: a comparison would synchronize."""
    has_tensor = isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor)
    return left is right or (not has_tensor and left == right)
