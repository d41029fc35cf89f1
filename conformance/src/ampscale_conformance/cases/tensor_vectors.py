"""Cases of level 1 that run the test vectors of spec/, so that each tree is written only once."""

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from ..model.bits import Bits, arrays, leaves, tree_from_json
from ..model.case import Case, named
from ..model.clauses import spec_folder
from ..model.floats import is_power_of_two
from ..model.subject import Subject, to_record
from ..oracle.tensors import all_finite, numbers
from . import trees_drawn
from .rows import rows
from .scaling_trees import check_products

CLAIMS = trees_drawn.CLAIMS | {"float16": "float16"} | dict.fromkeys(("int32", "int64", "bool"), "integers")


def vector_cases(table: str) -> Iterator[Case]:
    """
    Yield a case for each row of a table. The script of a row is the id of a test vector, which also names the bug.

    The option `ulps` is the number of units in the last place by which results may differ; without it, a quotient by
    anything but a power of two requires the capability "division".
    """
    for row in rows(table):
        vector = _vectors(row.name.partition("-")[0].lower())[row.script]
        tree = tree_from_json(vector.get("tree", vector.get("input")))
        needs = _needs_of(tree)
        if vector["kind"] == "scale":
            needs.discard("float16")  # a loss may be float16 in any case
        if vector["kind"] == "all_finite":
            run = partial(check_flag, tree=tree, expected=vector["finite"])
        else:
            scale = float.fromhex(vector["scale"])
            run = partial(check_arithmetic, tree=tree, method=vector["kind"], scale=scale, **row.options)
            if vector["kind"] == "unscale" and not is_power_of_two(scale) and not row.options:
                needs.add("division")
        yield named(row.name, 1, vector["catches"], run, needs)


def _needs_of(tree: Any) -> set[str]:
    """Return the capabilities that a tree requires."""
    needs = {CLAIMS[leaf.dtype] for leaf in arrays(tree) if leaf.dtype in CLAIMS}
    if None in dict(leaves(tree)).values():
        return needs | {"none"}
    return needs if arrays(tree) else {"empty"}


@cache
def _vectors(chapter: str) -> Mapping[str, Any]:
    text = (spec_folder() / "vectors" / f"{chapter}.json").read_text("utf-8")
    return {vector["id"]: vector for vector in json.loads(text)["cases"]}


def check_flag(subject: Subject, tree: Any, expected: bool) -> None:
    """Compare the flag of a tree with the expected one."""
    flag = subject.all_finite(tree)
    subject.expect(flag == expected, f"all_finite: expected {expected}, got {flag}")


def check_arithmetic(subject: Subject, tree: Any, method: str, scale: float, ulps: int = 0) -> None:
    """Compare the scaled or unscaled tree. If the values are not finite, the results may be other non-finite values."""
    handle = subject.create(subject.rule(init_scale=scale))
    if all_finite(tree):
        check_products(subject, handle, method, scale, tree, ulps=ulps)
        return
    result = subject.scaled(method, handle, tree)
    finite = [path for path, leaf in leaves(result) if not isinstance(leaf, Bits) or any(map(math.isfinite, numbers(leaf)))]
    subject.expect(not finite, f"{method}: expected no finite value, got some at {finite} of {to_record(result)}")
