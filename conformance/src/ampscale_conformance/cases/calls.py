"""
Chapter 55, calls: hand-written loops, each a script of calls, which is repeated; `calls_loop.py` executes it.

`set` sets scaled gradients, and `edit` other gradients without the scale; `unscale_`, `step` and `update` are the calls. A call
that is out of order must raise an error and change nothing. `set:inf` includes an infinity or NaN, `set:none` sets no gradient
at all, `set:some` all but one, `set:inf+last` an infinity in the last element, `set:wide` includes a very large or small value,
`set:long` one of 41 bits, and `set:huge` a value that is finite only while it is scaled. In drawn scripts, `set:inf+two`
includes two infinities or NaNs, `set:zero` sets zeros and `set:large` the largest values, `load` continues with a scaler that
loaded the saved state, `save` only saves, nothing is read after `update:unread`, and `scale`, `unscale` and `all_finite` take
other arrays. The suffix `/b` selects the second optimizer instead of the first. `draw` stands for drawn scripts.
"""

from functools import partial
from typing import Any

from ..model.adapter import Unsupported
from ..model.case import Case, named
from ..model.subject import Subject
from . import calls_drawn
from .calls_drawn import draw_calls, drawn
from .calls_loop import Loop, is_static, simple_rule
from .rows import Row, rows

ROUNDS = 5  # by default: the number of elements of the first optimizer, so that each element is infinite or NaN once

SCRIPTS = """
CALLS-step/step-unscales | set step update
    missing unscale: the optimizer applies scaled gradients
CALLS-step/step-unscales-once | set unscale_ step update
    double unscale: step divides gradients a second time
CALLS-step/step-unscales-bfloat16 | set:inf step update set step update | dtype=bfloat16 factor=-1 needs=bfloat16
    missing dtype: bfloat16 gradients stay scaled, or are not checked
CALLS-step/step-unscales-float64 | set:inf step update set:long step update | dtype=float64 factor=-1.1
    missing dtype: float64 gradients stay scaled, are not checked, or are rounded to float32
CALLS-unscale/unscale-divides-where-they-lie | set unscale_ update
    late unscale: gradients are still scaled after unscale_, so clipping is wrong
CALLS-unscale/unscales-and-checks-many-gradients | set/g step/g update set:inf+last/g step/g update |
    partial pass: the arrays or elements beyond those of one kernel launch stay scaled, or are not checked
CALLS-unscale/unscale-divides-16-bit-gradients-by-the-whole-scale | set unscale_ update set:huge+tie unscale_ update |
    init_scale=124928 dtype=float16 needs=float16,division
    narrow scale: 16-bit gradients are divided by a scale that is rounded to 16 bits, or multiplied by its reciprocal
CALLS-edits-kept/edits-reach-the-optimizer | set unscale_ edit step update
    lost edit: the optimizer applies the gradients from before clipping
CALLS-skip/step-skips-an-overflow-of-its-own | set:inf step update | factor=-1 rounds=15
    missing check: step does not check the gradients that it unscales itself, or adds zeros, so that -0.0 becomes 0.0
CALLS-skip/step-skips-an-overflow-that-unscale-detected | set:inf unscale_ step update | rounds=30
    lost flag: the overflow found by unscale_ is ignored, and infinities are applied
CALLS-flag-kept/repaired-gradients-are-skipped | set:inf unscale_ edit step update
    repeated check: an infinity that was replaced after unscale_ no longer counts
OVERFLOW-both-sides/both-sides-are-checked | draw set:huge
    missing check: values that become infinite when divided by a scale below 1 are applied
CALLS-scale-constant/the-scale-is-constant-until-update | set unscale_ step update | growth_interval=1
    early update: unscale_ or step changes the scale, so the iteration uses two scales
CALLS-update/the-next-iteration-has-the-new-scale | set unscale_ step update set step update set step update
    set step update | growth_interval=17
    wrong scale: gradients are divided by the previous or the next scale
CALLS-update/an-overflow-that-was-not-stepped-counts | set:inf unscale_ update
    lost flag: an overflow counts only if step was called
CALLS-update-closes/update-closes-an-iteration-without-a-step | set unscale_ update set step update
    stuck iteration: after unscale_ without step, unscale_ always raises an error
CALLS-update-closes/an-overflow-skips-only-its-own-step | set:inf step update set unscale_ step update
    stuck flag: one overflow skips all later steps
CALLS-update-closes/an-optimizer-that-rests-counts-no-more | set set:inf/b step step/b update set step update
    stale flag: the overflow of an idle optimizer counts until its next step
CALLS-unscale-once/unscale-twice-is-rejected | set unscale_ unscale_ step update
    double unscale: a second unscale_ is accepted, or divides before it raises an error
CALLS-unscale-once/unscale-after-step-is-rejected | set step unscale_ update
    late unscale: unscale_ is accepted after step, or divides before it raises an error
CALLS-step-once/step-twice-is-rejected | set step step update
    double step: one backward pass updates the parameters twice
CALLS-step-once/step-after-a-skip-is-rejected | set:inf step step update
    double step: after a skipped step, a second step is accepted
CALLS-update-needs-a-check/update-before-anything-is-rejected | update set step update | growth_interval=2
    empty update: an update without gradients counts as a finite step
CALLS-update-needs-a-check/update-twice-is-rejected | set:inf step update update
    empty update: a second update backs off again
CALLS-own-flag/only-the-last-optimizer-is-finite | set:inf set/b unscale_ unscale_/b step step/b update
    set:inf set/b set/c set/d set/e unscale_ unscale_/b unscale_/c unscale_/d unscale_/e step/c step/e update
    shared flag: a finite optimizer hides another's overflow, or one overflow skips both optimizers
CALLS-own-flag/each-optimizer-is-unscaled-separately | set set/b unscale_ step step/b update
    shared state: the second optimizer counts as unscaled because the first one is
CALLS-one-update/an-overflow-of-the-first-counts | set:inf set/b step step/b update
    last flag only: the scale depends on the last optimizer alone
CALLS-one-update/an-overflow-of-the-last-counts | set set:inf/b step step/b update set set:inf/b unscale_ unscale_/b update
    set set/b set/c set/d set/e set/f set/h set/i set:inf/j step step/b step/c step/d step/e step/f step/h step/i step/j update
    first flag only: the scale depends on the first optimizer, or the first eight, alone
CALLS-one-update/two-optimizers-are-one-step | set set/b set/c step step/b step/c update | growth_interval=3
    repeated update: the scale is updated once per optimizer
CALLS-none/a-parameter-without-a-gradient-is-passed-over |
    set:some/j unscale_/j step/j update set:some+inf/j step/j update
    missing gradient: None raises an error, counts as an overflow, or becomes zeros
CALLS-no-gradients/an-optimizer-without-gradients-counts-for-nothing | draw set:none set:some+huge
    missing gradients: an optimizer without gradients raises an error, backs off, or hides or reverts the steps of another
CALLS-no-gradients/an-overflow-beside-an-optimizer-without-gradients-counts | set:inf set:none/b step step/b update
    set:none set:inf/b step step/b update
    cleared flag: an optimizer without gradients clears the overflow of another one
CALLS-answer/step-returns-whether-it-stepped | set step update set:inf step update | needs=applied
    wrong result: step returns None, or always the same value
"""


def _execute(
    subject: Subject, row: Row, rounds: int = ROUNDS, dtype: str = "float32", factor: float = 1.0, **settings: Any
) -> None:
    rule, commands = simple_rule(subject, **settings), row.script.split()
    if is_static(rule) and "update" in commands[:-1]:
        raise Unsupported("the scale is static, so step may end the iteration: CALLS-fixed")
    loop = Loop(subject, rule, "applied" in row.needs, dtype, factor=factor)
    for number, command in enumerate(commands * (1 if is_static(rule) else rounds), start=1):
        try:
            loop.execute(command, f"after call {number}, {command}")
        except Unsupported:
            if number <= len(commands):
                raise
            return  # in a later round, the case may be unsupported at the scale


def _case(row: Row) -> Case:
    needs = {*row.needs}
    if "/b" in row.script:
        needs.add("groups")
    if ":none" in row.script or ":some" in row.script:
        needs.add("none")
    if row.script.startswith("draw"):
        kinds = row.script.split()[1:] * 6  # so that they are drawn often
        return drawn(row.name, 2, partial(draw_calls, more=kinds), *needs, catches=row.catches)
    return named(row.name, 2, row.catches, partial(_execute, row=row, **row.options), needs)


CASES = (*map(_case, rows(SCRIPTS)), *calls_drawn.CASES)
