"""
JAX ranks in other processes, which run without jax_enable_x64: eight virtual devices, or two processes of two devices.

Each process runs its jobs once, and prints the results as JSON: `python -m distributed.jax_ranks runs`, which takes long,
`python -m distributed.jax_ranks devices`, or `python -m distributed.jax_ranks processes RANK PORT`.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.distributed import global_state
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import ampscale
from ampscale import LossScaleRule
from ampscale.distributed import JaxAxis, RankError

TESTS = Path(__file__).parent.parent
RULE = LossScaleRule(init_scale=2.0**10, growth_interval=4, hysteresis=2)
STEPS = 500
LAYOUTS = {  # name of a run: gradients, check_vma, max_norm
    "replicated": ("replicated", True, None),
    "replicated clipped": ("replicated", False, 1.0),
    "sharded": ("sharded", False, None),
    "sharded clipped": ("sharded", True, 1.0),
}


def faults(layout):
    """Return inputs for each step and rank, some of which overflow, and the finite flags that they cause."""
    generator = np.random.default_rng(7)
    values = generator.normal(size=(STEPS, 8)).astype(np.float32)
    state, flags = RULE.init(like=0.0), []
    for step in range(STEPS):
        fault = generator.integers(0, 12)
        if fault == 0:
            values[step, generator.integers(8)] = generator.choice([np.inf, -np.inf, np.nan])
        elif fault == 1:
            values[step, [1, 6]] = np.inf, -np.inf
        elif fault == 2:  # the values are finite on each rank, but their sum is not
            values[step, [2, 5]] = 3e38 / state.scale
        harmful = (0, 1) if layout == "sharded" else (0, 1, 2)  # shards are not added up
        flags.append(fault not in harmful)
        state = RULE.update(state, flags[-1])
    return values, flags


def scales(flags):
    """Return the scale after each step, computed by a loop on Python numbers."""
    state, results = RULE.init(like=0.0), []
    for finite in flags:
        state = RULE.update(state, finite)
        results.append(state.scale)
    return results


def mesh_of(devices=None):
    """Return a mesh of one axis, of all devices by default."""
    return jax.make_mesh((devices or len(jax.devices()),), ("data",), axis_types=(AxisType.Auto,))


def placed(array, mesh, spec):
    """Return an array distributed over a mesh."""
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])


def trained(mesh, layout, check_vma, max_norm, values):
    """Return the flags and scales of all steps of one `lax.scan` as lists, and the last state."""
    sharded = layout == "sharded"
    params = placed(np.ones(16, np.float32), mesh, P("data") if sharded else P())
    network = ampscale.Network(lambda p, x: jnp.sum(p * x), params)
    optimizer = ampscale.optimizers.SGD(network, 1e-3)
    state = ampscale.init_train_state(params, optimizer, RULE)
    communicator = JaxAxis("data", gradients=layout)

    def step(state, value):
        state, report = ampscale.train_step(network, optimizer, RULE, state, value, max_norm=max_norm, communicator=communicator)
        return state, (report.finite, report.next_scale)

    specs = jax.tree.map(lambda leaf: P("data") if sharded and leaf.ndim else P(), state)
    run = jax.shard_map(
        lambda state, values: jax.lax.scan(step, state, values),
        mesh=mesh, in_specs=(specs, P(None, "data")), out_specs=(specs, P()), check_vma=check_vma,
    )  # fmt: skip
    state, (flags, scales) = jax.jit(run)(state, placed(values, mesh, P(None, "data")))
    return np.asarray(flags).tolist(), np.asarray(scales).tolist(), state


def trained_with_jit(network, optimizer, values, max_norm=None):
    """Train with plain jit on global arrays, without a communicator; return what `trained` returns."""

    def step(state, value):
        state, report = ampscale.train_step(network, optimizer, RULE, state, value, max_norm=max_norm)
        return state, (report.finite, report.next_scale)

    run = jax.jit(lambda state, values: jax.lax.scan(step, state, values))
    state = ampscale.init_train_state(network.params, optimizer, RULE)
    state, (flags, scales) = run(state, placed(values, mesh_of(), P(None, "data")))
    return np.asarray(flags).tolist(), np.asarray(scales).tolist(), state


def distinct_copies(state):
    """Return the largest number of different values that devices have of a replicated array."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if leaf.sharding.is_fully_replicated]
    return max(len({np.asarray(shard.data).tobytes() for shard in leaf.addressable_shards}) for leaf in leaves)


def run_of(name):
    """Return the results of a run of `LAYOUTS`, as JSON values."""
    layout, check_vma, max_norm = LAYOUTS[name]
    flags, scales, state = trained(mesh_of(), layout, check_vma, max_norm, faults(layout)[0])
    finite = bool(np.isfinite(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state)])).all())
    return {"flags": flags, "scales": scales, "distinct copies": distinct_copies(state), "finite": finite}


def half_precision_mean():
    """Return two parameters after a step with the scaled gradients 0, 1, ..., 7 times 8192, whose sum is infinite in float16."""
    mesh = mesh_of()
    params = {"w": placed(np.zeros(3, np.float16), mesh, P()), "b": placed(np.zeros(1, np.float32), mesh, P())}
    rule = LossScaleRule(init_scale=8192.0)
    network = ampscale.Network(lambda p, x: jnp.sum(p["w"] * x.astype(jnp.float16), dtype=jnp.float32) + p["b"][0] * x[0], params)
    optimizer = ampscale.optimizers.SGD(network, 1.0)

    def step(state, x):
        return ampscale.train_step(network, optimizer, rule, state, x, communicator=JaxAxis("data"))[0].params

    run = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P("data")), out_specs=P()))
    params = run(ampscale.init_train_state(params, optimizer, rule), np.arange(8, dtype=np.float32))
    return {name: np.asarray(value).tolist() for name, value in params.items()}


def norms(dtypes, *exponents):
    """Return for each magnitude the norm of the shards and its lift, the norm of the whole arrays, and the exact norm."""
    generator = np.random.default_rng(0)
    sizes = [16] + [8 * 4096] * (len(dtypes) - 1)

    def agreed(tree):
        return JaxAxis("data", gradients="sharded").agree(jnp.bool_(True), None, tree, norm=True).norm

    run = jax.jit(jax.shard_map(agreed, mesh=mesh_of(), in_specs=P("data"), out_specs=P()))
    results = []
    for exponent in exponents:
        tree = [generator.normal(size=size) * 10.0**exponent for size in sizes]
        tree = [array * (1 - 1j) if dtype.startswith("complex") else array for array, dtype in zip(tree, dtypes, strict=True)]
        with np.errstate(over="ignore"):
            tree = [array.astype(jnp.dtype(dtype)) for array, dtype in zip(tree, dtypes, strict=True)]
        value, lift = run(tree)
        whole = ampscale.global_norm([jnp.asarray(array) for array in tree])
        magnitudes = np.concatenate([np.abs(array.astype(np.complex128)).astype(np.longdouble) for array in tree])
        exact = float(np.sqrt(np.sum(np.square(magnitudes))))
        results.append([*map(float, (value, lift, whole)), exact])
    return results


def float64_norms():
    with jax.enable_x64(True):
        return norms(["float64", "complex128"], -310, -160, 0, 153, 154, 200, 300)


def global_arrays():
    """Return the results of training with plain jit on arrays sharded over the mesh, and the number of devices of the scalars."""
    mesh, (values, _) = mesh_of(), faults("replicated")
    params = {"w": placed(np.ones(8, np.float32), mesh, P("data")), "b": placed(np.ones(1, np.float32), mesh, P())}
    network = ampscale.Network(lambda p, x: jnp.sum((p["w"] + p["b"]) * x), params)
    optimizer = ampscale.optimizers.AdamW(network, 1e-3)
    scalars = [leaf.sharding for leaf in jax.tree.leaves(ampscale.init_train_state(params, optimizer, RULE)) if leaf.ndim == 0]
    flags, scales, state = trained_with_jit(network, optimizer, values[:60])
    return {
        "flags": flags,
        "scales": scales,
        "distinct copies": distinct_copies(state),
        "scalars": [*{sharding.is_fully_replicated and sharding.num_devices for sharding in scalars}],
    }


def explicit_axes():
    """Return the names of functions whose results for explicitly sharded arrays differ from NumPy's for whole arrays."""
    from backends.jax.test_backend import FACTOR, all_results, differing  # starts JAX, which `on_process` configures first

    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    generator = np.random.default_rng(0)
    specs = [P("data", "model"), P(("data", "model"), None), P(None, "data"), P()]
    arrays = [generator.normal(size=shape).astype(jnp.bfloat16) for shape in ((64, 128), (16, 3), (8, 4096), (5, 1))]
    arrays = [jax.device_put(array, NamedSharding(mesh, spec)) for array, spec in zip(arrays, specs, strict=True)]
    whole = [np.asarray(array) for array in arrays]
    return differing(jax.tree.map(np.asarray, jax.jit(all_results)(arrays, FACTOR)), all_results(whole, FACTOR))


def pmapped():
    """Return the mean and the flags of eight ranks under `jax.pmap`."""

    def function(array):
        (mean,) = JaxAxis("data").mean([array])
        return mean, JaxAxis("data").agree(jnp.all(jnp.isfinite(mean)), None, [mean]).finite

    mean, finite = jax.pmap(function, axis_name="data")(np.arange(8, dtype=np.float16)[:, None] * 8192)
    return [np.asarray(mean).ravel().tolist(), np.asarray(finite).tolist()]


JOBS = {
    "norms": (norms, ["float32", "bfloat16", "complex64"], -44, -38, -20, 0, 18, 30, 37),
    "float64 norms": (float64_norms,),
    "half precision": (half_precision_mean,),
    "global arrays": (global_arrays,),
    "explicit axes": (explicit_axes,),
    "pmap": (pmapped,),
}


def on_process(rank, port):
    """
    Compare settings and train on one of two processes, with and without a communicator.

    Returns:
        The message of the error that the processes' different rules cause, the results of both runs, and `mean_of_keys`.
    """
    rank = int(rank)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    message = error_of_settings(rank)
    values = faults("replicated")[0][:20, :4]
    params = placed(np.ones(4, np.float32), mesh_of(), P())
    network = ampscale.Network(lambda p, x: jnp.sum(p) * jnp.sum(x), params)
    runs = [
        trained(mesh_of(), "replicated", True, 1.0, values),
        trained_with_jit(network, ampscale.optimizers.SGD(network, 1e-3), values, max_norm=1.0),
    ]
    results = [
        [flags, scales, distinct_copies(state), process_allgather(state.params, tiled=True).tolist()]
        for flags, scales, state in runs
    ]
    return message, results, mean_of_keys(rank)


def error_of_settings(rank):
    """Let settings differ and calls come too late on one process; return the message of the error for different rules."""
    if rank == 0:  # this process makes the next call too late, and JAX's backend has not started yet
        global_state.client.blocking_key_value_get("is named", 60_000)
    with pytest.raises(RankError, match=r"rank 0 did not respond within 0\.5 s"):
        JaxAxis("data", timeout=0.5).check_same(rule=RULE)
    if rank == 1:
        global_state.client.key_value_set("is named", "")
    JaxAxis("data").check_same(rule=RULE, max_norm=1.0)
    with pytest.raises(RankError, match="copies differs: 2 on rank 1; 1 on rank 0"):
        JaxAxis("data", gradients="sharded", copies=1 + rank).check_same()
    with pytest.raises(RankError) as error:
        JaxAxis("data").check_same(rule=LossScaleRule(growth_interval=5 + rank), max_norm=1.0)
    return str(error.value)


def mean_of_keys(rank):
    """Return the mean of a dict whose keys one process inserts in a different order."""

    def mean(values):
        keys = "wb" if rank else "bw"
        means = JaxAxis("data").mean({key: values * (10 if key == "b" else 1) for key in keys})
        return jnp.stack([means["w"], means["b"]])

    mapped = jax.jit(jax.shard_map(mean, mesh=mesh_of(), in_specs=P("data"), out_specs=P()))
    return np.asarray(mapped(placed(np.arange(4, dtype=np.float32), mesh_of(), P("data")))).tolist()


def main(name, *args):
    """Print the results of one process as JSON."""
    if name == "processes":
        result = on_process(*args)
    elif name == "runs":
        result = {layout: run_of(layout) for layout in LAYOUTS}
    else:
        result = {job: function(*arguments) for job, (function, *arguments) in JOBS.items()}
    print(json.dumps(result))  # noqa: T201


def started(devices, *args):
    """Start this module in another process with virtual devices, and return the process."""
    environment = {
        **os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_ENABLE_X64": "0",
        "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "AMPSCALE_KERNELS": "numpy",
    }  # fmt: skip
    command = [sys.executable, "-W", "error", "-m", "distributed.jax_ranks", *map(str, args)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def results_of(process):
    """Wait for a process, and return its results."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


@cache
def eight_devices(name="devices"):
    """Return the results of all jobs, or of all "runs", on eight virtual devices."""
    return results_of(started(8, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
