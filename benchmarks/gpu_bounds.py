"""What is asked of a GPU, as data: each bound with its value, and whether it is met; None where it could not be measured."""

from collections.abc import Iterator
from typing import Any

from gpu_rows import DTYPES, LARGEST, NORM, UNSCALE
from shapes import MANY, SHAPES

Row = dict[str, Any]
Bound = dict[str, Any]

OURS = {"cupy": "ampscale", "torch": "ampscale", "jax": "ampscale, jitted"}
RIVALS = {"torch": ("torch foreach", "torch.amp"), "jax": ("jax.numpy, jitted",)}
REFUSED = ("torch.amp", "float16")  # it does not unscale such gradients
STEP = "test_a_whole_step_is_captured"


def bounds(rows: list[Row], tests: dict[str, Any]) -> list[Bound]:
    """All of them, in the order of the most important."""
    found = {(row["library"], row["way"], row["verb"], row["dtype"], row["shape"]): row for row in rows}
    return [*_memory(found), *_launches(found), _step(tests), *_rivals(found)]


def _memory(found: dict[tuple[str, ...], Row]) -> Iterator[Bound]:
    for dtype in ("float16", "float32"):
        row = found.get(("cupy", OURS["cupy"], UNSCALE, dtype, LARGEST), {})
        copy = found.get(("cupy", "device to device", "copy", dtype, LARGEST), {})
        for how in ("ms", "replayed_ms"):
            share = copy["ms"] / row[how] if copy and how in row else None
            words = f"share of the copy's bandwidth, {_words(how)}"
            yield _bound(f"copy/{dtype}/{how}", words, share, 0.9, least=True)


def _launches(found: dict[tuple[str, ...], Row]) -> Iterator[Bound]:
    largest = found.get(("cupy", OURS["cupy"], UNSCALE, "float32", LARGEST), {})
    yield _bound("launches/largest", "kernels of a call", largest.get("operations", {}).get("kernels"), 1)
    many = found.get(("cupy", OURS["cupy"], UNSCALE, "float32", MANY.name), {})
    for call in ("first_call", "operations"):
        value = sum(many[call].values()) if call in many else None
        yield _bound(f"launches/{MANY.name}/{call}", "kernels, copies and fills of a call", value, 3)


def _step(tests: dict[str, Any]) -> Bound:
    """Capturing is refused where anything is read, so a step that was captured has read nothing."""
    outcome = tests.get("outcomes", {}).get(STEP)
    met = None if outcome in (None, "skipped") else outcome == "passed"
    return {
        "id": "captured-step",
        "bound": "a whole step, captured and replayed",
        "value": outcome,
        "limit": "passed",
        "met": met,
    }


def _rivals(found: dict[tuple[str, ...], Row]) -> Iterator[Bound]:
    for shape in (LARGEST, *(shape.name for shape in SHAPES)):
        for dtype in DTYPES:
            for verb in (UNSCALE, NORM):
                for library, way in OURS.items():
                    yield from _beside(found, library, way, (verb, dtype, shape))


def _beside(found: dict[tuple[str, ...], Row], library: str, way: str, what: tuple[str, str, str]) -> Iterator[Bound]:
    """One of ours beside the rivals of its own library, and CuPy, which has none, beside all."""
    ours = found.get((library, way, *what), {})
    for home in RIVALS if library == "cupy" else (library,):
        for rival in RIVALS[home]:
            if (rival, what[1]) == REFUSED:
                continue
            theirs = found.get((home, rival, *what), {})
            for how in ("ms", "replayed_ms") if rival == "torch foreach" else ("ms",):
                ratio = ours[how] / theirs[how] if how in ours and how in theirs else None
                name = "/".join((library, rival, *what, how))
                yield _bound(name, f"time over that of {rival}, {_words(how)}", ratio, 1.0)


def _bound(name: str, words: str, value: float | None, limit: float, *, least: bool = False) -> Bound:
    met = None if value is None else value >= limit if least else value <= limit
    return {
        "id": name,
        "bound": f"{words}, {'at least' if least else 'at most'} {limit}",
        "value": value,
        "limit": limit,
        "met": met,
    }


def _words(how: str) -> str:
    return "replayed" if how == "replayed_ms" else "called"
