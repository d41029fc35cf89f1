"""`ampscale simulate --ranks`: tables of the model in `ampscale.simulation.ranks`."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from ..core.rule import LossScaleRule
from ..simulation.ranks import (
    SYSTEMS,
    VECTOR,
    Drift,
    RankModel,
    StepCollectives,
    agreement_cost,
    disagreement_probability,
    simulate_drift,
    steps_until_disagreement,
)
from .describe import counted, exact, fold
from .extras import require
from .progress import progress
from .rule_arguments import NUMBER
from .trace_options import SOURCES
from .trajectories import to_json

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
ROWS = (8, 100, 1000, 10_000, 100_000)
MOST_RANKS = 1_000_000
STEPS, SEED, PROBABILITY = 100, 0, 1e-4
DEFAULTS = RankModel()
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def _number(value: float, digits: int = 6) -> str:
    """Return a number in short scientific notation, such as "1e-4", "5" or "0"."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = f"e{int(exponent)}" if int(exponent) else ""
    return f"{float(mantissa):g}{power}"


OPTIONS: dict[str, dict[str, Any]] = {
    "ranks": {
        "type": click.IntRange(2, MOST_RANKS),
        "help": "Print a model of the cost of agreement between this number of ranks, instead of a run. RULE is optional.",
    },
    "node": {"type": click.IntRange(1, MOST_RANKS), "help": f"Ranks per node. [default: {DEFAULTS.ranks_per_node}]"},
    "latency": {"help": f"Seconds of a message between nodes. [default: {_number(DEFAULTS.latency)}]"},
    "bandwidth": {"help": f"Bytes per second between nodes. [default: {_number(DEFAULTS.bandwidth)}]"},
    "node_latency": {"help": f"Seconds of a message within a node. [default: {_number(DEFAULTS.node_latency)}]"},
    "node_bandwidth": {"help": f"Bytes per second within a node. [default: {_number(DEFAULTS.node_bandwidth)}]"},
    "vector": {"type": click.IntRange(1, 2**31 - 1), "help": f"Bytes that each rank sends. [default: {VECTOR}]"},
    "probability": {"help": f"Probability that a rank alone overflows in a step. [default: {_number(PROBABILITY)}]"},
}


def rank_options(command: Decorated) -> Decorated:
    """Add the options of the model to a command."""
    for name, settings in reversed(OPTIONS.items()):
        command = click.option("--" + name.replace("_", "-"), **{"type": NUMBER, **settings})(command)
    return command


def take_rank_options(options: dict[str, Any]) -> dict[str, Any] | None:
    """
    Remove the options of the model from *options*, and return those that were given; None without --ranks.

    The number of steps and the seed are returned too. Other options of an overflow trace cause a usage error.
    """
    given = {name: value for name in OPTIONS if (value := options.pop(name)) is not None}
    if "ranks" not in given:
        if given:
            raise click.UsageError(f"{_flag(next(iter(given)))} requires --ranks")
        return None
    names = {name for source, others in SOURCES.items() for name in (source, *others)} - {"steps", "seed"}
    for name in sorted(names):
        if options[name] is not None:
            raise click.UsageError(f"--ranks cannot be combined with {_flag(name)}")
    return given | {name: options[name] for name in ("steps", "seed") if options[name] is not None}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def run_ranks(name: str, rule: LossScaleRule, given: Mapping[str, Any], picture: Path | None, *, as_json: bool) -> None:
    """Print the model, and plot it to *picture*. *given* is the result of `take_rank_options`."""
    settings = {"vector": VECTOR, "probability": PROBABILITY, "steps": STEPS, "seed": SEED, **given}
    ranks, probability = settings["ranks"], settings["probability"]
    try:
        model = _model(given)
        steps_until_disagreement(ranks, probability)
    except ValueError as error:
        name, _, message = str(error).partition(" ")
        raise click.UsageError(f"{_flag(name.removeprefix('overflow_'))} {message}") from None
    with progress("Simulating"):
        drift = simulate_drift(rule, ranks, probability, settings["steps"], settings["seed"])
    if picture is not None:
        require("matplotlib")
        from .ranks_plot import draw

        draw(model, settings["vector"], ranks, probability, picture)
    if as_json:
        click.echo(to_json(_document(name, rule, model, settings, drift)))
        return
    click.echo("\n".join([*_parameters(model, settings), "", *_costs(model, settings), "", *_systems(model, settings), ""]))
    click.echo(fold(_drift(name, drift, settings)))
    if picture is not None:
        click.echo(f"Picture: {picture}")


def _model(given: Mapping[str, Any]) -> RankModel:
    values = {name: given[name] for name in asdict(DEFAULTS) if name in given}
    return RankModel(**values, ranks_per_node=given.get("node", DEFAULTS.ranks_per_node))


def _parameters(model: RankModel, settings: Mapping[str, Any]) -> Iterator[str]:
    yield "Model, not a measurement. A message takes latency + bytes / bandwidth:"
    yield f"  between nodes        {_seconds(model.latency)} + bytes / {model.bandwidth / 1e9:g} GB/s"
    yield f"  within a node        {_seconds(model.node_latency)} + bytes / {model.node_bandwidth / 1e9:g} GB/s"
    yield f"  node, vector         {counted(model.ranks_per_node, 'rank')}, {counted(settings['vector'], 'byte')}"
    yield f"  overflow             in each step with probability {_number(settings['probability'])} on each rank"


def _costs(model: RankModel, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the titles and a row for each number of ranks."""
    pattern = "{:>9}  {:>9}  {:>9}  {:>12}  {:>14}  {:>14}"
    yield f"{'one collective:':>20}  {'':>23}  {'probability of':>14}  {'steps until':>14}"
    yield pattern.format("ranks", "flat", "tree", "hierarchical", "disagreement", "disagreement")
    for row in _rows(model, settings):
        times = (_seconds(row[name]) for name in ("flat", "tree", "hierarchical"))
        yield pattern.format(f"{row['ranks']:,}", *times, _number(row["disagreement_probability"], 3), _steps(row))


def _rows(model: RankModel, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    probability = settings["probability"]
    for ranks in sorted({*ROWS, settings["ranks"]}):
        yield {
            "ranks": ranks,
            **asdict(agreement_cost(ranks, settings["vector"], model)),
            "disagreement_probability": disagreement_probability(ranks, probability),
            "steps_until_disagreement": steps_until_disagreement(ranks, probability),
        }


def _steps(row: Mapping[str, Any]) -> str:
    steps = row["steps_until_disagreement"]
    return "never" if steps == math.inf else f"{steps:,.1f}" if steps < 1e9 else f"{steps:.3g}"


def _systems(model: RankModel, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the titles and a row for each system."""
    yield f"Small collectives per step for flag and norm, hierarchical, {settings['ranks']:,} ranks."
    yield fold(f"ampscale sends {counted(settings['vector'], 'byte')} per rank (--vector), the other systems 4 bytes:")
    yield f"{'count':>5}  {'time':>19}  system"
    for system in SYSTEMS:
        counts, times = _range(system, model, settings)
        count = "-".join(map(str, dict.fromkeys(counts)))
        time = " - ".join(map(_seconds, dict.fromkeys(times)))
        yield f"{count:>5}  {time:>19}  {system.system}"


def _range(system: StepCollectives, model: RankModel, settings: Mapping[str, Any]) -> tuple[list[int], list[float]]:
    """Return the smallest and the largest number of collectives of *system* in a step, and the seconds that these take."""
    cost = agreement_cost(settings["ranks"], system.vector or settings["vector"], model)
    counts = [system.fewest, system.most]
    return counts, [count * cost.hierarchical for count in counts]


def _drift(name: str, drift: Drift, settings: Mapping[str, Any]) -> str:
    ranks = [
        f"{exact(scale)} on {counted(count, 'rank')}"
        for scale, count in zip(drift.scales.tolist(), drift.ranks.tolist(), strict=True)
    ]
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    first = "" if drift.first_disagreement is None else f", first in step {drift.first_disagreement:,}"
    return (
        f"Simulation of the rule {name}, each rank deciding alone, {counted(settings['steps'], 'step')}, "
        f"seed {settings['seed']}: ranks disagree in {counted(drift.disagreements, 'step')}{first}. "
        f"After the last step, they have {counted(len(ranks), 'distinct scale')}: {', '.join(ranks[:8])}{more}."
    )


def _document(name: str, rule: LossScaleRule, model: RankModel, settings: Mapping[str, Any], drift: Drift) -> dict[str, Any]:
    """Return all tables as values that JSON can hold. Times are in seconds; an infinite number is the string "inf"."""
    systems = [
        {"system": system.system, **dict(zip(("collectives", "seconds"), _range(system, model, settings), strict=True))}
        for system in SYSTEMS
    ]
    return {
        "model": {**asdict(model), **{key: settings[key] for key in ("vector", "probability")}},
        "costs": [{key: _finite(value) for key, value in row.items()} for row in _rows(model, settings)],
        "ranks": settings["ranks"],
        "systems": systems,
        "name": name,
        "rule": json.loads(rule.to_json()),
        "steps": settings["steps"],
        "seed": settings["seed"],
        "disagreements": drift.disagreements,
        "first_disagreement": drift.first_disagreement,
        "scales": [_finite(scale) for scale in drift.scales.tolist()],
        "ranks_with_scale": drift.ranks.tolist(),
    }


def _finite(value: float) -> float | str:
    return "inf" if value == math.inf else value


def _seconds(value: float) -> str:
    """Return a time with three digits, such as "12.3 us"."""
    size, unit = next(((size, unit) for size, unit in UNITS if value >= size), UNITS[-1])
    return f"{value / size:.3g} {unit}"
