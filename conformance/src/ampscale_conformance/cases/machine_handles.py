"""Handles: what two of them share, what reading does to one, and what becomes of a saved one."""

from typing import Any

from ampscale import LossScaleRule

from ..model.adapter import Unsupported
from ..model.case import case
from ..model.subject import Subject
from .machine_lockstep import A_WINDOW, Walk, claimed, every_pattern, trace
from .machine_variants import A_FIRST_FACTOR

MIXED = "++-+++-++++-+"


@case("MACHINE-state", 0, "an empty claim: it cannot be made with the very constants that it claims, and so is asked nothing")
def can_be_made_as_it_claims_to_be(subject: Subject) -> None:
    """Whatever else it cannot be given, its own constants are its claim."""
    try:
        subject.create(subject.family.make())
    except Unsupported as refusal:
        subject.expect(False, f"wanted a scaler with {subject.family.name}'s own constants, got none: {refusal}")


@case("MACHINE-every-sequence", 0, "an unknown fault: after some pattern of six steps the scale is another one")
def follows_every_pattern_of_six_steps(subject: Subject) -> None:
    """Windows of two steps, wherever the claim has a window."""
    _every_pattern(subject, growth_interval=2)


@case("MACHINE-every-sequence", 0, "an unknown fault: after some pattern of six steps under patience the scale is another one")
def follows_every_pattern_of_six_steps_with_hysteresis(subject: Subject) -> None:
    """Windows of three, and two overflows for a backoff."""
    _every_pattern(subject, growth_interval=3, hysteresis=2)


@case(
    "MACHINE-every-sequence", 0, "an unknown fault: after some pattern of six steps between two bounds the scale is another one"
)
def follows_every_pattern_of_six_steps_between_bounds(subject: Subject) -> None:
    """Floor and cap are within reach."""
    bounds = {name: value for name, value in BOUNDS.items() if name in subject.family.parameters}
    if not bounds:
        raise Unsupported(f"{subject.family.name} has no bound to set")
    _every_pattern(subject, growth_interval=2, **bounds)


BOUNDS = {"min_scale": 2.0**8, "max_scale": 2.0**12}


def _every_pattern(subject: Subject, **settings: Any) -> None:
    finite = every_pattern(claimed(subject, "", **settings), 6)
    Walk(subject, claimed(subject, finite, "MACHINE-backoff", **settings)).compare().follow(finite)


@case("MACHINE-pure", 0, "shared state: a step of one scaler moves another one, which was made of the same constants")
def two_scalers_do_not_share_their_state(subject: Subject) -> None:
    """They take turns, and one sees overflows where the other does not."""
    rule = _moving(subject)
    one, other = Walk(subject, rule), Walk(subject, rule)
    for sign in MIXED:
        one.follow(sign)
        other.advance("-" if sign == "+" else "+")


@case("MACHINE-pure", 0, "a memory: a new scaler goes on where the one before it ended")
def the_same_steps_give_the_same_again(subject: Subject) -> None:
    """One scaler after the other, under the same constants."""
    rule = _moving(subject)
    for _ in range(2):
        Walk(subject, rule).compare().follow(MIXED)


@case("MACHINE-pure", 0, "a scale that moves as it is read: whoever logs it trains with another one")
def reading_the_scale_leaves_it(subject: Subject) -> None:
    """It is read twice after each step."""
    walk = Walk(subject, _moving(subject))
    for sign in MIXED:
        walk.follow(sign).compare()


@case("MACHINE-pure", 0, "an update that waits for a reader: steps between two readings are lost, or counted as one")
def steps_count_without_being_read(subject: Subject) -> None:
    """The scale is read once, at the end."""
    Walk(subject, _moving(subject)).advance(MIXED).compare()


@case("STEP-resume", 0, "a live copy: what was saved moves on with the scaler that it was saved of", "resume")
def what_was_saved_stays_as_it_was(subject: Subject) -> None:
    """The scaler goes on between saving and loading."""
    walk = Walk(subject, _moving(subject))
    saved, start = walk.saved(), walk.from_here(walk.handle)
    walk.advance(MIXED)
    start.loaded(saved).compare().follow(MIXED)


@case("STEP-resume", 0, "a live copy: a scaler that was loaded moves what it was loaded from", "resume")
def what_was_saved_can_be_loaded_twice(subject: Subject) -> None:
    """The first of two scalers goes on before the second is loaded."""
    walk = Walk(subject, _moving(subject))
    saved = walk.saved()
    walk.loaded(saved).advance(MIXED)
    walk.loaded(saved).compare().follow(MIXED)


@case("STEP-resume", 0, "a disturbance: saving returns a count to zero, and runs that are saved often grow late", "resume")
def saving_leaves_the_scaler(subject: Subject) -> None:
    """It is saved after every step."""
    walk = Walk(subject, _moving(subject))
    for sign in MIXED:
        walk.follow(sign).saved()


def _moving(subject: Subject) -> LossScaleRule:
    """A rule under which the mixed steps move the scale."""
    return claimed(subject, MIXED, "MACHINE-backoff")


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
        "a count lost: after a restart the growth comes late",
        "resume",
        about="MACHINE-growth-window",
        only=A_WINDOW,
        saved_after=3,
    ),
    trace(
        "STEP-resume/the-count-of-overflows-is-saved",
        "---+",
        "a count lost: after a restart the backoff comes late, or its patience is spent",
        "resume",
        about="MACHINE-hysteresis",
        saved_after=1,
        hysteresis=3,
    ),
    trace(
        "STEP-resume/the-scale-is-saved",
        "---+",
        "a scale lost: training goes on at the initial one, or at what float16 can hold of the other",
        "resume",
        about=None,
        saved_after=2,
        init_scale=2.0**20,
    ),
    trace(
        "STEP-resume/a-loaded-scaler-has-its-factors",
        "+++++",
        "a constant lost: after a restart it doubles, whatever the factor is",
        "resume",
        about="MACHINE-growth-window",
        saved_after=0,
        growth_factor=4.0,
    ),
    trace(
        "STEP-resume/a-loaded-scaler-has-its-floor",
        "---",
        "a constant lost: after a restart the scale falls below its floor",
        "resume",
        about="MACHINE-min-scale",
        saved_after=1,
        min_scale=2.0**9,
    ),
    trace(
        "STEP-resume/the-steps-of-a-share-are-saved",
        "+++-+-",
        "a count lost: after a restart a single overflow is a share of one",
        "resume",
        about="MACHINE-overflow-tolerance",
        saved_after=3,
        growth_interval=10,
        overflow_tolerance=0.5,
    ),
    trace(
        "STEP-resume/the-end-of-the-beginning-is-saved",
        "-+++",
        "a count lost: after a restart it grows by its first factor again",
        "resume",
        about=None,
        only=A_FIRST_FACTOR,
        saved_after=1,
        growth_interval=2,
    ),
    what_was_saved_stays_as_it_was,
    what_was_saved_can_be_loaded_twice,
    saving_leaves_the_scaler,
)
