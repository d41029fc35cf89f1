"""
The adapter's methods as a table: what each takes and gives, and so how a call is written down and sent.

The kinds: `rule`; `finite`, a bool; `number`, a float; `tree`, of arrays; `arrays`, a list in which None is allowed; `options`
and `outputs`, dicts of numbers, bools, lists and arrays; `flag`, a bool or a bool array of shape (); `answer`, the same or
None; `flags`, bools; `nothing`. And what only its maker can read, and is told by a number: `handle`, `handles`, `optimizer`,
`cell`, `saved`, `adapter`.
"""

from typing import NamedTuple


class Method(NamedTuple):
    """What a method takes, what it gives, and from which level or capability on it is there."""

    takes: tuple[str, ...]
    gives: str
    needs: int | str


OPAQUE = ("handle", "optimizer", "cell", "saved", "adapter")  # what only its maker can read

METHODS = {
    "create": Method(("rule", "options"), "handle", 0),
    "update": Method(("handle", "finite"), "handle", 0),
    "read_scale": Method(("handle",), "number", 0),
    "save": Method(("handle",), "saved", "resume"),
    "load": Method(("rule", "saved"), "handle", "resume"),
    "scale": Method(("handle", "tree"), "tree", 1),
    "unscale": Method(("handle", "tree"), "tree", 1),
    "all_finite": Method(("tree",), "flag", 1),
    "add_optimizer": Method(("handle", "arrays"), "optimizer", 2),
    "set_gradients": Method(("handle", "optimizer", "arrays"), "nothing", 2),
    "get_gradients": Method(("handle", "optimizer"), "arrays", 2),
    "get_parameters": Method(("handle", "optimizer"), "arrays", 2),
    "unscale_": Method(("handle", "optimizer"), "nothing", 2),
    "step": Method(("handle", "optimizer"), "answer", 2),
    "update_scale": Method(("handle",), "nothing", 2),
    "create_cell": Method(("rule", "arrays", "options"), "cell", 3),
    "train_step": Method(("cell", "arrays"), "outputs", 3),
    "update_replicas": Method(("handles", "flags"), "handles", "replicas"),
    "step_on_arrays": Method(("handle", "tree"), "handle and tree", "no-host-reads"),
    "compiled": Method((), "adapter", "jit"),
}
