"""A training step on JAX: optax's optimizers and ours, any container of parameters, eager, compiled and in a loop."""

import warnings
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from libraries import load
from linear import network as linear
from strategies import DTYPES, alike, same

from ampscale import LossScaleRule, Network, init_train_state, train_step
from ampscale.core.step import StepStatus
from ampscale.core.trees import leaves
from ampscale.optimizers import SGD, AdamW

jax = pytest.importorskip("jax", reason="needs jax")
optax = pytest.importorskip("optax", reason="needs optax")
jnp = jax.numpy

LIBRARY = load("jax")
RULE = LossScaleRule(init_scale=2.0**10, growth_interval=2)
OPTAX = {
    "adamw": optax.adamw(0.125, weight_decay=0.25),
    "clipped": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.125)),
    "injected": optax.inject_hyperparams(optax.adam)(learning_rate=optax.linear_schedule(0.5, 0.125, 3)),
    "multi-steps": optax.MultiSteps(optax.adam(0.125), 2),
    "masked": optax.masked(optax.sgd(0.125, momentum=0.5), lambda params: jax.tree.map(lambda leaf: leaf.ndim == 1, params)),
}
OURS = {"SGD": SGD, "AdamW": AdamW}
DECISIONS = ("finite", "applied", "scale", "next_scale", "status")


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    """A container of a user's, known to JAX."""

    w: Any
    b: Any


def in_a_list(w, b):
    """Both in a list."""
    return [w, [b]]


def in_a_dataclass(w, b):
    """Both in a registered container, within a dict."""
    return {"layer": Layer(w, b), "unused": ()}


def model(container=in_a_list, dtype="float32"):
    """A linear model in its container, whose loss is float32: its gradients are infinite or NaN where its inputs are."""
    w, b = jnp.asarray([0.5, -1.0, 2.0], DTYPES[dtype]), jnp.asarray(0.25, DTYPES[dtype])

    def loss(params, x, y):
        by_size = {leaf.ndim: leaf.astype(jnp.float32) for leaf in jax.tree.leaves(params)}
        return jnp.mean((x @ by_size[1] + by_size[0] - y) ** 2)

    return Network(loss, container(w, b))


def batch(seed, bad=None):
    """Inputs and targets; *bad* is one of the inputs."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((4, 3)).astype(np.float32), random.standard_normal(4).astype(np.float32)
    x[1, 2] = x[1, 2] if bad is None else bad
    return jnp.asarray(x), jnp.asarray(y)


BATCHES = [batch(0), batch(1, np.inf), batch(2), batch(3), batch(4, np.nan), batch(5)]
FINITE = [True, False, True, True, False, True]


def steps(network, optimizer, compiled=False):
    """The states and reports of a run over the batches, the first state before them."""
    step = partial(train_step, network, optimizer, RULE)
    step = jax.jit(step) if compiled else step
    seen = [(init_train_state(network.params, optimizer, RULE), None)]
    for each in BATCHES:
        seen.append(step(seen[-1][0], *each))
    return seen


def stacked(trees):
    """Trees of one structure as one."""
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *trees)


def scanned(network, optimizer, state):
    """The states and reports of the same run in one compiled loop, the first state before them."""

    def step(state, each):
        after, report = train_step(network, optimizer, RULE, state, *each)
        return after, (after, report)

    _, seen = jax.lax.scan(step, state, stacked(BATCHES))
    return [(state, None), *(jax.tree.map(lambda array, index=index: array[index], seen) for index in range(len(BATCHES)))]


def close(left, right, rtol=1e-5):
    """Whether two trees have the same dtypes, and the same values but for what a compiler rounds in its own way."""
    pairs = list(zip(leaves(left), leaves(right), strict=True))
    values = [(np.asarray(one, np.float64), np.asarray(other, np.float64)) for one, other in pairs]
    return all(one.dtype == other.dtype for one, other in pairs) and all(np.allclose(*pair, rtol, 1e-6) for pair in values)


def plain(network, optimizer):
    """Parameters and state after each batch, by optax alone, without any scaling; batches that are not finite left out."""
    params, state, gradient = network.params, optimizer.init(network.params), jax.grad(network._loss_fn)
    for each, finite in zip(BATCHES, FINITE, strict=True):
        if finite:
            updates, state = optimizer.update(gradient(params, *each), state, params)
            params = optax.apply_updates(params, updates)
        yield params, state


@pytest.mark.clause("STEP-optimizer", "STEP-apply", "STEP-skip", "STEP-order")
@pytest.mark.parametrize(
    ("name", "container"),
    [("masked", in_a_list), ("adamw", in_a_list), ("multi-steps", in_a_dataclass)],
)
def test_a_run_is_optaxs_without_the_overflows(name, container):
    """Finite steps move parameters and state as optax does by unscaled gradients, bit for bit, and overflows leave both."""
    network, optimizer = model(container), OPTAX[name]
    run = steps(network, optimizer)
    for (state, report), finite, wanted in zip(run[1:], FINITE, plain(network, optimizer), strict=True):
        assert bool(report.finite) == bool(report.applied) == finite
        assert same([state.params, state.optimizer], list(wanted))
    assert type(run[-1][0].params) is type(network.params)


@pytest.mark.clause(
    "STEP-two-modes", "STEP-compiled", "STEP-skip", "STEP-master-weights", "STEP-counters", "STEP-scale-moves-last"
)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("clipped", "float16"), ("injected", "bfloat16"), ("multi-steps", "float32")),
        *(("SGD", "float64"), ("AdamW", "bfloat16")),
    ],
)
def test_a_compiled_loop_does_what_eager_steps_do(name, dtype):
    """
    The flags, scales and counts are the same, and the values to rounding; no step changes a dtype.

    An overflow changes not a bit of parameters and state; the scale backs off, and the step is counted as tried.
    """
    network = model(dtype=dtype)
    optimizer = OPTAX[name] if name in OPTAX else OURS[name](network, [0.5, 0.25])
    eager = steps(network, optimizer)
    looped = scanned(network, optimizer, eager[0][0])
    for (_, one), (_, other) in zip(eager[1:], looped[1:], strict=True):
        assert all(alike(getattr(other, field), getattr(one, field)) for field in DECISIONS)
    assert same(looped[-1][0][2:], eager[-1][0][2:])
    assert close(looped[-1][0], eager[-1][0], rtol=1e-5 if dtype in ("float32", "float64") else 2.0**-7)
    for finite, ((before, _), (after, report)) in [
        *zip(FINITE, pairwise(eager), strict=True),
        *zip(FINITE, pairwise(looped), strict=True),
    ]:
        assert int(report.status) == (StepStatus.APPLIED if finite else StepStatus.OVERFLOW)
        assert same([after.params, after.optimizer], [before.params, before.optimizer]) == (not finite)
        assert int(after.attempted - before.attempted) == 1
        assert int(after.applied - before.applied) == finite
        assert float(after.scaler.scale / before.scaler.scale) in ([1, 2] if finite else [0.5])
        assert [leaf.dtype for leaf in leaves(after)] == [leaf.dtype for leaf in leaves(before)]
        assert name in OPTAX or alike(report.learning_rate, before.optimizer.rate)


@pytest.mark.clause("STEP-report")
def test_a_state_can_be_donated():
    """The first one and all that follow, without a warning; reports outlive the state that they came with."""
    network = model()
    optimizer = AdamW(network, 0.5)
    wanted = steps(network, optimizer, compiled=True)
    params = jax.tree.map(jnp.copy, network.params)
    state, reports = init_train_state(params, optimizer, RULE), []
    step = jax.jit(partial(train_step, network, optimizer, RULE), donate_argnums=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in BATCHES:
            state, report = step(state, *each)
            reports.append(report)
    assert all(leaf.is_deleted() for leaf in leaves(params))
    assert same([state, reports], [wanted[-1][0], [report for _, report in wanted[1:]]])


@pytest.mark.clause("BACKENDS-bit-identical", "STEP-order")
def test_a_step_unscales_and_clips_with_the_verbs_of_its_library():
    """A scale of 3 is divided by, which XLA's own code does not do, and the norm is that of NumPy, without 64 bits too."""
    gradients = np.random.default_rng(0).standard_normal(1000).astype(np.float32)

    def moved(array, max_norm):
        network, rule = linear([array(np.zeros(1000, np.float32))]), LossScaleRule(3.0)
        optimizer = SGD(network, learning_rate=1.0)
        state = init_train_state(network.params, optimizer, rule)
        return train_step(network, optimizer, rule, state, [array(gradients)], max_norm=max_norm)[0].params[0]

    with jax.enable_x64(False):
        for max_norm in (None, 1.0):
            assert alike(np.asarray(moved(jnp.asarray, max_norm)), moved(np.asarray, max_norm))
