"""`GradScaler` with an optimizer: the documented example, `minimize` and `unscale_`."""

from types import SimpleNamespace

import autograd.numpy as anp
import ml_dtypes
import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.rejections import check_rejected
from frameworks.steps import GradientDescent, Minimizing, scaler_at, state_of

from ampscale import GradScaler, Network, optimizers

INF, NAN = float("inf"), float("nan")


@pytest.mark.clause("PADDLE-example", "PADDLE-minimize", "PADDLE-scale")
@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="NumPy 1 multiplies by a float32 seed in float16")
def test_the_documented_example_runs_on_numpy():
    """Scaling, backward pass and `minimize` update the parameters as without a scaler."""
    data = np.arange(24, dtype="float16").reshape(4, 6) / 16
    start = {"weight": np.full((6, 3), 0.25, "float16"), "bias": np.zeros(3, "float16")}

    def train(scaler):
        network = Network(lambda params, x: anp.mean(anp.dot(x, params["weight"]) + params["bias"]), start)
        optimizer = optimizers.SGD(network, learning_rate=0.5)
        for _ in range(3):
            loss = network(data)
            scaled = scaler.scale(loss)
            network.backward(data, seed=scaler.scale(np.ones_like(loss)))
            scaler.minimize(optimizer, scaled)
        assert optimizer.state.count == 3
        return bits(network.params.values())

    plain = train(GradScaler(enable=False))
    assert train(GradScaler(init_loss_scaling=1024)) == plain != bits(start.values())


@pytest.mark.clause("PADDLE-minimize", "PADDLE-minimize-returns", "PADDLE-minimize-passes", "PADDLE-step")
def test_minimize_unscales_steps_and_updates_the_scale():
    """Arguments and keywords reach the optimizer's own method, and its result is returned."""
    optimizer, loss = Minimizing(array([8, 16]), None), array(3)
    scaler = scaler_at(8)
    result = scaler.minimize(optimizer, loss, "program", parameters=["w"])
    assert result[0] is loss
    assert result[1:] == ("program", ["w"])
    assert bits([optimizer.parameters[0].value, optimizer.gradients[0]]) == bits([array([-1, -2]), array([1, 2])])
    assert state_of(scaler) == (16, 0, 0)


@pytest.mark.clause("PADDLE-minimize-skips", "PADDLE-minimize-returns")
@pytest.mark.parametrize(("make", "bad"), [(Minimizing, INF), (GradientDescent, -INF), (Minimizing, NAN)])
def test_minimize_skips_an_overflow(make, bad):
    """The optimizer is not called, (None, None) is returned, and the scale backs off."""
    optimizer, scaler = make(array([1, 2]), array([1, bad])), scaler_at(8)
    assert scaler.minimize(optimizer, array(3)) == (None, None)
    assert optimizer.steps == 0
    assert bits(parameter.value for parameter in optimizer.parameters) == bits([array([0, 0])] * 2)
    assert state_of(scaler) == (4, 0, 0)


@pytest.mark.clause("PADDLE-minimize-passes")
@pytest.mark.parametrize("scaler", [scaler_at(8), scaler_at(8, enable=False)], ids=["enabled", "disabled"])
def test_unsupported_arguments_of_minimize_change_nothing(scaler):
    """A TypeError is raised before any gradient is unscaled."""
    optimizer = Minimizing(array([8]))
    for arguments, keywords in (((), {}), ((1, 2, 3), {}), ((1,), {"retain": True})):
        with pytest.raises(TypeError):
            scaler.minimize(optimizer, *arguments, **keywords)
        assert (optimizer.steps, optimizer.gradients[0], scaler.get_loss_scaling()) == (0, 8, 8)
    if scaler.is_enable():
        scaler.unscale_(optimizer)
        assert optimizer.gradients[0] == 1


@pytest.mark.clause("PADDLE-minimize", "PADDLE-step", "PADDLE-abandon")
@pytest.mark.parametrize("call", ["minimize", "step", "unscale_", "abandon"])
def test_an_optimizer_must_have_parameters_and_a_step(call):
    """A TypeError names the type of the value. `unscale_` and `abandon` require no step."""
    module = SimpleNamespace(parameters=list, step=list)  # `parameters` is a method, like that of a torch module
    arrays = SimpleNamespace(parameters=[array(1)], step=list)  # arrays have no attribute `grad`
    wrong = [("optimizer", value, TypeError) for value in (1, object(), [array(1)], lambda: None, module, arrays)]
    if call in ("minimize", "step"):
        wrong.append(("optimizer", SimpleNamespace(parameters=[]), TypeError))
    check_rejected(lambda _, value: getattr(scaler_at(8), call)(value), wrong, got=lambda value: type(value).__name__)


@pytest.mark.clause("PADDLE-unscale", "PADDLE-unscale-dtypes")
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
def test_gradients_are_divided_in_place(dtype):
    """Arrays, dtypes and layouts are unchanged; a parameter without a gradient is skipped."""
    compute_dtype = np.float64 if dtype == "float64" else np.float32
    values = array([5, 7], dtype)
    for gradient in (values.copy(), np.concatenate([values, values])[::2], values.copy()[:, None]):
        optimizer = GradientDescent(gradient, None, array(5, dtype))
        expected = (gradient.astype(compute_dtype) / compute_dtype(3)).astype(dtype)
        assert scaler_at(3).unscale_(optimizer) is None
        assert optimizer.gradients[0] is gradient
        assert bits([gradient, optimizer.gradients[2]]) == bits([expected, array(compute_dtype(5) / compute_dtype(3), dtype)])


@pytest.mark.clause("PADDLE-unscale")
@pytest.mark.parametrize("call", ["minimize", "step", "unscale_"])
def test_a_read_only_gradient_raises_before_any_change(call):
    """The gradient before the read-only one is still scaled, and the call does not count."""
    locked = array([8])
    locked.flags.writeable = False
    optimizer, scaler = GradientDescent(array([8]), locked), scaler_at(8)
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            getattr(scaler, call)(optimizer)
    assert (optimizer.gradients, optimizer.steps, state_of(scaler)) == ([8, 8], 0, (8, 0, 0))
    locked.flags.writeable = True
    scaler.unscale_(optimizer)
    assert optimizer.gradients == [1, 1]


@pytest.mark.clause("PADDLE-unscale", "PADDLE-step", "PADDLE-minimize")
@pytest.mark.parametrize("call", ["step", "minimize"])
def test_gradients_can_be_edited_between_unscaling_and_the_step(call):
    """Edited gradients are not unscaled twice, and the optimizer receives the edited values."""
    optimizer, scaler = GradientDescent(array([8, 16])), scaler_at(8)
    scaler.unscale_(optimizer)
    optimizer.gradients[0][...] = np.minimum(optimizer.gradients[0], 1.5)
    getattr(scaler, call)(optimizer)
    assert bits([optimizer.parameters[0].value]) == bits([array([-1, -1.5])])


@pytest.mark.clause("PADDLE-unscale-dtypes")
def test_a_step_without_gradients_counts_as_finite():
    """The optimizer steps, and the scale grows."""
    optimizer, scaler = GradientDescent(None, None), scaler_at(8)
    assert scaler.step(optimizer) is True
    scaler.update()
    assert (optimizer.steps, state_of(scaler)) == (1, (16, 0, 0))
