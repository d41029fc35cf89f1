"""Methods of a rule: validation of the state and the flag, batches of states, and threads."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import numpy as np
import pytest
from errors import unexpected
from libraries import on

from ampscale.core.machine import LossScaleState
from ampscale.core.rule import LossScaleRule
from ampscale.core.trees import map_leaves


@pytest.mark.clause("MACHINE-rule-checked")
def test_flag_that_is_not_a_bool_raises(library):
    """A batch of flags for a single state raises too."""
    rule = LossScaleRule()
    state = rule.init(like=library.array(0))
    wrong = [1, 0.0, None, "True", library.array(1, "int32"), library.array([1.0])]
    cases = [(flag, partial(rule.update, state, flag), TypeError, "^finite must be a bool") for flag in wrong]
    cases.append(("pair", partial(rule.update, state, ([], True)), TypeError, "; unpack the result of unscale_and_check: "))
    flags = library.array([1, 1, 1], "bool")
    batch = ("batch", partial(rule.update, state, flags), ValueError, r"^finite must have shape \(\), got \(3,\)")
    assert unexpected([*cases, batch]) == []


@pytest.mark.parametrize("like", [0, "numpy", [1.0]])
def test_init_like_another_type_raises(like):
    """A Python float is accepted, but an int is not."""
    with pytest.raises(TypeError, match=r"^like must be an array, a Python float or None, got .* of type "):
        LossScaleRule().init(like=like)


@on("jax")
@pytest.mark.clause("MACHINE-rule-checked", "MACHINE-float64-factor")
def test_rule_that_requires_float64_raises_without_it(library):
    """The dtype is float64, or a factor is not exact in float32. `update` raises like `init`."""
    import jax

    factors = [
        ({"growth_factor": 1.1}, "growth_factor", 1.1),
        ({"warmup_growth_factor": 1.1}, "warmup_growth_factor", 1.1),
        ({"backoff_factor": 0.7}, "backoff_factor", 0.7),
        ({"backoff_factor": 1 / 1.1, "divide_on_backoff": True}, "backoff_divisor", 1.1),
    ]
    exact = "{} must be a number that float32 represents exactly on a .*, such as {}, got {}"
    rows = [
        (LossScaleRule(**constants, float64_factor=True), exact.format(name, float(np.float32(factor)), factor))
        for constants, name, factor in factors
    ]
    rows.append((LossScaleRule(dtype="float64"), "dtype must be 'float32' on a .*, got 'float64'"))
    like, state = library.array(0), LossScaleRule().init(like=library.array(0))
    with jax.enable_x64(False):
        cases = [
            (rule, call, TypeError, rf"^rule\.{message}; on JAX, set jax_enable_x64$")
            for rule, message in rows
            for call in (partial(rule.init, like), partial(rule.update, state, True))
        ]
        assert unexpected(cases) == []


@on("jax")
@pytest.mark.clause("MACHINE-float64-factor")
def test_factor_that_is_exact_in_float32_does_not_require_float64(library):
    """Examples are numbers with all digits of float32, and powers of two at the limits of its normal numbers."""
    import jax

    with jax.enable_x64(False):
        for growth, backoff in ((float(np.float32(1.1)), float(np.float32(0.7))), (2.0**127, 2.0**-126)):
            LossScaleRule(growth_factor=growth, backoff_factor=backoff, float64_factor=True).init(like=library.array(0))


@pytest.mark.clause("MACHINE-state")
@pytest.mark.parametrize("like", [1.0, np.zeros(()), np.zeros(3)], ids=["numbers", "arrays", "batch"])
@pytest.mark.parametrize(
    ("name", "constants"), [("pending_scale", {"delayed_update": True}), ("window_steps", {"overflow_tolerance": 0.5})]
)
def test_state_of_another_rule_raises(like, name, constants):
    """The state lacks a field that the rule requires, or has an unused one."""
    plain, other = LossScaleRule(), LossScaleRule(**constants)
    for source, target, expected in ((plain, other, "an array or a number"), (other, plain, "None")):
        for method in (target.update, target.would_raise):
            with pytest.raises(ValueError, match=f"^state.{name} must be {expected} for this rule"):
                method(source.init(like=like), True)


@pytest.mark.clause("MACHINE-state")
@pytest.mark.parametrize("values", [None, (None, None, None), (1, 0, 0), ("a", 1, 2), (1.0, None, 0)], ids=repr)
@pytest.mark.parametrize("flag", [True, np.array(True)], ids=["bool", "array"])
def test_object_that_is_not_a_state_raises(values, flag):
    """The object is None, or a `LossScaleState` whose values are not all arrays or a float and ints."""
    rule = LossScaleRule()
    state = None if values is None else LossScaleState(*values)
    actual = "NoneType" if values is None else re.escape(repr(values).removesuffix(")"))
    for method in (rule.update, rule.would_raise, rule.transition):
        with pytest.raises(TypeError, match=f"^state must be a LossScaleState of .*, got {actual}"):
            method(state, flag)


@pytest.mark.clause("MACHINE-state")
@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_scale_of_another_dtype_raises(dtype):
    rule = LossScaleRule()
    state = rule.init(like=np.zeros(()))._replace(scale=np.ones((), dtype))
    for method in (rule.update, rule.would_raise, rule.transition):
        with pytest.raises(TypeError, match=f"^state.scale must be float32 or float64, got {dtype}$"):
            method(state, True)


def test_can_raise_is_true_if_a_raise_constant_is_set():
    assert not LossScaleRule(block_at_bounds=True, min_scale=1.0).can_raise
    assert LossScaleRule(raise_at_min_scale=True, min_scale=1.0).can_raise
    assert LossScaleRule(raise_at_or_below=1.0).can_raise


@pytest.mark.clause("MACHINE-would-raise")
def test_would_raise_is_computed_for_each_state_of_a_batch(library):
    """An overflow raises an error only at `min_scale`, and never without a `raise_at_...` constant. The flag may be one bool."""
    rule = LossScaleRule(init_scale=4.0, min_scale=2.0, raise_at_min_scale=True)
    states = library.from_numpy(map_leaves(lambda array: np.full(2, array), rule.init()))
    states = states._replace(scale=library.array([2.0, 4.0]))
    for flag in (False, library.array(False, "bool"), library.array([False, False], "bool")):
        assert library.to_numpy(rule.would_raise(states, flag)).tolist() == [True, False]
        assert library.to_numpy(rule.update(states, flag).scale).tolist() == [2, 2]
        assert library.to_numpy(LossScaleRule().would_raise(states, flag)).tolist() == [False, False]
    assert library.to_numpy(rule.would_raise(states, True)).tolist() == [False, False]


@pytest.mark.clause("MACHINE-pure")
@pytest.mark.parametrize("like", [1.0, np.zeros(())], ids=["numbers", "arrays"])
def test_threads_share_a_rule_and_its_states(like):
    """Eight threads compute the same states as one thread. They start together on a new rule, whose first step prepares it."""
    rule, barrier = LossScaleRule(growth_interval=3, hysteresis=2), Barrier(8)
    first = rule.init(like=like)

    def run(rule, wait=lambda: None):
        wait()
        states = [first]
        for step in range(200):
            states.append(rule.update(states[-1], step % 7 > 1))
        return [tuple(map(float, state[:3])) for state in states]

    expected = run(LossScaleRule(growth_interval=3, hysteresis=2))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: run(rule, barrier.wait), range(8))) == [expected] * 8
