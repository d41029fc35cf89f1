"""Reduce a loss scale whose minimum is 64 until it stays the same, eagerly and in jax.jit."""

import jax
import jax.numpy as jnp
import jmp

for name, adjust in {"eager": jmp.DynamicLossScale.adjust, "jit": jax.jit(jmp.DynamicLossScale.adjust)}.items():
    loss_scale = jmp.DynamicLossScale(jnp.float32(1024), min_loss_scale=jnp.float32(64))
    for _ in range(12):
        loss_scale = adjust(loss_scale, jnp.asarray(False))
    print(f"{name}: loss scale {loss_scale.loss_scale}, minimum {loss_scale.min_loss_scale}")
