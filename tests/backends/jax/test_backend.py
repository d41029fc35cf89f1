"""JAX backend: results under every transformation, with and without jax_enable_x64; containers and derivatives."""

import numpy as np
import pytest
from backends.third_party.wheels import python
from libraries import load
from strategies import DTYPES, alike, same

import ampscale
from ampscale.core.trees import leaves

jax = pytest.importorskip("jax", reason="needs jax")
jnp = jax.numpy

LIBRARY = load("jax")
FACTOR = np.float32(10)  # not a power of two, so every quotient is rounded


def all_results(tree, factor):
    return {
        "scale": ampscale.scale(tree, factor),
        "unscale": ampscale.unscale(tree, factor),
        "unscale, widened": ampscale.unscale(tree, factor, dtype="float32"),
        "all_finite": ampscale.all_finite(tree),
        "unscale_and_check": ampscale.unscale_and_check(tree, factor),
        "unscale_check_and_norm": ampscale.unscale_check_and_norm(tree, factor),
        "global_norm": ampscale.global_norm(tree),
        "local_norms": ampscale.local_norms(tree),
        "clip_by_global_norm": ampscale.clip_by_global_norm(tree, 2.0),
    }


def arrays(dtype, seed, bad=None):
    """Return a tree of NumPy arrays with a number that is subnormal in float32, or with *bad* instead of it."""
    rng = np.random.default_rng(seed)

    def array(*shape):
        values = rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 3, shape)
        return values.astype(DTYPES[dtype]) if dtype in DTYPES else (values + 1j * values[::-1]).astype(dtype)

    tree = {"one": array(1)[0].reshape(()), "w": [array(7, 3), None]}
    tree["w"][0][0, 0] = np.finfo("float32").smallest_subnormal * 9 if bad is None else bad
    return tree


def differing(left, right):
    """Return the names of functions whose results differ; functions with norms may differ by two units in the last place."""
    return [name for name in left if not (same(left[name], right[name]) or ("norm" in name and close(left[name], right[name])))]


def close(left, right):
    """Return True if trees are equal. float32 and float64 may differ by two units, because XLA may fuse products and sums."""
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(leaves(left), leaves(right), strict=True)]
    return all(
        alike(one, other)
        or (one.dtype == other.dtype in (np.float32, np.float64) and np.allclose(one, other, 2 * np.finfo(one.dtype).eps, 0))
        for one, other in pairs
    )


def stacked(*trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.mark.usefixtures("default_device")
@pytest.mark.clause("OVERFLOW-same-everywhere", "OVERFLOW-fused", "NORMS-fused", "STEP-compiled")
@pytest.mark.parametrize(
    ("dtype", "x64", "transformed"),
    [
        ("complex64", True, "eager"),
        ("float16", False, "eager"),
        ("complex64", False, "jit"),
        ("bfloat16", False, "vmap"),
        ("float64", True, "scan"),
    ],
)
def test_transformed_functions_equal_numpy(dtype, x64, transformed):
    """The functions run eagerly and under jit, vmap and scan, on several trees, with and without jax_enable_x64."""
    with jax.enable_x64(x64), np.errstate(all="ignore"):
        trees = [arrays(dtype, seed, bad) for seed, bad in enumerate([None, 1e30, np.nan])]
        factors = [np.float32(scale) for scale in (10, 2.0**16, 1 / 3)]
        jax_trees = [LIBRARY.from_numpy(tree) for tree in trees]
        all_arguments = stacked(*jax_trees), jnp.stack(factors)
        if transformed in ("eager", "jit"):
            function = jax.jit(all_results) if transformed == "jit" else all_results
            results = stacked(*map(function, jax_trees, map(jnp.asarray, factors)))
        elif transformed == "vmap":
            results = jax.jit(jax.vmap(all_results))(*all_arguments)
        else:
            results = jax.lax.scan(lambda carry, item: (carry, all_results(*item)), 0, all_arguments)[1]
        for index, (tree, factor) in enumerate(zip(trees, factors, strict=True)):
            results_of_tree = jax.tree.map(lambda leaf, index=index: leaf[index], results)
            assert differing(LIBRARY.to_numpy(results_of_tree), all_results(tree, factor)) == []


@pytest.mark.clause("SCALING-mixed-rejected")
def test_traced_arrays_can_be_combined_with_concrete_ones():
    """A traced array has no device yet, so it matches any device. Arrays of two libraries still raise an error."""
    values = np.asarray([3.0, 1e-40, -7.0], np.float32)
    factor = jnp.asarray(FACTOR)
    for transformed in (jax.jit, jax.vmap):
        results = transformed(lambda gradients: ampscale.unscale(gradients, factor))(jnp.asarray(values))
        assert alike(np.asarray(results), ampscale.unscale(values, FACTOR))
    with pytest.raises(TypeError, match=r"tree\[0\] from jax.numpy on .*; tree\[1\] from numpy on cpu"):
        jax.jit(lambda array: ampscale.all_finite([array, np.ones(2)]))(jnp.ones(2))


@pytest.mark.clause("BACKENDS-arrays-decide")
def test_trees_without_arrays_use_the_backend_of_a_traced_scale():
    """The flag is a JAX array too, so that it can be passed to `rule.update`."""
    rule = ampscale.LossScaleRule(init_scale=8.0)
    step = jax.jit(lambda state: rule.update(state, ampscale.unscale_and_check({"frozen": None}, state.scale)[1]))
    assert step(rule.init(like=jnp.ones(1))).good_steps == 1


@pytest.mark.clause("SCALING-widen")
def test_float64_results_require_x64():
    """Without jax_enable_x64, JAX itself would return float32 with a warning."""
    for function in (ampscale.unscale, ampscale.unscale_and_check, ampscale.unscale_check_and_norm):
        assert leaves(function([jnp.ones(3, jnp.bfloat16)], 3.0, dtype="float64"))[0].dtype == jnp.float64
        with jax.enable_x64(False), pytest.raises(TypeError, match=r"^dtype must be 'float32' or None on JAX without"):
            function([jnp.ones(3, jnp.bfloat16)], 3.0, dtype="float64")


@pytest.mark.clause("NORMS-local")
def test_compiled_functions_receive_dicts_with_sorted_keys():
    """Local norms are in the order of the sorted keys."""
    tree = {"w": jnp.full(1, 3.0), "b": jnp.full(1, 5.0)}
    assert ampscale.local_norms(tree).tolist() == [3, 5]
    assert jax.jit(ampscale.local_norms)(tree).tolist() == [5, 3]


def test_unregistered_containers_raise():
    """JAX treats unknown objects as leaves; ampscale rejects them and reports the path."""
    with pytest.raises(TypeError, match=r"^tree\[0\] must be an array, or a tuple, .* got Box$"):
        ampscale.all_finite([type("Box", (), {})()])


def test_a_registered_container_can_be_the_first_tree_of_a_process():
    """The container is recognized before any array shows that the tree is JAX's."""
    completed = python("import jax, ampscale; print(ampscale.all_finite(jax.tree_util.Partial(min, jax.numpy.ones(2))))")
    assert (completed.stdout, completed.stderr) == ("True\n", "")


@pytest.mark.clause("SCALING-scale")
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_gradients_of_a_scaled_loss_are_scaled(dtype):
    """Losses include zero and infinity. The scale has a gradient too."""
    value_and_grad, gradient_of_unscale = jax.jit(jax.value_and_grad(ampscale.scale)), jax.jit(jax.grad(ampscale.unscale))
    gradient_by_scale = jax.jit(jax.grad(ampscale.scale, argnums=1))
    for loss in (0.0, 3.0, np.inf):
        arguments = jnp.asarray(loss, DTYPES[dtype]), jnp.float32(8)
        scaled, gradient = value_and_grad(*arguments)
        assert alike(np.asarray(scaled), np.asarray(8 * loss, DTYPES[dtype]))
        assert alike(np.asarray(gradient), np.asarray(8, DTYPES[dtype]))
        assert gradient_of_unscale(*arguments) == 0.125
        assert gradient_by_scale(*arguments) == loss


@pytest.mark.clause("STEP-seed")
def test_integer_parameters_raise():
    """JAX returns their gradients in its dtype float0."""
    import optax

    params, optimizer, rule = {"w": jnp.ones(2), "n": jnp.asarray(3)}, optax.sgd(1.0), ampscale.LossScaleRule()
    network = ampscale.Network(lambda params: (params["w"] * params["n"]).sum(), params)
    state = ampscale.init_train_state(params, optimizer, rule)
    with pytest.raises(TypeError, match=r"^gradients\['n'\] must be .*, got void, JAX's float0, .*; pass only floating-point"):
        ampscale.train_step(network, optimizer, rule, state)


def test_integer_losses_raise():
    """JAX would return gradients of zero, which are finite."""
    for dtype in (jnp.int32, jnp.bool_):
        network = ampscale.Network(lambda weight, dtype=dtype: weight.sum().astype(dtype), jnp.ones(2))
        with pytest.raises(TypeError, match=rf"^a network must return a floating-point loss, got {jnp.dtype(dtype).name}$"):
            network.vjp(network.params)


def test_large_seeds_overflow_in_a_float16_loss():
    """JAX requires the seed in the dtype of the loss. In float16, 2**16 is infinite."""
    params = [jnp.ones(2, jnp.float16)]
    for dtype, finite in ((jnp.float16, False), (jnp.float32, True)):
        network = ampscale.Network(lambda params, dtype=dtype: jnp.sum(params[0].astype(dtype) * 2.0**-12), params)
        loss, pullback = network.vjp(params)
        assert loss.dtype == dtype
        assert bool(ampscale.all_finite(pullback(jnp.full_like(loss, 2.0**16, jnp.float32)))) == finite
