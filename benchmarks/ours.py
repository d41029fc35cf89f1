"""Calls of ampscale that the rows measure, the same on every library."""

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
OPERATIONS = (UNSCALE, NORM, CLIP, FINITE, GLOBAL)
WRITING = (UNSCALE, NORM, CLIP)


def call(operation: str, tree: Any, scale: Any, max_norm: float, in_place: bool = True) -> Callable[[], Any]:
    """Return a function without arguments that calls the operation; in place, unless *in_place* is False."""
    out = {"out": tree} if in_place else {}
    return {
        UNSCALE: lambda: ampscale.unscale_and_check(tree, scale, **out),
        NORM: lambda: ampscale.unscale_check_and_norm(tree, scale, **out),
        CLIP: lambda: clipped(tree, scale, max_norm, **out),
        FINITE: lambda: ampscale.all_finite(tree),
        GLOBAL: lambda: ampscale.global_norm(tree),
    }[operation]


def clipped(tree: Any, scale: Any, max_norm: float, **out: Any) -> tuple[Any, Any, Any]:
    """Unscale, check and clip as `train_step` does."""
    unscaled, finite = ampscale.unscale_and_check(tree, scale, **out)
    return (*ampscale.clip_by_global_norm(unscaled, max_norm), finite)
