"""
An equinox module trained in float16 by a loop that reads each report: `python examples/equinox_loop.py`.

The first scale is too large on purpose: the first steps overflow and are skipped, which changes neither parameters nor moments,
schedule or average. Requires `pip install equinox`, and ampscale[jax].
"""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import ampscale

OPTIMIZER = optax.adamw(optax.linear_schedule(0.05, 0.005, transition_steps=48))
RULE = ampscale.presets.flax(init_scale=2.0**24, growth_interval=8)


class Run(eqx.Module):
    """Everything that a run needs to continue: the train state, the moving average of the parameters, and the static parts."""

    state: ampscale.TrainState
    average: eqx.Module
    static: eqx.Module  # activation functions and sizes

    def __init__(self, seed):
        model = eqx.nn.MLP(2, "scalar", width_size=32, depth=1, activation=jnp.tanh, key=jax.random.key(seed))
        self.average, self.static = eqx.partition(model, eqx.is_inexact_array)
        self.state = ampscale.init_train_state(self.average, OPTIMIZER, RULE)

    def loss_fn(self, params, x, y):
        """Return the mean loss of the micro-batches, which run one after the other; JAX adds their float32 gradients."""
        return jnp.mean(jax.lax.map(jax.checkpoint(lambda batch: self.micro_loss(params, *batch)), (x, y)))

    def micro_loss(self, params, x, y):
        """Return the loss of one micro-batch, in float32; the model computes in float16."""
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), params)
        outputs = jax.vmap(eqx.combine(half, self.static))(x.astype(jnp.float16))
        return jnp.mean((outputs.astype(jnp.float32) - y) ** 2)

    @eqx.filter_jit
    def step(self, x, y):
        """Return the run after a step, and the report of the step. The first axis of *x* and *y* has the micro-batches."""
        network = ampscale.Network(self.loss_fn, self.state.params)
        state, report = ampscale.train_step(network, OPTIMIZER, RULE, self.state, x, y, max_norm=1.0)  # clips after unscaling
        new = optax.incremental_update(state.params, self.average, 0.05)
        average = jax.tree.map(lambda *leaves: jnp.where(report.applied, *leaves), new, self.average)
        return eqx.tree_at(lambda run: (run.state, run.average), self, (state, average)), report


def main():
    """Train for 48 steps, with a checkpoint after step 20, and compare with a run that is resumed from it."""
    x = jax.random.normal(jax.random.key(1), (48, 4, 16, 2))  # steps, micro-batches, samples, features
    batches = list(zip(x, x[..., 0] * x[..., 1], strict=True))

    run, losses, checkpoint = Run(seed=0), [], io.BytesIO()
    for index, batch in enumerate(batches):
        if index == 20:
            eqx.tree_serialise_leaves(checkpoint, run)
        run, report = run.step(*batch)
        if report.applied:
            losses.append(float(report.loss))

    checkpoint.seek(0)
    resumed = eqx.tree_deserialise_leaves(checkpoint, Run(seed=2))
    for batch in batches[20:]:
        resumed, _ = resumed.step(*batch)
    assert eqx.tree_equal(run, resumed)

    counts = optax.tree_utils.tree_get_all_with_path(run.state.optimizer, "count")  # of the moments and of the schedule
    assert all(count == run.state.applied == len(losses) for _, count in counts)
    skipped = len(batches) - len(losses)
    print(f"{len(losses)} applied, {skipped} skipped, loss {losses[0]:.3f} to {losses[-1]:.3f}, resumed bit for bit")


if __name__ == "__main__":
    main()
