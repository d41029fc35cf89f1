"""
A training run as one compiled loop, with optax: `python examples/jax_scan.py`.

Parameters are float32, and the model computes in float16. The first scale is too large on purpose: the gradients of some steps
overflow, which leaves the parameters and the optimizer state unchanged. Nothing is copied to the host before the loop ends.
"""

import jax
import jax.numpy as jnp
import optax

import ampscale


def loss_fn(params, x, y):
    """Compute the model in float16 and its loss in float32."""
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), params)
    hidden = jnp.tanh(x.astype(jnp.float16) @ half["inner"] + half["bias"])
    return jnp.mean(((hidden @ half["outer"]).astype(jnp.float32) - y) ** 2)


def train(steps=48):
    """Return the StepReport of a run; its arrays have one element per step."""
    inner, outer, inputs = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(inputs, (steps, 64, 2), jnp.float32)
    y = x[..., 0] * x[..., 1]
    params = {
        "inner": jax.random.normal(inner, (2, 32), jnp.float32),
        "bias": jnp.zeros(32, jnp.float32),
        "outer": jax.random.normal(outer, (32,), jnp.float32) / 8,
    }
    network = ampscale.Network(loss_fn, params)
    optimizer = optax.adam(0.05)
    rule = ampscale.LossScaleRule(init_scale=2.0**24, growth_interval=16)

    def step(state, batch):
        return ampscale.train_step(network, optimizer, rule, state, *batch)

    _, reports = jax.jit(lambda state: jax.lax.scan(step, state, (x, y)))(ampscale.init_train_state(params, optimizer, rule))
    return reports


if __name__ == "__main__":
    reports = train()
    for loss, applied, scale in zip(reports.loss.tolist(), reports.applied.tolist(), reports.scale.tolist(), strict=True):
        print(f"loss {loss:.6f}  {'applied' if applied else 'skipped'}  scale {scale:g}")
