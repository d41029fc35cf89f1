"""Chapter 55: drawn scripts of calls, which combine optimizers, gradients, edits, rejected calls, settings and scalers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.case import Case, named
from ..model.draw import DrawnCase, Pick, numbered, one_in, run_draws
from ..model.subject import Subject
from ..model.supported_rules import supported_rules
from .calls_loop import ON_TREES, Loop, is_static, simple_rule
from .machine_lockstep import LARGEST

Draw = Callable[..., DrawnCase]
DRAWS = 22  # in one case
STEPS = (["unscale_", "step"], ["step"], ["unscale_", "edit", "step"])  # calls in an iteration with a static scale
REJECTED = ["unscale_", "edit", "unscale_", "step"]  # the second unscale_ is rejected
UNSTEPPED = (["unscale_"], ["unscale_", "edit"], ["unscale_", "edit:inf"])
CALLS = (*STEPS * 2, *UNSTEPPED, ["set", "step"], ["step", "set"], ["step", "set:inf"], REJECTED)
EDITED = (["unscale_", "edit:some", "step"], ["unscale_", "edit:none"], ["step", "set:none"])
KINDS = ("set", "set:inf", "set", "set:inf", "set", "set:wide", "set:zero", "set:large", "set:inf+two")
WITH_NONE = ("set:some", "set:some+inf", "set:some")
# Most rules (7 with other libraries) or cells (3) of a drawn case: compilation is slow, and torch compiles at most 8 rules.
LIMIT = {"numpy": 99, "torch": 2}
DTYPES = ("float32", "float16", "float32,float16", "float16,float32")
CONSTANTS: dict[str, tuple[Any, ...]] = {
    "growth_interval": (2, 1, 3),
    "growth_factor": (2.0, 4.0),
    "backoff_factor": (0.5, 0.25),
    "hysteresis": (1, 2, 3),
    "min_scale": (2.0**-9, 0.5, 1.0, 0.125),  # a bound divided by the initial scale
    "max_scale": (2.0**9, 2.0, 1.0, 8.0),
}
TOP = {"init_scale": 2.0**120, "growth_factor": 2.0**10, "backoff_factor": 0.25}  # a growth is infinite; gradients are zero
AT_TOP = ("set:zero", "set:zero", "set:zero", "set:inf")


def draw_rules(
    pick: Pick, info: ImplementationInfo, starts: Sequence[float], top: bool = False, narrow: bool = False
) -> list[dict[str, Any]]:
    """
    Draw the settable constants of a rule, and of rules that differ from it in one constant.

    If *narrow* is True, the scales are powers of two.
    """
    factors = (1.0, 1.0, 61 / 32) if "division" in info.capabilities and not narrow else (1.0,)
    drawn = {name: pick(values) for name, values in CONSTANTS.items()}
    others = {name: pick([value for value in values if value != drawn[name]]) for name, values in CONSTANTS.items()}
    settings = {"init_scale": pick(starts) * pick(factors)} | drawn | (TOP if top else {})
    every = [settings, *(settings | {name: value} for name, value in others.items() if not top)]
    settable = supported_rules(info.preset).parameters
    for rule in every:
        start = rule["init_scale"]
        rule |= {"min_scale": rule["min_scale"] * start, "max_scale": min(rule["max_scale"] * start, LARGEST)}
    return [{name: value for name, value in rule.items() if name in settable} for rule in every]


def draw_calls(
    pick: Pick, info: ImplementationInfo, several: bool = True, top: bool = False, more: Any = (), dtype: str = ""
) -> DrawnCase:
    """
    Draw scalers, near the largest scale if *top* is True, and calls of one optimizer, or of three if *several* is True.

    *more* are kinds of gradients, as `calls.py` describes them, that are drawn besides `KINDS`. *dtype* is drawn if it is "".
    """
    names = pick(("abc", "dac", "aed", "fab")) if several and "groups" in info.capabilities else pick("abcef")
    if "bfloat16" in dtype and "bfloat16" not in info.capabilities:
        raise Unsupported("does not claim bfloat16")
    dtype = dtype or (pick(DTYPES) if "float16" in info.capabilities and not top else "float32")
    starts = (2.0**10, 16.0, 2.0**15, 1.0, 0.125)
    narrow = "float16" in dtype
    scalers = [(draw_rules(pick, info, starts, top, narrow)[0], pick(range(35))) for _ in range(pick((1, 2)))]
    static = is_static(supported_rules(info.preset).default)
    steps: tuple[list[str], ...] = STEPS if static or top else CALLS
    kinds = AT_TOP if top else (*more, *KINDS)
    if "none" in info.capabilities:
        steps += EDITED
        kinds += () if top else WITH_NONE
    resumes = "resume" in info.capabilities
    acting = names[:1] if static else names
    iterations = range(pick((4, 3, 5)))
    ends: tuple[list[str], ...] = ([], [*(f"{call}/{names[0]}" for call in ("set", "unscale_", "edit:inf", "step")), "update"])
    scripts = []
    for _ in scalers:
        drawn = [command for _ in iterations for command in _iteration(pick, acting, steps, kinds, static, resumes)]
        scripts.append([*drawn, *pick(ends)])
    commands = list(_interleaved(pick, scripts))
    run = partial(_execute, scalers=scalers, commands=commands, dtype=dtype, returns_applied="applied" in info.capabilities)
    return DrawnCase(run)


def _interleaved(pick: Pick, scripts: Sequence[list[str]]) -> Iterator[tuple[int, str]]:
    """Yield the commands of all scripts, each with the index of its script, which are removed from the scripts."""
    while any(scripts):
        index = pick([index for index, script in enumerate(scripts) if script])
        yield index, scripts[index].pop(0)


def _iteration(
    pick: Pick, names: str, steps: Sequence[list[str]], kinds: Sequence[str], static: bool, resumes: bool
) -> Iterator[str]:
    """
    Yield the calls of an iteration in which some optimizers take part, in any order, and the update that ends it.

    It can start with a load. Rejected calls, saves, and calls with other trees than gradients come between the others.
    """
    if resumes and one_in(3, pick):
        yield "load"
    acting = [name for name in names if not one_in(4, pick)] or [pick(names)]
    if "set:none" in kinds:
        kinds = pick((kinds, kinds, ["set:none"]))
    calls = {name: [pick(kinds), *pick(steps)] for name in acting}
    for name in acting:  # whether an optimizer without gradients steps with later ones is not specified
        calls[name] = [call for call in calls[name] if "set:none" not in calls[name] or not call.startswith("edit")]
    earlier: dict[str, list[str]] = {name: [] for name in names}
    while True:
        if not static and one_in(3, pick):
            yield from [pick(_rejected(earlier))] * pick((1, 2))
        if not any(calls.values()):
            break
        if resumes and one_in(4, pick):
            yield "save"
        yield from [pick(ON_TREES)] * pick((0, 0, 0, 1))
        name = pick([name for name in acting if calls[name]])
        earlier[name].append(calls[name].pop(0))
        yield f"{earlier[name][-1]}/{name}"
    yield pick(("update", "update", "update:unread"))


def _rejected(earlier: dict[str, list[str]]) -> list[str]:
    """Return the calls that must raise an error after the *earlier* ones of each optimizer in this iteration."""
    unscaled = [f"unscale_/{name}" for name, calls in earlier.items() if {"unscale_", "step"} & {*calls}]
    stepped = [f"step/{name}" for name, calls in earlier.items() if "step" in calls]
    return unscaled + stepped or ["update"]


def _execute(subject: Subject, scalers: Sequence[tuple[dict[str, Any], int]], commands: Any, **options: Any) -> None:
    shared = dict[Any, Any]()
    rules = [simple_rule(subject, **settings) for settings, _ in scalers]
    loops = [Loop(subject, rule, start=start, shared=shared, **options) for rule, (_, start) in zip(rules, scalers, strict=True)]
    for name in [command[-1] for index, command in commands if index == 0 and "/" in command]:
        loops[0].add_optimizer(name)  # also if its first gradients come in a later iteration
    for number, (index, command) in enumerate(commands, start=1):
        loops[index].execute(command, f"after call {number}, {command} of scaler {index}")


def run_with_top(subject: Subject, draw: Draw, seeds: Sequence[str], others: Iterable[Any] = ()) -> None:
    """Run the drawn cases; if they are supported, also *others*, and cases near the largest scale with the first four seeds."""
    run_draws(subject, draw, seeds)
    for other, its_seeds in ((partial(draw, top=True), seeds[:4]), *others):
        with suppress(Unsupported):
            run_draws(subject, other, its_seeds)


def drawn(name: str, level: int, draw: Draw, *needs: str, catches: str = "", **others: Any) -> Case:
    """Return a case that runs the cases which are drawn with a fixed list of seeds. *others* are options of `run_with_top`."""
    run = partial(run_with_top, draw=draw, seeds=numbered(name, DRAWS), **others)
    return named(name, level, catches or "any bug: a value is wrong in some combination", run, needs)


ONE = partial(draw_calls, several=False)
WIDE = {"float64": 6, "float64,bfloat16": 9}  # numbers of draws with these dtypes
OTHERS = [(partial(ONE, dtype=name, more=3 * ["set:long"]), numbered(name, draws)) for name, draws in WIDE.items()]
CASES = (
    drawn("CALLS-every-sequence/one-optimizer-in-every-order", 2, ONE, others=OTHERS),
    drawn("CALLS-every-sequence/three-optimizers-in-every-order", 2, draw_calls, "groups"),
)
