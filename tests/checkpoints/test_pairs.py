"""Tests of all conversions from one format to another: the published scalers diverge exactly when the report says so."""

from functools import lru_cache

import pytest
from checkpoints.brute import length
from checkpoints.scalers import SCALERS, Small, first_difference, reached

from ampscale import checkpoints
from ampscale.checkpoints.state import canonical

SMALL = [Small(1, 1, 1.0), Small(2, 2, 2.0), Small(3, 2, 1.0)]
STEPS = 5  # length of the traces


@lru_cache(None)
def states(name, small):
    """Return the loops that a small scaler of a format reaches within five steps, with their entries and settings."""
    scaler = SCALERS[name]
    loops = reached(scaler.make(small), STEPS)
    return [(loop, scaler.save(loop), scaler.settings_of(loop)) for loop in loops]


@pytest.mark.parametrize("small", SMALL, ids=str)
@pytest.mark.parametrize("name", SCALERS)
def test_conversion_to_the_same_format_is_lossless(name, small):
    """A scaler that loads the converted entries has the same scales. The entries keep their keys, types, dtypes and shapes."""
    for loop, mapping, settings in states(name, small):
        saved = checkpoints.convert(mapping, name, name, settings=settings)
        assert saved.report.lossless
        assert saved.report.dropped == {}
        assert forms(saved.mapping) == forms(mapping)
        assert saved.report.settings == settings
        assert saved.report.taken
        loaded = SCALERS[name].load(saved.mapping, settings)
        assert first_difference(loop, loaded, STEPS) is None


@pytest.mark.parametrize("target", SCALERS)
@pytest.mark.parametrize("source", SCALERS)
def test_report_states_the_first_difference(source, target):
    """Loops diverge after the reported trace. The entries encode the target, and the source, too, if nothing is dropped."""
    loops = distinct_loops(source, SMALL[-1])
    loop, mapping, settings = loops[list(SCALERS).index(target) % len(loops)]  # another one for each target
    saved = checkpoints.convert(mapping, source, target, settings=settings)
    other = SCALERS[target].load(saved.mapping, saved.report.settings)
    divergence = saved.report.divergence
    assert divergence.steps is not None
    first = length(divergence.first)
    assert first_difference(loop, other, STEPS) == (first if first is not None and first <= STEPS else None)
    assert saved.report.lossless == (first is None)
    loaded = checkpoints.load(target, saved.mapping, settings=saved.report.settings)
    assert canonical(loaded) == canonical(saved.report.target)
    assert loaded.assumed == {}
    if saved.report.dropped == {}:
        assert canonical(checkpoints.save(source, loaded).report.target) == canonical(saved.report.source)


def forms(entries):
    """Return the type, dtype and shape of each entry."""
    return {key: (type(value), getattr(value, "dtype", None), getattr(value, "shape", None)) for key, value in entries.items()}


@lru_cache(None)
def distinct_loops(name, small):
    """Return one loop with its entries and settings for each canonical state that has the initial scale."""
    loops = {}
    for loop, mapping, settings in states(name, small):
        _, state = canonical(checkpoints.load(name, mapping, settings=settings))
        if state.scale == 8:
            loops.setdefault(state, (loop, mapping, settings))
    return list(loops.values())
