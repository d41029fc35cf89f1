"""`GradScaler` by itself: its arguments, how its scale moves, and `scale`."""

import inspect

import ml_dtypes
import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.published import every_pattern, grad_scaler
from frameworks.refusals import refused
from frameworks.steps import stands, take

from ampscale import GradScaler

INF, NAN = float("inf"), float("nan")
LARGEST = float(np.finfo(np.float32).max)
DEFAULTS = {
    "enable": True,
    "init_loss_scaling": 32768.0,
    "incr_ratio": 2.0,
    "decr_ratio": 0.5,
    "incr_every_n_steps": 1000,
    "decr_every_n_nan_or_inf": 2,
    "use_dynamic_loss_scaling": True,
}
NUMBERS = list(DEFAULTS)[1:6]

# First scale, incr_ratio, decr_ratio, incr_every_n_steps, decr_every_n_nan_or_inf.
SETTINGS = [
    (8.0, 2.0, 0.5, 2, 2),
    (1000.0, 1.1, 0.8, 1, 3),
    (2.0**-125, 2.0, 0.5, 4, 1),
    (2.0**126, 3.0, 0.1, 2, 2),
]


# Arguments


@pytest.mark.clause("PADDLE-parameters", "PADDLE-defaults")
def test_the_documented_parameters_and_defaults():
    """Seven in the documented order, and after them the keyword `decr_count`."""
    parameters = inspect.signature(GradScaler).parameters
    assert [(name, parameter.default) for name, parameter in parameters.items()] == [
        *DEFAULTS.items(),
        ("decr_count", "accumulated"),
    ]
    assert parameters["decr_count"].kind is inspect.Parameter.KEYWORD_ONLY
    assert stands(GradScaler(True, 1024, 3.0, 0.25, 5, 4, True)) == (1024, 0, 0)


@pytest.mark.clause("PADDLE-getters", "PADDLE-defaults")
def test_what_was_given_is_got():
    """By a getter each."""
    scaler, given = GradScaler(), GradScaler(False, 1024.0, 3.0, 0.25, 5, 4, False)
    values = dict(zip(DEFAULTS, (False, 1024.0, 3.0, 0.25, 5, 4, False), strict=True))
    for each, wanted in ((scaler, DEFAULTS), (given, values)):
        assert (each.is_enable(), each.is_use_dynamic_loss_scaling()) == (wanted["enable"], wanted["use_dynamic_loss_scaling"])
        assert [getattr(each, f"get_{name}")() for name in NUMBERS] == [wanted[name] for name in NUMBERS]


WRONG = [
    *[("init_loss_scaling", value, ValueError) for value in (0.0, -1.0, NAN, INF, -INF, 1e39, 1e-46, 2.0**-127)],
    *[("init_loss_scaling", value, TypeError) for value in (True, "1024", None, [1024.0], np.float32(8))],
    *[("incr_ratio", value, ValueError) for value in (1.0, 1, 0.5, 0, -2.0, NAN, INF)],
    *[("incr_ratio", value, TypeError) for value in (True, "2", None)],
    *[("decr_ratio", value, ValueError) for value in (1.0, 1, 1.5, 0.0, -0.5, NAN, INF)],
    *[("decr_ratio", value, TypeError) for value in ("0.5", None, [0.5])],
    *[(name, value, ValueError) for name in NUMBERS[3:] for value in (0, -1, 2**31)],
    *[(name, value, TypeError) for name in NUMBERS[3:] for value in (True, 2.0, 2.5, "2", None)],
]


@pytest.mark.clause(
    "PADDLE-init-loss-scaling", "PADDLE-incr-ratio", "PADDLE-decr-ratio", "PADDLE-counts-checked", "PADDLE-setters-checked"
)
@pytest.mark.parametrize(("name", "value", "error"), WRONG)
def test_constructor_and_setter_refuse_the_same(name, value, error):
    """With the value in the message; the setter has changed nothing."""
    with refused(error, name, repr(value)):
        GradScaler(**{name: value})
    scaler = GradScaler()
    before = vars(scaler).copy()
    with refused(error, name, repr(value)):
        getattr(scaler, f"set_{name}")(value)
    assert vars(scaler) == before


@pytest.mark.clause("PADDLE-enable", "PADDLE-dynamic", "PADDLE-parameters")
@pytest.mark.parametrize("name", ["enable", "use_dynamic_loss_scaling"])
@pytest.mark.parametrize("value", [1, 0, "no", None])
def test_a_switch_is_a_bool(name, value):
    """Anything else is a TypeError."""
    with refused(TypeError, name, repr(value)):
        GradScaler(**{name: value})


@pytest.mark.clause("PADDLE-decr-consecutive")
@pytest.mark.parametrize("value", ["", "Accumulated", "both", None, 2])
def test_decr_count_is_one_of_two_words(value):
    """Another is a ValueError that lists both."""
    with refused(ValueError, "decr_count", "['accumulated', 'consecutive']"):
        GradScaler(decr_count=value)


@pytest.mark.clause("PADDLE-init-loss-scaling", "PADDLE-arithmetic")
@pytest.mark.parametrize(
    ("value", "held"), [(1, 1), (16777217, 16777216), (0.1, float(np.float32(0.1))), (2.0**-126, 2.0**-126), (LARGEST, LARGEST)]
)
def test_the_first_scale_is_rounded_to_float32(value, held):
    """Every normal float32 is a scale."""
    assert stands(GradScaler(init_loss_scaling=value)) == (held, 0, 0)


# How the scale moves


@pytest.mark.clause(
    "PADDLE-incr-every",
    "PADDLE-decr-every",
    "PADDLE-decr-accumulated",
    "PADDLE-decr-consecutive",
    "PADDLE-arithmetic",
    "PADDLE-floor",
    "PADDLE-guard",
)
@pytest.mark.parametrize("decr_count", ["accumulated", "consecutive"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_scaler_is_the_plain_loop_on_every_pattern(setting, decr_count):
    """All 2**12 patterns, scale and both counts, bit for bit."""
    for pattern, seen in every_pattern(GradScaler(True, *setting, decr_count=decr_count), take, stands):
        assert seen == grad_scaler(*setting, pattern, decr_count), pattern


@pytest.mark.clause("PADDLE-decr-accumulated", "PADDLE-decr-consecutive", "PADDLE-incr-ratio", "PADDLE-decr-ratio")
@pytest.mark.parametrize(
    ("decr_count", "pattern", "scales"),
    [
        ("accumulated", "OFOFOF", [8, 8, 4, 4, 4, 4]),
        ("consecutive", "OFOFOF", [8, 8, 8, 8, 8, 8]),
        ("accumulated", "OOOOO", [8, 4, 4, 2, 2]),
        ("consecutive", "OOOOO", [8, 4, 4, 2, 2]),
        ("accumulated", "OFFFOO", [8, 8, 8, 16, 16, 8]),
        ("consecutive", "OFFFOO", [8, 8, 8, 16, 16, 8]),
        ("accumulated", "FFOFFF", [8, 8, 8, 8, 8, 16]),
    ],
)
def test_what_counts_towards_a_shrink(decr_count, pattern, scales):
    """Of 8, growing at the third finite step in a row and shrinking at the second overflow that counts."""
    scaler = GradScaler(init_loss_scaling=8, incr_every_n_steps=3, decr_count=decr_count)
    seen = []
    for letter in pattern:
        take(scaler, letter)
        seen.append(scaler.get_loss_scaling())
    assert seen == scales


@pytest.mark.clause("PADDLE-arithmetic")
def test_the_ratio_is_rounded_to_float32_before_the_product():
    """7 times 1.1, which a product in float64 would miss by one bit."""
    scaler = GradScaler(init_loss_scaling=7, incr_ratio=1.1, incr_every_n_steps=1)
    take(scaler, "F")
    assert scaler.get_loss_scaling().hex() == "0x1.ecccce0000000p+2"


@pytest.mark.clause("PADDLE-dynamic")
def test_a_fixed_scale_and_its_counts_stay():
    """Finite steps and overflows alike."""
    scaler = GradScaler(True, 8.0, 2.0, 0.5, 1, 1, False)
    for letter in "FOOFF":
        take(scaler, letter)
        assert stands(scaler) == (8, 0, 0)


@pytest.mark.clause("PADDLE-silent", "PADDLE-never-off")
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
def test_a_scaler_says_nothing_and_stays_on(capfd, dtype):
    """Whatever the dtype of the loss and whatever happens: no word, no warning."""
    scaler = GradScaler(init_loss_scaling=4)
    for letter in "OOOOFOO":
        assert scaler.scale(array(1, dtype)) == scaler.get_loss_scaling()
        take(scaler, letter)
    assert (scaler.is_enable(), scaler.is_use_dynamic_loss_scaling(), scaler.get_loss_scaling()) == (True, True, 0.5)
    assert capfd.readouterr() == ("", "")


# scale


@pytest.mark.clause("PADDLE-scale", "PADDLE-scale-dtype", "PADDLE-scale-shape")
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
@pytest.mark.parametrize(
    ("dtype", "scaled"),
    [
        ("float16", "float32"),
        (ml_dtypes.bfloat16, "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("complex64", "complex64"),
    ],
)
def test_scale_returns_a_new_array_of_the_same_shape(shape, dtype, scaled):
    """16-bit values come back as float32, beyond what they could hold; the argument is unchanged."""
    var = np.full(shape, 100, dtype)
    answer = GradScaler(init_loss_scaling=1024).scale(var)
    assert bits([answer]) == bits([np.full(shape, 102400, scaled)])
    assert bits([var]) == bits([np.full(shape, 100, dtype)])
    assert not np.shares_memory(answer, var)


@pytest.mark.clause("PADDLE-scale", "PADDLE-arithmetic")
def test_scale_uses_the_present_scale():
    """Not the first one."""
    scaler = GradScaler(init_loss_scaling=8, incr_every_n_steps=1)
    take(scaler, "F")
    assert scaler.scale(array(3)) == 48


@pytest.mark.clause("PADDLE-scale-argument")
@pytest.mark.parametrize("var", [1.0, 1, None, "1", [1.0], [array(1)], (array(1),), {"loss": array(1)}])
def test_scale_takes_one_array(var):
    """Numbers, containers and None are TypeErrors."""
    with refused(TypeError, "var", repr(var)):
        GradScaler().scale(var)


@pytest.mark.clause("PADDLE-scale-argument")
@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_scale_takes_no_integers(dtype):
    """A TypeError names the dtype."""
    with pytest.raises(TypeError, match=dtype):
        GradScaler().scale(array(1, dtype))


@pytest.mark.clause("PADDLE-enable")
@pytest.mark.parametrize("var", [array(3, "float16"), 1.0, None, "loss", [1, 2], array(1, "int32")])
def test_a_scaler_that_is_off_returns_the_very_argument(var):
    """Whatever it is."""
    assert GradScaler(enable=False).scale(var) is var
