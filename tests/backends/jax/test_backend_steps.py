"""Training steps on JAX: optax and ampscale optimizers, any container of parameters, eager, compiled and in a loop."""

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
AMPSCALE = {"SGD": SGD, "AdamW": AdamW}
DECISIONS = ("finite", "applied", "scale", "next_scale", "status")


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    """Container that is registered with JAX."""

    w: Any
    b: Any


def in_a_list(w, b):
    return [w, [b]]


def in_a_dataclass(w, b):
    """Return a dict with both arrays in a registered container."""
    return {"layer": Layer(w, b), "unused": ()}


def model(container=in_a_list, dtype="float32"):
    """Return a linear model with a float32 loss; non-finite inputs give non-finite gradients."""
    w, b = jnp.asarray([0.5, -1.0, 2.0], DTYPES[dtype]), jnp.asarray(0.25, DTYPES[dtype])

    def loss(params, x, y):
        by_ndim = {leaf.ndim: leaf.astype(jnp.float32) for leaf in jax.tree.leaves(params)}
        return jnp.mean((x @ by_ndim[1] + by_ndim[0] - y) ** 2)

    return Network(loss, container(w, b))


def batch(seed, bad=None):
    """Return inputs and targets; *bad* replaces one input."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, 3)).astype(np.float32)
    y = rng.standard_normal(4).astype(np.float32)
    if bad is not None:
        x[1, 2] = bad
    return jnp.asarray(x), jnp.asarray(y)


BATCHES = [batch(0), batch(1, np.inf), batch(2), batch(3), batch(4, np.nan), batch(5)]
FINITE = [True, False, True, True, False, True]


def steps(network, optimizer, compiled=False):
    """Return the states and reports of a run over the batches, starting with the initial state."""
    step = partial(train_step, network, optimizer, RULE)
    if compiled:
        step = jax.jit(step)
    history = [(init_train_state(network.params, optimizer, RULE), None)]
    for inputs in BATCHES:
        history.append(step(history[-1][0], *inputs))
    return history


def scanned(network, optimizer, state):
    """Return the states and reports of a run like that of `steps`, in one compiled loop."""

    def step(state, inputs):
        new_state, report = train_step(network, optimizer, RULE, state, *inputs)
        return new_state, (new_state, report)

    _, history = jax.lax.scan(step, state, jax.tree.map(lambda *arrays: jnp.stack(arrays), *BATCHES))
    return [(state, None), *(jax.tree.map(lambda array, index=index: array[index], history) for index in range(len(BATCHES)))]


def close(left, right, rtol=1e-5):
    """Return True if two trees have the same dtypes, and the same values except for rounding by the compiler."""
    pairs = list(zip(leaves(left), leaves(right), strict=True))
    values = [(np.asarray(left, np.float64), np.asarray(right, np.float64)) for left, right in pairs]
    return all(left.dtype == right.dtype for left, right in pairs) and all(np.allclose(*pair, rtol, 1e-6) for pair in values)


def plain(network, optimizer):
    """Yield parameters and optimizer state after each batch with optax alone, skipping non-finite batches."""
    params = network.params
    state = optimizer.init(network.params)
    gradient = jax.grad(network._loss_fn)
    for inputs, finite in zip(BATCHES, FINITE, strict=True):
        if finite:
            updates, state = optimizer.update(gradient(params, *inputs), state, params)
            params = optax.apply_updates(params, updates)
        yield params, state


@pytest.mark.clause("STEP-optimizer", "STEP-apply", "STEP-skip", "STEP-order")
@pytest.mark.parametrize(("name", "container"), [("masked", in_a_list), ("adamw", in_a_dataclass)])
def test_finite_steps_equal_optax(name, container):
    """Overflows leave the parameters and the optimizer state unchanged."""
    network, optimizer = model(container), OPTAX[name]
    run = steps(network, optimizer)
    for (state, report), finite, expected in zip(run[1:], FINITE, plain(network, optimizer), strict=True):
        assert bool(report.finite) == bool(report.applied) == finite
        assert same([state.params, state.optimizer], list(expected))
    assert type(run[-1][0].params) is type(network.params)


@pytest.mark.clause(
    "STEP-two-modes", "STEP-compiled", "STEP-skip", "STEP-master-weights", "STEP-counters", "STEP-scale-updated-last"
)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("clipped", "float16"),
        ("AdamW", "bfloat16"),
        pytest.param("injected", "bfloat16", marks=pytest.mark.slow),
        pytest.param("multi-steps", "float32", marks=pytest.mark.slow),
        pytest.param("SGD", "float64", marks=pytest.mark.slow),
    ],
)
def test_compiled_loops_equal_eager_steps(name, dtype):
    """Flags, scales and counts are equal, values close, and dtypes unchanged. Overflows change only scaler and `attempted`."""
    network = model(dtype=dtype)
    optimizer = OPTAX[name] if name in OPTAX else AMPSCALE[name](network, [0.5, 0.25])
    eager = steps(network, optimizer)
    looped = scanned(network, optimizer, eager[0][0])
    for (_, report), (_, looped_report) in zip(eager[1:], looped[1:], strict=True):
        assert all(alike(getattr(looped_report, field), getattr(report, field)) for field in DECISIONS)
    assert same(looped[-1][0][2:], eager[-1][0][2:])
    assert close(looped[-1][0], eager[-1][0], rtol=1e-5 if dtype in ("float32", "float64") else 2.0**-7)
    for finite, ((old, _), (new, report)) in zip(2 * FINITE, [*pairwise(eager), *pairwise(looped)], strict=True):
        assert int(report.status) == (StepStatus.APPLIED if finite else StepStatus.OVERFLOW)
        assert same([new.params, new.optimizer], [old.params, old.optimizer]) == (not finite)
        assert int(new.attempted - old.attempted) == 1
        assert int(new.applied - old.applied) == finite
        assert float(new.scaler.scale / old.scaler.scale) in ([1, 2] if finite else [0.5])
        assert [leaf.dtype for leaf in leaves(new)] == [leaf.dtype for leaf in leaves(old)]
        assert name in OPTAX or alike(report.learning_rate, old.optimizer.rate)


@pytest.mark.clause("STEP-report")
def test_states_can_be_donated():
    """There is no warning, and reports stay valid after the state is donated."""
    network = model()
    optimizer = AdamW(network, 0.5)
    expected = steps(network, optimizer, compiled=True)
    params = jax.tree.map(jnp.copy, network.params)
    state, reports = init_train_state(params, optimizer, RULE), []
    step = jax.jit(partial(train_step, network, optimizer, RULE), donate_argnums=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for inputs in BATCHES:
            state, report = step(state, *inputs)
            reports.append(report)
    assert all(leaf.is_deleted() for leaf in leaves(params))
    assert same([state, reports], [expected[-1][0], [report for _, report in expected[1:]]])


@pytest.mark.clause("BACKENDS-bit-identical", "STEP-order")
def test_train_step_uses_the_functions_of_the_backend():
    """Unscaling divides by 3, while XLA would multiply by the reciprocal; the norm equals NumPy's without jax_enable_x64."""
    gradients = np.random.default_rng(0).standard_normal(1000).astype(np.float32)

    def updated(array, max_norm):
        network = linear([array(np.zeros(1000, np.float32))])
        rule = LossScaleRule(3.0)
        optimizer = SGD(network, learning_rate=1.0)
        state = init_train_state(network.params, optimizer, rule)
        return train_step(network, optimizer, rule, state, [array(gradients)], max_norm=max_norm)[0].params[0]

    with jax.enable_x64(False):
        for max_norm in (None, 1.0):
            assert alike(np.asarray(updated(jnp.asarray, max_norm)), updated(np.asarray, max_norm))
