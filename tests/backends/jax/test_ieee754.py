"""Products, quotients and conversions on JAX: bits equal to NumPy, including subnormal operands and results."""

import numpy as np
import pytest
from strategies import DTYPES, alike

jax = pytest.importorskip("jax", reason="needs jax")
ieee754 = pytest.importorskip("ampscale.backends.jax.ieee754")
jnp = jax.numpy

pytestmark = pytest.mark.usefixtures("default_device")
SIZE = 20_000
FRACTION_BITS = {"float32": 23, "float64": 52}
OPERATIONS = pytest.mark.parametrize("name", ["multiply", "divide"])
FORMATS = pytest.mark.parametrize("dtype", ["float32", "float64"])
SCALES = [2.0**-149, 2.0**-126 / 3, 0.1, 10.0, 2.0**16, 1.9 * 2.0**127]


def numbers(dtype, seed):
    """Return random bit patterns; a third are subnormal, and a third less than 2**60 times the smallest normal number."""
    rng = np.random.default_rng(seed)
    fraction = FRACTION_BITS[dtype]
    pattern = np.dtype(f"int{8 * DTYPES[dtype].itemsize}")
    any_bits = rng.integers(np.iinfo(pattern).min, np.iinfo(pattern).max, SIZE, pattern, endpoint=True)
    mask = np.iinfo(pattern).min | rng.choice([-1, (1 << fraction) - 1, (60 << fraction) - 1], SIZE).astype(pattern)
    special = [0.0, np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).smallest_normal, np.finfo(dtype).smallest_subnormal]
    values = (any_bits & mask).view(dtype)
    values[: 2 * len(special)] = [*special, *np.negative(special)]
    return values


def scales(dtype, seed):
    """Return positive numbers in the range of float32, in the precision of *dtype*."""
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.uniform(1, 2, SIZE), rng.integers(-126, 128, SIZE)).astype(dtype)
    values[::4] = np.ldexp(1.0, rng.integers(-149, 128, SIZE // 4)).astype(dtype)
    return values


def ties(name):
    """Return operands whose results are ties between two subnormal float64 numbers, or next to such a tie."""
    rng, unit = np.random.default_rng(2), np.finfo("float64").smallest_subnormal
    odd, factor = (2 * rng.integers(0, 2**20, SIZE) + 1 for _ in range(2))
    left, right = (odd, factor / 2) if name == "multiply" else (odd * factor, 2.0 * factor)
    toward = rng.choice([0.0, 1.0, np.inf], SIZE)
    return left * unit, np.where(toward == 1, right, np.nextafter(right, toward))


def check(name, left, right):
    """Assert that the results of an operation equal NumPy's, eager and compiled with a constant right operand."""
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(left, right)
    operation = getattr(ieee754, name)
    left, right = jnp.asarray(left), jnp.asarray(right)
    assert alike(np.asarray(operation(left, right)), expected)
    assert alike(np.asarray(jax.jit(lambda left: operation(left, right))(left)), expected)


@pytest.mark.clause("SCALING-scale", "SCALING-unscale-divides")
@OPERATIONS
@FORMATS
def test_results_equal_numpy(name, dtype):
    """Operands and results include subnormal numbers. Some divisors are scalars, whose reciprocal a compiler could use."""
    with jax.enable_x64(dtype == "float64"):
        check(name, numbers(dtype, seed=0), scales(dtype, seed=1))
        for scale in SCALES:
            check(name, numbers(dtype, seed=3), np.asarray(scale, dtype))


@OPERATIONS
def test_float64_operands_can_have_any_exponent(name):
    """Factors can be zero or subnormal, like a clipping coefficient; divisors are normal or infinite."""
    right = np.abs(numbers("float64", seed=4))
    check(name, numbers("float64", seed=10), right if name == "multiply" else np.maximum(right, 2.0**-1022))


@OPERATIONS
def test_ties_between_subnormal_numbers_go_to_even(name):
    """Results that float64 arithmetic cannot distinguish from ties are rounded correctly too."""
    left, right = ties(name)
    check(name, left, right)
    check(name, -left, right)


def test_float64_is_rounded_to_the_nearest_float32():
    """Results include subnormal numbers, ties and the smallest normal number. Widening is exact, and zeros keep their sign."""
    rng, unit = np.random.default_rng(6), 2.0**-149
    halves = (rng.integers(0, 2**23, SIZE) + 0.5) * unit
    any_exponent = rng.choice([-1, 1], SIZE) * np.ldexp(rng.uniform(1, 2, SIZE), rng.integers(-155, 130, SIZE))
    edges = [2.0**-126 - unit / 2, 2.0**-126 - unit / 2 - 2.0**-190, unit / 2, -unit / 2, -0.0, 2.0**-1074]
    neighbors = np.nextafter(halves, 0), np.nextafter(halves, 1)
    values = np.concatenate([any_exponent, halves, -halves, *neighbors, numbers("float64", seed=7), edges])
    narrow = numbers("float32", seed=5)
    with np.errstate(all="ignore"):
        for narrowed, widened in ((ieee754.narrowed, ieee754.widened), (jax.jit(ieee754.narrowed), jax.jit(ieee754.widened))):
            assert alike(np.asarray(narrowed(jnp.asarray(values))), values.astype(np.float32))
            assert alike(np.asarray(widened(jnp.asarray(narrow))), narrow.astype(np.float64))


@pytest.mark.clause("SCALING-unscale-divides")
def test_quotients_for_cuda_equal_numpy():
    """Subnormal numbers are left out, because XLA's CPU code flushes them to zero; infinities and NaNs are included."""

    def is_subnormal(values):
        return (values != 0) & (np.abs(values) < 2.0**-126)

    left = numbers("float32", seed=8)
    quotient = jax.jit(ieee754._cuda_quotient)
    for right in (*scales("float32", seed=9)[1:64], np.float32(np.inf), np.float32(np.nan)):
        with np.errstate(all="ignore"):
            expected = left / right
        indices = np.flatnonzero(~is_subnormal(left) & ~is_subnormal(right) & ~is_subnormal(expected))
        assert alike(np.asarray(quotient(jnp.asarray(left), jnp.asarray(right)))[indices], expected[indices])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_opaque_bits_differ_in_one_nan(dtype):
    """The pattern 0x7FFF, a NaN, becomes another NaN. `_opaque` is used on devices other than CPUs."""
    bits = np.arange(2**16, dtype=np.uint16)
    opaque = np.asarray(jax.jit(ieee754._opaque)(jnp.asarray(bits.view(DTYPES[dtype])))).view(np.uint16)
    assert np.flatnonzero(opaque != bits).tolist() == [0x7FFF]
    assert opaque[0x7FFF] == 0x7FFE


@pytest.mark.parametrize(("name", "dtype"), [("multiply", "float64"), ("divide", "float32")])
def test_derivatives_equal_those_of_the_plain_operation(name, dtype):
    """Forward and reverse mode are tested for both operands, even at zero and subnormal numbers, and one second derivative."""
    operation = getattr(ieee754, name)
    values = np.asarray([0.0, -0.0, np.finfo(dtype).smallest_subnormal, -np.finfo(dtype).smallest_normal / 2, 1.0, -3.0], dtype)
    for derivative in (jax.jit(jax.grad(operation, (0, 1))), jax.jit(jax.jacfwd(operation, (0, 1)))):
        for left in values:
            gradients = derivative(jnp.asarray(left), jnp.asarray(8.0, dtype))
            expected = (8.0, left) if name == "multiply" else (0.125, -left / 64)
            assert [gradient.dtype.name for gradient in gradients] == [dtype, dtype]
            np.testing.assert_allclose(gradients, expected, atol=np.finfo(dtype).smallest_normal)
    second_derivative = jax.jit(jax.grad(jax.grad(lambda value: operation(value**3, jnp.asarray(8, dtype)))))
    assert second_derivative(jnp.asarray(2, dtype)) == {"multiply": 96, "divide": 1.5}[name]
