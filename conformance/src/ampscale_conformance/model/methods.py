"""
Table of the adapter's methods: the kinds of their arguments and results, which determine how calls are recorded and sent.

Kinds: `rule`; `finite`, a bool; `number`, a float; `tree`, of arrays; `arrays`, a list that may contain None; `options` and
`outputs`, dicts of numbers, bools, lists and arrays; `flag`, a bool or a bool array of shape (); `flag or null`; `flags`, bools;
`nothing`; and those of `Adapter.train_on_ranks`: `placements`, `steps`, `optimizers` and its result, `ranks`.
Opaque kinds: `handle`, `optimizer`, `cell` and `adapter`, which are sent as numbers, and `saved`, which is sent as JSON or, if it
is not plain data, as a number. `handles` is a list of handles, and `handle and tree` a pair.
"""

from typing import NamedTuple


class Method(NamedTuple):
    """Argument kinds, result kind, and required level or capability of a method."""

    takes: tuple[str, ...]
    gives: str
    needs: int | str


RANKS_SECONDS = 120.0  # least time limit of a call of train_on_ranks and of its case, since the call starts processes
OPAQUE = ("handle", "optimizer", "cell", "saved", "adapter")  # only the implementation can interpret these objects

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
    "step": Method(("handle", "optimizer"), "flag or null", 2),
    "update_scale": Method(("handle",), "nothing", 2),
    "create_cell": Method(("rule", "arrays", "options"), "cell", 3),
    "train_step": Method(("cell", "arrays"), "outputs", 3),
    "update_replicas": Method(("handles", "flags"), "handles", "replicas"),
    "step_on_arrays": Method(("handle", "tree"), "handle and tree", "stays-on-device"),
    "compiled": Method((), "adapter", "jit"),
    "train_on_ranks": Method(("rule", "placements", "steps", "optimizers", "options"), "ranks", "ranks"),
}
