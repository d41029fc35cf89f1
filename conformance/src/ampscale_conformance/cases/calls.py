"""
Chapter 55, calls: hand-written loops, each a script of calls; `calls_loop.py` executes it.

`set` sets scaled gradients, and `edit` halves the current ones; `unscale_`, `step` and `update` are the calls. A call that must
raise an error has the suffix `!`. `set:inf` includes an infinity, `set:none` sets no gradient at all, `set:some` sets one for the
first parameter alone, and `set:huge` sets values that are finite only while they are scaled. The suffix `/b` selects the second
optimizer instead of the first.
"""

from functools import partial
from typing import Any

from ..model.adapter import Unsupported
from ..model.case import Case, named
from ..model.subject import Subject
from .calls_loop import Loop, simple_rule


def order(name: str, script: str, catches: str, *needs: str, **settings: Any) -> Case:
    """Return a case that executes *script* under the supported rule with these settings."""
    return named(name, 2, catches, partial(_execute, script=script, returns_applied="applied" in needs, settings=settings), needs)


def _execute(subject: Subject, script: str, returns_applied: bool, settings: dict[str, Any]) -> None:
    rule, commands = simple_rule(subject, **settings), script.split()
    if rule.growth_factor == rule.backoff_factor == 1 and ("!" in script or "update" in commands[:-1]):
        raise Unsupported("its scale is static, so step may end the iteration: CALLS-fixed")
    loop = Loop(subject, rule, "ab" if "/b" in script else "a", returns_applied)
    for number, command in enumerate(commands, start=1):
        loop.execute(command, f"after call {number}, {command}")


CASES = (
    order("CALLS-step/step-unscales", "set step update", "missing unscale: the optimizer applies scaled gradients"),
    order("CALLS-step/step-unscales-once", "set unscale_ step update", "double unscale: step divides gradients a second time"),
    order(
        "CALLS-unscale/unscale-divides-where-they-lie",
        "set unscale_",
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
    order(
        "CALLS-skip/step-skips-an-overflow-that-unscale-detected",
        "set:inf unscale_ step update",
        "lost flag: the overflow found by unscale_ is ignored, and infinities are applied",
    ),
    order(
        "CALLS-flag-kept/repaired-gradients-are-skipped",
        "set:inf unscale_ set step update",
        "repeated check: an infinity that was replaced after unscale_ no longer counts",
    ),
    order(
        "OVERFLOW-both-sides/both-sides-are-checked",
        "set:huge unscale_ step update",
        "missing check: values that become infinite when divided by a scale below 1 are applied",
        init_scale=2.0**-4,
    ),
    order(
        "CALLS-scale-constant/the-scale-is-constant-until-update",
        "set unscale_ step",
        "early update: unscale_ or step changes the scale, so the iteration uses two scales",
        growth_interval=1,
    ),
    order(
        "CALLS-update/the-next-iteration-has-the-new-scale",
        "set unscale_ step update set unscale_ step update set unscale_ step update",
        "wrong scale: gradients are divided by the previous or the next scale",
        growth_interval=1,
    ),
    order(
        "CALLS-update/an-overflow-that-was-not-stepped-counts",
        "set:inf unscale_ update",
        "lost flag: an overflow counts only if step was called",
    ),
    order(
        "CALLS-update-closes/update-closes-an-iteration-without-a-step",
        "set unscale_ update set unscale_ step update",
        "stuck iteration: after unscale_ without step, unscale_ always raises an error",
    ),
    order(
        "CALLS-update-closes/an-overflow-skips-only-its-own-step",
        "set:inf unscale_ step update set unscale_ step update",
        "stuck flag: one overflow skips all later steps",
    ),
    order(
        "CALLS-update-closes/an-optimizer-that-rests-counts-no-more",
        "set set:inf/b step step/b update set step update",
        "stale flag: the overflow of an idle optimizer counts until its next step",
        "groups",
    ),
    order(
        "CALLS-unscale-once/unscale-twice-is-rejected",
        "set unscale_ unscale_! step update",
        "double unscale: a second unscale_ is accepted, or divides before it raises an error",
    ),
    order("CALLS-unscale-once/unscale-after-step-is-rejected", "set step unscale_! update", "late unscale: it follows the step"),
    order("CALLS-step-once/step-twice-is-rejected", "set step step! update", "double step: one backward pass updates twice"),
    order("CALLS-step-once/step-after-a-skip-is-rejected", "set:inf step step! update", "double step: a skip does not count"),
    order(
        "CALLS-update-needs-a-check/update-before-anything-is-rejected",
        "update! set step update",
        "empty update: an update without gradients counts as a finite step",
        growth_interval=2,
    ),
    order("CALLS-update-needs-a-check/update-twice-is-rejected", "set:inf step update update!", "empty update: another backoff"),
    order(
        "CALLS-own-flag/only-the-last-optimizer-is-finite",
        "set:inf set/b unscale_ unscale_/b step step/b update",
        "shared flag: a finite optimizer hides another's overflow, or one overflow skips both optimizers",
        "groups",
    ),
    order(
        "CALLS-own-flag/each-optimizer-is-unscaled-separately",
        "set set/b unscale_ step step/b update",
        "shared state: the second optimizer counts as unscaled because the first one is",
        "groups",
    ),
    order(
        "CALLS-one-update/an-overflow-of-the-first-counts",
        "set:inf set/b step step/b update",
        "last flag only: the scale depends on the last optimizer alone",
        "groups",
    ),
    order(
        "CALLS-one-update/an-overflow-of-the-last-counts",
        "set set:inf/b step step/b update",
        "first flag only: the scale depends on the first optimizer alone",
        "groups",
    ),
    order(
        "CALLS-one-update/two-optimizers-are-one-step",
        "set set/b step step/b update",
        "repeated update: the scale is updated once per optimizer",
        "groups",
        growth_interval=2,
    ),
    order(
        "CALLS-none/a-parameter-without-a-gradient-is-passed-over",
        "set:some unscale_ step update",
        "missing gradient: None raises an error, counts as an overflow, or becomes zeros",
        "none",
    ),
    order(
        "CALLS-no-gradients/an-optimizer-without-gradients-is-no-overflow",
        "set:none unscale_ step update",
        "missing gradients: an optimizer with frozen parameters raises an error, or backs off at every step",
        "none",
    ),
    order(
        "CALLS-no-gradients/an-optimizer-without-gradients-counts-for-nothing",
        "set:none set/b step step/b update",
        "missing gradients: they hide or revert the steps of the other optimizer",
        "none",
        "groups",
        growth_interval=1,
    ),
    order(
        "CALLS-answer/step-returns-whether-it-stepped",
        "set step update set:inf step update",
        "wrong result: step returns None, or always the same value",
        "applied",
    ),
)
