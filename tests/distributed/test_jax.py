"""JAX ranks: `jax.vmap` in this process, eight virtual devices in another one, and two processes with two devices each."""

from functools import partial

import numpy as np
import pytest
from distributed.pool import free_port

import ampscale

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from distributed.jax_ranks import LAYOUTS, RULE, STEPS, eight_devices, faults, mesh_of, results_of, scales, started  # noqa: E402
from jax.experimental import checkify  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from ampscale.core.norms import LiftedNorm, unlifted  # noqa: E402
from ampscale.core.step import clip_gradients  # noqa: E402
from ampscale.distributed import JaxAxis  # noqa: E402


def primitives(jaxpr):
    """Yield the name of each primitive of *jaxpr* and of the programs in it."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(equation.params):
            if hasattr(value, "jaxpr") or hasattr(value, "eqns"):
                yield from primitives(getattr(value, "jaxpr", value))


def on_ranks(function, *arrays):
    """Return the results of *function*, mapped over the first axis of *arrays* with `jax.vmap`."""
    return jax.vmap(function, axis_name="data")(*arrays)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.clause("REPLICAS-one-flag", "REPLICAS-same-decision", "REPLICAS-same-scale", "REPLICAS-spreads")
def test_ranks_skip_the_same_steps_and_scale_like_one_process(name):
    """Faults are NaNs and infinities on one rank or in one shard, opposite ones on two ranks, and sums that overflow."""
    result, (_, flags) = eight_devices("runs")[name], faults(LAYOUTS[name][0])
    assert 20 < flags.count(False) < STEPS / 2
    assert (result["flags"], result["scales"]) == (flags, scales(flags))
    assert (result["distinct copies"], result["finite"]) == (1, True)


@pytest.mark.clause("REPLICAS-mean", "REPLICAS-accumulation-dtype")
def test_parameters_that_do_not_vary_get_the_mean_of_half_precision_gradients():
    """`jax.shard_map` with check_vma=True would otherwise add the scaled gradients in float16, where they overflow."""
    assert eight_devices()["half precision"] == {"w": [-3.5, -3.5, -3.5], "b": [-3.5]}


@pytest.mark.clause("REPLICAS-agreed-norm", "REPLICAS-sharded-norm")
def test_norm_of_shards_has_the_bits_of_the_whole_norm_without_float64():
    """The arrays have several dtypes. A norm that exceeds float32 is lifted; the lifted value is accurate."""
    for value, lift, whole, exact in eight_devices()["norms"]:
        if whole < np.inf:
            assert (lift, value) == (1, whole)
        else:
            assert (lift, value / lift) == (2.0**-100, pytest.approx(exact, rel=1e-6))


@pytest.mark.clause("REPLICAS-agreed-norm", "REPLICAS-sharded-norm")
def test_norm_of_float64_shards_is_accurate():
    """Squares of some shards overflow or underflow, and those of others do not."""
    for value, lift, whole, exact in eight_devices()["float64 norms"]:
        assert lift == 1
        assert [value, whole] == pytest.approx([exact, exact], rel=1e-15, abs=0)


@pytest.mark.clause("REPLICAS-same-scale", "REPLICAS-mixed-placements")
def test_global_arrays_need_no_communicator_and_scalars_are_on_the_mesh():
    """The first parameter is sharded, and the second one is replicated."""
    result, (_, flags) = eight_devices()["global arrays"], faults("replicated")
    assert (result["flags"], result["scales"]) == (flags[:60], scales(flags)[:60])
    assert (result["distinct copies"], result["scalars"]) == (1, [8])


@pytest.mark.clause("OVERFLOW-same-everywhere")
def test_explicit_axes_of_a_mesh_need_no_communicator():
    """Arrays are distributed over one or both of two axes, or replicated."""
    assert eight_devices()["explicit axes"] == []


def test_axes_of_pmap_are_supported():
    """The mean of 0, 1, ..., 7 times 8192 is 28672."""
    assert eight_devices()["pmap"] == [[28672.0] * 8, [True] * 8]


@pytest.mark.clause("REPLICAS-same-decision", "REPLICAS-settings-compared", "REPLICAS-error-names-ranks", "REPLICAS-time-limit")
def test_two_processes_take_the_same_decisions_and_name_the_one_whose_settings_differ():
    """
    They train with a communicator, and with plain jit on global arrays: flags, scales and copies of the state are equal.

    A mean combines the arrays of a dict by key, even if one process has the keys in a different order.
    """
    port = free_port()
    processes = [started(2, "processes", rank, port) for rank in range(2)]
    (message, results, mean), other = [results_of(process) for process in processes]
    assert message == "rule.growth_interval differs: 6 on rank 1; 5 on rank 0"
    assert mean == [[1.5], [15.0]]
    assert other == [message, results, mean]
    flags_of_first, *_ = results[0]
    assert flags_of_first.count(False) >= 2
    for flags, scale_of_steps, distinct_copies, _ in results:
        assert (flags, distinct_copies) == (flags_of_first, 1)
        assert scale_of_steps == scales(flags)


@pytest.mark.clause("REPLICAS-settings-compared")
def test_processes_that_jax_does_not_connect_cannot_be_compared(monkeypatch):
    """`jax.distributed.initialize` was not called, so there is no coordination service."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(RuntimeError, match=r"requires jax.distributed.initialize\(\)"):
        JaxAxis("data").check_same(rule=RULE)


@pytest.mark.parametrize(
    ("gradients", "max_norm", "collectives"),
    [("replicated", None, 3), ("replicated", 1.0, 3), ("sharded", None, 1), ("sharded", 1.0, 1), ("distinct", 1.0, 1)],
)
@pytest.mark.clause("REPLICAS-one-flag")
def test_flag_and_norm_take_one_collective_and_nothing_is_read_on_the_host(gradients, max_norm, collectives):
    """The mean of replicated gradients takes another collective for each of the two arrays. XLA may combine the collectives."""
    network = ampscale.Network(lambda p, x: jnp.sum(p["w"] * x) + jnp.sum(p["b"]), {"w": jnp.ones(4), "b": jnp.ones((2, 3))})
    optimizer = ampscale.optimizers.SGD(network, 0.5)
    communicator = JaxAxis("data", gradients=gradients)

    def step(state, x):
        return ampscale.train_step(network, optimizer, RULE, state, x, max_norm=max_norm, communicator=communicator)

    state = ampscale.init_train_state(network.params, optimizer, RULE)
    mapped = jax.shard_map(step, mesh=mesh_of(1), in_specs=P(), out_specs=P(), check_vma=False)
    names = list(primitives(jax.make_jaxpr(mapped)(state, jnp.ones(4)).jaxpr))
    assert [name for name in names if "callback" in name] == []
    assert sum(name.startswith(("psum", "all_", "ppermute", "pmin", "pmax")) for name in names) == collectives


def gradients_of(loss, communicator):
    """Return the mean of the gradients that JAX computes for a parameter that does not vary."""
    run = jax.shard_map(
        lambda p, x: communicator.mean(jax.grad(loss)(p, x)), mesh=mesh_of(1), in_specs=(P(), P("data")), out_specs=P()
    )
    return run(jnp.float32(1.0), jnp.float32([3.0]))


@pytest.mark.clause("REPLICAS-mean")
def test_gradients_that_jax_has_added_up_are_rejected():
    """The message names two remedies, and mean=False as a third one, for a loss that is already a mean."""
    with pytest.raises(ValueError, match=r"must vary over the axis, got array 0 of float32\(\).*jax.lax.pcast.*check_vma=False"):
        gradients_of(lambda p, x: jnp.sum(p * x), JaxAxis("data"))

    def mean_loss(p, x):
        return jax.lax.pmean(jnp.sum(p * x), "data")

    with pytest.raises(ValueError, match="pass mean=False"):
        gradients_of(mean_loss, JaxAxis("data"))
    assert float(gradients_of(mean_loss, JaxAxis("data", mean=False))) == 3.0


@pytest.mark.clause("REPLICAS-same-scale")
def test_state_that_differs_between_ranks_is_detected_by_jax():
    """`jax.shard_map` rejects the state with check_vma=True; otherwise the documented check detects the difference."""
    agreed = partial(JaxAxis("data").agree, gradients=[])
    with pytest.raises(ValueError, match="out_specs"):
        jax.shard_map(lambda x: (agreed(x[0] > 0, x).finite, x), mesh=mesh_of(1), in_specs=P("data"), out_specs=P())(jnp.ones(1))

    def checked(scale):
        checkify.check(jax.lax.pmax(scale, "data") == jax.lax.pmin(scale, "data"), "scales differ")
        return agreed(scale > 0, scale).finite

    check = jax.jit(checkify.checkify(jax.vmap(checked, axis_name="data")))
    no_error, _ = check(jnp.float32([2.0, 2.0]))
    error, finite = check(jnp.float32([2.0, 4.0]))
    assert no_error.get() is None
    assert "scales differ" in error.get()
    assert finite.tolist() == [True, True]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.clause("REPLICAS-mean", "REPLICAS-accumulation-dtype")
def test_mean_is_rounded_once_and_keeps_dtypes(dtype):
    """The sum of the 16-bit values would overflow in float16."""
    values = np.asarray([[60000.0, 1.0], [60000.0, 2.0], [30000.0, 4.0]]).astype(jnp.dtype(dtype))
    result = on_ranks(lambda array: JaxAxis("data").mean({"w": array, "n": None}), jnp.asarray(values))["w"]
    sum_dtype = np.float32 if np.dtype(values.dtype).itemsize == 2 else values.dtype
    expected = (values.astype(sum_dtype).sum(0).real / np.float32(3)).astype(values.dtype)
    assert (result.dtype, np.asarray(result).tolist()) == (values.dtype, [expected.tolist()] * 3)


def test_mean_leaves_gradients_that_are_not_averaged_unchanged():
    tree = [jnp.ones(2)]
    for arguments in ({"mean": False}, {"gradients": "sharded"}, {"gradients": "distinct"}):
        assert JaxAxis("data", **arguments).mean(tree) is tree


def test_a_tuple_of_axis_names_is_one_axis():
    def function(array):
        return JaxAxis(("data", "model")).mean([array])[0], JaxAxis(("data", "model")).agree(array < 5, None, [array]).finite

    mean, finite = jax.vmap(jax.vmap(function, axis_name="model"), axis_name="data")(jnp.arange(6.0).reshape(2, 3))
    assert (mean.tolist(), finite.tolist()) == ([[2.5] * 3] * 2, [[False] * 3] * 2)


@pytest.mark.parametrize(
    ("gradients", "copies", "expected"), [("sharded", [1, 2], 22**0.5), ("sharded", 4, 3.0), ("distinct", 2, 18**0.5)]
)
@pytest.mark.clause("REPLICAS-copies-counted-once", "REPLICAS-agreed-norm")
def test_copies_are_counted_once(gradients, copies, expected):
    """On each of two ranks, the sums of squares of the two arrays are 4 and 14."""
    communicator = JaxAxis("data", gradients=gradients, copies=copies)

    def function(first, second):
        finite, has_gradients, norm = communicator.agree(jnp.bool_(True), None, [first, second], norm=True)
        assert has_gradients is True
        return finite, norm.value

    finite, norm = on_ranks(function, jnp.full((2, 1), 2.0), jnp.asarray([[1.0, 2.0, 3.0]] * 2))
    assert (finite.tolist(), norm.tolist()) == ([True, True], pytest.approx([expected] * 2))


@pytest.mark.clause("REPLICAS-agreed-norm", "NORMS-clip", "NORMS-clip-magnitudes")
@pytest.mark.parametrize(
    ("values", "x64"),
    [([[3, 4], [12, 0]], True), ([[3e37, 6e37], [9e37, 1e38]], False), ([[9e37, 1.8e38], [2.7e38, 3e38]], False)],
)
def test_shards_are_clipped_like_the_whole(values, x64):
    """The first norm is 13. The coefficients for the other two are subnormal, and the last norm exceeds the largest float32."""
    values = np.float32(values)
    (expected,), norm = ampscale.clip_by_global_norm([values], 1.0)

    def clipped(shard):
        agreed = JaxAxis("data", gradients="sharded").agree(jnp.bool_(True), None, [shard], norm=True).norm
        return clip_gradients([shard], 1.0, agreed, ampscale.get_backend(shard))

    with jax.enable_x64(x64):
        (shards,), norms = on_ranks(clipped, jnp.asarray(values))
    assert 0 < np.abs(expected).max() < 1
    assert (np.asarray(shards).tolist(), norms.tolist()) == (expected.tolist(), [float(norm)] * 2)


def test_subnormal_norm_is_kept_without_float64():
    """In a division, XLA's CPU code would flush the norm to zero."""
    with jax.enable_x64(False):
        norm = unlifted(LiftedNorm(jnp.asarray(np.float32(1e-42)), jnp.float32(1)))
    assert np.asarray(norm) == np.float32(1e-42)


def test_state_beside_uncommitted_parameters_is_uncommitted():
    """JAX moves uncommitted arrays to the mesh of the other arrays."""
    params = {"w": jnp.ones(3, jnp.float16)}
    network = ampscale.Network(lambda p, x: jnp.sum(p["w"] * x), params)
    state = ampscale.init_train_state(params, ampscale.optimizers.AdamW(network, 1e-3), RULE)
    assert [leaf.committed for leaf in jax.tree.leaves(state)] == [False] * len(jax.tree.leaves(state))


@pytest.mark.parametrize("gradients", ["replicated", "sharded", "distinct"])
@pytest.mark.clause("REPLICAS-empty-ranks")
def test_absence_of_gradients_is_reported_as_a_python_bool(gradients):
    """The flag is agreed as usual. The norm is zero, or None for replicated gradients."""

    def function(finite):
        result = JaxAxis("data", gradients=gradients).agree(finite, None, [], norm=True)
        assert result.has_gradients is False
        return result.finite, jnp.float32(0) if result.norm is None else result.norm.value

    finite, norm = on_ranks(function, jnp.asarray([True, True]))
    assert (finite.tolist(), norm.tolist()) == ([True, True], [0.0, 0.0])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"axis_name": 3}, TypeError, "axis_name must be a str or a non-empty tuple of str, got 3"),
        ({"axis_name": ()}, TypeError, r"axis_name must be a str or a non-empty tuple of str, got \(\)"),
        ({"gradients": "pipeline"}, ValueError, "gradients must be one of"),
        ({"gradients": "sharded", "mean": True}, ValueError, "mean must be False or None for sharded gradients"),
        ({"mean": 1}, TypeError, "mean must be a bool"),
        ({"timeout": 1e10}, ValueError, r"timeout must be a positive number of seconds of at most 1e9, got 10000000000.0"),
        ({"copies": 0}, ValueError, "copies must be"),
        ({"copies": 2.0}, TypeError, r"copies must be an int from 1 to 2\*\*31 - 1, got 2.0"),
    ],
)
def test_wrong_settings_are_rejected(arguments, error, message):
    with pytest.raises(error, match=message):
        JaxAxis(**{"axis_name": "data", **arguments})


def test_integers_have_no_mean():
    with pytest.raises(TypeError, match="int32"):
        on_ranks(lambda array: JaxAxis("data").mean([array]), jnp.arange(2, dtype=jnp.int32))
