"""Chapter 30, the machine: overflows in, scales out; and what was saved goes on."""

from .machine_handles import HANDLES, RESUME
from .machine_lockstep import A_WINDOW, Only, trace
from .machine_variants import ROUNDING, VARIANTS

EVERY_STEP: Only = (lambda rule: rule.growth_interval == 1, "it has no window of one step")
NO_BOUND: Only = (
    lambda rule: not rule.skip_infinite_growth and rule.max_scale is None and rule.dtype == "float32",
    "it has a guard or a cap, or is float64",
)

FLOAT64: Only = (lambda rule: rule.dtype == "float64", "its scale is float32")
NO_FLOOR: Only = (lambda rule: rule.min_scale is None or rule.min_scale < 2.0**-4, "it has a floor")
NO_CAP: Only = (lambda rule: rule.max_scale is None, "a cap keeps it from the top, whether it has a guard or not")
GROWTH_FORGETS: Only = (
    lambda rule: "growth" in rule.reset_bad_steps_on and "finite" not in rule.reset_bad_steps_on,
    "a growth is not what makes it forget overflows",
)
GUARDED_GROWTH_FORGETS: Only = (
    lambda rule: GROWTH_FORGETS[0](rule) and NO_CAP[0](rule),
    "a growth is not what makes it forget overflows, or a cap keeps it from the top",
)

STARTS = (
    trace(
        "MACHINE-state/starts-at-its-initial-scale",
        "",
        "a constant ignored: it starts at a scale of its own",
        init_scale=2.0**8,
    ),
    trace(
        "MACHINE-state/starts-above-the-largest-float16",
        "",
        "a 16-bit scale: 2**17 becomes infinite, or stays at 65504",
        init_scale=2.0**17,
    ),
    trace(
        "MACHINE-state/starts-at-a-scale-of-twenty-bits",
        "",
        "a rounded scale: it is held in fewer bits than float32 has, or as a power of two",
        "rounding",
        init_scale=2.0**12 + 2.0**-7,
    ),
    trace(
        "MACHINE-state/starts-at-a-scale-of-forty-bits",
        "",
        "a rounded scale: it is held in float32, where the published one is a float64 of the host",
        "rounding",
        only=FLOAT64,
        init_scale=2.0**12 + 2.0**-27,
    ),
)

GROWTHS = (
    trace(
        "MACHINE-growth-window/grows-in-the-third-step",
        "++++",
        "off by one: the first window is longer or shorter than its interval",
        only=A_WINDOW,
    ),
    trace(
        "MACHINE-growth-window/grows-in-every-step-with-an-interval-of-1",
        "-+++++",
        "off by one: with an interval of 1 it grows in every second step, or never",
        only=EVERY_STEP,
        growth_interval=1,
    ),
    trace(
        "MACHINE-growth-window/grows-after-three-hundred-steps",
        "-" + "+" * 303,
        "a narrow count: the finite steps are counted in 8 bits, and the scale never grows",
        only=A_WINDOW,
        growth_interval=300,
    ),
    trace(
        "MACHINE-growth-factor/grows-by-4",
        "+++++++++",
        "a constant ignored: it doubles, whatever the factor is",
        about="MACHINE-growth-window",
        growth_factor=4.0,
    ),
    trace(
        "MACHINE-growth-resets/grows-again-a-window-after-a-growth",
        "+++++++++",
        "a stale count: after the first growth it grows in every step, or late",
    ),
    trace(
        "MACHINE-skip-infinite-growth/a-growth-at-the-top-keeps-the-scale",
        "+++-+++",
        "an unguarded top: 2**127 grows to infinity, or to the largest float32, or stays for ever",
        only=NO_CAP,
        init_scale=2.0**126,
        growth_interval=1,
    ),
    trace(
        "MACHINE-skip-infinite-growth/grows-to-infinity-without-a-guard",
        "+++++",
        "a guard of its own: the scale stays under infinity where the published one does not",
        about="MACHINE-growth-window",
        only=NO_BOUND,
        init_scale=2.0**126,
        growth_interval=1,
    ),
    trace(
        "MACHINE-growth-factor/grows-many-times",
        "+" * 90,
        "a bound of its own: after some growths, or at 2**24 or 2**32, the scale stays where nothing bounds it",
        about="MACHINE-growth-window",
        growth_interval=1,
    ),
    trace(
        "MACHINE-max-scale/stays-at-its-cap",
        "+++++",
        "no cap: the scale grows beyond the bound that it was given",
        max_scale=2.0**12,
        growth_interval=1,
    ),
    trace(
        "MACHINE-max-scale/a-growth-over-the-cap-lands-on-it",
        "+++",
        "a cap asked before the growth: a growth from under it lands above it, or is not made",
        max_scale=2.0**11,
        growth_interval=1,
        growth_factor=4.0,
    ),
)

BACKOFFS = (
    trace(
        "MACHINE-backoff/backs-off-at-every-overflow-in-a-row",
        "-----+",
        "wrong polarity: overflows are taken for finite steps; or those right after a first one are taken to be the same",
    ),
    trace(
        "MACHINE-backoff/backs-off-at-more-than-forty-overflows",
        "-" * 45,
        "a budget of overflows: after some of them in a row it gives up, or stays where it is",
        init_scale=2.0**50,
    ),
    trace(
        "MACHINE-backoff/backs-off-by-a-quarter",
        "-+",
        "a constant ignored: it halves, or divides by the growth factor, whatever the factor is",
        backoff_factor=0.25,
    ),
    trace(
        "MACHINE-backoff/backs-off-beside-a-growth-factor-of-4",
        "-+",
        "one factor for two: it divides by the growth factor where it has a backoff factor, or halves where it has none",
        growth_factor=4.0,
    ),
    trace(
        "MACHINE-backoff/backs-off-below-1",
        "-+",
        "a bound of its own: the scale stays at 1 or becomes 0, where nothing bounds it",
        only=NO_FLOOR,
        init_scale=1.0,
    ),
    trace(
        "MACHINE-overflow-resets/an-overflow-ends-the-window",
        "+-+++++",
        "a stale count: finite steps before an overflow count for the growth after it",
    ),
    trace(
        "MACHINE-overflow-resets/an-overflow-that-keeps-the-scale-ends-the-window",
        "++-++++",
        "a stale count: only an overflow that backs off returns the count",
        hysteresis=3,
    ),
    trace(
        "MACHINE-min-scale/stays-at-its-floor",
        "----",
        "a constant ignored: the scale falls below the floor that it was given",
        min_scale=2.0**8,
    ),
    trace(
        "MACHINE-min-scale/a-backoff-under-the-floor-lands-on-it",
        "--",
        "a floor asked before the backoff: a backoff from above it lands below it, or is not made",
        min_scale=2.0**9,
        backoff_factor=0.25,
    ),
    trace("MACHINE-static/never-moves", "+--+++-" * 8, "a moving constant: a scale that is meant to stay backs off"),
)

HYSTERESIS = (
    trace(
        "MACHINE-hysteresis/backs-off-at-the-fourth-overflow",
        "----+",
        "wrong hysteresis: it backs off at the first overflow or the second, whatever was asked for, or one too late",
        hysteresis=4,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-forgets-overflows-over-a-finite-step",
        "-+-+",
        "wrong refill: a finite step forgets the overflows before it, or does not, against the published rule",
        hysteresis=2,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-forgets-overflows-over-a-growth",
        "-++++-+",
        "wrong refill: a growth forgets the overflows before it, or does not, against the published rule",
        hysteresis=2,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-forgets-overflows-over-a-growth-that-is-kept-back",
        "-++++-+",
        "a growth half made: where the guard keeps the scale, the overflows before it are not forgotten either",
        about="MACHINE-skip-infinite-growth",
        only=GUARDED_GROWTH_FORGETS,
        init_scale=2.0**127,
        hysteresis=2,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-forgets-overflows-over-a-growth-at-the-cap",
        "-++++-+",
        "a growth half made: where the cap keeps the scale, the overflows before it are not forgotten either",
        about="MACHINE-max-scale",
        only=GROWTH_FORGETS,
        max_scale=2.0**10,
        hysteresis=2,
    ),
    trace(
        "MACHINE-reset-bad-steps/keeps-or-forgets-overflows-over-a-backoff",
        "------+",
        "wrong refill: after a backoff the next overflow backs off too, or does not, against the published rule",
        about="MACHINE-hysteresis",
        hysteresis=2,
    ),
)

CASES = (*STARTS, *GROWTHS, *BACKOFFS, *HYSTERESIS, *VARIANTS, *ROUNDING, *HANDLES, *RESUME)
