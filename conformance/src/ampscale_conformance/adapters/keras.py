"""
Keras 3: `LossScaleOptimizer` on JAX, through `stateless_apply` under `jax.jit`, as Keras's own trainer has it there.

Its `apply` cannot be called there: it assigns within `cond`, which JAX traces.
"""

from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of
from .base import lacking


class Keras:
    """An optimizer around plain SGD. It unscales and checks inside, where nobody else can ask it to."""

    info = ImplementationInfo(
        name="Keras LossScaleOptimizer",
        version=version_of("keras"),
        url="https://keras.io/api/optimizers/loss_scale_optimizer/",
        level=3,
        capabilities=("loss", "momentum"),
        preset="keras",
        arrays="jax",
    )
    unscale = lacking("Keras unscales inside apply")
    all_finite = lacking("Keras checks inside apply")
    add_optimizer = update_scale = lacking("Keras has no scaler beside its optimizer")

    def create(self, rule: Any) -> Any:
        """With one variable."""
        import jax.numpy as jnp

        return optimizer_over([jnp.zeros(())], rule)

    def update(self, held: Any, finite: bool) -> Any:
        """Applies one gradient."""
        import jax.numpy as jnp

        return applied(held, [jnp.asarray(0.0 if finite else jnp.inf)])

    def read_scale(self, held: Any) -> float:
        """Its variable."""
        return float(value_of("dynamic_scale", held))

    def scale(self, held: Any, tree: Any) -> Any:
        """Each array as a loss is scaled."""
        import jax

        return jax.tree.map(lambda loss: scaled(loss, held), tree)

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float, momentum: float = 0.0) -> Any:
        """The optimizer in a place of its own, since a cell is changed."""
        return [optimizer_over(parameters, rule, learning_rate, momentum)]

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """A step was taken where its count of iterations moved."""
        before = cell[0]
        loss, gradients = differentiated(before, list(data))
        cell[0] = applied(before, gradients)
        return outputs(before, cell[0], loss)


def optimizer_over(
    values: Sequence[Any], rule: Any, learning_rate: float = 1.0, momentum: float = 0.0
) -> tuple[Any, Any, list[Any], list[Any]]:
    """The optimizer, its compiled step, the values of its variables, and those that it moves."""
    import os

    import jax

    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    variables = [keras.Variable(value, dtype=str(value.dtype)) for value in values]
    inner = keras.optimizers.SGD(learning_rate, momentum=momentum)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, rule.init_scale, rule.growth_interval)
    optimizer.build(variables)
    own, moved = [variable.value for variable in optimizer.variables], [variable.value for variable in variables]
    return optimizer, jax.jit(optimizer.stateless_apply), own, moved


def applied(held: Any, gradients: list[Any]) -> tuple[Any, Any, list[Any], list[Any]]:
    """After one step."""
    optimizer, apply, own, values = held
    values, own = apply(own, gradients, values)
    return optimizer, apply, own, values


def scaled(loss: Any, held: Any) -> Any:
    """A loss times the scale among these values, as Keras's own JAX trainer has it."""
    import keras

    optimizer, _, own, _ = held
    with keras.StatelessScope(state_mapping=zip(optimizer.variables, own, strict=True)):
        return optimizer.scale_loss(loss)


def differentiated(held: Any, data: list[Any]) -> tuple[Any, list[Any]]:
    """The loss of the linear network, and its scaled gradients."""
    import jax

    def both(values: list[Any]) -> Any:
        products = [(value.astype("float32") * given.astype("float32")).sum() for value, given in zip(values, data, strict=True)]
        return scaled(sum(products), held), sum(products)

    gradients, loss = jax.grad(both, has_aux=True)(held[3])
    return loss, gradients


def value_of(name: str, held: Any) -> Any:
    """The value of the variable of this name; the inner optimizer's come last."""
    optimizer, _, own, _ = held
    return {variable.name: value for variable, value in zip(optimizer.variables, own, strict=True)}[name]


def outputs(before: Any, after: Any, loss: Any) -> dict[str, Any]:
    """In Python's numbers."""
    return {
        "parameters": list(after[3]),
        "finite": int(value_of("iteration", after)) > int(value_of("iteration", before)),
        "scale": float(value_of("dynamic_scale", before)),
        "next_scale": float(value_of("dynamic_scale", after)),
        "loss": float(loss),
    }


ADAPTER = Keras()
