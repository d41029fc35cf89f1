"""Chapter 30, the machine: overflows in, scales out; and what was saved goes on."""

from .machine_handles import HANDLES, RESUME
from .machine_lockstep import A_WINDOW, Only, trace
from .machine_variants import DIALECTS, ROUNDING

EVERY_STEP: Only = (lambda rule: rule.growth_interval == 1, "it has no window of one step")
NO_BOUND: Only = (
    lambda rule: not rule.growth_guard and rule.max_scale is None and rule.dtype == "float32",
    "it has a guard or a cap, or is float64",
)

FLOAT64: Only = (lambda rule: rule.dtype == "float64", "its scale is float32")
NO_FLOOR: Only = (lambda rule: rule.min_scale is None or rule.min_scale < 2.0**-4, "it has a floor")
NO_CAP: Only = (lambda rule: rule.max_scale is None, "a cap keeps it from the top, whether it has a guard or not")
GROWTH_FORGETS: Only = (
    lambda rule: "growth" in rule.refill and "finite" not in rule.refill,
    "a growth is not what makes it forget overflows",
)
GUARDED_GROWTH_FORGETS: Only = (
    lambda rule: GROWTH_FORGETS[0](rule) and NO_CAP[0](rule),
    "a growth is not what makes it forget overflows, or a cap keeps it from the top",
)

STARTS = (
    trace(
        "starts-at-its-initial-scale",
        "MACHINE-state",
        "",
        "a constant ignored: it starts at a scale of its own",
        init_scale=2.0**8,
    ),
    trace(
        "starts-above-the-largest-float16",
        "MACHINE-state",
        "",
        "a 16-bit scale: 2**17 becomes infinite, or stays at 65504",
        init_scale=2.0**17,
    ),
    trace(
        "starts-at-a-scale-of-twenty-bits",
        "MACHINE-state",
        "",
        "a rounded scale: it is held in fewer bits than float32 has, or as a power of two",
        "rounding",
        init_scale=2.0**12 + 2.0**-7,
    ),
    trace(
        "starts-at-a-scale-of-forty-bits",
        "MACHINE-state",
        "",
        "a rounded scale: it is held in float32, where the published one is a float64 of the host",
        "rounding",
        only=FLOAT64,
        init_scale=2.0**12 + 2.0**-27,
    ),
)

GROWTHS = (
    trace(
        "grows-in-the-third-step",
        "MACHINE-growth-window",
        "++++",
        "off by one: the first window is longer or shorter than its interval",
        only=A_WINDOW,
    ),
    trace(
        "grows-in-every-step-with-an-interval-of-1",
        "MACHINE-growth-window",
        "-+++++",
        "off by one: with an interval of 1 it grows in every second step, or never",
        only=EVERY_STEP,
        growth_interval=1,
    ),
    trace(
        "grows-after-three-hundred-steps",
        "MACHINE-growth-window",
        "-" + "+" * 303,
        "a narrow count: the finite steps are counted in 8 bits, and the scale never grows",
        only=A_WINDOW,
        growth_interval=300,
    ),
    trace(
        "grows-by-4",
        "MACHINE-growth-factor",
        "+++++++++",
        "a constant ignored: it doubles, whatever the factor is",
        about="MACHINE-growth-window",
        growth_factor=4.0,
    ),
    trace(
        "grows-again-a-window-after-a-growth",
        "MACHINE-growth-resets",
        "+++++++++",
        "a stale count: after the first growth it grows in every step, or late",
    ),
    trace(
        "a-growth-at-the-top-keeps-the-scale",
        "MACHINE-growth-guard",
        "+++-+++",
        "an unguarded top: 2**127 grows to infinity, or to the largest float32, or stays for ever",
        only=NO_CAP,
        init_scale=2.0**126,
        growth_interval=1,
    ),
    trace(
        "grows-to-infinity-without-a-guard",
        "MACHINE-growth-guard",
        "+++++",
        "a guard of its own: the scale stays under infinity where the published one does not",
        about="MACHINE-growth-window",
        only=NO_BOUND,
        init_scale=2.0**126,
        growth_interval=1,
    ),
    trace(
        "grows-many-times",
        "MACHINE-growth-factor",
        "+" * 90,
        "a bound of its own: after some growths, or at 2**24 or 2**32, the scale stays where nothing bounds it",
        about="MACHINE-growth-window",
        growth_interval=1,
    ),
    trace(
        "stays-at-its-cap",
        "MACHINE-cap",
        "+++++",
        "no cap: the scale grows beyond the bound that it was given",
        init_scale=2.0**10,
        max_scale=2.0**12,
        growth_interval=1,
    ),
    trace(
        "a-growth-over-the-cap-lands-on-it",
        "MACHINE-cap",
        "+++",
        "a cap asked before the growth: a growth from under it lands above it, or is not made",
        init_scale=2.0**10,
        max_scale=2.0**11,
        growth_interval=1,
        growth_factor=4.0,
    ),
)

BACKOFFS = (
    trace(
        "backs-off-at-every-overflow-in-a-row",
        "MACHINE-backoff",
        "-----+",
        "wrong polarity: overflows are taken for finite steps; or those right after a first one are taken to be the same",
    ),
    trace(
        "backs-off-at-more-than-forty-overflows",
        "MACHINE-backoff",
        "-" * 45,
        "a budget of overflows: after some of them in a row it gives up, or stays where it is",
        init_scale=2.0**50,
    ),
    trace(
        "backs-off-by-a-quarter",
        "MACHINE-backoff",
        "-+",
        "a constant ignored: it halves, or divides by the growth factor, whatever the factor is",
        backoff_factor=0.25,
    ),
    trace(
        "backs-off-beside-a-growth-factor-of-4",
        "MACHINE-backoff",
        "-+",
        "one factor for two: it divides by the growth factor where it has a backoff factor, or halves where it has none",
        growth_factor=4.0,
    ),
    trace(
        "backs-off-below-1",
        "MACHINE-backoff",
        "-+",
        "a bound of its own: the scale stays at 1 or becomes 0, where nothing bounds it",
        only=NO_FLOOR,
        init_scale=1.0,
    ),
    trace(
        "an-overflow-ends-the-window",
        "MACHINE-overflow-resets",
        "+-+++++",
        "a stale count: finite steps before an overflow count for the growth after it",
    ),
    trace(
        "an-overflow-that-keeps-the-scale-ends-the-window",
        "MACHINE-overflow-resets",
        "++-++++",
        "a stale count: only an overflow that backs off returns the count",
        hysteresis=3,
    ),
    trace(
        "stays-at-its-floor",
        "MACHINE-floor",
        "----",
        "a constant ignored: the scale falls below the floor that it was given",
        init_scale=2.0**10,
        min_scale=2.0**8,
    ),
    trace(
        "a-backoff-under-the-floor-lands-on-it",
        "MACHINE-floor",
        "--",
        "a floor asked before the backoff: a backoff from above it lands below it, or is not made",
        init_scale=2.0**10,
        min_scale=2.0**9,
        backoff_factor=0.25,
    ),
    trace(
        "never-moves",
        "MACHINE-static",
        "+--+++-" * 8,
        "a moving constant: a scale that is meant to stay backs off",
    ),
)

HYSTERESIS = (
    trace(
        "backs-off-at-the-fourth-overflow",
        "MACHINE-hysteresis",
        "----+",
        "wrong hysteresis: it backs off at the first overflow or the second, whatever was asked for, or one too late",
        hysteresis=4,
    ),
    trace(
        "keeps-or-forgets-overflows-over-a-finite-step",
        "MACHINE-refill",
        "-+-+",
        "wrong refill: a finite step forgets the overflows before it, or does not, against the published rule",
        hysteresis=2,
    ),
    trace(
        "keeps-or-forgets-overflows-over-a-growth",
        "MACHINE-refill",
        "-++++-+",
        "wrong refill: a growth forgets the overflows before it, or does not, against the published rule",
        hysteresis=2,
    ),
    trace(
        "keeps-or-forgets-overflows-over-a-growth-that-is-kept-back",
        "MACHINE-refill",
        "-++++-+",
        "a growth half made: where the guard keeps the scale, the overflows before it are not forgotten either",
        about="MACHINE-growth-guard",
        only=GUARDED_GROWTH_FORGETS,
        init_scale=2.0**127,
        hysteresis=2,
    ),
    trace(
        "keeps-or-forgets-overflows-over-a-growth-at-the-cap",
        "MACHINE-refill",
        "-++++-+",
        "a growth half made: where the cap keeps the scale, the overflows before it are not forgotten either",
        about="MACHINE-cap",
        only=GROWTH_FORGETS,
        init_scale=2.0**10,
        max_scale=2.0**10,
        hysteresis=2,
    ),
    trace(
        "keeps-or-forgets-overflows-over-a-backoff",
        "MACHINE-refill",
        "------+",
        "wrong refill: after a backoff the next overflow backs off too, or does not, against the published rule",
        about="MACHINE-hysteresis",
        hysteresis=2,
    ),
)

CASES = (*STARTS, *GROWTHS, *BACKOFFS, *HYSTERESIS, *DIALECTS, *ROUNDING, *HANDLES, *RESUME)
