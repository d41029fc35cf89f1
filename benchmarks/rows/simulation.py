"""
How long simulations take: a million steps of one rule, in Python and as a command, and a thousand rules at once.

The floor is an empty loop over as many numbers; a bare start of the command line; and the same rules one after another.
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
RULES, SWEPT = 1_000, 10_000
QUICK = 1_000  # times fewer steps, and rules

Build = Callable[[bool], Iterator[Contender]]


def specs() -> Iterator[Spec]:
    """All of them."""
    for name, (what, build) in {**simulations(), **commands(), **sweeps()}.items():
        yield Spec(f"simulation/{name}", "simulation", what, build)


def simulations() -> dict[str, tuple[str, Build]]:
    """One rule over a million steps: rare overflows, an overflow each second step, a growth each step, a model."""

    def build(rule: LossScaleRule, trace: Callable[[int], Trace], quick: bool) -> Iterator[Contender]:
        steps = STEPS // QUICK if quick else STEPS
        made, numbers = trace(steps), [0.0] * steps
        yield Contender("ampscale", lambda: simulate(rule, made), kind="ours")
        yield Contender("empty loop", lambda: loop(numbers), kind="floor")

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
    """Flags with an overflow in one of a thousand steps."""
    return np.random.default_rng(0).random(steps) > 0.001


def model(steps: int) -> Trace:
    """Gradients that wander about the top of float16."""
    return from_model(steps, 2.0**15, noise=1.0)


def loop(numbers: list[float]) -> None:
    for _ in numbers:
        pass


def commands() -> dict[str, tuple[str, Build]]:
    """The same as commands, with each kind of output."""
    found: dict[str, tuple[str, Build]] = {}
    for rule in ("torch", "torch:growth_interval=1", "deepspeed"):
        for output in ("", "--json", "--picture"):
            name = "/".join(filter(None, ["command", rule.split("=")[0], output.lstrip("-")]))
            what = " ".join(filter(None, ["ampscale simulate", rule, output]))
            found[name] = (what, partial(command_contenders, rule, output))
    return found


def command_contenders(rule: str, output: str, quick: bool) -> Iterator[Contender]:
    """A run of the command, and a bare start of it."""
    steps = STEPS // QUICK if quick else STEPS
    flags = rare(steps) if rule == "torch" else np.arange(steps) % 2 == 0
    file = folder() / "flags.txt"
    file.write_text("".join("." if flag else "x" for flag in flags))
    source = ["--file", str(file)]
    if rule == "deepspeed":
        source = ["--overflow-above", "2**15", "--noise", "1", "--steps", str(steps)]
    words = {"": [], "--json": ["--json"], "--picture": ["--picture", str(folder() / "scales.png")]}[output]
    yield Contender("ampscale", command("simulate", rule, *source, *words), kind="ours")
    yield Contender("ampscale --version", command("--version"), kind="floor")


@cache
def folder() -> Path:
    """Where files lie until this process ends."""
    path = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path)
    return path


def command(*arguments: str) -> Callable[[], object]:
    """A run of `ampscale` with these arguments, in a process of its own."""
    return lambda: subprocess.run([sys.executable, "-m", "ampscale", *arguments], check=True, capture_output=True)


def sweeps() -> dict[str, tuple[str, Build]]:
    """A thousand rules of all windows and factors over ten thousand steps."""

    def build(trace: Callable[[int], Trace], quick: bool) -> Iterator[Contender]:
        rules, made = drawn(10 if quick else RULES), trace(100 if quick else SWEPT)
        yield Contender("ampscale", lambda: sweep(rules, made), kind="ours")
        yield Contender("one by one", lambda: each(rules, made), kind="floor")

    words = f"sweep {RULES:,} rules, {SWEPT:,} steps"
    flags = partial(build, lambda steps: from_flags(np.random.default_rng(2).random(steps) > 0.01))
    return {"sweep/flags": (f"{words}, flags", flags), "sweep/model": (f"{words}, noisy model", partial(build, model))}


def drawn(count: int) -> list[LossScaleRule]:
    """Rules of all windows and factors."""
    draw = np.random.default_rng(1)
    return [
        LossScaleRule(
            init_scale=2.0 ** int(draw.integers(5, 30)),
            growth_factor=float(draw.choice([2.0, 1.5, 1.1])),
            growth_interval=int(draw.integers(1, 3000)),
            hysteresis=int(draw.integers(1, 4)),
            dtype=str(draw.choice(["float32", "float64"])),
        )
        for _ in range(count)
    ]


def each(rules: list[LossScaleRule], trace: Trace) -> None:
    for rule in rules:
        simulate(rule, trace)
