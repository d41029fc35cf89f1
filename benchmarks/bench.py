"""
What the verbs cost, as ratios to the memory's own speed, measured in turn in one process.

The floor of a row that writes is NumPy's in-place multiply of the same arrays; of a row that reads, NumPy's `max`.
The definitions are measured as they are: three passes with temporaries. Fused kernels are to come down to the floor.
"""

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import ampscale

REPEATS = 7


def medians(*functions: Callable[[], object]) -> list[float]:
    """The median time of each function in seconds, after one round that does not count; run in turn."""
    times: list[list[float]] = [[] for _ in functions]
    for repeat in range(REPEATS + 1):
        for function, taken in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if repeat:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def multiplied(arrays: list[np.ndarray]) -> None:
    for array in arrays:
        np.multiply(array, array.dtype.type(1), out=array)


def reduced(arrays: list[np.ndarray]) -> None:
    for array in arrays:
        array.max()


def rows(dtype: str, count: int, size: int) -> list[dict[str, object]]:
    """One dictionary a verb: its time over the floor's."""
    arrays = [np.full(size, 1.5, dtype) for _ in range(count)]
    verbs: list[tuple[str, Callable[[], object], Callable[[list[np.ndarray]], None]]] = [
        ("all_finite", lambda: ampscale.all_finite(arrays), reduced),
        ("unscale_and_check, in place", lambda: ampscale.unscale_and_check(arrays, 1.0, out=arrays), multiplied),
        ("unscale_check_and_norm, in place", lambda: ampscale.unscale_check_and_norm(arrays, 1.0, out=arrays), multiplied),
        ("clip_by_global_norm", lambda: ampscale.clip_by_global_norm(arrays, 1e6), multiplied),
    ]
    found = []
    for name, verb, floor in verbs:
        taken, least = medians(verb, lambda floor=floor: floor(arrays))
        found.append({"verb": name, "arrays": f"{count} x {size:,} {dtype}", "ms": taken * 1e3, "ratio": taken / least})
    return found


def update_row() -> dict[str, object]:
    """One transition of the machine, over one step of a 0-d NumPy addition."""
    rule = ampscale.LossScaleRule()
    state, finite, one = rule.init(), np.asarray(True), np.asarray(1.0, np.float32)
    taken, least = medians(
        lambda: [rule.update(state, finite) for _ in range(200)],
        lambda: [state.scale + one for _ in range(200)],
    )
    return {"verb": "LossScaleRule.update", "arrays": "0-d", "ms": taken / 200 * 1e3, "ratio": taken / least}


def main() -> None:
    """Prints the table, and with a path as the argument writes it there as JSON."""
    table = [*rows("float32", 20, 1_000_000), *rows("float16", 20, 1_000_000), *rows("float32", 10_000, 100), update_row()]
    print(f"{'verb':34}{'arrays':26}{'ms':>10}{'over the floor':>16}")
    for row in table:
        print(f"{row['verb']:34}{row['arrays']:26}{row['ms']:10.3f}{row['ratio']:16.2f}")
    if len(sys.argv) > 1:
        machine = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
        with open(sys.argv[1], "w") as file:
            json.dump({"machine": machine, "rows": table}, file, indent=1)


main()
