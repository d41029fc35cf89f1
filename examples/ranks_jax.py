"""
Training of the demo's digits in float16 on several devices: `python examples/ranks_jax.py --devices 4`.

Without accelerators, JAX divides the CPU into virtual devices. Each batch of 256 images consists of four micro-batches, which 1,
2 or 4 devices share. The number of devices therefore changes neither the scales nor the applied steps, and a saved run can be
resumed on a different number of devices. Requires ampscale[demo,jax].
"""

import argparse
import os
from itertools import islice, pairwise

MICRO_BATCHES, SEED = 4, 0


def main():
    """Train, and print every tenth step and each skipped one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, choices=(1, 2, 4), default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save", help="write the state after the last step to this .npz file")
    parser.add_argument("--resume", help="continue from a file that --save wrote")
    options = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={options.devices}"  # before JAX starts
    train(options)


def train(options):
    """Train on a mesh of devices with one axis. The modules are imported here, after `main` has set XLA_FLAGS."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import PartitionSpec as P

    import ampscale
    from ampscale.cli.demo.digits import batches_of, load
    from ampscale.distributed import JaxAxis

    def loss_of(params, images, answers):
        hidden = images.astype(jnp.float16)
        for weights in params[:-1]:
            hidden = jnp.tanh(hidden @ weights.astype(jnp.float16))
        outputs = (hidden @ params[-1].astype(jnp.float16)).astype(jnp.float32)
        return jnp.mean(jnp.logaddexp(0, outputs) - answers * outputs)

    widths = (64, 32, 32, 10)
    keys = jax.random.split(jax.random.key(SEED), len(widths) - 1)
    params = [jax.random.normal(key, shape) / shape[0] ** 0.5 for key, shape in zip(keys, pairwise(widths), strict=True)]
    network = ampscale.Network(loss_of, params)
    optimizer = ampscale.optimizers.SGD(network, 0.5)
    rule = ampscale.LossScaleRule(init_scale=2.0**24, growth_interval=1000)
    state = ampscale.init_train_state(params, optimizer, rule)
    if options.resume:
        with np.load(options.resume) as file:
            state = jax.tree.unflatten(jax.tree.structure(state), [jnp.asarray(file[name]) for name in file])

    axes = ("data", "micro-batch")  # each micro-batch is a rank

    def step(state, images, answers):
        state, report = ampscale.train_step(
            network, optimizer, rule, state, images, answers, max_norm=1.0, communicator=JaxAxis(axes)
        )
        return state, report._replace(loss=jax.lax.pmean(report.loss, axes))

    on_device = jax.vmap(step, in_axes=(None, 0, 0), out_axes=None, axis_name="micro-batch")
    mesh = jax.make_mesh((options.devices,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    on_mesh = jax.jit(jax.shard_map(on_device, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P(), check_vma=False))
    start = int(state.attempted)
    for images, answers in islice(batches_of(load(SEED), start + options.steps, SEED), start, None):
        batch = (array.reshape(MICRO_BATCHES, -1, array.shape[-1]) for array in (images, answers))
        state, report = on_mesh(state, *batch)
        number = int(state.attempted) - 1
        if not report.applied or number % 10 == 9:
            outcome = "applied" if report.applied else "skipped"
            print(f"step {number:3}  loss {report.loss:.4f}  {outcome}, next scale {report.next_scale:.0f}")
    print(f"{state.applied} of {state.attempted} steps applied, next scale {state.scaler.scale:.0f}")
    if options.save:
        np.savez(options.save, **{f"leaf{index:02}": leaf for index, leaf in enumerate(jax.tree.leaves(state))})


if __name__ == "__main__":
    main()
