"""Parts of torch's and Paddle's `GradScaler` that do not depend on an array library."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import finalize

from ..core.replicas import Communicator
from ..core.typing import Array, Flag
from ._calls import UNSCALING, Site


class Monitor(Protocol):
    """
    Object that observes the steps of a `GradScaler`.

    Subclassing is not required: every object with these methods is a monitor. A monitor must not change its arguments.
    """

    def observe_loss(self, loss: Array) -> None:
        """
        Observe an array before it is scaled, usually the loss; with gradient accumulation, the loss of each micro-batch.

        Tensors of torch that do not require a gradient, such as the loss of an evaluation, are not passed.
        """

    def begin(
        self, gradients: list[Array], scale: Any, owner: Any, *, stale: bool, modified: bool, change: float | None = None
    ) -> None:
        """
        Observe the scaled gradients of an optimizer before they are averaged over ranks and unscaled.

        An error that this method raises prevents the unscaling. `end` does not follow if the gradients do not count:
        unscaling was interrupted, `abandon` was called, or with torch's scaler, there were no gradients on any rank.

        Args:
            gradients: Gradients that are not None. DTensors are passed as their local shards, sparse tensors as their values.
            scale: Copy of the scale: an array or a number.
            owner: The optimizer.
            stale: True if a gradient was accumulated into that of the step before, which was not set to zero. False if unknown.
            modified: True if a gradient was changed after the backward pass. False if unknown.
            change: Norm of a modified gradient, divided by its norm after the backward pass. None if unknown, as in the first
                step with a modified gradient.
        """

    def end(
        self, scale: Any, next_scale: Any, finite: Flag, applied: Flag, gradients: list[Array], owner: Any,
        *, changed: bool | None,
    ) -> None:  # fmt: skip
        """
        Observe the end of an iteration, once for each call of `begin` whose gradients count.

        `update` calls this method after it has written the scale; with Paddle's fixed scale, `step` and `minimize` call it.

        Args:
            scale: Scale of the iteration, as passed to `begin`.
            next_scale: Copy of the new scale.
            finite: True if the gradients of all ranks were finite, as recorded when they were unscaled.
            applied: True if the optimizer stepped.
            gradients: The unscaled gradients, with all changes since the unscaling, such as clipping.
            owner: The optimizer.
            changed: True if there were such changes; None if that is unknown, as on libraries other than torch.
        """


@dataclass(slots=True)
class Progress:
    """
    Progress of one optimizer between two updates of the scale.

    A scaler sets the stage before it writes, so that no gradient is divided twice after an error between two writes.
    """

    optimizer: Any  # keeps a reference, so that the id is not reused
    site: Site | None  # call site of the call that led to the stage
    stage: str = UNSCALING
    scale: Any = None  # scale that was passed to the monitor
    finite: bool | None = None  # True without an overflow on any rank; None if that is unknown on the host
    applied: Any = False  # True if the optimizer stepped; a bool, or a bool tensor on the device
    found_inf: Any = None  # only for torch's scaler: float32, shape (), on the scale's device; None without gradients
    gradients: Any = None  # only for torch's scaler: gradients as passed to the monitor
    versions: list[int] | None = None  # only with a monitor: `versions_of` the unscaled gradients

    def __getstate__(self) -> Any:
        """Return the attributes for a copy, without the call site, which cannot be pickled."""
        attributes = {name: getattr(self, name) for name in self.__slots__}
        return None, attributes | {"site": None}  # pickle's form of the state of an object without `__dict__`


def versions_of(gradients: list[Array]) -> list[int] | None:
    """Return the version counters of torch's tensors, which every write in place increments; None for other libraries."""
    have_versions = all(hasattr(gradient, "_version") for gradient in gradients)
    return [gradient._version for gradient in gradients] if have_versions else None


class OptimizerNumbers:
    """
    Numbers of optimizers, counted from 0 for each communicator, in the order of their first use.

    Ranks compare these numbers, and so detect that they step their optimizers in different orders. Scalers that share a
    communicator of processes count together, so that ranks also detect that they step these scalers in different orders.
    A training cell counts as an optimizer.

    Spec: REPLICAS-settings-compared.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}  # number of each optimizer, by the ids of communicator and optimizer
        self._counts = Counter[int]()  # number of optimizers, by the id of the communicator
        self._kept: list[Any] = []  # optimizers that cannot be weakly referenced

    def __reduce__(self) -> Any:
        """Return a new object for a copy, since copied optimizers have other ids."""
        return OptimizerNumbers, ()

    def number(self, communicator: Communicator, optimizer: Any) -> tuple[int, bool]:
        """Return the number of *optimizer*, and True if *communicator* uses this optimizer for the first time."""
        key = id(communicator), id(optimizer)
        is_new = key not in self._numbers
        if is_new:
            try:
                finalize(optimizer, self._numbers.pop, key, None)  # remove the key before another optimizer can have this id
            except TypeError:
                self._kept.append(optimizer)
            counts = getattr(communicator, "optimizer_counts", self._counts)
            self._numbers[key] = counts[id(communicator)]
            counts[id(communicator)] += 1
        return self._numbers[key], is_new
