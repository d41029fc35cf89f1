"""
CuPy backend: results have the bits of the core's definitions on NumPy, except that norms may differ by two units.

Each test runs with the kernels compiled for the host, and again on a device if CuPy and a device are available.
"""

from types import SimpleNamespace

import linear
import numpy as np
import pytest
from backends.platforms import device, host
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import close
from strategies import DTYPES, LARGEST, any_arrays, arrays, same, scales, shapes, trees

from ampscale import LossScaleRule
from ampscale.backends import generic
from ampscale.backends.protocol import CONTENTS
from ampscale.core import norms, overflow, scaling, statistics
from ampscale.core.step import init_train_state, train_step
from ampscale.core.trees import leaves, map_leaves
from ampscale.optimizers import Momentum

widths = st.sampled_from([None, "float32", "float64"])
complex_arrays = st.tuples(st.sampled_from(["float32", "float64"]), shapes).flatmap(
    lambda args: st.tuples(arrays(*args), arrays(*args)).map(lambda parts: complex_array(*parts))
)
limits = st.floats(2.0**-20, 2.0**20) | st.floats(-300, 300).map(lambda power: 10.0**power)


@pytest.fixture(scope="module", params=[host, pytest.param(device, marks=pytest.mark.device)], ids=lambda make: make.__name__)
def platform(request):
    """Return the backend on the host, then on the device, with functions that copy arrays to and from it."""
    return request.param()


@pytest.fixture(scope="module")
def gpu():
    return device()


def complex_array(real, imag):
    values = np.empty(real.shape, np.result_type(real, np.complex64))
    values.real, values.imag = real, imag
    return values


def bits(name, size, seed=0):
    """Return an array of random bit patterns of a format."""
    width = 8 * DTYPES[name].itemsize
    return np.random.default_rng(seed).integers(0, 2**width, size, f"uint{width}").view(DTYPES[name])


def test_backend_owns_cupy_arrays_and_has_no_networks(platform):
    """`vjp` raises an error, because a `Network` must provide its own."""
    assert platform.backend.as_network(object()) is None
    assert platform.backend.owns(platform.put(np.ones(2)))
    assert not platform.backend.owns(np.ones(2))
    with pytest.raises(TypeError, match="use Network"):
        platform.backend.vjp(sum, [], 1)


@pytest.mark.clause("OVERFLOW-same-everywhere", "OVERFLOW-fused", "OVERFLOW-all-finite", "SCALING-round-once", "SCALING-scale")
@pytest.mark.clause(
    "NORMS-fused", "NORMS-global", "NORMS-local", "STATISTICS-columns", "STATISTICS-thresholds", "STATISTICS-histogram"
)
@settings(max_examples=25)
@given(trees(any_arrays | complex_arrays), scales, widths)
def test_functions_equal_their_definitions(platform, tree, factor, dtype):
    """Values have random bits. Norms differ by at most 2 ulp. The arguments are unchanged."""
    inputs, backend = platform.put(tree), platform.backend
    *expected, norm = norms.unscale_check_and_norm(tree, factor, dtype=dtype)
    *actual, actual_norm = platform.to_numpy(backend.unscale_check_and_norm(inputs, factor, dtype=dtype))
    assert same(actual, expected)
    assert close(actual_norm, norm)
    assert same(platform.to_numpy(backend.unscale_and_check(inputs, factor, dtype=dtype)), expected)
    assert same(platform.to_numpy(backend.unscale(inputs, factor, dtype)), expected[0])
    assert same(platform.to_numpy(backend.scale(inputs, factor)), scaling.scale(tree, factor))
    assert same(platform.to_numpy(backend.all_finite(inputs)), overflow.all_finite(tree))
    assert close(platform.to_numpy(backend.global_norm(inputs)), norms.global_norm(tree))
    assert close(platform.to_numpy(backend.local_norms(inputs)), norms.local_norms(tree))
    measured = statistics.unscale_check_and_measure(tree, factor, dtype=dtype)
    assert same(platform.to_numpy(backend.unscale_check_and_measure(inputs, factor, dtype=dtype)), measured)
    assert same(platform.to_numpy(backend.exponent_histogram(inputs)), statistics.exponent_histogram(tree))
    assert same(platform.to_numpy(inputs), tree)


@pytest.mark.clause("STATISTICS-thresholds", "STATISTICS-exponents", "STATISTICS-histogram")
@pytest.mark.parametrize("name", DTYPES)
def test_statistics_are_exact_at_every_power_of_two(platform, name):
    """Values are all powers of two that the dtype represents, and their neighbors; for 16-bit dtypes, all bit patterns."""
    dtype = np.dtype(DTYPES[name])
    if dtype.itemsize == 2:
        values = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    else:
        with np.errstate(over="ignore", under="ignore"):
            powers = np.ldexp(dtype.type(1), np.arange(-1075, 1026))
            values = np.concatenate([np.nextafter(powers, 0), powers, np.nextafter(powers, np.inf), [np.nan, -0.0]]).astype(dtype)
    tree = [values, *values[:: len(values) // 50]]  # arrays of shape () have their own smallest and largest exponents
    inputs = platform.put(tree)
    assert same(platform.to_numpy(platform.backend.measure(inputs)), statistics.statistics(tree))
    assert same(platform.to_numpy(platform.backend.exponent_histogram(inputs)), statistics.exponent_histogram(tree))


@pytest.mark.clause("NORMS-clip", "NORMS-clip-round-once", "NORMS-clip-under-limit", "NORMS-clip-magnitudes", "NORMS-magnitudes")
@given(st.lists(any_arrays, max_size=2), limits)
def test_clipping_equals_its_definition(platform, tree, limit):
    """The norm differs by at most 2 ulp. If it is equal, so are the clipped values."""
    expected, norm = norms.clip_by_global_norm(tree, limit)
    clipped, actual_norm = platform.to_numpy(platform.backend.clip_by_global_norm(platform.put(tree), limit))
    assert close(actual_norm, norm)
    if same(actual_norm, norm):
        assert same(clipped, expected)


@pytest.mark.clause("NORMS-fused", "NORMS-global", "NORMS-magnitudes")
@pytest.mark.parametrize(("least", "most"), [(-8, 8), (-75, -64), (-63, -60), (58, 64), (-149, 128)])
def test_norms_of_single_values_are_exact(platform, least, most):
    """700 squares are added in order. Some are outside the range of float32, or leave it when they are added."""
    values = np.random.default_rng(0).uniform(-2, 2, 700) * 2.0 ** np.linspace(least, most - 1, 700)
    tree = [np.float32(value).reshape(1) for value in np.random.default_rng(1).permutation(values)]
    assert same(platform.to_numpy(platform.backend.global_norm(platform.put(tree))), norms.global_norm(tree))
    assert same(platform.to_numpy(platform.backend.global_norm(platform.put(tree[::-1]))), norms.global_norm(tree[::-1]))


@pytest.mark.clause("SCALING-unscale-divides", "SCALING-reciprocal", "SCALING-scale-type")
@pytest.mark.parametrize("name", DTYPES)
def test_scales_can_be_numbers_or_arrays(platform, name):
    """Some reciprocals are inexact or subnormal."""
    tree = bits(name, 999)
    for number in (3, 3.0, 2.0**16, 2.0**-126, 2.0**126, 2.0**127, 2.0**-149, 1 + 2.0**-40):
        forms = np.asarray(number, np.float32), np.asarray([number], np.float32), np.asarray([number], np.float64)
        for scale in (number, np.float64(number), *forms):
            put_scale = scale if isinstance(scale, int | float) else platform.put(scale)
            for function, definition in ((platform.backend.unscale, scaling.unscale), (platform.backend.scale, scaling.scale)):
                assert same(platform.to_numpy(function(platform.put(tree), put_scale)), definition(tree, scale)), scale


@pytest.mark.clause("SCALING-layout", "OVERFLOW-fused", "OVERFLOW-in-place")
@pytest.mark.parametrize("name", DTYPES)
def test_all_sizes_and_alignments_give_the_same_results(platform, name):
    """Sizes are near the boundaries of packs, threads and chunks. Memory around the target is unchanged."""
    chunk = platform.kernels.CHUNK
    for size in (1, 2, 7, 8, 9, 255, 257, chunk - 1, chunk, 3 * chunk + 5):
        for read, written in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 3), (3, 3)):
            array, out = bits(name, size + read, seed=size), bits(name, size + written + 9, seed=7)
            inputs, target = platform.put(array)[read:], platform.put(out)
            *expected, norm = norms.unscale_check_and_norm(array[read:], 3.0, dtype="float64")
            *actual, actual_norm = platform.to_numpy(platform.backend.unscale_check_and_norm(inputs, 3.0, dtype="float64"))
            assert same(actual, expected)
            assert close(actual_norm, norm)
            platform.backend.unscale_and_check(inputs, 3.0, out=target[written : written + size])
            overflow.unscale_and_check(array[read:], 3.0, out=out[written : written + size])
            assert same(platform.to_numpy(target), out)


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-both-sides")
@pytest.mark.parametrize("name", DTYPES)
def test_one_non_finite_number_is_detected(platform, name):
    """An infinity or NaN is at either end, in the middle or near the boundary of a chunk; or only the quotient is infinite."""
    size = platform.kernels.CHUNK + 9
    assert bool(platform.to_numpy(platform.backend.all_finite([platform.put(np.ones(size, DTYPES[name]))] * 2)))
    for index in (0, 1, size // 2, size - 10, size - 9, size - 1):
        for bad in (np.inf, -np.inf, np.nan):
            values = np.ones(size, DTYPES[name])
            values[index] = bad
            tree = [platform.put(np.ones(3, DTYPES[name])), platform.put(values)]
            assert not platform.to_numpy(platform.backend.all_finite(tree))
            assert not platform.to_numpy(platform.backend.unscale_and_check(tree, 2.0)[1])
    tree = platform.put([np.asarray([LARGEST[name]])])
    for scale, dtype, finite in ((1.0, None, True), (0.5, None, False), (0.5, "float32", name == "float16")):
        assert platform.to_numpy(platform.backend.unscale_and_check(tree, scale, dtype=dtype)[1]) == finite


@pytest.mark.clause("OVERFLOW-integers", "OVERFLOW-empty", "OVERFLOW-none")
def test_integers_and_trees_without_values_are_finite(platform):
    """Integers, bools and empty arrays are ignored, and do not hide a NaN beside them."""
    integers = [np.arange(3), np.asarray([True]), None, np.zeros((2, 0), np.float16)]
    for tree in (integers, [], None, {}, [*integers, np.asarray([np.nan])]):
        assert same(platform.to_numpy(platform.backend.all_finite(platform.put(tree))), overflow.all_finite(tree))


@pytest.mark.clause("OVERFLOW-in-place")
@settings(max_examples=25)
@given(trees(any_arrays | complex_arrays), scales)
def test_unscaling_writes_into_out(platform, tree, factor):
    """The result is *out* itself. If *out* is another tree, *tree* is unchanged."""
    *expected, norm = norms.unscale_check_and_norm(tree, factor)
    inputs, out = platform.put(tree), platform.put(map_leaves(np.zeros_like, tree))
    returned, finite = platform.backend.unscale_and_check(inputs, factor, out=out)
    assert returned is out
    assert same(platform.to_numpy((out, finite)), expected)
    assert same(platform.to_numpy(inputs), tree)
    returned, finite, actual_norm = platform.backend.unscale_check_and_norm(inputs, factor, out=inputs)
    assert [id(leaf) for leaf in leaves(returned)] == [id(leaf) for leaf in leaves(inputs)]
    assert same(platform.to_numpy((inputs, finite)), expected)
    assert close(platform.to_numpy(actual_norm), norm)


SHARING = {
    "swapped": lambda a, b: ([a, b], [b, a]),
    "twice": lambda a, b: ([a, b, a], [a, b, a]),
    "shifted up": lambda a, b: ([a[1:], b], [a[:-1], b]),
    "shifted down": lambda a, b: ([a[:-1], b], [a[1:], b]),
    "side by side": lambda a, b: ([a[:9], a[9:], b], [a[:9], a[9:], b]),
}


@pytest.mark.clause("OVERFLOW-in-place")
@pytest.mark.parametrize("sharing", SHARING.values(), ids=SHARING)
def test_shared_memory_is_unscaled_once(platform, sharing):
    """Results are as if everything was read before anything was written."""
    size = 3 * platform.kernels.CHUNK
    expected = [np.arange(size, dtype=np.float32), np.ones(size, np.float32)]
    inputs = platform.put(expected)
    for pair, function in ((inputs, platform.backend.unscale_and_check), (expected, overflow.unscale_and_check)):
        tree, out = sharing(*pair)
        function(tree, 2.0, out=out)
    assert same(platform.to_numpy(inputs), expected)


@pytest.mark.clause("SCALING-layout")
@pytest.mark.parametrize("index", [np.s_[::2], np.s_[::-1], np.s_[:, 1:3], (np.s_[:], None, np.s_[1]), np.s_[1, 2, ...]], ids=str)
def test_arrays_need_not_be_contiguous(platform, index):
    """*out* is another list of the same arrays, or the tree itself. Memory between the values is unchanged."""
    whole = bits("float32", (6, 5)).T
    *expected, norm = norms.unscale_check_and_norm([whole[index]], 3.0)
    inputs = platform.put(whole)
    *actual, actual_norm = platform.to_numpy(platform.backend.unscale_check_and_norm([inputs[index]], 3.0))
    assert same(actual, expected)
    assert close(actual_norm, norm)
    assert same(platform.to_numpy(platform.backend.measure([inputs[index]])), statistics.statistics([whole[index]]))
    histograms = platform.backend.exponent_histogram([inputs[index]])
    assert same(platform.to_numpy(histograms), statistics.exponent_histogram([whole[index]]))
    copy = whole.copy()
    for container in (list, lambda tree: tree):
        for tree, function in (
            ([inputs[index]], platform.backend.unscale_and_check),
            ([copy[index]], overflow.unscale_and_check),
        ):
            function(tree, 3.0, out=container(tree))
        assert same(platform.to_numpy(inputs), copy)


def test_cached_tables_belong_to_their_arrays(platform):
    """Other arrays, fewer arrays, or part of an array do not use the same table."""
    first, second = (platform.put([np.full(3, 64, np.float32) for _ in range(2)]) for _ in range(2))
    for tree in (first, first, second, first[:1], [first[0], second[1]], [first[0][:2]]):
        platform.backend.unscale_and_check(tree, 2.0, out=tree)
    assert [array.tolist() for array in (*first, *second)] == [[2, 2, 4], [16, 16, 16], [32, 32, 32], [16, 16, 16]]


@pytest.mark.clause("NORMS-accumulation-dtype")
@pytest.mark.parametrize("name", DTYPES)
def test_norms_are_reproducible(platform, name):
    """Two calls give the same bits. Sums of many chunks differ from the definition by at most 2 ulp."""
    tree = [np.random.default_rng(size).standard_normal(size).astype(DTYPES[name]) for size in (20_001, 3, 0, 9_000)]
    inputs = platform.put(tree)
    backend = platform.backend
    first, second = (platform.to_numpy((backend.global_norm(inputs), backend.local_norms(inputs))) for _ in range(2))
    assert [norm.tobytes() for norm in first] == [norm.tobytes() for norm in second]
    assert close(first[0], norms.global_norm(tree))
    assert close(first[1], norms.local_norms(tree))


@pytest.mark.clause("NORMS-accumulation-dtype", "NORMS-global")
def test_sums_are_rounded_to_the_dtype_of_the_norm(platform):
    """Sums of arrays are added in order, in float32 or, with a float64 array, in float64. The order matters only in float32."""
    tree = [np.asarray([4096], np.float32), *(np.asarray([1], np.float32) for _ in range(500))]
    assert platform.to_numpy(platform.backend.global_norm(platform.put(tree))) == norms.global_norm(tree) == 4096
    assert platform.to_numpy(platform.backend.global_norm(platform.put([*tree, np.zeros(1)]))) > 4096
    assert platform.to_numpy(platform.backend.global_norm(platform.put(tree[::-1]))) > 4096


@pytest.mark.clause("STEP-order", "STEP-skip")
def test_train_step_equals_that_of_numpy(platform):
    """Scaler and counters of sixty steps are equal. Parameters differ by the rounding of the norm."""
    run = Run()
    state = platform.put(run.state)
    for batch in run.batches:
        state, report = run.step(state, platform.put(batch), platform.backend)
        run.compare(platform.to_numpy(state), platform.to_numpy(report.finite), batch)
    assert run.overflows == 10


@pytest.mark.clause("STEP-order", "STEP-skip", "OVERFLOW-no-host-sync")
@pytest.mark.device
def test_cuda_graphs_capture_train_step(gpu):
    """One graph of the whole step replays the sixty steps."""
    run = Run()
    state = gpu.put(run.state)
    inputs = gpu.put(run.batches[0])
    flags = [gpu.put(np.asarray(True))]

    def step():
        new_state, report = run.step(state, inputs, gpu.backend)
        overwrite([*leaves(state), *flags], [*leaves(new_state), report.finite])

    graph = captured(gpu, step)
    overwrite(leaves(state), gpu.put(leaves(run.state)))
    for batch in run.batches:
        overwrite(inputs, gpu.put(batch))
        graph.launch()
        run.compare(gpu.to_numpy(state), gpu.to_numpy(flags[0]), batch)
    assert run.overflows == 10


@pytest.mark.clause("OVERFLOW-no-host-sync")
@pytest.mark.device
@pytest.mark.parametrize("name", CONTENTS[CONTENTS.index("scale") :])
def test_functions_need_no_host_synchronization(gpu, name):
    """Each function can be captured in a graph: CuPy does not allow a device-to-host copy during a capture."""
    tree = [np.ones(size, dtype) for dtype in DTYPES.values() for size in (1, 1000)] * 40
    inputs, factor = gpu.put(tree), gpu.put(np.asarray(3, np.float32))
    arguments = {"clip_by_global_norm": (2.0,)}.get(name, (factor,) if "scale" in name else ())
    results = []
    graph = captured(gpu, lambda: results.append(getattr(gpu.backend, name)(inputs, *arguments)))
    eager = gpu.to_numpy(getattr(gpu.backend, name)(inputs, *arguments))
    graph.launch()
    assert same(gpu.to_numpy(results[-1]), eager)


@pytest.mark.device
def test_launches_use_the_current_stream(gpu):
    """Kernels run after the operations that the caller has queued. Each stream has its own table."""
    streams = [gpu.library.cuda.Stream(non_blocking=True) for _ in range(2)]
    array = gpu.put(np.ones(2**22, np.float32))
    gpu.library.cuda.Device().synchronize()
    for stream in streams:
        with stream:
            for _ in range(100):
                array *= np.float32(2)
            gpu.backend.unscale_and_check(array, 2.0**50, out=array)
            gpu.backend.unscale_and_check(array, 2.0**50, out=array)
            stream.synchronize()
        assert same(gpu.to_numpy(array), np.ones(2**22, np.float32))


class Run:
    """Training run of `linear` with sixty batches, ten of which overflow, and the same run on NumPy."""

    RULE = LossScaleRule(init_scale=2.0**10, growth_interval=3, max_scale=2.0**12)
    DTYPES = (np.float16, np.float16, np.float32)
    BAD = (0, 1, 7, 20, 21, 22, 31, 40, 55, 59)

    def __init__(self):
        draw = np.random.default_rng(0).standard_normal
        params = [draw(size).astype(dtype) for size, dtype in zip((300, 7, 1000), self.DTYPES, strict=True)]
        self.batches = [[draw(param.size).astype(param.dtype) for param in params] for _ in range(60)]
        for step in self.BAD:
            self.batches[step][0][11] = 6e4  # finite, but infinite when scaled
        self.optimizer = Momentum(linear.network(params), 0.125)
        self.state = self.expected = init_train_state(params, self.optimizer, self.RULE)
        self.overflows = 0

    def step(self, state, batch, kernels=generic):
        return train_step(linear, self.optimizer, self.RULE, state, batch, max_norm=2.0, kernels=kernels)

    def compare(self, state, finite, batch):
        """Run the next step on NumPy, and compare its results with *state* and *finite*."""
        self.expected, report = self.step(self.expected, batch)
        self.overflows += not report.finite
        exact = ("scaler", "attempted", "applied")
        assert same(
            [finite, *(getattr(state, name) for name in exact)],
            [report.finite, *(getattr(self.expected, name) for name in exact)],
        )
        for actual, expected in zip(
            leaves((state.params, state.optimizer)), leaves((self.expected.params, self.expected.optimizer)), strict=True
        ):
            assert actual.dtype == expected.dtype
            np.testing.assert_allclose(
                actual.astype(float), expected.astype(float), rtol=1e-5, atol=2e-3 if expected.dtype == np.float16 else 1e-6
            )


def captured(gpu, function):
    """Return a graph that replays the launches of *function*. The launches use memory of a pool that the graph keeps alive."""
    cuda = gpu.library.cuda
    stream, pool = cuda.Stream(non_blocking=True), cuda.MemoryPool()
    cuda.Device().synchronize()
    with cuda.using_allocator(pool.malloc), stream:
        function()  # the first launch compiles the kernels, which a capture does not allow
        stream.begin_capture()
        function()
        graph = stream.end_capture()
        stream.synchronize()
    return SimpleNamespace(launch=graph.launch, pool=pool)


def overwrite(arrays, values):
    for array, value in zip(arrays, values, strict=True):
        array[...] = value
