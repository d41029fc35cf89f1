"""JAX on a GPU: ampscale's verb in a jitted function, and what people write with jax.numpy, jitted as well."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gpu_rows import NORM, UNSCALE, Bench, Row, block, lengths
from shapes import Shape

import ampscale

WAY, PLAIN = "ampscale, jitted", "jax.numpy, jitted"
MOST_ARRAYS = 2000  # of one program: what XLA's compiler takes grows faster than their number
NO_KERNELS = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}


def device() -> str | None:
    """The device's name."""
    return next((device.device_kind for device in jax.devices() if device.platform == "gpu"), None)


def memory() -> int:
    """How many bytes JAX would take there at most."""
    return int(jax.devices()[0].memory_stats()["bytes_limit"])


def rows(bench: Bench) -> Iterator[Row]:
    """All of them; those of many arrays last, and with the norm after all others, since XLA compiles them for long."""
    bench.shapes = sorted(bench.shapes, key=lambda pair: len(pair[0].arrays))
    copies: dict[tuple[str, str], float] = {}
    for verb in (UNSCALE, NORM):
        yield from bench.each(lambda shape, dtype, verb=verb: measured(bench, shape, dtype, verb, copies))


def measured(bench: Bench, shape: Shape, dtype: str, verb: str, copies: dict[tuple[str, str], float]) -> Iterator[Row]:
    """The two ways, by a scale of 1. The place of the copy has a negation, which reads and writes as many bytes."""
    if len(shape.arrays) > MOST_ARRAYS:
        raise ValueError(f"XLA takes minutes to compile a program of {len(shape.arrays):,} arrays")
    numbers, one = block(dtype), jnp.ones((), jnp.float32)
    host = np.resize(numbers, max(lengths(shape)))
    tree = [jax.device_put(host[:length]) for length in lengths(shape)]
    key = shape.name, dtype
    if key not in copies:
        copy = timed(bench, *compiled(jnp.negative, jax.device_put(np.resize(numbers, shape.values))))
        copies[key] = copy["ms"]
        yield bench.row(shape, dtype, "copy", "negation", copy, copies[key], bytes=sum(array.nbytes for array in tree))
    for way, function in {WAY: getattr(ampscale, verb), PLAIN: PLAINLY[verb]}.items():
        program, *arguments = compiled(function, tree, one)
        timing = timed(bench, program, *arguments)
        yield bench.row(shape, dtype, verb, way, timing, copies[key], operations=operations(program))


def compiled(function: Callable[..., object], *arguments: Any) -> tuple[Any, ...]:
    """The program of a call, and its arguments. The function is wrapped, since JAX knows those that it has seen."""
    return jax.jit(lambda *given: function(*given)).lower(*arguments).compile(), *arguments


def timed(bench: Bench, function: Callable[..., object], *arguments: object) -> dict[str, Any]:
    """The time of a call; all results are waited for together."""
    results: list[object] = []

    def run() -> None:
        results[:] = [function(*arguments)]

    bench.wait = lambda: jax.block_until_ready(results)
    return bench.ms(run)


def unscaled(tree: list[jax.Array], scale: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """As it is written by hand."""
    found = jax.tree.map(lambda leaf: (leaf / scale).astype(leaf.dtype), tree)
    return found, jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in found]))


def unscaled_with_norm(tree: list[jax.Array], scale: jax.Array) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """As it is written by hand."""
    found, finite = unscaled(tree, scale)
    return found, finite, jnp.sqrt(sum(jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in found))


PLAINLY = {UNSCALE: unscaled, NORM: unscaled_with_norm}


def operations(program: Any) -> dict[str, int]:
    """How many programs a call executes, and of how many kernels they are made: what XLA has left of them in the end."""
    modules, kernels = program.runtime_executable().hlo_modules(), 0
    for module in modules:
        entry = re.search(r"^ENTRY .*?\{\n(.*?)^\}", module.to_string(), re.MULTILINE | re.DOTALL)
        names = re.findall(r"^ .* = .*?[\])}] ([a-z][a-z0-9-]*)\(", entry[1] if entry else "", re.MULTILINE)
        kernels += sum(name not in NO_KERNELS for name in names)
    return {"programs": len(modules), "kernels": kernels}
