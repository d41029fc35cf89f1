"""
Chapter 60, replicas: real processes that share one scale, each of which has whole arrays, parts of them, or arrays of its own.

A script has one word per step, with one sign per rank. For several arrays, ranks are separated by commas, and each has one sign
per array. At the word `load`, all ranks save their state and load it.
"""

import json
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..model.case import Case, named
from ..model.floats import rounded
from ..model.subject import Raised, Subject
from ..oracle.machine import Machine
from .calls_loop import simple_rule
from .rows import Row, rows

_VALUES = {"+": 1.0, "i": math.inf, "m": -math.inf, "n": math.nan, ".": None}
_NEEDS = {"sharded": "sharded", "distinct": "distinct", "grid half": "mixed-meshes", "reduced sharded": "mixed-placements"}


def rank_case(row: Row) -> Case:
    """
    Return a case that trains on ranks and checks all scales and steps. The script begins with the placement of each array.

    Two arrays with the same placement have an optimizer each. Options are constants; those that cannot be set are left out.
    """
    arrays, _, words = row.script.partition(": ")
    placements, kinds = arrays.split(), sorted({*arrays.split()})
    steps = list(map(_values_of_step, words.split()))
    optimizers = 1 + len(placements) - len(kinds)
    check = partial(_train, placements=placements, steps=steps, optimizers=optimizers, constants=row.options)
    needs = {"ranks", _NEEDS.get(" ".join(kinds), "ranks")}
    if "load" in words:
        needs.add("resume")
    return named(row.name, 5, row.catches, check, needs)


def _values_of_step(word: str) -> list[list[float | None]]:
    """Return the values of each array on each rank; no ranks for `load`."""
    if word == "load":
        return []
    ranks = word.split(",") if "," in word else word
    return [[_VALUES[sign] for sign in signs] for signs in ranks]


def _train(subject: Subject, placements: Sequence[str], steps: Sequence[Any], optimizers: int, constants: dict[str, Any]) -> None:
    """Train on ranks, and check the scale after each step and which steps were applied. A step without values loads the state."""
    settings = {name: value for name, value in constants.items() if name in subject.supported.parameters}
    rule = simple_rule(subject, init_scale=1024.0, growth_interval=2, **settings)
    results = subject.call("train_on_ranks", rule, placements, steps, optimizers)
    lengths = [len(result) for result in results]
    subject.expect(lengths == [len(steps)] * len(steps[0]), f"expected {len(steps)} steps on each rank, got {lengths}")
    machine = Machine(rule)
    for index, values in enumerate(steps):
        finite = {_is_finite(values, number, optimizers) for number in range(optimizers)}
        expected = machine.step(all(finite)).scale if values else machine.point.scale
        scales = [rounded(subject.number(result[index][0], "a scale"), rule.dtype) for result in results]
        message = f"after step {index} (counted from 0): expected scale {expected!r} on every rank, got {scales}"
        subject.expect(scales == [expected] * len(scales), message)
        if not values:
            continue
        with_gradients = [result[index][1] for result, rank in zip(results, values, strict=True) if set(rank) != {None}]
        applied = [subject.flag(flag, "an applied step") for flag in with_gradients]
        if len(finite) == 1:  # otherwise, only some optimizers of each rank apply the step
            verb = "apply" if all(finite) else "skip"
            message = f"step {index} (counted from 0): expected every rank to {verb} it, got applied {applied}"
            subject.expect(set(applied) == finite, message)


def _is_finite(values: Sequence[Sequence[float | None]], number: int, optimizers: int) -> bool:
    """Return True if the gradients of optimizer *number* are finite on all ranks."""
    return all(math.isfinite(value or 0.0) for rank in values for value in rank[number::optimizers])


def error_case(row: Row) -> Case:
    """Return a case with the options of `train_on_ranks` in a row of `_ERRORS`, in which the ranks must raise errors."""
    options = dict(row.options)
    numbers = set(str(options.pop("numbers", "")).split(",")) - {""}
    options = {name: json.loads(f"[{value}]") if isinstance(value, str) else value for name, value in options.items()}
    check = partial(_check_errors, numbers=numbers, placement=row.script, options=options)
    return named(row.name, 5, row.catches, check, {"ranks", _NEEDS.get(row.script, "ranks"), "rank-errors", *row.needs})


def _check_errors(subject: Subject, numbers: set[str], placement: str, options: dict[str, Any]) -> None:
    failing = [str(rank) for rank in range(3) if rank != options.get("late")]
    message = ""
    try:
        subject.call("train_on_ranks", simple_rule(subject), [placement], [[[1.0]] * 3] * 2, 1, **options)
    except Raised as error:
        message = str(error)
    texts = dict(re.findall(r"rank (\d+): (.*?)(?=; rank \d+: |$)", message, re.DOTALL))
    subject.expect(set(failing) <= set(texts), f"expected an error of the ranks {', '.join(failing)}, got {message or 'none'}")
    missing = [rank for rank in failing if not numbers <= set(re.findall(r"\d+", texts[rank]))]
    subject.expect(not missing, f"expected {' and '.join(sorted(numbers))} in the error of each rank, got {message}")


def _check_unchanged(subject: Subject) -> None:
    """Let the scales differ in the last step, which is an error; check that no rank applies the step or changes its scale."""
    rule = simple_rule(subject, init_scale=1024.0, growth_interval=1)
    scales = [1024.0, 512.0, 1024.0]
    results = subject.call("train_on_ranks", rule, ["distinct"], [[[1.0]] * 3] * 2, 1, scale=scales, returns=True)
    actual = [[(subject.number(scale, "a scale"), subject.flag(flag, "a flag")) for scale, flag in rank] for rank in results]
    first = Machine(rule).step(True).scale
    expected = [[(first, True), (scale, False)] for scale in scales]
    subject.expect(actual == expected, f"expected {expected}, with an error in the last step, got {actual}")


_SCRIPTS = """
REPLICAS-same-scale/real-ranks-have-the-same-scale | replicated: ++ i+ +m ++ ++ n+ ++ ++ +n ii ++ m+ +i ++ ++ mn ++ ++ ++
    late agreement: each rank updates its scale from its own flag, so the scales diverge
REPLICAS-load-keeps-scale/loading-is-no-step | replicated: ++ load ++ load i+ load ++ load ++ +n i+ ++ load load ++ ++ +n load i+
    | hysteresis=2
    step while loading: a step without gradients changes the scale or the counts
REPLICAS-same-decision/replicas-apply-or-skip-together | replicated: ++ +i ++ i+ ++ +n m+ n+ +m ii ++
    early check: a rank checks its own gradients instead of the averaged ones, so one steps and another does not
REPLICAS-spreads/opposite-infinities-are-an-overflow | replicated: ++ im ++ mi ++
    missing NaN check: infinities of both signs add up to NaN, and the step is applied
REPLICAS-one-flag/a-fault-after-the-reduction-reaches-all-ranks | reduced: ++ +n ++ i+ ++ m+ n+ ++ +i +m ++ ++
    missing agreement: replicated gradients are assumed to be equal, so a fault of one rank's copy splits the ranks
REPLICAS-one-update/two-optimizers-update-the-scale-once | replicated replicated: ++,++ ++,ii ++,++ ++,++ nn,++ mm,ii ++,++ ++,++
    repeated update: each optimizer updates the scale
REPLICAS-one-update/an-overflow-of-any-optimizer-counts | replicated replicated: ++,++ ++,+i ++,++ i+,++ +n,++ ++,m+ ++,++ ++,++
    divided scale: an optimizer updates the scale from its own gradients, whatever the others found
REPLICAS-same-decision/shards-decide-together | sharded: ++ i+ ++ +i m+ +m ii ++ ++
    own flag: each rank checks its own shard
REPLICAS-same-decision/every-optimizer-of-shards-decides-for-all | sharded sharded: ++,++ ++,ii ++,++ nn,++ ++,mm +i,++ ++,+n
    own flag: a rank checks its own shards of the second optimizer
REPLICAS-nan-survives/a-nan-in-any-shard-reaches-all-ranks | sharded: ++ n+ ++ +n nn ++
    lost NaN: a maximum or a minimum of the flags drops the NaN of some ranks
REPLICAS-every-call/an-overflow-on-one-rank-blocks-no-rank | sharded: i+ +i m+ ++ +m ++
    early return: a rank with an overflow leaves the step, and the others wait for it
REPLICAS-empty-ranks/a-rank-without-shards-follows | sharded: +. i. +. +. m. +. +.
    absent rank: a rank without elements does not take part, or fails
REPLICAS-mixed-placements/a-replicated-array-can-be-first | reduced sharded: ++,++ ++,+i ++,++ +i,++ i+,++ ++,i+ ++,++
    first placement: the placement of the first gradient is used for all
REPLICAS-mixed-placements/a-replicated-array-can-be-last | sharded reduced: ++,++ ++,i+ ++,++ i+,++ +i,++ ++,+i ++,++
    last placement: the placement of the last gradient is used for all
REPLICAS-empty-ranks/a-stage-without-parameters-follows | distinct: .+ .i .+ .+ .n .m .+ .+
    absent rank: a stage without gradients keeps its scale, or fails
REPLICAS-mixed-meshes/a-smaller-mesh-can-be-first | half grid: ++,++,++,++ ++,+i,++,++ ++,++,++,++ i+,i+,++,++ ++,++,++,+n
    first mesh: the device mesh of the first gradient is used for all
REPLICAS-mixed-meshes/a-smaller-mesh-can-be-last | grid half: ++,++,++,++ i+,++,++,++ ++,++,++,++ ++,++,+i,+i ++,++,m+,++
    last mesh: the device mesh of the last gradient is used for all
REPLICAS-same-decision/the-last-stage-decides-for-all | distinct: +++ ++i +++ i++ +++ +n+ ++m +++ n+n iii +++ +++
    local flag: each stage of a pipeline checks its own gradients only
"""
# The script is the placement of the array. A list has a value for each rank; each error must contain the `numbers`.
_ERRORS = """
REPLICAS-settings-compared/another-rule-on-one-rank-is-an-error | distinct | growth_interval=17,17,19
    missing comparison: ranks with different constants take different decisions, possibly days later
REPLICAS-settings-compared/another-limit-on-one-rank-is-an-error | distinct | max_norm=2.0,1.0,1.0 needs=clip
    missing comparison: ranks that clip to different norms have different parameters
REPLICAS-scale-compared/another-scale-on-one-rank-is-an-error | distinct | scale=1024.0,512.0,1024.0
    single comparison: ranks compare their scales only at the first step or not at all, and a loaded one can differ
REPLICAS-sizes-compared/another-size-on-one-rank-is-an-error | replicated | elements=17,19,17
    missing comparison: the sum of arrays of several sizes is wrong, or a rank waits for the others
REPLICAS-error-names-ranks/every-rank-names-the-one-that-differs | distinct | growth_interval=17,19,17 numbers=1,17,19
    silent ranks: only one rank raises an error, or the errors do not name the rank that differs and its value
REPLICAS-time-limit/a-rank-that-does-not-respond-is-named | distinct | time_limit=1.5 late=2 numbers=2
    endless wait: a rank that hangs stops all others without an error
"""

CASES = (
    *map(rank_case, rows(_SCRIPTS)),
    *map(error_case, rows(_ERRORS)),
    named(
        "REPLICAS-agreement-first/an-error-leaves-all-ranks-as-they-were",
        5,
        "early change: a rank has stepped, or has another scale, although the ranks did not agree",
        _check_unchanged,
        {"ranks", "distinct", "rank-errors"},
    ),
)
