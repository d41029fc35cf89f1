"""`ampscale simulate --ranks`: tables of the model in `ampscale.simulation.ranks`."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..core.rule import LossScaleRule
from ..diagnostics.records import encoded
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
from .commands import flag, with_options
from .describe import counted, exact, fold
from .extras import require
from .progress import progress
from .rule_arguments import NUMBER
from .trajectories import to_json

ALGORITHMS = ("flat", "tree", "hierarchical")
ROWS = (8, 100, 1000, 10_000, 100_000)  # numbers of ranks in the table of costs
MOST_RANKS = 1_000_000
SHOWN = 8  # maximum number of scales that are printed
DEFAULTS = RankModel()
PROBABILITY = 1e-4
STEPS = 100
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
    "probability": {"help": f"Probability that a single rank overflows in a step. [default: {_number(PROBABILITY)}]"},
}
rank_options = with_options(*(click.option(flag(name), **{"type": NUMBER, **options}) for name, options in OPTIONS.items()))


def take_rank_options(options: dict[str, Any]) -> dict[str, Any] | None:
    """
    Remove the options of the model of ranks from *options*, and return those that were given. Return None without --ranks.

    The number of steps and the seed are returned too. Other options of an overflow trace cause a usage error.
    """
    settings = {name: value for name in OPTIONS if (value := options.pop(name)) is not None}
    if "ranks" not in settings:
        if settings:
            raise click.UsageError(f"{flag(next(iter(settings)))} requires --ranks")
        return None
    settings |= {name: value for name in ("steps", "seed") if (value := options.pop(name)) is not None}
    for name in sorted(options):
        if options[name] is not None:
            raise click.UsageError(f"--ranks cannot be combined with {flag(name)}")
    return settings


def run_ranks(name: str, rule: LossScaleRule, options: Mapping[str, Any], picture: Path | None, *, as_json: bool) -> None:
    """Print the model, and plot it to *picture*. *options* is the result of `take_rank_options`."""
    settings = {"vector": VECTOR, "probability": PROBABILITY, "steps": STEPS, "seed": 0, **options}
    model = _checked_model(settings)
    with progress("Simulating"):
        drift = simulate_drift(rule, settings["ranks"], settings["probability"], settings["steps"], settings["seed"])
    if picture is not None:
        require("matplotlib")
        from .ranks_plot import draw

        draw(model, settings["vector"], settings["ranks"], settings["probability"], picture)
    document = _document(name, rule, settings, model, drift)
    if as_json:
        click.echo(to_json(document))
        return
    click.echo("\n".join(_tables(document)))
    click.echo(fold(_drift(document)))
    if picture is not None:
        click.echo(f"Picture: {picture}")


def _checked_model(settings: Mapping[str, Any]) -> RankModel:
    """Return the model with *settings*, and check the probability. An invalid value is a usage error."""
    links = {name: settings[name] for name in ("latency", "bandwidth", "node_latency", "node_bandwidth") if name in settings}
    try:
        model = RankModel(**links, ranks_per_node=settings.get("node", DEFAULTS.ranks_per_node))
        steps_until_disagreement(settings["ranks"], settings["probability"])
    except ValueError as error:
        # The message starts with the name of the argument. The option has this name, too, but without "overflow_".
        option, _, message = str(error).partition(" ")
        raise click.UsageError(f"{flag(option.removeprefix('overflow_'))} {message}") from None
    return model


def _document(name: str, rule: LossScaleRule, settings: Mapping[str, Any], model: RankModel, drift: Drift) -> dict[str, Any]:
    """Return the model and the simulation as JSON-serializable values."""
    ranks, vector, probability = settings["ranks"], settings["vector"], settings["probability"]
    return {
        "model": {**asdict(model), "vector": vector, "probability": probability},
        "costs": [_costs(count, model, vector, probability) for count in sorted({*ROWS, ranks})],
        "ranks": ranks,
        "systems": [_collectives(system, ranks, model, vector) for system in SYSTEMS],
        "name": name,
        "rule": asdict(rule),
        "steps": settings["steps"],
        "seed": settings["seed"],
        "disagreements": drift.disagreements,
        "first_disagreement": drift.first_disagreement,
        "scales": list(map(encoded, drift.scales.tolist())),
        "ranks_with_scale": drift.ranks.tolist(),
    }


def _costs(ranks: int, model: RankModel, vector: int, probability: float) -> dict[str, Any]:
    """Return the seconds of a collective on *ranks* ranks, and how likely they are to disagree."""
    return {
        "ranks": ranks,
        **asdict(agreement_cost(ranks, vector, model)),
        "disagreement_probability": disagreement_probability(ranks, probability),
        "steps_until_disagreement": encoded(steps_until_disagreement(ranks, probability)),
    }


def _collectives(system: StepCollectives, ranks: int, model: RankModel, vector: int) -> dict[str, Any]:
    """Return the smallest and the largest number of collectives of *system* in a step, and the seconds that these take."""
    cost = agreement_cost(ranks, system.vector or vector, model)
    counts = [system.fewest, system.most]
    return {"system": system.system, "collectives": counts, "seconds": [count * cost.hierarchical for count in counts]}


def _tables(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parameters of the model, a row for each number of ranks, and a row for each system."""
    model = document["model"]
    yield "Model, not a measurement. A message takes latency + bytes / bandwidth:"
    yield f"  between nodes        {_seconds(model['latency'])} + bytes / {model['bandwidth'] / 1e9:g} GB/s"
    yield f"  within a node        {_seconds(model['node_latency'])} + bytes / {model['node_bandwidth'] / 1e9:g} GB/s"
    yield f"  node, vector         {counted(model['ranks_per_node'], 'rank')}, {counted(model['vector'], 'byte')}"
    yield f"  overflow             in each step with probability {_number(model['probability'])} on each rank"
    yield ""
    pattern = "{:>9}  {:>9}  {:>9}  {:>12}  {:>14}  {:>14}"
    yield f"{'one collective:':>20}  {'':>23}  {'probability of':>14}  {'steps until':>14}"
    yield pattern.format("ranks", *ALGORITHMS, "disagreement", "disagreement")
    for row in document["costs"]:
        times = (_seconds(row[name]) for name in ALGORITHMS)
        probability = _number(row["disagreement_probability"], 3)
        steps = _steps(row["steps_until_disagreement"])
        yield pattern.format(f"{row['ranks']:,}", *times, probability, steps)
    yield ""
    ranks = counted(document["ranks"], "rank")
    yield fold(f"Small collectives per step for flag and norm, with the hierarchical algorithm, on {ranks}.")
    yield fold(f"ampscale sends {counted(model['vector'], 'byte')} per rank (--vector), the other systems 4 bytes:")
    yield f"{'count':>5}  {'time':>19}  system"
    for row in document["systems"]:
        count = "-".join(map(str, dict.fromkeys(row["collectives"])))
        time = " - ".join(map(_seconds, dict.fromkeys(row["seconds"])))
        yield f"{count:>5}  {time:>19}  {row['system']}"
    yield ""


def _drift(document: Mapping[str, Any]) -> str:
    """Describe the simulation in sentences."""
    pairs = zip(document["scales"], document["ranks_with_scale"], strict=True)
    scales = [f"{exact(float(scale))} on {counted(count, 'rank')}" for scale, count in pairs]
    more = f" and {len(scales) - SHOWN} more" if len(scales) > SHOWN else ""
    first_step = document["first_disagreement"]
    first = "" if first_step is None else f", first in step {first_step:,}"
    return (
        f"Simulation of the rule {document['name']}, each rank deciding alone, {counted(document['steps'], 'step')}, "
        f"seed {document['seed']}: ranks disagree in {counted(document['disagreements'], 'step')}{first}. "
        f"After the last step, they have {counted(len(scales), 'distinct scale')}: {', '.join(scales[:SHOWN])}{more}."
    )


def _steps(expected: float | str) -> str:
    """Return an expected number of steps, such as "1,234.5" or "1.23e+09"; "never" for the string "inf"."""
    if isinstance(expected, str):
        return "never"
    return f"{expected:,.1f}" if expected < 1e9 else f"{expected:.3g}"


def _seconds(value: float) -> str:
    """Return a time with three digits, such as "12.3 us"."""
    size, unit = next(((size, unit) for size, unit in UNITS if value >= size), UNITS[-1])
    return f"{value / size:.3g} {unit}"
