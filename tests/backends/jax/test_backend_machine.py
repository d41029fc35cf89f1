"""The machine on JAX: compiled, over batches of scalers, in a loop over steps; and its state as a tree that is carried."""

from dataclasses import replace
from itertools import pairwise

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
    "mindspore": presets.mindspore(10.0, 3, 2),
    "mindspore-update-cell": presets.mindspore_update_cell(10.0, 3, 2),
    "mindspore-at-the-top": presets.mindspore(3e38, 2, 1),
    "paddle": replace(presets.paddle(), growth_interval=2, hysteresis=2),
    "paddle-accumulated": replace(presets.paddle_document(), growth_interval=3),
    "torch-in-float32": replace(presets.torch(growth_factor=1.1, backoff_factor=0.7, growth_interval=2), wide_factor=False),
    "hysteresis": LossScaleRule(growth_interval=2, hysteresis=3, refill=("growth",), min_scale=2.0**14, max_scale=2.0**17),
    "never-refilled": LossScaleRule(growth_interval=2, hysteresis=2, refill=(), growth_offset=-1),
    "lagging": LossScaleRule(growth_interval=2, lag=True),
    "gated": LossScaleRule(growth_interval=2, growth_factor=3.0, gate=True, min_scale=2.0**15, max_scale=2.0**17),
    "first-growth": LossScaleRule(growth_interval=1, growth_factor=1.25, first_growth_factor=2.0, refill=()),
    "stopping": LossScaleRule(growth_interval=2, min_scale=2.0**13, stop_at_floor=True),
}
WIDE_RULES = {
    "torch": presets.torch(growth_factor=1.1, backoff_factor=0.7, growth_interval=2),
    "mindspore-manager": presets.mindspore_manager(10.0, 3, 2),
    "rate": LossScaleRule(growth_interval=3, rate=0.3, refill=("backoff",), dtype="float64", stop_below=2.0**11),
    "wide-divides": replace(presets.mindspore(10.0, 3, 2), wide_factor=True),
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


@pytest.mark.clause("BACKENDS-bit-identical", "MACHINE-pure", "MACHINE-arithmetic", "MACHINE-division")
@pytest.mark.parametrize("rule", [*RULES.values(), *WIDE_RULES.values()], ids=[*RULES, *WIDE_RULES])
def test_all_patterns_pass_through_numpys_states(rule):
    """A batch of scalers in a compiled loop: all 256 patterns of eight steps, bit for bit."""
    run = jax.jit(jax.vmap(looped(rule), (None, 0)))
    got = run(rule.init(like=jnp.zeros(())), jnp.asarray(PATTERNS))
    assert same(LIBRARY.to_numpy(got), states(rule, PATTERNS))


@pytest.mark.clause("BACKENDS-bit-identical")
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_float32_rules_need_no_64_bits(rule):
    """Without jax_enable_x64 the states are the same, and so are their dtypes."""
    with jax.enable_x64(False):
        got = jax.jit(jax.vmap(looped(rule), (None, 0)))(rule.init(like=jnp.zeros(())), jnp.asarray(PATTERNS))
        assert same(LIBRARY.to_numpy(got), states(rule, PATTERNS))


@pytest.mark.clause("MACHINE-rule-checked")
@pytest.mark.parametrize("rule", WIDE_RULES.values(), ids=WIDE_RULES)
def test_a_rule_in_float64_is_refused_without_64_bits(rule):
    """JAX would round it to float32 with a warning; it is a TypeError, and no warning, before there is a state."""
    with jax.enable_x64(False), pytest.raises(TypeError, match=r"float64, got float32; JAX has it with jax_enable_x64$"):
        rule.init(like=jnp.zeros(()))


@pytest.mark.clause("MACHINE-pure")
@pytest.mark.parametrize("rule", [RULES["mindspore"], RULES["paddle-accumulated"]], ids=["mindspore", "paddle-accumulated"])
def test_each_state_of_a_batch_moves_by_itself(rule):
    """Scalers that stand differently, under one vmap, move as each does alone; and so does a batch without vmap."""
    first = rule.init(like=jnp.zeros(()))
    alone = [first]
    for finite in (True, True, False):
        alone.append(rule.update(alone[-1], jnp.asarray(finite)))
    batch = jax.tree.map(lambda *arrays: jnp.stack(arrays), *alone)
    flags = jnp.asarray([True, True, False, False])
    wanted = jax.tree.map(lambda *arrays: jnp.stack(arrays), *map(rule.update, alone, flags))
    for update in (jax.vmap(rule.update), jax.jit(jax.vmap(rule.update)), rule.update, jax.jit(rule.update)):
        assert same(update(batch, flags), wanted)


@pytest.mark.clause("MACHINE-pure", "BACKENDS-host-reads-none")
def test_an_update_reads_nothing():
    """Outside of a compiler too, not even a flag that is a Python bool costs a look."""
    rule = RULES["hysteresis"]
    state, finite = rule.init(like=jnp.zeros(())), jnp.asarray(False)
    with LIBRARY.count_reads() as reads:
        rule.update(rule.update(state, finite), True)
    assert reads == []


@pytest.mark.clause("MACHINE-state")
def test_the_state_is_a_tree_of_its_fields():
    """A leaf for each field, called by its name; mapped, it stays a LossScaleState."""
    state = RULES["paddle"].init(like=jnp.zeros(()))
    found, structure = jax.tree_util.tree_flatten_with_path(state)
    assert [jax.tree_util.keystr(path) for path, _ in found] == [".scale", ".good_steps", ".bad_steps"]
    assert [leaf.dtype.name for _, leaf in found] == ["float32", "int32", "int32"]
    whole = jax.tree.unflatten(structure, [leaf for _, leaf in found])
    assert type(whole) is type(jax.jit(lambda state: state)(state)) is LossScaleState
    assert same(whole, state)


@pytest.mark.clause("STEP-counters")
def test_the_state_of_a_training_is_a_tree_of_its_fields():
    """Parameters, optimizer, scaler and counters flatten whole, and come back as the types that they were."""
    params = {"b": jnp.zeros(()), "w": jnp.ones(2, jnp.bfloat16)}
    optimizer = optimizers.AdamW(Network(lambda params: params["b"], params))
    state = init_train_state(params, optimizer, RULES["paddle"])
    found, structure = jax.tree.flatten(state)
    whole = jax.tree.unflatten(structure, found)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    fields = ["params", "optimizer", "scaler", "attempted", "applied"]
    assert list(dict.fromkeys(name.split(".")[1].split("[")[0] for name in names)) == fields
    assert len(names) == 2 + (2 + 1 + 2 * 2) + 3 + 2  # of AdamW: the count and the rate, one master weight, two moments
    assert [type(each) for each in (whole, *whole[:3])] == [type(each) for each in (state, *state[:3])]
    assert same(whole, state)
    assert len({id(leaf) for leaf in found}) == len(found)


@pytest.mark.clause("MACHINE-next-step")
def test_a_loop_goes_on_where_another_ended():
    """A state that is carried out of one compiled loop and into the next is the state of one long loop."""
    rule = RULES["hysteresis"]
    run, pattern = jax.jit(looped(rule)), jnp.asarray(PATTERNS[0b01100111])
    state, seen = rule.init(like=jnp.zeros(())), []
    for start, end in pairwise((0, 3, 8)):
        after = run(state, pattern[start:end])
        state = jax.tree.map(lambda array: array[-1], after)
        seen.append(after)
    whole = run(rule.init(like=jnp.zeros(())), pattern)
    assert same(jax.tree.map(lambda *parts: jnp.concatenate(parts), *seen), whole)
