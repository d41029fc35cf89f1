"""jmp: `DynamicLossScale` and `all_finite`, eager. When compiled, the scale ignores its minimum."""

from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of
from .base import Compilable, Scaler, jmp, jnp, unavailable


class Jmp(Compilable, Scaler):
    """Scale that is a pytree, which a loop passes through its step."""

    info = ImplementationInfo(
        name="jmp DynamicLossScale",
        version=version_of("jmp"),
        url="https://github.com/google-deepmind/jmp",
        level=4,
        capabilities=(
            *("rounding", "division", "float16", "bfloat16", "integers", "none", "empty", "namedtuple"),
            *("stays-on-device", "jit"),
        ),
        preset="jmp",
        arrays="jax",
    )
    add_optimizer = update_scale = unavailable("jmp has no scaler that holds optimizers")
    create_cell = unavailable("jmp has no training step; see the adapter optax")

    def create(self, rule: Any) -> Any:
        scale, minimum = jnp.float32(rule.init_scale), jnp.float32(rule.min_scale)
        return jmp.DynamicLossScale(scale, period=rule.growth_interval, factor=rule.growth_factor, min_loss_scale=minimum)

    def update(self, scale: Any, finite: bool) -> Any:
        return self.ready(jmp.DynamicLossScale.adjust)(scale, jnp.asarray(finite))

    def read_scale(self, scale: Any) -> float:
        return float(scale.loss_scale)

    def all_finite(self, tree: Any) -> Any:
        return jmp.all_finite(tree)

    def step_on_arrays(self, scale: Any, tree: Any) -> Any:
        """Run the middle part of the loop in jmp's docstring."""
        return self.ready(unscaled_and_adjusted)(scale, tree)


def unscaled_and_adjusted(scale: Any, tree: Any) -> Any:
    gradients = scale.unscale(tree)
    return scale.adjust(jmp.all_finite(gradients)), gradients
