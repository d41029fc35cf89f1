"""
Agreement of all ranks on the overflow flag of an optimizer.

Spec: TORCH-communicator, TORCH-dtensor-ranks, REPLICAS-agreement-first, REPLICAS-empty-ranks.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ...backends.torch.dtensor import has_dtensors, root_ranks
from ...backends.torch.groups import Ranks, group_of
from ...core.machine import LossScaleState
from ...core.replicas import Communicator
from ...core.rule import LossScaleRule
from ...core.validation import check_methods
from ...distributed.comparison import array_texts
from .._grad_scaler import OptimizerNumbers
from .optimizer_step import Gradients, found_inf_of, parameters_of


class RankAgreement:
    """Communicators of a scaler: the one that the caller passed, or if None, one for each set of ranks that share DTensors."""

    def __init__(self, communicator: Communicator | None) -> None:
        self._communicator = communicator
        self.is_given = communicator is not None
        if self.is_given:
            check_methods(communicator, "communicator", "mean", "agree", "check_same")
        self._created: dict[Ranks, Communicator] = {}  # communicators for DTensors, by the ranks that share them
        self._optimizer_numbers = OptimizerNumbers()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy, which creates its own communicators."""
        return {**self.__dict__, "_created": {}}

    def average(self, optimizer: Optimizer, rule: LossScaleRule) -> None:
        """
        Replace the gradients of *optimizer* in place by their mean over all ranks, if the caller's communicator averages them.

        DTensors are left unchanged: FSDP2 has averaged them.
        """
        if self._communicator is None:
            return
        params, gradients = parameters_of(optimizer), _gradients(optimizer)
        if has_dtensors(params):  # the parameters decide, since a rank can have no gradients
            is_plain = [not has_dtensors([param]) for param in params]
            if not any(is_plain):
                return
            gradients = [grad if plain else None for grad, plain in zip(gradients, is_plain, strict=True)]
        self._record_settings(self._communicator, optimizer, rule)
        means = self._communicator.mean(gradients)
        if means is not gradients:
            targets = [grad for grad in gradients if grad is not None]
            torch._foreach_copy_(targets, [mean for mean in means if mean is not None])

    def found_inf(
        self, optimizer: Optimizer, gradients: Gradients, found_inf: Tensor | None, state: LossScaleState, rule: LossScaleRule
    ) -> tuple[Tensor | None, bool | None]:
        """
        Return the flag of all ranks that share the gradients of *optimizer*; *found_inf* itself if only this rank has them.

        The flag is None if no rank has gradients. The second result is a bool, True for finite gradients, if the communicator has
        read the flag on the host; else None. A RankError is raised if the ranks have different scales, rules or optimizers.
        """
        communicator = self._communicator_of(optimizer, gradients) if self._communicator is None else self._communicator
        if communicator is None:
            return found_inf, None
        self._record_settings(communicator, optimizer, rule)
        finite = torch.ones_like(state.scale, dtype=torch.bool) if found_inf is None else found_inf == 0
        compared = _gradients(optimizer) if gradients.arrays else []  # a rank may have no gradients at all
        agreement = communicator.agree(finite, state._asdict(), compared)
        if not agreement.has_gradients:
            return None, None
        return found_inf_of(agreement.finite), getattr(agreement, "is_finite", None)

    def _record_settings(self, communicator: Communicator, optimizer: Optimizer, rule: LossScaleRule) -> None:
        """Record the settings that ranks compare: rule, number of *optimizer*, and at its first use, its shared parameters."""
        number, is_new = self._optimizer_numbers.number(communicator, optimizer)
        parameters = _shared_parameters(communicator, optimizer) if is_new else []
        communicator.check_same(rule=rule, optimizer=number, parameters=parameters)

    def _communicator_of(self, optimizer: Optimizer, gradients: Gradients) -> Communicator | None:
        """Return a communicator of the ranks that share DTensor parameters of *optimizer*; None without DTensors."""
        params = parameters_of(optimizer)
        every_gradient_is_plain = gradients.at_once and not gradients.shards and len(gradients.arrays) == len(params)
        if every_gradient_is_plain or not has_dtensors(params):
            return None
        ranks = root_ranks(params)
        if ranks not in self._created:
            from ...distributed.torch import TorchDistributed

            self._created[ranks] = TorchDistributed(group_of(ranks), gradients="distinct")
        return self._created[ranks]


def _gradients(optimizer: Optimizer) -> list[Tensor | None]:
    """Return the gradient of each parameter. Ranks with equal parameters also compare which of the gradients are None."""
    return [param.grad for param in parameters_of(optimizer)]


def _shared_parameters(communicator: Communicator, optimizer: Optimizer) -> list[str]:
    """Return dtype and shape of each parameter that is a DTensor on a mesh of all ranks, and so belongs to every rank."""
    dtensors = [param for param in parameters_of(optimizer) if has_dtensors([param])]
    ranks = frozenset(getattr(communicator, "ranks", ()))
    shared = [param for param in dtensors if root_ranks([param]) == ranks and param.device_mesh.size() == len(ranks)]
    return array_texts(shared, shapes=True)
