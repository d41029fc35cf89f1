"""The verbs on JAX: the same under every transformation, with and without 64 bits; its containers, and its derivatives."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from libraries import load
from strategies import DTYPES, alike, same

import ampscale
from ampscale.core.trees import leaves

jax = pytest.importorskip("jax", reason="needs jax")
jnp = jax.numpy

LIBRARY = load("jax")
FORMATS = [(name, True) for name in (*DTYPES, "complex64")]
FORMATS += [(name, False) for name in ("float16", "float32")]
FACTOR = np.float32(10)  # no power of two, so that every quotient is rounded


def everything(tree, factor):
    """What each verb gives for a tree and a scale."""
    return {
        "scale": ampscale.scale(tree, factor),
        "unscale": ampscale.unscale(tree, factor),
        "unscale, wide": ampscale.unscale(tree, factor, dtype="float32"),
        "all_finite": ampscale.all_finite(tree),
        "unscale_and_check": ampscale.unscale_and_check(tree, factor),
        "unscale_check_and_norm": ampscale.unscale_check_and_norm(tree, factor),
        "global_norm": ampscale.global_norm(tree),
        "local_norms": ampscale.local_norms(tree),
        "clip_by_global_norm": ampscale.clip_by_global_norm(tree, 2.0),
    }


def arrays(dtype, seed, bad=None):
    """A tree of NumPy's arrays, from subnormal numbers up; *bad* is one of its values."""
    random = np.random.default_rng(seed)

    def array(*shape):
        values = random.standard_normal(shape) * 2.0 ** random.integers(-30, 3, shape)
        return values.astype(DTYPES[dtype]) if dtype in DTYPES else (values + 1j * values[::-1]).astype(dtype)

    tree = {"one": array(1)[0].reshape(()), "w": [array(7, 3), None]}
    tree["w"][0][0, 0] = np.finfo("float32").smallest_subnormal * 9 if bad is None else bad
    return tree


def differing(left, right):
    """The verbs whose results are not the same: bit for bit, norms within two units in the last place."""
    return [verb for verb in left if not (same(left[verb], right[verb]) or ("norm" in verb and close(left[verb], right[verb])))]


def close(left, right):
    """Whether two trees are the same, float32 and float64 to within that: XLA may multiply and add in one instruction."""
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(leaves(left), leaves(right), strict=True)]
    return all(
        alike(one, other)
        or (one.dtype == other.dtype in (np.float32, np.float64) and np.allclose(one, other, 2 * np.finfo(one.dtype).eps, 0))
        for one, other in pairs
    )


def row(tree, index):
    """One of the trees that are stacked in *tree*."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def stacked(*trees):
    """Trees of one structure as one."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.mark.clause("OVERFLOW-same-everywhere", "NORMS-fused", "OVERFLOW-fused")
@pytest.mark.parametrize(("dtype", "x64"), FORMATS)
def test_every_verb_is_numpys(dtype, x64):
    """Bit for bit, the norms too, whether or not JAX has 64 bits."""
    with jax.enable_x64(x64), np.errstate(all="ignore"):
        for bad in (None, 1e30, np.nan):
            tree = arrays(dtype, 0, bad)
            got = everything(LIBRARY.from_numpy(tree), jnp.asarray(FACTOR))
            assert differing(LIBRARY.to_numpy(got), everything(tree, FACTOR)) == [], bad


@pytest.mark.clause("OVERFLOW-same-everywhere", "STEP-compiled")
@pytest.mark.parametrize(
    ("dtype", "x64", "transformed"),
    [("float16", True, "jit"), ("complex64", False, "jit"), ("bfloat16", False, "vmap"), ("float64", True, "scan")],
)
def test_every_verb_is_the_same_transformed(dtype, x64, transformed):
    """Compiled, over a batch of trees and in a loop over them, each tree has NumPy's results."""
    with jax.enable_x64(x64), np.errstate(all="ignore"):
        trees = [arrays(dtype, seed, bad) for seed, bad in enumerate([None, 1.0, np.nan])]
        factors = [np.float32(scale) for scale in (10, 2.0**16, 1 / 3)]
        given = [LIBRARY.from_numpy(tree) for tree in trees]
        many = stacked(*given), jnp.stack(factors)
        if transformed == "jit":
            got = stacked(*map(jax.jit(everything), given, factors))
        elif transformed == "vmap":
            got = jax.jit(jax.vmap(everything))(*many)
        else:
            got = jax.lax.scan(lambda carry, each: (carry, everything(*each)), 0, many)[1]
        for index, (tree, factor) in enumerate(zip(trees, factors, strict=True)):
            assert differing(LIBRARY.to_numpy(row(got, index)), everything(tree, factor)) == []


@pytest.mark.clause("SCALING-mixed-refused")
def test_a_traced_array_may_stand_beside_a_known_one():
    """What is being traced lies on no device yet, so a scale from outside is no mixture; two libraries are two even so."""
    values, factor = np.asarray([3.0, 1e-40, -7.0], np.float32), jnp.asarray(FACTOR)
    for transformed in (jax.jit, jax.vmap):
        got = transformed(lambda gradients: ampscale.unscale(gradients, factor))(jnp.asarray(values))
        assert alike(np.asarray(got), ampscale.unscale(values, FACTOR))
    with pytest.raises(TypeError, match=r"tree\[0\] is jax.numpy on .*; tree\[1\] is numpy on cpu"):
        jax.jit(lambda array: ampscale.all_finite([array, np.ones(2)]))(jnp.ones(2))


@pytest.mark.clause("SCALING-widen")
def test_float64_is_not_promised_without_64_bits():
    """JAX would give float32 and a warning; here it is a TypeError, and with 64 bits it is float64."""
    for verb in (ampscale.unscale, ampscale.unscale_and_check, ampscale.unscale_check_and_norm):
        assert leaves(verb([jnp.ones(3, jnp.bfloat16)], 3.0, dtype="float64"))[0].dtype == jnp.float64
        with jax.enable_x64(False), pytest.raises(TypeError, match=r"^dtype must be 'float32' or None on JAX without"):
            verb([jnp.ones(3, jnp.bfloat16)], 3.0, dtype="float64")


@pytest.mark.clause("NORMS-local")
def test_a_compiled_function_sees_a_dict_sorted():
    """JAX hands a dict on with its keys sorted, and the norms of its arrays come in the order that it has then."""
    tree = {"w": jnp.full(1, 3.0), "b": jnp.full(1, 5.0)}
    assert ampscale.local_norms(tree).tolist() == [3, 5]
    assert jax.jit(ampscale.local_norms)(tree).tolist() == [5, 3]


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    """A container of a user's, known to JAX."""

    weight: Any
    bias: Any


def test_a_registered_container_is_a_tree():
    """It is opened as JAX opens it, and comes out as itself, nested in other containers and holding them."""
    layer = Layer(weight={"w": jnp.asarray([3.0, 4.0])}, bias=None)
    unscaled, finite, norm = ampscale.unscale_check_and_norm([layer], 0.5)
    assert isinstance(unscaled[0], Layer)
    assert unscaled[0].weight["w"].tolist() == [6, 8]
    assert unscaled[0].bias is None
    assert (bool(finite), float(norm)) == (True, 10)


def test_an_unregistered_container_is_refused():
    """JAX takes what it does not know for a leaf; here the error says where it is."""
    with pytest.raises(TypeError, match=r"^tree\[0\] must be an array, or a tuple, .* got Box$"):
        ampscale.all_finite([type("Box", (), {})()])


@pytest.mark.clause("SCALING-scale")
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_a_scaled_loss_are_scaled(dtype):
    """Also where the loss is zero or infinite; in both arguments."""
    both, unscaled, by_scale = jax.value_and_grad(ampscale.scale), jax.grad(ampscale.unscale), jax.grad(ampscale.scale, argnums=1)
    for transformed in (jax.jit, lambda function: function):
        value_and_grad, of_unscale, of_factor = map(transformed, (both, unscaled, by_scale))
        for loss in (0.0, 3.0, np.inf):
            arguments = jnp.asarray(loss, DTYPES[dtype]), jnp.float32(8)
            scaled, gradient = value_and_grad(*arguments)
            assert alike(np.asarray(scaled), np.asarray(8 * loss, DTYPES[dtype]))
            assert alike(np.asarray(gradient), np.asarray(8, DTYPES[dtype]))
            assert of_unscale(*arguments) == 0.125
            assert of_factor(*arguments) == loss


@pytest.mark.clause("STEP-vjp", "STEP-network")
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_a_network_is_differentiated_by_jax(dtype):
    """The gradients are those of jax.grad times the seed, in the dtypes of the parameters, over several inputs."""
    params = LIBRARY.from_numpy({"w": [np.ones((2, 2)), np.full(2, 0.5)], "unused": np.ones(3)})
    params = jax.tree.map(lambda leaf: leaf.astype(DTYPES[dtype]), params)
    inputs = jnp.asarray([[1.0, 2.0], [3.0, -1.0]]), jnp.asarray([0.25, 1.0])

    def loss(params, x, y):
        weight, bias = (leaf.astype(jnp.float32) for leaf in params["w"])
        return jnp.sum((x @ weight + bias - y) ** 2)

    value, pullback = ampscale.Network(loss, params).vjp(params, *inputs)
    plain = jax.grad(loss)(params, *inputs)
    assert same([value], [loss(params, *inputs)])
    assert same(pullback(jnp.ones_like(value)), plain)
    gradients = pullback(jnp.full_like(value, 4))
    assert same(gradients, ampscale.scale(plain, 4.0))
    assert alike(np.asarray(gradients["unused"]), np.zeros(3, DTYPES[dtype]))


@pytest.mark.clause("STEP-seed")
def test_a_float16_loss_takes_no_seed_beyond_float16():
    """JAX wants the seed in the loss's dtype, where a scale of 2**16 is infinite, and an overflow; float32 takes it."""
    params = [jnp.ones(2, jnp.float16)]
    for dtype, finite in ((jnp.float16, False), (jnp.float32, True)):
        network = ampscale.Network(lambda params, dtype=dtype: jnp.sum(params[0].astype(dtype) * 2.0**-12), params)
        loss, pullback = network.vjp(params)
        assert loss.dtype == dtype
        assert bool(ampscale.all_finite(pullback(jnp.full_like(loss, 2.0**16, jnp.float32)))) == finite
