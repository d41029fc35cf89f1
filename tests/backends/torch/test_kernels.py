"""Multi-tensor torch kernels compared with the definitions of the core: equal bits for all values and memory layouts."""

import mmap
import operator
import sys
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import close, load
from strategies import DTYPES, LARGEST, alike, arrays, bit_patterns

import ampscale
from ampscale.core import norms, overflow, scaling, statistics
from ampscale.core.trees import map_leaves

torch = pytest.importorskip("torch", reason="needs torch")
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode  # noqa: E402 - torch may be missing
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from ampscale.backends.torch import kernels  # noqa: E402
from ampscale.frameworks.torch import optimizer_step  # noqa: E402

pytestmark = pytest.mark.usefixtures("each_kernel")

FORMATS = pytest.mark.parametrize("dtype", list(DTYPES))
LIBRARY = load("torch")
equal = LIBRARY.same
SHAPES = st.sampled_from([(), (0,), (1,), (3,), (33,), (2, 70)])  # no values, and fewer and more than in a vector register
POWERS = st.integers(-149, 127).map(lambda exponent: 2.0**exponent)
SCALES = POWERS | st.floats(2.0**-149, float(LARGEST["float32"]), width=32)
LISTS = st.lists(st.sampled_from(list(DTYPES)).flatmap(lambda name: arrays(name, SHAPES)), min_size=1, max_size=5)
SCALE_TYPES = [float, torch.tensor, lambda value: torch.tensor([value], dtype=torch.float64)]
FACTORS = [2.0**16, 1.0, 2.0**126, 2.0**127, 3.0, 0.25, 0.7001953125, 2.0**-126, 2.0**-149, 65519.0]


def copied(tree):
    return map_leaves(torch.clone, tree)


def as_matrix(values):
    return values.reshape(-1, 4)


LAYOUTS = {
    "a matrix": as_matrix,
    "transposed": lambda values: as_matrix(values).t(),
    "channels last": lambda values: values.reshape(1, 4, 2, -1).to(memory_format=torch.channels_last),
    "every third": lambda values: values[::3],
    "a column": lambda values: as_matrix(values)[:, 1],
    "from the second on": lambda values: values[1:],
    "a parameter": lambda values: torch.nn.Parameter(values),
}


# Results


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-reciprocal", "SCALING-round-once", "OVERFLOW-in-place")
@FORMATS
def test_results_equal_the_definition_for_all_bits(dtype):
    """Results are in place or new arrays, in every layout; some factors have an exact reciprocal."""
    every_factor, every_layout = product(["a matrix"], FACTORS), product(LAYOUTS, (2.0**16, 3.0))
    for layout, factor in (*every_factor, *every_layout):
        tree = [LAYOUTS[layout](LIBRARY.put(bit_patterns(dtype))).detach(), torch.tensor(7, dtype=getattr(torch, dtype))]
        expected = scaling.unscale(tree, factor)
        assert equal(ampscale.unscale(tree, factor), expected), layout
        assert equal(ampscale.scale(tree, factor), scaling.scale(tree, factor)), layout
        assert equal(ampscale.unscale_and_check(tree, torch.tensor(factor), out=tree)[0], expected), layout
        assert equal(tree, expected), layout


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-in-place", "OVERFLOW-both-sides", "OVERFLOW-fused")
@given(scale_type=st.sampled_from(SCALE_TYPES), values=LISTS, factor=SCALES, elsewhere=st.booleans(), norm=st.booleans())
@settings(max_examples=120)
def test_out_receives_the_result_in_place_or_in_other_arrays(scale_type, values, factor, elsewhere, norm):
    """If *out* is another tree, it initially contains NaNs, and *tree* is unchanged. The scale has any supported type."""
    tree, scale = LIBRARY.from_numpy(values), scale_type(factor)
    copy = copied(tree)
    out = map_leaves(lambda leaf: torch.full_like(leaf, float("nan")), tree) if elsewhere else tree
    expected, targets = overflow.unscale_and_check(copy, scale), list(out)
    function = ampscale.unscale_check_and_norm if norm else ampscale.unscale_and_check
    result, flag, *_ = function(tree, scale, out=out)
    assert result is out
    assert all(map(operator.is_, targets, out))
    assert equal([out, flag], list(expected))
    assert not elsewhere or equal(tree, copy)


@pytest.mark.clause("SCALING-round-once")
def test_float64_scales_are_rounded_only_for_float32_arrays():
    """float32 and float64 arrays have different quotients by the same scale."""
    scale = 1.0 + 2.0**-30
    for divisor in (scale, torch.tensor(scale, dtype=torch.float64)):
        tree = [torch.tensor([3.0, 5.0], dtype=dtype) for dtype in (torch.float32, torch.float64)]
        expected = [torch.tensor([3.0, 5.0]), torch.tensor([3.0, 5.0], dtype=torch.float64) / scale]
        assert equal(ampscale.unscale(tree, divisor), expected)
        assert equal(ampscale.unscale_and_check(tree, divisor, out=tree)[0], expected)


@pytest.fixture
def one_thread():
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.mark.clause("SCALING-reciprocal", "BACKENDS-bit-identical")
@pytest.mark.usefixtures("one_thread")
@FORMATS
def test_results_equal_the_definition_if_subnormal_numbers_are_flushed(dtype):
    """A reciprocal that would be flushed is not used. There is one thread, since torch flushes in the calling thread only."""
    for factor in (2.0**127, 2.0**126, 2.0**16, 3.0, 2.0**-126):
        tree = [LIBRARY.put(bit_patterns(dtype))]
        if not torch.set_flush_denormal(True):
            pytest.skip("needs a processor that can flush")
        try:
            expected, finite = overflow.unscale_and_check(tree, factor)
            unscaled, flag = ampscale.unscale_and_check(tree, factor, out=tree)
        finally:
            torch.set_flush_denormal(False)
        assert equal([*unscaled, flag], [*expected, finite])


def test_zero_tensors_are_read():
    """A zero tensor of torch has no memory."""
    tree = [torch.ones(3), torch._efficientzerotensor((4,)), torch.empty(0)]
    assert ampscale.global_norm(tree) == torch.tensor(3.0).sqrt()
    assert ampscale.unscale_and_check(tree, 3.0)[1]


def test_autograd_detects_that_saved_tensors_were_divided():
    """The version of a tensor that is written in place increases."""
    param = torch.ones(3, requires_grad=True)
    saved = torch.ones(3)
    loss = (param * saved).sum()
    ampscale.unscale_check_and_norm([saved], 3.0, out=[saved])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# Checks


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-elementwise", "OVERFLOW-edges")
@FORMATS
def test_one_non_finite_value_is_detected(dtype):
    """The value is the first or the last of a small or large array. The largest finite values are finite."""
    dtype = getattr(torch, dtype)
    small = [torch.ones(5, dtype=torch.float32), torch.ones((), dtype=torch.bfloat16)]
    values = (float("inf"), -float("inf"), float("nan"), torch.finfo(dtype).max, torch.finfo(dtype).min)
    for size, value in product((1, 7, 4096, 4097, 300_000), values):
        for index in (0, size - 1):
            array = torch.full((size,), torch.finfo(dtype).max, dtype=dtype)
            array[index] = value
            for tree in ([array], [*small, array, torch.ones(0)], [array.expand(2, size), *small]):
                assert bool(ampscale.all_finite(tree)) == np.isfinite(value), (size, index, value)


@pytest.mark.skipif(sys.platform == "win32", reason="read-only memory is mapped in another way")
def test_checks_and_norms_do_not_write():
    """The memory is mapped read-only, so a write would end the process."""
    for size in (3, 4096, 50_000):
        mapped = mmap.mmap(-1, 4 * size, prot=mmap.PROT_READ)
        with warnings.catch_warnings(action="ignore"):  # torch warns once about read-only memory
            array = torch.frombuffer(mapped, dtype=torch.float32)
        assert bool(ampscale.all_finite([array, array]))
        assert ampscale.global_norm([array]) == 0
        assert bool(ampscale.unscale_and_check([array], 2.0)[1])
        assert array._version == 0


# Shared memory


def overlapping():
    """Return named pairs of a tree and *out*, often the tree itself, whose arrays share memory or interleave."""
    buffer = torch.arange(1.0, 13.0)
    numpy_buffer = np.arange(1.0, 13.0, dtype=np.float32)
    view = buffer[:4]
    pairs = {
        "one array twice": ([view, view], None),
        "two views of the same values": ([buffer[:4], buffer[:4]], None),
        "views that overlap": ([buffer[:5], torch.ones(3), buffer[3:9]], None),
        "a view and its transpose": ([buffer.view(3, 4), buffer.view(3, 4).t()], None),
        "slices of one array": ([buffer[::2], buffer[1::2]], None),
        "shifted": ([buffer[:6]], [buffer[3:9]]),
        "swapped": ([buffer[:6], buffer[6:]], [buffer[6:], buffer[:6]]),
        "one in place, one elsewhere": ([buffer[:6], buffer[6:9]], [buffer[:6], buffer[9:]]),
        "windows": ([torch.arange(1.0, 8.0).as_strided((3, 4), (1, 1))], None),
        "NumPy memory": ([torch.from_numpy(numpy_buffer[:8]), torch.from_numpy(numpy_buffer[4:])], None),
    }
    return {case: (tree, tree if out is None else out) for case, (tree, out) in pairs.items()}


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-in-place")
@pytest.mark.parametrize("factor", [4.0, 3.0])
def test_shared_memory_is_divided_once(factor):
    """All values are read before any is written, as in the definition."""
    modules = {"unscale_and_check": overflow, "unscale_check_and_norm": norms, "unscale_check_and_measure": statistics}
    for case, (name, module) in product(overlapping(), modules.items()):
        tree, out = overlapping()[case]
        expected_tree, expected_out = overlapping()[case]
        results = getattr(ampscale, name)(tree, factor, out)
        assert equal(results, getattr(module, name)(expected_tree, factor, expected_out)), case
        assert equal([tree, out], [expected_tree, expected_out]), case


@pytest.mark.clause("OVERFLOW-both-sides", "SCALING-round-once")
@pytest.mark.parametrize("scale", [4.0, 3.0, 0.5])
@pytest.mark.parametrize("value", [1.0, 3e38, -float("inf")])
def test_bfloat16_is_unscaled_without_torchs_kernel(monkeypatch, scale, value):
    """On CUDA, torch's kernel rejects bfloat16, and torch's scaler raises an error."""
    monkeypatch.delattr(torch, "_amp_foreach_non_finite_check_and_unscale_")
    monkeypatch.setattr(kernels, "_amp_rejects", lambda _: True)
    values = torch.tensor([2.0, value], dtype=torch.bfloat16)
    tree = [values, values.clone().unsqueeze(0)]
    expected, finite = overflow.unscale_and_check(copied(tree), scale)
    found_inf = kernels.unscale_(tree, torch.tensor(scale), least=0.0 if scale == 3 else scale)
    assert bool(found_inf == 0) == bool(finite)
    assert equal(tree, expected)


@pytest.mark.clause("TORCH-unscale")
@pytest.mark.parametrize("scale", [4.0, 3.0])
def test_gradients_with_shared_memory_are_divided_once(scale):
    """Torch's own scaler divides shared values twice. Adjacent views of a bucket share no memory."""
    names = ("one array twice", "two views of the same values", "views that overlap", "a view and its transpose", "windows")
    for tree, _ in map(overlapping().get, names):
        expected = overflow.unscale_and_check(copied(tree), scale)[0]
        assert unscale(optimizer_over(tree), torch.tensor(scale)) == 0
        assert all(equal([left.ravel()[:3]], [right.ravel()[:3]]) for left, right in zip(tree, expected, strict=True))
    bucket = torch.arange(1.0, 9.0)
    unscale(optimizer_over([bucket[:3], bucket[3:]]), torch.tensor(scale))
    assert equal([bucket], [torch.arange(1.0, 9.0) / scale])


def optimizer_over(gradients):
    parameters = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return torch.optim.SGD(parameters)


def unscale(optimizer, scale, least=0.0):
    """Divide the gradients, and return `found_inf`; *least* is a lower bound of the scale."""
    gradients = optimizer_step.checked_gradients(optimizer, scale)
    return optimizer_step.unscale_gradients(optimizer, gradients, scale, lambda: least)


# Supported arrays


class Subclass(torch.Tensor):
    """A tensor class that torch does not define."""


@pytest.mark.clause("TORCH-float16")
def test_kernels_leave_unsupported_arrays_unchanged():
    """Nothing is written to supported arrays of the same tree either, nor to arrays of a dtype that the caller excludes."""
    conjugate = torch.tensor([6 + 3j]).conj()
    integers, meta = torch.ones(3, dtype=torch.int32), torch.ones(3, device="meta")
    for other in (torch.ones(3).as_subclass(Subclass), conjugate, conjugate.imag, torch.eye(3).to_sparse(), meta, integers):
        tree = [torch.ones(3), other]
        assert not kernels.supports(tree)
        scale = torch.tensor(4.0)
        if kernels.supports_in_one_pass(tree, scale, kernels.FLOATS):  # negated views, which only the division rejects
            assert kernels.unscale_in_one_pass_(tree, scale) is None
        assert kernels.unscale_and_measure_(tree, scale) is None
        assert tree[0].sum() == 3
    assert not kernels.supports([meta])
    arrays = [torch.ones(3), torch.ones(3, dtype=torch.float16)]
    assert not kernels.supports_in_one_pass(arrays, torch.tensor(4.0), kernels.FLOATS - {torch.float16})
    assert [array.sum() for array in arrays] == [3.0, 3.0]


@pytest.mark.clause("TORCH-unscale")
def test_negated_views_are_unscaled():
    """The fused kernel rejects lists with a negated view; torch's operators then divide the gradients."""
    whole = torch.tensor([8 + 4j, 6 - 2j])
    for part, expected in ((whole.conj().imag, [-1.0, 0.5]), (whole[:1].conj().imag, [-1.0])):
        plain = torch.tensor([8.0])
        original = whole.clone()
        found_inf = unscale(optimizer_over([plain, part]), torch.tensor(4.0), least=4.0)
        assert (found_inf, plain.item(), part.tolist()) == (0.0, 2.0, expected)
        whole.copy_(original)


@pytest.mark.clause("OVERFLOW-in-place")
def test_autograd_and_transforms_use_the_definition():
    """Examples are vmap, `torch.func.grad`, and `backward` to arrays, also through a write in place, and to the scale."""
    values = torch.tensor([[6.0, float("inf")], [3.0, 1.0]])
    quotients, flags = torch.func.vmap(lambda value: ampscale.unscale_and_check([value], 3.0))(values)
    assert equal([quotients[0], flags], [values / 3.0, torch.tensor([False, True])])
    for function in (ampscale.measure, ampscale.exponent_histogram):
        rows = torch.func.vmap(lambda value, function=function: function([value])[0])(values)
        assert equal([rows], [function(list(values))])
    gradient = torch.func.grad(lambda value: ampscale.scale([value], 4.0)[0].sum())(values[1])
    assert gradient.tolist() == [4.0, 4.0]
    weight = torch.tensor([2.0], requires_grad=True)
    ampscale.unscale([weight * weight], torch.tensor(4.0))[0].backward()
    assert weight.grad.tolist() == [1.0]
    weight.grad = None
    inner = weight * 3
    ampscale.unscale_and_check([inner], torch.tensor(4.0), out=[inner])
    inner.backward()
    assert weight.grad.tolist() == [0.75]
    divisor = torch.tensor(4.0, requires_grad=True)
    ampscale.scale([torch.tensor([3.0])], divisor)[0].backward()
    assert divisor.grad == 3.0


def test_traced_functions_take_the_scale_as_an_argument():
    """A graph or script that was traced with one scale gives correct results for another scale."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(value, scale):
        value = value.clone()
        _, finite = ampscale.unscale_and_check([value], scale, out=[value])
        return value, finite

    arguments = torch.tensor([12.0]), torch.tensor(4.0)
    with warnings.catch_warnings(action="ignore"):  # torch warns about deprecated functions
        traced = [make_fx(function)(*arguments), torch.jit.trace(function, arguments)]
    for value, factor in ((5.0, 3.0), (3e38, 0.25), (5.0, 1.0)):
        for graph in traced:
            arguments = torch.tensor([value]), torch.tensor(factor)
            assert equal(graph(*arguments), function(*arguments))


# Devices


@pytest.mark.clause("OVERFLOW-no-host-sync", "TORCH-host-sync")
@pytest.mark.parametrize(
    ("scale", "least", "passes", "divides"),
    [
        (4.0, 0.0, 1, False),
        (3.0, 0.0, 1, True),
        (0.5, 0.0, 1, True),
        (None, 0.0, 1, True),
        (None, 2.0**-126, 2, False),
        (None, 0.5, 2, False),
        (None, 1.0, 1, False),
    ],
)
def test_devices_need_no_host_synchronization(scale, least, passes, divides):
    """
    The device is fake: reading a value would raise an error. Each pass of checks is one kernel call for each dtype.

    A scale of None is a tensor on the device, and *least* its lower bound: 0.0 if it may not be a power of two.
    """
    with FakeTensorMode(), Calls() as calls:
        values = [torch.ones(3, device="cuda", dtype=dtype) for dtype in (torch.float32, torch.float16, torch.float64)]
        divisor = torch.full((), 4.0, device="cuda") if scale is None else scale
        calls.clear()
        found_inf = kernels.unscale_(values, divisor, least=least)
        assert sum("non_finite_check" in call for call in calls) == 3 * passes
        assert any("_foreach_div" in call for call in calls) == divides
        assert (found_inf.shape, found_inf.dtype, found_inf.device.type) == ((), torch.float32, "cuda")
        assert kernels.all_finite(values).device.type == "cuda"
        for results in (kernels.quotients(values, divisor), kernels.products(values, divisor)):
            assert [(array.dtype, array.device) for array in results] == [(array.dtype, array.device) for array in values]
        with pytest.raises(DataDependentOutputException):
            bool(found_inf)


class Calls(TorchDispatchMode, list):
    """List of the names of the operations that are called in a context."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.append(str(operation))
        return operation(*args, **(kwargs or {}))


# Norms


@pytest.mark.clause("NORMS-accumulation-dtype", "NORMS-global", "NORMS-local", "BACKENDS-bit-identical")
@FORMATS
@pytest.mark.parametrize("sizes", [[1, 4096, 4097, 131_072], [131_073, 5, 0, 400_000], [1000] * 40], ids=["few", "large", "many"])
def test_norms_equal_the_definition_to_two_units(dtype, sizes):
    """
    Values are random, or all equal: then the rounding errors of their squares do not cancel.

    Squares of 1e-30 underflow, and those of 1e30 overflow.
    """
    dtype = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(0)
    trees = [[torch.randn(size, generator=generator).to(dtype) for size in sizes]]
    trees += [[torch.full((size,), value).to(dtype) for size in sizes] for value in (1.1, 1e-30, 1e30)]
    for tree in trees:
        for actual, expected in (
            (ampscale.global_norm(tree), norms.global_norm(tree)),
            (ampscale.unscale_check_and_norm(tree, 1.0)[2], norms.global_norm(tree)),
            (ampscale.local_norms(tree), norms.local_norms(tree)),
        ):
            assert close(actual, expected)


@pytest.mark.clause("NORMS-accumulation-dtype")
@given(st.lists(st.floats(0, float(LARGEST["float32"]), width=32), min_size=1, max_size=50))
def test_sum_in_order_rounds_each_sum(values):
    """The result equals that of a float32 loop."""
    total = np.float32(0)
    with np.errstate(over="ignore"):
        for value in values:
            total += np.float32(value)
    assert alike(kernels.sum_in_order(torch.tensor(values)).numpy(), total)
