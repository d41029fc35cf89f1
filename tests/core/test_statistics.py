"""Statistics and exponent histograms: the definition against exact arithmetic, and each library against the definition."""

import math
from fractions import Fraction

import array_api_strict
import numpy as np
import pytest
from libraries import on
from strategies import DTYPES, same

import ampscale
from ampscale.core import statistics
from ampscale.core.statistics import BINS, EMPTY, LOWEST

JUST_ABOVE = 1 + 2.0**-7
EDGES = [sign * 2.0**exponent * factor for sign in (1, -1) for exponent in (-14, -24, -25) for factor in (1, JUST_ABOVE, 0.75)]
EDGES += [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, 2.0**-149, 2.0**-133, -(2.0**-1074), 3.0, 65504.0, 2.0**127, 2.0**1023]


def row_by_fractions(values):
    """Return the statistics and the histogram of Python floats, computed with fractions."""
    magnitudes = [abs(Fraction(value)) for value in values if math.isfinite(value) and value != 0]
    exponents = [math.frexp(float(value))[1] - 1 for value in magnitudes]
    row = [
        len(values),
        sum(value == 0 for value in values),
        sum(value < Fraction(1, 2**14) for value in magnitudes),
        sum(value <= Fraction(1, 2**25) for value in magnitudes),
        sum(map(math.isinf, values)),
        sum(map(math.isnan, values)),
        min(exponents, default=32767),
        max(exponents, default=-32768),
    ]
    bins = [min(max(exponent, LOWEST), 127) - LOWEST for exponent in exponents]
    return row, np.bincount(bins, minlength=BINS).tolist()


def patterns(name):
    """Return all values of a 16-bit dtype, or random bits and subnormal numbers of a wider one."""
    width = 8 * DTYPES[name].itemsize
    if width == 16:
        return np.arange(1 << 16, dtype=np.uint16).view(DTYPES[name])
    bits = np.random.default_rng(0).integers(0, 1 << width, 8_000, dtype=f"uint{width}")
    return np.concatenate([bits, bits[:1000] >> np.arange(1000, dtype=bits.dtype) % width]).view(DTYPES[name])


def trees():
    """Yield a dtype and a list of its arrays: large, small, empty, strided and constant ones; fewer for a complex dtype."""
    for name in DTYPES:
        values = patterns(name)
        views = [values[:0], values[:1].reshape(()), values[5:505:5], values[::-1][:48].reshape(6, 8).T]
        constant = [np.full(3, value, values.dtype) for value in (0, np.inf, np.nan, 1)]
        yield name, [values, *views, *constant, *values[:900].reshape(9, 100)]
    for name in ("complex64", "complex128"):
        yield name, [patterns("float32" if name == "complex64" else "float64")[:2000].view(name), np.ones(2, name)]


TREES = dict(trees())


@pytest.mark.clause("STATISTICS-columns", "STATISTICS-thresholds", "STATISTICS-exponents", "STATISTICS-histogram")
@pytest.mark.parametrize("name", DTYPES)
def test_definition_equals_exact_arithmetic(name):
    """The values are at and beside every threshold, subnormal, and non-finite; some float64 values are beyond the bins."""
    with np.errstate(all="ignore"):
        array = np.array(EDGES).astype(DTYPES[name])
    row, histogram = row_by_fractions(array.astype(np.float64).tolist())
    assert statistics.statistics([array]).tolist() == [row]
    assert statistics.exponent_histogram([array]).tolist() == [histogram]


@pytest.mark.clause("STATISTICS-complex", "STATISTICS-empty")
def test_complex_parts_are_counted_and_missing_leaves_are_skipped():
    """The namespace array_api_strict has no functions for bit patterns, so magnitudes are encoded as numbers."""
    tree = {"a": array_api_strict.asarray([1 + 0j, complex(math.nan, 4.0)]), "b": None, "c": array_api_strict.zeros((0, 2))}
    result = ampscale.measure(tree)
    assert result.dtype == array_api_strict.int32
    assert np.asarray(result).tolist() == [[4, 1, 0, 0, 0, 1, 0, 2], list(EMPTY)]
    assert ampscale.measure([None]).shape == (0, 8)
    assert ampscale.exponent_histogram([]).shape == (0, BINS)


@pytest.mark.clause("STATISTICS-columns", "STATISTICS-histogram")
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_masked_values_are_not_counted(dtype):
    """The row and the histogram are those of the values that are not masked."""
    masked = np.ma.masked_array([2.0, np.nan, 2.0**100, 0.0], [False, True, True, False], dtype)
    for call in (ampscale.measure, ampscale.exponent_histogram):
        assert call([masked]).tolist() == call([masked.compressed()]).tolist()


@pytest.mark.clause("STATISTICS-same-everywhere", "STATISTICS-before-unscaling", "STATISTICS-histogram")
@pytest.mark.parametrize("name", TREES)
def test_libraries_equal_the_definition(library, each_kernel, name):
    """
    The arrays contain all values of the 16-bit formats, and random bits of the wider ones.

    One pass gives the results of `measure` and `unscale_and_check`, even with a scale below 1, and in place if possible.
    """
    if name in DTYPES and name not in library.dtypes:
        pytest.skip(f"{library.name} has no {name}")
    if each_kernel == "library" and library.name not in ("numpy", "torch"):
        pytest.skip(f"{library.name} has no compiled kernels, and the other run tests its operations")
    tree = TREES[name][:4] if library.name == "jax" else TREES[name]  # JAX compiles for each shape
    expected = statistics.statistics(tree)
    arrays = [library.from_numpy(np.array(array)) for array in tree]
    assert library.to_numpy(ampscale.measure(arrays)).tolist() == expected.tolist()
    assert library.to_numpy(ampscale.exponent_histogram(arrays)).tolist() == statistics.exponent_histogram(tree).tolist()
    for scale, in_place in ((2.0**16, True), (3.0, False), (0.125, True)):
        unscaled, finite = ampscale.unscale_and_check(arrays, scale)
        copies = [library.from_numpy(np.array(array)) for array in tree]
        out = copies if in_place and library.writable else None
        quotients, quotients_finite, measured = ampscale.unscale_check_and_measure(copies, scale, out=out)
        assert out is None or quotients is out
        assert library.to_numpy(measured).tolist() == expected.tolist()
        assert same(library.to_numpy([finite, unscaled]), library.to_numpy([quotients_finite, quotients])), scale


@pytest.mark.clause("STATISTICS-before-unscaling", "SCALING-widen")
@on("numpy", "strict16", "torch", "jax")
@pytest.mark.usefixtures("each_kernel")
def test_values_are_measured_in_their_own_dtype_if_results_are_wider(library):
    """The results equal those of `unscale_and_check`. The compiled kernels measure in a separate pass."""
    tree = [np.float16([2.0**-24, 0.0, np.inf]), np.float32([3.0, 2.0**-30])]
    arrays = [library.from_numpy(array) for array in tree]
    expected, finite = ampscale.unscale_and_check(arrays, 4.0, dtype="float32")
    unscaled, measured_finite, measured = ampscale.unscale_check_and_measure(arrays, 4.0, dtype="float32")
    assert library.to_numpy(measured).tolist() == statistics.statistics(tree).tolist()
    assert same(library.to_numpy([finite, expected]), library.to_numpy([measured_finite, unscaled]))


@pytest.mark.usefixtures("each_kernel")
def test_segments_of_a_large_array_are_combined():
    """Compiled kernels cut arrays of more than 2**22 values into segments; the special values are in three different segments."""
    array = np.ones(9_000_000, np.float16)
    array[[0, 4_200_000, 8_500_000]] = [2.0**-24, 0.0, 8.0]
    assert ampscale.measure([array, np.float16([np.nan])]).tolist() == [
        [9_000_000, 1, 1, 0, 0, 0, -24, 3],
        [1, 0, 0, 0, 0, 1, *EMPTY[-2:]],
    ]


@pytest.mark.clause("STATISTICS-limit")
@pytest.mark.usefixtures("each_kernel")
def test_arrays_of_two_billion_values_raise():
    """The largest allowed number of values is 2**31 - 1; a complex number counts as two."""
    gradient = np.ones(3, np.float32)
    statistics.check_size((1 << 31) - 1)
    for huge in (np.broadcast_to(np.float16(1), (1 << 16, 1 << 15)), np.broadcast_to(np.complex64(1), (1 << 15, 1 << 15))):
        for call in (ampscale.measure, ampscale.exponent_histogram):
            with pytest.raises(ValueError, match=r"fewer than 2\*\*31 real numbers to be measured, got 2147483648"):
                call([gradient, huge])
        with pytest.raises(ValueError, match="fewer than"):
            ampscale.unscale_check_and_measure([gradient, huge], 2.0)


@pytest.mark.clause("STATISTICS-step")
def test_step_reports_the_scaled_gradients_of_its_rank():
    """The communicator overwrites them with their mean afterwards. Without `measure`, the report has no statistics."""

    class Halving(ampscale.SingleReplica):
        def mean(self, tree):
            tree *= 0.5
            return tree

    network = ampscale.Network(np.sum, np.float32([1.0, 2.0]), vjp=lambda params, x: (np.sum(params * x), lambda seed: x * seed))
    optimizer = ampscale.optimizers.SGD(network, 0.5)
    rule = ampscale.LossScaleRule(init_scale=8.0)
    state = ampscale.init_train_state(network.params, optimizer, rule)
    batch = np.float32([3.0, np.inf])
    _, report = ampscale.train_step(network, optimizer, rule, state, batch, measure=True, communicator=Halving())
    assert report.statistics.tolist() == [[2, 0, 0, 0, 1, 0, 4, 4]]
    assert ampscale.train_step(network, optimizer, rule, state, batch)[1].statistics is None


@pytest.mark.clause("STATISTICS-no-host-sync")
def test_jax_traces_the_measurement():
    """Traced functions return the same results, even for subnormal numbers."""
    jax = pytest.importorskip("jax", reason="needs jax")
    tree = [jax.numpy.asarray(patterns("float32")), jax.numpy.asarray(patterns("bfloat16"))]
    functions = (ampscale.measure, ampscale.exponent_histogram, lambda tree: ampscale.unscale_check_and_measure(tree, 2.0)[2])
    for function in functions:
        np.testing.assert_array_equal(jax.jit(function)(tree), function(tree))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.clause("STATISTICS-no-host-sync")
def test_torch_compiles_the_measurement():
    """The graph has no breaks."""
    torch = pytest.importorskip("torch", reason="needs torch")
    tree = [torch.from_numpy(patterns("float32")), torch.from_numpy(patterns("float16").copy())]
    for function in (ampscale.measure, ampscale.exponent_histogram):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        assert compiled(tree).equal(function(tree))


@pytest.mark.clause("STATISTICS-shards")
def test_sparse_tensors_are_measured_by_their_coalesced_values():
    """Two values with one index add up to zero."""
    torch = pytest.importorskip("torch", reason="needs torch")
    sparse = torch.sparse_coo_tensor([[0, 0, 2]], [1.0, -1.0, 6.0], (5,), check_invariants=True)
    assert ampscale.measure([sparse]).tolist() == [[2, 1, 0, 0, 0, 0, 2, 2]]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_jagged_tensors_are_measured_by_their_values():
    """The row and the histogram are those of all values together."""
    torch = pytest.importorskip("torch", reason="needs torch")
    rows = [torch.tensor([1.0, 0.0]), torch.tensor([6.0, -1.0, 2.0])]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
    for call in (ampscale.measure, ampscale.exponent_histogram):
        assert call([jagged]).tolist() == call([torch.cat(rows)]).tolist()
