"""Run the example in the docstring of DynamicScale, and compare the losses with those of the function."""

import jax
import jax.numpy as jnp
from flax.training.dynamic_scale import DynamicScale


def loss_fn(p):
    return jnp.asarray(p, jnp.float16) ** 2


p = jnp.array(1.0, jnp.float32)
dyn_scale = DynamicScale(growth_interval=10)
compute_grad = jax.jit(lambda ds, p: ds.value_and_grad(loss_fn)(p))
for step in range(3):
    expected = loss_fn(p)
    dyn_scale, is_fin, loss, grad = compute_grad(dyn_scale, p)
    p += jnp.where(is_fin, 0.01 * grad, 0.0)
    print(f"step {step}: loss {loss} {loss.dtype}, loss_fn(p) {expected} {expected.dtype}, is_fin {is_fin}")

result = DynamicScale(scale=2.0**127).value_and_grad(lambda p: 4.0 + p / 2)(jnp.float32(0))
print(f"scale 2**127: loss {result.aux}, expected 4.0, gradient {result.grad}, is_fin {result.finite}")
