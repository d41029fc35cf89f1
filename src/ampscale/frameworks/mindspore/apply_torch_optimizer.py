"""
How torch's own optimizers take part in a cell: parameter groups, sparse gradients, and fused ones that skip by themselves.

Spec: STEP-two-modes, STEP-skip.
"""

from collections.abc import Callable
from typing import Any

import torch

from ... import functional
from ...backends.torch.module_network import ModuleNetwork
from ...core.trees import leaves, zip_leaves
from ...core.typing import Flag, Tree
from ..torch.optimizer_step import found_from, step_unless_found


class TorchApplier:
    """
    A `torch.optim.Optimizer` that moves the parameters of a network.

    The `grad` of a parameter is the step's: it is set for the optimizer, in the parameter's dtype, and None afterwards.

    Raises:
        ValueError: The optimizer has a parameter that is not the network's, whose gradient nobody would give.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, network: Any) -> None:
        self._optimizer = optimizer
        self._network = network
        known = {id(param) for param in _all_parameters(network)}
        strangers = sum(id(param) not in known for group in optimizer.param_groups for param in group["params"])
        if strangers:
            raise ValueError(f"optimizer must hold parameters of the network only, got {strangers} that are not the network's")

    @property
    def learning_rate(self) -> Any:
        """The rate that all parameter groups have; where they differ, one for each: float32, shape (groups,)."""
        first, *others = (group["lr"] for group in self._optimizer.param_groups)
        if all(_same(first, rate) for rate in others):
            return first
        return torch.stack([torch.as_tensor(rate, dtype=torch.float32).reshape(()) for rate in (first, *others)])

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        """Return what steps where a flag is True, and all gradients stay finite in the dtypes of their parameters."""
        parameters = _parameters(self._network)
        given = [gradient for _, gradient in zip_leaves(self._network.params, gradients)]
        rounded = [_rounded(gradient, parameter) for gradient, parameter in zip(given, parameters, strict=True)]
        narrowed = [new for new, old in zip(rounded, given, strict=True) if new is not old]
        still_finite = functional.all_finite(narrowed) if narrowed else True

        def apply(finite: Flag) -> Flag:
            try:
                for parameter, gradient in zip(parameters, rounded, strict=True):
                    parameter.grad = gradient
                return step_unless_found(self._optimizer, found_from(torch.as_tensor(finite) & still_finite), (), {})
            finally:
                for parameter in parameters:
                    parameter.grad = None

        return apply


def _rounded(gradient: torch.Tensor | None, parameter: torch.Tensor) -> torch.Tensor | None:
    return None if gradient is None else gradient.to(parameter.dtype)


def _parameters(network: Any) -> list[torch.Tensor]:
    """The parameters that the network has gradients for, themselves."""
    return list(network.parameters) if isinstance(network, ModuleNetwork) else leaves(network.params)


def _all_parameters(network: Any) -> list[torch.Tensor]:
    """With those that are frozen at present."""
    return list(network.module.parameters()) if isinstance(network, ModuleNetwork) else leaves(network.params)


def _same(one: Any, other: Any) -> bool:
    """Whether two rates are known to be the same; the values of tensors are not looked at."""
    return one is other or (not isinstance(one, torch.Tensor) and not isinstance(other, torch.Tensor) and one == other)
