"""
Fuzz run: calls every parser with mutated inputs. Each call must quickly return a result or raise a documented error.

Equal seeds give equal inputs. A failure is an undocumented exception, a message of several lines or of more than
`LONGEST_MESSAGE` characters, or a call of more than `SLOW` seconds of CPU time. The run prints each failure with its input.
"""

import argparse
import gc
import json
import multiprocessing
import os
import platform
import random
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ampscale.files import write_atomically
from ampscale.parsing import excerpt

from . import library, suite
from .parser import Parser

PARSERS = library.PARSERS | suite.PARSERS
CHUNK = 5000  # maximum number of inputs of one parser from one seed
PROCESSES = 2
SLOW = 0.25  # seconds
LONGEST_MESSAGE = 2000  # characters
SHOWN = 2000  # characters of an input that failed


def main() -> None:
    """Run the command; exit with status 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000_000, help="total number of inputs [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PARSERS, help="run only the inputs of one parser")
    parser.add_argument("--out", type=Path, help="write the result to this JSON file")
    options = parser.parse_args()
    started = time.monotonic()
    counts, failures = fuzz(options.inputs, options.seed, options.only)
    result = _result(options, counts, failures, time.monotonic() - started)
    print(json.dumps(result, indent=1))
    if options.out:
        write_atomically(options.out, json.dumps(result, indent=1) + "\n")
    sys.exit(bool(failures))


def fuzz(inputs: int, seed: int, only: str | None) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the counts of each parser, and the failures."""
    counts: dict[str, dict[str, Any]] = {
        name: {"inputs": 0, "slowest_ms": 0.0, "peak_mb": 0.0} for name in PARSERS if only in (None, name)
    }
    failures: list[str] = []
    selected = (chunk for chunk in chunks(inputs, seed) if chunk[0] in counts)
    gc.freeze()  # exclude the objects of all modules from garbage collection
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        for name, counted, failed in pool.imap_unordered(run_chunk, selected):
            _add(counts[name], counted)
            failures += failed
            for failure in failed:
                print(failure, flush=True)
    return counts, failures


def chunks(inputs: int, seed: int) -> Iterator[tuple[str, int, str]]:
    """Yield the name of a parser, a number of inputs and their seed, for all parsers alternately."""
    remaining = {name: max(1, round(inputs * parser.share)) for name, parser in PARSERS.items()}
    number = 0
    while any(remaining.values()):
        for name in PARSERS:
            if size := min(CHUNK, remaining[name]):
                remaining[name] -= size
                yield name, size, f"{seed}/{name}/{number}"
        number += 1


def run_chunk(chunk: tuple[str, int, str]) -> tuple[str, dict[str, Any], list[str]]:
    """Parse the inputs of one item of `chunks`; return the name of the parser, its counts and the failures."""
    name, size, seed = chunk
    parser = PARSERS[name]
    source = random.Random(seed)
    counted: dict[str, Any] = {"inputs": size}
    failures = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for index in range(size):
            generated = parser.generate(source)
            outcome, seconds = _outcome(parser, generated)
            if outcome not in ("results", *(error.__name__ for error in parser.errors)):
                failures.append(f"{name}, input {index} of {seed}: {outcome}\n    {excerpt(generated, SHOWN)}")
                outcome = "failures"
            elif seconds > SLOW:
                failures.append(f"{name}, input {index} of {seed}: {seconds:.2f} s\n    {excerpt(generated, SHOWN)}")
            counted[outcome] = counted.get(outcome, 0) + 1
            counted["slowest_ms"] = max(counted.get("slowest_ms", 0.0), 1000 * seconds)
    counted["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return name, counted, failures


def _outcome(parser: Parser, generated: Any) -> tuple[str, float]:
    """Return "results", the name of a documented error, or a description of the failure, and the seconds of the call."""
    started = time.thread_time()
    try:
        parser.parse(generated)
    except parser.errors as error:
        seconds = time.thread_time() - started
        documented = next(cls for cls in parser.errors if isinstance(error, cls))
        return _message_fault(str(error)) or documented.__name__, seconds
    except BaseException as error:  # noqa: BLE001 - any other exception is a failure
        return f"{type(error).__name__}: {error}"[:SHOWN], time.thread_time() - started
    return "results", time.thread_time() - started


def _message_fault(message: str) -> str | None:
    """Return a description of the fault in an error message; None if it has none."""
    if len(message) > LONGEST_MESSAGE:
        return f"a message of {len(message)} characters: {message[:SHOWN]}"
    if len(message.splitlines()) != 1:
        return f"a message that is not a single line: {message!r}"
    if "Exceeds the limit" in message:  # text of int()'s error about too many digits
        return f"a message of Python instead of the parser: {message!r}"
    return None


def _add(total: dict[str, Any], counted: dict[str, Any]) -> None:
    for key, value in counted.items():
        total[key] = max(total.get(key, 0.0), value) if key in ("slowest_ms", "peak_mb") else total.get(key, 0) + value


def _result(
    options: argparse.Namespace, counts: dict[str, dict[str, Any]], failures: list[str], seconds: float
) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    only = f' ONLY="{options.only}"' if options.only else ""
    return {
        "command": f"make fuzz INPUTS={options.inputs} SEED={options.seed}{only}",
        "seed": options.seed,
        "machine": f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "seconds": round(seconds),
        "inputs": sum(count["inputs"] for count in counts.values()),
        "failures": len(failures),
        "slowest_ms": round(max(count["slowest_ms"] for count in counts.values()), 1),
        "peak_mb": round(max(count["peak_mb"] for count in counts.values())),
        "parsers": {
            name: {key: round(value, 1) for key, value in sorted(count.items()) if key != "peak_mb"}
            for name, count in counts.items()
        },
    }
