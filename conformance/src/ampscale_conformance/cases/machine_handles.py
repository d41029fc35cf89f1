"""Cases on handles: independence of scalers, side effects of reading, and saved states."""

from typing import Any

from ampscale import LossScaleRule

from ..model.adapter import Unsupported
from ..model.case import case
from ..model.subject import Subject
from .machine_lockstep import WINDOW, LockstepRun, every_pattern, supported_rule, trace
from .machine_variants import WARMUP_FACTOR

MIXED = "++-+++-++++-+"


@case("MACHINE-state", 0, "unusable claim: a scaler cannot be created with the constants that it claims, so no other case runs")
def can_be_made_as_it_claims_to_be(subject: Subject) -> None:
    """An implementation cannot reject its own constants."""
    try:
        subject.create(subject.supported.make())
    except Unsupported as unsupported:
        subject.expect(False, f"expected a scaler with the constants of {subject.supported.name}, got Unsupported: {unsupported}")


@case("MACHINE-every-sequence", 0, "any bug: the scale is wrong after some pattern of six steps")
def follows_every_pattern_of_six_steps(subject: Subject) -> None:
    """Growth windows of two steps, if the interval can be set."""
    _every_pattern(subject, growth_interval=2)


@case("MACHINE-every-sequence", 0, "any bug: the scale is wrong after some pattern of six steps with hysteresis")
def follows_every_pattern_of_six_steps_with_hysteresis(subject: Subject) -> None:
    """Growth windows of three steps, and a backoff at the second overflow."""
    _every_pattern(subject, growth_interval=3, hysteresis=2)


@case("MACHINE-every-sequence", 0, "any bug: the scale is wrong after some pattern of six steps between two bounds")
def follows_every_pattern_of_six_steps_between_bounds(subject: Subject) -> None:
    """The scale reaches both bounds."""
    bounds = {name: value for name, value in BOUNDS.items() if name in subject.supported.parameters}
    if not bounds:
        raise Unsupported(f"{subject.supported.name} has no bound to set")
    _every_pattern(subject, growth_interval=2, **bounds)


BOUNDS = {"min_scale": 2.0**8, "max_scale": 2.0**12}


def _every_pattern(subject: Subject, **settings: Any) -> None:
    finite = every_pattern(supported_rule(subject, "", **settings), 6)
    LockstepRun(subject, supported_rule(subject, finite, "MACHINE-backoff", **settings)).compare().follow(finite)


@case("MACHINE-pure", 0, "shared state: a step of one scaler changes another scaler with the same constants")
def two_scalers_do_not_share_their_state(subject: Subject) -> None:
    """They take turns, with opposite flags."""
    rule = _changing_rule(subject)
    first, second = LockstepRun(subject, rule), LockstepRun(subject, rule)
    for sign in MIXED:
        first.follow(sign)
        second.advance("-" if sign == "+" else "+")


@case("MACHINE-pure", 0, "global state: a new scaler continues where the previous one ended")
def the_same_steps_give_the_same_again(subject: Subject) -> None:
    """One scaler after the other, with the same constants."""
    rule = _changing_rule(subject)
    for _ in range(2):
        LockstepRun(subject, rule).compare().follow(MIXED)


@case("MACHINE-pure", 0, "read with a side effect: reading the scale changes it, so logging affects training")
def reading_the_scale_leaves_it(subject: Subject) -> None:
    """The scale is read twice after each step."""
    run = LockstepRun(subject, _changing_rule(subject))
    for sign in MIXED:
        run.follow(sign).compare()


@case("MACHINE-pure", 0, "deferred update: steps between two reads of the scale are lost, or counted as one")
def steps_count_without_being_read(subject: Subject) -> None:
    """The scale is read once, after all steps."""
    LockstepRun(subject, _changing_rule(subject)).advance(MIXED).compare()


@case("STEP-resume", 0, "shared state: later steps of the scaler change the saved state", "resume")
def what_was_saved_stays_as_it_was(subject: Subject) -> None:
    """The scaler is updated between saving and loading."""
    run = LockstepRun(subject, _changing_rule(subject))
    saved, start = run.saved(), run.with_handle(run.handle)
    run.advance(MIXED)
    start.loaded(saved).compare().follow(MIXED)


@case("STEP-resume", 0, "shared state: steps of a loaded scaler change the saved state", "resume")
def what_was_saved_can_be_loaded_twice(subject: Subject) -> None:
    """The first loaded scaler is updated before the second one is loaded."""
    run = LockstepRun(subject, _changing_rule(subject))
    saved = run.saved()
    run.loaded(saved).advance(MIXED)
    run.loaded(saved).compare().follow(MIXED)


@case("STEP-resume", 0, "save with a side effect: saving resets a count, so the scale grows too late", "resume")
def saving_leaves_the_scaler(subject: Subject) -> None:
    """The scaler is saved after every step."""
    run = LockstepRun(subject, _changing_rule(subject))
    for sign in MIXED:
        run.follow(sign).saved()


def _changing_rule(subject: Subject) -> LossScaleRule:
    """Return a rule under which the scale changes in these steps."""
    return supported_rule(subject, MIXED, "MACHINE-backoff")


HANDLES = (
    can_be_made_as_it_claims_to_be,
    follows_every_pattern_of_six_steps,
    follows_every_pattern_of_six_steps_with_hysteresis,
    follows_every_pattern_of_six_steps_between_bounds,
    two_scalers_do_not_share_their_state,
    the_same_steps_give_the_same_again,
    reading_the_scale_leaves_it,
    steps_count_without_being_read,
)

RESUME = (
    trace(
        "STEP-resume/the-count-of-finite-steps-is-saved",
        "-+++++",
        "lost count: after loading, the growth is late",
        "resume",
        about="MACHINE-growth-window",
        only=WINDOW,
        saved_after=3,
    ),
    trace(
        "STEP-resume/the-count-of-overflows-is-saved",
        "---+",
        "lost count: after loading, the backoff is late or early",
        "resume",
        about="MACHINE-hysteresis",
        saved_after=1,
        hysteresis=3,
    ),
    trace(
        "STEP-resume/the-scale-is-saved",
        "---+",
        "lost scale: training continues with the initial scale, or with the scale rounded to float16",
        "resume",
        about=None,
        saved_after=2,
        init_scale=2.0**20,
    ),
    trace(
        "STEP-resume/a-loaded-scaler-has-its-factors",
        "+++++",
        "lost constant: after loading, the scale doubles for every growth factor",
        "resume",
        about="MACHINE-growth-window",
        saved_after=0,
        growth_factor=4.0,
    ),
    trace(
        "STEP-resume/a-loaded-scaler-has-its-minimum",
        "---",
        "lost constant: after loading, the scale falls below min_scale",
        "resume",
        about="MACHINE-min-scale",
        saved_after=1,
        min_scale=2.0**9,
    ),
    trace(
        "STEP-resume/the-steps-of-a-share-are-saved",
        "+++-+-",
        "lost count: after loading, a single overflow exceeds the overflow tolerance",
        "resume",
        about="MACHINE-overflow-tolerance",
        saved_after=3,
        growth_interval=10,
        overflow_tolerance=0.5,
    ),
    trace(
        "STEP-resume/the-end-of-the-beginning-is-saved",
        "-+++",
        "lost count: after loading, the scale grows by its warmup factor again",
        "resume",
        about=None,
        only=WARMUP_FACTOR,
        saved_after=1,
        growth_interval=2,
    ),
    what_was_saved_stays_as_it_was,
    what_was_saved_can_be_loaded_twice,
    saving_leaves_the_scaler,
)
