"""What only some scalers have: their own bounds, an offset, a gate, a rate, a lag, a stop; and factors that must be rounded."""

from math import frexp

from ..model.adapter import Unsupported
from ..model.case import case
from ..model.subject import Subject
from .machine_lockstep import Only, Walk, claimed, trace

A_FIRST_FACTOR: Only = (lambda rule: rule.warmup_growth_factor not in (None, rule.growth_factor), "all its growths are alike")


@case("MACHINE-min-scale", 0, "no floor: the scale falls below the bound that the published scaler has of its own")
def stays_at_its_own_floor(subject: Subject) -> None:
    """The floor is not set, but the claim's own."""
    floor = subject.rule().min_scale
    if floor is None:
        raise Unsupported(f"{subject.family.name} has no floor of its own")
    settings = {"min_scale": floor} if "min_scale" in subject.family.parameters else {}
    Walk(subject, claimed(subject, "-----", "MACHINE-min-scale", init_scale=4 * floor, **settings)).follow("-----")


@case("MACHINE-max-scale", 0, "no cap: the scale grows beyond the bound that the published scaler has of its own")
def stays_at_its_own_cap(subject: Subject) -> None:
    """The cap is not set, but the claim's own; it is met from half the power of two below it."""
    cap = subject.rule().max_scale
    if cap is None:
        raise Unsupported(f"{subject.family.name} has no cap of its own")
    settings = {"max_scale": cap} if "max_scale" in subject.family.parameters else {}
    start = 2.0 ** (frexp(cap)[1] - 2)
    rule = claimed(subject, "+++++", "MACHINE-max-scale", init_scale=start, growth_interval=1, **settings)
    Walk(subject, rule).follow("+++++")


VARIANTS = (
    stays_at_its_own_floor,
    stays_at_its_own_cap,
    trace(
        "MACHINE-initial-good-steps/the-first-window-is-longer",
        "++++++++",
        "an offset forgotten: the first window is as long as the others, or all are as long as the first",
    ),
    trace(
        "MACHINE-initial-good-steps/the-window-after-an-overflow-is-longer",
        "-+++++++",
        "an offset forgotten: the window after an overflow is as long as one after a growth",
    ),
    trace(
        "MACHINE-block-at-bounds/a-growth-passes-the-maximum-of-a-gate",
        "+++++++-+++",
        "a gate that clamps: the scale rests on its maximum, where it should have passed it",
        max_scale=2.0**11,
        growth_factor=4.0,
    ),
    trace(
        "MACHINE-block-at-bounds/a-backoff-passes-the-minimum-of-a-gate",
        "---",
        "a gate that clamps: the scale rests on its minimum, where it should have passed it",
        min_scale=2.0**9,
        growth_factor=4.0,
    ),
    trace(
        "MACHINE-block-at-bounds/a-backoff-that-a-gate-forbids-leaves-the-window",
        "++-+",
        "a stale count: an overflow that a gate keeps from moving the scale ends the window",
        init_scale=2.0**9,
        min_scale=2.0**9,
    ),
    trace(
        "MACHINE-overflow-tolerance/tolerates-a-share-of-overflows",
        "+++-+---",
        "a rate ignored: it backs off at every overflow, or counts the steps without those that overflow",
        growth_interval=10,
        overflow_tolerance=0.5,
    ),
    trace(
        "MACHINE-overflow-tolerance/a-growth-begins-a-new-share",
        "+++-",
        "a stale count: steps before a growth count in the share of overflows",
        overflow_tolerance=0.5,
    ),
    trace(
        "MACHINE-overflow-tolerance/a-backoff-begins-a-new-share",
        "-+-",
        "a stale count: steps before a backoff count in the share of overflows",
        growth_interval=10,
        overflow_tolerance=0.5,
    ),
    trace(
        "MACHINE-delayed-update/a-change-comes-one-step-late",
        "-+++++",
        "a lag forgotten: the change is in force in the next step already, or never",
    ),
    trace(
        "MACHINE-warmup-growth-factor/grows-by-its-first-factor-at-first",
        "++++",
        "a beginning forgotten: it grows from the first step on as slowly as later",
        only=A_FIRST_FACTOR,
        growth_interval=2,
    ),
    trace(
        "MACHINE-warmup-growth-factor/grows-by-its-own-factor-after-an-overflow",
        "++-+++",
        "a beginning without an end: after the first overflow it still grows by its first factor",
        about=None,
        only=A_FIRST_FACTOR,
        growth_interval=2,
    ),
    trace(
        "MACHINE-would-raise/gives-up-at-its-minimum",
        "-----",
        "a run that burns on: at the minimum it goes on, or it gives up before or after it",
        min_scale=2.0**8,
    ),
    trace(
        "MACHINE-would-raise/gives-up-at-its-minimum-only-when-a-backoff-is-due",
        "---",
        "a stop without patience: an overflow at the minimum ends the run, though it would not have backed off",
        init_scale=2.0**8,
        min_scale=2.0**8,
        hysteresis=2,
    ),
    trace(
        "MACHINE-would-raise/gives-up-where-it-would-come-down-to-its-limit",
        "----",
        "a run that burns on: at the limit it goes on, or it gives up only below it",
        raise_at_or_below=2.0**8,
    ),
)

ROUNDING = (
    trace(
        "MACHINE-arithmetic/rounds-the-factor-and-then-the-product",
        "++-+--+-",
        "wrong factor arithmetic: the product is that of the unrounded factor, and scales drift apart in their last bits",
        "rounding",
        init_scale=1000.0,
        growth_factor=1.1,
        backoff_factor=0.7,
        growth_interval=1,
    ),
    trace(
        "MACHINE-arithmetic/rounds-a-reciprocal-as-the-published-scaler-does",
        "--+--+",
        "wrong factor arithmetic: it divides by the growth factor, where the published scaler multiplies by a reciprocal",
        "rounding",
        init_scale=10.0,
        growth_factor=3.0,
        growth_interval=1,
    ),
    trace(
        "MACHINE-float64-factor/rounds-a-wide-product-once",
        "++-+--+-",
        "wrong factor arithmetic: the factor is rounded to float32 before the product",
        "rounding",
        init_scale=9.0,
        growth_factor=1.1,
        growth_interval=1,
    ),
    trace(
        "MACHINE-divide-on-backoff/divides-by-49",
        "----",
        "wrong factor arithmetic: it multiplies by the reciprocal, or divides by the reciprocal of that, which is not 49",
        "rounding",
        init_scale=2.0**30 + 1.0,
        growth_factor=49.0,
    ),
)
