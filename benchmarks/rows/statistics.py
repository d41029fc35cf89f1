"""Rows of unscaling with statistics. The baseline is unscaling without statistics, so the ratio shows what statistics cost."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from gradients import Gradients
from measure import Contender
from shapes import SMALL, Shape, equal
from specs import Spec

import ampscale

ONE_LARGE = equal("1x10M", "1 x 10M", 1, 10_000_000)
ROWS = (("float32", SMALL), ("float32", ONE_LARGE), ("float16", SMALL), ("bfloat16", SMALL))


def specs() -> Iterator[Spec]:
    """Yield the specifications of all rows."""
    for library in ("numpy", "torch"):
        for dtype, shape in ROWS:
            build = partial(contenders, library, dtype, shape)
            yield Spec(
                f"measure/{library}/{dtype}/{shape.name}", library, "unscale+check+measure", build, dtype, shape.description
            )


def contenders(library: str, dtype: str, shape: Shape, quick: bool) -> Iterator[Contender]:
    """Yield unscaling in place with and without statistics. A few of the unscaled gradients are subnormal in float16."""
    gradients = Gradients(shape.quick() if quick else shape, dtype)
    tree, scale = _arguments(library, gradients)
    run = partial(ampscale.unscale_check_and_measure, tree, scale, out=tree)
    yield Contender("ampscale", run, gradients.refill, "ours")
    baseline = partial(ampscale.unscale_and_check, tree, scale, out=tree)
    yield Contender("ampscale, without statistics", baseline, gradients.refill, "baseline")


def _arguments(library: str, gradients: Gradients) -> tuple[Any, Any]:
    if library == "numpy":
        return gradients.arrays, np.asarray(gradients.scale, np.float32)
    import torch

    return gradients.as_torch(), torch.tensor(gradients.scale)
