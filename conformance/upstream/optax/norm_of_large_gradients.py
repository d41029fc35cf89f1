"""Clip float32 gradients whose squares are beyond the range of float32, with two values of `max_norm`."""

import jax.numpy as jnp
import optax

for number, max_norm in ((1e20, 1.0), (1e20, 1e39), (1e-30, 1.0)):
    gradients = jnp.full(2, number, jnp.float32)
    transform = optax.clip_by_global_norm(max_norm)
    clipped, _ = transform.update(gradients, transform.init(gradients))
    print(f"gradients {number}, maximum {max_norm}: norm {optax.tree.norm(gradients)}, clipped gradients {clipped[0]:.4g}")
