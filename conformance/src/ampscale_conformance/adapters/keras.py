"""
Keras 3: `LossScaleOptimizer` on JAX, through `stateless_apply` under `jax.jit`, as in Keras's own trainer.

`apply` cannot be called on JAX: it assigns variables inside `cond`, which JAX traces.
"""

import os
from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of
from .base import jax, jnp, outputs, unavailable


class Keras:
    """Optimizer around plain SGD. It unscales and checks inside `apply`."""

    info = ImplementationInfo(
        name="Keras LossScaleOptimizer",
        version=version_of("keras"),
        url="https://keras.io/api/optimizers/loss_scale_optimizer/",
        level=3,
        capabilities=("float16", "loss", "momentum"),
        preset="keras",
        arrays="jax",
    )
    unscale = all_finite = unavailable("Keras unscales and checks inside apply")
    add_optimizer = update_scale = unavailable("Keras has no scaler besides its optimizer")

    def create(self, rule: Any) -> Any:
        return optimizer_over([jnp.zeros(())], rule)

    def update(self, state: Any, finite: bool) -> Any:
        return applied(state, [jnp.asarray(0.0 if finite else jnp.inf)])

    def read_scale(self, state: Any) -> float:
        return float(value_of("dynamic_scale", state))

    def scale(self, state: Any, tree: Any) -> Any:
        return jax.tree.map(lambda loss: scaled(loss, state), tree)

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float, momentum: float = 0.0) -> Any:
        """Return the optimizer in a mutable container, since a cell is changed in place."""
        return [optimizer_over(parameters, rule, learning_rate, momentum)]

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """Run one step; it was applied if the count of iterations changed."""
        old_state = cell[0]
        loss, gradients = differentiated(old_state, list(data))
        new_state = cell[0] = applied(old_state, gradients)
        finite = int(value_of("iteration", new_state)) > int(value_of("iteration", old_state))
        return outputs(list(new_state[3]), finite, self.read_scale(old_state), self.read_scale(new_state), float(loss))


def optimizer_over(
    values: Sequence[Any], rule: Any, learning_rate: float = 1.0, momentum: float = 0.0
) -> tuple[Any, Any, list[Any], list[Any]]:
    """Return the optimizer, its compiled step, the values of its variables, and the values of the trained variables."""
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    variables = [keras.Variable(value, dtype=str(value.dtype)) for value in values]
    inner = keras.optimizers.SGD(learning_rate, momentum=momentum)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, rule.init_scale, rule.growth_interval)
    optimizer.build(variables)
    optimizer_values = [variable.value for variable in optimizer.variables]
    return optimizer, jax.jit(optimizer.stateless_apply), optimizer_values, [variable.value for variable in variables]


def applied(state: Any, gradients: list[Any]) -> tuple[Any, Any, list[Any], list[Any]]:
    optimizer, apply, variables, values = state
    values, variables = apply(variables, gradients, values)
    return optimizer, apply, variables, values


def scaled(loss: Any, state: Any) -> Any:
    """Return a loss times the current scale, as Keras's own JAX trainer computes it."""
    import keras

    optimizer, _, variables, _ = state
    with keras.StatelessScope(state_mapping=zip(optimizer.variables, variables, strict=True)):
        return optimizer.scale_loss(loss)


def differentiated(state: Any, data: list[Any]) -> tuple[Any, list[Any]]:
    """Return the loss of the linear network, and its scaled gradients."""

    def scaled_and_unscaled(values: list[Any]) -> Any:
        products = [(value.astype("float32") * entry.astype("float32")).sum() for value, entry in zip(values, data, strict=True)]
        return scaled(sum(products), state), sum(products)

    gradients, loss = jax.grad(scaled_and_unscaled, has_aux=True)(state[3])
    return loss, gradients


def value_of(name: str, state: Any) -> Any:
    """Return the value of the last variable with this name, which is the inner optimizer's if it has one."""
    optimizer, _, variables, _ = state
    return {variable.name: value for variable, value in zip(optimizer.variables, variables, strict=True)}[name]
