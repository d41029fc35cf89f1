"""Network: its loss, its parameters and its differentiation."""

import sys
from copy import copy, deepcopy
from functools import partial

import array_api_strict
import autograd.numpy as anp
import numpy as np
import pytest
from errors import unexpected
from linear import loss, vjp
from strategies import DTYPES, alike

from ampscale import LossScaleRule, Network, init_train_state, optimizers, train_step

F32 = np.float32


def squared_error(params, inputs, targets):
    """Return the mean squared error of a linear model."""
    return anp.mean((anp.dot(inputs, params["w"]) + params["b"] - targets) ** 2)


def model(dtype="float64"):
    """Return a linear model of three inputs, and a batch."""
    params = {"w": np.asarray([0.5, -1.0, 2.0], dtype), "b": np.asarray(0.25, dtype)}
    batch = np.asarray([[1, 2, 3], [0, 1, -1]], dtype), np.asarray([1, 0], dtype)
    return Network(squared_error, params), batch


@pytest.mark.clause("STEP-network")
def test_calling_a_network_returns_the_loss():
    """The loss is computed with the current parameters, even after `params` was rebound."""
    network, batch = model()
    assert network(*batch) == squared_error(network.params, *batch)
    network.params = {"w": np.zeros(3), "b": np.zeros(())}
    assert network(*batch) == 0.5


@pytest.mark.clause("STEP-vjp", "STEP-network")
def test_given_vjp_is_used():
    """A network with its own vjp does not require autograd."""
    network = Network(loss, [np.ones(2, F32)], vjp=vjp)
    value, pullback = network.vjp([np.asarray([2, 3], F32)], [np.asarray([4, 5], F32)])
    assert alike(value, np.asarray(23, F32))
    assert alike(pullback(np.asarray(2, F32))[0], np.asarray([8, 10], F32))


@pytest.mark.clause("STEP-vjp")
def test_autograd_differentiates_numpy():
    """Without a vjp, autograd computes the gradients. They are compared with formulas."""
    network, (inputs, targets) = model()
    value, pullback = network.vjp(network.params, inputs, targets)
    error = inputs @ network.params["w"] + network.params["b"] - targets
    gradients = pullback(np.asarray(8.0))
    assert float(value) == pytest.approx((error**2).mean())
    assert gradients["w"] == pytest.approx(8 * error @ inputs)
    assert float(gradients["b"]) == pytest.approx(8 * error.sum())


@pytest.mark.clause("STEP-network", "STEP-seed")
@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_gradients_have_the_dtypes_of_their_parameters(name):
    """A float32 seed of a float16 loss neither widens them, nor overflows with a scale of 2**17. Unused parameters have zeros."""
    network = Network(lambda params, x: anp.sum(params["w"] * x), {"w": np.ones(2, name), "b": np.ones((), "float64")})
    value, pullback = network.vjp(network.params, np.asarray([2.0**-6, 2.0**-14], name))
    gradients = pullback(np.asarray(2.0**17, "float64" if name == "float64" else "float32"))
    assert value.dtype == name
    assert alike(gradients["w"], np.asarray([2.0**11, 8], name))
    infinite = pullback(np.asarray(np.inf, np.float32))["w"]  # without a warning, since the overflow check detects it
    assert np.all(np.isinf(infinite))
    assert alike(gradients["b"], np.zeros(()))


@pytest.mark.clause("STEP-network")
def test_gradients_are_new_arrays():
    """Writing to a gradient changes neither a parameter nor another gradient."""
    params = [np.ones(2), np.ones(2)]
    _, pullback = Network(lambda params: anp.sum(params[0] + params[1]), params).vjp(params)
    first, second = pullback(np.asarray(1.0))
    first[...] = 7
    assert alike(second, np.ones(2))
    assert alike(params[0], np.ones(2))


@pytest.mark.clause("STEP-vjp")
def test_missing_differentiation_raises(monkeypatch):
    """The message contains a remedy for a library that does not differentiate, and for NumPy without autograd."""
    network = Network(sum, array_api_strict.ones(2))
    with pytest.raises(TypeError, match=r"differentiates.*, got array_api_strict\..*Array; pass .*nnx\.as_pure.*vjp="):
        network.vjp(network.params)
    monkeypatch.setitem(sys.modules, "autograd", None)
    network, batch = model()
    with pytest.raises(TypeError, match=r"vjp=.*pip install.*; for JAX, .*jnp.asarray"):
        network.vjp(network.params, *batch)


@pytest.mark.clause("STEP-single-output", "STEP-vjp")
@pytest.mark.filterwarnings("ignore:Output seems independent of input")
def test_network_must_return_one_array():
    """Tuples, lists, dicts and strings raise a TypeError, even from the user's vjp. A constant loss has zero gradients."""
    params = np.ones(2)
    outputs = [lambda value: (value, value), lambda value: [value], lambda value: {"loss": value}, str]
    calls = [partial(Network(lambda params, output=output: output(anp.sum(params)), params).vjp, params) for output in outputs]
    network = Network(loss, [np.ones(1, F32)], vjp=lambda params, x: ((x, x), lambda _: params))
    optimizer, rule = optimizers.SGD(network), LossScaleRule()
    state = init_train_state(network.params, optimizer, rule)
    calls.append(partial(train_step, network, optimizer, rule, state, np.ones(1, F32)))
    message = r"its loss as one array, got (tuple; return the loss alone, without auxiliary values|list|dict|str)$"
    cases = [(call, call, TypeError, message) for call in calls]
    assert unexpected(cases) == []
    _, pullback = Network(lambda _, x: anp.sum(x), [params]).vjp([params], np.ones(3))
    assert alike(pullback(np.asarray(1.0))[0], np.zeros(2))


@pytest.mark.clause("STEP-network")
def test_constructor_validates_its_arguments():
    """Functions must be callable, and parameters must be arrays of one library."""
    rows = [
        ((3, [np.ones(1)]), r"^loss_fn must be callable, got 3"),
        ((None, [np.ones(1)]), r"^loss_fn must be callable, got None"),
        ((sum, [np.ones(1)], "vjp"), r"^vjp must be callable, got 'vjp'"),
        ((sum, {"w": [1.0]}), r"^(tree|params)\['w'\]\[0\] must be an array"),
        ((sum, [np.ones(1), array_api_strict.ones(1)]), r"one library"),
    ]
    assert unexpected((arguments, partial(Network, *arguments), TypeError, message) for arguments, message in rows) == []


@pytest.mark.clause("STEP-network")
def test_parameters_read_and_write_the_network():
    """Setting a value rebinds `network.params`, and does not write to its arrays."""
    params = {"w": [np.ones(2, F32), None], "b": np.zeros((), F32)}
    network = Network(loss, params)
    first, second = network.parameters
    first.value = np.asarray([5, 6], F32)
    assert network.params["w"][0].tolist() == [5, 6]
    assert network.params["w"][1] is None
    assert params["w"][0].tolist() == [1, 1]
    network.params = {"w": [np.zeros(2, F32), None], "b": np.ones((), F32)}
    assert (first.value.tolist(), second.value.tolist()) == ([0, 0], 1)
    assert first.grad is None


@pytest.mark.clause("STEP-network")
@pytest.mark.parametrize("copied", [copy, deepcopy])
def test_the_parameters_of_a_copy_belong_to_the_copy(copied):
    """Setting a value of the copy leaves the original unchanged."""
    network = Network(loss, np.ones(2, F32))
    other = copied(network)
    other.parameters[0].value = np.zeros(2, F32)
    assert (other.params.tolist(), network.params.tolist()) == ([0, 0], [1, 1])
    assert network.parameters[0].value is network.params


@pytest.mark.clause("STEP-network")
def test_a_value_of_another_library_raises():
    """The parameter is unchanged. Its new value would have had the right shape and dtype."""
    network = Network(loss, np.ones(2, F32))
    with pytest.raises(TypeError, match=r"one library .* got params\[0\] from numpy on cpu; value from array_api_strict"):
        network.parameters[0].value = array_api_strict.ones(2, dtype=array_api_strict.float32)
    assert network.params.tolist() == [1, 1]


@pytest.mark.clause("STEP-network")
def test_backward_sets_gradients():
    """`backward` returns the loss. A parameter without a gradient has None."""
    network = Network(loss, [np.ones(2, DTYPES["float16"]), np.ones(1, F32)], vjp=vjp)
    value = network.backward([np.asarray([2, 4], np.float16), None], seed=np.asarray(0.5, F32))
    assert float(value) == 6
    assert alike(network.parameters[0].grad, np.asarray([1, 2], np.float16))
    assert network.parameters[1].grad is None
