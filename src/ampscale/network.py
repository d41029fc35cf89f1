"""
Network: a loss function, the values of its parameters, and their differentiation.

Spec: STEP-network, STEP-single-output.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from .backends import get_backend
from .core.namespaces import check_one_library
from .core.trees import leaves, unflatten, zip_leaves
from .core.typing import Array, Tree
from .core.validation import check_alike, check_loss
from .parsing import excerpt

Pullback = Callable[[Array], Tree]


class Parameter:
    """
    Parameter of a network. `value` reads and writes `network.params`; `grad` is stored on this object.

    Args:
        network: Network that holds the value.
        index: Position of the parameter among the leaves of `network.params`.

    >>> network = Network(lambda p, x: anp.sum(p["w"] * x), {"w": np.float32([1.0, 2.0])})
    >>> (parameter,) = network.parameters
    >>> parameter.value = np.float32([3.0, 4.0])
    >>> network.params, parameter.grad
    ({'w': array([3., 4.], dtype=float32)}, None)
    """

    def __init__(self, network: "Network", index: int) -> None:
        self._network = network
        self._index = index
        self.grad: Array | None = None

    @property
    def value(self) -> Array:
        """Return the current value. It can be set to an array of the same shape, dtype, library and device."""
        return leaves(self._network.params)[self._index]

    @value.setter
    def value(self, value: Array) -> None:
        values = leaves(self._network.params)
        check_one_library(params=values, value=value)
        check_alike(value, values[self._index], "value")
        values[self._index] = value
        self._network.params = unflatten(self._network.params, values)


class Network:
    """
    Loss function together with the values of its parameters.

    Optimizers rebind the attribute `params`; they never write to its arrays. The attribute `parameters` is a list with one
    `Parameter` for each array of `params`.

    Args:
        loss_fn: ``loss_fn(params, *inputs) -> loss``, where the loss is one array. If it has several elements, a training step
            minimizes their sum: return the mean. On NumPy, the function must be written with `autograd.numpy` (``anp`` in the
            example), unless *vjp* is given.
        params: Floating-point arrays in nested tuples, lists, dicts and NamedTuples.
        vjp: ``vjp(params, *inputs) -> (loss, pullback)``, where ``pullback(seed)`` returns the gradients of ``seed * loss``
            in the structure of *params*; the training step passes the loss scale as *seed*. Multiply the gradients by *seed*:
            otherwise they are divided by a scale by which they have never been multiplied. By default, the array library
            differentiates *loss_fn*; on NumPy, the autograd package does.

    Raises:
        TypeError: *loss_fn* or *vjp* is not callable, or *params* contains an object that is not an array.

    >>> network = Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> float(network(np.float32([3.0, 4.0])))
    11.0
    >>> loss, pullback = network.vjp(network.params, np.float32([3.0, 4.0]))
    >>> pullback(np.float32(1024.0))
    array([3072., 4096.], dtype=float32)
    """

    def __init__(
        self, loss_fn: Callable[..., Array], params: Tree, vjp: Callable[..., tuple[Array, Pullback]] | None = None
    ) -> None:
        functions = {"loss_fn": loss_fn} if vjp is None else {"loss_fn": loss_fn, "vjp": vjp}
        for name, function in functions.items():
            if not callable(function):
                raise TypeError(f"{name} must be callable, got {excerpt(function, 200)} of type {type(function).__name__}")
        self.parameters = [Parameter(self, index) for index in range(len(leaves(params, "params")))]
        backend = get_backend(params)
        self._loss_fn = loss_fn
        self._differentiate = vjp or partial(backend.vjp, loss_fn)
        self.params = params

    def __copy__(self) -> "Network":
        """Return a network with the same loss function and values, and its own `parameters`."""
        network = object.__new__(type(self))
        parameters = [Parameter(network, index) for index in range(len(self.parameters))]
        network.__dict__.update(self.__dict__, parameters=parameters)
        return network

    def __call__(self, *inputs: Any) -> Array:
        """Return the loss of the current parameters."""
        return self._loss_fn(self.params, *inputs)

    def vjp(self, params: Tree, *inputs: Any) -> tuple[Array, Pullback]:
        """
        Return the loss of *params*, and the pullback: a function from an output cotangent of the loss's shape to gradients.

        Raises:
            TypeError: The loss is not one array.
        """
        loss, pullback = self._differentiate(params, *inputs)
        check_loss(loss)
        return loss, pullback

    def backward(self, *inputs: Any, seed: Array) -> Array:
        """
        Return the loss of the current parameters, and set `grad` of every parameter.

        Args:
            inputs: Passed to the loss function unchanged.
            seed: Output cotangent, such as the loss scale, in the shape of the loss; float32 for a 16-bit loss.

        >>> network = Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
        >>> loss = network.backward(np.float32([3.0, 4.0]), seed=np.float32(2.0))
        >>> network.parameters[0].grad
        array([6., 8.], dtype=float32)
        """
        loss, pullback = self.vjp(self.params, *inputs)
        for parameter, (_, gradient) in zip(self.parameters, zip_leaves(self.params, pullback(seed)), strict=True):
            parameter.grad = gradient
        return loss
