"""All contenders of a row do the row's work: otherwise they could not be compared."""

import math
from itertools import cycle, product

import numpy as np
import ours
import pytest
from gradients import SCALE, Gradients
from measure import Absent
from rows import functional as verb_rows
from shapes import Shape

pytest.importorskip("torch")
SHAPE = Shape("some", "some", ((40, 50), (40, 50)))
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {"float32": 3e-5, "float16": 2e-3, "bfloat16": 2e-2}


def expected(verb, dtype):
    """The arrays after the verb, and the norm, in float64."""
    made = Gradients(SHAPE, dtype, SCALE if verb in ours.WRITING else 1.0)
    arrays = [array.astype(np.float64) / made.scale for array in made.arrays]
    norm = math.sqrt(sum(float(np.sum(np.square(array))) for array in arrays))
    factor = min(1.0, made.max_norm / norm) if verb == ours.CLIP else 1.0
    return [array * factor for array in arrays], norm


def numbers(value):
    """Everything in a result: arrays as float64, flags and norms as floats; torch's and JAX's as NumPy's."""
    if isinstance(value, list | tuple):
        return [number for one in value for number in numbers(one)]
    if value is None:
        return []
    if type(value).__module__.startswith("torch"):
        value = value.detach().float().numpy()
    return [np.asarray(value).astype(np.float64)]


def run(section, verb, dtype, monkeypatch):
    """Each contender's name, what it returns, and what it leaves behind in the arrays that it was given."""
    made = []

    def kept(*arguments):
        made.append(Gradients(*arguments))
        return made[-1]

    monkeypatch.setattr(verb_rows, "Gradients", kept)
    with np.errstate(all="ignore"):
        for each in verb_rows.contenders(section, verb, dtype, SHAPE, SCALE, quick=False):
            if isinstance(each, Absent) or each.kind == "floor":
                continue
            if each.reset is not None:
                each.reset()
            returned = each.run()
            yield each.name, returned, [array.astype(np.float64) for array in made[0].arrays]


def close(found, wanted, dtype):
    """Whether these are the arrays, to the dtype's precision; small ones to that of the largest."""
    return all(
        one.shape == other.shape and np.allclose(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 1e-3)
        for one, other in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("section", ["numpy", "torch", "two-threads"])
def test_each_unscales(section, monkeypatch):
    """In place, or in what it returns: the same gradients, divided by the scale, and clipped where the verb clips."""
    for verb, dtype in product(ours.WRITING, DTYPES):
        wanted, _ = expected(verb, dtype)
        names = []
        for name, returned, left in run(section, verb, dtype, monkeypatch):
            names.append(name)
            in_place = close(left, wanted, dtype)
            assert in_place or close(numbers(returned)[: len(wanted)], wanted, dtype), (name, verb, dtype)
            assert in_place or name == "naive" or (verb == ours.CLIP and name.startswith("ampscale")), (name, verb, dtype)
        assert len(names) >= 3


@pytest.mark.parametrize(("section", "least"), [("numpy", 4), ("torch", 3)])
def test_each_takes_the_norm(section, least, monkeypatch):
    """Those whose call returns it; torch's scaler leaves it to the caller."""
    for verb, dtype in product([ours.NORM, ours.GLOBAL], DTYPES):
        _, norm = expected(verb, dtype)
        seen = 0
        for name, returned, _ in run(section, verb, dtype, monkeypatch):
            scalars = [float(number) for number in numbers(returned) if number.shape == ()]
            seen += any(number == pytest.approx(norm, rel=TOLERANCE[dtype]) for number in scalars)
            assert not scalars or seen, (name, verb, dtype)
        assert seen >= least, (verb, dtype)


@pytest.mark.parametrize("section", ["numpy", "torch"])
def test_each_finds_what_is_not_finite(section, monkeypatch):
    """And says so of nothing else."""
    for bad in (math.nan, math.inf, None):

        class Spoilt(Gradients):
            def refill(self, bad=bad):
                super().refill()
                if bad is not None:
                    self.arrays[1][3] = bad

        monkeypatch.setattr(verb_rows, "Gradients", Spoilt)
        for each in verb_rows.contenders(section, ours.FINITE, "float32", SHAPE, SCALE, quick=False):
            if each.kind != "floor":
                (found,) = numbers(each.run())
                assert bool(found) == (bad is None), (each.name, bad)


@pytest.mark.parametrize(("verb", "dtype"), [*zip(ours.VERBS, cycle(DTYPES), strict=False)])
def test_jaxs_do_the_same(verb, dtype, monkeypatch):
    """Ours, jitted or not, and those of jax.numpy, jmp and flax, where they are installed."""
    pytest.importorskip("jax")
    wanted, norm = expected(verb, dtype)
    seen = []
    for name, returned, _ in run("jax", verb, dtype, monkeypatch):
        seen.append(name)
        found = numbers(returned)
        if verb in ours.WRITING:
            assert close(found[: len(wanted)], wanted, dtype), name
        scalars = [float(number) for number in found if number.shape == ()]
        if verb in (ours.NORM, ours.CLIP, ours.GLOBAL):
            assert any(number == pytest.approx(norm, rel=TOLERANCE[dtype]) for number in scalars), name
        if verb != ours.GLOBAL:
            assert 1.0 in scalars, name
    assert {"ampscale", "ampscale, jitted", "jax.numpy"} <= set(seen)
