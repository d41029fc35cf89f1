"""
JAX implementations with jax.numpy, jmp, flax and optax, each as one jitted function with a warm cache.

flax checks gradients in `DynamicScale.value_and_grad`. It is called with a loss whose gradient equals the loss's
argument, so that only flax's own work on gradients is measured.
"""

from collections.abc import Callable
from functools import cache, partial
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
TOO_LONG = "compilation takes minutes"
WARM = 4  # number of calls after which ampscale has compiled its function
MOST_ARRAYS = 2000  # in one program: XLA's compile time grows faster than their number


def contenders(operation: str, tree: list[jax.Array], scale: jax.Array, max_norm: float) -> list[Contender | Absent]:
    """Return ampscale's function, called eagerly and in a jitted function, and the other implementations, jitted."""
    ours = Contender("ampscale", warm(ready(call(operation, tree, scale, max_norm, in_place=False))), kind="ours")
    implementations = {"ampscale, jitted": _ours, "jax.numpy": _plain, "jmp": _jmp, "flax": _flax}
    result: list[Contender | Absent] = [ours]
    for name, implementation in implementations.items():
        if name == "flax" and operation in (FINITE, GLOBAL):
            continue  # flax has no such function
        if name in ("jmp", "flax") and (jmp is None or optax is None):
            result.append(Absent(name, NOT_INSTALLED))
        elif len(tree) > MOST_ARRAYS:
            result.append(Absent(name, TOO_LONG))
        else:
            run = ready(partial(_jitted(implementation, operation, max_norm), tree, scale))
            run()  # compiles
            result.append(Contender(name, run, kind="ours" if implementation is _ours else "other"))
    return result


def ready(function: Callable[[], object]) -> Callable[[], object]:
    """Return a function that calls *function* and waits for the result, since JAX dispatches asynchronously."""
    return lambda: jax.block_until_ready(function())


def warm(function: Callable[[], object]) -> Callable[[], object]:
    """Call *function* until ampscale has compiled its program, and return *function*."""
    for _ in range(WARM):
        function()
    return function


@cache
def _jitted(
    implementation: Callable[[str, float], Callable[..., object]], operation: str, max_norm: float
) -> Callable[..., object]:
    return jax.jit(implementation(operation, max_norm))


# Each of the following functions returns a function of the gradients and the scale.


def _ours(operation: str, max_norm: float) -> Callable[..., object]:
    return lambda tree, scale: call(operation, tree, scale, max_norm, in_place=False)()


def _plain(operation: str, max_norm: float) -> Callable[..., object]:
    def finite(tree: Any) -> jax.Array:
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))

    def norm(tree: Any) -> jax.Array:
        return jnp.sqrt(sum(jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(tree)))

    def clip(tree: Any, total_norm: jax.Array) -> Any:
        factor = jnp.minimum(1.0, max_norm / (total_norm + 1e-6))
        return jax.tree.map(lambda leaf: (leaf * factor).astype(leaf.dtype), tree)

    def unscaled(tree: Any, scale: jax.Array) -> tuple[Any, jax.Array]:
        gradients = jax.tree.map(lambda leaf: (leaf / scale).astype(leaf.dtype), tree)
        return gradients, finite(gradients)

    return _composed(operation, unscaled, finite, norm, clip)


def _jmp(operation: str, max_norm: float) -> Callable[..., object]:
    def unscaled(tree: Any, scale: jax.Array) -> tuple[Any, jax.Array]:
        gradients = jmp.DynamicLossScale(scale).unscale(tree)
        return gradients, jmp.all_finite(gradients)

    return _composed(operation, unscaled, jmp.all_finite, optax.tree.norm, _optax_clip(max_norm))


def _flax(operation: str, max_norm: float = 1.0) -> Callable[..., object]:
    @jax.custom_vjp
    def loss(tree: Any) -> jax.Array:  # noqa: ARG001 - its gradient is all that matters
        return jnp.zeros(())

    loss.defvjp(lambda tree: (jnp.zeros(()), tree), lambda tree, _: (tree,))

    def unscaled(tree: Any, scale: jax.Array) -> tuple[Any, jax.Array]:
        _, finite, _, gradients = flax.training.dynamic_scale.DynamicScale(scale=scale).value_and_grad(loss)(tree)
        return gradients, finite

    return _composed(operation, unscaled, None, optax.tree.norm, _optax_clip(max_norm))


def _optax_clip(max_norm: float) -> Callable[[Any, jax.Array], Any]:
    """Return a function that clips with optax. It computes the norm again; XLA merges the two computations."""
    return lambda tree, _: optax.clip_by_global_norm(max_norm).update(tree, optax.EmptyState())[0]


def _composed(operation: str, unscaled: Any, finite: Any, norm: Any, clip: Any) -> Callable[..., object]:
    """Return *operation*, composed of a library's functions, of which *unscaled* also returns the finite flag."""

    def normed(tree: Any, scale: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        gradients, finite_flag = unscaled(tree, scale)
        return gradients, finite_flag, norm(gradients)

    def clipped(tree: Any, scale: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        gradients, finite_flag, total_norm = normed(tree, scale)
        return clip(gradients, total_norm), finite_flag, total_norm

    reading = {FINITE: lambda tree, _: finite(tree), GLOBAL: lambda tree, _: norm(tree)}
    return {UNSCALE: unscaled, NORM: normed, CLIP: clipped, **reading}[operation]
