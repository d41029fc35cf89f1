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
ON_CPU = pytest.mark.skipif(jax.default_backend() != "cpu", reason="needs XLA's CPU code")
FORMATS = pytest.mark.parametrize("dtype", ["float32", "float64"])
TRANSFORMED = pytest.mark.parametrize("transformed", [lambda function: function, jax.jit, jax.vmap], ids=["eager", "jit", "vmap"])
SCALES = [2.0**-149, 2.0**-126 / 3, 0.1, 1.0, 3.0, 10.0, 2.0**16, 1.9 * 2.0**127]


def eager(operation, left, right):
    """Outside of any transformation."""
    return operation(left, right)


def closed_over(operation, left, right):
    """Compiled, with a right operand that the compiler knows."""
    return jax.jit(lambda left: operation(left, right))(left)


def mapped(operation, left, right):
    """Row by row, a single right operand being everyone's."""
    return jax.vmap(operation, (0, 0 if right.shape else None))(left, right)


def scanned(operation, left, right):
    """In a hundred steps of a loop."""
    lefts = left.reshape(100, -1)
    rights = jnp.broadcast_to(right, left.shape).reshape(lefts.shape)
    return jax.lax.scan(lambda carry, row: (carry, operation(*row)), 0, (lefts, rights))[1].reshape(-1)


RUNS = pytest.mark.parametrize("run", [eager, closed_over, mapped, scanned])


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


def check(run, name, left, right):
    """The operation has NumPy's bits."""
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(left, right)
    got = run(getattr(exact, name), jnp.asarray(left), jnp.asarray(right))
    assert alike(np.asarray(got), wanted)


@pytest.mark.clause("SCALING-scale", "SCALING-unscale-divides")
@RUNS
@OPERATIONS
@FORMATS
def test_results_are_numpys(run, name, dtype):
    """
    Every value by one of its own, with subnormal numbers among the operands and the results.

    All of them by one number, which a compiler would like to take the reciprocal of.
    """
    check(run, name, numbers(dtype, seed=0), scales(dtype, seed=1))
    for scale in SCALES:
        check(run, name, numbers(dtype, seed=3), np.asarray(scale, dtype))


@pytest.mark.clause("SCALING-scale", "SCALING-unscale-divides")
@pytest.mark.parametrize("run", [eager, closed_over])
@OPERATIONS
def test_float32_needs_no_64_bits_to_be_switched_on(run, name):
    """Without jax_enable_x64 the bits are the same."""
    with jax.enable_x64(False):
        check(run, name, numbers("float32", seed=0), scales("float32", seed=1))
        check(run, name, numbers("float32", seed=0), np.asarray(0.1, np.float32))


@RUNS
@OPERATIONS
def test_a_tie_between_subnormal_numbers_goes_to_the_even_one(run, name):
    """And what lies next to a tie, too near for float64 to tell them apart, goes where it is nearer."""
    left, right = ties(name)
    check(run, name, left, right)
    check(run, name, -left, right)


@ON_CPU
@OPERATIONS
@FORMATS
def test_the_librarys_own_operations_are_not_numpys(name, dtype):
    """They take subnormal numbers for zero, in every tenth result and more: what is tested here is not so anyway."""
    left, right = numbers(dtype, seed=0), scales(dtype, seed=1)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(left, right)
    got = np.asarray(getattr(jnp, name)(left, right))
    assert np.mean((got != wanted) & ~np.isnan(wanted)) > 0.1


@ON_CPU
def test_the_librarys_own_division_by_a_constant_is_none():
    """Compiled, it multiplies by the reciprocal, which gives another number for every tenth value and more."""
    left = np.random.default_rng(4).uniform(1, 2, SIZE).astype(np.float32)
    got = closed_over(jnp.divide, jnp.asarray(left), jnp.float32(10))
    assert np.mean(np.asarray(got) != left / np.float32(10)) > 0.1
    check(closed_over, "divide", left, np.float32(10))


@TRANSFORMED
def test_float64_is_narrowed_to_the_nearest(transformed):
    """
    To subnormal float32 numbers too, to the even one from halfway, and up to the smallest normal one.

    Float32 is widened without a loss: zeros keep their sign.
    """
    random, unit = np.random.default_rng(6), 2.0**-149
    halves = (random.integers(0, 2**23, SIZE) + 0.5) * unit
    values = [
        random.choice([-1, 1], SIZE) * np.ldexp(random.uniform(1, 2, SIZE), random.integers(-155, 130, SIZE)),
        np.concatenate([halves, np.nextafter(halves, 0), np.nextafter(halves, 1), -halves]),
        numbers("float64", seed=7),
        np.asarray([2.0**-126 - unit / 2, 2.0**-126 - unit / 2 - 2.0**-190, unit / 2, -unit / 2, -0.0, 2.0**-1074]),
    ]
    with np.errstate(all="ignore"):
        for each in values:
            assert alike(np.asarray(transformed(exact.narrowed)(jnp.asarray(each))), each.astype(np.float32))
        narrow = numbers("float32", seed=5)
        assert alike(np.asarray(transformed(exact.widened)(jnp.asarray(narrow))), narrow.astype(np.float64))


@TRANSFORMED
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_librarys_own_conversions_of_16_bits_are_numpys(transformed, dtype):
    """All 65536 patterns of each format to float32, and float32 of all kinds to each: these are relied upon as they are."""
    values = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    with np.errstate(all="ignore"):
        wide = np.concatenate([numbers("float32", seed=8), values.astype(np.float32) * np.float32(1 + 2.0**-12)])
        for each, to in ((values, DTYPES["float32"]), (wide, DTYPES[dtype])):
            got = transformed(lambda array, to=to: array.astype(to))(jnp.asarray(each))
            assert alike(np.asarray(got), each.astype(to))


@OPERATIONS
@FORMATS
def test_derivatives_are_those_of_the_plain_operation(name, dtype):
    """
    In both operands, at zero and at subnormal numbers as elsewhere, forwards and backwards.

    A penalty on a gradient can be differentiated too.
    """
    operation = getattr(exact, name)
    values = np.asarray([0.0, -0.0, np.finfo(dtype).smallest_subnormal, -np.finfo(dtype).smallest_normal / 2, 1.0, -3.0], dtype)
    for derivative in (jax.grad(operation, (0, 1)), jax.jit(jax.jacfwd(operation, (0, 1)))):
        for left in values:
            got = derivative(jnp.asarray(left), jnp.asarray(8.0, dtype))
            wanted = (8.0, left) if name == "multiply" else (0.125, -left / 64)
            assert [each.dtype.name for each in got] == [dtype, dtype]
            np.testing.assert_allclose(got, wanted, atol=np.finfo(dtype).smallest_normal)
    bent = jax.grad(jax.grad(lambda value: operation(value**3, jnp.asarray(8, dtype))))
    assert bent(jnp.asarray(2, dtype)) == {"multiply": 96, "divide": 1.5}[name]
