"""Methods of a rule: validation of the state and the flag, batches of states, and threads."""

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

    factors = {"growth_factor": 1.1, "warmup_growth_factor": 1.1, "backoff_factor": 0.7}
    rules = [(LossScaleRule(**{name: value}, float64_factor=True), name, value) for name, value in factors.items()]
    rules.append((LossScaleRule(backoff_factor=1 / 1.1, divide_on_backoff=True, float64_factor=True), "backoff_divisor", 1.1))
    message = (
        r"^rule\.{} must be a number that float32 represents exactly on a .*, such as {!r}, got {!r}; on JAX, set jax_enable_x64$"
    )
    rows = [(rule, message.format(name, float(np.float32(value)), value)) for rule, name, value in rules]
    rows.append(
        (LossScaleRule(dtype="float64"), r"^rule\.dtype must be 'float32' on a .*, got 'float64'; on JAX, set jax_enable_x64$")
    )
    like, state = library.array(0), LossScaleRule().init(like=library.array(0))
    with jax.enable_x64(False):
        cases = [
            (rule, call, TypeError, message)
            for rule, message in rows
            for call in (partial(rule.init, like), partial(rule.update, state, True))
        ]
        assert unexpected(cases) == []
        for name, value in factors.items():
            LossScaleRule(**{name: float(np.float32(value))}, float64_factor=True).init(like=like)
        LossScaleRule(growth_factor=2.0**127, backoff_factor=2.0**-126, float64_factor=True).init(like=like)
    assert [rule.init(like=like).scale.dtype.name for rule, _ in rows] == ["float32"] * 4 + ["float64"]


@pytest.mark.clause("MACHINE-state")
def test_state_of_another_rule_raises():
    """A state of numbers or of arrays lacks a field that the rule requires, or has an unused one. Other objects raise, too."""
    plain = LossScaleRule()
    others = [(LossScaleRule(delayed_update=True), "pending_scale"), (LossScaleRule(overflow_tolerance=0.5), "window_steps")]
    cases = []
    for like in (1.0, np.zeros(()), np.zeros(3)):
        for other, name in others:
            for source, target, expected in ((plain, other, "an array or a number"), (other, plain, "None")):
                state = source.init(like=like)
                for method in (target.update, target.would_raise):
                    call = partial(method, state, True)
                    message = f"^state.{name} must be {expected} for this rule"
                    cases.append(((name, expected, like), call, ValueError, message))
    message, scale_message = "^state must be a LossScaleState of .*, got {}$", "^state.scale must be float32 or float64, got "
    wrong = [(None, "NoneType"), (LossScaleState(None, None, None), r"\(None, .*"), (LossScaleState(1, 0, 0), r"\(1, 0, 0, .*")]
    cases += [
        (dtype, partial(method, plain.init(like=np.zeros(()))._replace(scale=np.ones((), dtype)), True), TypeError, scale_message)
        for dtype in ("float16", "int32")
        for method in (plain.update, plain.would_raise, plain.transition)
    ]
    wrong += [(LossScaleState("a", 1, 2), r"\('a', 1, 2, .*"), (LossScaleState(1.0, None, 0), r"\(1.0, None, 0, .*")]
    cases += [
        (state, partial(method, state, flag), TypeError, message.format(passed))
        for state, passed in wrong
        for method in (plain.update, plain.would_raise, plain.transition)
        for flag in (True, np.array(True))
    ]
    assert unexpected(cases) == []


@pytest.mark.clause("MACHINE-would-raise")
def test_would_raise_is_computed_for_each_state_of_a_batch(library):
    """The result has the shape of the state, even for a single flag. Without a `raise_at_...` constant it is False."""
    constants = ({}, {"raise_at_or_below": 1.0}, {"block_at_bounds": True, "min_scale": 1.0})
    assert [LossScaleRule(**values).can_raise for values in constants] == [False, True, False]
    rule = LossScaleRule(init_scale=4.0, min_scale=2.0, raise_at_min_scale=True)
    states = map_leaves(lambda array: library.put(np.repeat(library.get(array)[None], 2)), rule.init(like=library.array(0)))
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
