"""
One-pass kernels for torch's CUDA tensors: results equal the core's definition on NumPy bit for bit, and norms within 2 ulp.

The tests run with the kernels compiled for the host, where tensors on the CPU count as CUDA tensors, and again on a device.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import pytest
from backends.cupy import host_cupy
from backends.platforms import device, host
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import close, load
from strategies import DTYPES, any_arrays, bit_patterns, same, scales, trees

import ampscale
from ampscale.backends import cupy as package
from ampscale.backends.cpu import fused
from ampscale.backends.cpu.fused import KernelChoice
from ampscale.core import norms, overflow, scaling, statistics
from ampscale.core.trees import leaves, map_leaves

torch = pytest.importorskip("torch", reason="needs torch")
from ampscale.backends.torch import backend, compiled, cuda_launches, kernels  # noqa: E402
from ampscale.frameworks.torch import optimizer_step  # noqa: E402

LIBRARY = load("torch")
widths = st.sampled_from([None, "float32"])
lists = trees(any_arrays).filter(leaves)
STREAM = object()


class Platform(NamedTuple):
    """Device of the tensors, and the list of its operations; None if they are not recorded."""

    device: str
    operations: list[str] | None

    def put(self, tree: Any) -> Any:
        return map_leaves(lambda array: LIBRARY.put(array).to(self.device), tree)

    @contextmanager
    def launching(self, calls: int) -> Iterator[None]:
        """Check that the block has *calls* calls that use the kernels: each of them fills one flag."""
        before = len(self.operations or [])
        yield
        assert self.operations is None or self.operations[before:].count("fill") == calls

    def get(self, tree: Any) -> Any:
        return map_leaves(lambda tensor: LIBRARY.get(tensor.cpu()), tree)


@contextmanager
def on_host():
    """Replace what distinguishes CUDA tensors from those on the CPU, and CuPy by its stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_launches, "_is_cuda", lambda _: True)
        patch.setattr(cuda_launches, "kernel_choice_host", lambda: KernelChoice(host().kernels, ""))
        patch.setattr(kernels, "value_host", lambda scale: None if isinstance(scale, torch.Tensor) else float(scale))
        patch.setattr(compiled, "run_host", lambda *_, **__: None)
        patch.setattr(backend, "_plain_norm", lambda _: None)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        patch.setattr(torch.cuda, "current_stream", lambda _: STREAM)
        yield Platform("cpu", host_cupy.operations)


@pytest.fixture(scope="module", params=["host", pytest.param("device", marks=pytest.mark.device)])
def platform(request):
    """Return the host, then the device."""
    if request.param == "host":
        with on_host() as platform:
            yield platform
        return
    device()
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    choice = cuda_launches.kernel_choice_host()
    if choice.module is None:
        pytest.skip(choice.reason)
    yield Platform("cuda", None)


@pytest.fixture
def operations():
    """Return the list of the operations of this test on the host, which is empty at first."""
    with on_host() as platform:
        platform.operations.clear()
        yield platform.operations


# The next two tests come first, since the fixture `platform` chooses kernels until the end of the module.


def test_the_choice_of_the_kernels_has_a_reason(monkeypatch):
    """CuPy must be installed and be able to compile. AMPSCALE_KERNELS=numpy disables all compiled kernels."""
    choose = cuda_launches.kernel_choice_host.__wrapped__
    monkeypatch.setattr(torch.version, "cuda", None)
    assert choose() == (None, "torch is not built for CUDA")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, f"{package.__name__}.launches", raising=False)
    monkeypatch.delattr(package, "launches", raising=False)
    assert choose().reason.startswith("CuPy cannot be used: ")
    monkeypatch.setattr(package, "launches", host().kernels, raising=False)
    assert choose() == (host().kernels, "CuPy is installed")
    monkeypatch.setattr(host().kernels, "_kernel", mock.Mock(side_effect=RuntimeError("no compiler")))
    assert choose() == (None, "CuPy cannot be used: no compiler")
    monkeypatch.setenv("AMPSCALE_KERNELS", "numpy")
    assert choose() == (None, "AMPSCALE_KERNELS is numpy")


def test_tensors_on_the_cpu_do_not_import_cupy(monkeypatch):
    """The choice is made for the first CUDA tensor."""
    monkeypatch.setattr(fused, "kernel_choice_host", lambda: KernelChoice(None, ""))
    monkeypatch.setattr(cuda_launches, "kernel_choice_host", mock.Mock(side_effect=AssertionError))
    tree = [torch.ones(3)]
    ampscale.unscale_check_and_norm(tree, torch.tensor(3.0), out=tree)
    assert ampscale.all_finite(ampscale.unscale(tree, 3.0))
    assert ampscale.global_norm(tree) > 0


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-fused", "OVERFLOW-all-finite", "NORMS-fused", "NORMS-global")
@settings(max_examples=25)
@given(lists, scales, widths)
def test_functions_equal_their_definitions(platform, tree, factor, dtype):
    """Values have random bits, and some arrays are empty or of shape (). The arguments are unchanged."""
    inputs = platform.put(tree)
    *expected, norm = norms.unscale_check_and_norm(tree, factor, dtype=dtype)
    with platform.launching(6):
        *actual, actual_norm = platform.get(ampscale.unscale_check_and_norm(inputs, factor, dtype=dtype))
        assert same(actual, expected)
        assert close(actual_norm, norm)
        assert same(platform.get(ampscale.unscale_and_check(inputs, factor, dtype=dtype)), expected)
        assert same(platform.get(ampscale.unscale(inputs, factor, dtype)), expected[0])
        assert same(platform.get(ampscale.all_finite(inputs)), overflow.all_finite(tree))
        assert close(platform.get(ampscale.global_norm(inputs)), norms.global_norm(tree))
        assert same(platform.get(ampscale.measure(inputs)), statistics.statistics(tree))
    assert same(platform.get(inputs), tree)


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-in-place", "NORMS-fused")
@settings(max_examples=25)
@given(lists, scales)
def test_unscaling_writes_into_out(platform, tree, factor):
    """*out* is another tree, which contained NaNs before, or the tree itself."""
    *expected, norm = norms.unscale_check_and_norm(tree, factor)
    inputs = platform.put(tree)
    out = map_leaves(lambda leaf: torch.full_like(leaf, torch.nan), platform.put(tree))
    with platform.launching(2):
        returned, finite = ampscale.unscale_and_check(inputs, factor, out=out)
        assert returned is out
        assert same(platform.get((out, finite)), expected)
        assert same(platform.get(inputs), tree)
        _, finite, actual_norm = ampscale.unscale_check_and_norm(inputs, factor, out=inputs)
    assert same(platform.get((inputs, finite)), expected)
    assert close(platform.get(actual_norm), norm)


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-unscale-divides", "SCALING-reciprocal", "SCALING-scale-type")
@pytest.mark.parametrize("name", DTYPES)
def test_scales_can_be_numbers_or_tensors(platform, name):
    """Some reciprocals are inexact or subnormal. Values have all exponents of their format."""
    values = bit_patterns(name)[:: 97 if platform.operations else 1]
    for number in (3, 1.0, 2.0**16, 2.0**126, 2.0**127, 2.0**-149, 0.7001953125):
        expected = scaling.unscale(values, number)
        for dtype, shape in ((torch.float32, ()), (torch.float32, (1,)), (torch.float64, ())):
            tensor = torch.full(shape, number, dtype=dtype, device=platform.device)
            for scale in (number, tensor):
                with platform.launching(1):
                    assert same(platform.get(ampscale.unscale(platform.put(values), scale)), expected), scale


def test_dense_tensors_are_processed_in_any_layout(operations):
    """None of the three layouts has gaps. New tensors have the layouts of their sources."""
    values = torch.arange(240.0)
    images = values.reshape(2, 5, 4, 6).contiguous(memory_format=torch.channels_last)
    tree = [values, values.reshape(-1, 4).t(), images]
    expected = scaling.unscale(tree, 3.0)
    for result in (ampscale.unscale(tree, 3.0), ampscale.unscale_and_check(map_leaves(torch.clone, tree), 3.0)[0]):
        assert LIBRARY.same(result, expected)
        assert [leaf.stride() for leaf in result] == [leaf.stride() for leaf in tree]
    assert operations.count("pass_float32_float32") == 2


@pytest.mark.clause("OVERFLOW-fused", "OVERFLOW-in-place", "NORMS-fused")
def test_a_call_takes_one_launch_for_each_dtype(operations):
    """The norm takes two more, and statistics one. The stream and the memory are torch's, and autograd detects the write."""
    cuda = host().library.cuda
    gradients = [torch.ones(5, dtype=dtype) for dtype in (torch.float32, torch.float16) * 50]
    gradients[0].requires_grad_()
    passes = ["pass_float16_float16", "pass_float32_float32"]
    stream = mock.patch.object(cuda.Stream, "from_external", wraps=cuda.Stream.from_external)
    with torch.no_grad(), stream as streams, mock.patch.object(torch, "empty", wraps=torch.empty) as empty:
        ampscale.unscale_and_check(gradients, torch.tensor(3.0), out=gradients)
        assert operations == ["copy", "fill", *passes]
        ampscale.unscale_check_and_norm(gradients, torch.tensor(3.0), out=gradients)
        ampscale.all_finite(gradients)
        ampscale.unscale_check_and_measure(gradients, torch.tensor(3.0), out=gradients)
    measures = ["measure_float16_float16", "measure_float32_float32", "statistics"]
    norm = ["square_sums_float32", "norms_float32"]
    assert operations[4:] == ["fill", *passes, *norm, "copy", "fill", *passes, "fill", *measures]
    assert [call.args for call in streams.call_args_list] == [(STREAM,)] * 4
    assert empty.call_count == 13  # two tables, four flags, the partial sums, sums and results of the norm, and the statistics
    assert [gradient._version for gradient in gradients] == [3] * 100


def overlapping(tensor):
    return [tensor, tensor[1:]]


OTHERS = {
    "gaps": lambda: ([torch.tensor([1.0, torch.nan] * 3)[::2]], None),
    "gradients": lambda: ([torch.ones(6, requires_grad=True)], None),
    "no memory": lambda: ([torch._efficientzerotensor(3)], None),
    "complex numbers": lambda: ([torch.ones(2, dtype=torch.complex64)], None),
    "shared memory": lambda: (overlapping(torch.ones(9)), overlapping(torch.zeros(9))),
    "another layout": lambda: ([torch.ones(3, 4)], [torch.zeros(4, 3).t()]),
}


@pytest.mark.clause("BACKENDS-bit-identical")
@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_tensors_are_processed_by_torch(operations, make):
    """The kernels write to none of these tensors. If only the targets are not supported, `all_finite` uses the kernels."""
    tree, out = make()
    unscaled, finite = ampscale.unscale_and_check(tree, torch.tensor(3.0), out=out)
    assert LIBRARY.same(unscaled, scaling.unscale(make()[0], 3.0))
    assert finite
    assert ampscale.all_finite(make()[0])
    assert operations.count("pass_float32_float32") == (1 if out is not None else 0)


PREVENTED = {
    "captured": (torch.cuda, "is_current_stream_capturing", lambda: True),
    "without CuPy": (cuda_launches, "kernel_choice_host", lambda: KernelChoice(None, "")),
    "transformed": (torch._C, "_are_functorch_transforms_active", lambda: True),
}


@pytest.mark.clause("BACKENDS-bit-identical")
@pytest.mark.parametrize("replacement", PREVENTED.values(), ids=PREVENTED)
def test_torch_processes_all_tensors_if_the_kernels_cannot_be_used(operations, monkeypatch, replacement):
    """No kernel can be compiled during the capture of a CUDA graph, and tensors in a torch.func transform have no addresses."""
    tree = [torch.arange(12.0).reshape(3, 4)]
    expected = *norms.unscale_check_and_norm(tree, 3.0), overflow.all_finite(tree), norms.global_norm(tree)
    monkeypatch.setattr(*replacement)
    actual = *ampscale.unscale_check_and_norm(tree, 3.0), ampscale.all_finite(tree), ampscale.global_norm(tree)
    assert LIBRARY.same(actual, expected)
    assert operations == []


@pytest.mark.clause("TORCH-unscale")
@pytest.mark.parametrize(("least", "launched"), [(0.0, True), (0.5, True), (1.0, False)])
def test_the_scaler_uses_the_kernels_unless_torch_takes_one_pass(operations, least, launched):
    """The kernel of torch takes one pass if the scale is known to be a power of two of at least 1."""
    gradients = [torch.tensor([3.0, torch.inf]), torch.ones(2)]
    scale = torch.tensor(2.0 if least else 3.0)
    found_inf = optimizer_step._unscale_group(gradients, scale, least)
    assert (found_inf.dtype, found_inf.item()) == (torch.float32, 1.0)
    assert gradients[1].tolist() == (torch.ones(2) / scale).tolist()
    assert bool(operations) is launched
