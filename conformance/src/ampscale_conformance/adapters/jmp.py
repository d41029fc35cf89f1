"""jmp: `DynamicLossScale` and `all_finite`, eagerly; compiled, it loses the minimum that it was given."""

from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from . import version_of


class Jmp:
    """
    A scale that is a pytree, which every loop hands through its compiled step.

    Args:
        compiles: Whether that step is under `jax.jit`.
    """

    info = ImplementationInfo(
        name="jmp DynamicLossScale",
        version=version_of("jmp"),
        url="https://github.com/google-deepmind/jmp",
        level=4,
        capabilities=("rounding", "division", "bfloat16", "integers", "none", "empty", "no-host-reads", "jit"),
        preset="jmp",
        arrays="jax",
    )

    def __init__(self, compiles: bool = False) -> None:
        self.compiles = compiles

    def create(self, rule: Any) -> Any:
        """With a rule's constants."""
        import jax.numpy as jnp
        import jmp

        return jmp.DynamicLossScale(
            jnp.float32(rule.init_scale),
            period=rule.growth_interval,
            factor=rule.growth_factor,
            min_loss_scale=jnp.float32(rule.min_scale),
        )

    def update(self, scale: Any, finite: bool) -> Any:
        """Its own word for it."""
        import jax.numpy as jnp

        return ready(adjusted, self.compiles)(scale, jnp.asarray(finite))

    def read_scale(self, scale: Any) -> float:
        """Its field."""
        return float(scale.loss_scale)

    def scale(self, scale: Any, tree: Any) -> Any:
        """Its own."""
        return scale.scale(tree)

    def unscale(self, scale: Any, tree: Any) -> Any:
        """Its own."""
        return scale.unscale(tree)

    def all_finite(self, tree: Any) -> Any:
        """Its own."""
        import jmp

        return jmp.all_finite(tree)

    def add_optimizer(self, scale: Any, parameters: Sequence[Any]) -> Any:
        """Its loop is functional."""
        raise Unsupported("jmp has no scaler that holds optimizers")

    def update_scale(self, scale: Any) -> None:
        """Likewise."""
        raise Unsupported("jmp has no scaler that holds optimizers")

    def create_cell(self, rule: Any, parameters: Sequence[Any], **options: Any) -> Any:
        """Its loop is written around it."""
        raise Unsupported("jmp has no step of its own: see the adapter optax")

    def step_on_arrays(self, scale: Any, tree: Any) -> Any:
        """The middle of the loop in its docstring."""
        return ready(unscaled_and_adjusted, self.compiles)(scale, tree)

    def compiled(self) -> Any:
        """Under `jax.jit`."""
        return Jmp(compiles=True)


def ready(function: Any, compiles: bool) -> Any:
    """The function, under `jax.jit` if that is asked for."""
    import jax

    return jax.jit(function) if compiles else function


def adjusted(scale: Any, finite: Any) -> Any:
    """The next scale."""
    return scale.adjust(finite)


def unscaled_and_adjusted(scale: Any, tree: Any) -> Any:
    """The next scale, and the gradients."""
    import jmp

    gradients = scale.unscale(tree)
    return scale.adjust(jmp.all_finite(gradients)), gradients


ADAPTER = Jmp()
