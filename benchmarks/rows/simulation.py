"""
Rows of simulations: a million steps of one rule, in Python and as a command, and a sweep of a thousand rules.

The baselines are an empty loop of the same length, `ampscale --version`, and the same rules simulated one by one.
"""

import atexit
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
from measure import Contender
from specs import Spec

from ampscale import LossScaleRule, presets
from ampscale.simulation import Trace, from_flags, from_model, simulate, sweep

STEPS = 1_000_000
RULES, SWEPT = 1_000, 10_000  # rules and steps of a sweep
QUICK = 1_000  # divisor of the number of steps in a quick run

Build = Callable[[bool], Iterator[Contender]]
Rows = dict[str, tuple[str, Build]]  # label and contenders of each row, by the end of its id


def specs() -> Iterator[Spec]:
    """Yield the specifications of all rows."""
    for name, (label, build) in {**simulations(), **commands(), **sweeps()}.items():
        yield Spec(f"simulation/{name}", "simulation", label, build)


def simulations() -> Rows:
    """Return simulations of one rule, with rare, alternating, no and random overflows."""

    def build(rule: LossScaleRule, trace_of: Callable[[int], Trace], quick: bool) -> Iterator[Contender]:
        steps = STEPS // QUICK if quick else STEPS
        trace = trace_of(steps)
        numbers = [0.0] * steps
        yield Contender("ampscale", lambda: simulate(rule, trace), kind="ours")
        yield Contender("empty loop", lambda: loop(numbers), kind="baseline")

    alternating = presets.torch(growth_interval=1)
    return {
        "rare": ("simulate torch, overflows 1 in 1,000", partial(build, presets.torch(), lambda steps: from_flags(rare(steps)))),
        "alternating": (
            "simulate torch:growth_interval=1, overflows 1 in 2",
            partial(build, alternating, lambda steps: from_flags(np.arange(steps) % 2 == 0)),
        ),
        "growing": (
            "simulate chainer, growth each step",
            partial(build, presets.chainer(), lambda n: from_flags(np.ones(n, bool))),
        ),
        "model": ("simulate torch, noisy model", partial(build, presets.torch(), model)),
    }


def rare(steps: int) -> np.ndarray:
    """Return flags with one overflow in a thousand steps on average."""
    return np.random.default_rng(0).random(steps) > 0.001


def model(steps: int) -> Trace:
    """Return a trace of gradients near the largest float16."""
    return from_model(steps, 2.0**15, noise=1.0)


def loop(numbers: list[float]) -> None:
    for _ in numbers:
        pass


def commands() -> Rows:
    """Return runs of `ampscale simulate` with each kind of output."""
    rows: Rows = {}
    for rule in ("torch", "torch:growth_interval=1", "deepspeed"):
        for output in ("", "--json", "--picture"):
            name = "/".join(filter(None, ["command", rule.split("=")[0], output.lstrip("-")]))
            label = " ".join(filter(None, ["ampscale simulate", rule, output]))
            rows[name] = (label, partial(command_contenders, rule, output))
    return rows


def command_contenders(rule: str, output: str, quick: bool) -> Iterator[Contender]:
    """Yield a run of the command, and the baseline `ampscale --version`."""
    steps = STEPS // QUICK if quick else STEPS
    flags = rare(steps) if rule == "torch" else np.arange(steps) % 2 == 0
    file = folder() / "flags.txt"
    file.write_text("".join("." if flag else "x" for flag in flags))
    source = ["--file", str(file)]
    if rule == "deepspeed":
        source = ["--overflow-above", "2**15", "--noise", "1", "--steps", str(steps)]
    options = {"": [], "--json": ["--json"], "--picture": ["--picture", str(folder() / "scales.png")]}[output]
    yield Contender("ampscale", command("simulate", rule, *source, *options), kind="ours")
    yield Contender("ampscale --version", command("--version"), kind="baseline")


@cache
def folder() -> Path:
    """Return a temporary folder that is removed when this process ends."""
    path = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path)
    return path


def command(*arguments: str) -> Callable[[], object]:
    """Return a function that runs `ampscale` with these arguments in a new process."""
    return lambda: subprocess.run([sys.executable, "-m", "ampscale", *arguments], check=True, capture_output=True)


def sweeps() -> Rows:
    """Return sweeps of a thousand random rules over ten thousand steps."""

    def build(trace_of: Callable[[int], Trace], quick: bool) -> Iterator[Contender]:
        rules = random_rules(10 if quick else RULES)
        trace = trace_of(100 if quick else SWEPT)
        yield Contender("ampscale", lambda: sweep(rules, trace), kind="ours")
        yield Contender("one by one", lambda: [simulate(rule, trace) for rule in rules], kind="baseline")

    label = f"sweep {RULES:,} rules, {SWEPT:,} steps"
    flags = partial(build, lambda steps: from_flags(np.random.default_rng(2).random(steps) > 0.01))
    return {"sweep/flags": (f"{label}, flags", flags), "sweep/model": (f"{label}, noisy model", partial(build, model))}


def random_rules(count: int) -> list[LossScaleRule]:
    """Return rules with random constants."""
    random = np.random.default_rng(1)
    return [
        LossScaleRule(
            init_scale=2.0 ** int(random.integers(5, 30)),
            growth_factor=float(random.choice([2.0, 1.5, 1.1])),
            growth_interval=int(random.integers(1, 3000)),
            hysteresis=int(random.integers(1, 4)),
            dtype=str(random.choice(["float32", "float64"])),
        )
        for _ in range(count)
    ]
