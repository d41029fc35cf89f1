"""optax: a functional training loop with jmp's loss scale; the whole step can be compiled."""

from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo
from . import version_of
from .base import Library, jax, jmp, jnp, linear_loss, outputs, unavailable
from .jmp import Jmp

optax: Any = Library("optax")


class Optax(Jmp):
    """Loop of jmp's documentation: the updated parameters are always computed, and selected if the gradients were finite."""

    info = ImplementationInfo(
        name="optax with jmp",
        version=f"{version_of('optax')}, {version_of('jmp')}" if version_of("optax") else "",
        url="https://github.com/google-deepmind/jmp#loss-scaling",
        level=4,
        capabilities=("rounding", "float16", "loss", "norm", "clip", "momentum", "schedule", "counters", "jit"),
        preset="jmp",
        arrays="jax",
    )
    add_optimizer = update_scale = unavailable("an optax loop has no scaler that holds optimizers")

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float | Sequence[float], **options: Any) -> Any:
        rates = [learning_rate] if isinstance(learning_rate, float | int) else learning_rate
        optimizer = optimizer_with(rates, **options)
        state = {"parameters": list(parameters), "optimizer": optimizer.init(list(parameters)), "scale": self.create(rule)}
        return {"optimizer": optimizer, "state": state | {"attempted": 0, "applied": 0}, "rates": rates}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        old_state, rates = cell["state"], cell["rates"]
        new_state, results = self.ready(stepped, static_argnums=0)(cell["optimizer"], old_state, list(data))
        cell["state"] = new_state
        scales = self.read_scale(old_state["scale"]), self.read_scale(new_state["scale"])
        rate = rates[min(int(old_state["applied"]), len(rates) - 1)]
        counts = {name: int(new_state[name]) for name in ("attempted", "applied")}
        reported = {"global_norm": float(results["norm"]), "learning_rate": float(rate), **counts}
        return outputs(new_state["parameters"], bool(results["finite"]), *scales, float(results["loss"]), **reported)


def optimizer_with(rates: Sequence[float], max_norm: float | None = None, momentum: float = 0.0) -> Any:
    """Return SGD with clipping. Each learning rate is used in one step, and the last one in all further steps."""

    def schedule(count: Any) -> Any:
        return jnp.asarray(rates)[jnp.minimum(count, len(rates) - 1)]

    clip = optax.identity() if max_norm is None else optax.clip_by_global_norm(max_norm)
    # jmp unscales float16 gradients to float32.
    return optax.chain(clip, optax.sgd(schedule, momentum=momentum or None, accumulator_dtype=jnp.float32))


def stepped(optimizer: Any, state: dict[str, Any], data: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    scale = state["scale"]

    def scaled(values: list[Any]) -> Any:
        loss = linear_loss(values, data)
        return scale.scale(loss), loss

    gradients, loss = jax.grad(scaled, has_aux=True)(state["parameters"])
    gradients = scale.unscale(gradients)
    finite = jmp.all_finite(gradients)
    updates, optimizer_state = optimizer.update(gradients, state["optimizer"], state["parameters"])
    candidate = optax.apply_updates(state["parameters"], updates)
    parameters, selected = jmp.select_tree(finite, (candidate, optimizer_state), (state["parameters"], state["optimizer"]))
    new_state = {
        "parameters": parameters,
        "optimizer": selected,
        "scale": scale.adjust(finite),
        "attempted": state["attempted"] + 1,
        "applied": state["applied"] + finite,
    }
    return new_state, {"loss": loss, "finite": finite, "norm": optax.tree.norm(gradients)}
