"""Conversion between bits and arrays of each library: it is lossless and imports only libraries that are named."""

import math
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from ampscale_conformance.model import arrays
from ampscale_conformance.model.adapter import ARRAYS, Unsupported
from ampscale_conformance.model.arrays import from_bits, to_bits
from ampscale_conformance.model.bits import DIGITS, Bits

jax = pytest.importorskip("jax", reason="needs JAX")
torch = pytest.importorskip("torch", reason="needs torch")

INSTALLED = [library for library in ARRAYS if find_spec(library) and library != "cupy"]
SPECIAL = {
    "bool": (0, 1, 1, 0),
    "int32": (0, 1, 0x7FFFFFFF, 0x80000000),
    "int64": (0, 1, 2**63 - 1, 2**63),
    "float32": (0x80000000, 0x00000001, 0x7F800001, 0xFFC12345),
    "float64": (2**63, 1, 0x7FF0000000000001, 0xFFF8000000012345),
    "complex64": (0x3F800000_80000000, 0x7F800001_FF800001, 0xFFC12345_00000001, 0x7F800000_FF800000),
    "complex128": (2**127, 1, 0x7FF0000000000001 << 64 | 0xFFF8000000012345, 0x3FF0000000000000 << 64),
}
SIXTEEN_BIT = ("float16", "bfloat16")


@pytest.fixture(autouse=True)
def enable_x64():
    """Enable JAX's 64-bit dtypes."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=[*INSTALLED, pytest.param("cupy", marks=pytest.mark.device)])
def library(request):
    """Return the name of an installed library; CuPy requires a GPU."""
    if request.param == "cupy" and not pytest.importorskip("cupy").cuda.is_available():
        pytest.skip("needs a GPU")
    return request.param


def type_of_arrays(library):
    """Return the array type of a library that is always installed, otherwise object."""
    return {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array}.get(library, object)


@pytest.mark.parametrize("dtype", SIXTEEN_BIT)
def test_all_16_bit_patterns_round_trip(library, dtype):
    """The patterns include every NaN and subnormal."""
    bits = Bits(dtype, (256, 256), tuple(range(2**16)))
    array = from_bits(bits, library)
    assert isinstance(array, type_of_arrays(library))
    assert str(array.dtype).rpartition(".")[2] == dtype
    assert to_bits(array) == bits


def test_special_patterns_round_trip(library):
    """Patterns are zeros, subnormals, NaNs with payloads, the limits of integers, and complex numbers with such components."""
    for dtype, patterns in SPECIAL.items():
        bits = Bits(dtype, (2, 2), patterns)
        assert to_bits(from_bits(bits, library)) == bits


def test_every_shape_round_trips(library):
    """Shapes include () and those of empty arrays."""
    for dtype, shape in product(DIGITS, [(), (1,), (0,), (0, 3), (2, 1, 3)]):
        bits = Bits(dtype, shape, (1,) * math.prod(shape))
        array = from_bits(bits, library)
        assert (tuple(array.shape), to_bits(array)) == (shape, bits)


def test_a_pattern_decodes_to_its_number(library):
    """The real component of a complex number comes first."""
    for dtype, pattern, number in (
        ("bool", 1, True),
        ("int32", 0xFFFFFFFE, -2),
        ("int64", 2**64 - 3, -3),
        ("float16", 0x3E00, 1.5),
        ("bfloat16", 0x3FC0, 1.5),
        ("float32", 0x3FC00000, 1.5),
        ("float64", 0x3FF8000000000000, 1.5),
        ("complex64", 0x3FC00000_C0200000, 1.5 - 2.5j),
        ("complex128", 0x3FF8000000000000 << 64 | 0xC004000000000000, 1.5 - 2.5j),
    ):
        assert from_bits(Bits(dtype, (1,), (pattern,)), library)[0].item() == number, dtype


def test_arrays_are_new_and_writable(library):
    """Writing to an array of NumPy, torch or CuPy does not change the next array."""
    bits = Bits("float32", (2,), (0x3F800000, 0x40000000))
    first = from_bits(bits, library)
    if library in ("numpy", "torch", "cupy"):
        first[:] = 0
    assert to_bits(from_bits(bits, library)) == bits


# --- results of an implementation ---


def test_numpy_arrays_of_any_layout_are_read():
    """Scalars, strided, Fortran-ordered, broadcast and conjugated arrays are read in row-major order."""
    for array in (
        np.float32(1.5),
        np.bool_(True),
        np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3)),
        np.arange(12, dtype="f4").reshape(3, 4)[::2, ::-1],
        np.broadcast_to(np.float64(2), (2, 2)),
        np.arange(3, dtype=ml_dtypes.bfloat16)[::-1],
        (np.arange(4) + 1j).astype("c8").conj()[::2],
    ):
        bits = to_bits(array)
        assert (bits.dtype, bits.shape) == (str(array.dtype), array.shape)
        assert to_bits(from_bits(bits, "numpy")) == bits
        assert from_bits(bits, "numpy").tolist() == array.tolist()


def test_torch_tensors_in_any_state_are_read():
    """Tensors may be strided or differentiable, or have a lazy conjugate or negative bit."""
    for tensor, values in (
        (torch.arange(6.0).reshape(2, 3).T, [[0, 3], [1, 4], [2, 5]]),
        (torch.tensor([1.0, 2.0], requires_grad=True) * 2, [2, 4]),
        (torch.nn.Parameter(torch.tensor([3.0])), [3]),
        (torch.tensor([1 + 2j]).conj(), [1 - 2j]),
        (torch.tensor([1 + 2j]).conj().imag, [-2]),
        (torch.arange(6).to(torch.bfloat16)[::2], [0, 2, 4]),
        (torch.tensor(1.5), 1.5),
    ):
        assert from_bits(to_bits(tensor), "numpy").tolist() == values


def test_jax_arrays_are_read_but_tracers_are_rejected():
    """Arrays on a device are read; within jit there are no values yet."""
    assert to_bits(jax.device_put(np.float32([1.5]), jax.devices()[0])) == Bits("float32", (1,), (0x3FC00000,))
    traced = []

    def step(x):
        with pytest.raises(jax.errors.TracerArrayConversionError):
            to_bits(x)
        traced.append(x)
        return x

    jax.jit(step)(np.float32([1.5]))
    assert len(traced) == 1


def test_unsupported_arrays_raise_a_type_error():
    """The message contains the value, or the dtype."""
    for value, message in (
        (1.5, "expected an array, got 1.5 of type float"),
        (None, "expected an array, got None of type NoneType"),
        ([np.ones(1)], r"expected an array, got \[array\(\[1.\]\)\] of type list"),
        (np.ones(1, "i2"), "got dtype int16"),
        (np.array(["a"]), "got dtype <U1"),
        (np.array([None]), "got dtype object"),
        (np.ones(1, ">f4"), "got dtype >f4"),
        (np.ones(1, ml_dtypes.float8_e5m2), "got dtype float8_e5m2"),
        (torch.ones(1, dtype=torch.int8), "got dtype int8"),
        (SimpleNamespace(dtype="float32", shape=(1,)), "got dtype object"),
    ):
        with pytest.raises(TypeError, match=message):
            to_bits(value)


# --- missing dtypes and imports ---


def test_a_missing_dtype_is_unsupported():
    """Without enable_x64, JAX would create narrower arrays and warn."""
    for dtype, narrower in (("float64", "float32"), ("int64", "int32"), ("complex128", "complex64")):
        with jax.enable_x64(False), pytest.raises(Unsupported, match=f"^jax creates {narrower} instead of {dtype}$"):
            from_bits(Bits(dtype, (1,), (0,)), "jax")


def test_bfloat16_on_numpy_requires_ml_dtypes(monkeypatch):
    """Without the package, the cases are unsupported."""

    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(arrays, "import_module", missing)
    with pytest.raises(Unsupported, match="bfloat16 on NumPy requires the package ml_dtypes"):
        from_bits(Bits("bfloat16", (1,), (0,)), "numpy")
    assert from_bits(Bits("float16", (1,), (0x3C00,)), "numpy")[0] == 1


def test_conversion_for_numpy_imports_no_other_library():
    """None of the other known array libraries is imported, nor ml_dtypes."""
    program = (
        "import sys\n"
        "from ampscale_conformance.model.arrays import from_bits, to_bits\n"
        "from ampscale_conformance.model.bits import Bits\n"
        "to_bits(from_bits(Bits('float32', (1,), (0,)), 'numpy'))\n"
        f"print([name for name in {sorted(set(ARRAYS) - {'numpy'})} + ['ml_dtypes'] if name in sys.modules])\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"
