"""
Three optimizers for libraries that bring none, in optax's shape, with float32 master weights for 16-bit parameters.

A `Transformation` is two pure functions; an `Optimizer` binds one to a network and keeps its state.
Spec: STEP-optimizer, STEP-master-weights, STEP-learning-rate.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_compat

from .backends import network_of
from .core.dtypes import FLOATS, accumulation_dtype, compute_dtype, name_of
from .core.namespaces import device_of, namespace_of, quiet
from .core.scaling import in_dtype, scalar_like
from .core.step import apply_updates
from .core.trees import leaves, leaves_with_paths, map_leaves, select, unflatten, zip_leaves
from .core.type_names import type_name
from .core.typing import Array, Flag, Tree
from .core.validation import check_bool, check_number
from .network import Network, Parameter
from .parsing import excerpt

__all__ = ["SGD", "AdamW", "Momentum", "Optimizer", "OptimizerState"]

LearningRate = float | list[float] | tuple[float, ...] | Callable[[Array], Any]


class OptimizerState(NamedTuple):
    """What an optimizer carries from step to step."""

    count: Array  # int32, shape (): applied steps
    rate: Array  # float32, or float64 where a parameter is; shape (): the learning rate of the coming step
    master: Tree  # float32, the true value of each 16-bit parameter; None for the others
    moments: tuple[Tree, ...]  # float32 or float64, in the shapes of the parameters


class Transformation(NamedTuple):
    """An optimizer as pure functions; `init` and `update` are optax's."""

    init: Callable[[Tree], OptimizerState]
    update: Callable[[Tree, OptimizerState, Tree], tuple[Tree, OptimizerState]]
    rate_at: Callable[[Array, str], Array]


class Optimizer:
    """
    A transformation bound to a network: call it with gradients to move the network's parameters.

    It can be handed to a pure step as well, which leaves the network and the state here alone.
    """

    keeps_master_weights = True

    def __init__(self, network: Any, make: Callable[[LearningRate], Transformation], learning_rate: LearningRate) -> None:
        self._network = network_of(network)
        self._make = make
        self._transformation = make(learning_rate)
        self._is_committing = False
        self._state = self._transformation.init(self._network.params)

    @property
    def state(self) -> OptimizerState:
        """What the next steps depend on. Can be set, also to end an interruption."""
        return self._state

    @state.setter
    def state(self, state: OptimizerState) -> None:
        self._state, self._is_committing = state, False

    def __call__(self, gradients: Tree) -> None:
        """Moves the parameters. A parameter whose gradient is None stays."""
        self._commit(*self._next(gradients))

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        """
        Compute a step, and change nothing.

        Returns:
            ``apply(finite)``, which updates the parameters where *finite* (bool, shape ()) is True, and nothing at all where
            not; and returns *finite*, which it does not read on the host.
        """
        updated, candidate = self._next(gradients)

        def apply(finite: Flag) -> Flag:
            self._commit(select(finite, updated, self._network.params), select(finite, candidate, self.state))
            return finite

        return apply

    def apply(self, gradients: Tree, finite: Flag) -> None:
        """Moves the parameters where *finite* (bool, shape ()) is True, and nothing at all where not, without looking."""
        self.prepare(gradients)(finite)

    def step(self) -> None:
        """Moves the parameters by the gradients in `parameters`."""
        self(unflatten(self._network.params, [parameter.grad for parameter in self.parameters]))

    def minimize(self, loss: Array) -> None:
        """Paddle's word for `step`; the gradients are there already, so *loss* is not used."""
        self.step()

    @property
    def parameters(self) -> list[Parameter]:
        """The network's parameters, each with `value` and `grad`."""
        found: list[Parameter] = self._network.parameters
        return found

    @property
    def learning_rate(self) -> Array:
        """The rate of the coming step: shape (), float32, or float64 where a parameter is. Can be set."""
        return self.state.rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: LearningRate) -> None:
        transformation = self._make(learning_rate)
        rate = transformation.rate_at(self.state.count, name_of(self.state.rate.dtype))
        self._transformation, self._state = transformation, self._state._replace(rate=rate)

    def init(self, params: Tree) -> OptimizerState:
        """The state before the first step."""
        return self._transformation.init(params)

    def update(self, gradients: Tree, state: OptimizerState, params: Tree) -> tuple[Tree, OptimizerState]:
        """What to add to *params*, and the next state."""
        return self._transformation.update(gradients, state, params)

    def learning_rate_at(self, state: OptimizerState) -> Array:
        """The rate of the step that follows *state*."""
        return state.rate

    def _commit(self, params: Tree, state: OptimizerState) -> None:
        """Set both. A network may write *params* array by array, and an error in the middle must not be followed by a retry."""
        if self._is_committing:
            raise RuntimeError(
                "a step was interrupted while it wrote: restore the network's params, and set the optimizer's state"
            )
        self._is_committing = True
        self._network.params, self._state = params, state
        self._is_committing = False

    def _next(self, gradients: Tree) -> tuple[Tree, OptimizerState]:
        updates, state = self.update(gradients, self.state, self._network.params)
        return apply_updates(self._network.params, updates), state


def SGD(network: Network, learning_rate: LearningRate = 0.01, weight_decay: float = 0.0) -> Optimizer:  # noqa: N802
    """
    Stochastic gradient descent.

    Args:
        network: Whose parameters it moves: a `Network`, or a `torch.nn.Module` that returns its loss.
        learning_rate: A number; a list, one rate a step, the last for ever after; or a function of the count of
            applied steps (int32, shape ()).
        weight_decay: Added to the gradient, times the parameter.

    Raises:
        TypeError, ValueError: An argument is of the wrong type or out of range.
    """
    return Momentum(network, learning_rate, momentum=0.0, weight_decay=weight_decay)


def Momentum(  # noqa: N802
    network: Network,
    learning_rate: LearningRate = 0.01,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """
    Gradient descent with momentum: ``v = momentum * v + g``, and the parameter moves by ``-learning_rate * v``.

    Args:
        network: Whose parameters it moves.
        learning_rate: As for `SGD`.
        momentum: In [0, 1).
        weight_decay: Added to the gradient, times the parameter.
        nesterov: Move by ``g + momentum * v`` instead.

    Raises:
        TypeError, ValueError: An argument is of the wrong type or out of range.
    """
    _check_unit(momentum, "momentum")
    check_number(weight_decay, "weight_decay", "a finite number of at least 0", 0)
    check_bool(nesterov, "nesterov")

    def move(gradient: Array, moments: tuple[Array, ...], value: Array, _: Array) -> tuple[Array, tuple[Array, ...]]:
        decay, kept = (scalar_like(constant, value, value.dtype) for constant in (weight_decay, momentum))
        gradient = gradient + decay * value if weight_decay else gradient
        velocity = kept * moments[0] + gradient if moments else gradient
        step = gradient + kept * velocity if nesterov else velocity
        return step, (velocity,) * len(moments)

    return Optimizer(network, lambda rate: _transformation(rate, move, moments=1 if momentum else 0), learning_rate)


def AdamW(  # noqa: N802
    network: Network,
    learning_rate: LearningRate = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
) -> Optimizer:
    """
    Adam with decoupled weight decay.

    Args:
        network: Whose parameters it moves.
        learning_rate: As for `SGD`.
        beta1: Decay of the mean, in [0, 1).
        beta2: Decay of the mean square, in [0, 1).
        epsilon: Added to the root of the mean square.
        weight_decay: Times the parameter and the learning rate, taken off the parameter.

    Raises:
        TypeError, ValueError: An argument is of the wrong type or out of range.
    """
    _check_unit(beta1, "beta1")
    _check_unit(beta2, "beta2")
    check_number(epsilon, "epsilon", "a positive, finite number", 0, above=True)
    check_number(weight_decay, "weight_decay", "a finite number of at least 0", 0)

    def move(gradient: Array, moments: tuple[Array, ...], value: Array, count: Array) -> tuple[Array, tuple[Array, ...]]:
        xp = array_api_compat.array_namespace(value)
        constants = (1, beta1, 1 - beta1, beta2, 1 - beta2, epsilon, weight_decay)
        one, kept1, new1, kept2, new2, least, decay = (scalar_like(constant, value, value.dtype) for constant in constants)
        steps = xp.astype(count, value.dtype)
        mean = kept1 * moments[0] + new1 * gradient
        square = kept2 * moments[1] + new2 * gradient * gradient
        unbiased = mean / (one - kept1**steps)
        root = xp.sqrt(square / (one - kept2**steps))
        return unbiased / (root + least) + decay * value, (mean, square)

    return Optimizer(network, lambda rate: _transformation(rate, move, moments=2), learning_rate)


def _transformation(learning_rate: LearningRate, move: Callable[..., Any], moments: int) -> Transformation:
    rate_at = _schedule(learning_rate)

    def init(params: Tree) -> OptimizerState:
        _check_real(params)
        xp = namespace_of(params)
        count = xp.asarray(0, dtype=xp.int32, device=device_of(params))
        return OptimizerState(
            count=count,
            rate=rate_at(count, accumulation_dtype([name_of(leaf.dtype) for leaf in leaves(params)])),
            master=map_leaves(lambda param: None if _widened(param) is param else _widened(param), params),
            moments=tuple(map_leaves(lambda param: xp.zeros_like(_widened(param)), params) for _ in range(moments)),
        )

    def update(gradients: Tree, state: OptimizerState, params: Tree) -> tuple[Tree, OptimizerState]:
        xp = array_api_compat.array_namespace(state.count)
        count = xp.asarray(state.count + xp.ones_like(state.count))
        with quiet(xp):
            moved = [
                _move_one(move, *row, count=count, rate=state.rate)
                for row in zip_leaves(params, gradients, state.master, *state.moments)
            ]
        columns = zip(*moved, strict=True) if moved else [()] * (2 + moments)
        updates, master, *new = (unflatten(params, column) for column in columns)
        return updates, OptimizerState(count, rate_at(count, name_of(state.rate.dtype)), master, tuple(new))

    return Transformation(init, update, rate_at)


def _move_one(
    move: Callable[..., Any], param: Array, gradient: Array, master: Array, *old: Array, count: Array, rate: Array
) -> tuple[Any, ...]:
    """The update of one parameter, its new master weight, and its new moments."""
    if gradient is None:
        return None, master, *old
    if not array_api_compat.is_array_api_obj(gradient):
        raise TypeError(f"a gradient must be an array, got {excerpt(gradient)} of type {type_name(gradient)}")
    if tuple(gradient.shape) != tuple(param.shape):
        raise ValueError(f"a gradient must have its parameter's shape {tuple(param.shape)}, got {tuple(gradient.shape)}")
    value = _widened(param) if master is None else master
    step, new = move(in_dtype(gradient, name_of(value.dtype)), old, value, count)
    moved = value - in_dtype(rate, name_of(value.dtype)) * step
    return moved - _widened(param), None if master is None else moved, *new


def _widened(array: Array) -> Array:
    return in_dtype(array, compute_dtype(name_of(array.dtype)))


def _schedule(learning_rate: LearningRate) -> Callable[[Array, str], Array]:
    """The rate as an array of shape (), from the count of applied steps and the dtype it is wanted in."""

    def rate_at(count: Array, dtype: str) -> Array:
        xp = array_api_compat.array_namespace(count)
        device = array_api_compat.device(count)
        if callable(learning_rate):
            return xp.asarray(learning_rate(count), dtype=getattr(xp, dtype), device=device)
        table = xp.asarray(rates, dtype=getattr(xp, dtype), device=device)
        last = xp.full_like(count, len(rates) - 1)
        return xp.reshape(xp.take(table, xp.reshape(xp.minimum(count, last), (1,)), axis=0), ())

    if callable(learning_rate):
        return rate_at
    rates = list(learning_rate) if isinstance(learning_rate, list | tuple) else [learning_rate]
    if not rates:
        raise ValueError("learning_rate must hold at least one rate, got an empty list")
    for rate in rates:
        check_number(rate, "learning_rate", "a finite number of at least 0, a list of such or a function", 0)
    return rate_at


def _check_real(params: Tree) -> None:
    for path, param in leaves_with_paths(params, "params"):
        if name_of(param.dtype) not in FLOATS:
            raise TypeError(f"{path} must be one of {list(FLOATS)}, got {name_of(param.dtype)}")
        if getattr(param, "requires_grad", False):
            raise ValueError(f"{path} must be detached, since torch would remember every step: give {path}.detach()")


def _check_unit(value: Any, name: str) -> None:
    check_number(value, name, "a number of at least 0 and below 1", 0, math.nextafter(1, 0))
