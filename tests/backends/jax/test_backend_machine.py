"""State machine on JAX: compiled, over batches of scalers, in a loop over steps; and its state as a pytree."""

from dataclasses import replace

import numpy as np
import pytest
from libraries import load
from strategies import same

from ampscale import LossScaleRule, Network, init_train_state, optimizers, presets
from ampscale.core.machine import LossScaleState
from ampscale.core.trees import map_leaves

jax = pytest.importorskip("jax", reason="needs jax")
jnp = jax.numpy

LIBRARY = load("jax")
STEPS = 8
PATTERNS = (np.arange(2**STEPS)[:, None] >> np.arange(STEPS)) & 1 == 1  # one row per pattern; True is a finite step

RULES = {
    "mindspore-largest-scale": presets.mindspore(3e38, 2, 1),
    "paddle-accumulated": replace(presets.paddle_document(), growth_interval=3),
    "torch-in-float32": replace(presets.torch(growth_factor=1.1, backoff_factor=0.7, growth_interval=2), float64_factor=False),
    "hysteresis": LossScaleRule(
        growth_interval=2, hysteresis=3, reset_bad_steps_on=("growth",), min_scale=2.0**14, max_scale=2.0**17
    ),
    "never-reset": LossScaleRule(growth_interval=2, hysteresis=2, reset_bad_steps_on=(), initial_good_steps=-1),
    "delayed": LossScaleRule(growth_interval=2, delayed_update=True),
    "blocked": LossScaleRule(growth_interval=2, growth_factor=3.0, block_at_bounds=True, min_scale=2.0**15, max_scale=2.0**17),
    "warmup": LossScaleRule(growth_interval=1, growth_factor=1.25, warmup_growth_factor=2.0, reset_bad_steps_on=()),
    "raising": LossScaleRule(growth_interval=2, min_scale=2.0**13, raise_at_min_scale=True),
    "torch-with-factors-of-24-bits": presets.torch(0.1, float(np.float32(1.1)), float(np.float32(0.7)), 2),
    "float64-factor-divides": replace(presets.mindspore(10.0, 3, 2), float64_factor=True),
}
FLOAT64_RULES = {
    "torch": presets.torch(growth_factor=1.1, backoff_factor=0.7, growth_interval=2),
    "mindspore-manager": presets.mindspore_manager(10.0, 3, 2),
    "overflow-tolerance": LossScaleRule(
        growth_interval=3, overflow_tolerance=0.3, reset_bad_steps_on=("backoff",), dtype="float64", raise_at_or_below=2.0**11
    ),
    "float64-factor-divides-by-a-fraction": replace(presets.mindspore(10.0, 1.1, 2), growth_factor=3.0, float64_factor=True),
}


def states(rule, patterns, xp=np):
    """Return the states after each step of all patterns, computed on NumPy or JAX: arrays of shape (patterns, steps)."""
    state = map_leaves(lambda array: xp.full(len(patterns), array), rule.init(like=xp.zeros(())))
    history = []
    with np.errstate(over="ignore"):
        for finite in patterns.T:
            state = rule.update(state, finite)
            history.append(state)
    return map_leaves(lambda *arrays: xp.stack(arrays, axis=1), *history)


def looped(rule):
    """Return a function that computes on JAX, in one loop, the states after each step of one pattern."""

    def step(state, finite):
        new_state = rule.update(state, finite)
        return new_state, new_state

    return lambda state, pattern: jax.lax.scan(step, state, pattern)[1]


@pytest.mark.clause("BACKENDS-bit-identical", "MACHINE-pure", "MACHINE-arithmetic", "MACHINE-divide-on-backoff")
@pytest.mark.parametrize(
    ("name", "x64"), [*((name, True) for name in FLOAT64_RULES), *((name, False) for name in RULES), ("torch-in-float32", True)]
)
def test_states_of_all_patterns_equal_numpy(name, x64):
    """A batch of scalers runs all 256 patterns of eight steps in a compiled loop. `RULES` need no jax_enable_x64."""
    rule = (RULES | FLOAT64_RULES)[name]
    with jax.enable_x64(x64):
        states_on_jax = jax.jit(jax.vmap(looped(rule), (None, 0)))(rule.init(like=jnp.zeros(())), jnp.asarray(PATTERNS))
        assert same(LIBRARY.to_numpy(states_on_jax), states(rule, PATTERNS))


@pytest.mark.clause("MACHINE-divide-on-backoff", "BACKENDS-bit-identical")
@pytest.mark.parametrize("finite", [False, True])
def test_subnormal_scales_are_computed_as_on_numpy(finite):
    """XLA's own operations flush them to zero on CPUs; on CUDA, its division does not round every quotient correctly."""
    divides = replace(presets.mindspore(1.0, 3, 2000), min_scale=None)
    multiplies = LossScaleRule(growth_interval=1, growth_factor=1.5)
    for rule in (replace(rule, init_scale=2.0**-126) for rule in (divides, multiplies)):
        half = rule.update(rule.init(like=np.zeros(())), False)
        assert 0 < half.scale < 2.0**-126
        expected, actual = (rule.update(state, finite).scale for state in (half, map_leaves(jnp.asarray, half)))
        assert same(LIBRARY.get(actual), expected)


@pytest.mark.clause("MACHINE-float64-factor")
def test_float32_presets_need_no_x64():
    """States of all patterns of three steps equal those of NumPy."""
    patterns = PATTERNS[:8, :3]
    results = {}
    with jax.enable_x64(False):
        for preset in presets.PRESETS.values():
            rule = preset.rule(**{"growth_interval": 3} if "growth_interval" in preset.parameters else {})
            if rule.dtype == "float32":
                states_on_jax = states(rule, jnp.asarray(patterns), jnp)
                results[preset.name] = same(LIBRARY.to_numpy(states_on_jax), states(rule, patterns))
    assert {"torch", "apex_hysteresis", "nemo", "fairseq2", "megatron"} < results.keys()
    assert [name for name, is_same in results.items() if not is_same] == []


@pytest.mark.clause("STEP-counters", "MACHINE-state")
def test_train_state_is_a_pytree():
    """Flattening and unflattening keep all values and types. Leaves have the names of their fields, and all are distinct."""
    params = {"b": jnp.zeros(()), "w": jnp.ones(2, jnp.bfloat16)}
    optimizer = optimizers.AdamW(Network(lambda params: params["b"], params))
    state = init_train_state(params, optimizer, presets.paddle())
    flat, structure = jax.tree.flatten(state)
    rebuilt = jax.tree.unflatten(structure, flat)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    assert names[-5:] == [".scaler.scale", ".scaler.good_steps", ".scaler.bad_steps", ".attempted", ".applied"]
    assert [leaf.dtype.name for leaf in flat[-5:]] == ["float32", *["int32"] * 4]
    assert type(jax.jit(lambda state: state)(state.scaler)) is LossScaleState
    assert [type(item) for item in (rebuilt, *rebuilt[:3])] == [type(item) for item in (state, *state[:3])]
    assert same(rebuilt, state)
    assert len({id(leaf) for leaf in flat}) == len(flat)
