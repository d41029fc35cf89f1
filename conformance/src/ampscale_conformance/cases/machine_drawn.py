"""Drawn traces and walks: scalers with drawn constants take drawn steps in turn, and are saved and loaded in between."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ampscale import LossScaleRule

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.case import case
from ..model.draw import DrawnCase, Pick, numbered, one_in, run_draws, run_unrecorded
from ..model.floats import is_power_of_two, rounded
from ..model.subject import Raised, Subject
from ..model.supported_rules import supported_rules
from ..oracle.machine import Machine
from ..oracle.tensors import array
from .machine_lockstep import LockstepRun, every_pattern, run_lockstep, supported_rule
from .scaling_trees import check_products

EXPONENTS = (8, 4, 12, 0, -3, 20)  # of the initial scale
LOW = (2.0**-20, 0.5 - 2.0**-12, 0.125, 0.6, 1.0)  # min_scale as a multiple of the initial scale
HIGH = (2.0**40, 1.5, 2 + 2.0**-9, 5.0, 1.0)
COUNTS = {
    "growth_interval": (1, 2, 3, 4, 7, 20),
    "hysteresis": (1, 2, 3, 4),
    "overflow_tolerance": (0.5, 0.25, 0.25 + 2.0**-30, 0.33333333333333337),  # the last one is above 1 / 3 in float64
    "raise_at_min_scale": (False, True),
}
Factors = dict[str, tuple[float, ...]]
FACTORS: Factors = {"growth_factor": (2.0, 4.0), "backoff_factor": (0.5, 0.25)}
WITHIN_BOUNDS: Factors = {"growth_factor": (2.0, 4.0, 8.0), "backoff_factor": (0.5, 0.25, 0.125)}
INEXACT_FACTORS: Factors = {"growth_factor": (3.0, 1.5, 1.1), "backoff_factor": (1 / 3, 0.7)}

TURNS = ("step", "step", "new")
RESUMING = ("step", "copy", "save", "reload")  # "copy" goes on with a loaded scaler, and "save" with the one that was saved
WITH_TENSORS = ("step", "new", "scale", "unscale", "all_finite", "copy")
MOST = 3  # scalers at a time
LONG = 2185  # steps of a window; 8 bits or float16 can represent neither 2177 steps nor their share of the window
LOWEST, HIGHEST = 2.0**-60, 2.0**60  # beyond them, a scaler takes no steps and no tensors
Limit = tuple[dict[str, Any], str]  # constants, and steps to the edge of a range
LIMITS: tuple[Limit, ...] = (
    ({"init_scale": 1000 + 2.0**-14}, ""),  # 8 decimal digits lose it, and 16 digits the next one
    ({"init_scale": 1000 + 2.0**-43}, ""),
    ({"growth_factor": 2.0**20, "growth_interval": 20}, 20 * "+"),
    ({"growth_factor": 1 + 2.0**-20, "backoff_factor": 1 - 2.0**-20, "growth_interval": 2}, "++-"),
    ({"backoff_factor": 2.0**-20}, "-"),
    ({"init_scale": 2.0**-110}, 60 * "-"),
    ({"init_scale": 2.0**-1020}, 20 * "-"),
    ({"init_scale": 2.0**-1020}, 60 * "-"),
    # The product rounds to the largest float32 or to infinity, with one rounding or with two.
    ({"init_scale": float.fromhex("0x1.d1745cp127"), "growth_factor": 1.1}, "+"),
    ({"init_scale": float.fromhex("0x1.30c30cp127"), "growth_factor": 1.68}, "+"),
    ({"growth_interval": 20, "hysteresis": 3, "min_scale": 2.0**10}, "-"),
    ({"hysteresis": 5}, "----"),
    ({"hysteresis": 5}, "-----"),
    ({"growth_interval": 107}, 99 * "+"),  # 107 * (1 / 107) is below 1 in float32 and float64
    ({"growth_interval": LONG}, "-" + (LONG - 8) * "+"),
    ({"growth_interval": LONG, "hysteresis": 2}, "-" + 300 * "+" + "-"),
    ({"growth_interval": LONG, "overflow_tolerance": 1 / 16}, 300 * "+" + 20 * "-"),
)
INFINITE_FACTOR: Limit = ({"growth_factor": 2.0**120}, "+")  # the product is infinite in float32, and becomes the max_scale
TOP: Limit = ({"init_scale": 2.0**127}, "++")
SUBNORMAL: Limit = ({"init_scale": 2.0**-126}, 10 * "-")  # libraries may flush subnormal float32 numbers to zero
# A constant, steps before saving and after loading, and the values of the constant when the state is saved and when it is loaded.
OTHER_CONSTANTS: tuple[tuple[str, str, tuple[Any, Any]], ...] = (
    ("growth_interval", "+++", (4, 2)),
    ("growth_interval", "+++++++", (4, 3)),
    ("hysteresis", "---", (4, 2)),
    ("min_scale", "+++", (2.0**6, 2.0**13)),
    ("min_scale", "---", (2.0**6, 2.0**11)),
    ("max_scale", "-++", (2.0**20, 2.0**6)),
    ("max_scale", "++++", (2.0**10, 2.0**14)),
)
TREE, OVERFLOW = [array("float32", [1.5, -3.0]), array("float32", 0.75)], array("float32", inf)
NARROW = [array("float16", [1.5, -3.0])]


class Turn(NamedTuple):
    """Turn of a walk."""

    kind: str
    number: int  # from 0 to 3; it determines the scaler or saved state, and details
    finite: str  # the steps that the scaler takes at the end


def draw_trace(pick: Pick, info: ImplementationInfo) -> DrawnCase:
    """Draw a rule and an overflow trace, whose scales stay far from the limits of float32."""
    settings = _draw_settings(pick, info)
    finite = "".join(_draw_steps(pick, settings) for _ in range(pick(range(1, 13))))
    return DrawnCase(partial(run_lockstep, finite=finite, settings=settings), "machine", {"finite": finite})


def draw_walk(pick: Pick, info: ImplementationInfo, kinds: Sequence[str] = RESUMING) -> DrawnCase:
    """Draw two rules, and the turns in which several scalers step; without "resume", no scaler is copied or reloaded."""
    kinds = [kind for kind in kinds if kind not in ("copy", "save", "reload") or "resume" in info.capabilities]
    rules = [_draw_settings(pick, info) for _ in range(2)]
    turns = [Turn(pick(kinds), pick(range(4)), _draw_steps(pick, rules[0])) for _ in range(pick(range(1, 30)))]
    return DrawnCase(partial(_run_walk, rules=rules, turns=turns, with_tensors="unscale" in kinds))


def _draw_settings(pick: Pick, info: ImplementationInfo) -> dict[str, Any]:
    """Draw all constants that can be set; bounds are multiples of the initial scale."""
    supported = supported_rules(info.preset)
    digits = (1.0, 1 + 2.0**-19, 1 + 2.0 ** (-40 if supported.default.dtype == "float64" else -23))
    start = 2.0 ** pick(EXPONENTS) * pick(digits)
    factors = WITHIN_BOUNDS if {"min_scale", "max_scale"} <= supported.parameters else FACTORS
    if isinstance(info.preset, LossScaleRule) and one_in(4, pick):  # published scalers may reject a factor of 1
        factors = {"growth_factor": (1.0, 2.0), "backoff_factor": (0.5, 1.0)}
    elif "rounding" in info.capabilities and one_in(2, pick):
        factors = {name: values + INEXACT_FACTORS[name] for name, values in factors.items()}
    table: dict[str, Sequence[Any]] = {
        "init_scale": (start,),
        "min_scale": [start * ratio for ratio in LOW],
        "max_scale": [start * ratio for ratio in HIGH],
        "raise_at_or_below": [start * ratio for ratio in LOW],
        **factors,
        **COUNTS,
    }
    return {name: pick(values) for name, values in table.items() if name in supported.parameters}


def _draw_steps(pick: Pick, settings: dict[str, Any]) -> str:
    """Draw about one window of finite steps, some overflows (possibly one fewer than a backoff requires), or both."""
    if "overflow_tolerance" in settings and pick((True, False)):
        return "+" * pick((2, 3, 4, 5)) + "-"
    window: int = settings.get("growth_interval", 2)
    overflows: str = "-" * pick((1, 2, 4, max(1, settings.get("hysteresis", 1) - 1)))
    finite = "+" * pick((1, window - 1, window, window + 1, 2 * window))
    return pick((finite, overflows, "+-" * pick((1, 2)), overflows + finite))


def _run_walk(subject: Subject, rules: Sequence[dict[str, Any]], turns: Sequence[Turn], with_tensors: bool) -> None:
    """Run the turns with scalers of these rules, which no call may change."""
    passed = [subject.rule(**settings) for settings in rules]
    walk = _Walk(subject, passed, with_tensors)
    for turn in (Turn("new", 0, "+"), *turns, Turn("step", 1, "")):
        walk.run(turn)
    expected = [subject.rule(**settings) for settings in rules]
    subject.expect(passed == expected, f"expected the rules {expected} to be unchanged, got {passed}")


class _Walk:
    """Scalers that take turns: in each turn, one acts and takes steps. If *with_tensors* is True, it also scales or unscales."""

    def __init__(self, subject: Subject, rules: Sequence[LossScaleRule], with_tensors: bool) -> None:
        self.subject, self.rules, self.with_tensors = subject, rules, with_tensors
        self.runs: list[LockstepRun] = []  # at most `MOST`; the latest comes first
        self.saved: list[tuple[LockstepRun, Any]] = []  # a run that stays where it was saved, and the saved state
        self.products: Any = None  # result of the last call of "scale", if it can be unscaled

    def run(self, turn: Turn) -> None:
        """Run one turn, and compare the scales of the latest scalers."""
        run = self._acting(turn)
        if self.with_tensors and LOWEST < run.oracle.point.scale < HIGHEST:
            scales = turn.kind == "scale" or (turn.kind == "copy" and turn.number % 2)
            self._scale_or_unscale(run, "scale" if scales else "unscale", repetitions=turn.number // 2)
        if turn.kind == "all_finite":
            self.subject.all_finite([*TREE, array("float32", 1.0) if turn.number % 2 else OVERFLOW])
        self.runs = [run, *(other for other in self.runs if other is not run)][:MOST]
        if LOWEST < run.oracle.scale < HIGHEST:
            run.advance(turn.finite)
        if turn.number:  # in the other turns, no scale is read between the steps of several scalers
            for other in self.runs:
                other.compare()

    def _acting(self, turn: Turn) -> LockstepRun:
        """Return the scaler that acts: a new one, a loaded one, or one of the latest, which may be saved first."""
        if not self.runs or turn.kind == "new":
            run = LockstepRun(self.subject, self.rules[turn.number % 2])
        else:
            run = self.runs[turn.number % len(self.runs)]
        if turn.kind in ("copy", "save"):
            for _ in range(1 + turn.number % 2):
                self.saved.append((run.with_handle(run.handle), self.subject.call("save", run.handle)))
        if turn.kind in ("copy", "reload") and self.saved:
            start, state = self.saved[-1 if turn.kind == "copy" else turn.number % len(self.saved)]
            for _ in range(1 + turn.number // 2):  # the last one counts
                run = start.loaded(state)
        return run

    def _scale_or_unscale(self, run: LockstepRun, method: str, repetitions: int) -> None:
        """Call *method* with several trees, check one result, and unscale an overflow."""
        subject = self.subject
        empty = [[]] if "empty" in subject.info.capabilities else list[Any]()
        for tree in (*repetitions * [TREE], *empty, [*TREE, OVERFLOW]):
            subject.call(method, run.handle, subject.to_arrays(tree))
        self._check_product(run, method)
        subject.call("unscale", run.handle, subject.to_arrays([*TREE, OVERFLOW]))

    def _check_product(self, run: LockstepRun, method: str) -> None:
        """Compare the result of *method* with the oracle's. "unscale" takes the last result of "scale", if there is one."""
        subject, scale = self.subject, run.oracle.point.scale
        arrays = self.products
        if method == "scale" or arrays is None:
            arrays = subject.to_arrays(TREE + NARROW if "float16" in subject.info.capabilities else TREE)
        values = subject.to_bits(arrays, "a result of scale")
        result = check_products(subject, run.handle, method, scale, values, arrays, ulps=int(not is_power_of_two(scale)))
        has_scalars = any(isinstance(leaf, np.generic) for leaf in result or ())  # NumPy scalars cannot be divided in place
        self.products = result if method == "scale" and not has_scalars else None


def _follow_to_limits(subject: Subject, reloads: bool = False) -> None:
    """Take steps to the edges of ranges, and beyond; with *reloads*, also with scalers that were saved on the way."""
    limits = [*LIMITS]
    limits += [INFINITE_FACTOR] if subject.supported.default.max_scale is not None else []
    limits += [SUBNORMAL] if subject.info.arrays == "numpy" else []
    limits += [TOP] if reloads else []
    for settings, finite in limits:
        if is_power_of_two(settings.get("growth_factor", 2.0)) or "rounding" in subject.info.capabilities:
            with suppress(Unsupported):
                constants: dict[str, Any] = {"growth_interval": 1, **settings}
                _follow_to_limit(subject, supported_rule(subject, **constants), finite, reloads)


def _follow_to_limit(subject: Subject, rule: LossScaleRule, finite: str, reloads: bool) -> None:
    runs = [LockstepRun(subject, rule)]
    for steps in (finite, *"++++++++-"):
        for run in runs:
            run.advance(steps).compare()
        if reloads:
            runs.append(runs[0].loaded(subject.call("save", runs[0].handle)))


@case("MACHINE-state", 0, "unusable claim: a scaler cannot be created with the constants that it claims, so no other case runs")
def can_be_made_as_it_claims_to_be(subject: Subject) -> None:
    """Create a scaler with the constants that the implementation claims."""
    try:
        subject.create(subject.supported.make())
    except Unsupported as unsupported:
        subject.expect(False, f"expected a scaler with the constants of {subject.supported.name}, got Unsupported: {unsupported}")


@case("MACHINE-every-sequence", 0, "any bug: the scale is wrong after some pattern of six steps")
def follows_every_pattern_of_six_steps(subject: Subject) -> None:
    """Use a growth interval of 2; if it cannot be set, the case is unsupported."""
    finite = every_pattern(supported_rule(subject, growth_interval=2), 6)
    run_lockstep(subject, finite, {"growth_interval": 2}, "MACHINE-backoff")


@case("MACHINE-every-sequence", 0, "any bug: the scale is wrong after some trace with drawn constants and bounds")
def follows_drawn_traces(subject: Subject) -> None:
    """Take traces that reach growths, bounds between powers of two, and a hysteresis, each several times."""
    run_draws(subject, draw_trace, numbered("trace", 40))
    run_unrecorded(subject, _follow_to_limits)


@case("MACHINE-pure", 0, "shared state: scalers change each other, reading changes the scale, or unread steps are lost")
def scalers_take_turns(subject: Subject) -> None:
    """Let scalers, some with equal constants, take turns; then create many scalers between the steps of one."""
    run_draws(subject, partial(draw_walk, kinds=TURNS), numbered("taking turns", 25))
    with suppress(Unsupported):
        run = LockstepRun(subject, supported_rule(subject)).advance("++")
        _others = [subject.create(run.rule) for _ in range(40)]
        run.follow("++")


@case("STEP-resume", 0, "lost state: a scaler continues differently after saving or loading, or changes what was saved", "resume")
def saves_and_loads_in_turns(subject: Subject) -> None:
    """Load states several times, after each step, at infinity, with other constants, and while the original goes on."""
    run_draws(subject, draw_walk, numbered("resuming", 25))
    run_unrecorded(subject, partial(_follow_to_limits, reloads=True))
    with suppress(Unsupported):
        _reload_after_each_step(subject, supported_rule(subject, growth_interval=5))
    for name, finite, (value, other) in OTHER_CONSTANTS:
        with suppress(Unsupported):
            rules = supported_rule(subject, **{name: value}), supported_rule(subject, **{name: other})
            _load_with_other(subject, name, finite, *rules)


def _reload_after_each_step(subject: Subject, rule: LossScaleRule) -> None:
    """Take steps, each with a scaler that was loaded after the previous one; a scaler that was created before is unaffected."""
    run, other = LockstepRun(subject, rule), LockstepRun(subject, rule)
    for sign in 2 * "++++++-++++++++++++-":
        run = run.advance(sign).compare().loaded(subject.call("save", run.handle))
    other.compare().follow(4 * "+")


def _load_with_other(subject: Subject, name: str, finite: str, rule: LossScaleRule, other: LossScaleRule) -> None:
    """Load a state of *rule* with *other*, whose constant *name* differs. The constants that were saved may remain in force."""
    run = LockstepRun(subject, rule).advance(finite)
    if "-" not in finite:  # up to one step before a growth, since a scaler may count the steps that remain
        run.advance("+" * (rule.growth_interval - 1 - run.oracle.good_steps))
    try:
        handle = subject.call("load", other, subject.call("save", run.handle))
    except Raised:  # a state of another rule may be rejected
        return
    loading = f"loading with {name}={getattr(other, name)} what was saved after {run.finite} with {name}={getattr(rule, name)}"
    machines = [_continued(run.oracle, rule), _continued(run.oracle, other)]  # those that the scaler may follow
    for number, sign in enumerate(3 * finite):
        points = [machine.step(sign == "+") for machine in machines]
        if any(point.stopped for point in points):  # the published scaler raises an error
            return
        expected = " or ".join({f"{point.scale} ({', '.join(point.clauses)})": None for point in points})
        handle = subject.update(handle, sign == "+")
        scale = rounded(subject.read_scale(handle), rule.dtype)
        machines = [machine for machine in machines if machine.point.scale == scale]
        message = f"step {number} (counted from 0) after {loading}: expected scale {expected}, got {scale}"
        subject.expect(bool(machines), message)


def _continued(machine: Machine, rule: LossScaleRule) -> Machine:
    """Return a copy of the machine that continues with the constants of *rule*."""
    copy = machine.copy()
    copy.rule, copy.min_scale, copy.max_scale = rule, rule.min_scale, rule.max_scale
    return copy


@case("MACHINE-next-step", 1, "wrong time: tensors are scaled by another scale than the present one, or count as a step")
def tensors_and_updates_take_turns(subject: Subject) -> None:
    """Scale, unscale and check arrays between the updates of several scalers."""
    run_draws(subject, partial(draw_walk, kinds=WITH_TENSORS), numbered("tensors", 14))


@case("MACHINE-growth-window", 0, "other constants: with the published ones, the scale starts, backs off or grows differently")
def follows_the_published_constants(subject: Subject) -> None:
    """Take steps of a rule that sets no constant."""
    run_unrecorded(subject, _follow_published_constants)


def _follow_published_constants(subject: Subject) -> None:
    """Take two windows in a row, and one after a late overflow, and read the scale where it should change."""
    rule = subject.supported.make()
    window = rule.growth_interval if rule.growth_factor > 1 else 4
    if window > 3000:
        raise Unsupported(f"the published growth_interval is {window}, above the limit of 3000")
    run = LockstepRun(subject, rule)
    for unread, read in ((window - 2, "+++"), (window - 3, "+++"), (window - 6, "-" * rule.hysteresis), (window - 2, "+++")):
        run.advance("+" * unread).compare().follow(read)


DRAWN = (
    can_be_made_as_it_claims_to_be,
    follows_every_pattern_of_six_steps,
    follows_drawn_traces,
    scalers_take_turns,
    saves_and_loads_in_turns,
    tensors_and_updates_take_turns,
    follows_the_published_constants,
)
