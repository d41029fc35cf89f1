"""Rows of JAX on a GPU: ampscale's functions, and code that users write with jax.numpy, both jitted."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gpu_rows import NORM, UNSCALE, Bench, Row, block, lengths
from shapes import Shape

import ampscale

OURS, PLAIN = "ampscale, jitted", "jax.numpy, jitted"
MOST_ARRAYS, MOST_LENGTHS = 2000, 50  # in one program: XLA compiles a kernel for each length, and is slow for many arrays
NO_KERNELS = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}


def device() -> str | None:
    """Return the name of the GPU; None if there is none."""
    return next((device.device_kind for device in jax.devices() if device.platform == "gpu"), None)


def memory() -> int:
    """Return the largest number of bytes that JAX would allocate on the device."""
    return int(jax.devices()[0].memory_stats()["bytes_limit"])


def rows(bench: Bench) -> Iterator[Row]:
    """Yield all rows, those with few arrays and without the norm first. Shapes that XLA compiles for minutes are skipped."""
    for shape, dtype in bench.shapes:
        if is_slow(shape):
            yield {"skipped": f"{bench.library}, {shape.description}, {dtype}: XLA takes minutes to compile it"}
    bench.shapes = sorted((pair for pair in bench.shapes if not is_slow(pair[0])), key=lambda pair: len(pair[0].arrays))
    copy_times: dict[tuple[str, str], float] = {}
    for operation in (UNSCALE, NORM):
        yield from bench.each(lambda shape, dtype, operation=operation: measured(bench, shape, dtype, operation, copy_times))


def is_slow(shape: Shape) -> bool:
    """Return True if XLA would take minutes to compile a program for *shape*."""
    return len(shape.arrays) > MOST_ARRAYS or len(set(lengths(shape))) > MOST_LENGTHS


def measured(bench: Bench, shape: Shape, dtype: str, operation: str, copy_times: dict[tuple[str, str], float]) -> Iterator[Row]:
    """
    Yield the rows of ampscale and of jax.numpy, with a scale of 1; before the first ones of a shape and dtype, the row of a copy.

    The copy is a negation, which moves as many bytes. Its milliseconds are stored in *copy_times*.
    """
    one = jnp.ones((), jnp.float32)
    values = block(dtype)
    longest = np.resize(values, max(lengths(shape)))
    tree = [jax.device_put(longest[:length]) for length in lengths(shape)]
    key = shape.name, dtype
    if key not in copy_times:
        copy = timed(bench, *compiled(jnp.negative, jax.device_put(np.resize(values, shape.values))))
        copy_times[key] = copy["ms"]
        yield bench.row(shape, dtype, "copy", "negation", copy, copy_times[key], bytes=sum(array.nbytes for array in tree))
    for implementation, function in {OURS: getattr(ampscale, operation), PLAIN: PLAIN_FUNCTIONS[operation]}.items():
        program, *arguments = compiled(function, tree, one)
        timing = timed(bench, program, *arguments)
        yield bench.row(shape, dtype, operation, implementation, timing, copy_times[key], operations=operations(program))


def compiled(function: Callable[..., object], *arguments: Any) -> tuple[Any, ...]:
    """Return the compiled program of a call, and the arguments. The lambda is new in each call, so that JAX's cache lacks it."""
    return jax.jit(lambda *args: function(*args)).lower(*arguments).compile(), *arguments


def timed(bench: Bench, function: Callable[..., object], *arguments: object) -> dict[str, Any]:
    """Return the time of a call; a sample of several calls waits only for the last result."""
    results: list[object] = []

    def run() -> None:
        results[:] = [function(*arguments)]

    bench.wait = lambda: jax.block_until_ready(results)
    return bench.ms(run)


def unscaled(tree: list[jax.Array], scale: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """Unscale and check in plain jax.numpy, as users do."""
    gradients = jax.tree.map(lambda leaf: (leaf / scale).astype(leaf.dtype), tree)
    return gradients, jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in gradients]))


def unscaled_with_norm(tree: list[jax.Array], scale: jax.Array) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """Unscale, check and compute the norm in plain jax.numpy, as users do."""
    gradients, finite = unscaled(tree, scale)
    return gradients, finite, jnp.sqrt(sum(jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in gradients))


PLAIN_FUNCTIONS = {UNSCALE: unscaled, NORM: unscaled_with_norm}


def operations(program: Any) -> dict[str, int]:
    """Return the number of programs that a call executes, and the number of kernels in XLA's optimized programs."""
    modules = program.runtime_executable().hlo_modules()
    kernels = 0
    for module in modules:
        entry = re.search(r"^ENTRY .*?\{\n(.*?)^\}", module.to_string(), re.MULTILINE | re.DOTALL)
        names = re.findall(r"^ .* = .*?[\])}] ([a-z][a-z0-9-]*)\(", entry[1] if entry else "", re.MULTILINE)
        kernels += sum(name not in NO_KERNELS for name in names)
    return {"programs": len(modules), "kernels": kernels}
