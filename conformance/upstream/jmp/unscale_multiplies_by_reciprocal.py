"""Unscale 5 by 3 in float32."""

import jax.numpy as jnp
import jmp

gradient, loss_scale = jnp.float32(5), jmp.DynamicLossScale(jnp.float32(3))
print(f"unscale: {float(loss_scale.unscale(gradient)).hex()}")
print(f"gradient / loss_scale: {float(gradient / loss_scale.loss_scale).hex()}")
