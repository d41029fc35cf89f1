"""jmp: `DynamicLossScale` and `all_finite`, eager. When compiled, it ignores its minimum."""

from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of
from .base import Compilable, Scaler, unavailable


class Jmp(Compilable, Scaler):
    """Scale that is a pytree, which a loop passes through its step."""

    info = ImplementationInfo(
        name="jmp DynamicLossScale",
        version=version_of("jmp"),
        url="https://github.com/google-deepmind/jmp",
        level=4,
        capabilities=("rounding", "division", "bfloat16", "integers", "none", "empty", "stays-on-device", "jit"),
        preset="jmp",
        arrays="jax",
    )
    add_optimizer = update_scale = unavailable("jmp has no scaler that holds optimizers")
    create_cell = unavailable("jmp has no training step; see the adapter optax")

    def create(self, rule: Any) -> Any:
        """Create a scale with the constants of a rule."""
        import jax.numpy as jnp
        import jmp

        return jmp.DynamicLossScale(
            jnp.float32(rule.init_scale),
            period=rule.growth_interval,
            factor=rule.growth_factor,
            min_loss_scale=jnp.float32(rule.min_scale),
        )

    def update(self, scale: Any, finite: bool) -> Any:
        """Call `adjust`."""
        import jax.numpy as jnp

        return self.ready(adjusted)(scale, jnp.asarray(finite))

    def read_scale(self, scale: Any) -> float:
        """Return the field that contains the scale."""
        return float(scale.loss_scale)

    def all_finite(self, tree: Any) -> Any:
        """Call `all_finite`."""
        import jmp

        return jmp.all_finite(tree)

    def step_on_arrays(self, scale: Any, tree: Any) -> Any:
        """Run the middle part of the loop in its docstring."""
        return self.ready(unscaled_and_adjusted)(scale, tree)


def adjusted(scale: Any, finite: Any) -> Any:
    """Return the next scale."""
    return scale.adjust(finite)


def unscaled_and_adjusted(scale: Any, tree: Any) -> Any:
    """Return the next scale, and the gradients."""
    import jmp

    gradients = scale.unscale(tree)
    return scale.adjust(jmp.all_finite(gradients)), gradients


ADAPTER = Jmp()
