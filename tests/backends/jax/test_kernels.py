"""JAX kernels compared with the definitions of the core on NumPy, and the number of compiled programs that run."""

from functools import partial

import numpy as np
import pytest
from libraries import load
from strategies import DTYPES, LARGEST, alike, same

from ampscale.core import norms, overflow, scaling

jax = pytest.importorskip("jax", reason="needs jax")
backend = pytest.importorskip("ampscale.backends.jax.backend")
kernels = pytest.importorskip("ampscale.backends.jax.kernels")
jnp = jax.numpy

pytestmark = pytest.mark.usefixtures("default_device")
LIBRARY = load("jax")
SCALES = [2.0**-149, 3 * 2.0**-149, 2.0**-126, 2.0**-126 / 3, 1e-3, 0.1, 1.0, 3.0, 2.0**16, 1e5, 2.0**100, 1.9 * 2.0**127]
ROUND = kernels.LANES * kernels.PIECES
LARGE = 3 * ROUND - 5
LONG = 2 * kernels.MIN_LOOP_SIZE + 3  # cut into several pieces


def numbers(dtype, size, seed):
    """Return random bit patterns of a format; a third are subnormal or small normal numbers."""
    rng = np.random.default_rng(seed)
    pattern = np.dtype(f"uint{8 * DTYPES[dtype].itemsize}")
    bits = rng.integers(0, np.iinfo(pattern).max, size, pattern, endpoint=True)
    infinity = np.asarray(np.inf, DTYPES[dtype]).view(pattern)
    sign = pattern.type(1 << (8 * DTYPES[dtype].itemsize - 1))
    bits[::3] &= sign | (infinity >> pattern.type(4))  # clears the highest four bits of the exponent
    return bits.view(DTYPES[dtype])


def defined(tree, scale, dtype=None):
    """Return the unscaled tree, the flag and the scaled tree of the core's definition on NumPy."""
    with np.errstate(all="ignore"):
        return [*overflow.unscale_and_check(tree, scale, dtype=dtype), scaling.scale(tree, scale)]


def computed(tree, scale, dtype=None):
    """Return the results of the backend in the same order as `defined`."""
    return [*backend.unscale_and_check(tree, scale, dtype=dtype), backend.scale(tree, scale)]


@pytest.mark.clause(
    "BACKENDS-bit-identical", "SCALING-round-once", "SCALING-scale-float32", "OVERFLOW-fused", "OVERFLOW-both-sides"
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("widened", "make_scale"), [(None, np.float32), ("float32", np.atleast_1d)])
def test_results_equal_numpy_for_values_and_scales_of_all_magnitudes(dtype, widened, make_scale):
    """Values are all 16-bit patterns, or random patterns of wider formats, under jit. Scales range from 2**-149 to 2**128."""
    compiled = jax.jit(partial(computed, dtype=widened))
    rng = np.random.default_rng(0)
    scales = [*SCALES, *np.ldexp(rng.uniform(1, 2, 8), rng.integers(-140, 127, 8))]
    for seed, scale in enumerate(map(make_scale, scales)):
        values = numbers(dtype, 2**16, seed)
        if values.itemsize == 2:
            values = np.arange(2**16, dtype=np.uint16).view(values.dtype)
        tree = [values, numbers(dtype, 5, seed)]
        assert same(LIBRARY.to_numpy(compiled(LIBRARY.from_numpy(tree), jnp.asarray(scale))), defined(tree, scale, widened))


@pytest.mark.clause("SCALING-unscale-divides", "SCALING-round-once")
def test_ties_between_subnormal_quotients_go_to_even():
    """The product with a reciprocal could be on either side of a tie. Values next to a tie are tested too."""
    unscale = jax.jit(backend.unscale)
    unit = 2.0**-149
    for scale in map(np.float32, (6, 10, 2**20 + 2, 3 * 2**60, 7 * 2**100, 11 * 2.0**20)):
        halfway = np.float32((np.arange(2**14) + 0.5) * np.float64(scale) * unit)
        is_tie = halfway.astype(np.float64) / scale / unit % 1 == 0.5  # float32 cannot represent the other halfway points
        assert is_tie.sum() > 10
        values = np.concatenate([halfway, -halfway, np.nextafter(halfway, np.float32(0)), np.nextafter(halfway, np.float32(1))])
        assert alike(np.asarray(unscale([jnp.asarray(values)], jnp.asarray(scale))[0]), values / scale)


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-elementwise", "OVERFLOW-both-sides", "OVERFLOW-edges")
@pytest.mark.parametrize(("dtype", "size"), [("float16", LARGE), ("float32", kernels.MIN_LOOP_SIZE - 1), ("float64", LARGE)])
def test_one_non_finite_value_is_detected_at_all_boundaries(dtype, size):
    """Positions are the ends of the array and of its pieces. The value is non-finite before or only after unscaling."""
    piece = -(-size // kernels.PIECES)
    edges = {index for edge in range(0, size + piece, piece) for index in (edge - 1, edge)}  # both sides
    indices = sorted(index for index in edges | {size - 1} if 0 <= index < size)
    trees = np.ones((len(indices), size), DTYPES[dtype])

    @jax.jit
    def flags(arrays, scale):
        return jax.lax.map(lambda array: (backend.unscale_and_check([array], scale)[1], backend.all_finite([array])), arrays)

    assert np.asarray(flags(trees, 0.25)).all()
    for bad, scale, finite in (
        (np.nan, 8.0, False),
        (-np.inf, 8.0, False),
        (LARGEST[dtype], 0.25, False),
        (LARGEST[dtype], 1.0, True),
        (np.nan, 0.25, False),
    ):
        trees[np.arange(len(indices)), indices] = bad
        unscaled_flags, scaled_flags = map(np.asarray, flags(trees, scale))
        assert (unscaled_flags == finite).all()
        assert (scaled_flags == np.isfinite(bad)).all()


@pytest.mark.clause("NORMS-global", "NORMS-local", "NORMS-fused", "NORMS-accumulation-dtype")
@pytest.mark.parametrize(("dtype", "size"), [("float16", 20), ("bfloat16", LONG), ("float32", LARGE), ("float64", ROUND + 7)])
def test_norms_equal_numpy_to_two_units(dtype, size):
    """Squares can be subnormal, zero or infinite in float32."""

    @jax.jit
    def all_norms(arrays):
        _, finite, norm = backend.unscale_check_and_norm(arrays, jnp.float32(1))
        return finite, norm, backend.global_norm(arrays), backend.local_norms(arrays)

    for power in (0, -12) if dtype == "float16" else (0, -12, -66, -72, -76, 60):
        values = np.random.default_rng(size).standard_normal((2, size)) * 2.0**power
        tree = [row.astype(DTYPES[dtype]) for row in values] + [np.zeros(0, DTYPES[dtype])]
        finite, *results = all_norms(LIBRARY.from_numpy(tree))
        with np.errstate(all="ignore"):
            definitions = [norms.global_norm(tree), norms.global_norm(tree), norms.local_norms(tree)]
        assert finite
        for norm, expected in zip(results, definitions, strict=True):
            np.testing.assert_array_max_ulp(np.asarray(norm), expected, maxulp=2)


@pytest.mark.clause("NORMS-clip-magnitudes")
def test_clipping_coefficients_can_be_subnormal():
    """XLA's own operations would replace the coefficient, and so all gradients, by zero."""
    for values, limit in (([1.7e308, 1e290, 1e-5, -0.0], 3.0), ([1e308] * 4, 1.0), ([-1e300, 5e-324], 1e-10)):
        tree = [np.asarray(values)]
        clipped, norm = jax.jit(lambda tree, limit=limit: backend.clip_by_global_norm(tree, limit))(LIBRARY.from_numpy(tree))
        assert same(LIBRARY.to_numpy((clipped, norm)), norms.clip_by_global_norm(tree, limit))


@pytest.mark.clause("NORMS-fused", "OVERFLOW-fused")
def test_vmap_over_scales_equals_single_calls():
    """The mapped function is compiled, without jax_enable_x64."""
    with jax.enable_x64(False):
        tree = [jnp.asarray(numbers("float32", LONG, 0)), jnp.asarray(numbers("bfloat16", LONG, 1))]
        scales = jnp.asarray(SCALES[2:5] + SCALES[-3:], jnp.float32)
        results = jax.vmap(jax.jit(backend.unscale_and_check), (None, 0))(tree, scales)
        for index, scale in enumerate(scales):
            expected = overflow.unscale_and_check(LIBRARY.to_numpy(tree), np.asarray(scale))
            assert same(LIBRARY.to_numpy(jax.tree.map(lambda leaf, index=index: leaf[index], list(results))), list(expected))


def test_compiled_functions_can_be_differentiated():
    """A norm and a quotient have gradients, and a norm of quotients a second derivative, without jax_enable_x64."""
    with jax.enable_x64(False):
        tree = [jnp.zeros(LONG, jnp.float32).at[5].set(3), jnp.full(1, 4, jnp.bfloat16)]
        first, second = jax.grad(jax.jit(backend.global_norm))(tree)
        assert (float(first[5]), float(first[6])) == (pytest.approx(0.6), 0)
        assert float(second[0]) == pytest.approx(0.8, rel=2.0**-8)
        gradients = jax.grad(lambda tree: jnp.sum(jax.jit(backend.unscale_and_check)(tree, jnp.float32(4))[0][0]))(tree)
        assert np.asarray(gradients[0] == 0.25).all()
        hessian_of_norm = jax.jit(jax.jacfwd(jax.grad(lambda x: backend.unscale_check_and_norm([x], jnp.float32(2))[2])))
        hessian = hessian_of_norm(jnp.asarray([3.0, 4.0], jnp.float32))
        np.testing.assert_allclose(hessian, np.asarray([[16, -12], [-12, 9]]) / 250, rtol=1e-5, atol=1e-7)


@pytest.fixture
def programs(monkeypatch):
    """Return a list that records the names of compiled programs that run. JAX's fast path, which skips Python, is disabled."""
    from jax._src import pjit
    from jax._src.interpreters import pxla

    run = pxla.ExecuteReplicated.__call__
    names = []
    monkeypatch.setattr(pjit, "_get_fastpath_data", lambda *_, **__: None)
    monkeypatch.setattr(pxla.ExecuteReplicated, "__call__", lambda self, *args: names.append(self.name) or run(self, *args))
    jax.clear_caches()
    return names


@pytest.mark.clause("BACKENDS-no-host-sync", "OVERFLOW-no-host-sync")
def test_frequent_calls_run_one_program(programs):
    """The first calls run at most three programs for each array, and three more. The one program reads nothing on the host."""
    shapes = {"float16": (), "float32": (2, 2), "bfloat16": kernels.MIN_LOOP_SIZE + 1}
    tree = LIBRARY.from_numpy([np.ones(shape, DTYPES[name]) for name, shape in shapes.items()])
    scale = jnp.float32(3)
    for function in (backend.scale, backend.unscale_check_and_norm, lambda tree, _: backend.clip_by_global_norm(tree, 1.0)):
        for _ in range(backend._OFTEN - 1):
            programs.clear()
            function(tree, scale)
            assert 1 <= len(programs) <= 3 * len(tree) + 3
        function(tree, scale)
        programs.clear()
        with LIBRARY.count_reads() as reads:
            function(tree, scale)
        assert reads == []
        assert len(programs) == 1


@pytest.mark.clause("BACKENDS-bit-identical", "NORMS-global")
def test_many_arrays_are_processed_in_chunks(programs, monkeypatch):
    """At most one program runs for each chunk and kernel, and three more. Sums are added in order; a NaN is detected."""
    monkeypatch.setattr(backend, "_CHUNK", 8)
    rng, scale = np.random.default_rng(0), np.float32(3)
    tree = [rng.standard_normal(3).astype(np.float32) for _ in range(4 * 8 + 3)]
    arrays = LIBRARY.from_numpy(tree)
    expected = list(norms.unscale_check_and_norm(tree, scale))
    for _ in range(backend._OFTEN):
        programs.clear()
        assert same(LIBRARY.to_numpy(list(backend.unscale_check_and_norm(arrays, jnp.asarray(scale)))), expected)
    assert len(programs) <= 3 * 5 + 3
    arrays[9] = arrays[9].at[2].set(np.nan)
    assert not backend.unscale_check_and_norm(arrays, jnp.asarray(scale))[1]
    assert not backend.all_finite(arrays)


@pytest.mark.clause("SCALING-structure-kept", "OVERFLOW-empty", "NORMS-empty")
def test_trees_without_values_are_finite_with_norm_zero():
    """One tree has no array, the other an array without values."""
    for tree in ([], [jnp.zeros((0, 3), jnp.float32)]):
        unscaled, finite, norm = backend.unscale_check_and_norm(tree, jnp.float32(3))
        assert same(unscaled, tree)
        assert (bool(finite), float(norm), backend.local_norms(tree).tolist()) == (True, 0, [0.0] * len(tree))
