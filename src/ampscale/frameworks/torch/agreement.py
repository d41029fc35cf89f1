"""
Agreement of all ranks on the overflow flag of an optimizer.

Spec: TORCH-communicator, TORCH-dtensor-ranks, REPLICAS-agreement-first, REPLICAS-empty-ranks.
"""

from typing import Any

import torch

from ...backends.torch.dtensor import Ranks, group_of, has_dtensors, root_ranks
from ...core.machine import LossScaleState
from ...core.replicas import Communicator
from ...core.rule import LossScaleRule
from ...core.validation import check_methods
from .optimizer_step import Gradients, found_inf_of


class RankAgreement:
    """
    Communicators of a scaler: the caller's, or one for each set of ranks that have the DTensors of an optimizer.

    Args:
        communicator: Combines the flags of all optimizers; None to use the ranks of their DTensors.
    """

    def __init__(self, communicator: Communicator | None) -> None:
        self._communicator, self.is_given = communicator, communicator is not None
        if self.is_given:
            check_methods(communicator, "communicator", "mean", "agree", "check_same")
        self._of_ranks: dict[Ranks, Communicator] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy, which creates communicators of its own."""
        return {**self.__dict__, "_of_ranks": {}}

    def average(self, gradients: Gradients, rule: LossScaleRule) -> None:
        """
        Replace *gradients* in place by their mean over all ranks, if the caller's communicator averages them.

        Trees with DTensors are left as they are: FSDP2 has averaged them.
        """
        if self._communicator is not None and not gradients.shards:
            self._communicator.check_same(rule=rule)
            means = self._communicator.mean(gradients.arrays)
            if means is not gradients.arrays:
                torch._foreach_copy_(gradients.arrays, means)

    def found_inf(
        self,
        optimizer: torch.optim.Optimizer,
        gradients: Gradients,
        found_inf: torch.Tensor | None,
        state: LossScaleState,
        rule: LossScaleRule,
    ) -> torch.Tensor | None:
        """
        Return the flag of all ranks that share the gradients of *optimizer*; *found_inf* itself if only this rank has them.

        Args:
            optimizer: Optimizer with unscaled gradients.
            gradients: Its gradients.
            found_inf: float32, shape (), 1.0 for an overflow on this rank; None without gradients.
            state: Scale and counts, which all ranks must share.
            rule: Constants of the scaler, which all ranks must share.

        Returns:
            float32 of shape () on the device of the scale; None if no rank has gradients.

        Raises:
            RankError: The ranks have other scales, counts or rules, or one does not respond.
        """
        communicator = self._communicator_of(optimizer, gradients) if self._communicator is None else self._communicator
        if communicator is None:
            return found_inf
        communicator.check_same(rule=rule)
        finite = torch.ones_like(state.scale, dtype=torch.bool) if found_inf is None else found_inf == 0
        agreement = communicator.agree(finite, state._asdict(), gradients.arrays)
        return found_inf_of(agreement.finite) if agreement.has_gradients else None

    def _communicator_of(self, optimizer: torch.optim.Optimizer, gradients: Gradients) -> Communicator | None:
        """Return a communicator of the ranks that have DTensors of *optimizer*, with or without gradients; None without any."""
        groups = optimizer.param_groups
        if gradients.at_once and not gradients.shards and len(gradients.arrays) == sum(len(group["params"]) for group in groups):
            return None  # every parameter has a plain gradient
        params = [param for group in groups for param in group["params"]]
        if not has_dtensors(params):
            return None
        ranks = root_ranks(params)
        if ranks not in self._of_ranks:
            from ...distributed.torch import TorchDistributed

            self._of_ranks[ranks] = TorchDistributed(group_of(ranks), gradients="distinct")
        return self._of_ranks[ranks]
