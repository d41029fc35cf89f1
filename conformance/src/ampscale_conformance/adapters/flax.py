"""flax: `DynamicScale`, whose `value_and_grad` updates the scale; eager, and under `jax.jit` as in its documentation."""

from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of
from .base import Compilable, Library, jax, jnp, linear_loss, outputs, unavailable

dynamic_scale: Any = Library("flax.training.dynamic_scale")
serialization: Any = Library("flax.serialization")


class Flax(Compilable):
    """Scale that scales, differentiates, unscales, checks and updates in one call, and leaves the optimizer to the loop."""

    info = ImplementationInfo(
        name="flax DynamicScale",
        version=version_of("flax"),
        url="https://flax-linen.readthedocs.io/en/latest/api_reference/flax.training.html",
        level=4,
        capabilities=("rounding", "resume", "process", "float16", "loss", "replicas", "jit"),
        preset="flax",
        arrays="jax",
    )
    scale = unscale = all_finite = unavailable("flax scales, unscales and checks inside value_and_grad")
    add_optimizer = update_scale = unavailable("flax has no scaler for hand-written loops with optimizers")

    def create(self, rule: Any) -> Any:
        """Create a scale. It is an array, as after each step; the first step would multiply a Python float in float64."""
        return dynamic_scale.DynamicScale(
            growth_factor=rule.growth_factor,
            backoff_factor=rule.backoff_factor,
            growth_interval=rule.growth_interval - 1,  # flax grows one step after its interval
            scale=jnp.float32(rule.init_scale),
            minimum_scale=rule.min_scale,
        )

    def update(self, scale: Any, finite: bool) -> Any:
        return self.ready(updated)(scale, 0.0 if finite else float("inf"))

    def read_scale(self, scale: Any) -> float:
        return float(scale.scale)

    def save(self, scale: Any) -> Any:
        return serialization.to_bytes(scale)

    def load(self, rule: Any, saved: Any) -> Any:
        return serialization.from_bytes(self.create(rule), saved)

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float) -> Any:
        return {"scale": self.create(rule), "parameters": list(parameters), "learning_rate": learning_rate}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        scale = float(cell["scale"].scale)
        arguments = cell["scale"], cell["parameters"], list(data), cell["learning_rate"]
        cell["scale"], finite, loss, cell["parameters"] = self.ready(stepped)(*arguments)
        return outputs(cell["parameters"], bool(finite), scale, float(cell["scale"].scale), float(loss))

    def update_replicas(self, scales: Sequence[Any], finite: Sequence[bool]) -> list[Any]:
        """Map over the replicas with an axis name, over which flax averages the gradients."""
        slopes = jnp.asarray([0.0 if flag else jnp.inf for flag in finite])
        stacked = jax.tree.map(lambda *values: jnp.stack(values), *scales)
        new_scales = jax.vmap(lambda scale, slope: updated(scale, slope, "replicas"), axis_name="replicas")(stacked, slopes)
        return [jax.tree.map(lambda value, rank=rank: value[rank], new_scales) for rank in range(len(slopes))]


def updated(scale: Any, slope: Any, axis_name: str | None = None) -> Any:
    """Return the scale after a step whose gradient is *slope*."""
    return scale.value_and_grad(lambda weight: weight * slope, axis_name=axis_name)(jnp.zeros(())).dynamic_scale


def stepped(scale: Any, parameters: list[Any], data: list[Any], learning_rate: float) -> tuple[Any, Any, Any, list[Any]]:
    """Return the next scale, the finite flag, the loss, and the parameters after plain SGD."""
    scale, finite, loss, gradients = scale.value_and_grad(lambda values: linear_loss(values, data))(parameters)
    pairs = zip(parameters, gradients, strict=True)
    new_parameters = [jnp.where(finite, old - learning_rate * gradient, old).astype(old.dtype) for old, gradient in pairs]
    return scale, finite, loss, new_parameters
