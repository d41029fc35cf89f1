"""Optimizers compared with plain loops over one number, and their master weights of 16-bit parameters."""

import math
from functools import partial

import array_api_strict
import numpy as np
import pytest
from errors import unexpected
from strategies import DTYPES, alike, same

from ampscale import LossScaleRule, Network, init_train_state, optimizers, train_step
from ampscale.core.trees import leaves
from ampscale.optimizers import SGD, AdamW, Momentum

EVERY = [SGD, Momentum, AdamW]
ALL = pytest.mark.parametrize("create", EVERY)
RATES = [0.5, 0.25, 0.125]


def network(*values, dtype="float32"):
    """Return a network with a parameter for each value. Its loss function is never called."""
    return Network(sum, [np.asarray(value, DTYPES[dtype]) for value in values])


def momentum_loop(value, learning_rate, momentum=0.9, weight_decay=0.0, nesterov=False):
    """Run momentum on one number: receive a gradient, yield the next value."""
    velocity = 0.0
    while True:
        gradient = yield value
        gradient += weight_decay * value
        velocity = momentum * velocity + gradient
        value -= learning_rate * (gradient + momentum * velocity if nesterov else velocity)


sgd_loop = partial(momentum_loop, momentum=0.0)


def adamw_loop(value, learning_rate, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.01):
    """Run Adam with decoupled weight decay on one number."""
    mean = square = count = 0
    while True:
        gradient = yield value
        count += 1
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        root = math.sqrt(square / (1 - beta2**count))
        value -= learning_rate * (mean / (1 - beta1**count) / (root + epsilon) + weight_decay * value)


@pytest.mark.clause("STEP-optimizer")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize(
    ("create", "loop", "options"),
    [
        (SGD, sgd_loop, {}),
        (SGD, sgd_loop, {"weight_decay": 0.3}),
        (Momentum, momentum_loop, {}),
        (Momentum, momentum_loop, {"momentum": 0.5, "weight_decay": 0.3}),
        (Momentum, momentum_loop, {"momentum": 0.5, "nesterov": True, "weight_decay": 0.3}),
        (AdamW, adamw_loop, {}),
        (AdamW, adamw_loop, {"weight_decay": 0.0, "epsilon": 0.1}),
        (AdamW, adamw_loop, {"beta1": 0.5, "beta2": 0.75, "weight_decay": 0.3}),
    ],
)
def test_optimizer_equals_a_plain_loop(dtype, tolerance, create, loop, options):
    """The loop runs ten steps for each element of each parameter."""
    model = network([3.0, 2.0], -1.0, dtype=dtype)
    optimizer = create(model, learning_rate=0.1, **options)
    loops = [loop(start, 0.1, **options) for start in (3.0, 2.0, -1.0)]
    for generator in loops:
        next(generator)
    for step in range(10):
        gradients = np.sin([step, step + 1.0, step + 2.0]).astype(dtype)
        optimizer([gradients[:2], gradients[2]])
        expected = [generator.send(float(gradient)) for generator, gradient in zip(loops, gradients, strict=True)]
        assert np.concatenate([model.params[0], [model.params[1]]]) == pytest.approx(expected, rel=tolerance, abs=tolerance)
        assert [leaf.dtype for leaf in model.params] == [dtype] * 2


@pytest.mark.clause("STEP-master-weights")
@ALL
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_updates_of_16_bit_parameters_accumulate(create, dtype):
    """Each update alone is too small to change the parameter. The master weight equals that of a float32 run."""
    model, float32_model = network([1.0], dtype=dtype), network([1.0])
    optimizer, float32_optimizer = create(model, learning_rate=2.0**-18), create(float32_model, learning_rate=2.0**-18)
    for _ in range(640):
        optimizer([np.ones(1, np.float32)])
        float32_optimizer([np.ones(1, np.float32)])
    assert float(1 - float32_model.params[0][0]) > 2.0**-9
    assert alike(model.params[0], float32_model.params[0].astype(DTYPES[dtype]))
    assert alike(optimizer.state.master[0], float32_model.params[0])


@pytest.mark.clause("STEP-master-weights")
@pytest.mark.parametrize("runs_train_step", [False, True])
def test_an_infinite_16_bit_parameter_is_finite_again_with_its_weight(runs_train_step):
    """Only after the first step does the weight exceed the largest float16. A float32 parameter stays infinite."""

    def vjp(_, gradient):
        return np.float32(0), lambda _: [np.float32([gradient])] * 2

    params = [np.float16([2.0]), np.float32([np.inf])]
    model = Network(sum, params, vjp=vjp)
    optimizer, rule = SGD(model, learning_rate=1.0), LossScaleRule(init_scale=1.0)
    state = init_train_state(params, optimizer, rule)
    for gradient, expected in ((-(2.0**16), np.inf), (2.0**16, 2.0)):
        if runs_train_step:
            state, _ = train_step(model, optimizer, rule, state, gradient)
        else:
            optimizer(model.vjp(model.params, gradient)[1](1.0))
        result = state.params if runs_train_step else model.params
        assert [float(param[0]) for param in result] == [expected, np.inf]


@pytest.mark.clause("STEP-master-weights")
@ALL
def test_only_16_bit_parameters_have_master_weights(create):
    """Moments are never 16-bit. A float64 gradient changes no dtype."""
    values = [np.ones(1, DTYPES[name]) for name in ("float16", "bfloat16", "float32", "float64")]
    state = create(Network(sum, values)).state
    assert [master if master is None else master.dtype.name for master in state.master] == ["float32"] * 2 + [None] * 2
    widths = ["float32"] * 3 + ["float64"]
    assert all([leaf.dtype.name for leaf in moment] == widths for moment in state.moments)
    optimizer = create(network([1.0], dtype="float16"))
    optimizer([np.ones(1)])
    assert {leaf.dtype.name for leaf in leaves((optimizer.state.master, optimizer.state.moments))} == {"float32"}


@pytest.mark.clause("STEP-optimizer")
@ALL
def test_parameter_without_a_gradient_is_unchanged(create):
    """The master weight and the moments are unchanged too; other parameters are updated."""
    model = network([1.0], [1.0], dtype="float16")
    optimizer = create(model, learning_rate=0.25)
    optimizer([np.ones(1, np.float16), np.ones(1, np.float16)])
    param = model.params[0]
    moments = [moment[0] for moment in optimizer.state.moments]
    master, other = optimizer.state.master[0], model.params[1]
    optimizer([None, np.ones(1, np.float16)])
    assert alike(model.params[0], param)
    assert alike(optimizer.state.master[0], master)
    assert same([moment[0] for moment in optimizer.state.moments], moments)
    assert model.params[1] < other


@ALL
def test_an_interrupted_step_is_not_continued(create):
    """Some parameters may be written and others not, so the optimizer raises an error until its state has been assigned."""

    class Interrupted(Network):
        @property
        def params(self):
            return self.written

        @params.setter
        def params(self, params):
            if hasattr(self, "written"):
                raise KeyboardInterrupt
            self.written = params

    optimizer = create(Interrupted(sum, [np.ones(1, np.float32)]))
    with pytest.raises(KeyboardInterrupt):
        optimizer([np.ones(1, np.float32)])
    with pytest.raises(RuntimeError, match=r"^an earlier step was interrupted: restore network\.params"):
        optimizer([np.ones(1, np.float32)])
    optimizer.state = optimizer.state
    with pytest.raises(KeyboardInterrupt):
        optimizer([np.ones(1, np.float32)])


@pytest.mark.clause("STEP-optimizer")
@ALL
def test_update_is_pure(create):
    """The arguments and the network are unchanged, and equal arguments give equal results."""
    model = network([1.0, 2.0], dtype="float16")
    optimizer = create(model)
    gradients = [np.asarray([0.5, -3.0], np.float32)]
    state = optimizer.init(model.params)
    arguments = leaves((gradients, state, model.params))
    copies = [np.array(leaf) for leaf in arguments]
    results = [optimizer.update(gradients, state, model.params) for _ in range(2)]
    assert same(*results)
    assert same(arguments, copies)
    assert same(optimizer.state, state)


@pytest.mark.clause("STEP-optimizer", "STEP-learning-rate")
@pytest.mark.parametrize(
    ("create", "rate", "expected"),
    [
        (SGD, 0.5, [0.5] * 4),
        (Momentum, RATES, [0.5, 0.25, 0.125, 0.125]),
        (AdamW, tuple(RATES), [0.5, 0.25, 0.125, 0.125]),
        (SGD, lambda count: 1 / (count + 1), [1, 0.5, np.float32(1 / 3), 0.25]),
    ],
    ids=["number", "list", "tuple", "function"],
)
def test_learning_rate_is_that_of_the_next_step(create, rate, expected):
    """
    A rate is a number, a list or tuple whose last rate stays in effect, or a function of the number of applied steps.

    The attribute `learning_rate` is a float32 array of shape (), or a float64 array if a parameter is float64.
    """
    model = network([1.0])
    optimizer = create(model, learning_rate=rate)
    rates = []
    for _ in range(4):
        rates.append(optimizer.learning_rate)
        optimizer([np.zeros(1, np.float32)])
    assert list(map(float, rates)) == list(map(float, expected))
    assert all(alike(rate, np.asarray(float(rate), np.float32)) for rate in rates)
    assert optimizers.SGD(network([1.0], dtype="float64"), learning_rate=rate).learning_rate.dtype == np.float64


@ALL
def test_learning_rate_can_be_set(create):
    """A new rate applies from the next step on; a schedule continues at the number of applied steps; moments are kept."""
    model = network([1.0])
    optimizer = create(model, learning_rate=0.5)
    optimizer([np.ones(1, np.float32)])
    moments = optimizer.state.moments
    optimizer.learning_rate = [1.0, 2.0, 3.0]
    assert float(optimizer.learning_rate) == 2
    assert all(new is old for new, old in zip(leaves(optimizer.state.moments), leaves(moments), strict=True))
    optimizer.learning_rate = 0.0
    param = model.params[0]
    optimizer([np.ones(1, np.float32)])
    assert alike(model.params[0], param)


@ALL
def test_apply_updates_only_if_the_flag_is_true(create):
    """If the flag is False, nothing changes, not even the count."""
    model, twin = network([1.0], dtype="float16"), network([1.0], dtype="float16")
    optimizer, twin_optimizer = create(model, learning_rate=RATES), create(twin, learning_rate=RATES)
    for finite in (True, False, True):
        optimizer.apply([np.full(1, 0.5 if finite else np.nan, np.float16)], np.asarray(finite))
        if finite:
            twin_optimizer([np.full(1, 0.5, np.float16)])
        assert alike(model.params[0], twin.params[0])
        assert same(optimizer.state, twin_optimizer.state)


def test_step_uses_the_gradients_of_the_parameters():
    """`minimize` uses these gradients, too. A parameter without a gradient is unchanged."""
    model = network([1.0], [1.0])
    optimizer = SGD(model, learning_rate=0.5)
    assert optimizer.parameters is model.parameters
    optimizer.parameters[0].grad = np.ones(1, np.float32)
    optimizer.step()
    optimizer.minimize(np.zeros(()))
    assert [leaf.tolist() for leaf in model.params] == [[0], [1]]


def test_invalid_constants_raise():
    """Other types raise a TypeError, numbers out of range a ValueError, and both name the argument."""
    nan = math.nan
    rows = [
        *[(create, "learning_rate", bad, ValueError) for create in EVERY for bad in (-1.0, nan, math.inf, [], 1e39)],
        *[(SGD, "learning_rate", bad, TypeError) for bad in (None, "0.1", True, [0.1, "0.2"], np.ones(()))],
        *[(create, "weight_decay", bad, ValueError) for create in EVERY for bad in (-1.0, nan)],
        *[(Momentum, "momentum", bad, ValueError) for bad in (1.0, -0.1, nan)],
        *[(AdamW, beta, bad, ValueError) for beta in ("beta1", "beta2") for bad in (1.0, 1 - 2**-25, -0.1, nan)],
        *[(AdamW, "epsilon", bad, ValueError) for bad in (0.0, -1.0, nan, 1e-50)],
        *[(AdamW, name, "0.1", TypeError) for name in ("beta1", "beta2", "epsilon", "weight_decay")],
        (Momentum, "nesterov", 1, TypeError),
    ]
    cases = [
        ((create, name, bad), partial(create, network([1.0]), **{name: bad}), error, f"^{name} must ")
        for create, name, bad, error in rows
    ]
    cases.append(("schedule", partial(SGD, network([1.0]), lambda _: None), TypeError, "^the result of learning_rate must"))
    assert unexpected(cases) == []


@ALL
def test_invalid_arrays_raise(create):
    """The parameter is unchanged. A complex parameter raises when the optimizer is created."""
    model = network([1.0, 2.0])
    optimizer = create(model)
    ones = [array_api_strict.ones(2, dtype=array_api_strict.float32)]
    strict_state = create(Network(sum, ones)).state
    cases = [
        *[(shape, partial(optimizer, [np.ones(shape, np.float32)]), ValueError, "shape") for shape in ((3, 2), (1,), ())],
        ("gradients", partial(optimizer, ones), TypeError, r"one library .* gradients\[0\] from array_api_strict"),
        ("flag", partial(optimizer.apply, [np.ones(2, np.float32)], "x"), TypeError, "^finite must be a bool"),
        *[(bad, partial(setattr, optimizer, "state", bad), TypeError, "^state must be") for bad in (None, "x")],
        ("state", partial(setattr, optimizer, "state", strict_state), TypeError, "one library .* optimizer_state"),
        ("value", partial(setattr, model.parameters[0], "value", np.ones(3)), ValueError, "^value must have shape"),
        ("complex", partial(create, Network(sum, [np.ones(1, "c8")])), TypeError, "complex64"),
    ]
    assert unexpected(cases) == []
    assert model.params[0].tolist() == [1, 2]


def test_invalid_learning_rate_raises_when_it_is_set():
    """The old rate stays in effect."""
    optimizer = SGD(network([1.0]), learning_rate=0.5)
    with pytest.raises(ValueError, match=r"^learning_rate must be .* float32 can hold, a list of such numbers or a function"):
        optimizer.learning_rate = -1.0
    assert float(optimizer.learning_rate) == 0.5
