"""Performance bounds for a GPU, each with its measured value and a flag: True if it is met, None if it was not measured."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from gpu_rows import DTYPES, LARGEST, NORM, UNSCALE
from shapes import MANY, SHAPES

Row = dict[str, Any]
Bound = dict[str, Any]

OURS = {"cupy": "ampscale", "torch": "ampscale", "jax": "ampscale, jitted"}
SCALER = "ampscale, GradScaler"
OTHERS = {"torch": ("torch foreach", "torch.amp"), "jax": ("jax.numpy, jitted",)}
# torch.amp rejects float16 gradients; on CUDA, its kernel rejects bfloat16. ampscale's scaler is measured beside torch.amp.
REJECTED = {*product(("torch.amp", SCALER), ("float16", "bfloat16")), ("torch foreach", "bfloat16")}
STEP = "test_cuda_graphs_capture_train_step"


def bounds(rows: list[Row], tests: dict[str, Any]) -> list[Bound]:
    """Return all bounds, the most important first."""
    by_key = {(row["library"], row["implementation"], row["function"], row["dtype"], row["shape"]): row for row in rows}
    return [*_memory(by_key), *_launches(by_key), _step(tests), *_others(by_key)]


def _memory(rows: dict[tuple[str, ...], Row]) -> Iterator[Bound]:
    """Yield the lower bounds of unscaling's memory bandwidth, as a share of the bandwidth of a copy."""
    for dtype in ("float16", "float32"):
        row = rows.get(("cupy", OURS["cupy"], UNSCALE, dtype, LARGEST), {})
        copy = rows.get(("cupy", "device to device", "copy", dtype, LARGEST), {})
        for timing in ("ms", "replayed_ms"):
            share = copy["ms"] / row[timing] if copy and timing in row else None
            description = f"share of the copy's bandwidth, {_mode(timing)}"
            yield _bound(f"copy/{dtype}/{timing}", description, share, 0.9, is_minimum=True)


def _launches(rows: dict[tuple[str, ...], Row]) -> Iterator[Bound]:
    """Yield upper bounds for the number of operations that a call launches."""
    largest = rows.get(("cupy", OURS["cupy"], UNSCALE, "float32", LARGEST), {})
    yield _bound("launches/largest", "kernels of a call", largest.get("operations", {}).get("kernels"), 1)
    many_arrays = rows.get(("cupy", OURS["cupy"], UNSCALE, "float32", MANY.name), {})
    for call in ("first_call", "operations"):
        value = sum(many_arrays[call].values()) if call in many_arrays else None
        yield _bound(f"launches/{MANY.name}/{call}", "kernels, copies and fills of a call", value, 3)


def _step(tests: dict[str, Any]) -> Bound:
    """Return the bound that CUDA can capture a step as a graph. It cannot if the step reads a value on the host."""
    outcome = tests.get("outcomes", {}).get(STEP)
    met = None if outcome in (None, "skipped") else outcome == "passed"
    text = "a whole step, captured and replayed"
    return {"id": "captured-step", "bound": text, "value": outcome, "limit": "passed", "met": met}


def _others(rows: dict[tuple[str, ...], Row]) -> Iterator[Bound]:
    """Yield the bounds of ampscale against other implementations, for all shapes, dtypes and functions."""
    shapes = (LARGEST, *(shape.name for shape in SHAPES))
    for shape, dtype, operation, library in product(shapes, DTYPES, (UNSCALE, NORM), OURS):
        yield from _comparisons(rows, library, (operation, dtype, shape))


def _comparisons(rows: dict[tuple[str, ...], Row], library: str, measurement: tuple[str, str, str]) -> Iterator[Bound]:
    """Yield the bounds of ampscale against other implementations on *library*; on CuPy, against those on torch and JAX."""
    _, dtype, _ = measurement  # function, dtype and shape
    for other_library in OTHERS if library == "cupy" else (library,):
        for other in OTHERS[other_library]:
            if (other, dtype) in REJECTED:
                continue
            implementation = SCALER if (library, other) == ("torch", "torch.amp") else OURS[library]
            ours = rows.get((library, implementation, *measurement), {})
            theirs = rows.get((other_library, other, *measurement), {})
            for timing in ("ms", "replayed_ms") if other == "torch foreach" else ("ms",):
                ratio = ours[timing] / theirs[timing] if timing in ours and timing in theirs else None
                name = "/".join((library, other, *measurement, timing))
                yield _bound(name, f"ratio of time to {other}, {_mode(timing)}", ratio, 1.0)


def _bound(name: str, description: str, value: float | None, limit: float, *, is_minimum: bool = False) -> Bound:
    text = f"{description}, {'at least' if is_minimum else 'at most'} {limit}"
    met = None
    if value is not None:
        met = value >= limit if is_minimum else value <= limit
    return {"id": name, "bound": text, "value": value, "limit": limit, "met": met}


def _mode(timing: str) -> str:
    return "replayed" if timing == "replayed_ms" else "called"
