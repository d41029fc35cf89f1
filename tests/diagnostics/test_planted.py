"""Trainings with a planted cause, on every library: the verdict names the cause, and healthy trainings raise no alarm."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from libraries import on
from linear import network as linear_network

import ampscale
from ampscale.diagnostics import Limits, Monitor, Verdict

pytestmark = on("numpy", "torch", "jax")

NAMES = ["embedding", "attention", "head"]
RULE = ampscale.LossScaleRule(init_scale=2.0**10, growth_interval=50)


def gradients(step, power=0, **changed):
    """Return three arrays of normally distributed gradients times 2**power; *changed* maps array names to a value to insert."""
    rng = np.random.default_rng([5, step])
    arrays = {name: rng.standard_normal(32).astype(np.float32) * np.float32(2.0**power) for name in NAMES}
    for name, value in changed.items():
        arrays[name][3] = value
    return list(arrays.values())


def train(library, inputs_of, steps, rule=RULE, *, limits=None, real_loss=False, recompute=False, **options):
    """
    Train float16 parameters whose gradients are ``inputs_of(step)``, and return the diagnoses of all steps.

    The reported loss is 1.0 unless *real_loss* is True. If *recompute* is True, the monitor recomputes skipped steps.
    """
    monitor = Monitor(NAMES, on_stall=lambda _: None, limits=limits)
    network = linear_network([library.array(np.ones(32), "float16") for _ in NAMES])
    optimizer = ampscale.optimizers.SGD(network, 1e-9)
    state = ampscale.init_train_state(network.params, optimizer, rule)
    diagnoses = []
    for step in range(steps):
        inputs = [library.array(values) for values in inputs_of(step)]

        def backward(scale, params=state.params, inputs=inputs):
            _, pullback = network.vjp(params, inputs)
            return pullback(library.array(scale))

        state, report = ampscale.train_step(network, optimizer, rule, state, inputs, measure=not recompute, **options)
        if not real_loss:
            report = report._replace(loss=library.array(1.0))
        diagnoses.append(monitor.record(report, backward if recompute else None))
    return diagnoses


def unhealthy_verdicts(diagnoses):
    """Return the verdicts other than "healthy", in order."""
    return [diagnosis.verdict for diagnosis in diagnoses if diagnosis.verdict is not Verdict.HEALTHY]


def test_a_healthy_run_raises_no_alarm(library):
    """The verdicts other than "healthy" are a search at the start, and single overflows when the scale has grown too far."""
    rule = ampscale.LossScaleRule(init_scale=2.0**20, growth_interval=10)
    counts = Counter(diagnosis.verdict for diagnosis in train(library, gradients, 60, rule))
    assert set(counts) == {Verdict.SEARCHING, Verdict.OCCASIONAL, Verdict.HEALTHY}
    assert counts[Verdict.SEARCHING] == 6
    assert 2 <= counts[Verdict.OCCASIONAL] <= 6


def every(number, **changed):
    """Return a function from a step to its gradients, which are changed in every *number*-th step."""
    return lambda step: gradients(step, **(changed if step % number == number - 1 else {}))


CAUSES = {
    "the input is NaN": ({"inputs_of": every(7, head=np.nan), "real_loss": True}, Verdict.FORWARD),
    "the backward pass makes a NaN": ({"inputs_of": every(7, head=np.nan)}, Verdict.NO_SCALE_HELPS),
    "the backward pass makes an infinity": ({"inputs_of": every(7, head=np.inf), "recompute": True}, Verdict.NO_SCALE_HELPS),
    "the initial scale is far too large": (
        {"inputs_of": gradients, "rule": ampscale.LossScaleRule(init_scale=2.0**40), "steps": 9},
        Verdict.SEARCHING,
    ),
    "the scale is too small": (
        {"inputs_of": partial(gradients, power=-20), "rule": ampscale.LossScaleRule(init_scale=1.0)},
        Verdict.UNDERFLOW,
    ),
    "the scale is far too small": (
        {"inputs_of": partial(gradients, power=-60), "rule": ampscale.LossScaleRule(init_scale=1.0)},
        Verdict.UNDERFLOW,
    ),
    "gradients are larger than the lowest scale allows": (
        {"inputs_of": partial(gradients, power=10), "rule": ampscale.LossScaleRule(init_scale=2.0**8, min_scale=2.0**8)},
        Verdict.STALLED,
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_planted_cause_is_named(library, cause):
    """Every verdict of the run except "healthy" names the cause."""
    options, verdict = CAUSES[cause]
    limits = Limits(min_scale=2.0**8) if verdict is Verdict.STALLED else None
    assert set(unhealthy_verdicts(train(library, **{"steps": 8, "limits": limits, **options}))) == {verdict}


def test_the_only_gradient_that_overflows_is_named(library):
    """The verdict ONE_TENSOR is given from the third overflow on, since two overflows can have other causes."""
    diagnoses = train(library, every(5, attention=1e30), 15)
    assert unhealthy_verdicts(diagnoses) == [Verdict.OCCASIONAL, Verdict.OCCASIONAL, Verdict.ONE_TENSOR]
    assert diagnoses[14].message == "only attention is not finite, in all 3 skipped steps since step 4, while the scale decreased"
    assert diagnoses[14].evidence == {"tensor": "attention", "rank": None, "since step": 4, "skips": 3}


@pytest.mark.parametrize("names", [["head"], ["attention", "head"]])
def test_a_search_for_the_scale_of_one_gradient_raises_no_alarm(library, names):
    """Too large a scale makes all values of these gradients infinite, and all other values are far below the limit."""

    def inputs_of(step):
        return [values + np.float32(1200 * (name in names)) for name, values in zip(NAMES, gradients(step), strict=True)]

    assert unhealthy_verdicts(train(library, inputs_of, 8)) == [Verdict.SEARCHING] * 5


def test_an_overflow_that_no_scale_changes_is_recognized(library):
    """The scale backs off in each step, and the same values remain infinite."""
    diagnoses = train(library, partial(gradients, attention=np.inf, head=np.inf), 4)
    assert unhealthy_verdicts(diagnoses) == [Verdict.SEARCHING] * 3 + [Verdict.NO_SCALE_HELPS]
    assert diagnoses[3].message == "the same values are not finite at scales from 1024 to 128 in attention and head"
