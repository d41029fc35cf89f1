"""
A flax model and an optax optimizer in float16, compiled as one loop: `python examples/optax_flax.py`.

The first scale is too large on purpose: the first steps overflow and are skipped, which changes neither parameters nor moments,
schedule or average. Nothing is copied to the host before a loop ends. Requires `pip install flax`, and ampscale[jax].
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import serialization

import ampscale

MODEL = nn.Sequential([nn.Dense(32, dtype=jnp.float16), jnp.tanh, nn.Dense(1, dtype=jnp.float16)])  # float32 parameters
OPTIMIZER = optax.adamw(optax.cosine_decay_schedule(0.05, decay_steps=48))
RULE = ampscale.LossScaleRule(init_scale=2.0**24, growth_interval=8)


def micro_loss(params, x, y):
    """Return the loss of one micro-batch: float32, shape ()."""
    return jnp.mean((MODEL.apply(params, x)[:, 0].astype(jnp.float32) - y) ** 2)


def loss_fn(params, x, y):
    """
    Return the mean loss of micro-batches, the first axis of *x* and *y*.

    Micro-batches run one after the other; `jax.checkpoint` keeps the activations of only one. JAX adds their float32 gradients,
    and a sum with an infinity or a NaN stays non-finite: an overflow in any micro-batch skips the whole step.
    """
    losses = jax.lax.map(jax.checkpoint(lambda batch: micro_loss(params, *batch)), (x, y))
    return jnp.mean(losses)


def step(run, batch):
    """Run one step on the train state and the moving average of its parameters."""
    state, average = run
    network = ampscale.Network(loss_fn, state.params)
    state, report = ampscale.train_step(network, OPTIMIZER, RULE, state, *batch, max_norm=1.0)  # clips after unscaling
    new = optax.incremental_update(state.params, average, 0.05)
    return (state, jax.tree.map(partial(jnp.where, report.applied), new, average)), report


@jax.jit
def train(run, batches):
    """Run one step for each batch, and return the run, and a report whose arrays have one element per step."""
    return jax.lax.scan(step, run, batches)


def start(seed):
    """Return a run before its first step."""
    params = MODEL.init(jax.random.key(seed), jnp.zeros((1, 2)))
    return ampscale.init_train_state(params, OPTIMIZER, RULE), params


def main():
    """Train for 48 steps, once without stopping and once with a checkpoint after step 20, and compare the results."""
    x = jax.random.normal(jax.random.key(1), (48, 4, 16, 2))  # steps, micro-batches, samples, features
    batches = x, x[..., 0] * x[..., 1]
    run, reports = train(start(seed=0), batches)

    unfinished, _ = train(start(seed=0), jax.tree.map(lambda array: array[:20], batches))
    checkpoint = serialization.to_bytes(unfinished)
    resumed, _ = train(serialization.from_bytes(start(seed=2), checkpoint), jax.tree.map(lambda array: array[20:], batches))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, run, resumed))

    state, applied = run[0], reports.applied
    counts = optax.tree_utils.tree_get_all_with_path(state.optimizer, "count")  # of the moments and of the schedule
    assert all(count == state.applied == applied.sum() for _, count in counts)
    losses = reports.loss[applied]
    print(f"{applied.sum()} applied, {(~applied).sum()} skipped, loss {losses[0]:.3f} to {losses[-1]:.3f}, resumed bit for bit")


if __name__ == "__main__":
    main()
