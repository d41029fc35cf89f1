"""`ampscale suggest`: the scales that would have suited a run, and what other rules would have done."""

import math
from pathlib import Path

import click
import numpy as np

from ..diagnostics.records import Histogram, encoded, histograms_of
from ..diagnostics.run_files import Run, read_run
from ..diagnostics.suggest import MOST_EXPONENT, Suggestion, replay
from ..diagnostics.suggest import suggest as suggest_scales
from .commands import JSON, command, usage_errors
from .describe import exact, fold, percent
from .progress import progress
from .trace_options import FILE
from .trajectories import to_json

SHARE = click.option(
    "--share", type=click.FloatRange(0, 1), default=0.01, help="Share of the non-zero values that may be lost. [default: 0.01]"
)


@command(
    "ampscale suggest run.jsonl",
    "ampscale suggest run.jsonl --share 0.001",
    short_help="Suggest a scale for a run, and replay it with all presets.",
)
@click.argument("run", metavar="RUN", type=FILE)
@SHARE
@JSON
def suggest(run: Path, share: float, as_json: bool) -> None:
    """
    Print the scales that would have suited a run, and what each preset would have done.

    RUN is a file of `ampscale.diagnostics.JSONLines`, with histograms. The scales neither overflow nor lose more than --share of
    the values of all measured steps; they err on the safe side, by less than a factor of four. The presets are simulated on the
    gradients of the recorded run, although the gradients would have been different if other steps had been skipped.

    \b
    With --json:
      suggestion      low, high, recommended and lost_share
      overflow        smallest scale at which a step overflowed; or null
      presets         for each preset, the one with the fewest skipped steps
                      first
        name
        skipped       number of skipped steps
        final_scale   scale after the last step; "inf" if it is infinite
    """  # noqa: D301 - click does not rewrap a paragraph after a backspace character
    with usage_errors(), progress("Reading") as advance:
        content = read_run(run, advance)
        histogram = _unscaled_histogram(content)
        if not histogram.counts:
            remedy = "only a GradScaler whose monitor has histogram_every records them"
            raise ValueError(f"{run} must have histograms with finite, non-zero values: {remedy}")
        suggestion = suggest_scales([histogram], share=share)
    with progress("Replaying"):
        replays = replay(content.records())
    overflow = None if content.finite.all() else float(content.scales[~content.finite].min())
    if as_json:
        presets = [result._asdict() | {"final_scale": encoded(result.final_scale)} for result in replays]
        click.echo(to_json({"suggestion": suggestion._asdict(), "overflow": overflow, "presets": presets}))
        return
    click.echo(fold(suggestion_text(suggestion, share)))
    if overflow is not None and overflow <= suggestion.high:
        reason = "its non-finite values are in no histogram, so the suggestion ignores them"
        click.echo(fold(f"But a step overflowed at scale {exact(overflow)}: {reason}."))
    width = max(len(result.name) for result in replays)
    click.echo(f"\n{'preset':<{width}}  {'skipped':>9}  final scale")
    for name, skipped, final_scale in replays:
        click.echo(f"{name:<{width}}  {skipped:>9,}  {exact(final_scale)}")


def suggestion_text(suggestion: Suggestion, share: float) -> str:
    """Return the bounds and the recommended scale of a suggestion as sentences."""
    low, high, recommended, lost = suggestion
    if low > high:
        return (
            f"No scale both avoids overflows (at most {exact(high)}) and loses at most {100 * share:g} % of the values (at least "
            f"{exact(low)}). At {exact(recommended)}, {percent(lost)} are lost."
        )
    return (
        f"Scales from {exact(low)} to {exact(high)} neither overflow nor lose more than {100 * share:g} % of the values. "
        f"Recommended: {exact(recommended)}, which loses {percent(lost)}."
    )


def _unscaled_histogram(run: Run) -> Histogram:
    """Return the sum of the histograms of all steps, shifted to the exponents before scaling."""
    totals = np.zeros(2 * MOST_EXPONENT + 1)
    for measurement in run.measurements:
        if measurement.histograms is not None and 0 < measurement.scale < math.inf:
            _, exponents = measurement.histograms.bins()
            unscaled = np.clip(exponents - math.floor(math.log2(measurement.scale)), -MOST_EXPONENT, MOST_EXPONENT)
            totals += np.bincount(unscaled + MOST_EXPONENT, measurement.histograms.counts, totals.size)
    return histograms_of([totals.astype(np.int64).tolist()], -MOST_EXPONENT)[0]
