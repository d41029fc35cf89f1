"""Chapter 30, state machine: the scale after each step of an overflow trace, and after saving and loading."""

from .machine_drawn import DRAWN
from .machine_lockstep import WINDOW, Only, trace
from .machine_variants import ROUNDING, VARIANTS

EVERY_STEP: Only = (lambda rule: rule.growth_interval == 1, "its growth interval cannot be 1")
NO_BOUND: Only = (
    lambda rule: not rule.skip_infinite_growth and rule.max_scale is None and rule.dtype == "float32",
    "it skips infinite growths, has a max_scale, or its scale is float64",
)

FLOAT64: Only = (lambda rule: rule.dtype == "float64", "its scale is float32")
NO_FLOOR: Only = (lambda rule: rule.min_scale is None or rule.min_scale < 2.0**-4, "it has a min_scale")
NO_CAP: Only = (lambda rule: rule.max_scale is None, "its max_scale keeps the scale from the largest float32")
GROWTH_RESETS: Only = (
    lambda rule: "growth" in rule.reset_bad_steps_on and "finite" not in rule.reset_bad_steps_on,
    "a growth does not reset its overflow count, or a finite step does",
)
SKIPPED_GROWTH_RESETS: Only = (
    lambda rule: GROWTH_RESETS[0](rule) and NO_CAP[0](rule),
    "a growth does not reset its overflow count, or its max_scale keeps the scale from the largest float32",
)

STARTS = (
    trace("MACHINE-state/starts-at-its-initial-scale", "", "ignored constant: the first scale is fixed", init_scale=2.0**8),
    trace(
        "MACHINE-state/starts-above-the-largest-float16", "", "16-bit scale: 2**17 becomes infinity or 65504", init_scale=2.0**17
    ),
    trace(
        "MACHINE-state/starts-at-a-scale-of-twenty-bits",
        "",
        "rounded scale: the scale is stored with fewer bits than float32, or as a power of two",
        "rounding",
        init_scale=2.0**12 + 2.0**-7,
    ),
    trace(
        "MACHINE-state/starts-at-a-scale-of-forty-bits",
        "",
        "rounded scale: the scale is stored in float32, but the published scaler stores a float64",
        "rounding",
        only=FLOAT64,
        init_scale=2.0**12 + 2.0**-27,
    ),
)

GROWTHS = (
    trace(
        "MACHINE-growth-window/grows-in-the-third-step",
        "++++",
        "off-by-one: the first growth window is longer or shorter than the growth interval",
        only=WINDOW,
    ),
    trace(
        "MACHINE-growth-window/grows-in-every-step-with-an-interval-of-1",
        "-+++++",
        "off-by-one: with a growth interval of 1, the scale grows in every second step, or never",
        only=EVERY_STEP,
        growth_interval=1,
    ),
    trace(
        "MACHINE-growth-factor/grows-by-4",
        "+++++++++",
        "ignored constant: the scale doubles for every growth factor",
        about="MACHINE-growth-window",
        growth_factor=4.0,
    ),
    trace(
        "MACHINE-growth-resets/grows-again-a-window-after-a-growth",
        "+++++++++",
        "stale count: after the first growth, the scale grows in every step, or too late",
    ),
    trace(
        "MACHINE-skip-infinite-growth/a-growth-at-the-top-keeps-the-scale",
        "+++-+++",
        "missing overflow check: 2**127 grows to infinity or to the largest float32, or never changes again",
        only=NO_CAP,
        init_scale=2.0**126,
        growth_interval=1,
    ),
    trace(
        "MACHINE-skip-infinite-growth/grows-to-infinity-without-a-guard",
        "+++++",
        "additional bound: the scale stays finite, but the published scale becomes infinite",
        about="MACHINE-growth-window",
        only=NO_BOUND,
        init_scale=2.0**126,
        growth_interval=1,
    ),
    trace(
        "MACHINE-growth-factor/grows-many-times",
        "+" * 90,
        "additional bound: after some growths, or at 2**24 or 2**32, the scale stops growing",
        about="MACHINE-growth-window",
        growth_interval=1,
    ),
    trace("MACHINE-max-scale/stays-at-its-cap", "+++++", "missing bound: it keeps growing", max_scale=2.0**12, growth_interval=1),
    trace(
        "MACHINE-max-scale/a-growth-over-the-maximum-is-clamped",
        "+++",
        "wrong order: max_scale is compared before the growth, so the new scale exceeds it, or the growth is skipped",
        max_scale=2.0**11,
        growth_interval=1,
        growth_factor=4.0,
    ),
)

BACKOFFS = (
    trace(
        "MACHINE-backoff/backs-off-at-every-overflow-in-a-row",
        "-----+",
        "wrong polarity: overflows count as finite steps, or consecutive overflows count as one",
    ),
    trace(
        "MACHINE-backoff/backs-off-at-more-than-forty-overflows",
        "-" * 45,
        "overflow limit: after a number of consecutive overflows, an error is raised or the scale stops changing",
        init_scale=2.0**50,
    ),
    trace(
        "MACHINE-backoff/backs-off-by-a-quarter",
        "-+",
        "ignored constant: the scale is halved, or divided by the growth factor, for every backoff factor",
        backoff_factor=0.25,
    ),
    trace(
        "MACHINE-backoff/backs-off-beside-a-growth-factor-of-4",
        "-+",
        "shared factor: the backoff divides by the growth factor, or always halves",
        growth_factor=4.0,
    ),
    trace(
        "MACHINE-backoff/backs-off-below-1",
        "-+",
        "additional bound: the scale stays at 1 or becomes 0 without a min_scale",
        only=NO_FLOOR,
        init_scale=1.0,
    ),
    trace(
        "MACHINE-overflow-resets/an-overflow-ends-the-window",
        "+-+++++",
        "stale count: finite steps before an overflow count towards the next growth",
    ),
    trace(
        "MACHINE-overflow-resets/an-overflow-that-keeps-the-scale-ends-the-window",
        "++-++++",
        "stale count: only an overflow that backs off resets the count of finite steps",
        hysteresis=3,
    ),
    trace(
        "MACHINE-min-scale/stays-at-its-minimum", "----", "ignored constant: the scale falls below min_scale", min_scale=2.0**8
    ),
    trace(
        "MACHINE-min-scale/a-backoff-under-the-minimum-is-clamped",
        "--",
        "wrong order: min_scale is compared before the backoff, so the new scale falls below it, or the backoff is skipped",
        min_scale=2.0**9,
        backoff_factor=0.25,
    ),
    trace("MACHINE-static/never-changes", "+--+++-" * 8, "changing constant: a static scale backs off"),
)

HYSTERESIS = (
    trace(
        "MACHINE-hysteresis/backs-off-at-the-fourth-overflow",
        "----+",
        "wrong hysteresis: the scale backs off at the first or second overflow for every hysteresis, or one overflow too late",
        hysteresis=4,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-finite-step",
        "-+-+",
        "wrong reset: a finite step resets the overflow count, or keeps it, unlike the published rule",
        hysteresis=2,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-growth",
        "-++++-+",
        "wrong reset: a growth resets the overflow count, or keeps it, unlike the published rule",
        hysteresis=2,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-skipped-growth",
        "-++++-+",
        "incomplete growth: a skipped infinite growth does not reset the overflow count",
        about="MACHINE-skip-infinite-growth",
        only=SKIPPED_GROWTH_RESETS,
        init_scale=2.0**127,
        hysteresis=2,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-clamped-growth",
        "-++++-+",
        "incomplete growth: a growth at max_scale does not reset the overflow count",
        about="MACHINE-max-scale",
        only=GROWTH_RESETS,
        max_scale=2.0**10,
        hysteresis=2,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-resets-overflows-at-a-backoff",
        "------+",
        "wrong reset: after a backoff the next overflow also backs off, or does not, unlike the published rule",
        about="MACHINE-hysteresis",
        hysteresis=2,
    ),
)

CASES = (*STARTS, *GROWTHS, *BACKOFFS, *HYSTERESIS, *VARIANTS, *ROUNDING, *DRAWN)
