"""optax: the functional loop that is written around its optimizers, with the scale of jmp; all of it can be compiled."""

from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of
from .base import lacking
from .jmp import Jmp


class Optax(Jmp):
    """The loop of jmp's page: the candidate is computed always, and selected where the gradients were finite."""

    info = ImplementationInfo(
        name="optax with jmp",
        version=f"{version_of('optax')}, {version_of('jmp')}" if version_of("optax") else "",
        url="https://github.com/google-deepmind/jmp#loss-scaling",
        level=4,
        capabilities=("rounding", "loss", "norm", "clip", "momentum", "schedule", "counters", "jit"),
        preset="jmp",
        arrays="jax",
    )
    add_optimizer = update_scale = lacking("an optax loop has no scaler that holds optimizers")

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float | Sequence[float], **options: Any) -> Any:
        """The optimizer, and all that the loop carries."""
        optimizer = optimizer_with(learning_rate, **options)
        carried = {
            "parameters": list(parameters),
            "optimizer": optimizer.init(list(parameters)),
            "scale": self.create(rule),
            "attempted": 0,
            "applied": 0,
        }
        return {"optimizer": optimizer, "carried": carried, "rates": learning_rate}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """One step."""
        before = cell["carried"]
        cell["carried"], told = self.ready(stepped, static_argnums=0)(cell["optimizer"], before, list(data))
        return outputs(before, cell["carried"], told, cell["rates"])


def optimizer_with(learning_rate: float | Sequence[float], max_norm: float | None = None, momentum: float = 0.0) -> Any:
    """SGD behind a clip; of several rates the last for ever after."""
    import jax.numpy as jnp
    import optax

    rates = jnp.asarray([learning_rate] if isinstance(learning_rate, float | int) else learning_rate)
    clip = optax.identity() if max_norm is None else optax.clip_by_global_norm(max_norm)
    return optax.chain(clip, optax.sgd(lambda count: rates[jnp.minimum(count, len(rates) - 1)], momentum=momentum or None))


def stepped(optimizer: Any, carried: dict[str, Any], data: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the loop carries on, and what it tells of the step."""
    import jax
    import jmp
    import optax

    scale = carried["scale"]

    def scaled(values: list[Any]) -> Any:
        loss = sum((value * given).sum() for value, given in zip(values, data, strict=True))
        return scale.scale(loss), loss

    gradients, loss = jax.grad(scaled, has_aux=True)(carried["parameters"])
    gradients = scale.unscale(gradients)
    finite = jmp.all_finite(gradients)
    updates, moved = optimizer.update(gradients, carried["optimizer"], carried["parameters"])
    candidate = optax.apply_updates(carried["parameters"], updates)
    parameters, kept = jmp.select_tree(finite, (candidate, moved), (carried["parameters"], carried["optimizer"]))
    after = {
        "parameters": parameters,
        "optimizer": kept,
        "scale": scale.adjust(finite),
        "attempted": carried["attempted"] + 1,
        "applied": carried["applied"] + finite,
    }
    return after, {"loss": loss, "finite": finite, "norm": optax.global_norm(gradients)}


def outputs(
    before: dict[str, Any], after: dict[str, Any], told: dict[str, Any], rates: float | Sequence[float]
) -> dict[str, Any]:
    """In Python's numbers."""
    applied = int(before["applied"])
    rate = rates if isinstance(rates, float | int) else rates[min(applied, len(rates) - 1)]
    return {
        "parameters": after["parameters"],
        "finite": bool(told["finite"]),
        "scale": float(before["scale"].loss_scale),
        "next_scale": float(after["scale"].loss_scale),
        "loss": float(told["loss"]),
        "global_norm": float(told["norm"]),
        "learning_rate": float(rate),
        "attempted": int(after["attempted"]),
        "applied": int(after["applied"]),
    }


ADAPTER = Optax()
