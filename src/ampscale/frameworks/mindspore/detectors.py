"""Overflow detectors: `GradientScan` checks the final gradients; `StatusRegister` also records earlier values in a flag."""

from typing import Any, Protocol

from ...core.namespaces import check_one_library, device_of, namespace_of
from ...core.typing import Flag, Tree
from ...functional import all_finite


class OverflowDetector(Protocol):
    """Interface of an overflow detector. An opaque status object carries the result of a check, so a detector has no state."""

    def start(self, like: Tree) -> Any:
        """Return a cleared status object on the device of *like*."""

    def observe(self, status: Any, tree: Tree) -> None:
        """Record in *status* whether the arrays of *tree* are finite."""

    def finite(self, status: Any, output: Tree) -> Flag:
        """Return a bool of shape (): True if *output* is finite and *status* records no overflow."""


class GradientScan:
    """
    MindSpore's overflow detection on hardware without a status register: checks the final gradients only.

    Works on arrays of all supported libraries without a host synchronization. Intermediate values are ignored.

    Spec: OVERFLOW-gradient-scan, MINDSPORE-detectors.

    >>> detector = GradientScan()
    >>> status = detector.start(np.float32(0.0))
    >>> detector.observe(status, np.float32([np.inf]))
    >>> bool(detector.finite(status, np.float32([1.0, 2.0])))
    True
    """

    def start(self, like: Tree) -> Any:
        """Return a new object. *like* is ignored."""
        return object()

    def observe(self, status: Any, tree: Tree) -> None:
        """Ignore *tree*: only the output is checked."""

    def finite(self, status: Any, output: Tree) -> Flag:
        """Return a bool of shape (): True if no array in *output* contains an infinity or a NaN. *status* is ignored."""
        return all_finite(output)


class StatusRegister:
    """
    MindSpore's overflow detection on hardware with a status register: a sticky flag that stays set until the next start.

    Works on arrays of all supported libraries without a host synchronization. The flag is stored in the status object.

    Spec: OVERFLOW-status-register, MINDSPORE-detectors.

    >>> detector = StatusRegister()
    >>> status = detector.start(np.float32(0.0))
    >>> detector.observe(status, np.float32([np.inf]))
    >>> bool(detector.finite(status, np.float32([1.0, 2.0])))
    False
    """

    def start(self, like: Tree) -> Any:
        """Return a new status object with a cleared flag, which is stored on the device of the arrays in *like*."""
        return _Status(like)

    def observe(self, status: Any, tree: Tree) -> None:
        """Set the flag if *tree* contains an infinity or a NaN; do nothing if *status* is not a result of `start`."""
        if isinstance(status, _Status):
            check_one_library(status=status.finite, tree=tree)
            status.finite = status.finite & all_finite(tree)

    def finite(self, status: Any, output: Tree) -> Flag:
        """
        Return a bool of shape (): True if *output* and everything observed since the start are finite.

        If *status* is not a result of `start`, only *output* is checked.
        """
        if not isinstance(status, _Status):
            return all_finite(output)
        check_one_library(status=status.finite, output=output)
        return status.finite & all_finite(output)


class _Status:
    """Opaque status object of one check. `finite` is the inverse of the sticky flag of `StatusRegister`."""

    def __init__(self, like: Tree) -> None:
        self.finite: Flag = namespace_of(like).asarray(True, device=device_of(like))
