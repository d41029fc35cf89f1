"""Interface of the monitors that both `GradScaler` classes accept."""

from typing import Any, Protocol

from ..core.typing import Array, Flag


class Monitor(Protocol):
    """
    Object that observes the steps of a `GradScaler`.

    Subclassing is not required: every object with these methods is a monitor. It must not change what it receives.
    """

    def observe_loss(self, loss: Array) -> None:
        """Observe an array that is scaled, usually the loss; with accumulation, one for each micro-batch."""

    def begin(
        self, gradients: list[Array], scale: Any, owner: Any, *, stale: bool, modified: bool, change: float | None = None
    ) -> None:
        """
        Observe the scaled gradients of an optimizer before they are averaged over ranks and unscaled.

        An error that this method raises prevents the unscaling. A begin without an end belongs to gradients that no update
        counted: unscaling was interrupted, there were no gradients on any rank, or `abandon` was called.

        Args:
            gradients: Gradients that are not None: local shards of DTensors, values of sparse tensors, other arrays themselves.
            scale: Copy of the scale: an array or a number.
            owner: The optimizer.
            stale: True if a gradient was accumulated into the gradient of the step before, which was not set to zero. False if
                that is unknown.
            modified: True if a gradient was changed after the backward pass. False if that is unknown.
            change: Factor by which that changed the norm of a gradient, from the second such step on; None if unknown.
        """

    def end(self, scale: Any, next_scale: Any, finite: Flag, applied: Flag, gradients: list[Array], owner: Any) -> None:
        """
        Observe the end of an iteration, once for each optimizer with gradients, after `update` has written the scale.

        Args:
            scale: Scale of the iteration, as passed to `begin`.
            next_scale: Copy of the new scale.
            finite: True if the gradients of all ranks were finite, as recorded when they were unscaled.
            applied: True if the optimizer stepped.
            gradients: The arrays as they are now: unscaled, and with all changes since.
            owner: The optimizer.
        """
