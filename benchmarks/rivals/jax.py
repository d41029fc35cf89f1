"""
JAX: what people write with jax.numpy, and with jmp, flax and optax, each as one jitted function with a warm cache.

flax has its check inside `DynamicScale.value_and_grad`. It is called with a loss whose gradient is what it is given, so that
nothing is computed but what flax does with gradients.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from measure import Absent, Contender
from ours import CLIP, FINITE, GLOBAL, NORM, UNSCALE, call

try:
    import flax.training.dynamic_scale
    import jmp
except ModuleNotFoundError:
    flax = jmp = None
try:
    import optax
except ModuleNotFoundError:
    optax = None

NOT_INSTALLED = "not installed"
TOO_LONG = "its program takes minutes to compile"
WARM = 4
MOST_ARRAYS = 2000  # of one program: what XLA's compiler takes grows faster than their number


def contenders(verb: str, tree: list[jax.Array], scale: jax.Array, max_norm: float) -> list[Contender | Absent]:
    """Ours as it is called and within a function of the user's that is jitted; and the rivals, jitted."""
    ours = Contender("ampscale", warm(ready(call(verb, tree, scale, max_norm, in_place=False))), kind="ours")
    ways = {"ampscale, jitted": _ours, "jax.numpy": _plain, "jmp": _jmp, "flax": _flax}
    found: list[Contender | Absent] = [ours]
    for name, way in ways.items():
        if name == "flax" and verb in (FINITE, GLOBAL):
            continue  # it has no such function
        if name in ("jmp", "flax") and (jmp is None or optax is None):
            found.append(Absent(name, NOT_INSTALLED))
        elif len(tree) > MOST_ARRAYS:
            found.append(Absent(name, TOO_LONG))
        else:
            run = ready(_bound(_jitted(way, verb, max_norm), tree, scale))
            run()  # compiles
            found.append(Contender(name, run, kind="ours" if way is _ours else "rival"))
    return found


def ready(function: Callable[[], object]) -> Callable[[], object]:
    """Waits for the result: JAX returns before it has computed."""
    return lambda: jax.block_until_ready(function())


def warm(function: Callable[[], object]) -> Callable[[], object]:
    """*function*, after as many calls as ours needs to know that it is worth while to compile."""
    for _ in range(WARM):
        function()
    return function


def _bound(function: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    return lambda: function(*arguments)


@cache
def _jitted(way: Callable[[str, float], Callable[..., object]], verb: str, max_norm: float) -> Callable[..., object]:
    return jax.jit(way(verb, max_norm))


def _ours(verb: str, max_norm: float) -> Callable[..., object]:
    return lambda tree, scale: call(verb, tree, scale, max_norm, in_place=False)()


def _plain(verb: str, max_norm: float) -> Callable[..., object]:
    def finite(tree: Any) -> jax.Array:
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))

    def norm(tree: Any) -> jax.Array:
        return jnp.sqrt(sum(jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(tree)))

    def clip(tree: Any, length: jax.Array) -> Any:
        factor = jnp.minimum(1.0, max_norm / (length + 1e-6))
        return jax.tree.map(lambda leaf: (leaf * factor).astype(leaf.dtype), tree)

    def unscaled(tree: Any, scale: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: (leaf / scale).astype(leaf.dtype), tree)

    return _composed(verb, lambda tree, scale: (found := unscaled(tree, scale), finite(found)), finite, norm, clip)


def _jmp(verb: str, max_norm: float) -> Callable[..., object]:
    def unscaled(tree: Any, scale: jax.Array) -> tuple[Any, jax.Array]:
        found = jmp.DynamicLossScale(scale).unscale(tree)
        return found, jmp.all_finite(found)

    return _composed(verb, unscaled, jmp.all_finite, optax.global_norm, _optax_clip(max_norm))


def _flax(verb: str, max_norm: float = 1.0) -> Callable[..., object]:
    @jax.custom_vjp
    def loss(tree: Any) -> jax.Array:  # noqa: ARG001 - its gradient is all that matters
        return jnp.zeros(())

    loss.defvjp(lambda tree: (jnp.zeros(()), tree), lambda tree, _: (tree,))

    def unscaled(tree: Any, scale: jax.Array) -> tuple[Any, jax.Array]:
        _, good, _, found = flax.training.dynamic_scale.DynamicScale(scale=scale).value_and_grad(loss)(tree)
        return found, good

    return _composed(verb, unscaled, None, optax.global_norm, _optax_clip(max_norm))


def _optax_clip(max_norm: float) -> Callable[[Any, jax.Array], Any]:
    """It takes the norm itself, which XLA computes once."""
    return lambda tree, _: optax.clip_by_global_norm(max_norm).update(tree, optax.EmptyState())[0]


def _composed(verb: str, unscaled: Any, finite: Any, norm: Any, clip: Any) -> Callable[..., object]:
    """The verb, made of a library's parts."""

    def normed(tree: Any, scale: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        found, good = unscaled(tree, scale)
        return found, good, norm(found)

    def clipped(tree: Any, scale: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        found, good, length = normed(tree, scale)
        return clip(found, length), good, length

    reading = {FINITE: lambda tree, _: finite(tree), GLOBAL: lambda tree, _: norm(tree)}
    return {UNSCALE: unscaled, NORM: normed, CLIP: clipped, **reading}[verb]
