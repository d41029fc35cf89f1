"""The network and the optimizer that can be checked by hand."""

import math

from ampscale_conformance.oracle.linear_network import Descent, gradients_of, loss_of
from ampscale_conformance.oracle.tensors import array


def test_the_loss_is_the_sum_of_products_in_float32():
    """Rounded at every sum, in their order; None adds nothing."""
    parameters = [array("float32", [2.0**24, 1.0, 1.0]), array("float16", 2.0), array("float32", [5.0])]
    assert loss_of(parameters, [array("float32", [1.0, 1.0, 1.0]), array("float32", 3.0), None]) == 2.0**24 + 6
    assert loss_of(parameters[1:2], [array("float32", 3e38)]) == math.inf
    assert loss_of([], []) == 0


def test_a_product_is_rounded_before_it_is_added():
    """It is a hair more than 2**-24, and makes a tie beside 1 once it is rounded to 2**-24."""
    parameters, data = [1.0, 2.0**-12 * (1 + 2.0**-12)], [1.0, 2.0**-12 * (1 - 2.0**-12 + 2.0**-24)]
    assert loss_of([array("float32", parameters)], [array("float32", data)]) == 1


def test_gradients_are_the_data_times_the_seed():
    """In float32, then in the dtype of the parameter."""
    parameters = [array("float16", [1.0, 1.0, 1.0]), array("float32", [1.0])]
    data = [array("float32", [2.0**-28, 1.0, -0.0]), None]
    assert gradients_of(parameters, data, 2.0**20) == [array("float16", [2.0**-8, math.inf, -0.0]), None]


def test_descent_subtracts_the_rate_times_the_gradient():
    """A parameter without a gradient stays."""
    descent = Descent([array("float32", [4.0, 1.0]), array("float64", 1.0)], 0.5)
    descent.apply([array("float32", [2.0, -2.0]), None])
    assert descent.parameters == [array("float32", [3.0, 2.0]), array("float64", 1.0)]


def test_master_weights_add_up_what_16_bits_cannot():
    """Steps of 2**-13 from 1, where float16 goes by 2**-11: the third one shows."""
    descent = Descent([array("float16", 1.0)], 2.0**-13)
    seen = []
    for _ in range(4):
        descent.apply([array("float32", 1.0)])
        seen.append(descent.parameters[0])
    assert seen == [array("float16", value) for value in (1.0, 1.0, 1 - 2.0**-11, 1 - 2.0**-11)]


def test_momentum_keeps_a_share():
    """The gradient is 1, and the steps are 1, 1.5 and 1.75."""
    descent = Descent([array("float32", 8.0)], momentum=0.5)
    for _ in range(3):
        descent.apply([array("float32", 1.0)])
    assert descent.parameters == [array("float32", 8 - 1 - 1.5 - 1.75)]


def test_rates_follow_the_applied_steps():
    """The last one for ever after; rounded to float32, or float64 where a parameter is."""
    descent = Descent([array("float32", 0.0)], [0.5, 0.1])
    rates = []
    for _ in range(3):
        rates.append(descent.learning_rate)
        descent.apply([array("float32", 1.0)])
    assert rates == [0.5, float.fromhex("0x1.99999ap-4"), float.fromhex("0x1.99999ap-4")]
    assert Descent([array("float64", 0.0)], 0.1).learning_rate == 0.1
