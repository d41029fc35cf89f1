"""
Optimizers with the interface of optax and float32 master weights, for array libraries that have no optimizers.

Spec: STEP-optimizer, STEP-master-weights, STEP-learning-rate.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import array_api_compat

from .backends import network_of
from .core.dtypes import FLOATS, accumulation_dtype, name_of
from .core.namespaces import check_one_library, device_of, namespace_of, quiet
from .core.scaling import in_dtype, scalar_like, widened
from .core.step import apply_updates, incremented
from .core.trees import is_array, leaves, leaves_with_paths, map_leaves, select, unflatten, zip_leaves
from .core.typing import Array, Flag, Tree
from .core.validation import check_alike, check_bool, check_flag, check_gradients, check_not_traced, check_number, check_type
from .network import Network, Parameter

__all__ = ["SGD", "AdamW", "Momentum", "Optimizer", "OptimizerState"]

LearningRate = float | list[float] | tuple[float, ...] | Callable[[Array], Any]
Direction = Callable[[Array, tuple[Array, ...], Array, Array], tuple[Array, tuple[Array, ...]]]

_NON_NEGATIVE = "a finite number of at least 0 that float32 can hold"


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


class OptimizerState(NamedTuple):
    """
    State of an optimizer between two steps.

    Args:
        count: Number of applied steps; int32, shape ().
        rate: Learning rate of the next step; float32, or float64 if a parameter is float64; shape ().
        master: float32 master weights of the 16-bit parameters; None for other parameters.
        moments: Trees of moment estimates: none for SGD, one for momentum, two for Adam; float32 or float64.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float16([1.0, 2.0]))
    >>> SGD(network, 0.5).state.master
    array([1., 2.], dtype=float32)
    """

    count: Array
    rate: Array
    master: Tree
    moments: tuple[Tree, ...]


class Optimizer:
    """
    Optimizer that is bound to a network and stores its state. Calling it with gradients updates the network's parameters.

    `train_step` also accepts an `Optimizer`, and calls only those of its methods that change neither the network nor the
    optimizer. Use `SGD`, `Momentum` or `AdamW` to create an optimizer.

    Args:
        network: A `Network`, or a `torch.nn.Module` that returns its loss.
        direction: Function of the gradient, the moments and the value of a parameter, and of the number of applied steps,
            which includes the current step. It returns the direction, whose product with the learning rate is
            subtracted from the parameter, and the new moments.
        moments: Number of moments for each parameter.
        learning_rate: As for `SGD`.

    Raises:
        TypeError: *network* or one of its parameters has the wrong type.
        ValueError: A parameter is a torch tensor that requires gradients.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> optimizer = SGD(network, learning_rate=0.5)
    >>> optimizer(np.float32([2.0, -2.0]))
    >>> network.params
    array([0., 3.], dtype=float32)
    """

    keeps_master_weights = True

    def __init__(self, network: Any, direction: Direction, moments: int, learning_rate: LearningRate) -> None:
        self._network: Any = network_of(network)
        self._direction, self._moment_count = direction, moments
        self._rate_at = _schedule(learning_rate)
        self._is_committing = False
        self._state = self.init(self._network.params)

    @property
    def state(self) -> OptimizerState:
        """Return the state before the next step. Assigning a state also permits further steps after an interrupted step."""
        return self._state

    @state.setter
    def state(self, state: OptimizerState) -> None:
        check_type(state, "state", OptimizerState)
        check_one_library(params=self._network.params, optimizer_state=state)
        check_alike(state, self._state, "state")
        self._state, self._is_committing = state, False

    def __call__(self, gradients: Tree) -> None:
        """Update the parameters. A parameter whose gradient is None is unchanged."""
        self._commit(*self._next(gradients))

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        """
        Compute a step without changing anything, and return a function ``apply(finite)``.

        The function commits the step if *finite*, a bool array of shape () that is not copied to the host, is True; it returns
        *finite*.
        """
        new_params, new_state = self._next(gradients)

        def apply(finite: Flag) -> Flag:
            check_flag(finite, "finite")
            self._commit(select(finite, new_params, self._network.params), select(finite, new_state, self.state))
            return finite

        return apply

    def apply(self, gradients: Tree, finite: Flag) -> None:
        """Update the parameters if *finite*, a bool array of shape (), is True. The flag is not copied to the host."""
        self.prepare(gradients)(finite)

    def step(self) -> None:
        """Update the parameters with the gradients stored in `parameters`."""
        self(unflatten(self._network.params, [parameter.grad for parameter in self.parameters]))

    def minimize(self, loss: Array) -> None:
        """Do the same as `step`, under Paddle's name. *loss* is not used, since the gradients are already computed."""
        self.step()

    @property
    def parameters(self) -> list[Parameter]:
        """Return the network's parameters, each with `value` and `grad`."""
        parameters: list[Parameter] = self._network.parameters
        return parameters

    @property
    def learning_rate(self) -> Array:
        """Return the learning rate of the next step, of shape (): float64 if a parameter is float64, else float32. Can be set."""
        return self.state.rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: LearningRate) -> None:
        rate_at = _schedule(learning_rate)
        rate = rate_at(self.state.count, name_of(self.state.rate.dtype))
        self._rate_at, self._state = rate_at, self._state._replace(rate=rate)

    def init(self, params: Tree) -> OptimizerState:
        """Create the state before the first step."""
        _check_params(params)
        xp = namespace_of(params)
        count = xp.asarray(0, dtype=xp.int32, device=device_of(params))
        return OptimizerState(
            count=count,
            rate=self._rate_at(count, accumulation_dtype([name_of(leaf.dtype) for leaf in leaves(params)])),
            master=map_leaves(lambda param: None if widened(param) is param else widened(param), params),
            moments=tuple(map_leaves(lambda param: xp.zeros_like(widened(param)), params) for _ in range(self._moment_count)),
        )

    def update(self, gradients: Tree, state: OptimizerState, params: Tree) -> tuple[Tree, OptimizerState]:
        """Return the updates to add to *params*, and the next state."""
        check_type(state, "state", OptimizerState)
        if len(state.moments) != self._moment_count:
            remedy = "create the state with this optimizer's init()"
            raise ValueError(f"state.moments must have {self._moment_count} trees, got {len(state.moments)}; {remedy}")
        xp = array_api_compat.array_namespace(state.count)
        count = incremented(state.count)
        rows = zip_leaves(params, gradients, state.master, *state.moments)
        check_gradients(params, rows)
        with quiet(xp):
            results = [_update_one(self._direction, *row, count=count, rate=state.rate) for row in rows]
        columns = zip(*results, strict=True) if results else [()] * (2 + self._moment_count)  # zip() yields no columns
        updates, master, *moments = (unflatten(params, column) for column in columns)
        return updates, OptimizerState(count, self._rate_at(count, name_of(state.rate.dtype)), master, tuple(moments))

    def learning_rate_at(self, state: OptimizerState) -> Array:
        """Return the learning rate of the step that follows *state*."""
        check_type(state, "state", OptimizerState)
        return state.rate

    def _commit(self, params: Tree, state: OptimizerState) -> None:
        """Store *params* and *state*, unless an earlier call was interrupted."""
        # A network may write its parameters array by array: after an interruption, another step would mix old and new values.
        if self._is_committing:
            raise RuntimeError("an earlier step was interrupted: restore network.params, then assign optimizer.state")
        self._is_committing = True
        self._network.params, self._state = params, state
        self._is_committing = False

    def _next(self, gradients: Tree) -> tuple[Tree, OptimizerState]:
        """Return the updated parameters and the next state of the optimizer."""
        params = self._network.params
        check_one_library(params=params, gradients=gradients)
        updates, state = self.update(gradients, self.state, params)
        check_not_traced(state.count, "gradients", "the optimizer")
        return apply_updates(params, updates, state.master), state


def SGD(network: Network, learning_rate: LearningRate = 0.01, weight_decay: float = 0.0) -> Optimizer:  # noqa: N802
    """
    Create an optimizer for stochastic gradient descent.

    Args:
        network: A `Network`, or a `torch.nn.Module` that returns its loss.
        learning_rate: A number; a list with one rate for each step, whose last rate is used for all later steps; or a function
            of the number of applied steps, an int32 array of shape ().
        weight_decay: The product of this number and the parameter is added to the gradient.

    Raises:
        TypeError, ValueError: An argument has the wrong type or is out of range.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0]))
    >>> optimizer = SGD(network, learning_rate=[0.5, 0.25])
    >>> for _ in range(3):
    ...     optimizer(np.float32([1.0]))
    ...     print(float(network.params[0]))
    0.5
    0.25
    0.0
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
    Create an optimizer with momentum: ``v = momentum * v + g``, and the update of the parameter is ``-learning_rate * v``.

    Args:
        network: A `Network`, or a `torch.nn.Module` that returns its loss.
        learning_rate: As for `SGD`.
        momentum: Factor of the velocity in each step, in [0, 1 - 2**-24].
        weight_decay: The product of this number and the parameter is added to the gradient.
        nesterov: Use ``g + momentum * v`` instead of ``v`` in the update.

    Raises:
        TypeError, ValueError: An argument has the wrong type or is out of range.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([2.0]))
    >>> optimizer = Momentum(network, learning_rate=0.5, momentum=0.5)
    >>> for _ in range(2):
    ...     optimizer(np.float32([1.0]))
    ...     print(float(network.params[0]))
    1.5
    0.75
    """
    _check_decay(momentum, "momentum")
    _check_float32(weight_decay, "weight_decay")
    check_bool(nesterov, "nesterov")

    def direction(gradient: Array, moments: tuple[Array, ...], value: Array, _: Array) -> tuple[Array, tuple[Array, ...]]:
        number = partial(scalar_like, like=value, dtype=value.dtype)
        if weight_decay:
            gradient = gradient + number(weight_decay) * value
        velocity = number(momentum) * moments[0] + gradient if moments else gradient
        new_direction = gradient + number(momentum) * velocity if nesterov else velocity
        return new_direction, ((velocity,) if moments else ())

    return Optimizer(network, direction, 1 if momentum else 0, learning_rate)


def AdamW(  # noqa: N802
    network: Network,
    learning_rate: LearningRate = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
) -> Optimizer:
    """
    Create an Adam optimizer with decoupled weight decay.

    Args:
        network: A `Network`, or a `torch.nn.Module` that returns its loss.
        learning_rate: As for `SGD`.
        beta1: Decay of the moving average of the gradients, in [0, 1 - 2**-24].
        beta2: Decay of the moving average of the squared gradients, in [0, 1 - 2**-24].
        epsilon: Added to the square root of the second average; positive and finite.
        weight_decay: The product of this number, the learning rate and the parameter is subtracted from the parameter.

    Raises:
        TypeError, ValueError: An argument has the wrong type or is out of range.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 1.0]))
    >>> optimizer = AdamW(network, learning_rate=0.5, weight_decay=0.0)
    >>> optimizer(np.float32([1024.0, -1.0]))  # the first step has the size of the learning rate
    >>> network.params.round(3)
    array([0.5, 1.5], dtype=float32)
    """
    _check_decay(beta1, "beta1")
    _check_decay(beta2, "beta2")
    _check_float32(epsilon, "epsilon", "a positive, finite number that float32 can hold", FLOATS["float32"].smallest_subnormal)
    _check_float32(weight_decay, "weight_decay")

    def direction(gradient: Array, moments: tuple[Array, ...], value: Array, count: Array) -> tuple[Array, tuple[Array, ...]]:
        xp = array_api_compat.array_namespace(value)
        number = partial(scalar_like, like=value, dtype=value.dtype)
        steps = xp.astype(count, value.dtype)
        mean = number(beta1) * moments[0] + number(1 - beta1) * gradient
        square = number(beta2) * moments[1] + number(1 - beta2) * gradient * gradient
        unbiased = mean / (number(1) - number(beta1) ** steps)
        root = xp.sqrt(square / (number(1) - number(beta2) ** steps))
        return unbiased / (root + number(epsilon)) + number(weight_decay) * value, (mean, square)

    return Optimizer(network, direction, 2, learning_rate)


def _update_one(
    direction: Direction, param: Array, gradient: Array, master: Array, *moments: Array, count: Array, rate: Array
) -> tuple[Any, ...]:
    """Return the update of one parameter, None if *gradient* is None; its new master weight; and its new moments."""
    if gradient is None:
        return None, master, *moments
    value = widened(param) if master is None else master
    step, new_moments = direction(in_dtype(gradient, name_of(value.dtype)), moments, value, count)
    update = -in_dtype(rate, name_of(value.dtype)) * step
    if master is None:
        return update, None, *new_moments
    new_master = master + update
    return new_master - widened(param), new_master, *new_moments


def _schedule(learning_rate: LearningRate) -> Callable[[Array, str], Array]:
    """Return a function from the number of applied steps and the name of a dtype to the learning rate, of shape ()."""
    rates = list(learning_rate) if isinstance(learning_rate, list | tuple) else [learning_rate]
    if not rates:
        raise ValueError(f"learning_rate must contain at least one rate, got {learning_rate!r}")
    if not callable(learning_rate):
        for rate in rates:
            _check_float32(rate, "learning_rate", f"{_NON_NEGATIVE}, a list of such numbers or a function")

    def rate_at(count: Array, dtype: str) -> Array:
        xp = array_api_compat.array_namespace(count)
        create = partial(xp.asarray, dtype=getattr(xp, dtype), device=device_of(count))
        if callable(learning_rate):
            rate = learning_rate(count)
            if not is_array(rate):
                _check_float32(rate, "the result of learning_rate", f"an array of shape (), or {_NON_NEGATIVE}")
            elif tuple(rate.shape):
                raise ValueError(f"the result of learning_rate must have shape (), got {tuple(rate.shape)}")
            return create(rate)
        if len(rates) == 1:  # a CUDA graph cannot capture the copy of a table
            return create(rates[0])
        index = xp.minimum(count, xp.full_like(count, len(rates) - 1))
        return xp.reshape(xp.take(create(rates), xp.reshape(index, (1,)), axis=0), ())

    return rate_at


def _check_params(params: Tree) -> None:
    for path, param in leaves_with_paths(params, "params"):
        if name_of(param.dtype) not in FLOATS:
            raise TypeError(f"{path} must have one of the dtypes {list(FLOATS)}, got {name_of(param.dtype)}")
        if getattr(param, "requires_grad", False):
            raise ValueError(f"{path} must be detached, since torch would record every step: pass {path}.detach()")


def _check_float32(value: Any, name: str, expected: str = _NON_NEGATIVE, low: float = 0) -> None:
    check_number(value, name, expected, low, FLOATS["float32"].largest)


def _check_decay(value: Any, name: str) -> None:
    check_number(value, name, "a number from 0 to 1 - 2**-24", 0, 1 - 2**-24)  # a larger one can be 1 in float32
