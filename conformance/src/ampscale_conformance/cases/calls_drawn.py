"""Chapter 55: drawn scripts of calls, which combine optimizers, gradients, edits, rejected calls, settings and scalers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.case import Case, named
from ..model.draw import DrawnCase, Pick, numbered, run_draws
from ..model.subject import Subject
from ..model.supported_rules import supported_rules
from .calls_loop import Loop, is_static, simple_rule
from .machine_lockstep import LARGEST

DRAWS = 18  # in one case
STEPS = (["unscale_", "step"], ["step"], ["unscale_", "edit", "step"])  # calls in an iteration with a static scale
REJECTED = ["unscale_", "edit", "unscale_", "step"]  # the second unscale_ is rejected
CALLS = (*STEPS * 2, ["unscale_"], ["unscale_", "edit"], ["set", "step"], ["step", "set"], ["step", "set:inf"], REJECTED)
EDITED = (["unscale_", "edit:some", "step"], ["unscale_", "edit:none"], ["step", "set:none"])
KINDS = ("set", "set:inf", "set", "set:inf", "set", "set:wide", "set:zero", "set:large", "set:inf+two")
WITH_NONE = ("set:some", "set:some+inf", "set:some")
TOP = {"init_scale": 2.0**120, "growth_factor": 2.0**10, "backoff_factor": 0.25}  # a growth is infinite; gradients are zero
AT_TOP = ("set:zero", "set:zero", "set:zero", "set:inf")


def draw_settings(
    pick: Pick, info: ImplementationInfo, exponents: Sequence[int], narrow: bool, top: bool = False
) -> dict[str, Any]:
    """Draw constants that can be set: with *top*, those of `TOP`; with *narrow* (float16), a scale that is a power of two."""
    divides = "division" in info.capabilities and not narrow
    start = TOP["init_scale"] if top else 2.0 ** pick(exponents) * pick((1.0, 1.0, 61 / 32) if divides else (1.0,))
    settings = {
        "init_scale": start,
        "growth_interval": pick((2, 1, 3)),
        "growth_factor": pick((2.0, 4.0)),
        "backoff_factor": pick((0.5, 0.25)),
        "hysteresis": pick((1, 2, 3)),
        "min_scale": start / 2.0 ** pick((9, 1, 0, 3)),
        "max_scale": min(start * 2.0 ** pick((9, 1, 0, 3)), LARGEST),
    }
    settable = supported_rules(info.preset).parameters
    return {name: value for name, value in settings.items() if name in settable} | (TOP if top else {})


def draw_calls(pick: Pick, info: ImplementationInfo, several: bool = True, top: bool = False) -> DrawnCase:
    """
    Draw one or two scalers, with one or several optimizers each, and the calls of several iterations of each.

    Args:
        pick: Function that chooses.
        info: Description of the implementation.
        several: Draw several optimizers, with the capability "groups".
        top: Draw scales near the largest float32 number.
    """
    names = "abc" if several and "groups" in info.capabilities else pick("abc")
    dtype = "float32" if top else pick(("float32", "float32", "float16"))
    choices = (pick, info, (10, 4, 15, 0), dtype == "float16", top)
    scalers = [(draw_settings(*choices), pick(range(35))) for _ in range(pick((1, 2)))]
    static = is_static(supported_rules(info.preset).rule())
    with_none = "none" in info.capabilities
    steps = (*(STEPS if static or top else CALLS), *EDITED * with_none)
    kinds = AT_TOP if top else KINDS + WITH_NONE * with_none
    loads: tuple[list[str], ...] = ([], [], ["load"]) if "resume" in info.capabilities else ([],)
    iterations = [(pick, names[:1] if static else names, steps, kinds, static, loads)] * pick((4, 3, 5))
    ends: tuple[list[str], ...] = ([], [*(f"{call}/{names[0]}" for call in ("set", "unscale_", "edit:inf", "step")), "update"])
    scripts = [[command for choices in iterations for command in _iteration(*choices)] + pick(ends) for _ in scalers]
    commands = []
    while any(scripts):
        index = pick([index for index, script in enumerate(scripts) if script])
        commands.append((index, scripts[index].pop(0)))
    run = partial(_execute, scalers=scalers, commands=commands, dtype=dtype, returns_applied="applied" in info.capabilities)
    return DrawnCase("calls", run, {"dtype": dtype, "scalers": scalers, "commands": commands})


def _iteration(
    pick: Pick, names: str, steps: Sequence[list[str]], kinds: Sequence[str], static: bool, loads: Sequence[list[str]]
) -> Iterator[str]:
    """Yield the calls of one iteration of one, several or all optimizers, in any order, and rejected calls before each call."""
    yield from pick(loads)
    acting = [name for name in names if pick((True, True, True, False))] or [pick(names)]
    calls = {name: [pick(kinds), *pick(steps)] for name in acting}
    earlier: dict[str, list[str]] = {name: [] for name in names}
    while True:
        if not static and pick((False, False, True)):
            yield from [pick(_rejected(earlier))] * pick((1, 2))
        if not any(calls.values()):
            break
        name = pick([name for name in acting if calls[name]])
        earlier[name].append(calls[name].pop(0))
        yield f"{earlier[name][-1]}/{name}"
    yield "update"


def _rejected(earlier: dict[str, list[str]]) -> list[str]:
    """Return the calls that must raise an error after the *earlier* ones of each optimizer in this iteration."""
    unscaled = [f"unscale_/{name}" for name, calls in earlier.items() if {"unscale_", "step"} & {*calls}]
    stepped = [f"step/{name}" for name, calls in earlier.items() if "step" in calls]
    return unscaled + stepped or ["update"]


def _execute(subject: Subject, scalers: Sequence[tuple[dict[str, Any], int]], commands: Any, **options: Any) -> None:
    given = dict[str, Any]()
    rules = [simple_rule(subject, **settings) for settings, _ in scalers]
    loops = [Loop(subject, rule, start=start, given=given, **options) for rule, (_, start) in zip(rules, scalers, strict=True)]
    for number, (index, command) in enumerate(commands, start=1):
        loops[index].execute(command, f"after call {number}, {command} of scaler {index}")


def run_with_top(subject: Subject, draw: Callable[..., DrawnCase], seeds: Sequence[str]) -> None:
    """Run the cases drawn with these seeds, and those drawn with the first four near the largest scale, if that is supported."""
    run_draws(subject, draw, seeds)
    with suppress(Unsupported):
        run_draws(subject, partial(draw, top=True), seeds[:4])


def drawn(name: str, level: int, draw: Callable[..., DrawnCase], *needs: str) -> Case:
    """Return a case that runs the cases which are drawn with a fixed list of seeds."""
    run = partial(run_with_top, draw=draw, seeds=numbered(name, DRAWS))
    return named(name, level, "any bug: a value is wrong in some combination", run, needs)


CASES = (
    drawn("CALLS-every-sequence/one-optimizer-in-every-order", 2, partial(draw_calls, several=False)),
    drawn("CALLS-every-sequence/three-optimizers-in-every-order", 2, draw_calls, "groups"),
)
