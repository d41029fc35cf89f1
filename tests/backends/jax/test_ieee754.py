"""JAX's products, quotients and conversions have NumPy's bits: subnormal numbers in and out, however they are run."""

import numpy as np
import pytest
from strategies import DTYPES, alike

jax = pytest.importorskip("jax", reason="needs jax")
exact = pytest.importorskip("ampscale.backends.jax.ieee754")
jnp = jax.numpy

SIZE = 20_000
FRACTION_BITS = {"float32": 23, "float64": 52}
OPERATIONS = pytest.mark.parametrize("name", ["multiply", "divide"])
FORMATS = pytest.mark.parametrize("dtype", ["float32", "float64"])
SCALES = [2.0**-149, 2.0**-126 / 3, 0.1, 10.0, 2.0**16, 1.9 * 2.0**127]


def closed_over(operation, left, right):
    """Compiled, with a right operand that the compiler knows."""
    return jax.jit(lambda left: operation(left, right))(left)


def numbers(dtype, seed):
    """Numbers of any bit pattern; a third of them subnormal, and a third of them no more than 2**60 times as large."""
    random, fraction = np.random.default_rng(seed), FRACTION_BITS[dtype]
    pattern = np.dtype(f"int{8 * DTYPES[dtype].itemsize}")
    any_bits = random.integers(np.iinfo(pattern).min, np.iinfo(pattern).max, SIZE, pattern, endpoint=True)
    kept = np.iinfo(pattern).min | random.choice([-1, (1 << fraction) - 1, (60 << fraction) - 1], SIZE).astype(pattern)
    special = [0.0, np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).smallest_normal, np.finfo(dtype).smallest_subnormal]
    values = (any_bits & kept).view(dtype)
    values[: 2 * len(special)] = [*special, *np.negative(special)]
    return values


def scales(dtype, seed):
    """Positive numbers in the range of float32, with all the digits of their own format."""
    random = np.random.default_rng(seed)
    values = np.ldexp(random.uniform(1, 2, SIZE), random.integers(-126, 128, SIZE)).astype(dtype)
    values[::4] = np.ldexp(1.0, random.integers(-149, 128, SIZE // 4)).astype(dtype)
    return values


def ties(name):
    """Operands whose results lie halfway between two subnormal float64 numbers, or in its next neighbourhood."""
    random, unit = np.random.default_rng(2), np.finfo("float64").smallest_subnormal
    odd, factor = (2 * random.integers(0, 2**20, SIZE) + 1 for _ in range(2))
    left, right = (odd, factor / 2) if name == "multiply" else (odd * factor, 2.0 * factor)
    toward = random.choice([0.0, 1.0, np.inf], SIZE)
    return left * unit, np.where(toward == 1, right, np.nextafter(right, toward))


def check(name, left, right):
    """The operation has NumPy's bits, as it is and within a compiled function."""
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(left, right)
    operation, arrays = getattr(exact, name), (jnp.asarray(left), jnp.asarray(right))
    assert alike(np.asarray(operation(*arrays)), wanted)
    assert alike(np.asarray(closed_over(operation, *arrays)), wanted)


@pytest.mark.clause("SCALING-scale", "SCALING-unscale-divides")
@OPERATIONS
@FORMATS
def test_results_are_numpys(name, dtype):
    """
    Every value by one of its own, with subnormal numbers among the operands and the results.

    All of them by one number, which a compiler would like to take the reciprocal of.
    """
    with jax.enable_x64(dtype == "float64"):
        check(name, numbers(dtype, seed=0), scales(dtype, seed=1))
        for scale in SCALES:
            check(name, numbers(dtype, seed=3), np.asarray(scale, dtype))


@OPERATIONS
def test_a_tie_between_subnormal_numbers_goes_to_the_even_one(name):
    """And what lies next to a tie, too near for float64 to tell them apart, goes where it is nearer."""
    left, right = ties(name)
    check(name, left, right)
    check(name, -left, right)


def test_float64_is_narrowed_to_the_nearest():
    """
    To subnormal float32 numbers too, to the even one from halfway, and up to the smallest normal one.

    Float32 is widened without a loss: zeros keep their sign.
    """
    random, unit = np.random.default_rng(6), 2.0**-149
    halves = (random.integers(0, 2**23, SIZE) + 0.5) * unit
    any_exponent = random.choice([-1, 1], SIZE) * np.ldexp(random.uniform(1, 2, SIZE), random.integers(-155, 130, SIZE))
    edges = [2.0**-126 - unit / 2, 2.0**-126 - unit / 2 - 2.0**-190, unit / 2, -unit / 2, -0.0, 2.0**-1074]
    near = np.nextafter(halves, 0), np.nextafter(halves, 1)
    values = np.concatenate([any_exponent, halves, -halves, *near, numbers("float64", seed=7), edges])
    narrow = numbers("float32", seed=5)
    with np.errstate(all="ignore"):
        for narrowed, widened in ((exact.narrowed, exact.widened), (jax.jit(exact.narrowed), jax.jit(exact.widened))):
            assert alike(np.asarray(narrowed(jnp.asarray(values))), values.astype(np.float32))
            assert alike(np.asarray(widened(jnp.asarray(narrow))), narrow.astype(np.float64))


@pytest.mark.parametrize(("name", "dtype"), [("multiply", "float64"), ("divide", "float32")])
def test_derivatives_are_those_of_the_plain_operation(name, dtype):
    """
    In both operands, at zero and at subnormal numbers as elsewhere, forwards and backwards.

    A penalty on a gradient can be differentiated too.
    """
    operation = getattr(exact, name)
    values = np.asarray([0.0, -0.0, np.finfo(dtype).smallest_subnormal, -np.finfo(dtype).smallest_normal / 2, 1.0, -3.0], dtype)
    for derivative in (jax.jit(jax.grad(operation, (0, 1))), jax.jit(jax.jacfwd(operation, (0, 1)))):
        for left in values:
            got = derivative(jnp.asarray(left), jnp.asarray(8.0, dtype))
            wanted = (8.0, left) if name == "multiply" else (0.125, -left / 64)
            assert [each.dtype.name for each in got] == [dtype, dtype]
            np.testing.assert_allclose(got, wanted, atol=np.finfo(dtype).smallest_normal)
    bent = jax.jit(jax.grad(jax.grad(lambda value: operation(value**3, jnp.asarray(8, dtype)))))
    assert bent(jnp.asarray(2, dtype)) == {"multiply": 96, "divide": 1.5}[name]
