"""Chapter 30, state machine: the scale after each step of an overflow trace, and after saving and loading."""

from functools import partial
from math import frexp
from typing import Any

from ..model.adapter import Unsupported
from ..model.case import Case, named
from ..model.subject import Subject
from .machine_drawn import DRAWN
from .machine_lockstep import LARGEST, Only, run_lockstep
from .rows import Row, rows

CONDITIONS: dict[str, Only] = {
    "window": (lambda rule: rule.growth_interval > 1, "it grows in every finite step"),
    "every-step": (lambda rule: rule.growth_interval == 1, "its growth interval cannot be 1"),
    "no-bound": (
        lambda rule: not rule.skip_infinite_growth and rule.max_scale is None and rule.dtype == "float32",
        "it skips infinite growths, has a max_scale, or its scale is float64",
    ),
    "float64": (lambda rule: rule.dtype == "float64", "its scale is float32"),
    "no-floor": (lambda rule: rule.min_scale is None or rule.min_scale < 2.0**-4, "it has a min_scale"),
    "no-cap": (
        lambda rule: rule.max_scale is None or rule.max_scale >= LARGEST,
        "its max_scale keeps the scale from the largest float32",
    ),
    "growth-resets": (
        lambda rule: "growth" in rule.reset_bad_steps_on and "finite" not in rule.reset_bad_steps_on,
        "a growth does not reset its overflow count, or a finite step does",
    ),
}

# The script is an overflow trace: "+" (finite) or "-" (overflow). `only` names some of `CONDITIONS`, and `about` a clause that
# must determine a step, by default the clause of the case. `own` names a bound that must be the preset's own. The other options
# are constants of the rule.
TRACES = """
MACHINE-state/starts-at-its-initial-scale | | init_scale=2**8
    ignored constant: the first scale is fixed
MACHINE-state/starts-above-the-largest-float16 | | init_scale=2**17
    16-bit scale: 2**17 becomes infinity or 65504
MACHINE-state/starts-at-a-scale-of-twenty-bits | | init_scale=4096.0078125 needs=rounding
    rounded scale: the scale is stored with fewer bits than float32, or as a power of two
MACHINE-state/starts-at-a-scale-of-forty-bits | | only=float64 init_scale=4096.000000007451 needs=rounding
    rounded scale: the scale is stored in float32, but the published scaler stores a float64
MACHINE-growth-window/grows-in-the-third-step | ++++ | only=window
    off-by-one: the first growth window is longer or shorter than the growth interval
MACHINE-growth-window/grows-in-every-step-with-an-interval-of-1 | -+++++ | only=every-step growth_interval=1
    off-by-one: with a growth interval of 1, the scale grows in every second step, or never
MACHINE-growth-factor/grows-by-4 | +++++++++ | about=MACHINE-growth-window growth_factor=4.0
    ignored constant: the scale doubles for every growth factor
MACHINE-growth-resets/grows-again-a-window-after-a-growth | +++++++++
    stale count: after the first growth, the scale grows in every step, or too late
MACHINE-skip-infinite-growth/a-growth-at-the-top-keeps-the-scale | +++-+++ | only=no-cap init_scale=2**126 growth_interval=1
    missing overflow check: 2**127 grows to infinity or to the largest float32, or never changes again
MACHINE-skip-infinite-growth/a-growth-below-the-top-is-not-skipped | +-
    | about=MACHINE-growth-window only=no-cap init_scale=2**127 growth_interval=1 growth_factor=1.9999998807907104
    additional bound: the scale does not grow beyond 2**127 or 3.4e38, although the result is the largest float32
MACHINE-skip-infinite-growth/grows-to-infinity-without-a-guard | +++++------+
    | about=MACHINE-growth-window only=no-bound init_scale=2**126 growth_interval=1
    additional bound: the scale stays finite, but the published scale becomes infinite
MACHINE-growth-factor/grows-many-times | + | times=90 about=MACHINE-growth-window growth_interval=1
    additional bound: after some growths, or at 2**24 or 2**32, the scale stops growing
MACHINE-skip-infinite-growth/a-float64-scale-grows-beyond-float32 | +
    | times=900 about=MACHINE-growth-window only=float64 init_scale=2**126 growth_interval=1
    narrow check: a float64 scale stays below the largest float32
MACHINE-max-scale/stays-at-its-cap | +++++ | max_scale=2**12 growth_interval=1
    missing bound: the scale grows beyond max_scale
MACHINE-max-scale/a-growth-over-the-maximum-is-clamped | +++ | max_scale=2**11 growth_interval=1 growth_factor=4.0
    wrong order: max_scale is compared before the growth, so the new scale exceeds it, or the growth is skipped
MACHINE-backoff/backs-off-at-every-overflow-in-a-row | -----+
    wrong polarity: overflows count as finite steps, or consecutive overflows count as one
MACHINE-backoff/backs-off-at-more-than-forty-overflows | - | times=105 init_scale=2**110
    overflow limit: after a number of consecutive overflows, an error is raised or the scale stops changing
MACHINE-backoff/backs-off-by-a-quarter | -+ | backoff_factor=0.25
    ignored constant: the scale is halved, or divided by the growth factor, for every backoff factor
MACHINE-backoff/backs-off-beside-a-growth-factor-of-4 | -+ | growth_factor=4.0
    shared factor: the backoff divides by the growth factor, or always halves
MACHINE-backoff/backs-off-below-1 | -+ | only=no-floor init_scale=1.0
    additional bound: the scale stays at 1 or becomes 0 without a min_scale
MACHINE-overflow-resets/an-overflow-ends-the-window | +-+++++
    stale count: finite steps before an overflow count towards the next growth
MACHINE-overflow-resets/an-overflow-that-keeps-the-scale-ends-the-window | ++-++++ | hysteresis=3
    stale count: only an overflow that backs off resets the count of finite steps
MACHINE-min-scale/stays-at-its-minimum | ---- | min_scale=2**8
    ignored constant: the scale falls below min_scale
MACHINE-min-scale/a-backoff-under-the-minimum-is-clamped | -- | min_scale=2**9 backoff_factor=0.25
    wrong order: min_scale is compared before the backoff, so the new scale falls below it, or the backoff is skipped
MACHINE-static/never-changes | +--+++- | times=8
    changing constant: a static scale backs off
MACHINE-hysteresis/backs-off-at-the-fourth-overflow | ----+ | hysteresis=4
    wrong hysteresis: the scale backs off at the first or second overflow for every hysteresis, or one overflow too late
MACHINE-hysteresis/backs-off-at-the-300th-overflow | - | times=302 hysteresis=300
    narrow count: the overflow count wraps or saturates in 4 or 8 bits
MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-finite-step | -+-+ | hysteresis=2
    wrong reset: a finite step resets the overflow count, or keeps it, unlike the published rule
MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-growth | -++++-+ | hysteresis=2
    wrong reset: a growth resets the overflow count, or keeps it, unlike the published rule
MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-skipped-growth | -++++-+
    | about=MACHINE-skip-infinite-growth only=growth-resets,no-cap init_scale=2**127 hysteresis=2
    incomplete growth: a skipped infinite growth does not reset the overflow count
MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-clamped-growth | -++++-+
    | about=MACHINE-max-scale only=growth-resets max_scale=2**10 hysteresis=2
    incomplete growth: a growth at max_scale does not reset the overflow count
MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-backoff | ------+ | about=MACHINE-hysteresis hysteresis=2
    wrong reset: after a backoff the next overflow also backs off, or does not, unlike the published rule
MACHINE-initial-good-steps/the-first-window-is-longer | ++++++++
    ignored offset: the first growth window is as long as the others, or all are as long as the first
MACHINE-initial-good-steps/the-window-after-an-overflow-is-longer | -+++++++
    ignored offset: the growth window after an overflow is as long as one after a growth
MACHINE-block-at-bounds/a-growth-can-pass-the-maximum | +++++++-+++ | max_scale=2**11 growth_factor=4.0
    clamping: the scale is clamped to max_scale, but the published scaler only blocks growths at or beyond it
MACHINE-block-at-bounds/a-backoff-can-pass-the-minimum | --- | min_scale=2**9 growth_factor=4.0
    clamping: the scale is clamped to min_scale, but the published scaler only blocks backoffs at or beyond it
MACHINE-block-at-bounds/a-blocked-backoff-leaves-the-window | ++-+ | init_scale=2**9 min_scale=2**9
    wrong reset: a blocked backoff resets the count of finite steps
MACHINE-overflow-tolerance/tolerates-a-share-of-overflows | +++-+--- | growth_interval=10 overflow_tolerance=0.5
    ignored tolerance: the scale backs off at every overflow, or the share is taken of finite steps only
MACHINE-overflow-tolerance/a-growth-begins-a-new-share | +++- | overflow_tolerance=0.5
    stale count: steps before a growth count in the share of overflows
MACHINE-overflow-tolerance/a-backoff-begins-a-new-share | -+- | growth_interval=10 overflow_tolerance=0.5
    stale count: steps before a backoff count in the share of overflows
MACHINE-delayed-update/a-change-comes-one-step-late | -+++++
    missing delay: a change applies at once, or never
MACHINE-warmup-growth-factor/grows-by-its-own-factor-after-an-overflow | ++-+++ | growth_interval=2
    endless warmup: after the first overflow, the scale still grows by its warmup factor
MACHINE-would-raise/raises-at-its-minimum | ----- | min_scale=2**8
    missing error: no error is raised at min_scale, or it is raised too early or too late
MACHINE-would-raise/raises-at-its-minimum-only-when-a-backoff-is-due | --- | init_scale=2**8 min_scale=2**8 hysteresis=2
    early error: an overflow at min_scale raises an error although no backoff is due
MACHINE-would-raise/raises-where-the-scale-would-reach-its-limit | -++-+-- | raise_at_or_below=2**8
    missing error: no error is raised at the limit, or only below it
MACHINE-would-raise/raises-below-its-limit | +-- | init_scale=2**7 raise_at_or_below=2**8
    missing error: a scale that is below the limit already, such as a loaded one, raises no error
MACHINE-arithmetic/rounds-the-factor-and-then-the-product | ++-+--+-
    | init_scale=1000.0 growth_factor=1.1 backoff_factor=0.7 growth_interval=1 needs=rounding
    wrong arithmetic: the factor is not rounded first, so the last bits of the scale differ
MACHINE-arithmetic/rounds-a-reciprocal-as-the-published-scaler-does | --+--+
    | init_scale=10.0 growth_factor=3.0 growth_interval=1 needs=rounding
    wrong arithmetic: the scale is divided by the growth factor instead of multiplied by its reciprocal
MACHINE-float64-factor/rounds-a-wide-product-once | ++-+--+-
    | init_scale=9.0 growth_factor=1.1 backoff_factor=0.7 growth_interval=1 needs=rounding
    wrong arithmetic: the factor is rounded to float32 before the multiplication
MACHINE-divide-on-backoff/divides-by-49 | ---- | init_scale=1073741825.0 growth_factor=49.0 needs=rounding
    wrong arithmetic: the scale is multiplied by the reciprocal, or divided by its rounded reciprocal, which is not 49
MACHINE-min-scale/stays-at-its-own-floor | ----- | own=min_scale
    missing bound: the scale falls below the published scaler's own min_scale
MACHINE-max-scale/stays-at-its-own-cap | +++++ | own=max_scale growth_interval=1
    missing bound: the scale grows beyond the published scaler's own max_scale
"""


def _case(row: Row) -> Case:
    settings = dict(row.options)
    only = [CONDITIONS[name] for name in settings.pop("only", "").split(",") if name]
    about, own = settings.pop("about", row.name.partition("/")[0]), settings.pop("own", "")
    run = partial(_run, finite=row.script, settings=settings, about=about, only=only, own=own)
    return named(row.name, 0, row.catches, run, row.needs)


def _run(subject: Subject, settings: dict[str, Any], own: str, **options: Any) -> None:
    """Run a trace. With the preset's own bound, it begins at four times a minimum, or two powers of two below a maximum."""
    if own:
        bound = getattr(subject.rule(), own)
        if bound is None:
            raise Unsupported(f"{subject.supported.name} has no {own}")
        start = 4 * bound if own == "min_scale" else 2.0 ** (frexp(bound)[1] - 2)
        bounds = {own: bound} if own in subject.supported.parameters else {}
        settings = {"init_scale": start, **settings, **bounds}
    run_lockstep(subject, settings=settings, **options)


CASES = (*map(_case, rows(TRACES)), *DRAWN)
