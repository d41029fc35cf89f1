"""
The two detectors of an overflow: a look at the gradients, and a flag that stays.

Spec: OVERFLOW-gradient-scan, OVERFLOW-status-register.
"""

from typing import Any, Protocol

from ...core.namespaces import device_of, namespace_of
from ...core.typing import Flag, Tree
from ...functional import all_finite


class OverflowDetector(Protocol):
    """What finds an overflow between a start and an end. The token carries what was seen, so a detector has no state."""

    def start(self, like: Tree) -> Any:
        """A cleared token, on the device of *like*."""

    def observe(self, token: Any, tree: Tree) -> None:
        """Lets the token see values on the way."""

    def finite(self, token: Any, output: Tree) -> Flag:
        """Whether everything was finite: bool, shape ()."""


class GradientScan:
    """Looks at the output alone, at the end. Any object will do as the token."""

    def start(self, like: Tree) -> Any:
        """A token that nothing depends on."""
        return _Status(like)

    def observe(self, token: Any, tree: Tree) -> None:
        """Nothing: what is on the way does not count."""

    def finite(self, token: Any, output: Tree) -> Flag:
        """Whether *output* is finite."""
        return all_finite(output)


class StatusRegister:
    """A sticky flag, as a device's status register: once something non-finite was seen, it stays so until the next start."""

    def start(self, like: Tree) -> Any:
        """A register in which nothing has been seen yet."""
        return _Status(like)

    def observe(self, token: Any, tree: Tree) -> None:
        """Sees *tree*. A token of another make cannot remember, and is passed over."""
        if isinstance(token, _Status):
            token.finite = token.finite & all_finite(tree)

    def finite(self, token: Any, output: Tree) -> Flag:
        """Whether everything observed since the start, and *output*, is finite."""
        seen = all_finite(output)
        return token.finite & seen if isinstance(token, _Status) else seen


class _Status:
    """The opaque token that orders the start of a check and its end."""

    def __init__(self, like: Tree) -> None:
        self.finite: Flag = namespace_of(like).asarray(True, device=device_of(like))
