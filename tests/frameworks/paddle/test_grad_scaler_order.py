"""`GradScaler.unscale_`, `step`, `minimize` and `update` in every order, and with several optimizers."""

from unittest.mock import Mock

import pytest
from frameworks.networks import array
from frameworks.steps import GradientDescent, Minimizing, scaler_at, state_of

INF, NAN = float("inf"), float("nan")


@pytest.mark.clause("PADDLE-interrupted")
def test_update_counts_the_flag_of_an_interrupted_step():
    """The gradients stay unscaled."""
    optimizer, scaler = GradientDescent(array([8.0])), scaler_at(8)
    optimizer.step = Mock(side_effect=OSError("no step today"))
    with pytest.raises(OSError, match="no step today"):
        scaler.step(optimizer)
    scaler.update()
    assert (state_of(scaler), optimizer.gradients) == ((16, 0, 0), [1.0])


@pytest.mark.clause("PADDLE-fixed-step")
def test_with_a_fixed_scale_unscaled_gradients_stay_recorded():
    """Neither `update()` nor a step of another optimizer leads to a second division."""
    scaler = scaler_at(8, use_dynamic_loss_scaling=False)
    optimizer = GradientDescent(array([64]))
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
    assert scaler.unscale_(optimizer) is scaler.unscale_(optimizer) is scaler.update() is scaler.abandon(optimizer) is None
    assert scaler.step(optimizer) is scaler.step(optimizer) is True
    assert scaler.minimize(optimizer, 3) == (3, None, None)
    assert (optimizer.steps, optimizer.gradients, scaler.get_loss_scaling()) == (3, [INF], 8)


@pytest.mark.clause("PADDLE-several-optimizers", "PADDLE-update")
@pytest.mark.parametrize("order", ["good bad", "bad good", "good fine"])
@pytest.mark.parametrize("unscale_first", [True, False])
def test_optimizers_share_the_scale_but_not_the_flag(order, unscale_first):
    """Only optimizers with finite gradients step. The update counts one overflow or one finite step."""
    optimizers = {name: GradientDescent(array([value])) for name, value in (("good", 8), ("bad", NAN), ("fine", 16))}
    scaler = scaler_at(8, incr_every_n_steps=2, decr_every_n_nan_or_inf=2)
    if unscale_first:
        for name in order.split():
            scaler.unscale_(optimizers[name])
    for name in order.split():
        optimizer = optimizers[name]
        assert scaler.step(optimizer) is (name != "bad")
        assert (optimizer.steps, optimizer.parameters[0].value) == {"good": (1, -1), "bad": (0, 0), "fine": (1, -2)}[name]
    scaler.update()
    assert state_of(scaler) == ((8, 0, 1) if "bad" in order else (8, 1, 0))
