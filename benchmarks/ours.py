"""Calls of ampscale that the rows measure, the same on every library."""

from collections.abc import Callable
from typing import Any

import ampscale

UNSCALE, NORM, CLIP = "unscale+check", "unscale+check+norm", "unscale+check+norm+clip"
FINITE, GLOBAL, ONLY_CLIP = "all_finite", "global_norm", "clip"
OPERATIONS = (UNSCALE, NORM, CLIP, FINITE, GLOBAL)
UNSCALING = (UNSCALE, NORM, CLIP)
WRITING = (*UNSCALING, ONLY_CLIP)


def call(operation: str, tree: Any, scale: Any, max_norm: float, in_place: bool = True) -> Callable[[], Any]:
    """Return a function without arguments that calls the operation; in place, unless *in_place* is False."""
    out = {"out": tree} if in_place else {}
    return {
        UNSCALE: lambda: ampscale.unscale_and_check(tree, scale, **out),
        NORM: lambda: ampscale.unscale_check_and_norm(tree, scale, **out),
        CLIP: lambda: clipped(tree, scale, max_norm, **out),
        FINITE: lambda: ampscale.all_finite(tree),
        GLOBAL: lambda: ampscale.global_norm(tree),
        ONLY_CLIP: lambda: ampscale.clip_by_global_norm(tree, max_norm, **out),
    }[operation]


def clipped(tree: Any, scale: Any, max_norm: float, **out: Any) -> tuple[Any, Any, Any]:
    """Unscale, check and clip as `train_step` does."""
    unscaled, finite = ampscale.unscale_and_check(tree, scale, **out)
    return (*ampscale.clip_by_global_norm(unscaled, max_norm, **out), finite)
