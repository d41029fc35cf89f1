"""Chapter 60, replicas: several replicas take each step together. A script has one word per step, with one sign per replica."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

from ..model.adapter import ImplementationInfo
from ..model.case import named
from ..model.draw import DrawnCase, Pick, numbered
from ..model.floats import rounded
from ..model.subject import Subject
from ..oracle.machine import Machine
from .calls_drawn import draw_rules, run_with_top
from .calls_loop import simple_rule
from .machine_lockstep import LARGEST
from .replicas_ranks import CASES as RANK_CASES
from .rows import Row, rows

SIZES = (3, 2, 5, 4, 1, 2, 8)
STARTS = (2.0**10, 0.25, 3.0 * 2.0**20 + 1, 2.0**17)
# A word of another length than the one before it starts new replicas.
SCRIPTS = f"""
REPLICAS-one-flag/each-rank-decides-for-all | -+ +- -- ++ -++ +-+ ++- -+- +-- --- +++
    -++++ +-+++ ++-++ +++-+ ++++- -+++- +---- +++++ -+++++++ +-++++++ ++-+++++ +++-++++ ++++-+++ +++++-++ ++++++-+ +++++++-
    -+++++-- ---+-+-- -------- ++++++++ {32 * "+"}- | growth_interval=1
    lost flag: the reduction leaves out the flag of a replica, or a replica does not use the result
REPLICAS-single/a-rank-alone-decides-for-itself | - + - {36 * " +"} - | growth_interval=17
    missing group: a single replica fails, or has another growth window
"""


def _take_steps(subject: Subject, row: Row) -> None:
    for size, steps in groupby(row.script.split(), len):
        _follow(subject, simple_rule(subject, **row.options), [size], [("agree", 0, signs) for signs in steps])


def draw_replicas(pick: Pick, info: ImplementationInfo, top: bool = False) -> DrawnCase:
    """Draw the steps of two groups of replicas: the way, the index of the group, and a sign per replica; see `_follow`."""
    settings = draw_rules(pick, info, STARTS, top)[0]
    sizes = [pick(SIZES), pick(SIZES)]
    steps = list[tuple[str, int, str]]()
    ways = ("agree", "agree", "alone", *(["load"] if "resume" in info.capabilities else []))
    for _ in range(10):
        group, overflows = pick((0, 0, 1)), pick((0, 0, 0, 1, 2, None))  # None: all ranks
        ranks = range(sizes[group]) if overflows is None else [pick(range(sizes[group])) for _ in range(overflows)]
        signs = "".join("-" if rank in ranks else "+" for rank in range(sizes[group]))
        steps += [(pick(ways), group, signs), *[("agree", group, signs)] * pick((0, 1, 3))]
    steps += [("last", 0, "-")] * 4
    return DrawnCase(lambda subject: _follow(subject, subject.rule(**settings), sizes, steps))


def _follow(subject: Subject, rule: Any, sizes: Sequence[int], steps: Sequence[tuple[str, int, str]]) -> None:
    """
    Take steps, and compare the scales of all replicas of all groups after each.

    A step has a way to take it, the index of a group, and a sign per replica: "-" is an overflow. The ways are "agree", all
    replicas in one call; "load", the same with loaded states; "alone", each in a call of its own with the flag of the group;
    and "last", the last replica alone, which must not affect the others.
    """
    machines = [[Machine(rule) for _ in range(size)] for size in sizes]
    groups = [[subject.create(rule) for _ in range(size)] for size in sizes]
    for number, (way, index, signs) in enumerate(steps):
        handles, finite = groups[index], "-" not in signs
        chosen = slice(-1, None) if way == "last" else slice(None)
        if machines[index][0].point.scale > LARGEST / len(signs):
            return  # the sum of scaled gradients may be infinite
        points = [machine.step(finite) for machine in machines[index][chosen]]
        if any(point.stopped for point in points):
            return  # the published scaler raises an error
        if way == "load":
            handles[:] = [subject.call("load", rule, subject.call("save", handle)) for handle in handles]
        if way in ("alone", "last"):
            handles[chosen] = [subject.update(handle, finite) for handle in handles[chosen]]
        else:
            handles[:] = subject.call("update_replicas", list(handles), [sign == "+" for sign in signs]) or ()
        expected = [[machine.point.scale for machine in group] for group in machines]
        scales = [[rounded(subject.read_scale(handle), rule.dtype) for handle in group] for group in groups]
        after = f"after step {number} (counted from 0), {way} {signs} of group {index}"
        subject.expect(scales == expected, f"{after}: expected scales {expected}, got {scales}")


CASES = (
    *(named(row.name, 4, row.catches, partial(_take_steps, row=row), {"replicas"}) for row in rows(SCRIPTS)),
    named(
        "REPLICAS-same-scale/all-ranks-have-the-same-scale",
        4,
        "local state: a replica uses a flag, a count or a constant of its own or of another group, so the scales diverge",
        partial(run_with_top, draw=draw_replicas, seeds=[*numbered("replicas", 8), "replicas 35", "replicas 126"]),
        {"replicas"},
    ),
    *RANK_CASES,
)
