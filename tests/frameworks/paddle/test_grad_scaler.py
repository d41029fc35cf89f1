"""Paddle's `GradScaler`: arguments, getters and setters, the update of the scale, and state dicts."""

from inspect import signature

import ml_dtypes
import numpy as np
import pytest
from frameworks.networks import array, bits
from frameworks.published import every_pattern, states_of
from frameworks.rejections import check_rejected
from frameworks.steps import GradientDescent, run_step, scaler_at, state_of
from presets.loops_paddle import GradScaler as LoopOfCode
from presets.loops_paddle import GradScalerPage as LoopOfPage

from ampscale import GradScaler

LARGEST = float(np.finfo(np.float32).max)
DEFAULTS = {name: parameter.default for name, parameter in signature(GradScaler).parameters.items()}
NUMBERS = list(DEFAULTS)[1:6]  # names of the arguments that are numbers

# Initial scale, incr_ratio, decr_ratio, incr_every_n_steps, decr_every_n_nan_or_inf.
SETTINGS = [(8.0, 2.0, 0.5, 2, 2), (1000.0, 1.1, 0.8, 1, 3), (2.0**-125, 2.0, 0.5, 4, 1), (2.0**126, 3.0, 0.1, 2, 2)]


@pytest.mark.clause("PADDLE-getters", "PADDLE-defaults")
def test_getters_return_arguments_and_set_values():
    """The state dict uses the names of the arguments as keys; setters return None."""
    scaler, arguments = GradScaler(), (False, 1024.0, 3.0, 0.25, 5, 4, False)
    for instance, expected in ((scaler, tuple(DEFAULTS.values())[:7]), (GradScaler(*arguments), arguments)):
        numbers = (getattr(instance, f"get_{name}")() for name in NUMBERS)
        assert (instance.is_enable(), *numbers, instance.is_use_dynamic_loss_scaling()) == expected
    for name, value in zip(NUMBERS, (64.0, 4.0, 0.125, 7, 3), strict=True):
        assert getattr(scaler, f"set_{name}")(value) is None
        assert getattr(scaler, f"get_{name}")() == value
        assert scaler.state_dict().get(name, value) == value


def test_repr_has_the_scale_and_the_counts():
    assert repr(GradScaler(init_loss_scaling=8.0)) == "GradScaler(scale=8.0, incr_count=0, decr_count=0)"
    assert repr(GradScaler(enable=False)) == "GradScaler(enable=False)"


@pytest.mark.clause("PADDLE-scale-argument")
def test_only_arrays_can_be_scaled():
    """A number, a list, a dtype and an integer are rejected."""
    expected = r"^var must be (an array, got .* of type (float|list|type)|floating-point or complex, got int64)$"
    for wrong in (1.0, [array(1)], np.float32, np.asarray(1)):
        with pytest.raises(TypeError, match=expected):
            GradScaler().scale(wrong)


@pytest.mark.clause("PADDLE-parameters", "PADDLE-decr-consecutive")
def test_decr_count_must_be_one_of_two_names():
    """The error lists both names."""
    wrong = [("decr_count", value, ValueError) for value in ("", "Accumulated", "both", None, 2, [])]
    names = "['accumulated', 'consecutive']"
    check_rejected(lambda _, value: GradScaler(decr_count=value), wrong, got=lambda _: names)


@pytest.mark.clause("PADDLE-enable")
@pytest.mark.parametrize("device", ["cuda", type("device", (), {})()], ids=["name", "device"])
def test_a_device_is_rejected_with_a_hint_at_torchs_class(device):
    hint = r"^enable must be a bool, got .*\. This is Paddle's GradScaler; ampscale.torch.GradScaler is torch's, whose .* device$"
    with pytest.raises(TypeError, match=hint):
        GradScaler(device)


@pytest.mark.clause("PADDLE-init-loss-scaling", "PADDLE-arithmetic")
def test_the_initial_scale_is_rounded_to_float32():
    """Every normal float32 number is valid."""
    for value in (1, 16777217, 0.1, 2.0**-126, LARGEST):
        assert state_of(GradScaler(init_loss_scaling=value)) == (float(np.float32(value)), 0, 0)


@pytest.mark.clause("PADDLE-incr-every", "PADDLE-decr-every", "PADDLE-decr-accumulated", "PADDLE-decr-consecutive")
@pytest.mark.clause("PADDLE-arithmetic", "PADDLE-min-scale", "PADDLE-skip-infinite-growth")
@pytest.mark.parametrize(
    ("decr_count", "loop", "counts"),
    [("accumulated", LoopOfPage, ("in_a_row", "added_up")), ("consecutive", LoopOfCode, ("incr_count", "decr_count"))],
)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_scaler_equals_the_plain_loop_on_every_pattern(setting, decr_count, loop, counts):
    """Scale and both counts are equal bit for bit."""
    for pattern, states in every_pattern(GradScaler(True, *setting, decr_count=decr_count), run_step, state_of):
        assert states == states_of(loop(*setting), pattern, "scale", *counts, min_scale=2.0**-126), pattern


@pytest.mark.clause("PADDLE-silent", "PADDLE-never-off")
def test_a_scaler_prints_nothing_and_stays_enabled(capfd):
    """No warning is issued either, whatever the dtype of the loss."""
    for dtype in ("float16", ml_dtypes.bfloat16, "float32", "float64"):
        scaler = GradScaler(init_loss_scaling=4)
        for letter in "OOOOFOO":
            assert scaler.scale(array(1, dtype)) == scaler.get_loss_scaling()
            run_step(scaler, letter)
        assert (scaler.is_enable(), scaler.is_use_dynamic_loss_scaling(), scaler.get_loss_scaling()) == (True, True, 0.5)
    assert capfd.readouterr() == ("", "")


PUBLISHED = {  # state dict as Paddle's scaler saves it
    "scale": array([1024]),
    "incr_ratio": 3.0,
    "decr_ratio": 0.25,
    "incr_every_n_steps": 5,
    "decr_every_n_nan_or_inf": 4,
    "incr_count": 2,
    "decr_count": 3,
    "use_dynamic_loss_scaling": True,
}


@pytest.mark.clause("PADDLE-set-init-loss-scaling", "PADDLE-getters")
def test_setting_the_initial_scale_replaces_the_current_one():
    """The counts are kept, and the next loss is multiplied by the new scale."""
    scaler = GradScaler(init_loss_scaling=8, incr_every_n_steps=3, decr_every_n_nan_or_inf=3)
    for letter in "OFF":
        run_step(scaler, letter)
    scaler.set_init_loss_scaling(64.0)
    assert state_of(scaler) == (64, 2, 1)
    assert scaler.scale(array(1)) == 64
    run_step(scaler, "F")
    assert (state_of(scaler), scaler.get_init_loss_scaling()) == ((128, 0, 0), 64)


@pytest.mark.clause("PADDLE-getters", "PADDLE-incr-ratio", "PADDLE-decr-ratio", "PADDLE-incr-every", "PADDLE-decr-every")
def test_set_values_apply_at_the_next_step():
    """An interval applies even if the count already exceeds it."""
    scaler = GradScaler(init_loss_scaling=8)
    for letter in "OFFF":
        run_step(scaler, letter)
    scaler.set_incr_ratio(4.0)
    scaler.set_incr_every_n_steps(2)
    run_step(scaler, "F")
    assert state_of(scaler) == (32, 0, 0)
    scaler.set_decr_ratio(0.125)
    scaler.set_decr_every_n_nan_or_inf(1)
    run_step(scaler, "O")
    assert state_of(scaler) == (4, 0, 0)


@pytest.mark.clause("PADDLE-state-dict")
def test_the_state_dict_has_paddles_eight_keys():
    """The scale is a float32 array of shape (1,), the other values are Python values."""
    scaler = GradScaler(True, 2048, 3.0, 0.25, 5, 4)
    for letter in "OOFF":
        run_step(scaler, letter)
    state = scaler.state_dict()
    assert bits([state.pop("scale")]) == bits([array([2048])])
    assert state == {**{key: value for key, value in PUBLISHED.items() if key != "scale"}, "incr_count": 2, "decr_count": 2}
    assert [type(value) for value in state.values()] == [float, float, int, int, int, int, bool]


@pytest.mark.clause("PADDLE-load-state-dict", "PADDLE-never-off")
def test_paddles_state_dict_loads():
    """The scale may be a number, list or array. All eight values are restored, and the initial scale is the loaded one."""
    for scale in (array([1024]), [1024.0], (1024.0,), 1024.0, array(1024), np.float32(1024), array([1024], "float64")):
        scaler = GradScaler()
        assert scaler.load_state_dict({**PUBLISHED, "scale": scale}) is None
        assert bits([scaler.state_dict()["scale"]]) == bits([array([1024])])
        assert {**scaler.state_dict(), "scale": 0} == {**PUBLISHED, "scale": 0}
        assert (scaler.get_init_loss_scaling(), scaler.get_incr_ratio(), scaler.get_decr_ratio()) == (1024, 3, 0.25)
        run_step(scaler, "O")
        assert state_of(scaler) == (256, 0, 0)


@pytest.mark.clause("PADDLE-load-state-dict", "PADDLE-dynamic")
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_loaded_state_decides_whether_the_scale_is_dynamic(dynamic):
    """The constructor's choice is replaced."""
    scaler = GradScaler(use_dynamic_loss_scaling=not dynamic)
    scaler.load_state_dict({**PUBLISHED, "use_dynamic_loss_scaling": dynamic})
    assert scaler.is_use_dynamic_loss_scaling() is dynamic
    run_step(scaler, "O")
    assert state_of(scaler) == ((256, 0, 0) if dynamic else (1024, 2, 3))


@pytest.mark.clause("PADDLE-state-dict", "PADDLE-load-state-dict", "PADDLE-enable", "PADDLE-load-rejects")
def test_a_disabled_scaler_saves_and_loads_an_empty_state():
    """Loading any other state warns that the state is not used. An enabled scaler rejects the empty dict."""
    scaler = GradScaler(enable=False)
    assert scaler.state_dict() == {}
    scaler.load_state_dict({})
    for state_dict in (PUBLISHED, np.zeros(2)):
        with pytest.warns(UserWarning, match="disabled"):
            scaler.load_state_dict(state_dict)
    assert (scaler.is_enable(), scaler.state_dict()) == (False, {})
    with pytest.raises(RuntimeError, match="disabled GradScaler returned it"):
        GradScaler().load_state_dict({})


@pytest.mark.clause("PADDLE-load-state-dict", "PADDLE-fixed-step")
def test_loading_within_a_step_ends_it():
    """The loaded state belongs to another run, so the optimizer may step again. With its fixed scale, `update` does nothing."""
    scaler, optimizer = scaler_at(8), GradientDescent(array([8]))
    scaler.step(optimizer)
    scaler.load_state_dict({**PUBLISHED, "use_dynamic_loss_scaling": False})
    scaler.update()
    assert scaler.step(optimizer) is True
