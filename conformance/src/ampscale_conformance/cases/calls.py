"""
Chapter 55, calls: hand-written loops, each a script of calls, which is repeated; `calls_loop.py` executes it.

`set` sets scaled gradients, and `edit` other gradients without the scale; `unscale_`, `step` and `update` are the calls. A call
that is out of order must raise an error and change nothing. `set:inf` includes an infinity or NaN, `set:none` sets no gradient
at all, `set:some` all but one, `set:wide` includes a very large or small value, and `set:huge` a value that is finite only while
it is scaled. The suffix `/b` selects the second optimizer instead of the first.
"""

from functools import partial
from typing import Any

from ..model.adapter import Unsupported
from ..model.case import Case, named, under
from ..model.subject import Subject
from . import calls_drawn
from .calls_loop import Loop, is_static, simple_rule

ROUNDS = 5  # the number of elements of the first optimizer, so that each has an infinity once


def order(name: str, script: str, catches: str, *needs: str, **settings: Any) -> Case:
    """Return a case that executes *script* under the supported rule with these settings."""
    run = partial(_execute, script=script, returns_applied="applied" in needs, settings=settings)
    implied = {"groups": "/b" in script, "none": ":none" in script or ":some" in script}
    return named(name, 2, catches, run, {*needs, *(need for need, holds in implied.items() if holds)})


def _execute(subject: Subject, script: str, returns_applied: bool, settings: dict[str, Any]) -> None:
    rule, commands = simple_rule(subject, **settings), script.split()
    if is_static(rule) and "update" in commands[:-1]:
        raise Unsupported("the scale is static, so step may end the iteration: CALLS-fixed")
    loop = Loop(subject, rule, returns_applied)
    for number, command in enumerate(commands * (1 if is_static(rule) else ROUNDS), start=1):
        try:
            loop.execute(command, f"after call {number}, {command}")
        except Unsupported:
            if number <= len(commands):
                raise
            return  # a later round, at a scale with which it cannot continue


CASES = (
    order("CALLS-step/step-unscales", "set step update", "missing unscale: the optimizer applies scaled gradients"),
    order("CALLS-step/step-unscales-once", "set unscale_ step update", "double unscale: step divides gradients a second time"),
    order(
        "CALLS-unscale/unscale-divides-where-they-lie",
        "set unscale_ update",
        "late unscale: gradients are still scaled after unscale_, so clipping is wrong",
    ),
    order(
        "CALLS-edits-kept/edits-reach-the-optimizer",
        "set unscale_ edit step update",
        "lost edit: the optimizer applies the gradients from before clipping",
    ),
    order(
        "CALLS-skip/step-skips-an-overflow-of-its-own",
        "set:inf step update",
        "missing check: step does not check the gradients that it unscales itself",
    ),
    *under(
        "CALLS-skip",
        order(
            "step-skips-an-overflow-that-unscale-detected",
            "set:inf unscale_ step update",
            "lost flag: the overflow found by unscale_ is ignored, and infinities are applied",
        ),
    ),
    order(
        "CALLS-flag-kept/repaired-gradients-are-skipped",
        "set:inf unscale_ edit step update",
        "repeated check: an infinity that was replaced after unscale_ no longer counts",
    ),
    order(
        "OVERFLOW-both-sides/both-sides-are-checked",
        "set:huge unscale_ step update set:huge step update",
        "missing check: values that become infinite when divided by a scale below 1 are applied",
        init_scale=2.0**-4,
    ),
    *under(
        "CALLS-scale-constant",
        order(
            "the-scale-is-constant-until-update",
            "set unscale_ step update",
            "early update: unscale_ or step changes the scale, so the iteration uses two scales",
            growth_interval=1,
        ),
    ),
    order(
        "CALLS-update/the-next-iteration-has-the-new-scale",
        "set unscale_ step update set step update",
        "wrong scale: gradients are divided by the previous or the next scale",
        growth_interval=1,
    ),
    order(
        "CALLS-update/an-overflow-that-was-not-stepped-counts",
        "set:inf unscale_ update",
        "lost flag: an overflow counts only if step was called",
    ),
    *under(
        "CALLS-update-closes",
        order(
            "update-closes-an-iteration-without-a-step",
            "set unscale_ update set step update",
            "stuck iteration: after unscale_ without step, unscale_ always raises an error",
        ),
        order(
            "an-overflow-skips-only-its-own-step",
            "set:inf step update set unscale_ step update",
            "stuck flag: one overflow skips all later steps",
        ),
        order(
            "an-optimizer-that-rests-counts-no-more",
            "set set:inf/b step step/b update set step update",
            "stale flag: the overflow of an idle optimizer counts until its next step",
        ),
    ),
    order(
        "CALLS-unscale-once/unscale-twice-is-rejected",
        "set unscale_ unscale_ step update",
        "double unscale: a second unscale_ is accepted, or divides before it raises an error",
    ),
    order("CALLS-unscale-once/unscale-after-step-is-rejected", "set step unscale_ update", "late unscale: it follows the step"),
    order("CALLS-step-once/step-twice-is-rejected", "set step step update", "double step: one backward pass updates twice"),
    order("CALLS-step-once/step-after-a-skip-is-rejected", "set:inf step step update", "double step: a skip does not count"),
    *under(
        "CALLS-update-needs-a-check",
        order(
            "update-before-anything-is-rejected",
            "update set step update",
            "empty update: an update without gradients counts as a finite step",
            growth_interval=2,
        ),
        order("update-twice-is-rejected", "set:inf step update update", "empty update: another backoff"),
    ),
    *under(
        "CALLS-own-flag",
        order(
            "only-the-last-optimizer-is-finite",
            "set:inf set/b unscale_ unscale_/b step step/b update",
            "shared flag: a finite optimizer hides another's overflow, or one overflow skips both optimizers",
        ),
        order(
            "each-optimizer-is-unscaled-separately",
            "set set/b unscale_ step step/b update",
            "shared state: the second optimizer counts as unscaled because the first one is",
        ),
    ),
    order(
        "CALLS-one-update/an-overflow-of-the-first-counts",
        "set:inf set/b step step/b update",
        "last flag only: the scale depends on the last optimizer alone",
    ),
    order(
        "CALLS-one-update/an-overflow-of-the-last-counts",
        "set set:inf/b step step/b update",
        "first flag only: the scale depends on the first optimizer alone",
    ),
    *under(
        "CALLS-one-update",
        order(
            "two-optimizers-are-one-step",
            "set set/b step step/b update",
            "repeated update: the scale is updated once per optimizer",
            growth_interval=2,
        ),
    ),
    order(
        "CALLS-none/a-parameter-without-a-gradient-is-passed-over",
        "set:some unscale_ step update set:some+inf step update",
        "missing gradient: None raises an error, counts as an overflow, or becomes zeros",
    ),
    *under(
        "CALLS-no-gradients",
        order(
            "an-optimizer-without-gradients-is-no-overflow",
            "set:none unscale_ step update",
            "missing gradients: an optimizer with frozen parameters raises an error, or backs off at every step",
        ),
        order(
            "an-optimizer-without-gradients-counts-for-nothing",
            "set:inf set/b step step/b update set:none set/b step step/b update set set:none/b unscale_/b step/b step update",
            "missing gradients: they hide or revert the steps of the other optimizer",
            growth_interval=1,
        ),
    ),
    *under(
        "CALLS-answer",
        order(
            "step-returns-whether-it-stepped",
            "set step update set:inf step update",
            "wrong result: step returns None, or always the same value",
            "applied",
        ),
    ),
    *calls_drawn.CASES,
)
