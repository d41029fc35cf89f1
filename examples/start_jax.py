"""
A float16 training loop in JAX with optax: `python examples/start_jax.py`.

The first scale is too large on purpose: the first steps overflow and are skipped. Requires ampscale[jax].
"""

import jax
import jax.numpy as jnp
import optax

import ampscale


def loss_fn(params, x, y):
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), params)  # compute in float16
    predictions = x.astype(jnp.float16) @ half["w"] + half["b"]
    return jnp.mean((predictions.astype(jnp.float32) - y) ** 2)  # the loss is float32


params = {"w": jnp.zeros(4), "b": jnp.zeros(())}  # float32
network = ampscale.Network(loss_fn, params)  # only the loss function is used below; the state holds the parameters
optimizer = optax.adam(0.1)
rule = ampscale.LossScaleRule(init_scale=2.0**24, min_scale=1.0)  # too large on purpose: the first steps overflow
state = ampscale.init_train_state(params, optimizer, rule)


@jax.jit
def step(state, x, y):
    return ampscale.train_step(network, optimizer, rule, state, x, y)


x = jax.random.normal(jax.random.key(0), (32, 4))
y = x.sum(1)
for _ in range(20):
    state, report = step(state, x, y)

print(f"{state.applied} applied, {state.attempted - state.applied} skipped, loss {report.loss:.4f}, scale {report.next_scale}")
