"""
A network: a loss, the values of its parameters, and how to differentiate.

Spec: STEP-network, STEP-single-output.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from .backends import get_backend
from .core.trees import leaves, unflatten, zip_leaves
from .core.typing import Array, Tree
from .core.validation import check_loss
from .parsing import excerpt

Pullback = Callable[[Array], Tree]


class Parameter:
    """One parameter of a network: `value`, which lives in the network, and `grad`, which lives here."""

    def __init__(self, network: "Network", index: int) -> None:
        self._network = network
        self._index = index
        self.grad: Array | None = None

    @property
    def value(self) -> Array:
        """The current value; any shape, floating-point."""
        return leaves(self._network.params)[self._index]

    @value.setter
    def value(self, value: Array) -> None:
        values = leaves(self._network.params)
        values[self._index] = value
        self._network.params = unflatten(self._network.params, values)


class Network:
    """
    A function of parameters and inputs that returns a loss.

    Args:
        loss_fn: ``loss_fn(params, *inputs) -> loss``: one array; on NumPy written with `autograd.numpy`.
        params: Floating-point arrays in tuples, lists, dicts and NamedTuples.
        vjp: ``vjp(params, *inputs) -> (loss, pullback)`` with ``pullback(seed) -> gradients`` in the structure of
            *params*. By default the array library's own differentiation; on NumPy the autograd package's.

    `params` is rebound when an optimizer moves it; arrays handed in are never written to.

    Raises:
        TypeError: *loss_fn* or *vjp* cannot be called, or *params* holds something that is no array.
    """

    def __init__(
        self, loss_fn: Callable[..., Array], params: Tree, vjp: Callable[..., tuple[Array, Pullback]] | None = None
    ) -> None:
        for value, name in ((loss_fn, "loss_fn"), (vjp, "vjp")):
            if not callable(value) and not (name == "vjp" and value is None):
                raise TypeError(f"{name} must be callable, got {excerpt(value, 200)} of type {type(value).__name__}")
        self._backend = get_backend(params)
        self._loss_fn = loss_fn
        self._vjp = vjp
        self.params = params
        self.parameters = [Parameter(self, index) for index in range(len(leaves(params)))]

    def __call__(self, *inputs: Any) -> Array:
        """The loss of the current parameters."""
        return self._loss_fn(self.params, *inputs)

    def vjp(self, params: Tree, *inputs: Any) -> tuple[Array, Pullback]:
        """
        The loss of *params*, and what turns a seed of the loss's shape into gradients.

        Raises:
            TypeError: The network returned something else than one array.
        """
        differentiate = self._vjp or partial(self._backend.vjp, self._loss_fn)
        loss, pullback = differentiate(params, *inputs)
        check_loss(loss)
        return loss, pullback

    def backward(self, *inputs: Any, seed: Array) -> Array:
        """
        The loss of the current parameters; writes each parameter's `grad`.

        Args:
            inputs: Handed to the loss as they are.
            seed: Of the loss's shape: where the backward pass starts, the scale for instance. float32 for a 16-bit loss.
        """
        loss, pullback = self.vjp(self.params, *inputs)
        for parameter, (_, gradient) in zip(self.parameters, zip_leaves(self.params, pullback(seed)), strict=True):
            parameter.grad = gradient
        return loss
