"""The machine on JAX: compiled, over batches of scalers, in a loop over steps; and its state as a tree that is carried."""

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
PATTERNS = (np.arange(2**STEPS)[:, None] >> np.arange(STEPS)) & 1 == 1  # one row a pattern; True is a finite step

RULES = {
    "mindspore-at-the-top": presets.mindspore(3e38, 2, 1),
    "paddle-accumulated": replace(presets.paddle_document(), growth_interval=3),
    "torch-in-float32": replace(presets.torch(growth_factor=1.1, backoff_factor=0.7, growth_interval=2), float64_factor=False),
    "hysteresis": LossScaleRule(
        growth_interval=2, hysteresis=3, reset_bad_steps_on=("growth",), min_scale=2.0**14, max_scale=2.0**17
    ),
    "never-refilled": LossScaleRule(growth_interval=2, hysteresis=2, reset_bad_steps_on=(), initial_good_steps=-1),
    "lagging": LossScaleRule(growth_interval=2, delayed_update=True),
    "gated": LossScaleRule(growth_interval=2, growth_factor=3.0, block_at_bounds=True, min_scale=2.0**15, max_scale=2.0**17),
    "first-growth": LossScaleRule(growth_interval=1, growth_factor=1.25, warmup_growth_factor=2.0, reset_bad_steps_on=()),
    "stopping": LossScaleRule(growth_interval=2, min_scale=2.0**13, raise_at_min_scale=True),
    "torch-with-factors-of-24-bits": presets.torch(0.1, float(np.float32(1.1)), float(np.float32(0.7)), 2),
    "wide-divides": replace(presets.mindspore(10.0, 3, 2), float64_factor=True),
}
WIDE_RULES = {
    "torch": presets.torch(growth_factor=1.1, backoff_factor=0.7, growth_interval=2),
    "mindspore-manager": presets.mindspore_manager(10.0, 3, 2),
    "overflow_tolerance": LossScaleRule(
        growth_interval=3, overflow_tolerance=0.3, reset_bad_steps_on=("backoff",), dtype="float64", raise_at_or_below=2.0**11
    ),
    "wide-divides-by-a-fraction": replace(presets.mindspore(10.0, 1.1, 2), growth_factor=3.0, float64_factor=True),
}


def states(rule, patterns):
    """NumPy's states after each step, for all patterns at once: arrays of shape (pattern, step)."""
    state, seen = map_leaves(lambda array: np.full(len(patterns), array), rule.init()), []
    with np.errstate(over="ignore"):
        for finite in patterns.T:
            state = rule.update(state, finite)
            seen.append(state)
    return map_leaves(lambda *arrays: np.stack(arrays, axis=1), *seen)


def looped(rule):
    """JAX's states after each step of one pattern."""

    def step(state, finite):
        after = rule.update(state, finite)
        return after, after

    return lambda state, pattern: jax.lax.scan(step, state, pattern)[1]


@pytest.mark.clause("BACKENDS-bit-identical", "MACHINE-pure", "MACHINE-arithmetic", "MACHINE-divide-on-backoff")
@pytest.mark.parametrize(
    ("name", "x64"), [*((name, True) for name in WIDE_RULES), *((name, False) for name in RULES), ("torch-in-float32", True)]
)
def test_all_patterns_pass_through_numpys_states(name, x64):
    """A batch of scalers in a compiled loop: all 256 patterns of eight steps, bit for bit; float32 rules need no 64 bits."""
    rule = (RULES | WIDE_RULES)[name]
    with jax.enable_x64(x64):
        got = jax.jit(jax.vmap(looped(rule), (None, 0)))(rule.init(like=jnp.zeros(())), jnp.asarray(PATTERNS))
        assert same(LIBRARY.to_numpy(got), states(rule, PATTERNS))


@pytest.mark.clause("MACHINE-float64-factor")
def test_presets_in_float32_need_no_64_bits():
    """All presets whose scale is float32, with JAX's defaults: all patterns pass through NumPy's states, bit for bit."""
    flags, found = jnp.asarray(PATTERNS.T), {}
    with jax.enable_x64(False):
        for preset in presets.PRESETS.values():
            rule = preset.rule(**{"growth_interval": 3} if "growth_interval" in preset.parameters else {})
            if rule.dtype == "float32":
                state, seen = map_leaves(lambda array: jnp.full(len(PATTERNS), array), rule.init(like=jnp.zeros(()))), []
                for finite in flags:
                    state = rule.update(state, finite)
                    seen.append(state)
                got = map_leaves(lambda *arrays: np.stack(arrays, axis=1), *LIBRARY.to_numpy(seen))
                found[preset.name] = same(got, states(rule, PATTERNS))
    assert {"torch", "apex_hysteresis", "nemo", "fairseq2", "megatron"} < found.keys()
    assert [name for name, is_same in found.items() if not is_same] == []


@pytest.mark.clause("MACHINE-pure")
def test_each_state_of_a_batch_moves_by_itself():
    """Scalers that stand differently, under one vmap, move as each does alone; and so does a batch without vmap."""
    rule = RULES["paddle-accumulated"]
    alone = [rule.init(like=jnp.zeros(()))]
    for finite in (True, True, False):
        alone.append(rule.update(alone[-1], jnp.asarray(finite)))
    batch = jax.tree.map(lambda *arrays: jnp.stack(arrays), *alone)
    flags = jnp.asarray([True, True, False, False])
    wanted = jax.tree.map(lambda *arrays: jnp.stack(arrays), *map(rule.update, alone, flags))
    for update in (jax.jit(jax.vmap(rule.update)), rule.update):
        assert same(update(batch, flags), wanted)


@pytest.mark.clause("STEP-counters", "MACHINE-state")
def test_the_state_of_a_training_is_a_tree_of_its_fields():
    """Parameters, optimizer, scaler and counters flatten whole, and come back as the types that they were."""
    params = {"b": jnp.zeros(()), "w": jnp.ones(2, jnp.bfloat16)}
    optimizer = optimizers.AdamW(Network(lambda params: params["b"], params))
    state = init_train_state(params, optimizer, presets.paddle())
    found, structure = jax.tree.flatten(state)
    whole = jax.tree.unflatten(structure, found)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    assert names[-5:] == [".scaler.scale", ".scaler.good_steps", ".scaler.bad_steps", ".attempted", ".applied"]
    assert [leaf.dtype.name for leaf in found[-5:]] == ["float32", *["int32"] * 4]
    assert type(jax.jit(lambda state: state)(state.scaler)) is LossScaleState
    assert [type(each) for each in (whole, *whole[:3])] == [type(each) for each in (state, *state[:3])]
    assert same(whole, state)
    assert len({id(leaf) for leaf in found}) == len(found)
