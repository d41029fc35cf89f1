"""
What the fused passes cost on a GPU, a library at a time: `python gpu_rows.py cupy rows`, or `device` for the device's name.

The floor of a row is the time in which the device copies as many bytes as the row must move, measured in the same process.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

REPEATS = 20
COUNT = 300  # arrays, whose sizes lie a hundredfold apart
LARGEST = 2**32  # bytes of them all, unless a sixteenth of the free memory is less
ALIGNMENT = 256  # bytes

Row = dict[str, Any]


def row(library: str, verb: str, arrays: str, ms: float, moved: int = 0, bandwidth: float = 0, **more: Any) -> Row:
    """What a verb cost; and over the floor, where it must move so many bytes and the device copies so many in a millisecond."""
    ratio = ms / (moved / bandwidth) if bandwidth else None
    return {"library": library, "verb": verb, "arrays": arrays, "ms": ms, "bytes": moved, "ratio": ratio, **more}


def lengths(total: int, itemsize: int) -> list[int]:
    """How many numbers each of the arrays has that together take up to *total* bytes: from few to a hundred times as many."""
    weights = [100 ** (index / (COUNT - 1)) for index in range(COUNT)]
    unit = (total - COUNT * ALIGNMENT) / sum(weights)
    return [int(weight * unit / itemsize) for weight in weights]


def places(sizes: list[int], itemsize: int) -> Iterator[tuple[int, int]]:
    """Where arrays of these sizes begin and end in one piece of memory, in bytes, each beginning aligned."""
    first = 0
    for size in sizes:
        yield first, first + size * itemsize
        first = -(-(first + size * itemsize) // ALIGNMENT) * ALIGNMENT


def cupy_device() -> str | None:
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode() if cupy.cuda.is_available() else None


def cupy_rows() -> list[Row]:
    import cupy

    total = min(LARGEST, cupy.cuda.runtime.memGetInfo()[0] // 16)
    first, second = cupy.empty(total, cupy.uint8), cupy.empty(total, cupy.uint8)
    bandwidth = 2 * total / cupy_ms(lambda: second.data.copy_from_device_async(first.data, total))
    rows = [row("cupy", "copy", f"1 x {total:,} bytes", 2 * total / bandwidth, 2 * total, bandwidth)]
    for dtype in ("float16", "float32"):
        rows += cupy_large(dtype, first, second, bandwidth)
    return rows + cupy_small()


def cupy_large(dtype: str, first: Any, second: Any, bandwidth: float) -> list[Row]:
    """The verbs on a few hundred large arrays, called from Python and replayed from a graph."""
    import cupy

    import ampscale

    sizes = lengths(first.size, cupy.dtype(dtype).itemsize)
    cut = [
        [memory[begin:end].view(dtype) for begin, end in places(sizes, cupy.dtype(dtype).itemsize)] for memory in (first, second)
    ]
    tree, out = cut
    for array in tree:
        array[...] = (cupy.arange(array.size, dtype=cupy.int32) % 1999 - 999) / 1000
    size = sum(array.nbytes for array in tree)
    verbs: dict[str, tuple[int, Callable[[], object]]] = {
        "all_finite": (size, lambda: ampscale.all_finite(tree)),
        "global_norm": (size, lambda: ampscale.global_norm(tree)),
        "unscale_and_check, in place, by 1": (2 * size, lambda: ampscale.unscale_and_check(tree, 1.0, out=tree)),
        "unscale_and_check, elsewhere, by 3": (2 * size, lambda: ampscale.unscale_and_check(tree, 3.0, out=out)),
        "unscale_check_and_norm, in place, by 1": (2 * size, lambda: ampscale.unscale_check_and_norm(tree, 1.0, out=tree)),
    }
    found = []
    for name, (moved, verb) in verbs.items():
        replayed = cupy_graph(verb)
        ms = cupy_ms(replayed)
        found.append(row("cupy", name, f"{COUNT} x {dtype}", ms, moved, bandwidth, eager_ms=cupy_ms(verb)))
    return found


def cupy_small() -> list[Row]:
    """Ten thousand small arrays: how many launches they take, and how long."""
    import cupy

    import ampscale
    from ampscale.backends import cupy_kernels

    tree = [cupy.full(100, 1.5, cupy.float32) for _ in range(10_000)]
    launched: list[str] = []
    launch = cupy_kernels._launch

    def noted(kernel: str, *arguments: Any) -> None:
        launched.append(kernel)
        launch(kernel, *arguments)

    def verb() -> object:
        return ampscale.unscale_and_check(tree, 1.0, out=tree)

    cupy_kernels._launch = noted
    verb()
    first, launched[:] = len(launched), []
    verb()
    cupy_kernels._launch = launch
    counted = {"launches_of_the_first_call": first, "launches": len(launched), "eager_ms": cupy_ms(verb)}
    return [row("cupy", "unscale_and_check, in place, by 1", "10,000 x 100 float32", cupy_ms(cupy_graph(verb)), **counted)]


def cupy_ms(function: Callable[[], object]) -> float:
    """The median time between two events around a call."""
    from cupy.cuda import Event, get_elapsed_time

    def once() -> float:
        before, after = Event(), Event()
        before.record()
        function()
        after.record()
        after.synchronize()
        return get_elapsed_time(before, after)

    return statistics.median([once() for _ in range(REPEATS + 3)][3:])


def cupy_graph(function: Callable[[], object]) -> Callable[[], object]:
    """What replays the launches of a function. The memory they use is their own, and kept as long as this is."""
    from cupy import cuda

    stream, pool = cuda.Stream(non_blocking=True), cuda.MemoryPool()
    cuda.Device().synchronize()
    with cuda.using_allocator(pool.malloc), stream:
        function()
        stream.begin_capture()
        function()
        graph = stream.end_capture()
        stream.synchronize()
    return lambda: (graph.launch(), pool)


def torch_device() -> str | None:
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def torch_rows() -> list[Row]:
    """The kernel that torch has for this, and the core's definition on torch's arrays."""
    import torch

    import ampscale

    total = min(LARGEST, torch.cuda.mem_get_info()[0] // 16)
    first, second = (torch.empty(total, dtype=torch.uint8, device="cuda") for _ in range(2))
    bandwidth = 2 * total / torch_ms(lambda: second.copy_(first))
    rows = [row("torch", "copy", f"1 x {total:,} bytes", 2 * total / bandwidth, 2 * total, bandwidth)]
    inverse, found = torch.ones((), device="cuda"), torch.zeros((), device="cuda")
    for dtype in (torch.float16, torch.float32):
        tree = [first[begin:end].view(dtype) for begin, end in places(lengths(total, dtype.itemsize), dtype.itemsize)]
        for array in tree:
            array.uniform_(-1, 1)
        moved = 2 * sum(array.nbytes for array in tree)
        verbs = {
            "_amp_foreach_non_finite_check_and_unscale_": lambda tree=tree: torch._amp_foreach_non_finite_check_and_unscale_(
                tree, found, inverse
            ),
            "unscale_and_check, in place, by 1": lambda tree=tree: ampscale.unscale_and_check(tree, 1.0, out=tree),
        }
        arrays = f"{COUNT} x {str(dtype).removeprefix('torch.')}"
        rows += [row("torch", name, arrays, torch_ms(verb), moved, bandwidth) for name, verb in verbs.items()]
    return rows


def torch_ms(function: Callable[[], object]) -> float:
    """The median time between two events around a call."""
    import torch

    def once() -> float:
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        function()
        after.record()
        after.synchronize()
        return before.elapsed_time(after)

    return statistics.median([once() for _ in range(REPEATS + 3)][3:])


def jax_device() -> str | None:
    import jax

    return next((device.device_kind for device in jax.devices() if device.platform == "gpu"), None)


def jax_rows() -> list[Row]:
    """The verb in one jitted function; the floor is a jitted negation, which reads and writes the same bytes."""
    import jax
    import jax.numpy as jnp

    import ampscale

    total = min(LARGEST, jax.devices()[0].memory_stats()["bytes_limit"] // 16)
    rows: list[Row] = []
    for dtype in (jnp.float16, jnp.float32):
        name, itemsize = jnp.dtype(dtype).name, jnp.dtype(dtype).itemsize
        bandwidth = 2 * total / jax_ms(jax.jit(jnp.negative), jnp.full(total // itemsize, 1.5, dtype))
        tree = [jnp.full(size, 1.5, dtype) for size in lengths(total, itemsize)]
        moved = 2 * sum(array.nbytes for array in tree)
        ms = jax_ms(jax.jit(ampscale.unscale_and_check), tree, jnp.float32(1))
        rows.append(row("jax", "unscale_and_check, jitted, by 1", f"{COUNT} x {name}", ms, moved, bandwidth))
    return rows


def jax_ms(function: Callable[..., object], *arguments: object) -> float:
    """The median time of a call until its results are there."""
    import jax

    def once() -> float:
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        return (time.perf_counter() - start) * 1e3

    return statistics.median([once() for _ in range(REPEATS + 3)][3:])


DEVICES = {"cupy": cupy_device, "torch": torch_device, "jax": jax_device}
ROWS = {"cupy": cupy_rows, "torch": torch_rows, "jax": jax_rows}


def answer(library: str, question: str) -> Any:
    """What is asked of a library, or None where it is not there."""
    try:
        return (DEVICES if question == "device" else ROWS)[library]()
    except ModuleNotFoundError as missing:
        if missing.name != library:
            raise
        return None


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
