"""`GradScaler.unscale_`, `step`, `minimize` and `update` in every order, and with several optimizers."""

from types import SimpleNamespace
from unittest.mock import Mock, patch

import array_api_strict as strict
import pytest
from frameworks.networks import array, bits
from frameworks.steps import GradientDescent, Minimizing, scaler_at, state_of

from ampscale.frameworks.paddle import optimizer_calls

INF, NAN = float("inf"), float("nan")


@pytest.mark.clause("PADDLE-interrupted")
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("call", ["step", "minimize"])
def test_an_interrupted_step_is_not_repeated(call, dynamic):
    """After `update`, which counts its flag, the next gradients are unscaled again."""
    optimizer = GradientDescent(array([8.0]))
    optimizer.step, step = Mock(side_effect=OSError("no step today")), optimizer.step
    scaler = scaler_at(8, use_dynamic_loss_scaling=dynamic)
    with pytest.raises(OSError, match="no step today"):
        getattr(scaler, call)(optimizer)
    optimizer.step = step
    for retry in (scaler.unscale_, scaler.step, scaler.minimize):
        with pytest.raises(RuntimeError, match=r"its step was interrupted: call update\(\) or abandon\(\), and compute"):
            retry(optimizer)
    scaler.update()
    assert (state_of(scaler), bits(optimizer.gradients)) == ((16, 0, 0) if dynamic else (8, 0, 0), bits([array([1.0])]))
    assert getattr(scaler, call)(optimizer) is not False
    assert optimizer.steps == 1


@pytest.mark.clause("PADDLE-interrupted")
def test_an_error_of_a_later_gradient_does_not_divide_the_first_twice():
    """The type of the error does not matter; here the gradients are immutable arrays."""

    class Refusing:
        grad = property(lambda _: strict.asarray(8.0), Mock(side_effect=ValueError("not today")))

    first = SimpleNamespace(grad=strict.asarray(8.0))
    optimizer, scaler = SimpleNamespace(parameters=[first, Refusing()], step=Mock()), scaler_at(8)
    with patch.object(optimizer_calls, "_are_writable", return_value=False), pytest.raises(ValueError, match="not today"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="unscaling its gradients was interrupted"):
        scaler.step(optimizer)
    assert (float(first.grad), optimizer.step.called) == (1.0, False)


@pytest.mark.clause("PADDLE-fixed-step", "PADDLE-dynamic")
def test_with_a_fixed_scale_each_step_ends_itself():
    """`step` may follow `step`, each unscales new gradients, and `update()` does nothing."""
    scaler = scaler_at(8, use_dynamic_loss_scaling=False)
    scaler.update()
    optimizer = GradientDescent(array([8**4]))
    for call, gradient in (("step", 8**3), ("minimize", 8**2), ("minimize", 8), ("step", 1)):
        getattr(scaler, call)(optimizer)
        assert optimizer.gradients == [gradient]
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="unscale_"):
        scaler.unscale_(optimizer)
    assert scaler.step(optimizer) is True
    assert (optimizer.gradients, optimizer.steps, state_of(scaler)) == ([0.125], 5, (8, 0, 0))


@pytest.mark.clause("PADDLE-fixed-step")
def test_with_a_fixed_scale_unscaled_gradients_stay_recorded():
    """Neither `update()` nor a step of another optimizer leads to a second division."""
    scaler, optimizer = scaler_at(8, use_dynamic_loss_scaling=False), GradientDescent(array([64]))
    scaler.unscale_(optimizer)
    scaler.update()
    scaler.minimize(GradientDescent(array([8])))
    scaler.step(optimizer)
    assert optimizer.gradients == [8]


@pytest.mark.clause("PADDLE-enable", "PADDLE-minimize-returns")
def test_a_disabled_scaler_only_calls_the_optimizer():
    """Arguments and gradients are unchanged, even infinities, and any order of calls is allowed."""
    optimizer, scaler = Minimizing(array([INF])), scaler_at(8, enable=False)
    for var in (array(3, "float16"), 1.0, None, "loss", [1, 2], array(1, "int32")):
        assert scaler.scale(var) is var
    assert scaler.unscale_(optimizer) is scaler.unscale_(optimizer) is scaler.update() is None
    assert scaler.step(optimizer) is scaler.step(optimizer) is True
    assert scaler.minimize(optimizer, 3) == (3, None, None)
    assert (optimizer.steps, optimizer.gradients, scaler.get_loss_scaling()) == (3, [INF], 8)


@pytest.mark.clause("PADDLE-several-optimizers", "PADDLE-update")
@pytest.mark.parametrize("order", ["good bad", "bad good", "good fine"])
@pytest.mark.parametrize("unscale_first", [True, False])
def test_optimizers_share_the_scale_but_not_the_flag(order, unscale_first):
    """Only the optimizer with finite gradients steps; the scale is updated once, for an overflow."""
    pair = {"good": GradientDescent(array([8])), "bad": GradientDescent(array([NAN])), "fine": GradientDescent(array([16]))}
    scaler = scaler_at(8, incr_every_n_steps=2, decr_every_n_nan_or_inf=2)
    for name in order.split() if unscale_first else ():
        scaler.unscale_(pair[name])
    for name in order.split():
        assert scaler.step(pair[name]) is (name != "bad")
        assert (pair[name].steps, pair[name].parameters[0].value) == {"good": (1, -1), "bad": (0, 0), "fine": (1, -2)}[name]
    scaler.update()
    assert state_of(scaler) == ((8, 0, 1) if "bad" in order else (8, 1, 0))


@pytest.mark.clause("PADDLE-several-optimizers", "PADDLE-call-order")
def test_minimize_raises_if_another_optimizer_has_not_stepped():
    """The update at the end of `minimize` would lose the information that the other gradients are unscaled."""
    scaler, waiting, other = scaler_at(8, incr_every_n_steps=1), GradientDescent(array([64])), GradientDescent(array([8]))
    scaler.unscale_(waiting)
    with pytest.raises(RuntimeError, match=r"another optimizer was unscaled at .*\.py:[0-9]+ and has not stepped"):
        scaler.minimize(other)
    assert (other.steps, other.gradients, state_of(scaler)) == (0, [8], (8, 0, 0))
    assert scaler.step(waiting) is scaler.step(other) is True
    scaler.update()
    assert (waiting.gradients, other.gradients) == ([8], [1])
