"""What ampscale is asked to do in a row: the same calls on every library."""

from collections.abc import Callable
from typing import Any

import ampscale

UNSCALE, NORM, CLIP, FINITE, GLOBAL = (
    "unscale+check",
    "unscale+check+norm",
    "unscale+check+norm+clip",
    "all_finite",
    "global_norm",
)
VERBS = (UNSCALE, NORM, CLIP, FINITE, GLOBAL)
WRITING = (UNSCALE, NORM, CLIP)


def call(verb: str, tree: Any, scale: Any, max_norm: float, in_place: bool = True) -> Callable[[], Any]:
    """The verb as a call without arguments, on arrays that are overwritten where the library can."""
    out = {"out": tree} if in_place else {}
    return {
        UNSCALE: lambda: ampscale.unscale_and_check(tree, scale, **out),
        NORM: lambda: ampscale.unscale_check_and_norm(tree, scale, **out),
        CLIP: lambda: clipped(tree, scale, max_norm, **out),
        FINITE: lambda: ampscale.all_finite(tree),
        GLOBAL: lambda: ampscale.global_norm(tree),
    }[verb]


def clipped(tree: Any, scale: Any, max_norm: float, **out: Any) -> tuple[Any, Any, Any]:
    """Unscaled, checked and clipped, as `train_step` does it."""
    unscaled, finite = ampscale.unscale_and_check(tree, scale, **out)
    return (*ampscale.clip_by_global_norm(unscaled, max_norm), finite)
