"""Cases for variants of the rule that only some scalers have, and for factors that must be rounded."""

from math import frexp

from ..model.adapter import Unsupported
from ..model.case import case
from ..model.subject import Subject
from .machine_lockstep import LockstepRun, Only, supported_rule, trace

WARMUP_FACTOR: Only = (lambda rule: rule.warmup_growth_factor not in (None, rule.growth_factor), "it has no warmup growth factor")


@case("MACHINE-min-scale", 0, "missing bound: the scale falls below the published scaler's own min_scale")
def stays_at_its_own_floor(subject: Subject) -> None:
    """The preset's own min_scale is not overridden."""
    min_scale = subject.rule().min_scale
    if min_scale is None:
        raise Unsupported(f"{subject.supported.name} sets no min_scale")
    settings = {"min_scale": min_scale} if "min_scale" in subject.supported.parameters else {}
    rule = supported_rule(subject, "-----", "MACHINE-min-scale", init_scale=4 * min_scale, **settings)
    LockstepRun(subject, rule).follow("-----")


@case("MACHINE-max-scale", 0, "missing bound: the scale grows beyond the published scaler's own max_scale")
def stays_at_its_own_cap(subject: Subject) -> None:
    """The preset's own max_scale is not overridden. The initial scale is half the power of two below it."""
    max_scale = subject.rule().max_scale
    if max_scale is None:
        raise Unsupported(f"{subject.supported.name} sets no max_scale")
    settings = {"max_scale": max_scale} if "max_scale" in subject.supported.parameters else {}
    start = 2.0 ** (frexp(max_scale)[1] - 2)
    rule = supported_rule(subject, "+++++", "MACHINE-max-scale", init_scale=start, growth_interval=1, **settings)
    LockstepRun(subject, rule).follow("+++++")


VARIANTS = (
    stays_at_its_own_floor,
    stays_at_its_own_cap,
    trace(
        "MACHINE-initial-good-steps/the-first-window-is-longer",
        "++++++++",
        "ignored offset: the first growth window is as long as the others, or all are as long as the first",
    ),
    trace(
        "MACHINE-initial-good-steps/the-window-after-an-overflow-is-longer",
        "-+++++++",
        "ignored offset: the growth window after an overflow is as long as one after a growth",
    ),
    trace(
        "MACHINE-block-at-bounds/a-growth-can-pass-the-maximum",
        "+++++++-+++",
        "clamping: the scale is clamped to max_scale, but the published scaler only blocks growths at or beyond it",
        max_scale=2.0**11,
        growth_factor=4.0,
    ),
    trace(
        "MACHINE-block-at-bounds/a-backoff-can-pass-the-minimum",
        "---",
        "clamping: the scale is clamped to min_scale, but the published scaler only blocks backoffs at or beyond it",
        min_scale=2.0**9,
        growth_factor=4.0,
    ),
    trace(
        "MACHINE-block-at-bounds/a-blocked-backoff-leaves-the-window",
        "++-+",
        "wrong reset: a blocked backoff resets the count of finite steps",
        init_scale=2.0**9,
        min_scale=2.0**9,
    ),
    trace(
        "MACHINE-overflow-tolerance/tolerates-a-share-of-overflows",
        "+++-+---",
        "ignored tolerance: the scale backs off at every overflow, or the share is taken of finite steps only",
        growth_interval=10,
        overflow_tolerance=0.5,
    ),
    trace(
        "MACHINE-overflow-tolerance/a-growth-begins-a-new-share",
        "+++-",
        "stale count: steps before a growth count in the share of overflows",
        overflow_tolerance=0.5,
    ),
    trace(
        "MACHINE-overflow-tolerance/a-backoff-begins-a-new-share",
        "-+-",
        "stale count: steps before a backoff count in the share of overflows",
        growth_interval=10,
        overflow_tolerance=0.5,
    ),
    trace("MACHINE-delayed-update/a-change-comes-one-step-late", "-+++++", "missing delay: a change applies at once, or never"),
    trace(
        "MACHINE-warmup-growth-factor/grows-by-its-own-factor-after-an-overflow",
        "++-+++",
        "endless warmup: after the first overflow, the scale still grows by its warmup factor",
        about=None,
        only=WARMUP_FACTOR,
        growth_interval=2,
    ),
    trace(
        "MACHINE-would-raise/raises-at-its-minimum",
        "-----",
        "missing error: no error is raised at min_scale, or it is raised too early or too late",
        min_scale=2.0**8,
    ),
    trace(
        "MACHINE-would-raise/raises-at-its-minimum-only-when-a-backoff-is-due",
        "---",
        "early error: an overflow at min_scale raises an error although no backoff is due",
        init_scale=2.0**8,
        min_scale=2.0**8,
        hysteresis=2,
    ),
    trace(
        "MACHINE-would-raise/raises-where-the-scale-would-reach-its-limit",
        "----",
        "missing error: no error is raised at the limit, or only below it",
        raise_at_or_below=2.0**8,
    ),
)

ROUNDING = (
    trace(
        "MACHINE-arithmetic/rounds-the-factor-and-then-the-product",
        "++-+--+-",
        "wrong arithmetic: the factor is not rounded first, so the last bits of the scale differ",
        "rounding",
        init_scale=1000.0,
        growth_factor=1.1,
        backoff_factor=0.7,
        growth_interval=1,
    ),
    trace(
        "MACHINE-arithmetic/rounds-a-reciprocal-as-the-published-scaler-does",
        "--+--+",
        "wrong arithmetic: the scale is divided by the growth factor instead of multiplied by its reciprocal",
        "rounding",
        init_scale=10.0,
        growth_factor=3.0,
        growth_interval=1,
    ),
    trace(
        "MACHINE-float64-factor/rounds-a-wide-product-once",
        "++-+--+-",
        "wrong arithmetic: the factor is rounded to float32 before the multiplication",
        "rounding",
        init_scale=9.0,
        growth_factor=1.1,
        growth_interval=1,
    ),
    trace(
        "MACHINE-divide-on-backoff/divides-by-49",
        "----",
        "wrong arithmetic: the scale is multiplied by the reciprocal, or divided by its rounded reciprocal, which is not 49",
        "rounding",
        init_scale=2.0**30 + 1.0,
        growth_factor=49.0,
    ),
)
