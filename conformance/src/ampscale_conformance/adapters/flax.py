"""flax: `DynamicScale`, whose scale moves inside its `value_and_grad`; eagerly, and under `jax.jit` as its page has it."""

from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of
from .base import Compilable, lacking


class Flax(Compilable):
    """It scales, differentiates, unscales, checks and moves in one call, and leaves the update to the loop."""

    info = ImplementationInfo(
        name="flax DynamicScale",
        version=version_of("flax"),
        url="https://flax-linen.readthedocs.io/en/latest/api_reference/flax.training.html",
        level=4,
        capabilities=("rounding", "resume", "process", "loss", "replicas", "jit"),
        preset="flax",
        arrays="jax",
    )
    scale = lacking("flax scales inside value_and_grad")
    unscale = lacking("flax unscales inside value_and_grad")
    all_finite = lacking("flax checks inside value_and_grad")
    add_optimizer = update_scale = lacking("flax has no scaler of a hand-written loop with optimizers")

    def create(self, rule: Any) -> Any:
        """Its interval is one less than the steps that it takes to grow."""
        from flax.training.dynamic_scale import DynamicScale

        return DynamicScale(
            growth_factor=rule.growth_factor,
            backoff_factor=rule.backoff_factor,
            growth_interval=rule.growth_interval - 1,
            scale=rule.init_scale,
            minimum_scale=rule.min_scale,
        )

    def update(self, scale: Any, finite: bool) -> Any:
        """A loss whose gradient is finite, or not."""
        return self.ready(moved)(scale, 0.0 if finite else float("inf"))

    def read_scale(self, scale: Any) -> float:
        """Its field."""
        return float(scale.scale)

    def save(self, scale: Any) -> Any:
        """As flax saves what it holds: in bytes."""
        from flax import serialization

        return serialization.to_bytes(scale)

    def load(self, rule: Any, saved: Any) -> Any:
        """Into a new one."""
        from flax import serialization

        return serialization.from_bytes(self.create(rule), saved)

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float) -> Any:
        """What a loop holds."""
        return {"scale": self.create(rule), "parameters": list(parameters), "learning_rate": learning_rate}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """The loop of its page."""
        scale = float(cell["scale"].scale)
        cell["scale"], finite, loss, cell["parameters"] = self.ready(stepped)(
            cell["scale"], cell["parameters"], list(data), cell["learning_rate"]
        )
        return {
            "parameters": cell["parameters"],
            "finite": bool(finite),
            "scale": scale,
            "next_scale": float(cell["scale"].scale),
            "loss": float(loss),
        }

    def update_replicas(self, scales: Sequence[Any], finite: Sequence[bool]) -> list[Any]:
        """With an axis name it averages the gradients over all ranks; here they are mapped over."""
        import jax
        import jax.numpy as jnp

        slopes = jnp.asarray([0.0 if flag else jnp.inf for flag in finite])
        together = jax.tree.map(lambda *values: jnp.stack(values), *scales)
        after = jax.vmap(lambda scale, slope: moved(scale, slope, "ranks"), axis_name="ranks")(together, slopes)
        return [jax.tree.map(lambda value, rank=rank: value[rank], after) for rank in range(len(slopes))]


def moved(scale: Any, slope: Any, axis_name: str | None = None) -> Any:
    """The next scale, for a loss whose gradient is *slope*."""
    import jax.numpy as jnp

    return scale.value_and_grad(lambda weight: weight * slope, axis_name=axis_name)(jnp.zeros(())).dynamic_scale


def stepped(scale: Any, parameters: list[Any], data: list[Any], learning_rate: float) -> tuple[Any, Any, Any, list[Any]]:
    """The next scale, whether the gradients were finite, the loss, and the parameters after plain SGD."""
    import jax
    import jax.numpy as jnp

    def loss_of(values: list[Any]) -> Any:
        return sum((value * given).sum() for value, given in zip(values, data, strict=True))

    scale, finite, loss, gradients = scale.value_and_grad(loss_of)(parameters)
    taken = jax.tree.map(
        lambda value, gradient: jnp.where(finite, value - learning_rate * gradient, value).astype(value.dtype),
        parameters,
        gradients,
    )
    return scale, finite, loss, taken


ADAPTER = Flax()
