"""
Chapter 55, calls: a hand-written loop as a line of words; `calls_loop.py` says what they mean.

`lay` lays down scaled gradients, `edit` halves what lies there; `unscale_`, `step` and `update` are the calls, and one that has
to be refused has a `!` behind it. `lay:inf`, `lay:none`, `lay:some` and `lay:huge` lay an infinity, no gradient at all, one for
the first parameter alone, and what is finite only as long as it is scaled. A word is about the first optimizer, and with `/b`
about the second.
"""

from functools import partial
from typing import Any

from ..model.adapter import Unsupported
from ..model.case import Case, named
from ..model.subject import Subject
from .calls_loop import Loop, simple_rule


def order(name: str, script: str, catches: str, *needs: str, **settings: Any) -> Case:
    """A case that says *script*, under the claimed rule with these settings."""
    return named(name, 2, catches, partial(_say, script=script, answers="applied" in needs, settings=settings), needs)


def _say(subject: Subject, script: str, answers: bool, settings: dict[str, Any]) -> None:
    rule, words = simple_rule(subject, **settings), script.split()
    if rule.growth_factor == rule.backoff_factor == 1 and ("!" in script or "update" in words[:-1]):
        raise Unsupported("its scale never moves, so step may close the iteration: CALLS-fixed")
    loop = Loop(subject, rule, "ab" if "/b" in script else "a", answers)
    for place, word in enumerate(words, start=1):
        loop.say(word, f"after call {place}, {word}")


CASES = (
    order("CALLS-step/step-unscales", "lay step update", "scaled step: the optimizer gets gradients that nobody has unscaled"),
    order(
        "CALLS-step/step-unscales-once",
        "lay unscale_ step update",
        "double unscale: step divides again what unscale_ has divided",
    ),
    order(
        "CALLS-unscale/unscale-divides-where-they-lie",
        "lay unscale_",
        "late division: after unscale_ the gradients are still scaled, and are clipped so",
    ),
    order(
        "CALLS-edits-kept/edits-reach-the-optimizer",
        "lay unscale_ edit step update",
        "lost edit: the optimizer gets the gradients as they were before they were clipped",
    ),
    order(
        "CALLS-skip/step-skips-an-overflow-of-its-own",
        "lay:inf step update",
        "unseen overflow: a step that unscales by itself does not look at what it unscales",
    ),
    order(
        "CALLS-skip/step-skips-an-overflow-that-unscale-found",
        "lay:inf unscale_ step update",
        "lost flag: what unscale_ has found is not asked for, and infinities are applied",
    ),
    order(
        "CALLS-flag-kept/repaired-gradients-are-skipped",
        "lay:inf unscale_ lay step update",
        "second look: an infinity that was replaced after unscale_ counts no more",
    ),
    order(
        "OVERFLOW-both-sides/both-sides-are-looked-at",
        "lay:huge unscale_ step update",
        "one look: what is finite while scaled, and infinite divided by a scale below 1, is applied",
        init_scale=2.0**-4,
    ),
    order(
        "CALLS-scale-stands/the-scale-stands-until-update",
        "lay unscale_ step",
        "early scale: it grows in unscale_ or in step, and the rest of the iteration has another one",
        growth_interval=1,
    ),
    order(
        "CALLS-update/the-next-iteration-has-the-new-scale",
        "lay unscale_ step update lay unscale_ step update lay unscale_ step update",
        "wrong scale: gradients are divided by the one before, or by the one after",
        growth_interval=1,
    ),
    order(
        "CALLS-update/an-overflow-that-was-not-stepped-counts",
        "lay:inf unscale_ update",
        "lost flag: only what was stepped moves the scale",
    ),
    order(
        "CALLS-update-closes/update-closes-an-iteration-without-a-step",
        "lay unscale_ update lay unscale_ step update",
        "stuck iteration: whoever unscales and does not step can never unscale again",
    ),
    order(
        "CALLS-update-closes/an-overflow-is-forgotten",
        "lay:inf unscale_ step update lay unscale_ step update",
        "stuck flag: one overflow skips every step after it",
    ),
    order(
        "CALLS-update-closes/an-optimizer-that-rests-counts-no-more",
        "lay lay:inf/b step step/b update lay step update",
        "old flag: two optimizers take turns, and the overflow of one counts until it steps again",
        "groups",
    ),
    order(
        "CALLS-unscale-once/unscale-twice-is-refused",
        "lay unscale_ unscale_! step update",
        "double unscale: the second one is taken, or divides and then raises",
    ),
    order(
        "CALLS-unscale-once/unscale-after-step-is-refused",
        "lay step unscale_! update",
        "late unscale: gradients that are applied are unscaled again",
    ),
    order(
        "CALLS-step-once/step-twice-is-refused",
        "lay step step! update",
        "second step: one backward pass moves the parameters twice",
    ),
    order(
        "CALLS-step-once/step-after-a-skip-is-refused",
        "lay:inf step step! update",
        "second step: one that was skipped is taken for none",
    ),
    order(
        "CALLS-update-needs-a-check/update-before-anything-is-refused",
        "update! lay step update",
        "idle update: nothing counts as a finite step",
        growth_interval=2,
    ),
    order(
        "CALLS-update-needs-a-check/update-twice-is-refused",
        "lay:inf step update update!",
        "idle update: each further one backs off again",
    ),
    order(
        "CALLS-own-flag/the-last-optimizer-is-healthy",
        "lay:inf lay/b unscale_ unscale_/b step step/b update",
        "shared flag: the last optimizer's hides the first one's infinities, or the first one's overflow skips both",
        "groups",
    ),
    order(
        "CALLS-own-flag/each-is-unscaled-by-itself",
        "lay lay/b unscale_ step step/b update",
        "shared stage: the second is taken to be unscaled since the first one is",
        "groups",
    ),
    order(
        "CALLS-one-update/an-overflow-of-the-first-counts",
        "lay:inf lay/b step step/b update",
        "last optimizer wins: the scale moves by its flag alone",
        "groups",
    ),
    order(
        "CALLS-one-update/an-overflow-of-the-last-counts",
        "lay lay:inf/b step step/b update",
        "first optimizer wins: the scale moves by its flag alone",
        "groups",
    ),
    order(
        "CALLS-one-update/two-optimizers-are-one-step",
        "lay lay/b step step/b update",
        "own update: the scale moves once for each optimizer",
        "groups",
        growth_interval=2,
    ),
    order(
        "CALLS-none/a-parameter-without-a-gradient-is-passed-over",
        "lay:some unscale_ step update",
        "missing gradient: None is an error, an overflow, or becomes zeros",
        "none",
    ),
    order(
        "CALLS-no-gradients/an-optimizer-without-gradients-is-no-overflow",
        "lay:none unscale_ step update",
        "missing gradients: a model with a frozen part dies, or halves its scale for ever",
        "none",
    ),
    order(
        "CALLS-no-gradients/an-optimizer-without-gradients-counts-for-nothing",
        "lay:none lay/b step step/b update",
        "missing gradients: they hide or undo what the other optimizer did",
        "none",
        "groups",
        growth_interval=1,
    ),
    order(
        "CALLS-answer/step-tells-whether-it-stepped",
        "lay step update lay:inf step update",
        "silent skip: it returns nothing, or always the same",
        "applied",
    ),
)
