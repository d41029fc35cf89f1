"""From every format to every format: what is taken over goes on as it would have, exactly where the report says so."""

from functools import lru_cache

import pytest
from checkpoints.brute import length
from checkpoints.scalers import SCALERS, Small, parting, reached

from ampscale import checkpoints
from ampscale.checkpoints.state import plain

SMALL = [Small(1, 1, 1.0), Small(2, 2, 2.0), Small(3, 2, 1.0)]
STEPS = 5  # of the traces that are walked
PAIRS = [(source, target) for source in SCALERS for target in SCALERS]


@lru_cache(None)
def states(name, small):
    """Every state that a small scaler of a format reaches within five steps: what it saves, and with what it was made."""
    scaler = SCALERS[name]
    loops = reached(scaler.make(small), STEPS)
    return [(loop, scaler.save(loop), scaler.settings_of(loop)) for loop in loops]


@pytest.mark.parametrize("name", SCALERS)
def test_what_was_saved_goes_on_alike(name):
    """
    A scaler that loads what the same format makes of its state cannot be told from one that was never stopped.

    What is written has the keys, types, dtypes and shapes that the scaler saves.
    """
    for loop, mapping, settings in (each for small in SMALL for each in states(name, small)):
        saved = checkpoints.convert(mapping, name, name, settings=settings)
        assert saved.report.lossless
        assert saved.report.dropped == {}
        assert forms(saved.mapping) == forms(mapping)
        assert saved.report.settings == settings
        assert saved.report.taken
        again = SCALERS[name].load(saved.mapping, {**settings, **saved.report.settings})
        assert parting(loop, again, STEPS) is None


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_target_goes_on_as_the_report_says(source, target):
    """
    The published scalers themselves, written out as loops, part first where the report says, and never if it says never.

    What the target holds is read back as it was written, and the way back leads to the source's state where all was held.
    """
    for loop, mapping, settings in different(source, SMALL[-1]):
        saved = checkpoints.convert(mapping, source, target, settings=settings)
        other = SCALERS[target].load(saved.mapping, saved.report.settings)
        found = saved.report.divergence
        assert found.steps is not None
        first = length(found.first)
        assert parting(loop, other, STEPS) == (first if first is not None and first <= STEPS else None)
        assert saved.report.lossless == (first is None)
        there = checkpoints.load(target, saved.mapping, settings=saved.report.settings)
        assert plain(there) == plain(saved.report.target)
        assert there.assumed == {}
        if saved.report.dropped == {}:
            assert plain(checkpoints.save(source, there).report.target) == plain(saved.report.source)


def forms(entries):
    """The type, dtype and shape of each entry."""
    return {key: (type(value), getattr(value, "dtype", None), getattr(value, "shape", None)) for key, value in entries.items()}


def different(name, small):
    """One of the saved states for each state of the machine whose scale is the first."""
    found = {}
    for loop, mapping, settings in states(name, small):
        _, state = plain(checkpoints.load(name, mapping, settings=settings))
        if state.scale == 8:
            found.setdefault(state, (loop, mapping, settings))
    return found.values()
