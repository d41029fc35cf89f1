"""optax: the functional loop that is written around its optimizers, with the scale of jmp; all of it can be compiled."""

from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from . import version_of


class Optax:
    """
    The loop of jmp's page: the candidate is computed always, and selected where the gradients were finite.

    Args:
        compiles: Whether a step is under `jax.jit`.
    """

    info = ImplementationInfo(
        name="optax with jmp",
        version=f"{version_of('optax')}, {version_of('jmp')}" if version_of("optax") else "",
        url="https://github.com/google-deepmind/jmp#loss-scaling",
        level=4,
        capabilities=("rounding", "loss", "norm", "clip", "momentum", "schedule", "counters", "jit"),
        preset="jmp",
        arrays="jax",
    )

    def __init__(self, compiles: bool = False) -> None:
        self.compiles = compiles

    def create(self, rule: Any) -> Any:
        """As jmp has it."""
        return scale_with(rule)

    def update(self, scale: Any, finite: bool) -> Any:
        """As jmp has it."""
        import jax.numpy as jnp

        return ready(adjusted, self.compiles)(scale, jnp.asarray(finite))

    def read_scale(self, scale: Any) -> float:
        """As jmp has it."""
        return float(scale.loss_scale)

    def scale(self, scale: Any, tree: Any) -> Any:
        """As jmp has it."""
        return scale.scale(tree)

    def unscale(self, scale: Any, tree: Any) -> Any:
        """As jmp has it."""
        return scale.unscale(tree)

    def all_finite(self, tree: Any) -> Any:
        """As jmp has it."""
        import jmp

        return jmp.all_finite(tree)

    def add_optimizer(self, scale: Any, parameters: Sequence[Any]) -> Any:
        """The loop is functional."""
        raise Unsupported("an optax loop has no scaler that holds optimizers")

    def update_scale(self, scale: Any) -> None:
        """Likewise."""
        raise Unsupported("an optax loop has no scaler that holds optimizers")

    def create_cell(
        self,
        rule: Any,
        parameters: Sequence[Any],
        learning_rate: float | Sequence[float],
        max_norm: float | None = None,
        momentum: float = 0.0,
    ) -> Any:
        """The optimizer, and all that the loop carries."""
        optimizer = optimizer_with(learning_rate, max_norm, momentum)
        carried = {
            "parameters": list(parameters),
            "optimizer": optimizer.init(list(parameters)),
            "scale": scale_with(rule),
            "attempted": 0,
            "applied": 0,
        }
        return {"optimizer": optimizer, "carried": carried, "rates": learning_rate}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """One step."""
        before = cell["carried"]
        cell["carried"], told = ready(stepped, self.compiles, static_argnums=0)(cell["optimizer"], before, list(data))
        return outputs(before, cell["carried"], told, cell["rates"])

    def compiled(self) -> Any:
        """Under `jax.jit`."""
        return Optax(compiles=True)


def ready(function: Any, compiles: bool, **options: Any) -> Any:
    """The function, under `jax.jit` if that is asked for."""
    import jax

    return jax.jit(function, **options) if compiles else function


def scale_with(rule: Any) -> Any:
    """The scale of jmp with a rule's constants."""
    import jax.numpy as jnp
    import jmp

    return jmp.DynamicLossScale(
        jnp.float32(rule.init_scale),
        period=rule.growth_interval,
        factor=rule.growth_factor,
        min_loss_scale=jnp.float32(rule.min_scale),
    )


def adjusted(scale: Any, finite: Any) -> Any:
    """The next scale."""
    return scale.adjust(finite)


def optimizer_with(learning_rate: float | Sequence[float], max_norm: float | None, momentum: float) -> Any:
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
