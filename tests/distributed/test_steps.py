"""All ranks take the decision that one process with all gradients takes, at every step, on MPI and torch."""

import numpy as np
import pytest
from distributed import training
from distributed.scenarios import LAYOUTS, gradients, is_finite, whole_of

import ampscale

STEPS = 28


def expected(api, layout, max_norm, seed, size, steps):
    """Yield the flag, scale and norm of each step of a loop of `LossScaleRule.update`. Cells average unscaled gradients."""
    state = training.RULE.init(like=0.0)
    for step in range(steps):
        per_rank, _ = gradients(layout, step, state.scale, size, seed)
        finite = is_finite(layout, per_rank, 1.0 if api == "cell" else state.scale)
        with np.errstate(all="ignore"):
            norm = None if max_norm is None else training.bits(ampscale.global_norm(whole_of(layout, per_rank)))
        state = training.RULE.update(state, finite)
        yield finite, state.scale, norm


def check(pool, api, layout, max_norm, size=4, steps=STEPS):
    """Run the steps on a pool, and compare the ranks with each other and with one process."""
    seed = 100 * LAYOUTS.index(layout) + size
    results = pool.run(training.run, pool.engine, api, layout, max_norm, steps, seed, size)
    for first in range(0, 4, size):
        group = results[first : first + size]
        flags, scales, norms = zip(*expected(api, layout, max_norm, seed + first // size, size, steps), strict=True)
        for result in group:
            assert [row[0] for row in result] == list(flags)
            assert [row[1] for row in result] == list(scales)
            assert norms_of_finite_steps(result) == norms_of_finite_steps(group[0])
            if layout in ("replicated", "averaged"):
                assert [row[3] for row in result] == [row[3] for row in group[0]]
        if api == "train_step" and layout in ("averaged", "sharded"):
            assert norms_of_finite_steps(group[0]) == [norm for norm, flag in zip(norms, flags, strict=True) if flag]


def norms_of_finite_steps(rows):
    """Return the norms of finite steps, which are equal on all ranks. If the mean overflows, each rank has its own norm."""
    return [norm for finite, _, norm, _ in rows if finite]


@pytest.mark.clause("REPLICAS-same-decision", "REPLICAS-same-scale", "REPLICAS-one-flag", "REPLICAS-agreed-norm")
@pytest.mark.parametrize("steps", [STEPS, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("ranks", "api", "layout", "max_norm"),
    [
        ("mpi", "train_step", "replicated", None),
        ("mpi", "train_step", "averaged", 1.0),
        ("mpi", "cell", "sharded", None),
        ("mpi", "cell", "distinct", 1.0),
        ("gloo", "cell", "replicated", 1.0),
        ("gloo", "cell", "averaged", None),
        ("gloo", "train_step", "sharded", 1.0),
        ("gloo", "train_step", "distinct", None),
        ("mpi", "paddle", "averaged", None),
        ("mpi", "paddle", "distinct", None),
        ("gloo", "paddle", "sharded", None),
        ("gloo", "torch", "averaged", None),
        ("gloo", "torch", "sharded", None),
        ("gloo", "torch", "distinct", None),
    ],
    indirect=["ranks"],
)
def test_all_ranks_decide_as_one_process_with_all_gradients(ranks, api, layout, max_norm, steps):
    """The first eight cases have every pair of values of any two parameters. Scalers neither average nor clip."""
    check(ranks, api, layout, max_norm, steps=steps)


@pytest.mark.clause("REPLICAS-same-decision")
@pytest.mark.parametrize("layout", ["replicated", "sharded"])
def test_two_groups_of_two_ranks_decide_independently(ranks, layout):
    check(ranks, "train_step", layout, max_norm=1.0, size=2)
