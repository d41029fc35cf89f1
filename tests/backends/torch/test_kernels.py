"""torch's kernels for many arrays at once, beside the definitions: the same bits, of any values in any memory."""

import mmap
import sys
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import load
from strategies import DTYPES, LARGEST, alike, arrays, same

import ampscale
from ampscale.core import norms, overflow, scaling
from ampscale.core.trees import map_leaves

torch = pytest.importorskip("torch", reason="needs torch")
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode  # noqa: E402 - torch may be missing
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from ampscale.backends.torch import kernels  # noqa: E402
from ampscale.frameworks.torch import optimizer_step  # noqa: E402

LIBRARY = load("torch")
FORMATS = pytest.mark.parametrize("dtype", list(DTYPES))
SHAPES = st.sampled_from([(), (0,), (1,), (3,), (33,), (2, 70)])  # none, a rest, and more than a vector register holds
POWERS = st.integers(-149, 127).map(lambda exponent: 2.0**exponent)
SCALES = POWERS | st.floats(2.0**-149, float(LARGEST["float32"]), width=32)
LISTS = st.lists(st.sampled_from(list(DTYPES)).flatmap(lambda name: arrays(name, SHAPES)), min_size=1, max_size=5)
FORMS = [float, torch.tensor, lambda value: torch.tensor([value], dtype=torch.float64)]
FACTORS = [2.0**16, 1.0, 2.0**126, 2.0**127, 3.0, 0.25, 0.7001953125, 2.0**-126, 2.0**-149, 65519.0]


def equal(left, right):
    """Whether two trees hold the same tensors, bit for bit."""
    return same(LIBRARY.to_numpy(left), LIBRARY.to_numpy(right))


def copied(tree):
    """The same values in memory of their own."""
    return map_leaves(torch.clone, tree)


def patterns(dtype, count=1 << 16):
    """Every bit pattern of a 16-bit format, or as many of a wider one, at random; subnormal numbers and infinities too."""
    bits = np.random.default_rng(0).integers(0, 2**64 - 1, count, np.uint64, endpoint=True)
    width = DTYPES[dtype].itemsize
    bits = np.arange(1 << 16) if width == 2 else bits
    return LIBRARY.put(bits.astype(f"uint{8 * width}").view(DTYPES[dtype]))


def in_order(values):
    """Along its memory, as a layout of two dimensions has it."""
    return values.reshape(-1, 4)


LAYOUTS = {
    "a matrix": in_order,
    "transposed": lambda values: in_order(values).t(),
    "channels last": lambda values: values.reshape(1, 4, 2, -1).to(memory_format=torch.channels_last),
    "every third": lambda values: values[::3],
    "a column": lambda values: in_order(values)[:, 1],
    "from the second on": lambda values: values[1:],
    "a parameter": lambda values: torch.nn.Parameter(values),
}


# What comes out


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-reciprocal", "SCALING-round-once", "OVERFLOW-in-place")
@FORMATS
def test_any_bits_come_out_as_the_definition_has_them(dtype):
    """In place and as new arrays, in any layout: a product with a reciprocal where that is exact, a quotient elsewhere."""
    every_factor, every_layout = product(["a matrix"], FACTORS), product(LAYOUTS, (2.0**16, 3.0))
    for layout, factor in (*every_factor, *every_layout):
        tree = [LAYOUTS[layout](patterns(dtype)).detach(), torch.tensor(7, dtype=getattr(torch, dtype))]
        wanted = scaling.unscale(tree, factor)
        assert equal(ampscale.unscale(tree, factor), wanted), layout
        assert equal(ampscale.scale(tree, factor), scaling.scale(tree, factor)), layout
        assert equal(ampscale.unscale_and_check(tree, torch.tensor(factor), out=tree)[0], wanted), layout
        assert equal(tree, wanted), layout


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-in-place", "OVERFLOW-both-sides", "OVERFLOW-fused")
@given(form=st.sampled_from(FORMS), values=LISTS, factor=SCALES, elsewhere=st.booleans(), norm=st.booleans())
@settings(max_examples=120)
def test_the_result_is_written_in_place_or_elsewhere(form, values, factor, elsewhere, norm):
    """Values of all formats and their flag, for a scale in any form; other arrays may hold anything, and the tree then stays."""
    tree, scale = LIBRARY.from_numpy(values), form(factor)
    before, out = copied(tree), map_leaves(lambda leaf: torch.full_like(leaf, float("nan")), tree) if elsewhere else tree
    wanted, places = overflow.unscale_and_check(before, scale), list(out)
    verb = ampscale.unscale_check_and_norm if norm else ampscale.unscale_and_check
    got, flag, *_ = verb(tree, scale, out=out)
    assert got is out
    assert all(one is other for one, other in zip(places, out, strict=True))
    assert equal([out, flag], list(wanted))
    assert not elsewhere or equal(tree, before)


@pytest.mark.clause("SCALING-round-once")
def test_a_float64_scale_is_rounded_for_float32_arrays_alone():
    """Of one scale the two formats have two quotients, in place and as new arrays."""
    scale = 1.0 + 2.0**-30
    for form in (scale, torch.tensor(scale, dtype=torch.float64)):
        tree = [torch.tensor([3.0, 5.0], dtype=dtype) for dtype in (torch.float32, torch.float64)]
        wanted = [torch.tensor([3.0, 5.0]), torch.tensor([3.0, 5.0], dtype=torch.float64) / scale]
        assert equal(ampscale.unscale(tree, form), wanted)
        assert equal(ampscale.unscale_and_check(tree, form, out=tree)[0], wanted)


@pytest.mark.clause("SCALING-reciprocal", "BACKENDS-bit-identical")
@FORMATS
def test_where_subnormal_numbers_are_flushed_the_bits_are_those_of_the_definition(dtype):
    """A reciprocal that would be flushed is not taken."""
    for factor in (2.0**127, 2.0**126, 2.0**16, 3.0, 2.0**-126):
        tree = [patterns(dtype)]
        if not torch.set_flush_denormal(True):
            pytest.skip("needs a processor that can flush")
        try:
            wanted, finite = overflow.unscale_and_check(tree, factor)
            got, flag = ampscale.unscale_and_check(tree, factor, out=tree)
        finally:
            torch.set_flush_denormal(False)
        assert equal([*got, flag], [*wanted, finite])


# What is seen


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-elementwise", "OVERFLOW-edges")
@FORMATS
def test_one_value_among_many_is_seen(dtype):
    """An infinity of either sign and a NaN, first or last, in small arrays and large ones; the largest values are none."""
    kind = getattr(torch, dtype)
    small = [torch.ones(5, dtype=torch.float32), torch.ones((), dtype=torch.bfloat16)]
    values = (float("inf"), -float("inf"), float("nan"), torch.finfo(kind).max, torch.finfo(kind).min)
    for size, value in product((1, 7, 4096, 4097, 300_000), values):
        for place in (0, size - 1):
            array = torch.full((size,), torch.finfo(kind).max, dtype=kind)
            array[place] = value
            for tree in ([array], [*small, array, torch.ones(0)], [array.expand(2, size), *small]):
                assert bool(ampscale.all_finite(tree)) == np.isfinite(value), (size, place, value)


@pytest.mark.skipif(sys.platform == "win32", reason="there, memory that is only read is mapped in another way")
def test_a_check_and_a_norm_only_read():
    """Of memory that the machine lets nobody write to; a write would end the process."""
    for size in (3, 4096, 50_000):
        mapped = mmap.mmap(-1, 4 * size, prot=mmap.PROT_READ)
        with warnings.catch_warnings(action="ignore"):  # of torch's, once in a process: that nobody may write to it
            array = torch.frombuffer(mapped, dtype=torch.float32)
        assert bool(ampscale.all_finite([array, array]))
        assert ampscale.global_norm([array]) == 0
        assert bool(ampscale.unscale_and_check([array], 2.0)[1])
        assert array._version == 0


# Where arrays share memory


def overlapping():
    """Trees and where to write them, in which some memory stands twice, by name."""
    buffer = torch.arange(1.0, 13.0)
    foreign = np.arange(1.0, 13.0, dtype=np.float32)
    same_twice = buffer[:4]
    return {
        "one array twice": ([same_twice, same_twice], None),
        "two views of the same values": ([buffer[:4], buffer[:4]], None),
        "views that overlap": ([buffer[:5], torch.ones(3), buffer[3:9]], None),
        "a view and its transpose": ([buffer.view(3, 4), buffer.view(3, 4).t()], None),
        "slices of one array": ([buffer[::2], buffer[1::2]], None),
        "the values behind": ([buffer[:6]], [buffer[3:9]]),
        "exchanged": ([buffer[:6], buffer[6:]], [buffer[6:], buffer[:6]]),
        "one in its place, one elsewhere": ([buffer[:6], buffer[6:9]], [buffer[:6], buffer[9:]]),
        "windows": ([torch.arange(1.0, 8.0).as_strided((3, 4), (1, 1))], None),
        "memory of NumPy's": ([torch.from_numpy(foreign[:8]), torch.from_numpy(foreign[4:])], None),
    }


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-in-place")
@pytest.mark.parametrize("factor", [4.0, 3.0])
def test_memory_that_stands_twice_in_a_tree_is_divided_once(factor):
    """As the definition has it: everything is read before anything is written."""
    for case, (verb, home) in product(overlapping(), (("unscale_and_check", overflow), ("unscale_check_and_norm", norms))):
        ours, theirs = overlapping()[case], overlapping()[case]
        tree, out = ours
        got = getattr(ampscale, verb)(tree, factor, out=tree if out is None else out)
        tree, out = theirs
        wanted = getattr(home, verb)(tree, factor, tree if out is None else out)
        assert equal(list(got), list(wanted)), case
        assert equal(ours, theirs), case


@pytest.mark.clause("TORCH-unscale")
@pytest.mark.parametrize("scale", [4.0, 3.0])
def test_gradients_that_share_memory_are_divided_once(scale):
    """By torch's own scaler twice; buckets of views that only lie side by side are unscaled as any others."""
    twice = ("one array twice", "two views of the same values", "views that overlap", "a view and its transpose", "windows")
    for tree, _ in map(overlapping().get, twice):
        wanted = overflow.unscale_and_check(copied(tree), scale)[0]
        assert unscaled(optimizer_over(tree), torch.tensor(scale)) == 0
        assert all(equal([one.ravel()[:3]], [other.ravel()[:3]]) for one, other in zip(tree, wanted, strict=True))
    bucket = torch.arange(1.0, 9.0)
    unscaled(optimizer_over([bucket[:3], bucket[3:]]), torch.tensor(scale))
    assert equal([bucket], [torch.arange(1.0, 9.0) / scale])


def optimizer_over(gradients):
    """An optimizer with a parameter for each of these gradients."""
    parameters = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return torch.optim.SGD(parameters)


def unscaled(optimizer, scale, **least):
    """The flag, after the gradients were checked and divided."""
    return optimizer_step.unscale_gradients(optimizer, optimizer_step.checked_gradients(optimizer, scale), scale, **least)


# Which arrays the kernels take


class Own(torch.Tensor):
    """A tensor of somebody else."""


@pytest.mark.clause("TORCH-float16")
def test_other_arrays_are_left_to_the_definitions():
    """Nothing is done to them, however plain the others are; only the formats that were asked for are unscaled at once."""
    conjugate = torch.tensor([6 + 3j]).conj()
    integers, nowhere = torch.ones(3, dtype=torch.int32), torch.ones(3, device="meta")
    for other in (torch.ones(3).as_subclass(Own), conjugate, conjugate.imag, torch.eye(3).to_sparse(), nowhere, integers):
        tree = [torch.ones(3), other]
        assert not kernels.supports(tree)
        scale = torch.tensor(4.0)
        assert not kernels.supports_in_one_pass(tree, scale, kernels.FLOATS) or kernels.unscale_in_one_pass_(tree, scale) is None
        assert tree[0].sum() == 3
    assert not kernels.supports([nowhere])
    arrays = [torch.ones(3), torch.ones(3, dtype=torch.float16)]
    assert not kernels.supports_in_one_pass(arrays, torch.tensor(4.0), kernels.FLOATS - {torch.float16})
    assert [array.sum() for array in arrays] == [3.0, 3.0]


@pytest.mark.clause("TORCH-unscale")
def test_a_gradient_that_is_negated_lazily_is_unscaled():
    """Beside others too, which the kernel would refuse with it."""
    whole = torch.tensor([8 + 4j, 6 - 2j])
    for part, wanted in ((whole.conj().imag, [-1.0, 0.5]), (whole[:1].conj().imag, [-1.0])):
        plain = torch.tensor([8.0])
        kept = whole.clone()
        found = unscaled(optimizer_over([plain, part]), torch.tensor(4.0), least=4.0)
        assert (found, plain.item(), part.tolist()) == (0.0, 2.0, wanted)
        whole.copy_(kept)


@pytest.mark.clause("OVERFLOW-in-place")
def test_what_differentiates_or_transforms_gets_the_definition():
    """vmap, forward-mode and reverse-mode; a number is batched as an array is."""
    values = torch.tensor([[6.0, float("inf")], [3.0, 1.0]])
    quotients, flags = torch.func.vmap(lambda value: ampscale.unscale_and_check([value], 3.0))(values)
    assert equal([quotients[0], flags], [values / 3.0, torch.tensor([False, True])])
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


def test_what_records_operations_gets_the_scale_as_an_argument():
    """A graph, or a script, that was recorded with one scale is right for another."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def unscaled(value, scale):
        value = value.clone()
        _, finite = ampscale.unscale_and_check([value], scale, out=[value])
        return value, finite

    arguments = torch.tensor([12.0]), torch.tensor(4.0)
    with warnings.catch_warnings(action="ignore"):  # of torch's, on what it calls outdated
        recorded = [make_fx(unscaled)(*arguments), torch.jit.trace(unscaled, arguments)]
    for value, factor in ((5.0, 3.0), (3e38, 0.25), (5.0, 1.0)):
        for graph in recorded:
            arguments = torch.tensor([value]), torch.tensor(factor)
            assert equal(graph(*arguments), unscaled(*arguments))


# Devices


@pytest.mark.clause("OVERFLOW-no-host-sync", "TORCH-host-sync")
@pytest.mark.parametrize(
    ("scale", "least", "passes"),
    [(4.0, 0.0, 1), (3.0, 0.0, 2), (0.5, 0.0, 2), (None, 0.0, 2), (None, 2.0**-126, 2), (None, 0.5, 2), (None, 1.0, 1)],
)
def test_on_a_device_nothing_is_read(scale, least, passes):
    """
    On one that is not there, whose values nobody could read: a read would be an error.

    One pass over the arrays of a dtype is one call of the kernel; a division is one, or more.
    """
    with FakeTensorMode(), Calls() as calls:
        values = [torch.ones(3, device="cuda", dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.float64)]
        divisor = torch.full((), 4.0, device="cuda") if scale is None else scale
        calls.clear()
        found = kernels.unscale_(values, divisor, least=least)
        looks = sum("non_finite_check" in call for call in calls)
        divides = any("_foreach_div" in call for call in calls)
        assert (found.shape, found.dtype, found.device.type) == ((), torch.float32, "cuda")
        assert (looks, divides) == (3 * (1 if divides else passes), passes == 2 and not least)
        assert kernels.all_finite(values).device.type == "cuda"
        for results in (kernels.quotients(values, divisor), kernels.products(values, divisor)):
            assert [(one.dtype, one.device) for one in results] == [(one.dtype, one.device) for one in values]
        with pytest.raises(DataDependentOutputException):
            bool(found)


class Calls(TorchDispatchMode, list):
    """The names of the operations that are called within."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.append(str(operation))
        return operation(*args, **(kwargs or {}))


# Norms


@pytest.mark.clause("NORMS-accumulation-dtype", "NORMS-global", "NORMS-local", "BACKENDS-bit-identical")
@FORMATS
@pytest.mark.parametrize(
    "sizes", [[1], [4096, 4097], [131_072], [131_073, 5, 0, 400_000], [1000] * 300], ids=lambda sizes: f"{len(sizes)}x{sizes[0]}"
)
def test_norms_of_blocks_are_those_of_whole_arrays(dtype, sizes):
    """
    Within two units in the last place, also where every square is rounded in the same direction.

    In float32 squares that underflow are lost, and those that overflow are infinite.
    """
    generator, kind = torch.Generator().manual_seed(0), getattr(torch, dtype)
    drawn = [torch.randn(size, generator=generator).to(kind) for size in sizes]
    for tree in (drawn, *([torch.full((size,), value).to(kind) for size in sizes] for value in (1.1, 1e-30, 1e30))):
        for got, wanted in (
            (ampscale.global_norm(tree), norms.global_norm(tree)),
            (ampscale.unscale_check_and_norm(tree, 1.0)[2], norms.global_norm(tree)),
            (ampscale.local_norms(tree), norms.local_norms(tree)),
        ):
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            assert ((got == wanted) | (abs(got - wanted) <= 2 * (torch.nextafter(wanted, wanted + 1) - wanted))).all()


@pytest.mark.clause("NORMS-accumulation-dtype")
@given(st.lists(st.floats(0, float(LARGEST["float32"]), width=32), min_size=1, max_size=50))
def test_sums_are_added_in_the_order_of_the_tree(values):
    """One after the other, each rounded to the dtype."""
    total = np.float32(0)
    with np.errstate(over="ignore"):
        for value in values:
            total += np.float32(value)
    assert alike(kernels.sum_in_order(torch.tensor(values)).numpy(), total)
